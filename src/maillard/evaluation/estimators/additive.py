"""Additive estimators, which are computed from moments of the rows; the moments of parts of a log add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.estimator import NORMAL, Estimator
from maillard.evaluation.moments import REWARD, WEIGHT, Moments, moments_of
from maillard.evaluation.unit_intervals import UnitVariance, unit_variance
from maillard.evaluation.weighted_rows import WeightedRows


class Solution(NamedTuple):
    """Estimates and their gradient with respect to the mean of the rows' vectors (see moments.py)."""

    value: Any
    "A number; or one for each column, if there are several means."
    gradient: Floats


class Estimation(NamedTuple):
    """An estimate and its variance."""

    value: float
    variance: float
    by_unit: UnitVariance | None = None
    "If the rows of a unit may depend on each other."


def estimation(moments: Moments, solve: Callable[[Floats], Solution], weight: Floats) -> Estimation:
    """The estimate that is a function of the mean of the rows' vectors; `unit_variance` explains `weight`."""
    value, gradient = solve(moments.mean)
    if moments.units is None or not moments.count:
        return Estimation(float(value), moments.variance(gradient))
    by_unit = unit_variance(moments, lambda means: solve(means).value, gradient, weight)
    return Estimation(float(value), by_unit.variance, by_unit)


class AdditiveEstimator(Estimator):
    """An estimator that is computed from sums over the rows, in any order and in any number of parts."""

    shrinkage: ClassVar[str] = "none"
    "Estimators with the same shrinkage and level share their moments."
    mean_of_terms: ClassVar[bool] = False
    "Whether it is a plain mean of terms, one for each row, as an empirical Bernstein interval requires."
    equivariant: ClassVar[bool] = True
    "Whether adding 1 to each reward adds 1 to the estimate."

    ignores_weights: ClassVar[bool] = False
    "Whether all rows count alike."

    @staticmethod
    def shrink(weight: Floats, level: float) -> Floats:  # noqa: ARG004  # subclasses use it
        """The shrunken weight ω of a weight w."""
        return weight

    def max_weight(self) -> float:
        """The largest possible ω."""
        return np.inf

    @property
    def key(self) -> tuple[str, float | None]:
        """Identifies the moments that the estimator needs."""
        return self.shrinkage, self.level

    def sums(self, rows: WeightedRows) -> Any:
        """What the rows contribute: an object with `+`."""
        return moments_of(rows, self.shrink(rows.weight, self.level or 0.0))

    def estimate(self, sums: Any, *, model: bool = False, center: float = 0.0) -> Estimation:
        """The estimate and its variance. Without a reward model, every prediction is the mean reward."""

        def solve(mean: Floats) -> Solution:
            value, gradient = self.solve(mean, None if model else mean[REWARD])
            if self.equivariant:
                return Solution(value + center, gradient)
            gradient[WEIGHT] += center
            return Solution(value + center * mean[WEIGHT], gradient)

        return estimation(sums, solve, np.eye(6)[0 if self.ignores_weights else 1 + WEIGHT])

    def solve(self, mean: Floats, constant: Any) -> Solution:
        """The estimate at the mean of the rows' vectors; the model of each arm is that plus `constant`.

        `mean` may have several columns, of which each gives an estimate; `constant` then has as many numbers.
        """
        raise NotImplementedError

    def interval_and_assumption(self, *, model: bool) -> tuple[str, str]:  # noqa: ARG002  # subclasses use it
        """The type of interval, with or without a reward model, and what it assumes beyond the default."""
        return NORMAL, self.assumes
