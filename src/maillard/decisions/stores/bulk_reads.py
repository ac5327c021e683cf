"""Reads a log in a SQLite file as arrays, several times as fast as row by row.

Decisions are read in chunks, in the order of their ids, which begin with the time and so almost follow the
states. A first pass finds the lowest state of each chunk. So it is known which rows of a chunk come before
all later chunks; the others are held back. A value that a log should not contain raises `OddRows`, and so
does a log of which too many rows are held back. Then the caller reads the log row by row (`Store.rows`),
which is the reference.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Ints
from maillard.decisions.chain import ID_SIZE, id_text
from maillard.decisions.log_arrays import REVISION, AppliedArrays, LogArrays, RewardArrays
from maillard.decisions.reward_rule import Learn
from maillard.decisions.stores.bulk_columns import Arrays, OddRows, codes_of, columns_of_rows, is_present
from maillard.decisions.stores.bulk_vectors import VectorTable, decode
from maillard.decisions.stores.contract import Row, Transaction
from maillard.decisions.stores.earlier_rows import rows_until
from maillard.decisions.stores.raw_rows import RawRows, moved
from maillard.decisions.stores.schema import MIGRATIONS
from maillard.decisions.stores.sql_rows import DECISION, DECISIONS
from maillard.decisions.stores.sqlite_transaction import SQLiteTransaction
from maillard.decisions.stores.vectors import read_arms

PART_SIZE = 50_000  # decisions
_MAX_HELD_CHUNKS = 20
_MAX_SURPLUS, _MIN_SURPLUS = 3, 1_000  # rows that are read without need, rather than chosen one by one
DECISION_TYPES = {
    "id": "text", "time": "time", "unit": "text?", "arm": "name", "log_probability": "log",
    "eligible": "empty", "log_probabilities": "empty", "policy_version": "whole", "formula_version": "whole",
    "state": "whole", "epoch": "whole", "cold": "truth", "idempotency_key": "text?", "position": "whole",
    "origin": "text?", "seal": "bytes?", "variant": "any whole",
    # Decisions with contexts are exported row by row.
    "context": "null", "actions": "null", "encoded": "null", "feature_version": "null",
}  # fmt: skip
# Distributions do not depend on a context that is only stored, so `verify` needs no more than its type.
SCREENED_TYPES = {**DECISION_TYPES, "context": "text?", "actions": "text?"}
REWARD_TYPES = {
    "decision": "text", "event": "text", "value": "real", "at": "time", "arrived": "time", "late": "truth",
}  # fmt: skip
UPDATE_TYPES = {
    "decision": "text", "number": "whole", "kind": "kind", "time": "time", "arm": "name", "value": "real",
    "previous": "real?", "payload": "null",
}  # fmt: skip
_ORDERS = {"decisions": "id", "rewards": "decision, event"}
# Columns that `verify` only checks. An export needs them, too.
UNUSED = frozenset({
    "unit", "eligible", "log_probabilities", "idempotency_key", "position", "seal", "context", "actions",
    "encoded", "feature_version",
})  # fmt: skip


class BulkReader:
    """Reads the rows of an experiment in one transaction of a SQLite store.

    Raises OddRows if the transaction is one of another store, or if the log has an older version.
    """

    def __init__(self, transaction: Transaction) -> None:
        if not isinstance(transaction, SQLiteTransaction):
            raise OddRows("the store has no bulk reads")
        self.transaction = transaction
        self._connection, self._experiment = transaction.connection, transaction.experiment
        if not isinstance(self._connection, sqlite3.Connection):
            raise OddRows("the connection has no bulk reads")
        if self._fetch("PRAGMA user_version") != [(len(MIGRATIONS),)]:
            raise OddRows("the tables have another version")
        self._alone = self._fetch("SELECT count(*) FROM experiments") == [(1,)]
        self._sets: dict[int, tuple[str, ...]] = {}

    def _fetch(self, statement: str, *parameters: Any) -> list[Any]:
        return self._connection.execute(statement, parameters).fetchall()

    def file(self) -> str | None:
        """The absolute path of the database."""
        found = self._fetch("SELECT file FROM pragma_database_list WHERE name = 'main'")
        return found[0][0] or None if found else None

    def has_decisions(self, count: int) -> bool:
        """Whether the experiment has at least this number of decisions."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM decisions WHERE experiment = ? LIMIT ?)"
        return self._fetch(sql, self._experiment, count) == [(count,)]

    def raw_rows(self, *, full: bool = True, size: int = PART_SIZE) -> Iterator[RawRows]:
        """Yield parts of the log, ordered by state and id. Without `full`, some columns are only checked."""
        bounds = self._bounds(size)
        lowest = list(itertools.accumulate((state for _, state in reversed(bounds)), min))[::-1]
        held: list[RawRows] = []
        for place, (last, _) in enumerate(bounds):
            held.append(self._chunk(bounds[place - 1][0] if place else None, last, full))
            if place + 1 < len(bounds):
                limit = lowest[place + 1]
                ready = sum(np.count_nonzero(each.decisions["state"] < limit) for each in held)
                if ready < size // 2:
                    if sum(map(len, held)) > _MAX_HELD_CHUNKS * size:
                        raise OddRows("too many states are not in the order of ids")
                    continue
                rows = RawRows.merged(held)
                end = int(np.searchsorted(rows.decisions["state"], limit))
            else:
                rows = RawRows.merged(held)
                end = len(rows)
            for start in range(0, end, size):
                yield rows.part(start, min(start + size, end))
            held = [rows.part(end, len(rows))]

    def _bounds(self, size: int) -> list[tuple[str, int]]:
        """Return the last id and the lowest state of each chunk."""
        found: list[tuple[str, int]] = []
        after = ""
        parameters: list[Any] = [self._experiment]
        while True:
            mine = f"FROM decisions WHERE experiment = ?{after} ORDER BY id"
            rest = self._fetch(f"SELECT id {mine} LIMIT 1 OFFSET ?", *parameters, size - 1)
            if not rest:  # the last chunk is smaller
                rest = self._fetch(f"SELECT max(id) {mine.removesuffix(' ORDER BY id')}", *parameters)
            ((last,),) = rest
            if last is None:
                return found
            ((state,),) = self._fetch(
                f"SELECT min(state) FROM (SELECT state {mine} LIMIT ?)", *parameters, size
            )
            if type(last) is not str or type(state) is not int:
                raise OddRows("an id or a state has another type")
            found.append((last, state))
            after, parameters = " AND id > ?", [self._experiment, last]

    def _chunk(self, after: str | None, last: str, full: bool) -> RawRows:
        """Return the decisions with these ids, in the order of ids; None is before all ids."""
        types = DECISION_TYPES if full else SCREENED_TYPES
        sql = f"SELECT {', '.join(types)} FROM decisions WHERE experiment = ? AND id <= ?"
        if after is None:
            found = self._fetch(f"{sql} ORDER BY id", self._experiment, last)
        else:
            found = self._fetch(f"{sql} AND id > ? ORDER BY id", self._experiment, last, after)
        decisions = columns_of_rows(found, types)
        if not full:
            decisions = {name: each for name, each in decisions.items() if name not in UNUSED}
        ids = decisions["id"].tolist()
        place = dict(zip(ids, range(len(ids)), strict=True))
        if len(place) < len(ids):
            raise OddRows("an id occurs twice")
        return RawRows(
            decisions,
            self._rows_of(place, "rewards", REWARD_TYPES, full),
            self._rows_of(place, "events", UPDATE_TYPES, full),
        )

    def _rows_of(self, place: Mapping[str, int], table: str, types: Mapping[str, str], full: bool) -> Arrays:
        """Return the reward events or tally updates of some decisions with consecutive ids."""
        names, ids = ", ".join(f"t.{name}" for name in types), list(place)
        if self._alone:
            index = " INDEXED BY events_by_decision" if table == "events" else ""
            sql = f"SELECT {names} FROM {table} t{index} WHERE t.decision >= ? AND t.decision <= ?"
            found = self._fetch(f"{sql} ORDER BY t.decision", ids[0], ids[-1])
        else:  # most rows between these ids may belong to other experiments
            joined = f"decisions d CROSS JOIN {table} t ON t.decision = d.id"
            sql = f"SELECT {names} FROM {joined} WHERE d.experiment = ? AND d.id >= ? AND d.id <= ?"
            found = self._fetch(f"{sql} ORDER BY d.id", self._experiment, ids[0], ids[-1])
        columns = columns_of_rows(found, types)
        columns["row"] = codes_of(columns["decision"], place)
        if table == "events":
            check_updates(columns)
        if not full:
            for name in ("decision", "event", "at"):
                columns.pop(name, None)
        columns.pop("payload", None)
        if (columns["row"] < 0).any():  # rows of other experiments
            columns = moved(columns, np.append(np.arange(len(ids)), -1))
        return columns

    def arrays(
        self, arms: Sequence[str], number: int, learn: Learn, size: int = PART_SIZE
    ) -> Iterator[LogArrays]:
        """Yield the parts of the log of an experiment with these arms, as it was after an event.

        While a part is in use, its method `rows` reads in the same transaction.
        """
        following = self.transaction.events(number, through=number + 1)
        end = following[0].time if following else None
        codes = {arm: code for code, arm in enumerate(arms)}
        for rows in self.raw_rows(full=False, size=size):
            part = rows.without_later(number, end, learn)
            if len(part):
                yield self._arrays_of(part, codes, _RowReader(self.transaction, part, number, end, learn))

    def _arrays_of(self, part: RawRows, codes: Mapping[str, int], reader: _RowReader) -> LogArrays:
        decisions, rewards, updates = part
        state = decisions["state"]
        vectors = self.vectors(int(state[0]), int(state[-1]))
        vector = vectors.find(state, decisions["variant"])
        return LogArrays(
            state=state,
            time=decisions["time"],
            epoch=decisions["epoch"],
            policy_version=decisions["policy_version"],
            formula_version=decisions["formula_version"],
            arm=codes_of(decisions["arm"], codes),
            eligible=vectors.eligible[vector],
            eligible_sets=vectors.eligible_sets,
            vector=vector,
            vector_ends=vectors.ends,
            log_probabilities=vectors.log_probabilities,
            log_probability=decisions["log_probability"],
            cold=decisions["cold"] == 1,
            repeated=is_present(decisions["origin"]),
            rewards=RewardArrays(rewards["row"], rewards["value"], rewards["arrived"], rewards["late"] == 1),
            applied=AppliedArrays(
                updates["row"], updates["number"], updates["kind"], updates["time"],
                codes_of(updates["arm"], codes), updates["value"], updates["previous"],
            ),
            rows=reader.read,
        )  # fmt: skip

    def vectors(self, first: int, last: int) -> VectorTable:
        """Return the distributions of the states from `first` to `last`."""
        return self._vectors("state >= ? AND state <= ?", first, last)

    def vectors_of(self, states: Ints) -> VectorTable:
        """Return the distributions of these states, and maybe of others."""
        first, last = int(states.min()), int(states.max())
        if last - first <= _MAX_SURPLUS * states.size + _MIN_SURPLUS:
            return self.vectors(first, last)
        chosen = json.dumps(np.unique(states).tolist())
        return self._vectors(f"state {self.transaction.IN}", chosen)

    def _vectors(self, which: str, *parameters: Any) -> VectorTable:
        within = f"experiment = ? AND {which} ORDER BY state, variant"
        sql = f"SELECT state, variant, arms, data FROM vectors WHERE {within}"
        found = self._fetch(sql, self._experiment, *parameters)
        types = {"state": "whole", "variant": "any whole", "arms": "any whole", "data": "bytes"}
        columns = columns_of_rows(found, types)
        lists, code = np.unique(columns["arms"], return_inverse=True)
        sets = [self._arm_list(each) for each in lists.tolist()]
        width = np.array([len(each) for each in sets], np.int64)[code]
        return VectorTable(
            columns["state"], columns["variant"], code, sets, np.cumsum(width),
            decode(columns["data"].tolist(), 8 * width),
        )  # fmt: skip

    def read(self, types: Mapping[str, str], source: str, *parameters: Any) -> Arrays:
        """Return columns with these names and types. `source` follows FROM."""
        return columns_of_rows(self._fetch(f"SELECT {', '.join(types)} FROM {source}", *parameters), types)

    def events_between(self, first: int, end: int, types: Mapping[str, str]) -> Arrays:
        """Return the events with the numbers from `first` to before `end`, in order."""
        source = "events WHERE experiment = ? AND number >= ? AND number < ? ORDER BY number"
        return self.read(types, source, self._experiment, first, end)

    def rows_with_ids(
        self, table: str, types: Mapping[str, str], keys: NDArray[Any], ids: Callable[[], Iterable[str]]
    ) -> Arrays:
        """Return the decisions, or the reward events of the decisions, with these ids, and maybe others.

        `keys` begin with the bytes of the ids; `ids` returns them as text.
        """
        key, mine, parameters = "decision", "", list[Any]()
        if table == "decisions":
            key, mine, parameters = "id", "experiment = ? AND ", [self._experiment]
        half = ID_SIZE // 2
        starts = np.ascontiguousarray(keys.view(np.uint8).reshape(len(keys), -1)[:, :half]).view(">u8")
        first = id_text(int(starts.min()).to_bytes(half, "big") + bytes(half))
        last = id_text(int(starts.max()).to_bytes(half, "big") + b"\xff" * half)
        source, limit = f"{table} WHERE {mine}{key}", _MAX_SURPLUS * len(keys) + _MIN_SURPLUS
        order = f"ORDER BY {_ORDERS[table]}"
        among = f"{source} >= ? AND {key} <= ? {order} LIMIT ?"
        found = self.read(types, among, *parameters, first, last, limit)
        if found[key].size == limit:  # most of them are others
            among = f"{source} {self.transaction.IN} {order}"
            found = self.read(types, among, *parameters, json.dumps(list(ids())))
        return found

    def places(self, wanted: NDArray[Any], among: NDArray[Any]) -> Ints:
        """Return where each of these keys is among others; -1 if it is not. Raise OddRows if one is twice."""
        if np.array_equal(wanted, among):
            return np.arange(among.size)
        place = dict(zip(among.tolist(), range(among.size), strict=True))
        if len(place) < among.size:
            raise OddRows("a key occurs twice")
        return np.fromiter([place.get(each, -1) for each in wanted.tolist()], np.int64, wanted.size)

    def _arm_list(self, arms: int) -> tuple[str, ...]:
        if arms not in self._sets:
            found = self._fetch(
                "SELECT names FROM arm_lists WHERE experiment = ? AND arms = ?", self._experiment, arms
            )
            try:
                ((names,),) = found
                self._sets[arms] = read_arms(names)
            except (TypeError, ValueError, RecursionError) as error:
                raise OddRows("a list of arms is missing or malformed") from error
        return self._sets[arms]


def check_updates(columns: Arrays) -> None:
    """Raise OddRows if one of the tally updates has the wrong form or order."""
    if ((columns["kind"] == REVISION) == np.isnan(columns["previous"])).any():
        raise OddRows("an update has a previous value, or none, that does not fit its kind")
    row, number = columns["row"], columns["number"]
    if ((row[1:] == row[:-1]) & (number[1:] <= number[:-1])).any():
        raise OddRows("updates of a decision are not in order")


class _RowReader:
    """Reads single rows of a part as objects."""

    def __init__(
        self, transaction: SQLiteTransaction, part: RawRows, number: int, end: int | None, learn: Learn
    ) -> None:
        self._transaction, self._ids = transaction, part.decisions["id"]
        self._number, self._end, self._learn = number, end, learn

    def read(self, places: Ints) -> Iterable[Row]:
        """Return the rows at these positions, in their order."""
        chosen = self._ids[places]
        ids = chosen.astype(str).tolist() if chosen.dtype.kind == "S" else chosen.tolist()
        transaction = self._transaction
        sql = f"SELECT {DECISION} FROM {DECISIONS} WHERE d.experiment = ? AND d.id {transaction.IN}"
        found = transaction.connection.execute(
            sql, [transaction.experiment, transaction._list(ids)]
        ).fetchall()
        rows = transaction.with_rewards(found)
        by_id = {row.decision.id: row for row in rows_until(rows, self._number, self._end, self._learn)}
        try:
            return [by_id[each] for each in ids]
        except KeyError as error:
            raise OddRows("a row cannot be found again") from error
