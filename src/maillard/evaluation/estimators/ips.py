"""Inverse propensity scoring."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.moments import PRODUCT, Moments


class InversePropensity(AdditiveEstimator):
    """Horvitz and Thompson (1952): rewards weighted by w, the target's probability over the logged one."""

    name: ClassVar[str] = "ips"
    formula: ClassVar[str] = "mean w r"
    equivariant: ClassVar[bool] = False
    mean_of_terms: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    default_for: ClassVar[tuple[str, ...] | None] = ()
    order: ClassVar[int] = 1

    def solve(self, sums: Moments, constant: float | None) -> Solution:  # noqa: ARG002  # it has no model
        return Solution(float(sums.mean[PRODUCT]), np.eye(5)[PRODUCT])

    @staticmethod
    def difference(means: Floats) -> Solution:
        """The difference of two targets, from the means of w and w r of either."""
        _, first, _, second = means.tolist()
        return Solution(first - second, np.array([0.0, 1.0, 0.0, -1.0]))
