"""A log in PostgreSQL: many processes on many machines, and decisions that do not wait for rewards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import TallyUpdate
from maillard.decisions.forks import renew_after_fork
from maillard.decisions.stores.contract import Counts
from maillard.decisions.stores.postgresql_connection import Connection, Context, conninfo_to_dict, psycopg
from maillard.decisions.stores.schema import MIGRATIONS
from maillard.decisions.stores.sql import SELECT_HEAD, SELECT_ROWS, SQLTransaction
from maillard.errors import InvalidLog, InvalidValue, Unavailable

__all__ = ["PostgreSQLStore"]

_LOCK = 0x4D41494C  # "MAIL": who makes or changes the tables holds this
_WORDS = {
    "identity": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "whole": "BIGINT",
    "real": "DOUBLE PRECISION",
    "table": "",
}
_SETTINGS = """
SELECT set_config('search_path', 'maillard', false),
    set_config('lock_timeout', %(lock)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle)s, false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    current_setting('server_encoding'),
    EXISTS (SELECT FROM pg_tables WHERE schemaname = 'maillard' AND tablename = 'version')
"""
_EXISTING = """
SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = 'maillard'),
    (SELECT count(*) FROM pg_tables WHERE schemaname = 'maillard' AND tablename = 'version')
"""
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_SCAN = 12  # times the usual patience, for statements that look at every row
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _Lock(NamedTuple):
    """What a transaction waits for: who changes the experiment, and its row."""

    gate: str
    "A function of PostgreSQL's."
    row: str
    "The end of a SELECT."


_NO_LOCK = _Lock("", "")


class PostgreSQLStore:
    """Tables in the schema `maillard` of a database; what was committed is on the server's disk.

    `timeout` is how many seconds to wait for a connection, for other transactions, and for a server that is silent. At most
    `pool_size` connections are open at a time, and one more for each log that is being read as a whole.

    Connections are opened by the threads that need them, and kept for the next. (Not by psycopg_pool: its threads try again
    after pauses that double from one second, and a caller hears of a timeout in the end, not of the cause at once.)
    """

    grouped = True
    concurrent_decisions = True

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 5.0,
        clock: Callable[[], int] | None = None,
        pool_size: int = 4,
    ) -> None:
        self._url, self._timeout, self._clock, self._size = url, timeout, clock, pool_size
        self._secrets: list[str] = []
        self.where = self._describe()
        self._generation = 0
        self.renew()
        renew_after_fork(self)
        with self._explained(), self._permission():
            self._keep(self._connect())

    def renew(self) -> None:
        """After a fork: the parent's connections are let go of (psycopg closes only those of its own process)."""
        self._idle: list[Connection] = []
        self._mutex = threading.Lock()
        self._permits = threading.BoundedSemaphore(self._size)

    def _describe(self) -> str:
        """Where the log is, without secrets; a URL that shows a part of its password elsewhere is refused."""
        authority, _, path = self._url.partition("://")[2].partition("?")[0].partition("/")
        try:
            parts = {name: str(value) for name, value in conninfo_to_dict(self._url).items()}
        except (psycopg.Error, UnicodeError):
            parts = None
        odd_port = not parts or not parts.get("port", "1").replace(",", "").isdigit()  # it may be a password
        if parts is None or odd_port or authority.count("@") > 1 or "@" in path:
            allowed = "a URL as in postgresql://user:password@host:5432/database, with %40, %2F and %3F for @, / and ? in a password"
            raise InvalidValue("log", "postgresql://...", allowed)
        self._secrets = [parts[name] for name in ("password", "sslpassword") if parts.get(name)]
        host = quote(parts.get("host", parts.get("hostaddr", "")), safe=":,")
        port = f":{parts['port']}" if "port" in parts else ""
        return f"postgresql://{host}{port}/{quote(parts.get('dbname', ''))}"

    # Connections.

    def _connect(self) -> Connection:
        """A new connection, to tables of the right version."""
        options: dict[str, Any] = {"client_encoding": "UTF8", "fallback_application_name": "maillard"}
        if "connect_timeout" not in conninfo_to_dict(self._url):
            options["connect_timeout"] = max(2, round(self._timeout))  # less than 2 is not possible
        connection = Connection.connect(self._url, autocommit=True, context=Context(), **options)
        try:
            # A little longer than the server waits for a lock: who holds it is more to hear of than that there was no answer.
            connection.patience = self._timeout + 0.3
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        connection.generation = self._generation
        return connection

    def _prepare(self, connection: Connection) -> None:
        lock = round(self._timeout * 1000)
        settings = {"lock": f"{lock}ms", "idle": f"{12 * lock}ms"}
        *_, encoding, exists = _one(connection.execute(_SETTINGS, settings))
        if encoding != "UTF8":
            raise InvalidLog("log: encoding of the database", encoding, "UTF8")
        if self._version(connection, exists) == len(MIGRATIONS):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            # Another process may have been here while this one waited. (Asked of the catalogue itself, for what
            # to_regclass answers comes from a cache that knows of others' changes only when it locks something.)
            schemas, tables = _one(connection.execute(_EXISTING))
            version = self._version(connection, tables > 0)
            if not schemas:
                connection.execute("CREATE SCHEMA maillard")
            if not tables:
                connection.execute("CREATE TABLE maillard.version (number BIGINT NOT NULL)")
                connection.execute("INSERT INTO maillard.version VALUES (0)")
            for migration in MIGRATIONS[version:]:
                # Names sort by their bytes, as in SQLite and in Python.
                statements = migration.format(**_WORDS).replace(" TEXT", ' TEXT COLLATE "C"')
                connection.execute(statements.encode())
            connection.execute("UPDATE maillard.version SET number = %s", [len(MIGRATIONS)])

    def _version(self, connection: Connection, exists: bool) -> int:
        """The version of the log's tables; 0 where there are none."""
        version = _one(connection.execute("SELECT number FROM maillard.version"))[0] if exists else 0
        if version > len(MIGRATIONS):
            allowed = f"a log of version {len(MIGRATIONS)} or older; a newer maillard wrote this one"
            raise InvalidLog("log version", version, allowed)
        return int(version)

    @contextmanager
    def _permission(self) -> Iterator[None]:
        """The right to one of the connections."""
        permits = self._permits
        if not permits.acquire(timeout=self._timeout):
            raise Unavailable(
                f"log {self.where}: all {self._size} connections have been in use for {self._timeout:g} seconds. "
                "Nothing was acknowledged; try again."
            )
        try:
            yield
        finally:
            permits.release()

    @contextmanager
    def _transaction(self, begin: str, experiment: str, lock: _Lock) -> Iterator[_Transaction]:
        with self._explained(), self._permission(), ExitStack() as stack:
            with self._mutex:
                kept = self._idle.pop() if self._idle else None
            transaction = None
            if kept is not None:
                try:
                    transaction = stack.enter_context(self._work(kept, begin, experiment, lock))
                except psycopg.OperationalError:
                    # Started again since it was last used? Nothing was sent but a question, so ask on a new connection.
                    if not kept.lost:
                        raise
            if transaction is None:
                transaction = stack.enter_context(self._work(self._connect(), begin, experiment, lock))
            yield transaction

    @contextmanager
    def _work(
        self, connection: Connection, begin: str, experiment: str, lock: _Lock
    ) -> Iterator[_Transaction]:
        """A transaction on this connection, which is kept for the next one if all goes well."""
        try:
            # In a pipeline, statements are sent at once, and answers awaited only where they are asked for.
            with connection.pipeline() as pipeline:
                try:
                    connection.execute(begin)
                    yield _Transaction(connection, pipeline, experiment, self._clock, lock)
                    end = connection.execute("COMMIT")
                    pipeline.sync()
                    connection.quiet = True  # the pipeline would end with another round trip
                except BaseException as error:
                    connection.give_up(error)
                    raise
            connection.quiet = False
            _check_committed(end)
        except BaseException as error:
            connection.give_up(error)
            raise
        self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        with self._mutex:
            if connection.generation == self._generation:
                self._idle.append(connection)
                return
        connection.close()

    # The contract.

    def transaction(
        self, experiment: str, *, lock: bool, alone: bool = False, wait: bool = True
    ) -> AbstractContextManager[SQLTransaction]:
        """A transaction; with `lock` it has the experiment's row to itself, without it reads that and adds decisions.

        Whoever adds decisions shares a second lock, which who wants to be `alone` has to himself: so a change waits for the choices that
        are on their way, and a reward does not.
        """
        gate = "pg_advisory_xact_lock" + ("" if alone else "_shared") if alone or not lock else ""
        row = (" FOR UPDATE" if wait else " FOR UPDATE NOWAIT") if lock else ""
        return self._transaction(_WRITING, experiment, _Lock(gate, row))

    def reading(self, experiment: str) -> AbstractContextManager[SQLTransaction]:
        """A transaction that only reads."""
        return self._transaction(_READING, experiment, _NO_LOCK)

    def experiments(self) -> list[str]:
        """The names of all experiments."""
        with self._transaction(_READING, "", _NO_LOCK) as transaction:
            return transaction.names()

    def rows(
        self, experiment: str
    ) -> Iterator[tuple[Decision, tuple[RewardEvent, ...], tuple[TallyUpdate, ...]]]:
        """Every decision with its rewards and the events that these made, ordered by state and id."""
        with self._explained():
            connection = self._connect()  # its own: who reads a whole log may take a while
            try:
                connection.patience *= _SCAN
                connection.execute(_READING)
                connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                transaction = _Transaction(connection, None, experiment, self._clock, _NO_LOCK)
                with connection.cursor(name="rows", binary=True) as cursor:
                    cursor.execute(_translated(SELECT_ROWS), [transaction.experiment])
                    while some := cursor.fetchmany(1000):
                        yield from transaction.with_rewards(some)
            finally:
                connection.close()

    def scrub(self) -> None:
        """Have old versions of rows removed, so that nothing erased is left in the tables."""
        with self._explained(), closing(self._connect()) as connection:
            connection.patience = 3600.0  # it says nothing until it is done
            connection.execute("VACUUM (INDEX_CLEANUP ON) decisions, assignments")

    def close(self) -> None:
        """Close the connections that nobody uses; the others when they are done."""
        with self._mutex:
            idle, self._idle = self._idle, []
            self._generation += 1
        for connection in idle:
            connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeError) as error:
            # The server's own words without its details, which quote what was to be written.
            said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
            reason = shown = " ".join((said or str(error)).split())
            for secret in self._secrets:
                shown = shown.replace(secret, "***")
            raise Unavailable(
                f"log {self.where}: {shown}. Nothing was acknowledged; try again when it is mended."
            ) from (error if shown == reason else None)


class _Transaction(SQLTransaction):
    def __init__(
        self,
        connection: Connection,
        pipeline: psycopg.Pipeline | None,
        name: str,
        clock: Callable[[], int] | None,
        lock: _Lock,
    ) -> None:
        super().__init__(name)
        self.connection, self._pipeline, self._clock, self._lock = connection, pipeline, clock, lock
        self.load()

    def load(self) -> None:
        """Find out where the experiment stands, and then what time it is: the lock may have been waited for."""
        if self._lock.gate:
            self._execute(f"SELECT {self._lock.gate}(hashtextextended(?, ?))", [self.name, _LOCK])
        found = self._execute(SELECT_HEAD + self._lock.row, [self.name])
        # A statement of its own, for a row that is locked may be read before the wait for the lock.
        clock = self._execute(f"SELECT {_CLOCK}") if self._clock is None else None
        self.stand(found.fetchall())
        self._now = int(_one(clock)[0]) if clock is not None else self._clock()  # type: ignore[misc]  # one of the two

    @property
    def now(self) -> int:
        return self._now

    def names(self) -> list[str]:
        """Of all experiments."""
        return [name for (name,) in self._all("SELECT name FROM experiments ORDER BY name")]

    def counts(self) -> Counts:
        with self._patience():
            return super().counts()

    def erase_unit(self, unit: str, token: str) -> int:
        with self._patience():
            return super().erase_unit(unit, token)

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """For what has to look at every row."""
        usual, self.connection.patience = self.connection.patience, self.connection.patience * _SCAN
        try:
            yield
        finally:
            self.connection.patience = usual

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.connection.execute(_translated(statement), parameters, binary=True)

    def _all(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self._execute(statement, parameters).fetchall()

    def _many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.connection.cursor().executemany(_translated(statement), rows)

    def _added(self, statement: str, rows: Sequence[Sequence[Any]], ending: str) -> list[Any]:
        cursor = self.connection.cursor(binary=True)
        cursor.executemany(_translated(statement + ending), rows, returning=True)
        found: list[Any] = []
        while rows:
            found += cursor.fetchall()
            if not cursor.nextset():
                break
        return found

    def _count(self, statement: str, parameters: Sequence[Any]) -> int:
        cursor = self._execute(statement, parameters)
        if self._pipeline is not None:
            self._pipeline.sync()
        return cursor.rowcount

    def _among(self, column: str, values: Iterable[str]) -> tuple[str, Any]:
        return f"{column} = ANY(?)", list(values)


def _check_committed(end: psycopg.Cursor[Any]) -> None:
    if end.statusmessage != "COMMIT":  # a transaction that has failed ends with ROLLBACK, and no error
        raise psycopg.OperationalError(f"the server answered {end.statusmessage} to a commit")


@lru_cache(maxsize=256)
def _translated(statement: str) -> bytes:
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None  # statements of one row
    return row
