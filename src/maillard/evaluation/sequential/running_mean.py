"""A confidence sequence for the running mean of the target's value, which may change over time.

Method: Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro (2022), for values that vary. The terms are the
doubly robust terms φ_t >= -k of `doubly_robust`, whose mean given the past is v_t, the value of the target at
row t. Let x = φ / (k + 1), with predictions x̂ <= 1 / (k + 1) that are known before the row. As `bernstein`
proves, for every fixed λ in [0, 1)

    exp(λ S_t - ψ(λ) V_t),    S_t = Σ (x - v / (k + 1)),  V_t = Σ (x - x̂)²,  ψ(λ) = -ln(1 - λ) - λ,

is a supermartingale, also if v changes with t. So is a mixture over a fixed grid of λ. Ville's inequality
bounds the mixture by 2 / α at all rows simultaneously, and S_t by the root of

    ln Σ_j exp(λ_j s - ψ(λ_j) V_t) / J = ln(2 / α).

Hence the mean of v_1, ..., v_t is at least (k + 1) (Σ x - s) / t. The upper bound is 1 minus the lower bound
for 1 - r. In contrast to the sequences for constant means, a bound is not combined with earlier ones, because
they bound other means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.estimator import ALL_PROBABILITIES, REWARD_RANGE
from maillard.evaluation.sequential import confidence_sequence as base
from maillard.evaluation.sequential.doubly_robust import DEFAULT_K, DoublyRobustState
from maillard.evaluation.sequential.kernels import compiled

# A bet within a factor 1.41 of the best one costs at most 10% of the width; more bets cost more.
_BETS = 0.95 * 2.0 ** -np.arange(14)
_PENALTIES = -np.log1p(-_BETS) - _BETS
_MAX_ITERATIONS = 200  # of Newton's method, which needs about ten

# Columns of `run`, which has a row for each of the two bounds.
_ROWS, _SUM, _SQUARES = 0, 1, 2


@compiled
def advance(run: Floats, lower: Floats, upper: Floats, unit: float) -> None:
    """Process terms of the lower and the upper bound; `unit` is 1 / (k + 1)."""
    for row in range(lower.size):
        for line, term in ((run[0], lower[row]), (run[1], upper[row])):
            x = term * unit
            hat = min(unit, (0.5 * unit + line[1]) / (1.0 + line[0]))
            line[0] += 1.0
            line[1] += x
            line[2] += (x - hat) * (x - hat)


def deviation(squares: float, level: float) -> float:
    """The s at which the mixture reaches its limit, ln(2 / α) = `level`, by Newton's method.

    >>> round(deviation(100.0, math.log(40)), 2)
    40.12
    """
    constants = -_PENALTIES * squares - math.log(_BETS.size)
    # Each λ alone needs (level - constant) / λ; the mixture needs no more than the best of them.
    s = float(((level - constants) / _BETS).min())
    for _ in range(_MAX_ITERATIONS):
        exponents = _BETS * s + constants
        largest = exponents.max()
        weights = np.exp(exponents - largest)
        total = weights.sum()
        above = largest + math.log(total) - level
        # The logarithm of the mixture is convex and increasing, so steps from the right never pass the root.
        if above <= 1e-12:
            break
        s -= above / float((weights * _BETS).sum() / total)
    return float(s)


@dataclass(frozen=True)
class RunningMeanState(DoublyRobustState):
    """The sums of the doubly robust terms and of their squared deviations from predictions.

    >>> rng = np.random.default_rng(1)
    >>> arm, reward = rng.choice(2, 1000), rng.choice([0.0, 1.0], 1000)
    >>> sequence = RunningMeanState.start(arms=2, alpha=0.05)
    >>> rows = dict(arm=arm, reward=reward, weight=2.0 * arm, probabilities=np.full((1000, 2), 0.5))
    >>> _ = sequence.advance(**rows, target_row=np.zeros(1000, int), target_probabilities=[[0.0, 1.0]])
    >>> lower, upper = sequence.interval()
    >>> round(lower, 2), round(sequence.value(), 2), round(upper, 2)
    (0.39, 0.54, 0.7)
    """

    @classmethod
    def start(
        cls,
        arms: int,
        alpha: float,
        k: float = DEFAULT_K,
        horizon: int | None = None,
    ) -> RunningMeanState:
        """The state before the first row."""
        made = super().start(arms, alpha, k, horizon)
        return cls(made.level, made.horizon, np.zeros((2, 3)), made.k, made.pulls, made.sums)

    def advance(self, **rows: Any) -> Floats:
        """Process rows in log order."""
        advance(self.run, *self.terms_of(**rows), 1.0 / (self.k + 1.0))
        return base.path_of(0, wanted=False)

    def interval(self) -> tuple[float, float]:
        """The bounds on the mean over the rows so far."""
        return self._bound(0), 1.0 - self._bound(1)

    def _bound(self, side: int) -> float:
        rows, total, squares = self.run[side].tolist()
        if not rows:
            return 0.0
        return float(max(0.0, (self.k + 1.0) * (total - deviation(squares, self.level)) / rows))

    def centre(self) -> float:
        rows = self.run[0, _ROWS]
        if not rows:
            return math.nan
        lower, upper = (self.k + 1.0) * self.run[:, _SUM] / rows
        return float((lower + 1.0 - upper) / 2.0)


class RunningMeanSequence(base.SequenceEstimator):
    """Waudby-Smith et al. (2022): a confidence sequence for the mean value so far, if it may change."""

    name: ClassVar[str] = "cs-mean"
    formula: ClassVar[str] = "mixture of empirical Bernstein bounds of the mean of Σ π m + w (r - m)"
    assumes: ClassVar[str] = (
        "rewards in a known range; the means may change over time. The interval is for the mean over the "
        "decisions so far, and valid at any time, regardless of how often you check"
    )
    constant_means: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = (REWARD_RANGE, ALL_PROBABILITIES)
    default_for: ClassVar[tuple[str, ...] | None] = (REWARD_RANGE, ALL_PROBABILITIES)
    order: ClassVar[int] = 11
    priority: ClassVar[tuple[int, int]] = (98, 7)
    state: ClassVar[type[base.ConfidenceSequence]] = RunningMeanState
