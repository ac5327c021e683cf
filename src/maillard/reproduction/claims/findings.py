"""What a test of a claim gives, and the comparisons that most of them are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maillard.reproduction.experiments import label
from maillard.reproduction.report import Table
from maillard.reproduction.results import Results
from maillard.reproduction.statistics import (
    CONFIDENCE,
    Check,
    Estimate,
    Verdict,
    average,
    log_deviation,
    log_mean,
)

__all__ = [
    "DEVIATION",
    "MEAN",
    "TESTS",
    "Finding",
    "Test",
    "all_pairs",
    "nearest",
    "ratio",
    "relative",
    "tests",
    "times",
    "within",
]


@dataclass(frozen=True)
class Finding:
    """What came out: the checks that decide; or, where something else does, a verdict and its evidence."""

    statistic: str
    checks: tuple[Check, ...] = ()
    verdict: Verdict | None = None
    evidence: Table | None = None

    def table(self) -> Table:
        """The numbers behind the verdict."""
        if self.evidence is not None:
            return self.evidence
        rows = []
        for check in self.checks:
            low, high = check.quantity.lower(CONFIDENCE), check.quantity.upper(CONFIDENCE)
            shown = tuple(check.shown(value) for value in (check.quantity.value, low, high))
            word = "yes" if low > 0 else "no" if high < 0 else "open"
            rows.append((check.says, *shown, word))
        bounds = (f"at least ({CONFIDENCE:.0%})", f"at most ({CONFIDENCE:.0%})")
        return Table(("what is claimed", "estimate", *bounds, "so"), tuple(rows))


Measure = Callable[[NDArray[np.float64]], Estimate]
MEAN: Measure = log_mean
DEVIATION: Measure = log_deviation
Test = Callable[[Results, str], Finding]  # the second argument is the reading of the Gaussian noise
TESTS: dict[str, Test] = {}


def tests(name: str) -> Callable[[Test], Test]:
    """Marks the function that tests the claim of this name."""

    def register(function: Test) -> Test:
        TESTS[name] = function
        return function

    return register


def times(value: float) -> str:
    """A logarithm, shown as the factor that it is."""
    return f"×{math.exp(value):.3g}" if value < 30 else "> ×1e13"


def relative(results: Results, experiment: str, measure: Measure, over: str, under: str) -> Estimate:
    """The log of one policy's measure over another's, averaged over the experiment's problems."""
    return average(
        [
            ratio(results, (experiment, problem), measure, over, under)
            for problem in results.problems(experiment)
        ]
    )


def ratio(
    results: Results, where: tuple[str, str | None], measure: Measure, over: str, under: str
) -> Estimate:
    """The log of one policy's measure over another's, in one experiment on one problem; `measure` is the log of something."""
    above, below = (results.regret(*where, policy) for policy in (over, under))
    return measure(above) - measure(below)


def within(what: str, quantity: Estimate, factor: float) -> tuple[Check, Check]:
    """That a log ratio lies within a factor, to either side."""
    room = math.log(factor)
    return (
        Check(f"{what} is below ×{factor:g}", room - quantity, lambda left: times(room - left)),
        Check(f"{what} is above ×{1 / factor:g}", quantity + room, lambda left: times(left - room)),
    )


def all_pairs(
    results: Results,
    experiment: str,
    measure: Measure,
    overs: Sequence[str],
    unders: Sequence[str],
    *,
    factor: float = 1.0,
) -> tuple[Check, ...]:
    """That each of the first has more than `factor` times as much as each of the others, by geometric means."""
    less = math.log(factor)
    return tuple(
        Check(
            f"{label(over)} over {label(under)} is above ×{factor:g}",
            relative(results, experiment, measure, over, under) - less,
            lambda left: times(left + less),
        )
        for over in overs
        for under in unders
    )


def nearest(checks: tuple[Check, ...]) -> str:
    """The check that comes nearest to failing."""
    least = min(checks, key=lambda check: check.quantity.value / (check.quantity.error or 1e-300))
    return f"nearest: {least.says}: {least.shown(least.quantity.value)}"
