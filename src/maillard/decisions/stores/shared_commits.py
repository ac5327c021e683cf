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

from maillard.decisions.decision import Decision
from maillard.decisions.stores.sql_chain import ADD_ARM_LIST, ADD_DECISION, ADD_LINK, ADD_VECTOR
from maillard.decisions.stores.sqlite_transaction import SELECT_HEADS, SQLiteTransaction
from maillard.decisions.stores.vectors import WrittenVectors

_SELECT_HEADS = SELECT_HEADS + "IN (SELECT value FROM json_each(?))"
_SELECT_KEYS = (
    "SELECT d.experiment, d.idempotency_key FROM json_each(?) AS wanted CROSS JOIN decisions AS d "
    "WHERE d.experiment = json_extract(wanted.value, '$[0]') "
    "AND d.idempotency_key = json_extract(wanted.value, '$[1]')"
)


class _NewDecisions:
    """Decisions that are not written yet."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.rows: list[tuple[Any, ...]] = []
        self.vectors: list[Sequence[Any]] = []
        self.arm_lists: list[Sequence[Any]] = []

    def flush(self) -> None:
        """Write the new decisions and their distributions."""
        for statement, rows in (
            (ADD_ARM_LIST, self.arm_lists),
            (ADD_VECTOR, self.vectors),
            (ADD_DECISION, self.rows),
        ):
            if rows:
                self.connection.executemany(statement, rows)
                rows.clear()

    def write(self, parts: Iterable[PartOfTransaction]) -> None:
        """Write what is left, and the links of all parts."""
        self.flush()
        links = [(part.experiment, *part.next_link()) for part in parts if part.commit]
        self.connection.executemany(ADD_LINK, links)


class PartOfTransaction(SQLiteTransaction):
    """The part of one experiment."""

    def __init__(
        self, new: _NewDecisions, name: str, now: int, written: WrittenVectors, head: Sequence[Any]
    ) -> None:
        self._new, self._absent_keys = new, set[str]()
        super().__init__(new.connection, name, now, written, head)

    def set_absent_keys(self, keys: Collection[str]) -> None:
        """Set the idempotency keys that are known to be new."""
        self._absent_keys = set(keys)

    def decisions_by_key(self, keys: Iterable[str]) -> dict[str, list[Decision]]:
        wanted = set(keys)
        return {} if wanted <= self._absent_keys else super().decisions_by_key(wanted)

    def add_decisions(self, rows: Sequence[Decision]) -> None:
        written, records = self._prepare_decisions(rows)
        self._new.rows += written
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


def begin_parts(
    connection: sqlite3.Connection, now: int, keys: Mapping[str, Collection[str]], written: WrittenVectors
) -> tuple[dict[str, PartOfTransaction], _NewDecisions]:
    """The parts of several experiments, given the idempotency keys that each will look up."""
    new = _NewDecisions(connection)
    heads = {row[0]: [row] for row in connection.execute(_SELECT_HEADS, [json.dumps(list(keys))]).fetchall()}
    parts = {name: PartOfTransaction(new, name, now, written, heads.get(name, [])) for name in keys}
    wanted = [(part.experiment, key) for name, part in parts.items() for key in keys[name]]
    used = set(connection.execute(_SELECT_KEYS, [json.dumps(wanted)]).fetchall()) if wanted else set()
    for name, part in parts.items():
        part.set_absent_keys([key for key in keys[name] if (part.experiment, key) not in used])
    return parts, new
