"""More robust doubly robust estimation: the model is fitted so that the estimate varies least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from maillard.evaluation.estimators.additive import Additive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.evaluation.weighted_rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["Cells", "MoreRobust"]


@dataclass(frozen=True, eq=False)
class Cells:
    """Of each law and arm: Σ of 1, w, w r, w², w² r, w² r², v, v r; v = π (1 - p) / p² are the weights of the fit."""

    laws: Floats
    sums: Floats
    "8 x P x K."
    mean: float
    "Of the rewards."

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.sums[0].sum())

    def __add__(self, other: Cells) -> Cells:
        share = other.sums[0].sum() / max((self.sums[0] + other.sums[0]).sum(), 1.0)
        return Cells(self.laws, self.sums + other.sums, self.mean + (other.mean - self.mean) * share)


class MoreRobust(Additive):
    """Farajtabar, Chow and Ghavamzadeh (2018), with a number for each arm as the model."""

    name: ClassVar[str] = "mrdr"
    formula: ClassVar[str] = "dr, q fitted with weights π (1 - p) / p²"
    shrinkage: ClassVar[str] = "cells"
    modelled: ClassVar[bool] = True

    def sums(self, rows: Rows) -> Cells:
        laws = rows.laws
        places, arms = laws.shape
        cell, w, r = rows.law * arms + rows.arm, rows.weight, rows.reward - rows.centre
        share = laws[rows.law, rows.arm]
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = np.where(share > 0, w / share, 0.0)  # 1 / p
        fit = share * (1.0 - 1.0 / np.maximum(inverse, 1.0)) * inverse**2
        one = np.ones_like(w)
        parts = (one, w, w * r, w * w, w * w * r, w * w * r * r, fit, fit * r)
        sums = [np.bincount(cell, weights=each, minlength=laws.size) for each in parts]
        mean = float(r.mean()) if len(rows) else 0.0
        return Cells(laws, np.array(sums, np.float64).reshape(len(parts), places, arms), mean)

    def estimate(self, sums: Cells, *, model: bool = False, centre: float = 0.0) -> tuple[float, float]:  # noqa: ARG002  # it fits its own
        count, w, wr, ww, wwr, wwrr, fit, fitted = sums.sums
        q = np.divide(fitted, fit, out=np.full_like(fit, sums.mean), where=fit > 0)
        base, n = (sums.laws * q).sum(axis=1), count.sum(axis=1)
        errors = (wr - q * w).sum(axis=1)
        squares = wwrr - 2.0 * q * wwr + q * q * ww
        total = n.sum()
        value = float((n * base + errors).sum() / total)
        second = float((n * base**2 + 2.0 * base * errors + squares.sum(axis=1)).sum())
        return value + centre, max(0.0, second / total - value**2) / float(total)
