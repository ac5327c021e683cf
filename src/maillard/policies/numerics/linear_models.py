"""The factored state of linear models: the Cholesky factor of V and the coefficients theta of each model."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.errors import InvalidValue
from maillard.linear_tally import LinearStatistics, LinearTally
from maillard.policies.numerics.triangular import backward, cholesky

# A smaller pivot, relative to the diagonal of V, consists mostly of rounding errors.
MIN_PIVOT = 2.0**-46


class LinearModels:
    """V = ridge I + G = L L' and theta = V^-1 (b - centre Sx) for each model of a tally. Never changed.

    The models are the last axis of all arrays. `columns[j]` has column j of L^-1, and element j of theta
    below it: a state is factored once, and then each decision is a sum of these columns. `inverse` and
    `theta` are their two parts.
    """

    def __init__(
        self,
        counts: Ints,
        statistics: tuple[LinearStatistics, ...],
        shared: bool,
        lower: Floats,
        columns: Floats,
    ) -> None:
        self.counts, self.statistics, self.shared = counts, statistics, shared
        self.lower, self.columns = lower, columns
        self.inverse, self.theta = columns[:, :-1], columns[:, -1]

    @classmethod
    def of(
        cls, tally: LinearTally, ridge: float, centre: float, before: LinearModels | None = None
    ) -> LinearModels:
        """Return the models of a tally. Models that have not changed are taken from `before`."""
        # A tally returns the same array of counts until it changes, which is faster to see than all models.
        counts = tally.counts
        if before is not None and counts is before.counts:
            return before
        shared = tally.arms is None
        statistics = tally.all_statistics()
        if before is None or len(before.statistics) != len(statistics) or before.shared != shared:
            return cls(counts, statistics, shared, *_factor(statistics, ridge, centre))
        pairs = zip(statistics, before.statistics, strict=True)
        changed = [i for i, (one, other) in enumerate(pairs) if one is not other]
        if not changed:
            return cls(counts, statistics, shared, before.lower, before.columns)
        if len(changed) == len(statistics):
            return cls(counts, statistics, shared, *_factor(statistics, ridge, centre))
        parts = before.lower.copy(), before.columns.copy()
        some_parts = _factor([statistics[i] for i in changed], ridge, centre)
        for part, some in zip(parts, some_parts, strict=True):
            for place, i in enumerate(changed):
                part[..., i] = some[..., place]
        return cls(counts, statistics, shared, *parts)

    @cached_property
    def log_determinant(self) -> float:
        """The sum of ln det V over all models."""
        return 2.0 * float(np.log(self.lower.diagonal()).sum())

    @cached_property
    def norms(self) -> tuple[Floats, Floats]:
        """The largest row sums of |V| and |V^-1|, which bound the eigenvalues of V from above and below."""
        lower = np.tril(self.lower.transpose(2, 0, 1))
        inverse = self.inverse.transpose(2, 1, 0)
        # Only error bounds use these, so they need not have the same bits everywhere.
        matrices = lower @ lower.transpose(0, 2, 1), inverse.transpose(0, 2, 1) @ inverse
        large, small = (np.abs(each).sum(axis=2).max(axis=1) for each in matrices)
        return large, small


def _factor(
    statistics: tuple[LinearStatistics, ...] | list[LinearStatistics], ridge: float, centre: float
) -> tuple[Floats, Floats]:
    """Return L, of shape (d, d, models), and the columns of L^-1 and theta, of shape (d, d + 1, models)."""
    gram = np.array([each.gram for each in statistics])
    products = np.array([each.products for each in statistics])
    feature_sums = np.array([each.feature_sums for each in statistics])
    size = gram.shape[1]
    # The rows below V make the factorization compute L^-1 (b - centre Sx) and L^-1 as well.
    matrices = np.empty((2 * size + 1, size, len(gram)))
    matrices[:size] = gram.transpose(1, 2, 0)
    matrices[size + 1 :] = np.eye(size)[:, :, None]
    diagonal = matrices.reshape(-1, len(gram))[: size * size : size + 1]  # a view
    diagonal += ridge
    matrices[size] = (products - centre * feature_sums).T
    factors = cholesky(matrices, identity=True)
    lower = factors[:size]
    pivots = lower.diagonal().T
    if not (pivots * pivots > MIN_PIVOT * diagonal).all():
        raise singular_model(ridge)
    columns = np.empty((size, size + 1, len(gram)))
    columns[:, :size] = factors[size + 1 :]
    columns[:, size] = backward(lower, factors[size])
    return lower, columns


def singular_model(ridge: float) -> InvalidValue:
    """Return the error for a model that cannot be factored."""
    allowed = "a larger number: features are so collinear that V = ridge I + G is singular in float64"
    return InvalidValue("ridge", ridge, allowed)
