"""More robust doubly robust estimation: the model is fitted so that the estimate varies least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import AdditiveEstimator, Estimation
from maillard.evaluation.weighted_rows import WeightedRows


@dataclass(frozen=True, eq=False)
class CellSums:
    """For each position and arm, the sums of 1, w, w r, w², w² r, w² r², v and v r.

    v = π (1 - p) / p² is the weight of a row when the model is fitted.
    """

    target_probabilities: Floats
    sums: Floats
    "8 x P x K."
    mean: float
    "The mean reward."

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.sums[0].sum())

    def __add__(self, other: CellSums) -> CellSums:
        fraction = other.sums[0].sum() / max((self.sums[0] + other.sums[0]).sum(), 1.0)
        return CellSums(
            self.target_probabilities, self.sums + other.sums, self.mean + (other.mean - self.mean) * fraction
        )


class MoreRobust(AdditiveEstimator):
    """Farajtabar, Chow and Ghavamzadeh (2018); the model is one number for each arm."""

    name: ClassVar[str] = "mrdr"
    formula: ClassVar[str] = "dr, q fitted with weights π (1 - p) / p²"
    shrinkage: ClassVar[str] = "cells"
    uses_model: ClassVar[bool] = True
    fits_model: ClassVar[bool] = True
    for_actions: ClassVar[bool] = False
    clusters: ClassVar[bool] = False

    def sums(self, rows: WeightedRows) -> CellSums:
        target = rows.target_probabilities
        positions, arms = target.shape
        cell, w, r = rows.target_row * arms + rows.arm, rows.weight, rows.reward - rows.center
        probability = target[rows.target_row, rows.arm]
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = np.where(probability > 0, w / probability, 0.0)  # 1 / p
        fit = probability * (1.0 - 1.0 / np.maximum(inverse, 1.0)) * inverse**2
        one = np.ones_like(w)
        parts = (one, w, w * r, w * w, w * w * r, w * w * r * r, fit, fit * r)
        sums = [np.bincount(cell, weights=each, minlength=target.size) for each in parts]
        mean = float(r.mean()) if len(rows) else 0.0
        return CellSums(target, np.array(sums, np.float64).reshape(len(parts), positions, arms), mean)

    def estimate(self, sums: CellSums, *, center: float = 0.0, **_: Any) -> Estimation:
        # It fits its own model, so it ignores `model`.
        count, w, wr, ww, wwr, wwrr, fit, fitted = sums.sums
        q = np.divide(fitted, fit, out=np.full_like(fit, sums.mean), where=fit > 0)
        base, n = (sums.target_probabilities * q).sum(axis=1), count.sum(axis=1)
        errors = (wr - q * w).sum(axis=1)
        squares = wwrr - 2.0 * q * wwr + q * q * ww
        total = n.sum()
        value = float((n * base + errors).sum() / total)
        second = float((n * base**2 + 2.0 * base * errors + squares.sum(axis=1)).sum())
        return Estimation(value + center, max(0.0, second / total - value**2) / float(total))
