"""The empirical Bernstein confidence sequence with predictable mixtures (Waudby-Smith and Ramdas 2024; 2022 for weights).

With X_t = w_t r_t >= 0, whose mean given the past is the value v, and any X^_{t-1} <= 1 and lambda_t in [0, 1) known before row t:

    lower_t = (sum lambda X - ln(2/alpha) - sum psi(lambda) (X - X^)^2) / sum lambda,    psi(l) = -ln(1 - l) - l.

Why it is valid. (ln(1 + u) - u) / u^2 grows with u, so at y >= -1 it is, for u = l y, at least its value at -l:
l y - psi(l) y^2 <= ln(1 + l y). With y = X - X^ >= -1 the expectation of exp(l (X - X^) - psi(l) (X - X^)^2) is at most
1 + l (v - X^) <= exp(l (v - X^)): the exponential of sum lambda (X - v) - psi(lambda) (X - X^)^2 is a supermartingale, and
Ville's inequality bounds it at all rows at once. y >= -1 is where X^ <= 1 is needed: without that truncation an unlucky
run of large weights lifts X^, and the next large weight costs nothing.

The same kernel serves terms with a mean of v that are at least -k: X / (k + 1) with X^ <= 1 / (k + 1) leaves y >= -1 (the doubly
robust form). The upper bound is 1 minus the lower one of w (1 - r), whose mean is 1 - v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.errors import InvalidValue
from maillard.evaluation.sequential.confidence_sequence import (
    ConfidenceSequence,
    SequenceEstimator,
    checked,
    horizon_of,
    level_of,
    path_of,
)
from maillard.evaluation.sequential.kernels import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.evaluation_log import EvaluationLog

    Numbers = NDArray[np.float64]

__all__ = [
    "BernsteinSequence",
    "EmpiricalBernstein",
    "advance",
    "centre_of",
    "excluded_at",
    "interval_of",
    "start",
]

# Columns of a side's line: rows, sum lambda, sum lambda X, that less all penalties, 1/2 + sum X, 1/4 + sum (X - X^)^2, the
# largest lower bound so far.
_ROWS, _LAMBDA, _WEIGHED, _EVIDENCE, _SUM, _SQUARES, _BEST = 0, 1, 2, 3, 4, 5, 6


@compiled
def start() -> Numbers:
    """The state before the first row."""
    run = np.zeros((2, 7))
    run[:, _SUM] = 0.5
    run[:, _SQUARES] = 0.25
    return run


@compiled
def _bound(  # noqa: PLR0917  # compiled functions take no keywords
    line: Numbers, term: float, logarithm: float, level: float, k: float, horizon: float
) -> float:
    """Take in one term with a mean of v, at least -k; the largest lower bound so far."""
    unit = 1.0 / (k + 1.0)
    before = line[_ROWS]
    rows = before + 1.0
    x = term * unit
    hat = min(unit, line[_SUM] / rows)
    time = max(horizon, rows) if horizon > 0.0 else rows * logarithm
    bet = min(0.5, np.sqrt(2.0 * level * rows / (line[_SQUARES] * time)))
    line[_ROWS] = rows
    line[_LAMBDA] += bet
    line[_WEIGHED] += bet * x
    line[_EVIDENCE] += bet * x + (np.log1p(-bet) + bet) * (x - hat) * (x - hat)
    line[_SUM] += x
    new = min(unit, line[_SUM] / (rows + 1.0))
    line[_SQUARES] += (x - new) * (x - new)
    line[_BEST] = max(line[_BEST], (line[_EVIDENCE] - level) / (line[_LAMBDA] * unit))
    return float(line[_BEST])


@compiled
def advance(  # noqa: PLR0917  # compiled functions take no keywords
    run: Numbers, lower: Numbers, upper: Numbers, level: float, k: float, horizon: float, path: Numbers
) -> None:
    """Take in terms with means v and 1 - v, in their order, and write the bounds after each into `path` (or into none)."""
    for row in range(lower.size):
        logarithm = np.log(2.0 + run[0, _ROWS])
        low = _bound(run[0], lower[row], logarithm, level, k, horizon)
        high = 1.0 - _bound(run[1], upper[row], logarithm, level, k, horizon)
        if path.shape[0] > 0:
            path[row, 0] = low
            path[row, 1] = high


@compiled
def excluded_at(  # noqa: PLR0917  # compiled functions take no keywords
    lower: Numbers, upper: Numbers, value: float, level: float, k: float, horizon: float
) -> int:
    """The first row (from 1) whose bounds exclude this value; 0: none does."""
    run = start()
    for row in range(lower.size):
        logarithm = np.log(2.0 + run[0, _ROWS])
        low = _bound(run[0], lower[row], logarithm, level, k, horizon)
        high = 1.0 - _bound(run[1], upper[row], logarithm, level, k, horizon)
        if low > value or high < value:
            return row + 1
    return 0


@dataclass(frozen=True)
class EmpiricalBernstein(ConfidenceSequence):
    """The empirical Bernstein sequence of w r and w (1 - r).

    >>> rng = np.random.default_rng(1)
    >>> weight, reward = rng.choice([0.5, 1.5], 1000), rng.choice([0.0, 1.0], 1000)
    >>> sequence = EmpiricalBernstein.start(alpha=0.05)
    >>> path = sequence.advance(weight=weight, reward=reward, path=True)
    >>> lower, upper = sequence.interval()
    >>> round(lower, 2), round(sequence.value(), 2), round(upper, 2), bool(path[-1, 0] == lower)
    (0.43, 0.52, 0.6, True)
    """

    @classmethod
    def start(cls, alpha: float, horizon: int | None = None) -> EmpiricalBernstein:
        """No rows yet. Alpha, and the row where it should be narrowest if there is one, are given in advance."""
        return cls(level_of(alpha), horizon_of(horizon), start())

    def advance(self, *, weight: Any, reward: Any, path: bool = False) -> Numbers:
        """Process rows in log order; returns the bounds after each of them if `path` is true."""
        weight, reward = checked("weight", weight), checked("reward", reward, 1)
        if weight.shape != reward.shape:
            raise InvalidValue("weight", weight.shape, f"as many as rewards, {reward.shape}")
        bounds = path_of(reward.size, path)
        advance(self.run, weight * reward, weight * (1.0 - reward), self.level, 0.0, self.horizon, bounds)
        return bounds

    def interval(self) -> tuple[float, float]:
        return interval_of(self.run)

    def centre(self) -> float:
        return centre_of(self.run, 0.0)

    def half_width(self) -> float:
        """How far the lower bound of this row, and of no row before it, is below the mean that it bounds.

        For terms whose mean moves, as shrunken ones' does where probabilities sink: there bounds of different rows do not intersect.
        """
        line = self.run[0]
        return (
            float((line[_WEIGHED] - line[_EVIDENCE] + self.level) / line[_LAMBDA])
            if line[_LAMBDA]
            else np.inf
        )


def interval_of(run: Numbers) -> tuple[float, float]:
    """The tightest of all bounds so far."""
    return float(run[0, _BEST]), float(1.0 - run[1, _BEST])


def centre_of(run: Numbers, k: float) -> float:
    """The mean of both sides' weighted means."""
    if run[0, _ROWS] == 0:
        return float("nan")
    lower, upper = (k + 1.0) * run[:, _WEIGHED] / run[:, _LAMBDA]
    return float((lower + 1.0 - upper) / 2.0)


class BernsteinSequence(SequenceEstimator):
    """Waudby-Smith et al. (2022): the empirical Bernstein confidence sequence."""

    name: ClassVar[str] = "cs-bernstein"
    formula: ClassVar[str] = "empirical Bernstein of w r"
    order: ClassVar[int] = 8
    priority: ClassVar[tuple[int, int]] = (99, 4)
    state: ClassVar[type[ConfidenceSequence]] = EmpiricalBernstein

    @classmethod
    def is_default(cls, log: EvaluationLog) -> bool:
        return log.reward_range is not None
