"""The direct method."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import Additive, Solution
from maillard.evaluation.moments import BASE, REWARD, Moments

__all__ = ["DirectMethod"]


class DirectMethod(Additive):
    """What the model of rewards says, and nothing else: as good as the model."""

    name: ClassVar[str] = "dm"
    formula: ClassVar[str] = "mean Σ π q"
    modelled: ClassVar[bool] = True

    def solve(self, sums: Moments, constant: float | None) -> Solution:
        gradient = np.eye(5)[BASE]
        if constant is not None:  # the log's mean reward, which has an error of its own
            gradient += np.eye(5)[REWARD]
        return Solution(float(sums.mean[BASE]) + (constant or 0.0), gradient)
