"""Batched least squares: the difference between two arms if the policy changed only between batches.

The method is that of Zhang, Janson and Murphy (2020, Theorem 3). If the policy learned from the log, least
squares over the whole log is not asymptotically normal. Within a batch, given all earlier batches, rewards
are independent and ordinary least squares applies. So each of the J batches has a Student statistic. The sum
of these, divided by √J, is asymptotically normal as batches grow. This is true for every policy, even if the
two arms are equal.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue
from maillard.evaluation.differences.row_checks import check_rows

_PRECISION = 1e-3  # standard error of the coverage of a simulated quantile
_NORMAL = 1e-3  # the normal quantile is used if Student's deviation exceeds 1 by less than this


@dataclass(frozen=True)
class BatchedDifference:
    """The mean of the first arm minus that of the second, assumed equal in every batch."""

    value: float
    lower: float
    upper: float
    batches: int  # batches used
    left_out: int  # batches with a missing arm, no degree of freedom, or constant rewards
    simulated: bool  # whether the quantile was simulated, because batches are small


def batched_difference(
    arm: ArrayLike,
    reward: ArrayLike,
    batch: ArrayLike,
    first: int,
    second: int,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> BatchedDifference:
    """The difference between the means of two arms, with a confidence interval.

    The interval is (Σ_b c_b Δ̂_b ± q √J) / Σ_b c_b with c_b = √(n₁n₀ / (n₁ + n₀)) / σ̂_b, over the J batches
    that contain both arms. σ̂_b² is the residual variance of batch b, with n_b - 2 = n₁ + n₀ - 2 degrees of
    freedom. q is the quantile of |Σ_b t_{n_b - 2}| / √J. It is simulated if batches are small; otherwise the
    normal quantile is used. Assumptions: the policy did not change within a batch, and the rewards of both
    arms have the same variance.

    >>> rng = np.random.default_rng(0)
    >>> arm, batch = rng.integers(2, size=4000), np.repeat(np.arange(4), 1000)
    >>> found = batched_difference(arm, rng.normal(0.3 * arm), batch, 1, 0)
    >>> found.lower < 0.3 < found.upper, found.batches
    (True, 4)
    """
    arms, rewards, batches = check_rows(arm, reward, batch, (first, second), confidence)
    groups, place = np.unique(batches, return_inverse=True)
    counts, means, residual = _least_squares(arms, rewards, place, groups.size, (first, second))
    freedom = counts.sum(axis=0) - 2
    # A batch with constant rewards has no σ̂; any weight for it would be arbitrary.
    used = (counts > 0).all(axis=0) & (freedom > 0) & (residual > 0)
    if not used.any():
        both = f"a batch in which arms {first} and {second} were pulled"
        allowed = f"{both}, with at least three rewards that are not all equal"
        raise InvalidValue("batch", f"{groups.size} batches", allowed)
    (one, zero), freedom = counts[:, used], freedom[used]
    weight = np.sqrt(one * zero / (one + zero) * freedom / residual[used])
    total, number = float(weight.sum()), int(used.sum())
    value = float(weight @ (means[0] - means[1])[used]) / total
    simulated = bool(_excess(freedom) > _NORMAL)
    quantile = float(special.ndtri(0.5 + confidence / 2))
    if simulated:
        quantile = _simulated_quantile(tuple(sorted(freedom.tolist())), confidence, seed)
    half = quantile * math.sqrt(number) / total
    return BatchedDifference(value, value - half, value + half, number, groups.size - number, simulated)


def _least_squares(
    arms: Ints, rewards: Floats, place: Ints, groups: int, pair: tuple[int, int]
) -> tuple[Floats, Floats, Floats]:
    """Pulls and means by arm and batch, and the sum of squared residuals by batch."""
    counts, means, residual = np.zeros((2, groups)), np.zeros((2, groups)), np.zeros(groups)
    for row, arm in enumerate(pair):
        is_arm = arms == arm
        batch, values = place[is_arm], rewards[is_arm]
        counts[row] = np.bincount(batch, minlength=groups)
        sums = np.bincount(batch, values, minlength=groups)
        np.divide(sums, counts[row], out=means[row], where=counts[row] > 0)
        # A second pass: the one-pass formula would lose precision for large rewards.
        residual += np.bincount(batch, (values - means[row][batch]) ** 2, minlength=groups)
    return counts, means, residual


def _excess(freedom: Floats) -> float:
    """The excess over 1 of the standard deviation of Σ_b t_ν_b / √J; t_ν has variance ν / (ν - 2)."""
    if freedom.min() <= 2:
        return math.inf
    return float(np.sqrt(np.mean(freedom / (freedom - 2))) - 1)


@functools.lru_cache(maxsize=64)
def _simulated_quantile(freedom: tuple[float, ...], confidence: float, seed: int) -> float:
    """The quantile of |Σ_b t_ν_b| / √J, simulated so that its coverage has error `_PRECISION`."""
    draws = math.ceil(confidence * (1 - confidence) / _PRECISION**2)
    rng, total = np.random.default_rng(seed), np.zeros(draws)
    for each in freedom:
        total += rng.standard_t(each, draws)
    return float(np.quantile(np.abs(total), confidence)) / math.sqrt(len(freedom))
