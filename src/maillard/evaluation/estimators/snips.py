"""Self-normalised inverse propensity scoring."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.moments import PRODUCT, WEIGHT, Moments


class SelfNormalised(AdditiveEstimator):
    """Swaminathan and Joachims (2015): a weighted mean of the rewards, which never leaves their range."""

    name: ClassVar[str] = "snips"
    formula: ClassVar[str] = "Σ w r / Σ w"
    compares: ClassVar[bool] = True
    default_for: ClassVar[tuple[str, ...] | None] = ()
    order: ClassVar[int] = 2
    priority: ClassVar[tuple[int, int]] = (0, 9)

    def solve(self, sums: Moments, constant: float | None) -> Solution:  # noqa: ARG002  # it has no model
        gradient, total = np.zeros(5), float(sums.mean[WEIGHT])
        if not total:
            return Solution(np.nan, gradient)
        value = float(sums.mean[PRODUCT]) / total
        gradient[[PRODUCT, WEIGHT]] = 1.0 / total, -value / total
        return Solution(value, gradient)

    @staticmethod
    def difference(means: Floats) -> Solution:
        """The difference of two targets, from the means of w and w r of either."""
        w_a, a, w_b, b = means.tolist()
        gradient = np.array([-a / w_a**2, 1.0 / w_a, b / w_b**2, -1.0 / w_b])
        return Solution(a / w_a - b / w_b, gradient)
