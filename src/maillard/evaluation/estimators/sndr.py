"""Self-normalised doubly robust estimation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.moments import BASE, MODEL, PRODUCT, WEIGHT, Moments


class SelfNormalisedDoublyRobust(AdditiveEstimator):
    """Doubly robust, its weights divided by their sum."""

    name: ClassVar[str] = "sndr"
    formula: ClassVar[str] = "mean Σ π q + Σ w (r - q) / Σ w"
    uses_model: ClassVar[bool] = True

    def solve(self, sums: Moments, constant: float | None) -> Solution:
        gradient, total = np.eye(5)[BASE], float(sums.mean[WEIGHT])
        if not total:
            return Solution(np.nan, gradient)
        # A constant in the model is added to all that the target would choose, and taken off all that the log
        # did.
        ratio = float(sums.mean[PRODUCT] - sums.mean[MODEL]) / total
        gradient[[PRODUCT, MODEL, WEIGHT]] = 1.0 / total, -1.0 / total, -ratio / total
        return Solution(float(sums.mean[BASE]) + (constant or 0.0) + (ratio - (constant or 0.0)), gradient)
