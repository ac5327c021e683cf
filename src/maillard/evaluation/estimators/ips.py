"""Inverse propensity scoring."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import Additive, Solution
from maillard.evaluation.moments import PRODUCT, Moments

__all__ = ["InversePropensity"]


class InversePropensity(Additive):
    """Horvitz and Thompson (1952): every reward counts for how much likelier the target would have chosen its arm."""

    name: ClassVar[str] = "ips"
    formula: ClassVar[str] = "mean w r"
    moves: ClassVar[bool] = False

    def solve(self, sums: Moments, constant: float | None) -> Solution:  # noqa: ARG002  # it has no model
        return Solution(float(sums.mean[PRODUCT]), np.eye(5)[PRODUCT])
