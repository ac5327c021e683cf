"""Doubly robust estimation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.estimators.estimator import ONLY_CHOSEN_PROBABILITY
from maillard.evaluation.moments import BASE, MODEL, PRODUCT, REWARD, WEIGHT, Moments


class DoublyRobust(AdditiveEstimator):
    """Dudík, Langford and Li (2011): the reward model, corrected by its weighted errors on the log."""

    name: ClassVar[str] = "dr"
    formula: ClassVar[str] = "mean [Σ π q + w (r - q)]"
    uses_model: ClassVar[bool] = True
    default_for: ClassVar[tuple[str, ...] | None] = (ONLY_CHOSEN_PROBABILITY,)
    order: ClassVar[int] = 7
    priority: ClassVar[tuple[int, int]] = (1, 99)

    def solve(self, sums: Moments, constant: float | None) -> Solution:
        gradient = np.zeros(5)
        gradient[[BASE, PRODUCT, MODEL, WEIGHT]] = 1.0, 1.0, -1.0, -(constant or 0.0)
        value = float(gradient @ sums.mean) + (constant or 0.0)
        if constant is not None:
            # The log's mean reward has an error, which counts as weights fall short of 1.
            gradient[REWARD] = 1.0 - float(sums.mean[WEIGHT])
        return Solution(value, gradient)
