"""Columns of SQLite tables as arrays, copied by compiled code that calls SQLite itself.

The values are checked as in `bulk_columns`, and `OddRows` means that the rows must be read one by one. It is
also raised if numba is not installed, or if the functions of the SQLite library cannot be called.
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
from maillard.decisions.stores.sqlite_library import Statement, library
from maillard.decisions.stores.text_columns import Names, Texts, joined

_CAPACITY = 1 << 16  # rows that are copied at once
_BYTES_PER_ROW = 40  # of each text, at first
_LARGEST = sys.float_info.max
_RANGES = {
    "real": (-_LARGEST, _LARGEST), "real?": (-_LARGEST, _LARGEST), "log": (-np.inf, LOG_PROBABILITY_TOLERANCE)
}  # fmt: skip


def can_read() -> bool:
    """Whether compiled code can read here."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return library() is not None


class NativeColumns:
    """Reads columns on a connection. The names in all of them are numbered together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        if not can_read():
            raise OddRows("compiled code cannot read here")
        from maillard.decisions.stores import compiled_rows

        self._compiled, self._connection = compiled_rows, connection
        self._words = np.zeros(1 << 12, np.uint8)
        self._ends, self._table = np.zeros(257, np.int64), np.zeros(1 << 10, np.int64)
        self._state = np.zeros(4, np.int64)
        self._names: list[str] = []

    def read(self, types: Mapping[str, str], source: str, parameters: Sequence[int | str]) -> Arrays:
        """Return columns with these types of the rows that a query finds. `source` follows FROM.

        Names may be expressions. The types are those of `bulk_columns`, and: "id" for ids, as bytes; "uuid"
        and "uuid?" for their 16 bytes, zeros for NULL. Columns of type "bytes" are joined: one array of all
        bytes. Those of types "empty" and "null" are only checked.
        """
        plan, limits, slots = self._plan(types)
        parts: list[Arrays] = []
        width = _CAPACITY * _BYTES_PER_ROW
        with Statement(self._connection, f"SELECT {', '.join(types)} FROM {source}", parameters) as statement:
            self._state[:3] = 0
            while True:
                cells = np.empty((len(types), _CAPACITY), np.int64)
                data, used = np.empty((slots, width), np.uint8), np.zeros(slots, np.int64)
                result = self._compiled.NO_WORDS
                while result == self._compiled.NO_WORDS:
                    result = self._compiled.copy_rows(
                        statement.connection, statement.address, plan, limits, cells, cells.view(np.float64),
                        data, used, self._words, self._ends, self._table, self._state,
                    )  # fmt: skip
                    if result == self._compiled.NO_WORDS:
                        self._grow()
                rows, self._state[self._compiled.ROWS] = int(self._state[self._compiled.ROWS]), 0
                if result not in (self._compiled.FINISHED, self._compiled.NO_ROOM):
                    raise OddRows("a value has another type, or SQLite failed")
                if rows or not parts:
                    parts.append(self._columns(types, plan, cells[:, :rows], data, used))
                if result == self._compiled.FINISHED:
                    break
                width *= 1 if rows else 2
        return parts[0] if len(parts) == 1 else {name: joined([each[name] for each in parts]) for name in parts[0]}

    def places(self, wanted: NDArray[Any], among: NDArray[Any]) -> Ints | None:
        """Return where each of these keys is among others; -1 if it is not.

        Returns None unless the others are sorted, each once.
        """
        if np.array_equal(wanted, among):
            return np.arange(among.size)
        rows = [each.view(np.uint8).reshape(each.size, each.itemsize) for each in (wanted, among)]
        found = np.empty(wanted.size, np.int64)
        return found if self._compiled.find_keys(*rows, found) else None

    def _plan(self, types: Mapping[str, str]) -> tuple[Ints, NDArray[np.float64], int]:
        """Return `plan` and `limits` for `copy_rows`, and the number of rows of `data`."""
        known, slots = self._compiled, 0
        kinds = {
            "text": known.TEXT, "bytes": known.BYTES, "name": known.NAME, "kind": known.NAME, "id": known.ID,
            "uuid": known.UUID, "empty": known.EMPTY, "null": known.NOTHING,
            **dict.fromkeys(("real", "log"), known.REAL), **dict.fromkeys(WHOLE_RANGES, known.WHOLE),
        }  # fmt: skip
        plan, limits = np.zeros((len(types), 5), np.int64), np.zeros((len(types), 2))
        for column, each in enumerate(types.values()):
            kind = kinds[each.rstrip("?")]
            low, high = WHOLE_RANGES.get(each, (0, {known.ID: 36, known.UUID: 16}.get(kind, 0)))
            plan[column] = kind, each.endswith("?") or kind == known.NOTHING, slots, low, high
            limits[column] = _RANGES.get(each, (0.0, 0.0))
            slots += kind in (known.TEXT, known.BYTES, known.ID, known.UUID)
        return plan, limits, slots

    def _grow(self) -> None:
        """Make room for more names."""
        self._words = np.append(self._words, np.zeros(3 * self._words.size, np.uint8))
        self._ends = np.append(self._ends, np.zeros(3 * self._ends.size, np.int64))
        self._table = np.zeros(4 * self._table.size, np.int64)
        self._compiled.fill_table(self._words, self._ends, self._table, self._state)

    def _columns(
        self, types: Mapping[str, str], plan: Ints, cells: Ints, data: NDArray[np.uint8], used: Ints
    ) -> Arrays:
        self._read_names()
        found: Arrays = {}
        for (name, kind), (_, _, slot, _, size), values in zip(types.items(), plan.tolist(), cells, strict=True):
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
                if self._state[self._compiled.NOT_ASCII] and made.text:
                    made.check()
                found[name] = made
        return found

    def _read_names(self) -> None:
        """Decode the names that are new."""
        try:
            for code in range(len(self._names), self._state[self._compiled.WORDS]):
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
