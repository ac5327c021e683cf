"""Tally updates that were read with their decisions, put into the order of their numbers."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Ints
from maillard.decisions.log_arrays import REVISION, AppliedArrays
from maillard.decisions.tally_history import UpdateArrays

_CHUNK_BITS = 16


class _Chunk:
    """The updates with consecutive numbers, as far as they are known."""

    def __init__(self, first: int, administrative: Ints) -> None:
        size = 1 << _CHUNK_BITS
        self.arm, self.owner = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.value, self.previous = np.zeros(size), np.zeros(size)
        self.known = np.zeros(size, np.bool_)
        inside = administrative[(administrative >= first) & (administrative < first + size)]
        self.known[inside - first] = True


class UpdateBuffer:
    """Holds tally updates until all events before them are known.

    A decision comes before the updates that apply its rewards, so updates are read long before they are used.
    Only the chunks that contain such updates are in memory.
    """

    def __init__(self, number: int, administrative: Ints) -> None:
        self._number, self._administrative = number, administrative
        self._chunks: dict[int, _Chunk] = {}

    def add(self, applied: AppliedArrays) -> bool:
        """Add updates. Return False if a number occurs twice, or if an update is malformed."""
        number, revises = applied.number, applied.kind == REVISION
        outside = (number < 1) | (number > self._number)
        if (outside | (applied.kind < 0) | (revises & np.isnan(applied.previous))).any():
            return False
        previous = np.where(revises, applied.previous, np.nan)
        index = number >> _CHUNK_BITS
        first = int(index.min()) if index.size else 0
        for each in (first + np.flatnonzero(np.bincount(index - first))).tolist():
            chunk = self._chunk(each)
            chosen = np.flatnonzero(index == each)
            place = number[chosen] - (each << _CHUNK_BITS)
            chunk.owner[place] = chosen
            if chunk.known[place].any() or (chunk.owner[place] != chosen).any():
                return False
            chunk.known[place] = True
            chunk.arm[place], chunk.value[place] = applied.arm[chosen], applied.value[chosen]
            chunk.previous[place] = previous[chosen]
        return True

    def take(self, after: int, last: int, position: Ints) -> UpdateArrays | None:
        """Remove and return the updates after `after`, up to `last`; None if one is not known.

        `position` has the index in the tally of each arm.
        """
        parts: list[UpdateArrays] = []
        for each in range((after + 1) >> _CHUNK_BITS, (last >> _CHUNK_BITS) + 1) if last > after else ():
            chunk, first = self._chunk(each), each << _CHUNK_BITS
            inside = slice(max(after + 1 - first, 0), min(last + 1 - first, 1 << _CHUNK_BITS))
            if not chunk.known[inside].all():
                return None
            parts.append(
                UpdateArrays(position[chunk.arm[inside]], chunk.value[inside], chunk.previous[inside])
            )
            if inside.stop == 1 << _CHUNK_BITS:
                del self._chunks[each]
        if not parts:
            return UpdateArrays(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        arm, value, previous = (np.concatenate(each) for each in zip(*parts, strict=True))
        return None if (arm < 0).any() else UpdateArrays(arm, value, previous)

    def _chunk(self, index: int) -> _Chunk:
        if index not in self._chunks:
            self._chunks[index] = _Chunk(index << _CHUNK_BITS, self._administrative)
        return self._chunks[index]
