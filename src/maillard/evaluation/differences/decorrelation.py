"""W-decorrelation: least squares on an adaptive log, corrected so that it is asymptotically normal.

The method is that of Deshpande, Mackey, Syrgkanis and Taddy (2018). The estimate is β̂ + W (y - X β̂), where W
for each row depends only on earlier rows, so that the noise is a martingale. For arms, the rows of X are unit
vectors, and W has a closed form. A large λ gives a large bias and a small variance. λ must be small compared
with the number of pulls of the least pulled arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue
from maillard.evaluation.differences.row_checks import check_rows
from maillard.policies import Policy
from maillard.problems import Problem

_ORDER = 10  # the quantile is the value of this order statistic


@dataclass(frozen=True)
class DecorrelatedDifference:
    """The mean of the first arm minus that of the second."""

    value: float
    lower: float
    upper: float
    penalty: float  # λ
    sigma2: float  # the reward variance that was used


def decorrelated_difference(
    arm: ArrayLike,
    reward: ArrayLike,
    first: int,
    second: int,
    *,
    penalty: float,
    sigma2: float | None = None,
    confidence: float = 0.95,
) -> DecorrelatedDifference:
    """The difference between the means of two arms, with a confidence interval.

    The estimate for an arm is r̄ + Σ_j ρ (1 - ρ)^{j-1} (r_j - r̄) over its pulls j, with ρ = 1 / (1 + λ). The
    variance of the difference is σ² Σ_j [ρ (1 - ρ)^{j-1}]² over both arms. σ² is the residual variance over
    all arms in the rows, unless given. Assumptions: the rows are in log order, all arms have the same
    variance, and `penalty` (λ) does not depend on the rewards.

    >>> found = decorrelated_difference([0, 1, 0, 1], [1.0, 0.0, 2.0, 1.0], 0, 1, penalty=1, sigma2=1)
    >>> found.value, round(found.upper - found.value, 4)
    (1.0, 1.5495)
    """
    arms, rewards, _ = check_rows(arm, reward, None, (first, second), confidence)
    if not penalty >= 0 or math.isinf(penalty):
        raise InvalidValue("penalty", penalty, "a finite number >= 0")
    for name, place in (("first", first), ("second", second)):
        if not (arms == place).any():
            raise InvalidValue(name, place, "an arm with rewards among the rows")
    variance = _residual_variance(arms, rewards) if sigma2 is None else sigma2
    if not variance >= 0:
        raise InvalidValue("sigma2", sigma2, "a number >= 0, or None with more rewards than arms")
    one, zero = (_decorrelate(rewards[arms == place], 1 / (1 + penalty)) for place in (first, second))
    value = one[0] - zero[0]
    half = float(special.ndtri(0.5 + confidence / 2)) * math.sqrt(variance * (one[1] + zero[1]))
    return DecorrelatedDifference(value, value - half, value + half, float(penalty), float(variance))


def _decorrelate(rewards: Floats, rho: float) -> tuple[float, float]:
    """One arm's corrected mean, and its variance for rewards of variance 1."""
    weights = rho * (1 - rho) ** np.arange(rewards.size)
    mean = float(rewards.mean())
    return mean + float(weights @ (rewards - mean)), float(weights @ weights)


def _residual_variance(arms: Ints, rewards: Floats) -> float:
    """The residual variance of least squares on all arms in the rows."""
    _, place = np.unique(arms, return_inverse=True)
    counts = np.bincount(place)
    if rewards.size <= counts.size:
        return math.nan
    means = np.bincount(place, rewards) / counts
    return float(((rewards - means[place]) ** 2).sum()) / (rewards.size - counts.size)


def choose_penalty(
    policy: str | Policy,
    problem: str | Problem,
    samples: int,
    *,
    runs: int | None = None,
    seed: int = 0,
) -> float:
    """A penalty λ: the (1/n)-quantile of min_a N_a / ln n over simulated runs of n samples with equal arms.

    `problem` must have equal arms. By default there are 10 n runs, so that the quantile is the tenth smallest
    value rather than the smallest.

    >>> bool(0 < choose_penalty("ms", "gaussian:0,0,variance=1", 100, seed=1) < 100 / 2 / np.log(100))
    True
    """
    from maillard.problems import problem as problem_of
    from maillard.simulation import simulate

    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 2:
        raise InvalidValue("samples", samples, "a whole number >= 2")
    null = problem_of(problem)
    if np.ptp(null.true_means) != 0:
        raise InvalidValue("problem", str(null), "one whose arms all have the same mean")
    result = simulate(policy, null, int(samples), _ORDER * int(samples) if runs is None else runs, seed=seed)
    least = result.pulls[0].min(axis=1) / math.log(samples)
    return float(np.quantile(least, 1 / samples))
