"""Estimates with their errors, and the verdict on a claim at a stated confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from maillard.array_types import Floats

CONFIDENCE = 0.95
_POWER = 0.8  # probability that the suggested number of trials decides an open claim


@dataclass(frozen=True)
class TrialEstimate:
    """A number estimated from independent trials; sums and differences are of independent estimates."""

    value: float
    variance: float  # of the estimate itself
    freedom: float  # degrees of freedom of the variance
    trials: int
    third: float = 0.0  # third cumulant of the estimate: regret has a long tail to the right

    @property
    def error(self) -> float:
        """Its standard error."""
        return math.sqrt(self.variance)

    def __add__(self, other: TrialEstimate | float) -> TrialEstimate:
        if not isinstance(other, TrialEstimate):
            return replace(self, value=self.value + other)
        variance = self.variance + other.variance
        # Welch and Satterthwaite
        spread = sum(each.variance**2 / each.freedom for each in (self, other) if each.variance)
        freedom = variance**2 / spread if spread else math.inf
        trials = min(self.trials, other.trials)
        return TrialEstimate(self.value + other.value, variance, freedom, trials, self.third + other.third)

    def __mul__(self, factor: float) -> TrialEstimate:
        return TrialEstimate(
            self.value * factor, self.variance * factor**2, self.freedom, self.trials, self.third * factor**3
        )

    def __neg__(self) -> TrialEstimate:
        return self * -1.0

    def __sub__(self, other: TrialEstimate | float) -> TrialEstimate:
        return self + -other

    def lower(self, confidence: float) -> float:
        """The lower end of a one-sided Student interval with the skewness correction of Hall (1992)."""
        return self.value - self.error * self._quantile(confidence)

    def upper(self, confidence: float) -> float:
        """The upper end of a one-sided interval."""
        return -(-self).lower(confidence)

    def _quantile(self, confidence: float) -> float:
        """The quantile of t = (estimate - truth) / error.

        If G is the skewness, t + G t²/3 + G² t³/27 + G/6 has Student's distribution.
        """
        if not 0 < self.variance < math.inf:
            return 0.0 if not self.variance else math.inf
        t = float(special.stdtrit(self.freedom, confidence))
        skewness = self.third / self.variance**1.5
        if abs(skewness) < 1e-6:
            return t
        return float(3 / skewness * (math.cbrt(1 + skewness * (t - skewness / 6)) - 1))


def mean(values: Floats) -> TrialEstimate:
    """The mean of independent trials."""
    n = values.size
    third = float(((values - values.mean()) ** 3).mean()) / n**2
    return TrialEstimate(float(values.mean()), float(values.var(ddof=1)) / n, n - 1, n, third)


def log_mean(values: Floats) -> TrialEstimate:
    """The logarithm of the mean, by the delta method; a difference of two is the log of a ratio."""
    plain = mean(values)
    variance = plain.variance / plain.value**2
    # ln(m + e) is about ln m + e/m - e²/(2m²); this is its third cumulant to leading order.
    third = plain.third / plain.value**3 - 3 * variance**2
    return TrialEstimate(math.log(plain.value), variance, plain.freedom, plain.trials, third)


def log_growth(early: Floats, late: Floats) -> TrialEstimate:
    """The logarithm of the ratio of the means of two measurements of the same trials, by the delta method."""
    influence = mean(late / late.mean() - early / early.mean())
    return influence + math.log(late.mean() / early.mean())


def log_deviation(values: Floats) -> TrialEstimate:
    """The logarithm of the standard deviation, with Miller's jackknife error.

    The error depends on the fourth moment. If rare trials dominate the deviation, as with a very long tail,
    the upper end of the interval is too low.
    """
    n = values.size
    squares = (values - values.mean()) ** 2
    total = float(squares.sum())
    left = total - squares * n / (n - 1)  # the sum of squares without each value
    if not (left > 0).all():
        return TrialEstimate(math.log(total / (n - 1)) / 2 if total else -math.inf, math.inf, n - 1, n)
    pseudo = -(n - 1) * 0.5 * np.log(left / (n - 2))
    return TrialEstimate(0.5 * math.log(total / (n - 1)), float(pseudo.var(ddof=1)) / n, n - 1, n)


def binomial_bounds(events: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The ends of two one-sided Clopper-Pearson intervals for the probability of an event."""
    level = 1 - confidence
    low = 0.0 if events == 0 else float(special.betaincinv(events, trials - events + 1, level))
    high = 1.0 if events == trials else float(special.betaincinv(events + 1, trials - events, 1 - level))
    return low, high


def fisher_p_value(events: int, trials: int, others: int, other_trials: int) -> float:
    """The p-value of Fisher's exact test that the first event is no likelier than the second."""
    from scipy import stats  # slow to import

    total, both = trials + other_trials, events + others
    return float(stats.hypergeom.sf(events - 1, total, both, trials))


def times(value: float) -> str:
    """A logarithm as a factor."""
    return f"×{math.exp(value):.3g}" if value < 30 else "> ×1e13"


def average(estimates: Sequence[TrialEstimate]) -> TrialEstimate:
    """The average of independent estimates."""
    first, *others = estimates
    return sum(others, first) * (1 / len(estimates))


@dataclass(frozen=True)
class Check:
    """A part of a claim: a quantity is above a limit, or below it."""

    what: str
    quantity: TrialEstimate
    limit: float = 0.0
    below: bool = False
    form: Callable[[float], str] = "{:.3g}".format
    among: int = 1  # the number of candidates from which the quantity was chosen by its value
    others: tuple[Check, ...] = ()  # alternatives: the check fails only if all of them fail

    @classmethod
    def ratio(cls, what: str, log_ratio: TrialEstimate, factor: float = 1.0, **options: Any) -> Check:
        """The check that a ratio, given by its logarithm, is above a factor, or below it."""
        return cls(what, log_ratio, math.log(factor), form=times, **options)

    @classmethod
    def within(cls, what: str, log_ratio: TrialEstimate, factor: float) -> tuple[Check, Check]:
        """Checks that a ratio, given by its logarithm, is within a factor, in both directions."""
        limit = math.log(factor)
        return cls(what, log_ratio, limit, below=True, form=times), cls(what, log_ratio, -limit, form=times)

    @property
    def text(self) -> str:
        """The check as text."""
        return f"{self.what} is {'below' if self.below else 'above'} {self.form(self.limit)}"

    @property
    def margin(self) -> TrialEstimate:
        """The distance from the limit; positive if the claim is right."""
        return -(self.quantity - self.limit) if self.below else self.quantity - self.limit

    def holds(self, confidence: float) -> bool:
        """Whether this check or one of its alternatives (`others`) holds.

        The confidence is corrected for choosing among `among` candidates.
        """
        strict = stricter(confidence, self.among)
        return any(check.margin.lower(strict) > 0 for check in (self, *self.others))

    def fails(self, confidence: float) -> bool:
        """Whether the check fails at this confidence."""
        return all(check.margin.upper(confidence) < 0 for check in (self, *self.others))


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, and for an open one the number of trials that would decide it."""

    outcome: str  # holds, fails or open
    trials_needed: int | None = None


def judge(checks: Sequence[Check], confidence: float = CONFIDENCE) -> Verdict:
    """Whether a claim, the conjunction of its checks, holds, fails or is open.

    It holds if each check holds at the confidence (an intersection-union test, which needs no correction: if
    one check is false, the probability that it passes is at most 1 - confidence). It fails if one check fails
    at the confidence with Bonferroni's correction.
    """
    strict = stricter(confidence, len(checks))
    if all(check.holds(confidence) for check in checks):
        return Verdict("holds")
    if any(check.fails(strict) for check in checks):
        return Verdict("fails")
    against = [trials_needed(check.margin, strict) for check in checks if check.margin.value < 0]
    for_all = [
        trials_needed(check.margin, stricter(confidence, check.among))
        for check in checks
        if check.margin.value >= 0 and not check.holds(confidence)
    ]
    # One check that fails is enough. Otherwise all must hold, so the one that needs most trials counts.
    needed = min(against) if against else max(for_all)
    return Verdict("open", None if math.isinf(needed) else math.ceil(needed))


def stricter(confidence: float, parts: int) -> float:
    """The confidence of each of several statements that gives this joint confidence (Bonferroni)."""
    return 1 - (1 - confidence) / parts


def judge_counts(outcome: Callable[[int], str], trials: int) -> Verdict:
    """The verdict of a test on counts; `outcome` returns it for a multiple of all counts.

    The number of trials that would decide an open claim is a power of 2 times as many, with equal fractions.
    """
    if outcome(1) != "open":
        return Verdict(outcome(1))
    enough = (trials * 2**power for power in range(1, 12) if outcome(2**power) != "open")
    return Verdict("open", next(enough, None))


def trials_needed(margin: TrialEstimate, confidence: float) -> float:
    """The number of trials that would decide the check with probability 80%, if the estimate is right."""
    if margin.value == 0 or not margin.trials or not math.isfinite(margin.error):
        return math.inf
    sigmas = float(special.ndtri(confidence) + special.ndtri(_POWER))
    return max(margin.trials * (sigmas * margin.error / margin.value) ** 2, margin.trials + 1)
