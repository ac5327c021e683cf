"""The direct method."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.estimators.estimator import NO_INTERVAL, NORMAL
from maillard.evaluation.moments import BASE, REWARD


class DirectMethod(AdditiveEstimator):
    """The prediction of the reward model alone; its error is that of the model."""

    name: ClassVar[str] = "dm"
    formula: ClassVar[str] = "mean Σ π q"
    uses_model: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = True
    sample_size: ClassVar[str] = ""
    needs_variance: ClassVar[bool] = False
    ignores_weights: ClassVar[bool] = True

    def solve(self, mean: Floats, constant: Any) -> Solution:
        gradient = np.eye(5)[BASE]
        if constant is None:
            return Solution(mean[BASE], gradient)
        gradient += np.eye(5)[REWARD]  # the log's mean reward has an error
        return Solution(mean[BASE] + constant, gradient)

    def interval_and_assumption(self, *, model: bool) -> tuple[str, str]:
        if model:
            return NO_INTERVAL, "the reward model is correct"
        return NORMAL, "all arms have the same mean reward, so the log's mean reward estimates any target"
