"""The claims ledger: what the paper says that can be checked, each with what came out."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

# Importing the modules of tests fills TESTS.
from maillard.reproduction.claims import comparison, maximum, practice, theory  # noqa: F401
from maillard.reproduction.claims.findings import TESTS, Finding
from maillard.reproduction.report import Row, Table
from maillard.reproduction.results import Results
from maillard.reproduction.statistics import Verdict, judge

__all__ = ["claims", "ledger"]


@functools.cache
def claims() -> tuple[dict[str, Any], ...]:
    """What claims.toml says; a claim that is judged on several experiments is there once for each."""
    text = (resources.files("maillard.reproduction") / "claims.toml").read_text(encoding="utf8")
    said = tomllib.loads(text)
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


def ledger(results: Results) -> tuple[Row, ...]:
    """Every claim with its verdict."""
    done = results.experiments()
    return tuple(_row(claim, results if done.issuperset(claim["needs"]) else None) for claim in claims())


def _row(claim: dict[str, Any], results: Results | None) -> Row:
    if results is None:
        finding = Finding("not run", verdict=Verdict("not run"), evidence=Table((), ()), confidence=None)
    else:
        finding = TESTS[claim["test of"]](results, claim["where"])
    verdict = finding.verdict or judge(finding.checks)
    return Row(
        **{name: claim[name] for name in ("id", "source", "quote", "reading", "test", "section")},
        statistic=finding.statistic,
        verdict=verdict.word,
        confidence=finding.confidence,
        trials_needed=verdict.trials_needed,
        evidence=finding.table(),
    )
