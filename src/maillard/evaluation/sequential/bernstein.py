"""The empirical Bernstein confidence sequence with predictable plug-in bets.

Methods: Waudby-Smith and Ramdas (2024) for bounded terms; Waudby-Smith, Wu, Ramdas, Karampatziakis and
Mineiro (2022) for importance-weighted rewards. X_t = w_t r_t >= 0 has the mean v, the value of the target,
given the past. With any predictions X̂_{t-1} <= 1 and bets λ_t in [0, 1) that are known before row t, the
lower bound is

    lower_t = (Σ λ X - ln(2/α) - Σ ψ(λ) (X - X̂)²) / Σ λ,    ψ(λ) = -ln(1 - λ) - λ.

**When it is valid.** At any time, if rewards lie in the known range, the probabilities are right, and the
means of the arms do not change. Proof: (ln(1 + u) - u) / u² increases with u. At u = λ y with y >= -1 it is
therefore at least its value at -λ, so λ y - ψ(λ) y² <= ln(1 + λ y). With y = X - X̂ >= -1, the expectation of
exp(λ (X - X̂) - ψ(λ) (X - X̂)²) is at most 1 + λ (v - X̂) <= exp(λ (v - X̂)). So the exponential of
Σ λ (X - v) - ψ(λ) (X - X̂)² is a supermartingale, which Ville's inequality bounds at all rows simultaneously.
The condition y >= -1 requires X̂ <= 1. Without this truncation, a run of large weights could increase X̂ so
much that the next large weight is not penalised.

The same kernel applies to terms with the mean v that are at least -k, as in the doubly robust sequence:
X / (k + 1) with X̂ <= 1 / (k + 1) has y >= -1. The upper bound is 1 minus the lower bound of w (1 - r), whose
mean is 1 - v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.estimator import REWARD_RANGE
from maillard.evaluation.sequential import confidence_sequence as base
from maillard.evaluation.sequential.kernels import compiled

# Columns of `run`, which has a row for each of the two bounds: rows, Σ λ, Σ λ X, the latter minus all
# penalties, 1/2 + Σ X, 1/4 + Σ (X - X̂)², the largest lower bound so far.
_ROWS, _LAMBDA, _WEIGHED, _EVIDENCE, _SUM, _SQUARES, _BEST = 0, 1, 2, 3, 4, 5, 6


@compiled
def start() -> Floats:
    """The state before the first row."""
    run = np.zeros((2, 7))
    run[:, _SUM] = 0.5
    run[:, _SQUARES] = 0.25
    return run


@compiled
def _bound(  # noqa: PLR0917  # compiled functions take no keywords
    line: Floats, term: float, logarithm: float, level: float, k: float, horizon: float
) -> float:
    """Process one term, which is at least -k and has the mean v; returns the largest lower bound so far."""
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
    run: Floats, lower: Floats, upper: Floats, level: float, k: float, horizon: float, path: Floats
) -> None:
    """Process terms with means v and 1 - v; write the bounds after each row to `path` unless it is empty."""
    for row in range(lower.size):
        logarithm = np.log(2.0 + run[0, _ROWS])
        low = _bound(run[0], lower[row], logarithm, level, k, horizon)
        high = 1.0 - _bound(run[1], upper[row], logarithm, level, k, horizon)
        if path.shape[0] > 0:
            path[row, 0] = low
            path[row, 1] = high


def excluded_at(  # noqa: PLR0917  # like `advance`
    lower: Floats, upper: Floats, value: float, level: float, k: float, horizon: float
) -> int:
    """The first row (from 1) whose bounds exclude this value; 0 if no row does."""
    path = np.empty((lower.size, 2))
    advance(start(), lower, upper, level, k, horizon, path)
    return base.first_exclusion(path, value)


@dataclass(frozen=True)
class EmpiricalBernstein(base.ConfidenceSequence):
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
        """The state before the first row.

        `alpha` and `horizon`, the row at which the interval should be narrowest, must be chosen in advance.
        """
        return cls(base.level_of(alpha), base.horizon_of(horizon), start())

    def advance(self, *, weight: Any, reward: Any, path: bool = False) -> Floats:
        """Process rows in log order; returns the bounds after each of them if `path` is true."""
        weight, reward = base.checked_rows(weight, reward)
        bounds = base.path_of(reward.size, path)
        advance(self.run, weight * reward, weight * (1.0 - reward), self.level, 0.0, self.horizon, bounds)
        return bounds

    def centre(self) -> float:
        return centre_of(self.run, 0.0)

    def half_width(self) -> float:
        """The distance from the weighted mean to the lower bound of the latest row.

        It is for terms whose mean changes, such as terms with shrunken weights when probabilities decrease:
        their bounds at different rows bound different means.
        """
        line = self.run[0]
        if not line[_LAMBDA]:
            return np.inf
        return float((line[_WEIGHED] - line[_EVIDENCE] + self.level) / line[_LAMBDA])


def centre_of(run: Floats, k: float) -> float:
    """The mean of the two weighted means that the lower and the upper bound are based on."""
    if run[0, _ROWS] == 0:
        return float("nan")
    lower, upper = (k + 1.0) * run[:, _WEIGHED] / run[:, _LAMBDA]
    return float((lower + 1.0 - upper) / 2.0)


class BernsteinSequence(base.SequenceEstimator):
    """Waudby-Smith et al. (2022): the empirical Bernstein confidence sequence."""

    name: ClassVar[str] = "cs-bernstein"
    formula: ClassVar[str] = "empirical Bernstein of w r"
    default_for: ClassVar[tuple[str, ...] | None] = (REWARD_RANGE,)
    order: ClassVar[int] = 8
    priority: ClassVar[tuple[int, int]] = (99, 6)
    state: ClassVar[type[base.ConfidenceSequence]] = EmpiricalBernstein
