"""Inverse propensity scoring."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.moments import PRODUCT


class InversePropensity(AdditiveEstimator):
    """Horvitz and Thompson (1952): rewards weighted by w, the target's probability over the logged one."""

    name: ClassVar[str] = "ips"
    formula: ClassVar[str] = "mean w r"
    equivariant: ClassVar[bool] = False
    mean_of_terms: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    default_for: ClassVar[tuple[str, ...] | None] = ()
    order: ClassVar[int] = 1

    def solve(self, mean: Floats, constant: Any) -> Solution:  # noqa: ARG002  # it has no model
        return Solution(mean[PRODUCT], np.eye(5)[PRODUCT])

    @staticmethod
    def difference(mean: Floats) -> Solution:
        """The difference of two targets, from the mean of w and w r of either; or from several means."""
        return Solution(mean[1] - mean[3], np.array([0.0, 1.0, 0.0, -1.0]))
