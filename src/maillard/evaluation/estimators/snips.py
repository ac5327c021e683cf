"""Self-normalised inverse propensity scoring."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.moments import PRODUCT, WEIGHT


class SelfNormalised(AdditiveEstimator):
    """Swaminathan and Joachims (2015): a weighted mean of the rewards, which never leaves their range."""

    name: ClassVar[str] = "snips"
    formula: ClassVar[str] = "Σ w r / Σ w"
    compares: ClassVar[bool] = True
    default_for: ClassVar[tuple[str, ...] | None] = ()
    order: ClassVar[int] = 2
    priority: ClassVar[tuple[int, int]] = (0, 9)

    @np.errstate(divide="ignore", invalid="ignore")  # without weights, there is no estimate
    def solve(self, mean: Floats, constant: Any) -> Solution:  # noqa: ARG002  # it has no model
        gradient, total = np.zeros_like(mean), mean[WEIGHT]
        value = mean[PRODUCT] / total
        gradient[PRODUCT], gradient[WEIGHT] = 1.0 / total, -value / total
        return Solution(value, gradient)

    @staticmethod
    @np.errstate(divide="ignore", invalid="ignore")
    def difference(mean: Floats) -> Solution:
        """The difference of two targets, from the mean of w and w r of either; or from several means."""
        w_a, a, w_b, b = mean
        gradient = np.array([-a / w_a**2, 1.0 / w_a, b / w_b**2, -1.0 / w_b])
        return Solution(a / w_a - b / w_b, gradient)
