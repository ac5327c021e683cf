"""Sums by unit of a bounded sample of units, to find out whether the rows of a unit are alike.

The design effect is the variance of an estimate that allows for dependence within units, divided by the
variance that assumes independent rows. It is estimated in two ways, of which the larger counts:

- from the residuals w (r - v) of the target, directly. A few units with many rows make this uncertain;
- from the correlation ρ of two rewards of the same unit, whatever their arms: 1 + ρ (Σ X² / Σ w² - 1), where
  X is the total weight of a unit's rows. All rows of all units contribute to ρ. It is the mean product of two
  residuals of the same unit, in which a unit counts by its rows, divided by their variance.

The sample has the units whose hash ends in enough zeros, so that samples of parts of a log can be merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Floats, Ints
from maillard.evaluation.unit_hashes import sums_by_hash, unit_hashes
from maillard.evaluation.weighted_rows import WeightedRows

_MAX_UNITS = 20_000
_Z = 1.645  # the normal quantile of a one-sided test at a level of 5%


@dataclass(frozen=True, eq=False)
class UnitSums:
    """The sums of a sample of units: those whose hash is divisible by 2^`bits`."""

    bits: int = 0
    hashes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    sums: Floats = field(default_factory=lambda: np.zeros((0, 8)))
    "By unit: rows, Σ w, Σ w r, Σ w², Σ w² r, Σ w² r², Σ r, Σ r²."

    @classmethod
    def of(cls, rows: WeightedRows, units: NDArray[np.object_]) -> UnitSums:
        """The sums of some rows; rows without a unit are left out."""
        known = np.not_equal(units, np.array(None))
        w, r = rows.weight, rows.reward - rows.center
        if not known.all():
            w, r, units = w[known], r[known], units[known]
        terms = [np.ones_like(w), w, w * r, w * w, w * w * r, (w * r) ** 2, r, r * r]
        return cls(0, *sums_by_hash(unit_hashes(units.tolist()), np.stack(terms, axis=1)))._limited()

    def __add__(self, other: UnitSums) -> UnitSums:
        bits = max(self.bits, other.bits)
        both = self._sample(bits), other._sample(bits)
        hashes = np.concatenate([each.hashes for each in both])
        sums = np.concatenate([each.sums for each in both])
        return UnitSums(bits, *sums_by_hash(hashes, sums))._limited()

    def _sample(self, bits: int) -> UnitSums:
        """Those of the units that belong to a smaller sample."""
        if bits == self.bits:
            return self
        kept = self.hashes % (1 << bits) == 0
        return UnitSums(bits, self.hashes[kept], self.sums[kept])

    def _limited(self) -> UnitSums:
        found = self
        while found.hashes.size > _MAX_UNITS:
            found = found._sample(found.bits + 1)
        return found

    @np.errstate(all="ignore")
    def design_effect(self) -> float | None:
        """The ratio of the two variances; 1 if it is not significantly larger, None if no unit repeats."""
        if not self.sums.size:
            return None
        rows, w, wr, ww, wwr, wwrr, r, rr = self.sums.T
        if rows.max() < 2 or not w.sum() > 0:
            return None
        v = wr.sum() / w.sum()
        independent = wwrr.sum() - 2 * v * wwr.sum() + v * v * ww.sum()
        clustered = ((wr - v * w) ** 2).sum() * len(rows) / max(len(rows) - 1, 1)
        direct = float(clustered / independent) if independent > 0 else 1.0
        # The variance between few units is uncertain: its relative standard error is about √(2 / units).
        if direct > 1.0 and direct * (1.0 - _Z * np.sqrt(2.0 / len(rows))) <= 1.0:
            direct = 1.0
        by_correlation = 1.0 + _correlation(rows, r, rr) * float((w**2).sum() / ww.sum() - 1.0)
        return max(direct, by_correlation) if by_correlation > 1.0 else direct


def _correlation(rows: Floats, r: Floats, rr: Floats) -> float:
    """The correlation of two rewards of the same unit; 0 if it is not significantly larger."""
    mean = r.sum() / rows.sum()
    squares = rr - 2 * mean * r + rows * mean**2
    products = ((r - rows * mean) ** 2 - squares) / rows  # of all pairs of rows, divided by the rows
    variance = squares.sum() / rows.sum()
    if not products.sum() > _Z * np.sqrt((products**2).sum()):
        return 0.0
    return min(float(products.sum() / (rows - 1).sum() / variance), 1.0)
