"""The claims ledger: what the paper says that can be checked, each with what came out."""

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
from maillard.reproduction.paper_experiments import PAPER, experiments, read
from maillard.reproduction.report_content import ClaimResult, DataTable

__all__ = ["claims", "ledger"]


@functools.cache
def claims() -> tuple[dict[str, Any], ...]:
    """What paper_claims.toml says; a claim that is judged on several experiments is there once for each."""
    said = read("paper_claims.toml")
    made = []
    for claim in said["claim"]:
        if "on" not in claim:
            made.append(claim | {"test of": claim["id"], "where": ""})
        for where in claim.get("on", ()):
            own = {name: claim[name] for name in ("needs", "section", "reading")}
            own["needs"] = [need.format(on=where) for need in own["needs"]]
            own["section"] = own["section"].format(on=where)
            own["reading"] = f"{said['on'][where]} {own['reading']}"
            if where == "bernoulli":
                own |= {"quote": said["same"]["quote"], "source": said["same"]["source"]}
            made.append(
                claim | own | {"id": f"{claim['id']}-{where}", "test of": claim["id"], "where": where}
            )
    return tuple(made)


def ledger(results: ExperimentResults) -> tuple[ClaimResult, ...]:
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
        verdict=verdict.word,
        confidence=finding.confidence,
        trials_needed=_as_asked(verdict.trials_needed, claim["needs"]),
        evidence=finding.table(),
    )


def _as_asked(trials: int | None, needs: list[str]) -> int | None:
    """How many to ask for, of the paper's experiments, so that the smallest of a claim's has so many; 3 digits are enough."""
    if trials is None:
        return None
    wanted = trials * PAPER["trials"] / min(experiments()[name].trials for name in needs)
    unit: int = 10 ** max(len(str(int(wanted))) - 3, 0)
    return math.ceil(wanted / unit) * unit
