"""Stores of decision logs: memory, SQLite and PostgreSQL, with one interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from maillard.decisions.files.file_formats import ENDINGS
from maillard.decisions.log_locations import is_postgresql, redact
from maillard.decisions.stores.contract import Store
from maillard.decisions.stores.memory import MemoryStore
from maillard.errors import InvalidValue

__all__ = ["Store", "is_store", "open_store"]

_ALLOWED = "None, a path, or a postgresql://user:password@host:5432/database URL"


def open_store(
    log: str | Path | Store | None,
    *,
    read_only: bool = False,
    create: bool = True,
    connections: int = 4,
    clock: Callable[[], int] | None = None,
) -> Store:
    """Open the store of a `log=` argument: None (memory), a postgresql:// URL, or a path (a SQLite file).

    Without `create`, the file must exist. `connections` limits the number of open connections to a server.
    `clock` replaces the clock of the store.
    """
    if log is None:
        return MemoryStore(clock)
    if isinstance(log, str) and is_postgresql(log):
        from maillard.decisions.stores.postgresql import PostgreSQLStore

        return PostgreSQLStore(log, pool_size=connections, clock=clock)
    if isinstance(log, str | Path):
        name = str(log)
        if redact(name) != name:  # it may hold a password
            raise InvalidValue("log", redact(name), _ALLOWED)
        if name.lower().endswith(ENDINGS):
            allowed = "a name for a SQLite log, such as decisions.db"
            raise InvalidValue("log", name, f"{allowed} (this extension belongs to exported files)")
        if not name or "\0" in name or not name.isprintable():
            raise InvalidValue("log", name, "a path of printable characters")
        from maillard.decisions.stores.sqlite import SQLiteStore

        return SQLiteStore(log, read_only=read_only, create=create, clock=clock)
    if is_store(log):
        if clock is not None:
            raise InvalidValue("clock", clock, "None, because the store in log= has its own clock")
        return log
    raise InvalidValue("log", type(log).__name__, _ALLOWED)


def is_store(thing: object) -> bool:
    """Whether an object has the methods of a store."""
    return all(hasattr(thing, name) for name in ("transaction", "reading", "rows"))
