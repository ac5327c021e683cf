"""Bulk reads for exports: all columns, the values of each joined by SQLite (see `packed_columns`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.decisions.stores.bulk_columns import Arrays, OddRows
from maillard.decisions.stores.bulk_reads import (
    DECISION_TYPES,
    REWARD_TYPES,
    SCREENED_TYPES,
    UNUSED,
    UPDATE_TYPES,
    BulkReader,
    check_updates,
)
from maillard.decisions.stores.bulk_vectors import VectorTable, decode
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.stores.packed_columns import check_tables, packed_columns
from maillard.decisions.stores.raw_rows import RawRows, moved

_CACHE_KIB = 32 * 1024  # several queries read the same pages
_MAX_SURPLUS, _MIN_SURPLUS = 2, 1_000  # rows that are read without need, rather than chosen one by one
_DECISION_TYPES = {**DECISION_TYPES, "id": "id"}
_SCREENED_TYPES = {**SCREENED_TYPES, "id": "id"}
_REWARD_TYPES = {**REWARD_TYPES, "decision": "id"}
_UPDATE_TYPES = {**UPDATE_TYPES, "decision": "id"}
_VECTOR_TYPES = {
    "state": "whole", "variant": "any whole", "arms": "any whole", "data": "bytes", "length(data)": "whole"
}  # fmt: skip


class PackedReader(BulkReader):
    """Reads the rows of an experiment with all columns. Ids are arrays of bytes."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        check_tables(self._connection)
        self._connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")

    def _columns(
        self, types: Mapping[str, str], source: str, parameters: Sequence[Any], order: str
    ) -> Arrays:
        return packed_columns(self._connection, types, source, parameters, order)

    def rows_of(self, ids: NDArray[np.bytes_]) -> RawRows:
        """Return those of these decisions that exist, ordered by state and id. The ids must be sorted."""
        first, last = ids[0].decode(), ids[-1].decode()
        limit = _MAX_SURPLUS * ids.size + _MIN_SURPLUS
        among = "SELECT 1 FROM decisions WHERE experiment = ? AND id >= ? AND id <= ? LIMIT ?"
        number = self._fetch(f"SELECT count(*) FROM ({among})", self._experiment, first, last, limit)
        if number != [(limit,)]:
            rows = self._between(first, last)
            chosen = self.places(rows.decisions["id"], ids) >= 0
            rows = rows if chosen.all() else rows.take(np.flatnonzero(chosen))
        else:  # most decisions between them are others
            among = json.dumps(ids.astype(str).tolist())
            source = f"decisions WHERE experiment = ? AND id {self.transaction.IN}"
            rows = self._rows(source, [self._experiment, among], f"decision {self.transaction.IN}", [among])
        return RawRows.merged([rows])

    def _chunk(self, after: str | None, last: str, full: bool) -> RawRows:
        first, operator = ("", ">=") if after is None else (after, ">")
        rows = self._between(first, last, operator, _DECISION_TYPES if full else _SCREENED_TYPES)
        if not full:
            kept = {name: each for name, each in rows.decisions.items() if name not in UNUSED}
            rows = RawRows(kept, rows.rewards, rows.updates)
        return rows

    def _between(
        self, first: str, last: str, operator: str = ">=", types: Mapping[str, str] = _DECISION_TYPES
    ) -> RawRows:
        """Return the decisions with these ids, in the order of ids."""
        among = f"id {operator} ? AND id <= ?"
        bounds: list[Any] = [first, last]
        mine_bounds = [self._experiment, *bounds]
        if self._alone:
            others, given = f"decision {operator} ? AND decision <= ?", bounds
        else:  # most rows between these ids may belong to other experiments
            mine = f"SELECT id FROM decisions WHERE experiment = ? AND {among}"
            others, given = f"decision IN ({mine})", mine_bounds
        return self._rows(f"decisions WHERE experiment = ? AND {among}", mine_bounds, others, given, types)

    def _rows(  # two conditions with their parameters
        self,
        source: str,
        parameters: Sequence[Any],
        among: str,
        others: Sequence[Any],
        types: Mapping[str, str] = _DECISION_TYPES,
    ) -> RawRows:
        """Return decisions, and their rewards and updates, which other conditions select."""
        decisions = self._decisions(source, parameters, types)
        ids = decisions["id"]
        return RawRows(decisions, self._rewards(ids, among, others), self._updates(ids, among, others))

    def _decisions(self, source: str, parameters: Sequence[Any], types: Mapping[str, str]) -> Arrays:
        decisions = self._columns(types, source, parameters, "id")
        decisions.pop("seal", None)
        ids = decisions["id"]
        if not (ids[1:] > ids[:-1]).all():
            raise OddRows("ids are not in order")
        return decisions

    def _rewards(self, ids: Any, among: str, parameters: Sequence[Any]) -> Arrays:
        columns = self._columns(_REWARD_TYPES, f"rewards WHERE {among}", parameters, "decision, event")
        return self._with_rows(columns, ids)

    def _updates(self, ids: Any, among: str, parameters: Sequence[Any]) -> Arrays:
        source, order = f"events INDEXED BY events_by_decision WHERE {among}", "decision, experiment, number"
        # The index has these two columns. It takes longer to look up the others than to read them in order.
        columns = self._columns({"decision": "id", "number": "whole"}, source, parameters, order)
        number = columns["number"]
        if number.size and np.ptp(number) < _MAX_SURPLUS * number.size:
            columns |= self._updates_with(number)
        else:
            columns = self._columns(_UPDATE_TYPES, source, parameters, order)
        columns = self._with_rows(columns, ids)
        check_updates(columns)
        return columns

    def _updates_with(self, number: Any) -> Arrays:
        """Return the updates with these numbers, without the ids of their decisions."""
        types = {name: kind for name, kind in _UPDATE_TYPES.items() if name != "decision"}
        source = "events WHERE experiment = ? AND number >= ? AND number <= ? AND decision IS NOT NULL"
        parameters = [self._experiment, int(number.min()), int(number.max())]
        columns = self._columns(types, source, parameters, "number")
        found = columns["number"]
        if np.array_equal(found, number):
            return columns
        place = np.minimum(np.searchsorted(found, number), found.size - 1)
        if not (found[1:] > found[:-1]).all() or not np.array_equal(found[place], number):
            raise OddRows("updates are missing, or not in order")
        return {name: each[place] for name, each in columns.items()}

    def _vectors(self, which: str, *parameters: Any) -> VectorTable:
        source = f"vectors WHERE experiment = ? AND {which}"
        columns = self._columns(_VECTOR_TYPES, source, [self._experiment, *parameters], "state, variant")
        state, lengths, content = columns["state"], columns["length(data)"], columns["data"].tobytes()
        if not (state[1:] >= state[:-1]).all():
            raise OddRows("vectors are not in order")
        lists, code = np.unique(columns["arms"], return_inverse=True)
        sets = [self._arm_list(each) for each in lists.tolist()]
        width = np.array([len(each) for each in sets], np.int64)[code]
        if np.array_equal(lengths, 8 * width):
            logs = decode([content], np.array([len(content)]))
        else:
            ends = zip(np.cumsum(lengths).tolist(), lengths.tolist(), strict=True)
            logs = decode([content[end - length : end] for end, length in ends], 8 * width)
        return VectorTable(state, columns["variant"], code, sets, np.cumsum(width), logs)

    def _with_rows(self, columns: Arrays, ids: Any) -> Arrays:
        """Replace the column of ids of decisions by their positions; leave out rows of other decisions."""
        decision = columns.pop("decision")
        if not (decision[1:] >= decision[:-1]).all():
            raise OddRows("rows are not in the order of decisions")
        columns = {**columns, "row": self.places(decision, ids)}
        if (columns["row"] < 0).any():
            columns = moved(columns, np.append(np.arange(ids.size), -1))
        return columns
