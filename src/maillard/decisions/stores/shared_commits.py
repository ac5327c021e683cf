"""Transactions of several experiments of a SQLite log that share one commit and most of its statements.

SQLite has one writer at a time, so no other process changes the log while these transactions run. The heads
of all experiments, and which idempotency keys are new, are read with one statement each. New decisions are
collected, and written with one statement before anything else is read or written.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from maillard.decisions.chain import decision_record, link_of_decisions, new_seals
from maillard.decisions.decision import Decision
from maillard.decisions.stores.contract import NotNewError
from maillard.decisions.stores.sql import ADD_PENDING
from maillard.decisions.stores.sql_chain import (
    ADD_ARM_LIST,
    ADD_DECISION,
    ADD_LINK,
    ADD_VECTOR,
    SET_CHAIN_END,
)
from maillard.decisions.stores.sql_rows import check_row, write_decision
from maillard.decisions.stores.sqlite_transaction import SELECT_HEADS, SQLiteTransaction, insert_rows
from maillard.decisions.stores.vectors import Vector, WrittenVectors, vector_of

_SELECT_HEADS = SELECT_HEADS + "IN (SELECT value FROM json_each(?))"
_SELECT_KEYS = (
    "SELECT d.experiment, d.idempotency_key FROM json_each(?) AS wanted CROSS JOIN decisions AS d "
    "WHERE d.experiment = json_extract(wanted.value, '$[0]') "
    "AND d.idempotency_key = json_extract(wanted.value, '$[1]')"
)
_SELECT_DUE = (
    "SELECT value FROM json_each(?) "
    "WHERE EXISTS (SELECT 1 FROM pending WHERE experiment = value AND closes <= ?)"
)
# If a statement fails, nothing of the transaction is kept. With FAIL, SQLite need not be able to undo the
# statement alone, and does not copy the pages that it changes.
_ADD_DECISION, _ADD_LINK = (each.replace("INSERT", "INSERT OR FAIL") for each in (ADD_DECISION, ADD_LINK))


class _NewRows:
    """Decisions that are not written yet, and their distributions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.decisions: list[tuple[Any, ...]] = []
        self.vectors: list[Sequence[Any]] = []
        self.arm_lists: list[Sequence[Any]] = []
        self.pending: list[Sequence[Any]] = []

    def flush(self) -> None:
        """Write the rows."""
        for statement, rows in (
            (ADD_ARM_LIST, self.arm_lists),
            (ADD_VECTOR, self.vectors),
            (_ADD_DECISION, self.decisions),
            (ADD_PENDING, self.pending),
        ):
            if rows:
                try:
                    insert_rows(self.connection, statement, rows)
                except sqlite3.IntegrityError as error:
                    raise NotNewError from error
                rows.clear()


class PartOfTransaction(SQLiteTransaction):
    """The part of one experiment."""

    def __init__(self, new: _NewRows, name: str, now: int, written: WrittenVectors, head: Any) -> None:
        self._new, self._absent_keys = new, set[str]()
        super().__init__(new.connection, name, now, written, [] if head is None else [head])

    def set_absent_keys(self, keys: Collection[str]) -> None:
        """Set the idempotency keys that are known to be new."""
        self._absent_keys = set(keys)

    def decisions_by_key(self, keys: Iterable[str]) -> dict[str, list[Decision]]:
        wanted = set(keys)
        return {} if wanted <= self._absent_keys else super().decisions_by_key(wanted)

    def add_decisions(self, rows: Sequence[Decision]) -> None:
        written, records = self._prepare_decisions(rows)
        self._new.decisions += written
        self.commit.decisions += records

    def _add_vectors(self, arm_lists: Sequence[Sequence[Any]], vectors: Sequence[Sequence[Any]]) -> None:
        self._new.arm_lists += arm_lists
        self._new.vectors += vectors

    def add_if_absent(self, rows: Sequence[Decision]) -> set[str]:
        keys = {row.idempotency_key for row in rows}
        if not keys <= self._absent_keys:
            return super().add_if_absent(rows)
        self._absent_keys -= keys
        self.add_decisions(rows)
        return {row.id for row in rows}

    # Everything else sees the new decisions.

    def _fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        self._new.flush()
        return super()._fetch(statement, parameters)

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._new.flush()
        super()._execute_many(statement, rows)

    def _insert(self, statement: str, rows: Sequence[Sequence[Any]], clause: str) -> list[Any]:
        self._new.flush()
        return super()._insert(statement, rows, clause)

    def _execute_counted(self, statement: str, parameters: Sequence[Any]) -> int:
        self._new.flush()
        return super()._execute_counted(statement, parameters)


class SQLiteSharedTransaction:
    """Transactions of several experiments on a connection.

    `heads` has rows of SELECT_HEADS that are known to be current, and is kept so.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: int,
        written: WrittenVectors,
        heads: dict[str, Any],
        *,
        expects_new: bool,
    ) -> None:
        self.now, self._connection, self._written, self._heads = now, connection, written, heads
        self.expects_new = expects_new
        self._new = _NewRows(connection)
        self._parts: dict[str, PartOfTransaction] = {}
        self._links: list[tuple[Any, ...]] = []
        self._vectors: list[tuple[int, int, Vector]] = []

    def last_events(self, experiments: Sequence[str]) -> dict[str, int]:
        self._load_heads(experiments)
        heads = self._heads
        return {name: heads[name][4] for name in experiments if name in heads}

    def _load_heads(self, experiments: Iterable[str]) -> None:
        missing = [name for name in experiments if name not in self._heads]
        if missing:
            for row in self._connection.execute(_SELECT_HEADS, [json.dumps(missing)]).fetchall():
                check_row("experiments", row[0], row[3:], "whole whole whole whole")
                self._heads[row[0]] = row

    def due(self, experiments: Sequence[str]) -> set[str]:
        if not experiments:
            return set()
        names = {self._heads[name][3]: name for name in experiments if name in self._heads}
        rows = self._connection.execute(_SELECT_DUE, [json.dumps(list(names)), self.now]).fetchall()
        return {names[experiment] for (experiment,) in rows}

    def add_new(self, batches: Sequence[tuple[str, Sequence[Decision], int | None]]) -> None:
        new, heads, written = self._new, self._heads, self._written
        seals = iter(new_seals([row for _, rows, _ in batches for row in rows]))
        for name, rows, closes in batches:
            _, number, hashed, experiment, *head = heads[name]
            records = []
            for row in rows:
                seal, state = next(seals), row.state
                vector = vector_of(row.eligible, row.log_probabilities)
                new.decisions.append((*write_decision(row, seal, vector), experiment))
                records.append(decision_record(row, seal, vector.digest))
                if not written.has_vector(experiment, state, vector.variant):
                    new.vectors.append((experiment, state, vector.variant, vector.arms, vector.data))
                    if not written.has_list(experiment, vector.arms):
                        new.arm_lists.append((experiment, vector.arms, vector.names))
                    self._vectors.append((experiment, state, vector))
            if closes is not None:
                new.pending += [(row.id, closes, experiment) for row in rows]
            link = link_of_decisions(None if number is None else (number, hashed), self.now, records)
            self._links.append((experiment, *link))
            heads[name] = name, link.number, link.hash, experiment, *head

    def parts(self, keys: Mapping[str, Collection[str]]) -> Mapping[str, PartOfTransaction]:
        self._load_heads(keys)
        parts = {
            name: PartOfTransaction(self._new, name, self.now, self._written, self._heads.pop(name, None))
            for name in keys
        }
        wanted = [(part.experiment, key) for name, part in parts.items() for key in keys[name]]
        used: set[tuple[int, str]] = set()
        if wanted:
            used.update(self._connection.execute(_SELECT_KEYS, [json.dumps(wanted)]).fetchall())
        for name, part in parts.items():
            part.set_absent_keys([key for key in keys[name] if (part.experiment, key) not in used])
        self._parts |= parts
        return parts

    def write(self) -> None:
        """Write what is left, and the links of all experiments."""
        self._new.flush()
        for part in self._parts.values():
            if part.commit:
                self._links.append((part.experiment, *part.next_link()))
        insert_rows(self._connection, _ADD_LINK, self._links)
        insert_rows(self._connection, SET_CHAIN_END, [link[:3] for link in self._links])

    def note_commit(self) -> None:
        """Remember, after the commit, the heads and which distributions need not be written again."""
        for experiment, state, vector in self._vectors:
            self._written.add(experiment, {(state, vector.variant): vector})
        for name, part in self._parts.items():
            part.note_commit()
            if part.head is not None:
                self._heads[name] = name, *(part.last or (None, None)), part.experiment, *part.head
