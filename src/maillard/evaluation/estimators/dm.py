"""The direct method."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.estimators.estimator import NO_INTERVAL, NORMAL
from maillard.evaluation.moments import BASE, REWARD, Moments


class DirectMethod(AdditiveEstimator):
    """The prediction of the reward model alone; its error is that of the model."""

    name: ClassVar[str] = "dm"
    formula: ClassVar[str] = "mean Σ π q"
    uses_model: ClassVar[bool] = True
    sample_size: ClassVar[str] = ""
    needs_variance: ClassVar[bool] = False

    def solve(self, sums: Moments, constant: float | None) -> Solution:
        gradient = np.eye(5)[BASE]
        if constant is not None:  # the log's mean reward has an error
            gradient += np.eye(5)[REWARD]
        return Solution(float(sums.mean[BASE]) + (constant or 0.0), gradient)

    def interval_and_assumption(self, *, model: bool) -> tuple[str, str]:
        if model:
            return NO_INTERVAL, "the reward model is correct"
        return NORMAL, "all arms have the same mean reward, so the log's mean reward estimates any target"
