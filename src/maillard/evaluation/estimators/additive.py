"""Additive estimators, which are computed from moments of the rows; the moments of parts of a log add up."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.estimator import NORMAL, Estimator
from maillard.evaluation.moments import REWARD, WEIGHT, Moments, moments_of
from maillard.evaluation.weighted_rows import WeightedRows


class Solution(NamedTuple):
    """An estimate and its gradient with respect to the mean of the rows' vectors (see moments.py)."""

    value: float
    gradient: Floats


class AdditiveEstimator(Estimator):
    """An estimator that is computed from sums over the rows, in any order and in any number of parts."""

    shrinkage: ClassVar[str] = "none"
    "Estimators with the same shrinkage and level share their moments."
    mean_of_terms: ClassVar[bool] = False
    "Whether it is a plain mean of terms, one for each row, as an empirical Bernstein interval requires."
    equivariant: ClassVar[bool] = True
    "Whether adding 1 to each reward adds 1 to the estimate."

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

    def estimate(self, sums: Any, *, model: bool = False, center: float = 0.0) -> tuple[float, float]:
        """The estimate and its variance. Without a reward model, every prediction is the mean reward."""
        constant = None if model else float(sums.mean[REWARD])
        value, gradient = self.solve(sums, constant)
        if self.equivariant:
            return value + center, sums.variance(gradient)
        gradient[WEIGHT] += center
        return value + center * float(sums.mean[WEIGHT]), sums.variance(gradient)

    def solve(self, sums: Moments, constant: float | None) -> Solution:
        """The estimate; the model of each arm is that of the rows plus `constant`."""
        raise NotImplementedError

    def interval_and_assumption(self, *, model: bool) -> tuple[str, str]:  # noqa: ARG002  # subclasses use it
        """The type of interval, with or without a reward model, and what it assumes beyond the default."""
        return NORMAL, self.assumes
