"""Self-normalised doubly robust estimation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.moments import BASE, MODEL, PRODUCT, WEIGHT


class SelfNormalisedDoublyRobust(AdditiveEstimator):
    """Doubly robust, its weights divided by their sum."""

    name: ClassVar[str] = "sndr"
    formula: ClassVar[str] = "mean Σ π q + Σ w (r - q) / Σ w"
    uses_model: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = True

    @np.errstate(divide="ignore", invalid="ignore")  # without weights, there is no estimate
    def solve(self, mean: Floats, constant: Any) -> Solution:
        gradient, total = np.zeros_like(mean), mean[WEIGHT]
        # A constant in the model is added to all that the target would choose, and taken off all that the log
        # did.
        own, ratio = 0.0 if constant is None else constant, (mean[PRODUCT] - mean[MODEL]) / total
        gradient[BASE], gradient[PRODUCT], gradient[MODEL] = 1.0, 1.0 / total, -1.0 / total
        gradient[WEIGHT] = -ratio / total
        return Solution(mean[BASE] + own + (ratio - own), gradient)
