"""A log in one SQLite file: durable, shared by threads and processes, without a server."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from maillard.decisions.forks import quiesce_during_fork
from maillard.decisions.stores import schema, sqlite_files
from maillard.decisions.stores.contract import NotNewError
from maillard.decisions.stores.shared_commits import SQLiteSharedTransaction
from maillard.decisions.stores.sql import SQLStore, SQLTransaction
from maillard.decisions.stores.sqlite_transaction import SQLiteTransaction
from maillard.decisions.stores.vectors import WrittenVectors
from maillard.decisions.timestamps import system_clock
from maillard.errors import InvalidLog, InvalidValue, MaillardError, Unavailable

_APPLICATION_ID = 0x4D41494C  # "MAIL": distinguishes a log from other databases
_COLUMN_TYPES = {
    "identity": "INTEGER PRIMARY KEY",
    "whole": "INTEGER",
    "real": "REAL",
    "bytes": "BLOB",
    "table": "WITHOUT ROWID, STRICT",
}
_CHECKPOINT_BYTES = 4 << 20  # of the write-ahead log; SQLite's default is 1,000 pages of 4 KiB
_CHECKPOINT_COMMITS = 250
_BUSY_TIMEOUT = 5  # milliseconds in which SQLite tries again itself: after 1, 3 and 5
_LOOKUPS_AFTER_REPEAT = 32  # shared commits that look up idempotency keys after one was repeated


_inherited: dict[Path, Any] = {}  # connections of the parent process; a child must not even close them


class SQLiteStore(SQLStore):
    """A SQLite database in WAL mode with synchronous=FULL: committed data is on disk.

    `timeout` is the number of seconds to wait for transactions of other processes. `connect` opens a
    connection to a path; tests pass one that simulates power failures.
    """

    group_commits = True
    concurrent_decisions = False  # one writer at a time
    _writer: Any
    _wal_file: sqlite_files.WriteAheadLog | None
    _heads: dict[str, Any]  # rows of SELECT_HEADS that no other connection has changed
    _data_version: int | None  # changes when another connection writes

    def __init__(
        self,
        path: str | Path,
        *,
        timeout: float = 5.0,
        clock: Callable[[], int] | None = None,
        connect: Callable[[str], Any] | None = None,
        synchronous: str = "FULL",
        read_only: bool = False,
        create: bool = True,
    ) -> None:
        if sqlite3.sqlite_version_info < (3, 37):
            found = sqlite3.sqlite_version
            raise MaillardError(f"a log requires SQLite 3.37 or newer; this Python has {found}")
        self.where = str(path)
        self._create = create and not read_only
        self._path = sqlite_files.log_path(self.where, create=self._create)
        self._name = str(self._path)
        self._lookups = 0
        self._commits = self._size = 0  # commits since the last checkpoint; size of the write-ahead log then
        self._timeout, self._clock = timeout, clock or system_clock
        self._connect = connect or self._open
        self._synchronous, self._read_only = synchronous, read_only
        self._shared = False
        self._file: tuple[int, int] | None = None  # device and inode, once it exists
        self.renew()
        quiesce_during_fork(self)
        if read_only:
            with self._reader() as connection:
                if not self._check_version(connection):
                    raise InvalidValue("log", self.where, "a log of decisions (this file is empty)")
        else:
            with self._lock, self._translate_errors():
                self._write_connection()

    # SQLite tracks the file locks of all connections of a process in shared memory. A forked child would
    # inherit this record without the locks, and other processes could delete the write-ahead log while the
    # child uses it. So the file must be closed during a fork.

    def hold(self) -> None:
        """Before a fork: wait for writers."""
        self._lock.acquire()

    def quiesce(self) -> None:
        """Before a fork: wait for readers, and close the file."""
        with self._readers_changed:
            self._forking = True
            # The forking thread cannot wait for itself.
            mine = threading.get_ident()
            self._readers_changed.wait_for(
                lambda: {each for each, _ in self._readers} <= {mine}, self._timeout
            )
            self._shared = bool(self._readers) or (self._writer is not None and self._writer.in_transaction)
        if not self._shared:
            self.close()

    def release(self) -> None:
        """After a fork, in the parent: allow access again."""
        with self._readers_changed:
            self._forking = self._shared = False
            self._readers_changed.notify_all()
        self._lock.release()

    def renew(self) -> None:
        """In a child: create new locks. If the file could not be closed, the child must not use it."""
        if self._shared:
            _inherited[self._path.resolve()] = self._writer, self._readers
        self._forget_writer()
        self._lock = threading.RLock()
        self._readers: set[tuple[int, Any]] = set()  # threads and their connections
        self._readers_changed, self._forking = threading.Condition(), False

    def _open(self, path: str) -> sqlite3.Connection:
        if self._create:
            sqlite_files.create_private(path)
        return sqlite3.connect(
            path, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def _check_file(self) -> None:
        """Raise Unavailable if the file was removed or replaced: writes to it would be lost."""
        try:
            found = os.stat(self._name)  # noqa: PTH116  # a Path takes longer
        except OSError:
            if self._create:
                return
            reason = "the file no longer exists. Nothing was acknowledged."
            raise Unavailable(f"log {self.where}: {reason}") from None
        if self._file not in (None, (found.st_dev, found.st_ino)):
            raise self._unavailable("the file was replaced by another one", "open the log again")

    def _write_connection(self) -> Any:
        try:
            self._check_file()
        except Unavailable:
            self.close()
            raise
        if self._writer is None:
            connection = self._open_connection()
            try:
                self._prepare(connection)
                connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT}").fetchall()  # see `_begin`
                self._wal_file = sqlite_files.WriteAheadLog(self._path)
            except BaseException:
                connection.close()
                raise
            self._writer, self._written = connection, WrittenVectors()
            self._heads, self._data_version = {}, None
            found = self._path.stat()
            self._file, self._create = (found.st_dev, found.st_ino), False
        return self._writer

    def _forget_writer(self) -> None:
        """The next transaction opens a new connection."""
        self._writer = self._wal_file = None

    def _prepare(self, connection: Any) -> None:
        """Set up the connection, and create or migrate the tables if necessary."""
        version = self._check_version(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()  # see `_checkpoint_if_due`
        # `erase_unit` must overwrite the data in the file.
        connection.execute("PRAGMA secure_delete = ON").fetchall()
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            reason = f"SQLite cannot use a write-ahead log here (journal_mode is {mode})"
            raise MaillardError(f"{self.where}: {reason}")
        if version == len(schema.MIGRATIONS):
            self._check_version(connection)  # if the mode has just changed, this opens the write-ahead log
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            version = self._check_version(connection)  # another process may have migrated it
            for migration in schema.MIGRATIONS[version:]:
                for statement in migration.format(**_COLUMN_TYPES).split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS)}")
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise

    def _check_version(self, connection: Any) -> int:
        """The version of the log's tables; 0 for a new file."""
        # Count tables first: if another process is creating them, the values read later are the new ones.
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID and (tables or application):
            allowed = "a log of decisions, or a new file (this database is another's)"
            raise InvalidLog("log", self.where, allowed)
        return schema.check_version(version)

    @contextmanager
    def transaction(self, experiment: str, **_options: bool) -> Iterator[SQLTransaction]:
        """Begin a transaction, which is always exclusive: it takes the write lock at its start."""
        with self._committed() as connection:
            self._heads.clear()  # it may change any of them
            transaction = SQLiteTransaction(connection, experiment, self._clock(), self._written)
            yield transaction
            transaction.write_link()
        transaction.note_commit()

    @contextmanager
    def together(self) -> Iterator[SQLiteSharedTransaction]:
        """Begin transactions of several experiments that share a commit."""
        new, self._lookups = not self._lookups, max(0, self._lookups - 1)
        try:
            with self._committed() as connection:
                shared = SQLiteSharedTransaction(
                    connection, self._clock(), self._written, self._heads, expects_new=new
                )
                yield shared
                shared.write()
        except NotNewError:
            self._lookups = _LOOKUPS_AFTER_REPEAT
            raise
        shared.note_commit()

    @contextmanager
    def _committed(self) -> Iterator[Any]:
        with self._acquired(self._lock, "other writes took more than"), self._translate_errors():
            connection = self._write_connection()
            try:
                try:
                    self._begin(connection)
                finally:
                    self._check_wal(connection)  # if it has begun, no other process can write now
                self._notice_other_writers(connection)
                yield connection
                self._check_wal(connection)
                connection.execute("COMMIT")
            except BaseException:
                self._heads.clear()
                self._roll_back(connection)
                raise
            self._checkpoint_if_due(connection, self._check_wal(connection))

    def _begin(self, connection: Any) -> None:
        """Begin a transaction as soon as no other process is writing, or raise after the timeout.

        SQLite alone would try again ever more rarely, in the end every 100 ms. Among processes that write
        all the time, one that has waited for long would hardly ever find the log free.
        """
        end = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                if not busy or time.monotonic() >= end:
                    raise
            else:
                return

    def _notice_other_writers(self, connection: Any) -> None:
        """Forget what is known about the log if another connection has written since the last transaction."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._data_version:
            # A newer maillard may have migrated the tables.
            schema.check_version(*connection.execute("PRAGMA user_version").fetchone())
            self._heads.clear()
            self._data_version = version

    def _check_wal(self, connection: Any) -> int:
        """Return the size of the write-ahead log. Raise Unavailable if a file was removed or replaced."""
        if self._wal_file is None:  # the transaction itself has closed the log
            return 0
        size = self._wal_file.size()
        if size is not None:
            return size
        self._roll_back(connection)
        problem, advice = "the write-ahead log or its -shm file was removed or replaced", "try again"
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * self._timeout)}").fetchall()  # for readers
        if self._wal_file.rescue(connection, self._open_connection):
            self._forget_writer()
        else:
            advice = "try again when no other program reads the log"
        raise self._unavailable(problem, advice)

    def _checkpoint_if_due(self, connection: Any, size: int) -> None:
        """Copy the write-ahead log into the database from time to time, while no other process writes.

        SQLite's automatic checkpoints run concurrently with other writers. Before version 3.51.3, a
        checkpoint during a commit that restarts the write-ahead log can, rarely, corrupt the file. A
        passive checkpoint does not wait for readers.
        """
        self._commits += 1
        # An error is no problem: the commit is durable, and the next checkpoint may work.
        with suppress(sqlite3.Error, MaillardError):
            grown = size >= self._size + _CHECKPOINT_BYTES  # it does not shrink when SQLite restarts the log
            if not grown and (self._commits < _CHECKPOINT_COMMITS or size < _CHECKPOINT_BYTES):
                return
            self._commits, self._size = 0, size
            try:
                self._begin(connection)
                with closing(self._open_connection()) as another:
                    another.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            finally:
                self._roll_back(connection)

    def _roll_back(self, connection: Any) -> None:
        try:
            if connection.in_transaction:  # SQLite may have ended it, for example because the disk is full
                connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001
            self._forget_writer()
            connection.close()

    @contextmanager
    def reading(self, experiment: str) -> Iterator[SQLTransaction]:
        """Begin a read-only transaction."""
        with self._reader() as connection:
            connection.execute("BEGIN")
            schema.check_version(*connection.execute("PRAGMA user_version").fetchone())
            yield SQLiteTransaction(connection, experiment, self._clock(), WrittenVectors())

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with self._translate_errors():
            with self._readers_changed:
                self._readers_changed.wait_for(lambda: not self._forking)
                connection = self._open_connection()
                memory = sqlite_files.shared_memory(self._path)
                reader = threading.get_ident(), connection
                self._readers.add(reader)
            try:
                yield connection
                if not memory.in_place:  # other processes did not know what this one was reading
                    raise self._unavailable("the -shm file was removed or replaced")
            finally:
                connection.close()
                del memory  # an error that someone keeps has references to local variables
                with self._readers_changed:
                    self._readers.discard(reader)
                    self._readers_changed.notify_all()

    def _open_connection(self) -> Any:
        if _inherited and self._path.resolve() in _inherited:
            raise self._unavailable(
                "this process was forked while its parent was reading the log, so SQLite cannot use it",
                "start worker processes with spawn, or fork when the log is idle",
            )
        self._check_file()  # SQLite would create a missing file
        if self._read_only:
            return sqlite_files.open_read_only(self._path, timeout=self._timeout, isolation_level=None)
        return self._connect(self._name)

    def scanning(self, experiment: str) -> AbstractContextManager[SQLTransaction]:
        """Begin a read-only transaction, which never holds up writers."""
        return self.reading(experiment)

    def scrub(self) -> None:
        """Empty the write-ahead log, so that no erased data is left in it."""
        with self._lock, self._translate_errors():
            self._write_connection()
            with closing(self._open_connection()) as another:  # it waits for readers
                (busy, *_) = another.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            reason = f"another process is reading it, so erased data may still be in {self.where}-wal"
            raise Unavailable(f"log {self.where}: {reason}; erase again later")

    def reclaim(self) -> None:
        """Copy the write-ahead log into the file. SQLite uses the free pages before the file grows again."""
        with suppress(Unavailable):  # a reader is in the way; later checkpoints will do
            self.scrub()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._forget_writer()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite may quote damaged text
            if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
                allowed = "a log of decisions (this file is no SQLite database)"
                raise InvalidLog("log", self.where, allowed) from None
            raise self._unavailable(str(error), "try again when the file can be used") from error
