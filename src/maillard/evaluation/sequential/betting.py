"""The betting confidence sequence for weighted rewards (Karampatziakis et al. 2021), with its wealth kept exactly.

If v is the value, E[w] = 1 and E[w r] = v given the past, so that nobody gets rich on

    wealth_t(v) = prod_i (1 + l1 (w - 1) + l2 (w r - v)),    l1, l2 known before row i,

as long as no factor can be negative: wealth is a nonnegative martingale from 1, and by Ville's inequality it ever reaches
2 / alpha with probability alpha / 2 at most. Every v at which it did is excluded.

**Admissible bets.** Every factor is to be at least 1/2 for all w in [0, W], r and v in [0, 1]. With l2 >= 0 the least is at r = 0,
v = 1, and it is linear in w: l1 + l2 <= 1/2 (at w = 0) and l2 - (W - 1) l1 <= 1/2 (at w = W). So the bets lie in the triangle
(1/2, 0), (0, 1/2), (-1/(2 (W - 1)), 0). Negative l1, which hedges against large weights, needs a W known in advance (1 / the
logger's floor); without one, l1 = 0 and l2 <= 1/2.

**Exact endpoint at constant cost.** Bets do not depend on v, so ln wealth(v) is a decreasing and concave function of v. It is kept at 33
fixed places (1 - cos(j pi / 32)) / 2; between two of them a concave function is not below its chord, so where the chord crosses
ln(2 / alpha) everything to the left is excluded. That gives away less than 0.2% of the width, where a quadratic minorant
of the logarithm (u - 0.77 u^2) would give away a quarter.

**Bets.** For a gap of d to the value, the expected growth is about l2 d - (l1^2 S11 + 2 l1 l2 S12 + l2^2 S22) / 2 with the lagged second
moments S of w - 1 and w r; d is the gap that could just be told apart now (or at the horizon, where one is given in advance):
d^2 = 2 ln(2/alpha) residual / t, residual = S22 - S12^2 / S11. Maximised over the triangle. Unconstrained, that is
l2 = sqrt(2 ln(2/alpha) / (residual t)) and l1 = -l2 S12 / S11, regression on the weights.

The upper bound is 1 minus the lower one for 1 - r.
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

    from maillard.evaluation.bound_targets import Target
    from maillard.evaluation.evaluation_log import EvaluationLog

    Numbers = NDArray[np.float64]

__all__ = ["Betting", "BettingSequence", "advance", "bets", "excluded_at", "start"]

_CELLS = 32
_GRID = (1.0 - np.cos(np.pi * np.arange(_CELLS + 1) / _CELLS)) / 2.0
_PRODUCT, _LOG, _BAR = (
    0,
    1,
    2,
)  # blocks of `wealth`: the latest factors, the log of all before them, what excludes
# Places in a side's line: rows (from 1, for one row made up), sums of w - 1, w r, their squares and product, the largest
# lower bound so far and the last place of the grid that it has passed.
_ROWS, _SUM1, _SUM2, _SQUARE1, _CROSS, _SQUARE2, _BEST, _PLACE = 0, 1, 2, 3, 4, 5, 6, 7
_LEAST = 0.5  # what every factor is at least


@compiled
def start(level: float) -> tuple[Numbers, Numbers]:
    """The state before the first row, `run` and `wealth`; the moments are those of one row made up."""
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
    """The admissible (l1, l2) with the largest l2 gap - (l1^2 s11 + 2 l1 l2 s12 + l2^2 s22) / 2."""
    room = 1.0 - _LEAST
    if not 1.0 < highest < np.inf:
        return 0.0, min(gap / s22, room)
    residual = s22 - s12 * s12 / s11
    second = gap / residual
    first = -second * s12 / s11
    if first + second <= room and second - (highest - 1.0) * first <= room:
        return first, second
    # The maximum of a concave function outside a triangle is on its border, here on one of the two sides through (0, room);
    # the third is l2 = 0, where nothing is to be gained.
    chosen, best = (0.0, 0.0), 0.0
    for corner in (room, -room / (highest - 1.0)):
        # (corner, 0) + s (-corner, room)
        curvature = corner * corner * s11 - 2.0 * corner * room * s12 + room * room * s22
        slope = room * gap + corner * corner * s11 - corner * room * s12
        s = min(max(slope / curvature, 0.0), 1.0)
        l1, l2 = corner * (1.0 - s), room * s
        growth = l2 * gap - 0.5 * (l1 * l1 * s11 + 2.0 * l1 * l2 * s12 + l2 * l2 * s22)
        if growth > best:
            chosen, best = (l1, l2), growth
    return chosen


@compiled
def _bound(  # noqa: PLR0917  # compiled functions take no keywords
    line: Numbers,
    wealth: Numbers,
    weight: float,
    reward: float,
    level: float,
    highest: float,
    horizon: float,
) -> float:
    """Bet on one row, and then look at it; the largest lower bound so far."""
    rows = line[_ROWS]
    mean = line[_SUM2] / rows
    s11 = line[_SQUARE1] / rows
    s12 = (line[_CROSS] - mean * line[_SUM1]) / rows
    s22 = line[_SQUARE2] / rows - mean * mean
    residual = s22 - s12 * s12 / s11 if 1.0 < highest < np.inf else s22
    # Rounding could leave nothing of a small difference of large numbers.
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
        line[_BEST] = max(line[_BEST], _GRID[place])
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
    run: Numbers,
    wealth: Numbers,
    weight: Numbers,
    reward: Numbers,
    level: float,
    highest: float,
    horizon: float,
    path: Numbers,
) -> None:
    """Take rows in, in their order, and write the bounds after each into `path` (or into none)."""
    for row in range(reward.size):
        low = _bound(run[0], wealth[0], weight[row], reward[row], level, highest, horizon)
        high = 1.0 - _bound(run[1], wealth[1], weight[row], 1.0 - reward[row], level, highest, horizon)
        if path.shape[0] > 0:
            path[row, 0] = low
            path[row, 1] = high


@compiled
def excluded_at(  # noqa: PLR0917  # compiled functions take no keywords
    weight: Numbers, reward: Numbers, value: float, level: float, highest: float, horizon: float
) -> int:
    """The first row (from 1) whose bounds exclude this value; 0: none does."""
    run, wealth = start(level)
    for row in range(reward.size):
        low = _bound(run[0], wealth[0], weight[row], reward[row], level, highest, horizon)
        high = 1.0 - _bound(run[1], wealth[1], weight[row], 1.0 - reward[row], level, highest, horizon)
        if low > value or high < value:
            return row + 1
    return 0


@dataclass(frozen=True)
class Betting(ConfidenceSequence):
    """The betting sequence.

    >>> rng = np.random.default_rng(1)
    >>> weight, reward = rng.choice([0.5, 1.5], 1000), rng.choice([0.0, 1.0], 1000)
    >>> sequence = Betting.start(alpha=0.05, highest=1.5)
    >>> path = sequence.advance(weight=weight, reward=reward)
    >>> lower, upper = sequence.interval()
    >>> round(lower, 2), round(sequence.value(), 2), round(upper, 2)
    (0.47, 0.53, 0.58)
    """

    highest: float
    wealth: Numbers

    @classmethod
    def of(cls, log: EvaluationLog, target: Target, confidence: float) -> Betting:
        return cls.start(1.0 - confidence, highest=log.max_weight(target))

    @classmethod
    def start(cls, alpha: float, highest: float | None = None, horizon: int | None = None) -> Betting:
        """No rows yet.

        Given in advance: alpha, the highest weight that the logger's floor allows (None: there is no floor), and the row
        where it should be narrowest, if there is one.
        """
        if highest is not None and not highest >= 1:
            raise InvalidValue("highest", highest, "a number >= 1 (the mean of all weights), or None")
        level = level_of(alpha)
        run, wealth = start(level)
        return cls(
            level, horizon_of(horizon), run, float("inf") if highest is None else float(highest), wealth
        )

    def advance(self, *, weight: Any, reward: Any, path: bool = False) -> Numbers:
        """Process rows in log order; returns the bounds after each of them if `path` is true."""
        most = self.highest * (1 + 1e-9)  # rounding of pi / p
        weight, reward = checked("weight", weight, most), checked("reward", reward, 1)
        if weight.shape != reward.shape:
            raise InvalidValue("weight", weight.shape, f"as many as rewards, {reward.shape}")
        bounds = path_of(reward.size, path)
        advance(self.run, self.wealth, weight, reward, self.level, self.highest, self.horizon, bounds)
        return bounds

    def interval(self) -> tuple[float, float]:
        return float(self.run[0, _BEST]), float(1.0 - self.run[1, _BEST])

    def centre(self) -> float:
        """The mean of w r, less what the weights' own deviation from 1 accounts for."""
        line = self.run[0]
        rows = line[_ROWS] - 1.0
        if rows == 0:
            return float("nan")
        mean, off = (line[_SUM2] - 0.5) / rows, line[_SUM1] / rows
        slope = (line[_CROSS] - mean * line[_SUM1]) / line[_SQUARE1] if self.highest < np.inf else 0.0
        return float(mean - slope * off)


class BettingSequence(SequenceEstimator):
    """Karampatziakis et al. (2021): the betting confidence sequence."""

    name: ClassVar[str] = "cs-betting"
    formula: ClassVar[str] = "Π (1 + λ₁ (w - 1) + λ₂ (w r - v)) < 2 / α"
    order: ClassVar[int] = 10
    priority: ClassVar[tuple[int, int]] = (99, 2)
    state: ClassVar[type[ConfidenceSequence]] = Betting

    @classmethod
    def is_default(cls, log: EvaluationLog) -> bool:  # noqa: ARG003
        return True  # without a reward range it is refused, and the refusal asks for one
