"""Estimates with their errors, and what they say of a claim at a stated confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "CONFIDENCE",
    "Check",
    "Estimate",
    "Verdict",
    "average",
    "exact",
    "judge",
    "log_deviation",
    "log_mean",
    "mean",
    "share",
]

CONFIDENCE = 0.95
_POWER = 0.8  # with which the trials that an open claim needs would settle it


@dataclass(frozen=True)
class Estimate:
    """A number estimated from independent trials; sums and differences are of independent estimates."""

    value: float
    variance: float  # of the estimate itself
    freedom: float  # degrees of freedom of the variance
    trials: int

    @property
    def error(self) -> float:
        """Its standard error."""
        return math.sqrt(self.variance)

    def __add__(self, other: Estimate | float) -> Estimate:
        if not isinstance(other, Estimate):
            return Estimate(self.value + other, self.variance, self.freedom, self.trials)
        variance = self.variance + other.variance
        # Welch and Satterthwaite
        spread = sum(each.variance**2 / each.freedom for each in (self, other) if each.variance)
        freedom = variance**2 / spread if spread else math.inf
        return Estimate(self.value + other.value, variance, freedom, min(self.trials, other.trials))

    def __mul__(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.variance * factor**2, self.freedom, self.trials)

    def __neg__(self) -> Estimate:
        return self * -1.0

    def __sub__(self, other: Estimate | float) -> Estimate:
        return self + -other

    def __rsub__(self, other: float) -> Estimate:
        return -self + other

    def lower(self, confidence: float) -> float:
        """The end of a one-sided interval."""
        return (
            self.value - float(special.stdtrit(self.freedom, confidence)) * self.error
            if self.variance
            else self.value
        )

    def upper(self, confidence: float) -> float:
        """The end of a one-sided interval."""
        return -(-self).lower(confidence)


def mean(values: Floats) -> Estimate:
    """The mean of independent trials."""
    n = values.size
    return Estimate(float(values.mean()), float(values.var(ddof=1)) / n, n - 1, n)


def log_mean(values: Floats) -> Estimate:
    """The logarithm of the mean, by the delta method: a difference of two is a ratio of means."""
    plain = mean(values)
    return Estimate(math.log(plain.value), plain.variance / plain.value**2, plain.freedom, plain.trials)


def log_deviation(values: Floats) -> Estimate:
    """The logarithm of the standard deviation, with Miller's jackknife error, which holds for heavy tails too."""
    n = values.size
    centred = values - values.mean()
    squares = float((centred**2).sum())
    # The sum of squares without one value, for each value at once.
    left = np.maximum(squares - centred**2 * n / (n - 1), 1e-300 * max(squares, 1e-300))
    logs = 0.5 * np.log(left / (n - 2))
    whole = 0.5 * math.log(squares / (n - 1))
    pseudo = n * whole - (n - 1) * logs
    return Estimate(float(pseudo.mean()), float(pseudo.var(ddof=1)) / n, n - 1, n)


def share(events: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The ends of two one-sided Clopper-Pearson intervals for the probability of an event, each at the confidence."""
    level = 1 - confidence
    low = 0.0 if events == 0 else float(special.betaincinv(events, trials - events + 1, level))
    high = 1.0 if events == trials else float(special.betaincinv(events + 1, trials - events, 1 - level))
    return low, high


def average(estimates: Sequence[Estimate]) -> Estimate:
    """The average of independent estimates."""
    total = estimates[0]
    for each in estimates[1:]:
        total = total + each
    return total * (1 / len(estimates))


def exact(value: float) -> Estimate:
    """A number that is computed, not estimated."""
    return Estimate(value, 0.0, math.inf, 0)


@dataclass(frozen=True)
class Check:
    """One thing that a claim says: that a quantity, put so that the claim is right, is above 0."""

    says: str
    quantity: Estimate
    shown: Callable[[float], str] = "{:.3g}".format  # how to print the quantity


@dataclass(frozen=True)
class Verdict:
    """What became of a claim, and how many trials would settle it if it is open."""

    word: str
    trials_needed: int | None = None


def judge(checks: Sequence[Check], confidence: float = CONFIDENCE) -> Verdict:
    """Whether a claim holds, fails or is open: it says every one of its checks.

    It holds if each is above 0 at the confidence: where one is not above 0 in truth, that one passes by mistake as rarely as
    the confidence says, and all do more rarely still (an intersection-union test). It fails if one is below 0 at a confidence
    that Bonferroni's correction makes stricter.
    """
    strict = 1 - (1 - confidence) / len(checks)
    if all(check.quantity.lower(confidence) > 0 for check in checks):
        return Verdict("holds")
    if any(check.quantity.upper(strict) < 0 for check in checks):
        return Verdict("fails")
    against = [_needed(check.quantity, strict) for check in checks if check.quantity.value < 0]
    for_all = [
        _needed(check.quantity, confidence)
        for check in checks
        if check.quantity.value >= 0 and check.quantity.lower(confidence) <= 0
    ]
    # One that is below 0 is enough to end it; else the slowest decides.
    needed = min(against) if against else max(for_all)
    return Verdict("open", None if math.isinf(needed) else math.ceil(needed))


def _needed(quantity: Estimate, confidence: float) -> float:
    """How many trials would settle it, with a chance of 80%, if the estimate is right."""
    if quantity.value == 0 or not quantity.trials:
        return math.inf
    sigmas = float(special.ndtri(confidence) + special.ndtri(_POWER))
    return max(quantity.trials * (sigmas * quantity.error / quantity.value) ** 2, quantity.trials + 1)
