"""The claims of the paper that can be tested, with their verdicts."""

from __future__ import annotations

import functools
import math
from typing import Any

from maillard.reproduction.claim_statistics import Verdict, judge

# Importing the modules of tests fills TESTS.
from maillard.reproduction.claims import (  # noqa: F401
    comparison_claims,
    maximum_claims,
    off_policy_claims,
    theory_claims,
    tuning_claims,
)
from maillard.reproduction.claims.findings import TESTS, Finding
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import PAPER, experiments, read_toml
from maillard.reproduction.report_content import ClaimResult, DataTable

__all__ = ["claims", "judge_claims"]


@functools.cache
def claims() -> tuple[dict[str, Any], ...]:
    """The claims of paper_claims.toml; a claim that is tested on several experiments occurs once for each."""
    content = read_toml("paper_claims.toml")
    expanded = []
    for claim in content["claim"]:
        if "on" not in claim:
            expanded.append(claim | {"test of": claim["id"], "where": ""})
        for where in claim.get("on", ()):
            specific = {
                "id": f"{claim['id']}-{where}",
                "test of": claim["id"],
                "where": where,
                "needs": [need.format(on=where) for need in claim["needs"]],
                "section": claim["section"].format(on=where),
                "reading": f"{content['on'][where]} {claim['reading']}",
            }
            same = content["same"] if where == "bernoulli" else {}
            expanded.append(claim | specific | same)
    return tuple(expanded)


def judge_claims(results: ExperimentResults) -> tuple[ClaimResult, ...]:
    """Every claim with its verdict."""
    done = results.experiments()
    return tuple(_row(claim, results if done.issuperset(claim["needs"]) else None) for claim in claims())


def _row(claim: dict[str, Any], results: ExperimentResults | None) -> ClaimResult:
    if results is None:
        finding = Finding("not run", verdict=Verdict("not run"), evidence=DataTable((), ()), confidence=None)
    else:
        finding = TESTS[claim["test of"]](results, claim["where"])
    verdict = finding.verdict or judge(finding.checks)
    return ClaimResult(
        **{name: claim[name] for name in ("id", "source", "quote", "reading", "test", "section")},
        statistic=finding.statistic,
        verdict=verdict.outcome,
        confidence=finding.confidence,
        trials_needed=_trials_option(verdict.trials_needed, claim["needs"]),
        evidence=finding.table(),
    )


def _trials_option(trials: int | None, needs: list[str]) -> int | None:
    """The --trials that give the smallest experiment of a claim so many, rounded up to 3 digits."""
    if trials is None:
        return None
    wanted = trials * PAPER["trials"] / min(experiments()[name].trials for name in needs)
    unit: int = 10 ** max(len(str(int(wanted))) - 3, 0)
    return math.ceil(wanted / unit) * unit
