"""Doubly robust estimation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Solution
from maillard.evaluation.estimators.estimator import ONLY_CHOSEN_PROBABILITY
from maillard.evaluation.moments import BASE, MODEL, PRODUCT, REWARD, WEIGHT


class DoublyRobust(AdditiveEstimator):
    """Dudík, Langford and Li (2011): the reward model, corrected by its weighted errors on the log."""

    name: ClassVar[str] = "dr"
    formula: ClassVar[str] = "mean [Σ π q + w (r - q)]"
    uses_model: ClassVar[bool] = True
    uses_predictions: ClassVar[bool] = True
    default_for: ClassVar[tuple[str, ...] | None] = (ONLY_CHOSEN_PROBABILITY,)
    order: ClassVar[int] = 7
    priority: ClassVar[tuple[int, int]] = (1, 99)

    def solve(self, mean: Floats, constant: Any) -> Solution:
        gradient, own = np.zeros_like(mean), 0.0 if constant is None else constant
        gradient[BASE], gradient[PRODUCT], gradient[MODEL], gradient[WEIGHT] = 1.0, 1.0, -1.0, -own
        value = (gradient * mean).sum(axis=0) + own
        if constant is not None:
            # The log's mean reward has an error, which counts as weights fall short of 1.
            gradient[REWARD] = 1.0 - mean[WEIGHT]
        return Solution(value, gradient)
