"""Columns of SQLite tables as arrays, copied by compiled code that calls SQLite itself.

The values are checked as in `bulk_columns`, and `OddRows` means that the rows must be read one by one. It is
also raised if there is no machine code, or if the functions of the SQLite library cannot be called.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Ints
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.events import UPDATE_KINDS
from maillard.decisions.stores.bulk_columns import WHOLE_RANGES, Arrays, OddRows
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.row_codes import (
    AT_ROW,
    BYTES,
    EMPTY,
    FINISHED,
    ID,
    NAME,
    NO_ROOM,
    NO_WORDS,
    NOT_ASCII,
    NOTHING,
    REAL,
    ROWS,
    TEXT,
    UUID,
    WHOLE,
    WORDS,
)
from maillard.decisions.stores.sqlite_library import Statement
from maillard.decisions.stores.text_columns import Names, Texts, joined

_CAPACITY = 1 << 16  # rows that are copied at once
_BYTES_PER_ROW = 40  # of each text, at first
_KINDS = {
    "text": TEXT, "bytes": BYTES, "name": NAME, "kind": NAME, "id": ID, "uuid": UUID, "empty": EMPTY,
    "null": NOTHING, "real": REAL, "log": REAL, **dict.fromkeys(WHOLE_RANGES, WHOLE),
}  # fmt: skip
_LARGEST = sys.float_info.max
_RANGES = {
    "real": (-_LARGEST, _LARGEST), "real?": (-_LARGEST, _LARGEST), "log": (-np.inf, LOG_PROBABILITY_TOLERANCE)
}  # fmt: skip


class NativeColumns:
    """Reads columns on a connection. The names in all of them are numbered together.

    Raises OddRows if there is no machine code.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        found = loops()
        if found is None:
            raise OddRows("there is no machine code")
        self._loops, self._connection = found, connection
        self._words = np.zeros(1 << 12, np.uint8)
        self._ends, self._table = np.zeros(1 << 8, np.int64), np.zeros(1 << 10, np.int64)
        self._state = np.zeros(4, np.int64)
        self._names: list[str] = []

    def read(self, types: Mapping[str, str], source: str, parameters: Sequence[int | str]) -> Arrays:
        """Return columns with these types of the rows that a query finds. `source` follows FROM.

        Names may be expressions. The types are those of `bulk_columns`, and: "id" for ids, as bytes; "uuid"
        and "uuid?" for their 16 bytes, zeros for NULL. Columns of type "bytes" are joined: one array of all
        bytes. Those of types "empty" and "null" are only checked.
        """
        types = _with_one_null(types)
        plan, limits, slots = self._plan(types)
        parts: list[Arrays] = []
        width = _CAPACITY * _BYTES_PER_ROW
        with Statement(self._connection, f"SELECT {', '.join(types)} FROM {source}", parameters) as statement:
            self._state[[ROWS, AT_ROW, NOT_ASCII]] = 0
            while True:
                cells = np.empty((len(types), _CAPACITY), np.int64)
                data, used = np.empty((slots, width), np.uint8), np.zeros((2, slots), np.int64)
                while True:
                    room = np.array([self._words.size, self._ends.size, self._table.size])
                    result = self._loops.copy_rows(
                        statement.connection, statement.address, len(types), _CAPACITY, slots, width, plan,
                        limits, cells, cells, data, used[0], used[1], self._words, self._ends, self._table,
                        room, self._state,
                    )  # fmt: skip
                    if result != NO_WORDS:
                        break
                    self._make_room()
                if result not in (FINISHED, NO_ROOM):
                    raise OddRows("a value has another type, or SQLite failed")
                rows = int(self._state[ROWS])
                self._state[ROWS] = 0
                if rows or not parts:
                    parts.append(self._columns(types, plan, cells[:, :rows], data, used[0]))
                if result == FINISHED:
                    break
                width *= 1 if rows else 2
        if len(parts) == 1:
            return parts[0]
        return {name: joined([each[name] for each in parts]) for name in parts[0]}

    def places(self, wanted: NDArray[Any], among: NDArray[Any]) -> Ints | None:
        """Return where each of these keys is among others; -1 if it is not.

        Returns None unless the others are sorted, each once.
        """
        keys = [np.ascontiguousarray(each) for each in (wanted, among)]
        if np.array_equal(keys[0].view(np.uint8), keys[1].view(np.uint8)):  # faster than to compare keys
            return np.arange(among.size)
        found = np.empty(wanted.size, np.int64)
        given = keys[0].itemsize, keys[0], keys[0].size, keys[1], keys[1].size, found
        return found if self._loops.find_keys(*given) else None

    def _plan(self, types: Mapping[str, str]) -> tuple[Ints, NDArray[np.float64], int]:
        """Return `plan` and `limits` for `copy_rows`, and the number of rows of `data`."""
        slots = 0
        plan, limits = np.zeros((len(types), 5), np.int64), np.zeros((len(types), 2))
        for column, each in enumerate(types.values()):
            kind = _KINDS[each.rstrip("?")]
            low, high = WHOLE_RANGES.get(each, (0, {ID: 36, UUID: 16}.get(kind, 0)))
            plan[column] = kind, each.endswith("?") or kind == NOTHING, slots, low, high
            limits[column] = _RANGES.get(each, (0.0, 0.0))
            slots += kind in (TEXT, BYTES, ID, UUID)
        return plan, limits, slots

    def _make_room(self) -> None:
        """Make room for more names, and enter those that are known again."""
        words, ends = self._words, self._ends
        self._words = np.append(words, np.zeros(3 * words.size, np.uint8))
        self._ends = np.append(ends, np.zeros(3 * ends.size, np.int64))
        self._table = np.zeros(4 * self._table.size, np.int64)
        for code in range(int(self._state[WORDS])):
            place = _hash(words[ends[code] : ends[code + 1]].tobytes()) & (self._table.size - 1)
            while self._table[place]:
                place = (place + 1) & (self._table.size - 1)
            self._table[place] = code + 1

    def _columns(
        self, types: Mapping[str, str], plan: Ints, cells: Ints, data: NDArray[np.uint8], used: Ints
    ) -> Arrays:
        self._read_names()
        found: Arrays = {}
        for (name, kind), (_, _, slot, _, size), values in zip(
            types.items(), plan.tolist(), cells, strict=True
        ):
            if kind in ("empty", "null"):
                continue
            if kind in _RANGES:
                found[name] = values.view(np.float64)
            elif kind in WHOLE_RANGES:
                found[name] = values
            elif kind == "kind":
                found[name] = self._kinds(values)
            elif kind in ("name", "name?"):
                found[name] = Names(values, self._names)
            elif size:
                found[name] = data[slot, : values.size * size].view(f"{'S' if kind == 'id' else 'V'}{size}")
            elif kind == "bytes":
                found[name] = data[slot, : used[slot]]
            else:
                made = Texts.of_ends(values, data[slot, : used[slot]], text=kind != "bytes?")
                if self._state[NOT_ASCII] and made.text:
                    made.check()
                found[name] = made
        return found

    def _read_names(self) -> None:
        """Decode the names that are new."""
        try:
            for code in range(len(self._names), self._state[WORDS]):
                start, end = self._ends[code : code + 2]
                self._names.append(self._words[start:end].tobytes().decode())
        except UnicodeDecodeError as error:
            raise OddRows("a name is no text") from error

    def _kinds(self, codes: Ints) -> Ints:
        """Return the indices of names in UPDATE_KINDS."""
        known = {kind: place for place, kind in enumerate(UPDATE_KINDS)}
        found = np.array([known.get(name, -1) for name in self._names] or [-1])[codes]
        if (found < 0).any():
            raise OddRows("an update has another kind")
        return found


def _with_one_null(types: Mapping[str, str]) -> Mapping[str, str]:
    """Replace the columns that must be NULL by one, the first of their values that is not NULL."""
    nulls = [name for name, kind in types.items() if kind == "null"]
    if len(nulls) < 2:
        return types
    others = {name: kind for name, kind in types.items() if kind != "null"}
    return {**others, f"coalesce({', '.join(nulls)})": "null"}


def _hash(name: bytes) -> int:
    """Return the hash of a name, as compiled code computes it."""
    found = 14695981039346656037
    for letter in name:
        found = (found ^ letter) * 1099511628211 % 2**64
    return found ^ (found >> 29)
