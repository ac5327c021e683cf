"""A log in one SQLite file: durable at every acknowledgement, shared by threads and processes, no server."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import TallyUpdate
from maillard.decisions.forks import hold_during_fork
from maillard.decisions.stores.schema import MIGRATIONS
from maillard.decisions.stores.sql import SELECT_ROWS, SQLTransaction
from maillard.decisions.timestamps import system_clock
from maillard.errors import InvalidLog, InvalidValue, MaillardError, Unavailable

__all__ = ["SQLiteStore"]

_APPLICATION = 0x4D41494C  # "MAIL": tells a log from other people's databases
_WORDS = {
    "identity": "INTEGER PRIMARY KEY",
    "whole": "INTEGER",
    "real": "REAL",
    "table": "WITHOUT ROWID, STRICT",
}
_LARGE = 4 << 20  # bytes of a write-ahead log, as SQLite's own limit of 1,000 pages
_OFTEN = 250  # commits, of a few pages each
_MOST_ROWS = 64  # in one statement; each number of rows is another statement to prepare, once


_not_ours: dict[Path, Any] = {}  # connections of a parent process, which a child may not even close


class SQLiteStore:
    """WAL with synchronous=FULL: what was committed is on the disk.

    `timeout` is how many seconds to wait for other processes' transactions. `connect` opens a connection to a path: tests put
    one here that loses power.
    """

    grouped = True
    concurrent_decisions = False  # one writer at a time

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
            raise MaillardError(
                f"the log needs SQLite 3.37 or newer; this Python has {sqlite3.sqlite_version}"
            )
        self.where = str(path)
        try:
            self._path = Path(path).absolute()  # the program may go elsewhere
        except OSError as error:
            raise InvalidValue("log", self.where, f"a path ({error.strerror})") from None
        self._wal = self._path.with_name(self._path.name + "-wal")
        self._commits = self._size = 0  # since the last checkpoint; of the write-ahead log then
        self._timeout, self._clock = timeout, clock or system_clock
        self._connect = connect or self._open
        self._synchronous, self._read_only = synchronous, read_only
        self._writer: Any = None
        self._shared = False
        self._create = create and not read_only
        self._file: tuple[int, int] | None = None  # device and inode, once it exists
        self._check_place()
        self.renew()
        hold_during_fork(self)
        if read_only:
            with self._reader() as connection:
                self._check_version(connection)
        else:
            with self._lock, self._explained():
                self._writing()

    # SQLite keeps one account of locks for all connections of a process to a file, and a child would go by its parent's
    # account without having its locks: then others delete the write-ahead log under it. So nothing is open at a fork.

    def hold(self) -> None:
        """Before a fork: wait for those who write."""
        self._lock.acquire()

    def rest(self) -> None:
        """Then: wait for those who read, and close the file."""
        with self._readers_change:
            self._held = True
            self._readers_change.wait_for(self._only_own_readers, self._timeout)
            self._shared = bool(self._readers) or (self._writer is not None and self._writer.in_transaction)
        if not self._shared:
            self.close()

    def _only_own_readers(self) -> bool:
        return set(self._readers) <= {threading.get_ident()}  # who forks cannot wait for itself

    def release(self) -> None:
        """After a fork, in the parent: go on."""
        with self._readers_change:
            self._held = self._shared = False
            self._readers_change.notify_all()
        self._lock.release()

    def renew(self) -> None:
        """In a child: locks that nobody holds. A file that could not be closed is not for the child to use."""
        if self._shared:
            _not_ours[self._path.resolve()] = self._writer, self._readers
        self._writer, self._lock = None, threading.RLock()
        self._readers: dict[int, list[Any]] = {}
        self._readers_change, self._held = threading.Condition(), False

    def _open(self, path: str) -> sqlite3.Connection:
        return sqlite3.connect(
            path, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=256
        )

    def _check_place(self) -> None:
        """Whether there is a log at the path, or can be one."""
        try:
            exists, is_folder, folder = self._path.exists(), self._path.is_dir(), self._path.parent.is_dir()
        except OSError as error:
            raise InvalidLog("log", self.where, f"a path ({error.strerror})") from None
        if is_folder or not folder:
            raise InvalidLog("log", self.where, "a file, in a folder that exists")
        if not exists and not self._create:
            raise InvalidLog("log", self.where, "a file that exists")

    def _check_file(self) -> None:
        """Refuse to go on where the file was removed or replaced: what is written to it would be lost."""
        try:
            found = self._path.stat()
        except OSError:
            if self._create:
                return
            raise Unavailable(f"log {self.where}: it has gone. Nothing was acknowledged.") from None
        if self._file not in (None, (found.st_dev, found.st_ino)):
            raise Unavailable(
                f"log {self.where}: another file has taken its place. Nothing was acknowledged; open that anew."
            )

    def _writing(self) -> Any:
        try:
            self._check_file()
        except Unavailable:
            self.close()
            raise
        if self._writer is None:
            connection = self._connected()
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._writer = connection
            found = self._path.stat()
            self._file, self._create = (found.st_dev, found.st_ino), False
        return self._writer

    def _prepare(self, connection: Any) -> None:
        """Settings that last as long as a connection; tables, if they are missing or old."""
        if self._check_version(connection) < len(MIGRATIONS):
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise MaillardError(f"{self.where}: SQLite cannot write ahead here (journal_mode is {mode})")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()  # see `_check_point`
        # What `erase_unit` overwrites is overwritten in the file.
        connection.execute("PRAGMA secure_delete = ON").fetchall()
        if self._check_version(connection) == len(MIGRATIONS):
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            version = self._check_version(connection)  # another process may have been here
            for migration in MIGRATIONS[version:]:
                for statement in migration.format(**_WORDS).split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise

    def _check_version(self, connection: Any) -> int:
        """The version of the log's tables; 0 for a new file."""
        # Tables first: where another process is making them now, what is read after them is theirs.
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION and (tables or application):
            raise InvalidLog(
                "log", self.where, "a log of decisions, or a new file (this database is another's)"
            )
        if version > len(MIGRATIONS):
            allowed = f"a log of version {len(MIGRATIONS)} or older; a newer maillard wrote this one"
            raise InvalidLog("log version", version, allowed)
        return int(version)

    @contextmanager
    def transaction(
        self,
        experiment: str,
        *,
        lock: bool,  # noqa: ARG002  # always alone
        alone: bool = False,  # noqa: ARG002
        wait: bool = True,  # noqa: ARG002
    ) -> Iterator[SQLTransaction]:
        """A transaction that has the right to write from its beginning."""
        with self._own_turn(), self._explained():
            connection = self._writing()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield _Transaction(connection, experiment, self._clock)
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise
            self._check_point(connection)

    @contextmanager
    def _own_turn(self) -> Iterator[None]:
        """The lock that threads of this process share; who waits for it does not wait for ever."""
        if not self._lock.acquire(timeout=self._timeout):
            raise Unavailable(
                f"log {self.where}: other writes have taken {self._timeout:g} seconds. Nothing was acknowledged; try again."
            )
        try:
            yield
        finally:
            self._lock.release()

    def _check_point(self, connection: Any) -> None:
        """Copy the write-ahead log into the database now and then, while nobody else writes.

        SQLite would do so by itself, but beside other writers, and before version 3.51.3 a checkpoint that meets a commit which starts the
        write-ahead log anew may, rarely, corrupt the file. A passive one does not wait for readers.
        """
        self._commits += 1
        with suppress(
            sqlite3.Error, OSError, MaillardError
        ):  # what was committed is safe; the next one may succeed
            size = (
                self._wal.stat().st_size
            )  # it stays when the log is started anew, so it tells only of growth
            if size < self._size + _LARGE and (self._commits < _OFTEN or size < _LARGE):
                return
            self._commits, self._size = 0, size
            try:
                connection.execute("BEGIN IMMEDIATE")
                with closing(self._connected()) as another:
                    another.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            finally:
                self._roll_back(connection)

    def _roll_back(self, connection: Any) -> None:
        try:
            if connection.in_transaction:  # SQLite itself may have ended it, as where the disk is full
                connection.execute("ROLLBACK")
        except Exception:  # noqa: BLE001  # whatever is wrong with the connection, the next one is new
            self._writer = None
            connection.close()

    @contextmanager
    def reading(self, experiment: str) -> Iterator[SQLTransaction]:
        """A transaction that only reads."""
        with self._reader() as connection:
            connection.execute("BEGIN")
            yield _Transaction(connection, experiment, self._clock)

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with self._explained():
            mine = threading.get_ident()
            with self._readers_change:
                self._readers_change.wait_for(lambda: not self._held)
                connection = self._connected()
                self._readers.setdefault(mine, []).append(connection)
            try:
                yield connection
            finally:
                connection.close()
                with self._readers_change:
                    self._readers[mine].remove(connection)
                    if not self._readers[mine]:
                        del self._readers[mine]
                    self._readers_change.notify_all()

    def _connected(self) -> Any:
        if _not_ours and self._path.resolve() in _not_ours:
            raise Unavailable(
                f"log {self.where}: this process was forked while its parent was reading the log, so SQLite cannot use it here. "
                "Nothing was acknowledged; fork at another time, or start processes afresh (spawn)."
            )
        self._check_file()  # where it has gone, SQLite would make an empty one
        return self._open_read_only() if self._read_only else self._connect(str(self._path))

    def _open_read_only(self) -> sqlite3.Connection:
        """A connection that writes nothing; mode=ro would leave the files of a reader's locks behind."""
        address = self._path.absolute().as_uri() + "?mode="
        options: dict[str, Any] = {"uri": True, "timeout": self._timeout, "isolation_level": None}
        connection: sqlite3.Connection = sqlite3.connect(address + "rw", **options)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError as error:
            connection.close()
            # A folder where nothing can be written, not even a reader's lock: then the file must be all there is.
            fixed = error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
            if not fixed or (self._wal.exists() and self._wal.stat().st_size):
                raise
            connection = sqlite3.connect(address + "ro&immutable=1", **options)
        return connection

    def experiments(self) -> list[str]:
        """The names of all experiments."""
        with self._reader() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM experiments ORDER BY name")]

    def rows(
        self, experiment: str
    ) -> Iterator[tuple[Decision, tuple[RewardEvent, ...], tuple[TallyUpdate, ...]]]:
        """Every decision with its rewards and the events that these made, ordered by state and id."""
        with self.reading(experiment) as transaction:
            assert isinstance(transaction, _Transaction)
            cursor = transaction.connection.execute(SELECT_ROWS, [transaction.experiment])
            while some := cursor.fetchmany(1000):
                yield from transaction.with_rewards(some)

    def scrub(self) -> None:
        """Move everything out of the write-ahead log, so that nothing erased is left there."""
        with self._lock, self._explained():
            (busy, *_) = self._writing().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise Unavailable(
                f"log {self.where}: somebody is reading it, so what was erased may still be in {self.where}-wal; erase again later"
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite may quote what is garbled
            if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
                raise InvalidLog(
                    "log", self.where, "a log of decisions (this file is no SQLite database)"
                ) from None
            raise Unavailable(
                f"log {self.where}: {error}. Nothing was acknowledged; try again when it is mended."
            ) from error


@lru_cache(maxsize=1024)
def _for_rows(statement: str, size: int) -> str:
    """An INSERT of one row as an INSERT of several."""
    _, values = statement.rsplit("VALUES ", 1)
    return statement + f", {values}" * (size - 1)


class _Transaction(SQLTransaction):
    def __init__(self, connection: Any, name: str, clock: Callable[[], int]) -> None:
        super().__init__(name)
        self.connection, self._now = connection, clock()
        self.load()

    @property
    def now(self) -> int:
        return self._now

    def _all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        rows: list[Any] = self.connection.execute(statement, parameters).fetchall()
        return rows

    def _many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        # Python lets go of the interpreter at every step of a statement, and must win it back from threads that choose: so
        # one statement for many rows.
        if " VALUES " not in statement:
            self.connection.executemany(statement, rows)
            return
        self._added(statement, rows, "")

    def _added(self, statement: str, rows: Sequence[Sequence[Any]], ending: str) -> list[Any]:
        found: list[Any] = []
        start = 0
        while start < len(rows):
            # Sizes that are powers of two, so that few statements are prepared and kept.
            some = rows[start : start + min(_MOST_ROWS, 1 << (len(rows) - start).bit_length() - 1)]
            start += len(some)
            values = [value for row in some for value in row]
            found += self.connection.execute(_for_rows(statement, len(some)) + ending, values).fetchall()
        return found

    def _count(self, statement: str, parameters: Sequence[Any]) -> int:
        self.connection.execute(statement, parameters)
        ((changed,),) = self.connection.execute("SELECT changes()").fetchall()
        return int(changed)

    def _among(self, column: str, values: Iterable[str]) -> tuple[str, Any]:
        return f"{column} IN (SELECT value FROM json_each(?))", json.dumps(list(values))
