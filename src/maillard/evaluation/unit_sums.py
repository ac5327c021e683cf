"""Sums by unit of a bounded sample of units, to find out whether the rows of a unit are alike.

The design effect is the variance of an estimate that allows for dependence within units, divided by the
variance that assumes independent rows. It is computed from the residuals w (r - v) of a sample of units:
those whose hash ends in enough zeros, so that samples of parts of a log can be merged.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Floats
from maillard.evaluation.moments import sums_by_unit
from maillard.evaluation.weighted_rows import WeightedRows

_MAX_UNITS = 20_000


@dataclass(frozen=True, eq=False)
class UnitSums:
    """The sums of a sample of units: those whose hash is divisible by 2^`bits`."""

    bits: int = 0
    sums: Mapping[str, Floats] = field(default_factory=dict)
    "By unit: rows, Σ w, Σ w r, Σ w², Σ w² r, Σ w² r²."

    @classmethod
    def of(cls, rows: WeightedRows, units: NDArray[np.object_]) -> UnitSums:
        """The sums of some rows; rows without a unit are left out."""
        known = np.fromiter((unit is not None for unit in units), np.bool_, len(units))
        w, r = rows.weight[known], (rows.reward - rows.center)[known]
        terms = np.stack([w, w * r, w * w, w * w * r, (w * r) ** 2])
        return cls(0, sums_by_unit(terms, units[known]))._limited()

    def __add__(self, other: UnitSums) -> UnitSums:
        bits = max(self.bits, other.bits)
        both: dict[str, Floats] = {}
        for part in (self, other):
            for unit, sums in part.sums.items():
                if part.bits == bits or _sampled(unit, bits):
                    both[unit] = both[unit] + sums if unit in both else sums
        return UnitSums(bits, both)._limited()

    def _limited(self) -> UnitSums:
        bits, sums = self.bits, dict(self.sums)
        while len(sums) > _MAX_UNITS:
            bits += 1
            sums = {unit: each for unit, each in sums.items() if _sampled(unit, bits)}
        return self if bits == self.bits else UnitSums(bits, sums)

    @np.errstate(all="ignore")
    def design_effect(self) -> float | None:
        """The ratio of the two variances; 1 if it is not significantly larger, None if no unit repeats."""
        if not self.sums:
            return None
        table = np.array(list(self.sums.values()))
        rows, w, wr, ww, wwr, wwrr = table.T
        if rows.max() < 2 or not w.sum() > 0:
            return None
        v = wr.sum() / w.sum()
        independent = wwrr.sum() - 2 * v * wwr.sum() + v * v * ww.sum()
        clustered = ((wr - v * w) ** 2).sum() * len(rows) / max(len(rows) - 1, 1)
        effect = float(clustered / independent) if independent > 0 else 1.0
        # The variance between few units is uncertain: its relative standard error is about √(2 / units).
        significant = effect * (1.0 - 1.645 * np.sqrt(2.0 / len(rows))) > 1.0
        return effect if significant or effect < 1.0 else 1.0


def _sampled(unit: str, bits: int) -> bool:
    return zlib.crc32(unit.encode(errors="replace")) % (1 << bits) == 0
