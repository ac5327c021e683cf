"""Simulated power loss for SQLite: a VFS that tracks which content would survive a loss at any moment.

A killed process does not lose what it wrote, because the operating system still has it. Killing a process
therefore does not test whether a store syncs. This VFS writes real files, and also records the content that
is certainly durable: that of each file at its last sync, and the names at the last sync of the directory.
Later changes may or may not survive.

The rules are those of POSIX and of SQLite's unix VFS:

- A sync makes a file's content durable, but not its name. Created and deleted names are durable once their
  directory is synced: at the first sync of a journal or WAL after it is opened, and at a deletion that
  requests a sync.
- Any part of the unsynced changes may survive, in any order, at the granularity of sectors. Within a sector,
  a write does not change other bytes (SQLite's POWERSAFE_OVERWRITE, which its unix VFS assumes).

The `-shm` file is shared memory and does not use the VFS; recovery rebuilds it from the WAL.
"""

# SQLite names the methods of a VFS.
# ruff: noqa: N802

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import apsw

SECTOR = 512
_SYNCS_ITS_DIRECTORY = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_numbers = itertools.count()


@dataclass(frozen=True)
class _Write:
    offset: int
    data: bytes

    def change(self, image: bytearray) -> None:
        image.extend(bytes(max(0, self.offset - len(image))))
        image[self.offset : self.offset + len(self.data)] = self.data

    def survivors(self, rng: Random) -> Iterator[_Write]:
        """The whole write, none of it, or a random subset of its sectors, each with probability 1/3."""
        fate = rng.randrange(3)
        if fate == 0:
            yield self
        elif fate == 1:
            start, end = self.offset, self.offset + len(self.data)
            cuts = [start, *range((start // SECTOR + 1) * SECTOR, end, SECTOR), end]
            for low, high in itertools.pairwise(cuts):
                if rng.random() < 0.5:
                    yield _Write(low, self.data[low - start : high - start])


@dataclass(frozen=True)
class _Truncation:
    size: int

    def change(self, image: bytearray) -> None:
        del image[self.size :]
        image.extend(bytes(self.size - len(image)))

    def survivors(self, rng: Random) -> Iterator[_Truncation]:
        if rng.random() < 0.5:
            yield self


@dataclass(eq=False)
class _Content:
    """The durable content of a file, and the changes since its last sync."""

    durable: bytearray
    synced: int = 0
    unsynced: list[_Write | _Truncation] = field(default_factory=list)

    @property
    def changes(self) -> int:
        return self.synced + len(self.unsynced)

    def sync(self, changes: int) -> None:
        """Make the first `changes` of all changes durable, unless another sync already has."""
        count = max(0, changes - self.synced)
        for change in self.unsynced[:count]:
            change.change(self.durable)
        del self.unsynced[:count]
        self.synced += count

    def after_loss(self, rng: Random | None) -> bytes:
        image = bytearray(self.durable)
        if rng is not None:
            for change in self.unsynced:
                for part in change.survivors(rng):
                    part.change(image)
        return bytes(image)


class Disk(apsw.VFS):
    """A VFS over real files that can compute which content a power loss would leave.

    Files that exist when they are first opened count as durable. `lying` may be set at any time: syncs then
    report success and do nothing, like a drive with a volatile cache. `after_each` is called after each
    write, truncation, sync and deletion, so that a test can lose power at every step. It runs inside SQLite,
    so an exception in it becomes an I/O error of the statement.

    >>> import contextlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     disk = Disk()
    ...     connection = disk.connect(f"{folder}/log.db")
    ...     for sql in (
    ...         "PRAGMA journal_mode=WAL",
    ...         "CREATE TABLE t (n)",
    ...         "PRAGMA synchronous=OFF",
    ...         "INSERT INTO t VALUES (1)",
    ...     ):
    ...         _ = connection.execute(sql).fetchall()
    ...     disk.lose_power(f"{folder}/after")
    ...     for name in ("log.db", "after/log.db"):
    ...         with contextlib.closing(sqlite3.connect(f"{folder}/{name}")) as opened:
    ...             print(opened.execute("SELECT count(*) FROM t").fetchone())
    ...     connection.close()
    (1,)
    (0,)
    """

    def __init__(self, *, lying: bool = False, after_each: Callable[[], None] | None = None) -> None:
        self.name = f"power-{next(_numbers)}"
        self.lying = lying
        self.after_each = after_each
        self._lock = threading.Lock()
        self._names: dict[Path, _Content] = {}
        self._durable_names: dict[Path, _Content] = {}
        super().__init__(self.name, "")

    def connect(self, path: str) -> Connection:
        """Connect to the database at `path` in autocommit, with the busy timeout of `sqlite3.connect`."""
        connection = apsw.Connection(path, vfs=self.name)
        connection.set_busy_timeout(5000)
        return Connection(connection)

    def lose_power(self, folder: str | Path, rng: Random | None = None) -> None:
        """Write the files that would survive a power loss at this moment into an empty folder.

        Without `rng` only durable content survives; with it, also a random part of the unsynced changes. The
        files in use do not change, so power can be lost many times in one run.
        """
        with self._lock:
            found = {}
            for path in sorted(self._durable_names.keys() | self._names.keys()):
                names = self._names if rng is not None and rng.random() < 0.5 else self._durable_names
                if path in names:
                    found[path.name] = names[path].after_loss(rng)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, image in found.items():
            with (folder / name).open("xb") as file:
                file.write(image)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # A temporary file, which is not used after a power loss.
            return super().xOpen(name, flags)
        path = Path(name if isinstance(name, str) else name.filename())
        with self._lock:
            existed = path.exists()
            file = _File(self, name, flags, path)
            if not existed:
                self._names[path] = _Content(bytearray())
            elif path not in self._names:
                self._names[path] = self._durable_names[path] = _Content(bytearray(path.read_bytes()))
            file.content = self._names[path]
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:
        path = Path(filename)
        with self._lock:
            super().xDelete(filename, syncdir)
            self._names.pop(path, None)
            if syncdir and not self.lying:
                self._sync_directory(path.parent)
        self._step()

    def _sync_directory(self, folder: Path) -> None:
        elsewhere = {path: content for path, content in self._durable_names.items() if path.parent != folder}
        here = {path: content for path, content in self._names.items() if path.parent == folder}
        self._durable_names = elsewhere | here

    def _step(self) -> None:
        if self.after_each is not None:
            self.after_each()


class _File(apsw.VFSFile):
    """An open file that records its changes on the disk."""

    content: _Content

    def __init__(self, disk: Disk, name: str | apsw.URIFilename, flags: list[int], path: Path) -> None:
        self._disk = disk
        self._path = path
        self._syncs_directory = bool(flags[0] & _SYNCS_ITS_DIRECTORY and flags[0] & apsw.SQLITE_OPEN_CREATE)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        with self._disk._lock:
            super().xWrite(data, offset)
            self.content.unsynced.append(_Write(offset, bytes(data)))
        self._disk._step()

    def xTruncate(self, newsize: int) -> None:
        with self._disk._lock:
            super().xTruncate(newsize)
            self.content.unsynced.append(_Truncation(newsize))
        self._disk._step()

    def xSync(self, flags: int) -> None:
        # Power loss is possible during a sync, so the lock is not held. Concurrent writes are not synced.
        with self._disk._lock:
            changes = self.content.changes
        super().xSync(flags)
        with self._disk._lock:
            if not self._disk.lying:
                self.content.sync(changes)
                if self._syncs_directory:
                    self._disk._sync_directory(self._path.parent)
                    self._syncs_directory = False
        self._disk._step()


class Connection:
    """The part of `sqlite3.Connection` that a store uses, with the errors of `sqlite3`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, sql: str, parameters: Any = ()) -> apsw.Cursor:
        with _errors_of_sqlite3():
            return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Any]) -> apsw.Cursor:
        with _errors_of_sqlite3():
            return self._connection.executemany(sql, rows)

    def close(self) -> None:
        with _errors_of_sqlite3():
            self._connection.close()


@contextmanager
def _errors_of_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.ConstraintError as error:
        raise sqlite3.IntegrityError(str(error)) from error
    except apsw.Error as error:
        raise sqlite3.OperationalError(str(error)) from error
