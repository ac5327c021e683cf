"""Where decisions are kept: memory, SQLite, PostgreSQL behind one contract."""

from __future__ import annotations

from pathlib import Path

from maillard.decisions.stores.contract import Store
from maillard.decisions.stores.memory import MemoryStore
from maillard.errors import InvalidValue

__all__ = ["Store", "open_store"]


def open_store(log: str | Path | Store | None, *, read_only: bool = False) -> Store:
    """The store of a `log=` argument: None is memory, a postgresql:// URL a server, a path a SQLite file."""
    match log:
        case None:
            return MemoryStore()
        case str() if log.startswith(("postgresql://", "postgres://")):
            from maillard.decisions.stores.postgresql import PostgreSQLStore

            return PostgreSQLStore(log)
        case str() if "://" in log:
            raise InvalidValue("log", log.partition("://")[0] + "://...", "a path, or a postgresql:// URL")
        case str() | Path() if str(log):
            from maillard.decisions.stores.sqlite import SQLiteStore

            return SQLiteStore(log, read_only=read_only)
        case str() | Path() | int() | float() | bytes():
            raise InvalidValue("log", log, "None, a path, or a postgresql:// URL")
        case _:
            return log
