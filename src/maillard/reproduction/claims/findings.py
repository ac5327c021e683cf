"""The result of the test of a claim, and comparisons that many tests use."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.reproduction.claim_statistics import (
    CONFIDENCE,
    Check,
    TrialEstimate,
    Verdict,
    average,
    log_deviation,
    log_mean,
    stricter,
)
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable

Measure = Callable[[NDArray[np.float64]], TrialEstimate]
MEAN: Measure = log_mean
DEVIATION: Measure = log_deviation


@dataclass(frozen=True)
class Finding:
    """The result of a test: the checks that decide, or a verdict with its evidence."""

    statistic: str
    checks: tuple[Check, ...] = ()
    verdict: Verdict | None = None
    evidence: DataTable | None = None
    confidence: float | None = CONFIDENCE  # None if nothing is estimated

    def table(self) -> DataTable:
        """The numbers behind the verdict."""
        if self.evidence is not None:
            return self.evidence
        strict = stricter(CONFIDENCE, max(len(self.checks), 1))
        rows = []
        for check in self.checks:
            found = check.quantity
            shown = (found.value, found.lower(CONFIDENCE), found.upper(CONFIDENCE))
            word = "yes" if check.holds(CONFIDENCE) else "no" if check.fails(strict) else "open"
            rows.append((check.text, *(check.form(value) for value in shown), word))
        bounds = (f"at least ({CONFIDENCE:.0%})", f"at most ({CONFIDENCE:.0%})")
        return DataTable(("what is claimed", "estimate", *bounds, "so"), tuple(rows))


# The second argument is the experiment on which the claim is tested; empty if there is only one.
Test = Callable[[ExperimentResults, str], Finding]
TESTS: dict[str, Test] = {}


def tests(name: str, **parameters: Any) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Register a function, with these parameters, as the test of the claim of this name."""

    def register(function: Callable[..., Finding]) -> Callable[..., Finding]:
        TESTS[name] = functools.partial(function, **parameters)
        return function

    return register


def computed_finding(statistic: str, *, holds: bool, evidence: DataTable) -> Finding:
    """The finding for a claim that is computed or counted, without statistical error."""
    return Finding(
        statistic, verdict=Verdict("holds" if holds else "fails"), evidence=evidence, confidence=None
    )


def times(value: float) -> str:
    """A logarithm as a factor."""
    return f"×{math.exp(value):.3g}" if value < 30 else "> ×1e13"


def ratio(
    results: ExperimentResults, where: tuple[str, str | None], measure: Measure, over: str, under: str
) -> TrialEstimate:
    """The log ratio of a measure of two policies on one problem; `measure` returns a logarithm."""
    above, below = (results.regret(*where, policy) for policy in (over, under))
    return measure(above) - measure(below)


def relative(
    results: ExperimentResults, experiment: str, measure: Measure, over: str, under: str
) -> TrialEstimate:
    """The log ratio of a measure of two policies, averaged over the problems of an experiment."""
    problems = results.problems(experiment)
    return average([ratio(results, (experiment, problem), measure, over, under) for problem in problems])


def ratio_check(
    what: str, log_ratio: TrialEstimate, factor: float = 1.0, *, below: bool = False, among: int = 1
) -> Check:
    """The check that a ratio, given by its logarithm, is above a factor, or below it."""
    return Check(what, log_ratio, math.log(factor), below=below, form=times, among=among)


def within(what: str, quantity: TrialEstimate, factor: float) -> tuple[Check, Check]:
    """Checks that a log ratio is within a factor, in both directions."""
    limit = math.log(factor)
    return Check(what, quantity, limit, below=True, form=times), Check(what, quantity, -limit, form=times)


def all_pairs(
    results: ExperimentResults,
    experiment: str,
    measure: Measure,
    overs: Sequence[str],
    unders: Sequence[str],
    *,
    factor: float = 1.0,
) -> tuple[Check, ...]:
    """Checks that each of `overs` has more than `factor` times the measure of each of `unders`."""
    return tuple(
        ratio_check(
            f"{label(over)} over {label(under)}",
            relative(results, experiment, measure, over, under),
            factor,
        )
        for over in overs
        for under in unders
    )


def nearest_text(checks: Sequence[Check]) -> str:
    """The check that is nearest to failing, as text."""
    least = min(checks, key=lambda check: check.margin.value / (check.margin.error or 1e-300))
    return (
        f"nearest: {least.what} {least.form(least.quantity.value)}, to be "
        f"{'below' if least.below else 'above'} {least.form(least.limit)}"
    )


def estimates_text(checks: Sequence[Check]) -> str:
    """The estimates of all checks, as text."""
    return "; ".join(dict.fromkeys(f"{check.what} {check.form(check.quantity.value)}" for check in checks))
