"""A transaction on a SQLite connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing
from functools import lru_cache
from typing import Any

from maillard.decisions.stores.sql import SQLTransaction
from maillard.decisions.stores.vectors import WrittenVectors

_MAX_ROWS = 64  # in one statement


@lru_cache(maxsize=1024)
def _for_row_count(statement: str, size: int) -> str:
    """Turn an INSERT of one row into an INSERT of `size` rows."""
    start, rest = statement.rsplit("VALUES ", 1)
    values, conflict, clause = rest.partition(" ON CONFLICT")
    return f"{start}VALUES {', '.join([values] * size)}{conflict}{clause}"


def insert_rows(
    connection: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]], clause: str = ""
) -> list[Any]:
    """Insert rows with few statements, with a clause after the values; return the rows of the statements.

    Every step of a statement releases the interpreter lock and competes with other threads to get it back.
    One statement with many rows has fewer steps.
    """
    if len(rows) == 1:
        return connection.execute(statement + clause, rows[0]).fetchall()
    found: list[Any] = []
    start = 0
    while start < len(rows):
        # At most 15 rows, or 16, 32, 48 or 64: few different statements are prepared and cached.
        left = len(rows) - start
        chunk = rows[start : start + min(_MAX_ROWS, left - left % 16 or left)]
        start += len(chunk)
        sql = _for_row_count(statement, len(chunk)) + clause
        found += connection.execute(sql, [value for row in chunk for value in row]).fetchall()
    return found


# The heads of some experiments, with the number and the hash of the last link of each.
SELECT_HEADS = """
SELECT e.name, c.number, c.hash, e.id, e.number, e.administrative, e.epoch
FROM experiments e LEFT JOIN chains c ON c.experiment = e.id WHERE e.name """


class SQLiteTransaction(SQLTransaction):
    """A transaction on a SQLite connection. `head` is the result of SELECT_HEADS, if it is known."""

    SELECT_HEAD = SELECT_HEADS + "= ?"

    connection: sqlite3.Connection
    IN = "IN (SELECT value FROM json_each(?))"

    def __init__(
        self,
        connection: Any,
        name: str,
        now: int,
        written: WrittenVectors,
        head: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name, written)
        self.connection, self.now = connection, now
        if head is None:
            self.load()
        else:
            self.set_head(head)

    def set_head(self, found: Iterable[Any]) -> None:
        """Set the head, and the last link, from the result of SELECT_HEADS."""
        for _, number, hashed, *head in found:
            self.last = None if number is None else (number, hashed)
            return super().set_head([head])
        return super().set_head([])

    @staticmethod
    def _list(values: Iterable[str]) -> Any:
        return json.dumps(list(values))

    def _fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self.connection.execute(statement, parameters).fetchall()

    def _cursor(self, statement: str, parameters: Sequence[Any]) -> AbstractContextManager[Any]:
        return closing(self.connection.execute(statement, parameters))

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if " VALUES " in statement:
            self._insert(statement, rows, "")
        else:
            self.connection.executemany(statement, rows)

    def _insert(self, statement: str, rows: Sequence[Sequence[Any]], clause: str) -> list[Any]:
        return insert_rows(self.connection, statement, rows, clause)

    def _execute_counted(self, statement: str, parameters: Sequence[Any]) -> int:
        self.connection.execute(statement, parameters)
        return int(self._fetch("SELECT changes()")[0][0])
