"""Self-normalised inverse propensity scoring."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import Additive, Solution
from maillard.evaluation.moments import PRODUCT, WEIGHT, Moments

__all__ = ["SelfNormalised"]


class SelfNormalised(Additive):
    """Swaminathan and Joachims (2015): a weighted mean of rewards, and so never outside their range."""

    name: ClassVar[str] = "snips"
    formula: ClassVar[str] = "Σ w r / Σ w"

    def solve(self, sums: Moments, constant: float | None) -> Solution:  # noqa: ARG002  # it has no model
        gradient, total = np.zeros(5), float(sums.mean[WEIGHT])
        if not total:
            return Solution(np.nan, gradient)
        value = float(sums.mean[PRODUCT]) / total
        gradient[[PRODUCT, WEIGHT]] = 1.0 / total, -value / total
        return Solution(value, gradient)
