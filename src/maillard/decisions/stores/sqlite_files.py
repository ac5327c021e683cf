"""The files of a SQLite log: paths, read-only access, and whether the write-ahead log is still the same."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from maillard.decisions.stores.schema import missing_tables
from maillard.errors import InvalidLog


def log_path(where: str, *, create: bool) -> Path:
    """Return the absolute path, or raise InvalidLog unless a log exists, or can be created, there."""
    try:
        path = Path(where).absolute()  # the working directory may change
        exists, is_folder, folder = path.exists(), path.is_dir(), path.parent.is_dir()
    except OSError as error:
        raise InvalidLog("log", where, f"a path ({error.strerror})") from None
    if is_folder or not folder:
        raise InvalidLog("log", where, "a file, in a folder that exists")
    if not exists and not create:
        raise InvalidLog("log", where, "a file that exists")
    return path


def create_private(path: str) -> None:
    """Create an empty file that only its owner can read. SQLite gives -wal and -shm the same permissions."""
    # An existing file is not opened: closing it would drop SQLite's locks. SQLite reports other errors.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def open_read_only(path: Path, **options: Any) -> sqlite3.Connection:
    """Open a connection that writes nothing, to a log of this or an older version."""
    connection = _connect_read_only(path, **options)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version and (missing := missing_tables(version)):
            connection.execute("PRAGMA query_only = OFF")
            connection.executescript(missing)  # temporary: in memory, or in a file that has no name
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_read_only(path: Path, **options: Any) -> sqlite3.Connection:
    """Open a connection that writes nothing; mode=ro would leave lock files behind."""
    address = path.as_uri() + "?mode="
    connection: sqlite3.Connection = sqlite3.connect(address + "rw", uri=True, **options)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        # A read-only folder, without even lock files: open the database file alone, if there is no WAL.
        fixed = error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
        wal = path.with_name(path.name + "-wal")
        if not fixed or (wal.exists() and wal.stat().st_size):
            raise
        connection = sqlite3.connect(address + "ro&immutable=1", uri=True, **options)
    return connection


class WriteAheadLog:
    """The write-ahead log of an open connection.

    SQLite deletes this file only when the last connection of all processes closes. If it disappears or
    becomes another file before, someone has removed it. What the connection commits then goes to a file
    without a name, which ends with the connection.
    """

    def __init__(self, database: Path) -> None:
        self._path = f"{database}-wal"
        self._file, _ = self._stat()

    def _stat(self) -> tuple[tuple[int, int] | None, int]:
        """The device and the inode of the file, and its size in bytes; None and 0 if there is no file."""
        try:
            found = os.stat(self._path)  # noqa: PTH116  # a Path takes three times as long
        except OSError:
            return None, 0
        return (found.st_dev, found.st_ino), found.st_size

    def size(self) -> int | None:
        """The size in bytes, or None if the file was removed or replaced."""
        file, size = self._stat()
        return size if file is not None and file == self._file else None

    def rescue(self, connection: Any, connect: Callable[[], Any]) -> bool:
        """Close the connection, after copying what it committed into the database.

        Returns False, and leaves the connection open, while other connections prevent the copy. If another
        process has written to the new file, that process has made the copy, and a second one would be wrong.
        """
        _, size = self._stat()
        if size:
            # The last connection to close makes a copy. So another connection, to the new file, closes last.
            with suppress(sqlite3.Error), closing(connect()) as another:
                another.execute("SELECT count(*) FROM sqlite_master").fetchall()
                connection.close()
        else:
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                return False
        connection.close()
        return True
