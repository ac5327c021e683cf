"""The tallies of an experiment after many of its tally updates, as matrices.

If all rewards are multiples of a power of two, and the sum of their absolute values is below 2^52 of these
units, then every sum of some of them is a float without rounding. So are the cumulative sums of NumPy, in
any order. That holds for rewards 0 and 1, for whole numbers and for quarters, for example. Other rewards,
such as 0.1, are added one by one to a `Tally`, which rounds the exact sum once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.tally import Tally

_MAX_UNITS = 2.0**52  # half of the range of exact integers: the test itself rounds


class UpdateArrays(NamedTuple):
    """Consecutive tally updates."""

    arm: Ints
    "Index in the tally."
    value: Floats
    previous: Floats
    "The reward before a revision; NaN if the update is not a revision."


class TallyHistory:
    """A tally that can be advanced by many updates at once."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally.copy()

    def advance(self, updates: UpdateArrays, counts: Ints) -> tuple[Ints, Floats]:
        """Apply all updates; return pulls and sums after the first counts[i] of them, one row for each i.

        `counts` must not decrease. Raises InvalidValue for the same updates as `Tally`.
        """
        revised = ~np.isnan(updates.previous)
        if self._stays_exact(updates, revised) and self._can_revise(updates, revised):
            return self._cumulate(updates, revised, counts)
        return self._add_one_by_one(updates, revised, counts)

    def _stays_exact(self, updates: UpdateArrays, revised: Bools) -> bool:
        """Whether all sums of rewards are certainly exact in floats."""
        numbers = np.concatenate([self.tally.sums, updates.value, updates.previous[revised]])
        with np.errstate(over="ignore"):
            total = np.abs(numbers).sum()
            if total <= _MAX_UNITS and (numbers == np.floor(numbers)).all():
                return self.tally.is_exact
            return bool(self.tally.is_exact and np.ldexp(total, -_unit_exponent(numbers)) <= _MAX_UNITS)

    def _can_revise(self, updates: UpdateArrays, revised: Bools) -> bool:
        """Whether each revision has an earlier reward of its arm."""
        if not revised.any():
            return True
        place, added = np.arange(revised.size), ~revised
        first = np.where(self.tally.pulls > 0, -1, revised.size)
        np.minimum.at(first, updates.arm[added], place[added])
        return bool((first[updates.arm[revised]] < place[revised]).all())

    def _cumulate(self, updates: UpdateArrays, revised: Bools, counts: Ints) -> tuple[Ints, Floats]:
        # Arms x rows, and a last column for the updates after the last row.
        shape = len(self.tally), counts.size + 1
        column = np.repeat(np.arange(shape[1]), np.diff(counts, prepend=0, append=updates.arm.size))
        cell = updates.arm * shape[1] + column
        change, added = updates.value, cell
        if revised.any():
            change, added = np.where(revised, change - updates.previous, change), cell[~revised]
        size = shape[0] * shape[1]
        # Without updates, the result of `bincount` has another type.
        sums = np.bincount(cell, weights=change, minlength=size).astype(np.float64, copy=False).reshape(shape)
        pulls = np.bincount(added, minlength=size).reshape(shape)
        sums[:, 0] += self.tally.sums
        pulls[:, 0] += self.tally.pulls
        np.cumsum(sums, axis=1, out=sums)
        np.cumsum(pulls, axis=1, out=pulls)
        self.tally = Tally(pulls[:, -1], sums[:, -1])
        return pulls[:, :-1].T, sums[:, :-1].T

    def _add_one_by_one(self, updates: UpdateArrays, revised: Bools, counts: Ints) -> tuple[Ints, Floats]:
        tally, done = self.tally, 0
        pulls = np.empty((counts.size, len(tally)), np.int64)
        sums = np.empty((counts.size, len(tally)))
        each = list(zip(*(part.tolist() for part in (*updates, revised)), strict=True))
        for row, count in enumerate([*counts.tolist(), len(each)]):
            for arm, value, previous, is_revision in each[done:count]:
                if is_revision:
                    tally.revise(arm, previous, value)
                else:
                    tally.add(arm, value)
            done = count
            if row < counts.size:
                pulls[row], sums[row] = tally.pulls, tally.sums
        return pulls, sums


def _unit_exponent(numbers: Floats) -> int:
    """Return the largest e such that all of these numbers are multiples of 2^e."""
    mantissa, exponent = np.frexp(numbers[(numbers != 0) & np.isfinite(numbers)])
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    return int((exponent - 53 + lowest).min(initial=1024))
