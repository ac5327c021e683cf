"""The transaction of the SQLite store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from maillard.decisions.stores.sql import SQLTransaction

_MAX_ROWS = 64  # in one statement


@lru_cache(maxsize=1024)
def _for_row_count(statement: str, size: int) -> str:
    """Turn an INSERT of one row into an INSERT of `size` rows."""
    _, values = statement.rsplit("VALUES ", 1)
    return statement + f", {values}" * (size - 1)


class SQLiteTransaction(SQLTransaction):
    """Reads and writes of one experiment on a SQLite connection."""

    def __init__(self, connection: Any, name: str, clock: Callable[[], int]) -> None:
        super().__init__(name)
        self.connection, self._now = connection, clock()
        self.load()

    @property
    def now(self) -> int:
        return self._now

    def _fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        rows: list[Any] = self.connection.execute(statement, parameters).fetchall()
        return rows

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        # Every step of a statement releases the interpreter lock and competes with other threads to get it
        # back. One statement with many rows has fewer steps.
        if " VALUES " not in statement:
            self.connection.executemany(statement, rows)
            return
        self._insert(statement, rows, "")

    def _insert(self, statement: str, rows: Sequence[Sequence[Any]], clause: str) -> list[Any]:
        found: list[Any] = []
        start = 0
        while start < len(rows):
            # Sizes are powers of two, so that few different statements are prepared and cached.
            chunk = rows[start : start + min(_MAX_ROWS, 1 << (len(rows) - start).bit_length() - 1)]
            start += len(chunk)
            values = [value for row in chunk for value in row]
            found += self.connection.execute(
                _for_row_count(statement, len(chunk)) + clause, values
            ).fetchall()
        return found

    def _execute_counted(self, statement: str, parameters: Sequence[Any]) -> int:
        self.connection.execute(statement, parameters)
        ((changed,),) = self.connection.execute("SELECT changes()").fetchall()
        return int(changed)

    def _in_condition(self, column: str, values: Iterable[str]) -> tuple[str, Any]:
        return f"{column} IN (SELECT value FROM json_each(?))", json.dumps(list(values))
