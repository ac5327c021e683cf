"""The files of a SQLite log: paths, read-only access, and whether their names still belong to them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

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


def _identity(path: str) -> tuple[tuple[int, int] | None, int]:
    """The device and the inode of a file, and its size in bytes; None and 0 if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116  # a Path takes three times as long
    except OSError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size


class SharedMemory:
    """The -shm file that the connections of this process use, which has the locks of all processes.

    The first connection opens it, later ones share it, and the last one closes it. If the file disappears or
    becomes another file before, new processes use another one. Processes with different locks write at the
    same time, and overwrite each other's commits.
    """

    def __init__(self, database: str) -> None:
        self._path = f"{database}-shm"
        self._file: tuple[int, int] | None = None

    def use(self) -> None:
        """Set the file that is used. The first connection that writes calls this after opening it."""
        if self._file is None:
            self._file, _ = _identity(self._path)

    @property
    def in_place(self) -> bool:
        """Whether the path still names the file that is used, as far as is known."""
        return self._file is None or self._file == _identity(self._path)[0]


# By the device and the inode of the database, as in SQLite.
_shared_memory: WeakValueDictionary[tuple[int, int] | None, SharedMemory] = WeakValueDictionary()


def shared_memory(database: Path) -> SharedMemory:
    """The shared memory of a log in this process. Each connection keeps it until it is closed."""
    name = str(database)
    return _shared_memory.setdefault(_identity(name)[0], SharedMemory(name))


class WriteAheadLog:
    """The write-ahead log of an open connection, and its shared memory.

    SQLite deletes these files only when the last connection of all processes closes. If one disappears or
    becomes another file before, someone has removed it. Without its name, a write-ahead log ends with the
    connection.
    """

    def __init__(self, database: Path) -> None:
        self._path = f"{database}-wal"
        self._file, _ = _identity(self._path)
        self._shared_memory = shared_memory(database)
        self._shared_memory.use()

    def size(self) -> int | None:
        """The size in bytes, or None if one of the files was removed or replaced."""
        file, size = _identity(self._path)
        in_place = file is not None and file == self._file and self._shared_memory.in_place
        return size if in_place else None

    def rescue(self, connection: Any, connect: Callable[[], Any]) -> bool:
        """Close the connection, after copying what it committed into the database, if necessary.

        Returns False, and leaves the connection open, while other connections prevent the copy. If another
        process has written to the new file, that process has made the copy, and a second one would be wrong.
        """
        file, size = _identity(self._path)
        if file == self._file:
            pass  # only the shared memory is gone: SQLite reads the write-ahead log when it makes another one
        elif size:
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
