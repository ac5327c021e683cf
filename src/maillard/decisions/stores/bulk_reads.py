"""Reads a log in a SQLite file as arrays, several times as fast as row by row.

Decisions are read in chunks, in the order of their ids, which begin with the time and so almost follow the
states. A first pass finds the lowest state of each chunk. So it is known which rows of a chunk come before
all later chunks; the others are held back. A value that a log should not contain raises `OddRows`, and so
does a log of which too many rows are held back. Then the caller reads the log row by row (`Store.rows`),
which is the reference.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from maillard.array_types import Bools, Floats, Indices, Ints
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.log_arrays import REVISION, AppliedArrays, LogArrays, RewardArrays
from maillard.decisions.reward_rule import Learn
from maillard.decisions.stores.bulk_columns import Arrays, OddRows, codes_of
from maillard.decisions.stores.contract import Row, Transaction, rows_until
from maillard.decisions.stores.packed_columns import check_tables, packed_columns
from maillard.decisions.stores.sql_rows import DECISION, DECISIONS
from maillard.decisions.stores.sqlite_transaction import SQLiteTransaction
from maillard.decisions.stores.vectors import read_arms

PART_SIZE = 50_000  # decisions
_MAX_HELD_CHUNKS = 20
DECISION_TYPES = {
    "id": "id", "time": "time", "unit": "text?", "arm": "text", "log_probability": "log",
    "eligible": "empty", "log_probabilities": "empty", "policy_version": "whole", "formula_version": "whole",
    "state": "whole", "epoch": "whole", "cold": "truth", "idempotency_key": "text?", "position": "whole",
    "origin": "text?", "seal": "bytes?", "variant": "any whole",
}  # fmt: skip
REWARD_TYPES = {
    "decision": "id", "event": "text", "value": "real", "at": "time", "arrived": "time", "late": "truth",
}  # fmt: skip
UPDATE_TYPES = {
    "decision": "id", "number": "whole", "kind": "kind", "time": "time", "arm": "text", "value": "real",
    "previous": "real?", "payload": "null",
}  # fmt: skip
# Columns that an export needs, and `verify` does not.
_ONLY_EXPORTED = frozenset({"unit", "idempotency_key", "position", "event", "at"})


class RawRows(NamedTuple):
    """Decisions with their reward events and tally updates, as columns of the tables."""

    decisions: Arrays
    rewards: Arrays
    "With a column `row`: the position of the decision. Sorted by it."
    updates: Arrays
    "With a column `row`, sorted by it and by number."

    def __len__(self) -> int:
        return len(self.decisions["id"])

    def take(self, order: Indices) -> RawRows:
        """Return the decisions at these positions, in this order."""
        place = np.full(len(self), -1)
        place[order] = np.arange(order.size)
        decisions = {name: each[order] if each.size else each for name, each in self.decisions.items()}
        return RawRows(decisions, _moved(self.rewards, place), _moved(self.updates, place))

    def part(self, start: int, end: int) -> RawRows:
        """Return the decisions from position `start` to before `end`."""
        decisions = {name: each[start:end] for name, each in self.decisions.items()}
        rest = []
        for columns in self[1:]:
            first, last = np.searchsorted(columns["row"], [start, end])
            some = {name: each[first:last] for name, each in columns.items()}
            rest.append({**some, "row": some["row"] - start})
        return RawRows(decisions, *rest)

    @classmethod
    def merged(cls, parts: Sequence[RawRows]) -> RawRows:
        """Return the rows of all parts, sorted by state. Their ids must be in order."""
        joined = parts[0]
        if len(parts) > 1:
            starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
            shifted = [
                (part.decisions, *({**each, "row": each["row"] + start} for each in part[1:]))
                for part, start in zip(parts, starts, strict=False)
            ]
            joined = cls(
                *(
                    {name: np.concatenate([each[name] for each in some]) for name in some[0]}
                    for some in zip(*shifted, strict=True)
                )
            )
        state = joined.decisions["state"]
        if (state[1:] >= state[:-1]).all():
            return joined
        return joined.take(np.argsort(state, kind="stable"))  # ids remain in order within a state

    def without_later(self, number: int, end: int | None, learn: Learn) -> RawRows:
        """Return the rows as they were after the event with this number, as `contract.rows_until` does."""
        kept = self.decisions["state"] <= number
        rewards, updates = self.rewards, self.updates
        if end is not None:
            later = np.zeros(len(self), np.bool_)
            if learn != "on_close":
                first = np.diff(updates["row"], prepend=-1) != 0
                later[updates["row"][first]] = updates["number"][first] > number
            if learn == "provisional":
                kept &= ~later
            timely = (rewards["arrived"] < end) & ((rewards["late"] == 1) | ~later[rewards["row"]])
            rewards, updates = _filtered(rewards, timely), _filtered(updates, updates["number"] <= number)
        found = RawRows(self.decisions, rewards, updates)
        return found if kept.all() else found.take(np.flatnonzero(kept))


def _filtered(columns: Arrays, kept: Bools) -> Arrays:
    return (
        columns if kept.all() else {name: each[kept] if each.size else each for name, each in columns.items()}
    )


def _moved(columns: Arrays, place: Ints) -> Arrays:
    """Replace the positions of decisions, and leave out the rows of those with position -1."""
    row = place[columns["row"]]
    order = np.flatnonzero(row >= 0)
    if (np.diff(row[order]) < 0).any():
        order = order[np.argsort(row[order], kind="stable")]
    return {name: each[order] if each.size else each for name, each in ({**columns, "row": row}).items()}


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
        check_tables(self._connection)
        self._alone = self._fetch("SELECT count(*) FROM experiments") == [(1,)]
        self._sets: dict[int, tuple[str, ...]] = {}

    def _fetch(self, statement: str, *parameters: Any) -> list[Any]:
        return self._connection.execute(statement, parameters).fetchall()

    def raw_rows(self, *, full: bool = True, size: int = PART_SIZE) -> Iterator[RawRows]:
        """Yield parts of the log, ordered by state and id. Without `full`, some columns are only checked."""
        bounds = self._bounds(size)
        lowest = np.minimum.accumulate(np.array([state for _, state in bounds], np.int64)[::-1])[::-1]
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
        mine = "SELECT id, state FROM decisions WHERE experiment = ?"
        sql = f"SELECT max(id), min(state) FROM ({mine} ORDER BY id LIMIT ?)"
        ((last, state),) = self._fetch(sql, self._experiment, size)
        sql = f"SELECT max(id), min(state) FROM ({mine} AND id > ? ORDER BY id LIMIT ?)"
        while last is not None:
            if type(last) is not str or type(state) is not int:
                raise OddRows("an id or a state has another type")
            found.append((last, state))
            ((last, state),) = self._fetch(sql, self._experiment, last, size)
        return found

    def _chunk(self, after: str | None, last: str, full: bool) -> RawRows:
        """Return the decisions with these ids, in the order of ids; None is before all ids."""
        source, parameters = "decisions WHERE experiment = ? AND id <= ?", [self._experiment, last]
        if after is not None:
            source, parameters = f"{source} AND id > ?", [*parameters, after]
        decisions = self._columns(DECISION_TYPES, source, parameters, "id", full)
        ids = decisions["id"]
        if not (ids[1:] > ids[:-1]).all():
            raise OddRows("ids are not in order")
        rewards = self._rows_of(ids, "rewards", "decision, event", REWARD_TYPES, full)
        updates = self._rows_of(ids, "events", "decision, experiment, number", UPDATE_TYPES, full)
        _check_updates(updates)
        return RawRows(decisions, rewards, updates)

    def _columns(
        self, types: Mapping[str, str], source: str, parameters: Sequence[Any], order: str, full: bool = True
    ) -> Arrays:
        some = {name: kind for name, kind in types.items() if full or name not in _ONLY_EXPORTED}
        return packed_columns(self._connection, some, source, parameters, order)

    def _rows_of(self, ids: Any, table: str, order: str, types: Mapping[str, str], full: bool) -> Arrays:
        """Return the reward events or tally updates of some decisions with consecutive ids."""
        index = " INDEXED BY events_by_decision" if table == "events" else ""
        parameters: list[Any] = [ids[0].decode(), ids[-1].decode()]
        among = "decision >= ? AND decision <= ?"
        if not self._alone:  # most rows between these ids may belong to other experiments
            mine = "SELECT id FROM decisions WHERE experiment = ? AND id >= ? AND id <= ?"
            among, parameters = f"decision IN ({mine})", [self._experiment, *parameters]
        columns = self._columns(types, f"{table}{index} WHERE {among}", parameters, order, full)
        decision = columns.pop("decision")
        if not (decision[1:] >= decision[:-1]).all():
            raise OddRows("rows are not in the order of decisions")
        if np.array_equal(decision, ids):
            columns["row"] = np.arange(ids.size)
            return columns
        place = dict(zip(ids.tolist(), range(ids.size), strict=True))
        columns["row"] = np.array([place.get(each, -1) for each in decision.tolist()], np.int64)
        if (columns["row"] < 0).any():  # rows of other experiments
            columns = _moved(columns, np.append(np.arange(ids.size), -1))
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
            repeated=np.array([each is not None for each in decisions["origin"]], np.bool_),
            rewards=RewardArrays(rewards["row"], rewards["value"], rewards["arrived"], rewards["late"] == 1),
            applied=AppliedArrays(
                updates["row"], updates["number"], updates["kind"], updates["time"],
                codes_of(updates["arm"], codes), updates["value"], updates["previous"],
            ),
            rows=reader.read,
        )  # fmt: skip

    def vectors(self, first: int, last: int) -> VectorTable:
        """Return the distributions of the states from `first` to `last`."""
        source = "vectors WHERE experiment = ? AND state >= ? AND state <= ?"
        types = {
            "state": "whole", "variant": "any whole", "arms": "any whole", "data": "bytes",
            "length(data)": "whole",
        }  # fmt: skip
        columns = self._columns(types, source, [self._experiment, first, last], "state, variant")
        lists, code = np.unique(columns["arms"], return_inverse=True)
        sets = [self._arm_list(each) for each in lists.tolist()]
        width = np.array([len(each) for each in sets], np.int64)[code]
        return VectorTable(
            columns["state"], columns["variant"], code, sets, np.cumsum(width),
            _decode(columns["data"].tobytes(), columns["length(data)"], 8 * width),
        )  # fmt: skip

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


def _check_updates(columns: Arrays) -> None:
    """Raise OddRows if one of the tally updates has the wrong form or order."""
    if ((columns["kind"] == REVISION) == np.isnan(columns["previous"])).any():
        raise OddRows("an update has a previous value, or none, that does not fit its kind")
    row, number = columns["row"], columns["number"]
    if ((row[1:] == row[:-1]) & (number[1:] <= number[:-1])).any():
        raise OddRows("updates of a decision are not in order")


def _decode(content: bytes, lengths: Ints, sizes: Ints) -> Floats:
    """Return the log probabilities of vectors, which may be compressed, one after the other."""
    if not np.array_equal(lengths, sizes):
        ends = np.cumsum(lengths)
        try:
            data = [
                content[end - length : end]
                if length == size
                else zlib.decompressobj().decompress(content[end - length : end], size + 1)
                for end, length, size in zip(ends.tolist(), lengths.tolist(), sizes.tolist(), strict=True)
            ]
        except zlib.error as error:
            raise OddRows("log probabilities cannot be decompressed") from error
        if list(map(len, data)) != sizes.tolist():
            raise OddRows("a vector has another length")
        content = b"".join(data)
    logs = np.frombuffer(content, "<f8").astype(np.float64, copy=False)
    if not (logs <= LOG_PROBABILITY_TOLERANCE).all():
        raise OddRows("a log probability is out of range")
    return logs


@dataclass(frozen=True, eq=False)
class VectorTable:
    """Distributions, sorted by state and variant."""

    state: Ints
    variant: Ints
    eligible: Ints
    "Index in `eligible_sets`."
    eligible_sets: list[tuple[str, ...]]
    ends: Ints
    "Where each vector ends in `log_probabilities`."
    log_probabilities: Floats

    def find(self, state: Ints, variant: Ints) -> Ints:
        """Return the index of each of these vectors; raise OddRows if one is missing."""
        if not self.state.size:
            raise OddRows("vectors are missing")
        if (self.state[1:] > self.state[:-1]).all():
            found = np.searchsorted(self.state, state)
        else:
            # Make one number of both.
            variants, code = np.unique(self.variant, return_inverse=True)
            states = np.unique(self.state)
            key = np.searchsorted(states, self.state) * variants.size + code
            wanted = np.searchsorted(states, state) * variants.size + np.searchsorted(variants, variant)
            found = np.searchsorted(key, wanted)
        found = np.minimum(found, self.state.size - 1)
        if (self.state[found] != state).any() or (self.variant[found] != variant).any():
            raise OddRows("vectors are missing")
        return found


class _RowReader:
    """Reads single rows of a part as objects."""

    def __init__(
        self, transaction: SQLiteTransaction, part: RawRows, number: int, end: int | None, learn: Learn
    ) -> None:
        self._transaction, self._ids = transaction, part.decisions["id"]
        self._number, self._end, self._learn = number, end, learn

    def read(self, places: Ints) -> Iterable[Row]:
        """Return the rows at these positions, in their order."""
        ids = [each.decode() for each in self._ids[places].tolist()]
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
