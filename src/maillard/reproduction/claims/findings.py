"""The result of the test of a claim, and comparisons that many tests use."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from maillard.array_types import Floats
from maillard.reproduction.claim_statistics import (
    CONFIDENCE,
    Check,
    TrialEstimate,
    Verdict,
    average,
    log_mean,
    stricter,
)
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable

Measure = Callable[[Floats], TrialEstimate]  # for ratios, a logarithm


@dataclass(frozen=True)
class Finding:
    """The result of a test: the checks that decide, or a verdict with its evidence."""

    statistic: str
    checks: Sequence[Check] = ()
    verdict: Verdict | None = None
    evidence: DataTable | None = None
    confidence: float | None = CONFIDENCE  # None if nothing is estimated

    @classmethod
    def computed(cls, statistic: str, *, holds: bool, evidence: DataTable) -> Finding:
        """The finding for a claim that is computed or counted, without statistical error."""
        return cls(statistic, (), Verdict("holds" if holds else "fails"), evidence, confidence=None)

    @classmethod
    def nearest(cls, checks: Sequence[Check], before: str = "") -> Finding:
        """The finding whose statistic is the check that is nearest to failing, after the text `before`."""
        least = min(checks, key=lambda check: check.margin.value / (check.margin.error or 1e-300))
        side, limit = "below" if least.below else "above", least.form(least.limit)
        value = least.form(least.quantity.value)
        return cls(f"{before}nearest: {least.what} {value}, to be {side} {limit}", checks)

    @classmethod
    def estimates(cls, checks: Sequence[Check], before: str = "") -> Finding:
        """The finding whose statistic is the estimates of all checks, after the text `before`."""
        return cls(before + estimates_text(checks), checks)

    def table(self) -> DataTable:
        """The numbers behind the verdict."""
        if self.evidence is not None:
            return self.evidence
        strict = stricter(CONFIDENCE, len(self.checks))
        rows = []
        for check in self.checks:
            found = check.quantity
            word = "yes" if check.holds(CONFIDENCE) else "no" if check.fails(strict) else "open"
            row = {
                "what is claimed": check.text,
                "estimate": check.form(found.value),
                f"at least ({CONFIDENCE:.0%})": check.form(found.lower(CONFIDENCE)),
                f"at most ({CONFIDENCE:.0%})": check.form(found.upper(CONFIDENCE)),
                "so": word,
            }
            rows.append(row)
        return DataTable.of(rows)


# The second argument is the experiment on which the claim is tested; empty if there is only one.
Test = Callable[[ExperimentResults, str], Finding]
TESTS: dict[str, Test] = {}


def tests(name: str, **parameters: Any) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Register a function, with these parameters, as the test of the claim of this name."""

    def register(function: Callable[..., Finding]) -> Callable[..., Finding]:
        TESTS[name] = functools.partial(function, **parameters)
        return function

    return register


def log_ratio(
    results: ExperimentResults,
    experiment: str,
    over: str,
    under: str,
    *,
    problem: str | None = None,
    measure: Measure = log_mean,
) -> TrialEstimate:
    """The log ratio of a measure of two policies, averaged over the problems of an experiment, or on one."""
    problems = results.problems(experiment) if problem is None else [problem]
    pairs = [[results.regret(experiment, each, policy) for policy in (over, under)] for each in problems]
    return average([measure(above) - measure(below) for above, below in pairs])


def all_pairs(
    results: ExperimentResults,
    experiment: str,
    overs: Sequence[str],
    unders: Sequence[str],
    *,
    problem: str | None = None,
    measure: Measure = log_mean,
    where: str = "",
    **options: Any,
) -> list[Check]:
    """The checks of the ratios of each of `overs` to each of `unders`, with the options of `Check.ratio`.

    The text of each check begins with `where`.
    """
    checks = []
    for over, under in itertools.product(overs, unders):
        quantity = log_ratio(results, experiment, over, under, problem=problem, measure=measure)
        checks.append(Check.ratio(f"{where}{label(over)} over {label(under)}", quantity, **options))
    return checks


def estimates_text(checks: Sequence[Check]) -> str:
    """The estimates of all checks, as text."""
    return "; ".join(dict.fromkeys(f"{check.what} {check.form(check.quantity.value)}" for check in checks))
