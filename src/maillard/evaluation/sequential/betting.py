"""The betting confidence sequence for importance-weighted rewards.

Method: Karampatziakis, Mineiro and Ramdas (2021). If v is the value of the target, then E[w] = 1 and
E[w r] = v given the past. With bets λ₁, λ₂ that are known before row i, the wealth

    wealth_t(v) = Π_i (1 + λ₁ (w - 1) + λ₂ (w r - v))

is a nonnegative martingale that starts at 1, provided that no factor can be negative. By Ville's inequality,
the probability that it ever reaches 2 / α is at most α / 2. Every v whose wealth has reached 2 / α is
excluded. The upper bound is 1 minus the lower bound for 1 - r.

**When it is valid.** At any time, if rewards lie in the known range, the probabilities are right, and the
means of the arms do not change.

**Admissible bets.** Every factor must be at least 1/2 for all w in [0, W] and all r and v in [0, 1]. For
λ₂ >= 0 the smallest factor is at r = 0, v = 1. It is linear in w, so λ₁ + λ₂ <= 1/2 (at w = 0) and
λ₂ - (W - 1) λ₁ <= 1/2 (at w = W). The bets therefore lie in the triangle with the corners (1/2, 0),
(0, 1/2) and (-1/(2 (W - 1)), 0).
A negative λ₁, which hedges against large weights, requires a W that is known in advance (1 / the floor of
the logging policy). Without it, λ₁ = 0 and λ₂ <= 1/2.

**Bounds in constant time per row.** Bets do not depend on v, so ln wealth(v) is decreasing and concave in v.
It is stored on a grid of 33 values (1 - cos(j π / 32)) / 2. Between two of them, a concave function is not
below its chord. So all values to the left of the point at which the chord crosses ln(2 / α) are excluded.
This widens the interval by less than 0.2%. A quadratic lower bound on the logarithm (u - 0.77 u²) would widen
it by a quarter.

**Choice of bets.** If v is below the value by d, the expected growth of the log wealth is about
λ₂ d - (λ₁² S11 + 2 λ₁ λ₂ S12 + λ₂² S22) / 2, where S are the second moments of w - 1 and w r in earlier
rows. The bets maximise it over the triangle, for the d that can just be detected at this row (or at the
horizon, if one is given in advance): d² = 2 ln(2/α) R / t, with the residual R = S22 - S12² / S11. Without
constraints, λ₂ = √(2 ln(2/α) / (R t)) and λ₁ = -λ₂ S12 / S11, a regression on the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.errors import InvalidValue
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.sequential import confidence_sequence as base
from maillard.evaluation.sequential.kernels import compiled

_CELLS = 32
_GRID = (1.0 - np.cos(np.pi * np.arange(_CELLS + 1) / _CELLS)) / 2.0
# Rows of `wealth`: the product of the latest factors, the log of all earlier ones, the product that excludes
# the value.
_PRODUCT, _LOG, _BAR = 0, 1, 2
# Columns of `run`, which has a row for each of the two bounds: the number of rows (plus one artificial row at
# the start), the sums of w - 1, w r, their squares and their product, the largest lower bound so far, and
# before it the last grid value below it.
_ROWS, _SUM1, _SUM2, _SQUARE1, _CROSS, _SQUARE2, _PLACE, _BEST = 0, 1, 2, 3, 4, 5, 6, 7
_MIN_FACTOR = 0.5


@compiled
def start(level: float) -> tuple[Floats, Floats]:
    """`run` and `wealth` before the first row; the moments are those of one artificial row."""
    run = np.zeros((2, 8))
    run[:, _ROWS] = 1.0
    run[:, _SUM2] = 0.5
    run[:, _SQUARE1] = 1.0
    run[:, _CROSS] = 0.5
    run[:, _SQUARE2] = 1.0
    run[:, _PLACE] = -1.0
    wealth = np.zeros((2, 3, _CELLS + 1))
    wealth[:, _PRODUCT] = 1.0
    wealth[:, _BAR] = np.exp(level)
    return run, wealth


@compiled
def bets(gap: float, s11: float, s12: float, s22: float, highest: float) -> tuple[float, float]:
    """The admissible (λ₁, λ₂) with the largest λ₂ gap - (λ₁² s11 + 2 λ₁ λ₂ s12 + λ₂² s22) / 2."""
    limit = 1.0 - _MIN_FACTOR
    if not 1.0 < highest < np.inf:
        return 0.0, min(gap / s22, limit)
    residual = s22 - s12 * s12 / s11
    second = gap / residual
    first = -second * s12 / s11
    if first + second <= limit and second - (highest - 1.0) * first <= limit:
        return first, second
    # The unconstrained maximum is outside the triangle, so the constrained one is on its border: on one of
    # the two sides through (0, limit). On the third side λ₂ = 0, and no bet has positive growth.
    chosen, best = (0.0, 0.0), 0.0
    for corner in (limit, -limit / (highest - 1.0)):
        # Points of this side: (corner, 0) + s (-corner, limit).
        curvature = corner * corner * s11 - 2.0 * corner * limit * s12 + limit * limit * s22
        slope = limit * gap + corner * corner * s11 - corner * limit * s12
        s = min(max(slope / curvature, 0.0), 1.0)
        l1, l2 = corner * (1.0 - s), limit * s
        growth = l2 * gap - 0.5 * (l1 * l1 * s11 + 2.0 * l1 * l2 * s12 + l2 * l2 * s22)
        if growth > best:
            chosen, best = (l1, l2), growth
    return chosen


@compiled
def _bound(  # noqa: PLR0917  # compiled functions take no keywords
    line: Floats,
    wealth: Floats,
    weight: float,
    reward: float,
    level: float,
    highest: float,
    horizon: float,
) -> float:
    """Choose the bets for one row, then process the row; returns the largest lower bound so far."""
    rows = line[_ROWS]
    mean = line[_SUM2] / rows
    s11 = line[_SQUARE1] / rows
    s12 = (line[_CROSS] - mean * line[_SUM1]) / rows
    s22 = line[_SQUARE2] / rows - mean * mean
    residual = s22 - s12 * s12 / s11 if 1.0 < highest < np.inf else s22
    # Bound the residual from below: cancellation could make it 0 or negative.
    lost = 1e-9 * line[_SQUARE2] / rows - residual
    if lost > 0.0:
        s22 += lost
        residual += lost
    gap = np.sqrt(2.0 * level * residual / max(rows, horizon))
    l1, l2 = bets(gap, s11, s12, s22, highest)
    x = weight * reward
    base = 1.0 + l1 * (weight - 1.0) + l2 * x
    product, logs, bars = wealth[_PRODUCT], wealth[_LOG], wealth[_BAR]
    for j in range(_CELLS + 1):
        product[j] *= base - l2 * _GRID[j]
    if product[0] > 1e100 or product[_CELLS] < 1e-100:
        for j in range(_CELLS + 1):
            logs[j] += np.log(product[j])
            product[j] = 1.0
            bars[j] = np.exp(level - logs[j])
    place = int(line[_PLACE])
    while place < _CELLS and product[place + 1] >= bars[place + 1]:
        place += 1
        line[_BEST] = max(line[_BEST], _GRID[place]) if place < _CELLS else 2.0  # not even 1 is left
    if 0 <= place < _CELLS and product[place] >= bars[place]:
        over = np.log(product[place]) + logs[place] - level
        under = level - np.log(product[place + 1]) - logs[place + 1]
        if over + under > 0.0:
            step = (_GRID[place + 1] - _GRID[place]) * over / (over + under)
            line[_BEST] = max(line[_BEST], _GRID[place] + step)
    line[_PLACE] = place
    line[_ROWS] += 1.0
    line[_SUM1] += weight - 1.0
    line[_SUM2] += x
    line[_SQUARE1] += (weight - 1.0) * (weight - 1.0)
    line[_CROSS] += (weight - 1.0) * x
    line[_SQUARE2] += x * x
    return float(line[_BEST])


@compiled
def advance(  # noqa: PLR0917  # compiled functions take no keywords
    run: Floats,
    wealth: Floats,
    weight: Floats,
    reward: Floats,
    level: float,
    highest: float,
    horizon: float,
    path: Floats,
) -> None:
    """Process rows in order; write the bounds after each row to `path`, unless it is empty."""
    for row in range(reward.size):
        low = _bound(run[0], wealth[0], weight[row], reward[row], level, highest, horizon)
        high = 1.0 - _bound(run[1], wealth[1], weight[row], 1.0 - reward[row], level, highest, horizon)
        if path.shape[0] > 0:
            path[row, 0] = low
            path[row, 1] = high


def excluded_at(  # noqa: PLR0917  # like `advance`
    weight: Floats, reward: Floats, value: float, level: float, highest: float, horizon: float
) -> int:
    """The first row (from 1) whose bounds exclude this value; 0 if no row does."""
    path = np.empty((reward.size, 2))
    advance(*start(level), weight, reward, level, highest, horizon, path)
    return base.first_exclusion(path, value)


@dataclass(frozen=True)
class Betting(base.ConfidenceSequence):
    """The betting confidence sequence.

    >>> rng = np.random.default_rng(1)
    >>> weight, reward = rng.choice([0.5, 1.5], 1000), rng.choice([0.0, 1.0], 1000)
    >>> sequence = Betting.start(alpha=0.05, highest=1.5)
    >>> path = sequence.advance(weight=weight, reward=reward)
    >>> lower, upper = sequence.interval()
    >>> round(lower, 2), round(sequence.value(), 2), round(upper, 2)
    (0.47, 0.53, 0.58)
    """

    highest: float
    wealth: Floats

    @classmethod
    def of(cls, log: EvaluationLog, target: Target, confidence: float) -> Betting:
        return cls.start(1.0 - confidence, highest=log.max_weight(target))

    @classmethod
    def start(cls, alpha: float, highest: float | None = None, horizon: int | None = None) -> Betting:
        """The state before the first row. All arguments must be chosen in advance.

        `highest` is the largest weight that the floor of the logging policy allows; None if there is no
        floor. `horizon` is the row at which the interval should be narrowest, if there is one.
        """
        if highest is not None and not highest >= 1:
            raise InvalidValue("highest", highest, "a number >= 1 (the mean of all weights), or None")
        level, most = base.level_of(alpha), float("inf") if highest is None else float(highest)
        run, wealth = start(level)
        return cls(level, base.horizon_of(horizon), run, most, wealth)

    def advance(self, *, weight: Any, reward: Any, path: bool = False) -> Floats:
        """Process rows in log order; returns the bounds after each of them if `path` is true."""
        weight, reward = base.checked_rows(weight, reward, self.highest * (1 + 1e-9))  # rounding of pi / p
        bounds = base.path_of(reward.size, path)
        advance(self.run, self.wealth, weight, reward, self.level, self.highest, self.horizon, bounds)
        return bounds

    def centre(self) -> float:
        """The mean of w r, corrected by regression for the deviation of the mean weight from 1."""
        line = self.run[0]
        rows = line[_ROWS] - 1.0
        if rows == 0:
            return float("nan")
        mean, off = (line[_SUM2] - 0.5) / rows, line[_SUM1] / rows
        slope = (line[_CROSS] - mean * line[_SUM1]) / line[_SQUARE1] if self.highest < np.inf else 0.0
        return float(mean - slope * off)


class BettingSequence(base.SequenceEstimator):
    """Karampatziakis et al. (2021): the betting confidence sequence."""

    name: ClassVar[str] = "cs-betting"
    formula: ClassVar[str] = "Π (1 + λ₁ (w - 1) + λ₂ (w r - v)) < 2 / α"
    # Without a reward range it is refused, and the refusal asks for one.
    default_for: ClassVar[tuple[str, ...] | None] = ()
    order: ClassVar[int] = 10
    priority: ClassVar[tuple[int, int]] = (99, 4)
    priority_without_floor: ClassVar[int | None] = 4
    state: ClassVar[type[base.ConfidenceSequence]] = Betting
