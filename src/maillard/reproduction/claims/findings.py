"""What a test of a claim gives, and the comparisons that most of them are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

__all__ = [
    "DEVIATION",
    "MEAN",
    "TESTS",
    "Finding",
    "Test",
    "all_pairs",
    "counted",
    "each",
    "nearest",
    "ratio",
    "relative",
    "tests",
    "times",
    "within",
]

Measure = Callable[[NDArray[np.float64]], TrialEstimate]
MEAN: Measure = log_mean
DEVIATION: Measure = log_deviation


@dataclass(frozen=True)
class Finding:
    """What came out: the checks that decide; or, where something else does, a verdict and its evidence."""

    statistic: str
    checks: tuple[Check, ...] = ()
    verdict: Verdict | None = None
    evidence: DataTable | None = None
    confidence: float | None = CONFIDENCE  # None where all is computed or counted

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
            rows.append((check.says, *(check.form(value) for value in shown), word))
        bounds = (f"at least ({CONFIDENCE:.0%})", f"at most ({CONFIDENCE:.0%})")
        return DataTable(("what is claimed", "estimate", *bounds, "so"), tuple(rows))


Test = Callable[
    [ExperimentResults, str], Finding
]  # the second argument is the experiment that a claim is judged on
TESTS: dict[str, Test] = {}


def tests(name: str) -> Callable[[Test], Test]:
    """Marks the function that tests the claim of this name."""

    def register(function: Test) -> Test:
        TESTS[name] = function
        return function

    return register


def counted(statistic: str, *, holds: bool, evidence: DataTable) -> Finding:
    """The finding of a claim that is computed or counted, without chance."""
    return Finding(
        statistic, verdict=Verdict("holds" if holds else "fails"), evidence=evidence, confidence=None
    )


def times(value: float) -> str:
    """A logarithm, shown as the factor that it is."""
    return f"×{math.exp(value):.3g}" if value < 30 else "> ×1e13"


def ratio(
    results: ExperimentResults, where: tuple[str, str | None], measure: Measure, over: str, under: str
) -> TrialEstimate:
    """The log of one policy's measure over another's, in one experiment on one problem; `measure` is the log of something."""
    above, below = (results.regret(*where, policy) for policy in (over, under))
    return measure(above) - measure(below)


def relative(
    results: ExperimentResults, experiment: str, measure: Measure, over: str, under: str
) -> TrialEstimate:
    """The same, averaged over the experiment's problems."""
    problems = results.problems(experiment)
    return average([ratio(results, (experiment, problem), measure, over, under) for problem in problems])


def within(what: str, quantity: TrialEstimate, factor: float) -> tuple[Check, Check]:
    """That a log ratio lies within a factor, to either side."""
    room = math.log(factor)
    return Check(what, quantity, room, below=True, form=times), Check(what, quantity, -room, form=times)


def all_pairs(
    results: ExperimentResults,
    experiment: str,
    measure: Measure,
    overs: Sequence[str],
    unders: Sequence[str],
    *,
    factor: float = 1.0,
) -> tuple[Check, ...]:
    """That each of the first has more than `factor` times as much as each of the others, by geometric means."""
    return tuple(
        Check(
            f"{label(over)} over {label(under)}",
            relative(results, experiment, measure, over, under),
            math.log(factor),
            form=times,
        )
        for over in overs
        for under in unders
    )


def nearest(checks: Sequence[Check]) -> str:
    """The check that comes nearest to failing."""
    least = min(checks, key=lambda check: check.margin.value / (check.margin.error or 1e-300))
    return f"nearest: {least.what} {least.form(least.quantity.value)}, to be {'below' if least.below else 'above'} {least.form(least.limit)}"


def each(checks: Sequence[Check]) -> str:
    """What every check found."""
    return "; ".join(dict.fromkeys(f"{check.what} {check.form(check.quantity.value)}" for check in checks))
