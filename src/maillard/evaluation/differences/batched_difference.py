"""Batched least squares: the difference between two arms from a log whose policy changed only between batches.

Zhang, Janson and Murphy (2020, Theorem 3). Least squares over the whole log is not normal where the policy learned from it; within a
batch, given all before, rewards are independent and least squares is as usual. So each batch has its own Student statistic, and
their sum over √J is normal as batches grow, whatever the policy did, the margin of two equal arms included.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from maillard.errors import InvalidValue
from maillard.evaluation.differences.row_checks import check_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["BatchedDifference", "batched_difference"]

_PRECISION = 1e-3  # standard error of the coverage that a simulated quantile has
_NORMAL = 1e-3  # relative difference of Student's deviation from 1, below which the normal quantile will do


@dataclass(frozen=True)
class BatchedDifference:
    """The first arm's mean minus the second's, where it is the same in every batch."""

    value: float
    lower: float
    upper: float
    batches: int  # used
    left_out: int  # an arm missing, or no degree of freedom, or rewards that do not vary
    simulated: bool  # whether the quantile was, since batches are small


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
    """(Σ_b c_b Δ̂_b ± q √J) / Σ_b c_b, c_b = √(n₁n₀ / (n₁ + n₀)) / σ̂_b, over the J batches in which both arms were pulled.

    σ̂_b² is the residual variance of batch b with n_b - 2 degrees of freedom, n_b = n₁ + n₀; q is the quantile of
    |Σ_b t_{n_b - 2}| / √J, simulated where batches are small, and of a standard normal variable otherwise. Assumed: within a batch the
    policy did not change, and the two arms' rewards have one variance.

    >>> rng = np.random.default_rng(0)
    >>> arm, batch = rng.integers(2, size=4000), np.repeat(np.arange(4), 1000)
    >>> found = batched_difference(arm, rng.normal(0.3 * arm), batch, 1, 0)
    >>> found.lower < 0.3 < found.upper, found.batches
    (True, 4)
    """
    arms, rewards, batches = check_rows(arm, reward, batch)
    if not 0 < confidence < 1:
        raise InvalidValue("confidence", confidence, "a number between 0 and 1")
    if first == second:
        raise InvalidValue("second", second, "another arm than the first")
    groups, place = np.unique(batches, return_inverse=True)
    counts, means, residual = _least_squares(arms, rewards, place, groups.size, (first, second))
    freedom = counts.sum(axis=0) - 2
    # A batch without variation has no σ̂; a weight made up for it would outweigh all others.
    used = (counts > 0).all(axis=0) & (freedom > 0) & (residual > 0)
    if not used.any():
        allowed = f"a batch in which arms {first} and {second} were pulled, with three rewards that vary"
        raise InvalidValue("batch", f"{groups.size} batches", allowed)
    (one, zero), freedom = counts[:, used], freedom[used]
    weight = np.sqrt(one * zero / (one + zero) * freedom / residual[used])
    total, number = float(weight.sum()), int(used.sum())
    value = float(weight @ (means[0] - means[1])[used]) / total
    simulated = bool(_excess(freedom) > _NORMAL)
    quantile = (
        _simulated_quantile(tuple(sorted(freedom.tolist())), confidence, seed)
        if simulated
        else float(special.ndtri(0.5 + confidence / 2))
    )
    half = quantile * math.sqrt(number) / total
    return BatchedDifference(value, value - half, value + half, number, groups.size - number, simulated)


def _least_squares(
    arms: NDArray[np.int64],
    rewards: Floats,
    place: NDArray[np.int64],
    groups: int,
    pair: tuple[int, int],
) -> tuple[Floats, Floats, Floats]:
    """Pulls and means by arm and batch, and the sum of squared residuals by batch."""
    counts, means, residual = np.zeros((2, groups)), np.zeros((2, groups)), np.zeros(groups)
    for row, arm in enumerate(pair):
        mine = arms == arm
        where, what = place[mine], rewards[mine]
        counts[row] = np.bincount(where, minlength=groups)
        sums = np.bincount(where, what, minlength=groups)
        np.divide(sums, counts[row], out=means[row], where=counts[row] > 0)
        # From the means, in a second pass: squares of large rewards minus squares of their mean would cancel.
        residual += np.bincount(where, (what - means[row][where]) ** 2, minlength=groups)
    return counts, means, residual


def _excess(freedom: Floats) -> float:
    """How far the deviation of the sum of Student's variables over √J is above 1: t_ν has variance ν / (ν - 2)."""
    if freedom.min() <= 2:
        return math.inf
    return float(np.sqrt(np.mean(freedom / (freedom - 2))) - 1)


@functools.lru_cache(maxsize=64)
def _simulated_quantile(freedom: tuple[float, ...], confidence: float, seed: int) -> float:
    """The quantile of |Σ_b t_ν_b| / √J from as many draws as give its coverage to `_PRECISION`: c (1 - c) / precision²."""
    draws = math.ceil(confidence * (1 - confidence) / _PRECISION**2)
    rng, total = np.random.default_rng(seed), np.zeros(draws)
    for each in freedom:
        total += rng.standard_t(each, draws)
    return float(np.quantile(np.abs(total), confidence)) / math.sqrt(len(freedom))
