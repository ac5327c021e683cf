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

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.sequential.confidence_sequence import mixture_root
from maillard.evaluation.sequential.kernels import compiled

# A bet within a factor 1.41 of the best one costs at most 10% of the width; more bets cost more.
_BETS: Floats = 0.95 * np.exp2(-np.arange(14.0))
_PENALTIES = -np.log1p(-_BETS) - _BETS

# `run` has a row for each of the two bounds: rows, Σ x, Σ (x - x̂)².


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
    """The s at which the mixture reaches its limit, ln(2 / α) = `level`.

    >>> round(deviation(100.0, math.log(40)), 2)
    40.12
    """
    return mixture_root(-_PENALTIES * squares, _BETS, level)


def start() -> Floats:
    """The state before the first row."""
    return np.zeros((2, 3))


def interval(run: Floats, level: float, k: float) -> tuple[float, float, float]:
    """The mean over the rows so far and its bounds; nan before the first row, and if no value is left."""
    if not run[0, 0]:
        return math.nan, 0.0, 1.0
    ends, means = [], []
    for rows, total, squares in run.tolist():
        ends.append(max(0.0, (k + 1.0) * (total - deviation(squares, level)) / rows))
        means.append((k + 1.0) * total / rows)
    lower, upper = ends[0], 1.0 - ends[1]
    value = min(max((means[0] + 1.0 - means[1]) / 2.0, lower), upper) if lower <= upper else math.nan
    return value, lower, upper
