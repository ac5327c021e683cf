"""Where decisions are kept: memory, SQLite, PostgreSQL behind one contract."""

from __future__ import annotations

from pathlib import Path

from maillard.decisions.log_locations import redact
from maillard.decisions.stores.contract import Store
from maillard.decisions.stores.memory import MemoryStore
from maillard.errors import InvalidValue

__all__ = ["Store", "is_store", "open_store"]

_ALLOWED = "None, a path, or a postgresql://user:password@host:5432/database URL"


def open_store(
    log: str | Path | Store | None, *, read_only: bool = False, create: bool = True, connections: int = 4
) -> Store:
    """The store of a `log=` argument: None is memory, a postgresql:// URL a server, a path a SQLite file.

    Without `create` a file must exist. At most so many `connections` to a server are open at a time.
    """
    if log is None:
        return MemoryStore()
    if isinstance(log, str) and log.startswith(("postgresql://", "postgres://")):
        from maillard.decisions.stores.postgresql import PostgreSQLStore

        return PostgreSQLStore(log, pool_size=connections)
    if isinstance(log, str | Path):
        name = str(log)
        if redact(name) != name:  # it may hold a password
            raise InvalidValue("log", redact(name), _ALLOWED)
        from maillard.decisions.files.file_formats import file_endings

        if name.lower().endswith(file_endings()):
            raise InvalidValue(
                "log",
                name,
                "a name for a SQLite log, such as decisions.db; one that ends like this is an exported file's",
            )
        if not name or "\0" in name or not name.isprintable():
            raise InvalidValue("log", name, "a path of printable characters")
        from maillard.decisions.stores.sqlite import SQLiteStore

        return SQLiteStore(log, read_only=read_only, create=create)
    if is_store(log):
        return log
    raise InvalidValue("log", type(log).__name__, _ALLOWED)


def is_store(thing: object) -> bool:
    """Whether something can be read and written as a store is."""
    return all(hasattr(thing, name) for name in ("transaction", "reading", "rows"))
