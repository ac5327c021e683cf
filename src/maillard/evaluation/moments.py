"""Means and second moments of the terms that estimators use; those of parts add up in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Floats
from maillard.evaluation.mergeable_sums import merged
from maillard.evaluation.weighted_rows import WeightedRows

# Indices in a row's vector: ω, ω r, ω q(a), Σ π q, r; ω is the shrunken weight, q the reward model.
# The center is subtracted from rewards and model.
WEIGHT, PRODUCT, MODEL, BASE, REWARD = range(5)


@dataclass(frozen=True, eq=False)
class Moments:
    """The number of rows, the mean of their vectors, and Σ (x - mean)(x - mean)ᵀ.

    >>> rows = np.array([[1.0, 2.0, 4.0]])
    >>> whole, parts = Moments.of(rows), Moments.of(rows[:, :2]) + Moments.of(rows[:, 2:])
    >>> np.allclose(whole.scatter, parts.scatter), np.allclose(whole.mean, parts.mean)
    (True, True)
    """

    count: int
    mean: Floats
    scatter: Floats
    units: Mapping[object, Floats] | None = None
    "For each unit its number of rows and the sum of their vectors, if requested."

    @classmethod
    def of(cls, rows: Floats, units: NDArray[np.object_] | None = None) -> Moments:
        """The moments of an array of vectors, one in each column."""
        size, count = rows.shape
        mean, scatter = rows.sum(axis=1) / max(count, 1), np.zeros((size, size))
        nonzero = np.flatnonzero(rows.any(axis=1))  # without a model, two entries are 0
        centred = rows[nonzero]  # a copy
        centred -= mean[nonzero, np.newaxis]
        # Pairwise sums keep more digits than a matrix product, and start no BLAS threads.
        for i, one in enumerate(centred):
            for j, other in enumerate(centred[: i + 1]):
                scatter[nonzero[i], nonzero[j]] = scatter[nonzero[j], nonzero[i]] = (one * other).sum()
        return cls(count, mean, scatter, None if units is None else sums_by_unit(rows, units))

    def __add__(self, other: Moments) -> Moments:
        """Chan, Golub and LeVeque's update, which avoids cancellation."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        fraction = other.count / count
        units = None if self.units is None or other.units is None else merged(self.units, other.units)
        scatter = self.scatter + other.scatter + np.outer(apart, apart) * (self.count * fraction)
        return Moments(count, self.mean + apart * fraction, scatter, units)

    def variance(self, gradient: Floats) -> float:
        """The variance of the mean of gradient · x: Σ (gradient · (x - mean))² / n².

        Rows are independent; unit_intervals.py has the variance for rows that depend on each other.
        """
        if not self.count:
            return 0.0
        variance = float(gradient @ self.scatter @ gradient) / self.count**2
        return 0.0 if variance < 0 else variance  # max() would hide a NaN

    def mean_square(self, weight: Floats) -> float:
        """The mean of (weight · (1, x))²."""
        own, mean = weight[1:], float(weight[0] + weight[1:] @ self.mean)
        return float(own @ self.scatter @ own) / self.count + mean**2


def sums_by_unit(rows: Floats, units: NDArray[np.object_]) -> dict[Any, Floats]:
    """For each unit, its number of rows and the sum of their vectors, which are the columns of `rows`."""
    place: dict[object, int] = {}
    codes = np.fromiter((place.setdefault(unit, len(place)) for unit in units), np.int64, len(units))
    counted = np.vstack([np.ones(rows.shape[1]), rows])
    sums = np.stack([np.bincount(codes, weights=each, minlength=len(place)) for each in counted], axis=1)
    return dict(zip(place, sums, strict=True))


def moments_of(rows: WeightedRows, weight: Floats) -> Moments:
    """The moments of rows with shrunken weights."""
    reward = rows.reward - rows.center
    return Moments.of(np.stack([weight, weight * reward, weight * rows.model, rows.base, reward]), rows.unit)
