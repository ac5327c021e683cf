"""Doubly robust estimation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import Additive, Solution
from maillard.evaluation.moments import BASE, MODEL, PRODUCT, REWARD, WEIGHT, Moments

__all__ = ["DoublyRobust"]


class DoublyRobust(Additive):
    """Dudík, Langford and Li (2011): the model of rewards, and its error on the log, weighted."""

    name: ClassVar[str] = "dr"
    formula: ClassVar[str] = "mean [Σ π q + w (r - q)]"
    modelled: ClassVar[bool] = True

    def solve(self, sums: Moments, constant: float | None) -> Solution:
        gradient = np.zeros(5)
        gradient[[BASE, PRODUCT, MODEL, WEIGHT]] = 1.0, 1.0, -1.0, -(constant or 0.0)
        value = float(gradient @ sums.mean) + (constant or 0.0)
        if (
            constant is not None
        ):  # the log's mean reward has an error too, which counts for what the weights are short of 1
            gradient[REWARD] = 1.0 - float(sums.mean[WEIGHT])
        return Solution(value, gradient)
