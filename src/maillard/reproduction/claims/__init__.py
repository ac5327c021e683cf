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
from maillard.reproduction.statistics import CONFIDENCE, Verdict, judge

__all__ = ["READINGS", "claims", "ledger"]

# The experiments that read the unstated noise of the Gaussian problems, and how they read it.
READINGS = {"gaussian-1": "variance 1", "gaussian-quarter": "variance 1/4"}


@functools.cache
def claims() -> tuple[dict[str, Any], ...]:
    """What claims.toml says; a claim that is judged for each reading is there once for each."""
    text = (resources.files("maillard.reproduction") / "claims.toml").read_text(encoding="utf8")
    made = []
    for claim in tomllib.loads(text)["claim"]:
        if "{reading}" not in claim["needs"]:
            made.append(claim | {"reading of noise": ""})
            continue
        for reading, said in READINGS.items():
            needs = [reading if need == "{reading}" else need for need in claim["needs"]]
            section = claim["section"].format(reading=reading)
            own = {"id": f"{claim['id']}-{reading}", "needs": needs, "section": section}
            made.append(
                claim | own | {"reading of noise": reading, "reading": f"Noise of {said}. {claim['reading']}"}
            )
    return tuple(made)


def ledger(results: Results) -> tuple[Row, ...]:
    """Every claim with its verdict."""
    done = results.experiments()
    return tuple(_row(claim, results if done.issuperset(claim["needs"]) else None) for claim in claims())


def _row(claim: dict[str, Any], results: Results | None) -> Row:
    if results is None:
        finding = Finding("not run", verdict=Verdict("not run"), evidence=Table((), ()))
    else:
        reading = claim["reading of noise"]
        finding = TESTS[claim["id"].removesuffix(f"-{reading}")](results, reading)
    verdict = finding.verdict or judge(finding.checks)
    return Row(
        **{name: claim[name] for name in ("id", "source", "quote", "reading", "test", "section")},
        statistic=finding.statistic,
        verdict=verdict.word,
        confidence=CONFIDENCE,
        trials_needed=verdict.trials_needed,
        evidence=finding.table(),
    )
