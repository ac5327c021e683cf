"""A log in PostgreSQL: for many processes on many hosts; decisions do not wait for rewards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from maillard.decisions.chain import FIRST_HASH, Commit
from maillard.decisions.forks import renew_after_fork
from maillard.decisions.stores import schema
from maillard.decisions.stores.contract import Counts, Visits
from maillard.decisions.stores.postgresql_connection import Connection, conninfo_to_dict, psycopg
from maillard.decisions.stores.sql import SQLStore, SQLTransaction
from maillard.decisions.stores.sql_rows import LINK
from maillard.errors import InvalidLog, InvalidValue

_LOCK = 0x4D41494C  # "MAIL": the advisory lock for creating and migrating tables
_CHAIN_LOCK = _LOCK + 1
_COLUMN_TYPES = {
    "identity": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "whole": "BIGINT",
    "real": "DOUBLE PRECISION",
    "bytes": "BYTEA",
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
_ADD_LINK = f"""
WITH chain AS (
    INSERT INTO chains AS c (experiment, number, hash) VALUES (?, 1, sha256(?::bytea || ?::bytea))
    ON CONFLICT (experiment) DO UPDATE SET number = c.number + 1, hash = sha256(c.hash || ?::bytea)
    RETURNING experiment, number, hash
)
INSERT INTO links (experiment, {LINK}) SELECT experiment, number, hash, ?, ?, ?, ?, ? FROM chain
"""
_VERSION = "SELECT number FROM maillard.version"
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_SCAN_TIMEOUT_FACTOR = 12  # for statements that read every row


class _Mode(NamedTuple):
    """How a transaction begins, and which locks it takes on its experiment."""

    begin: str
    advisory: str = ""
    "The PostgreSQL function that takes the advisory lock, or ''."
    row: str = ""
    "The locking clause of the SELECT of the experiment's row, or ''."


_READING = _Mode("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")


class PostgreSQLStore(SQLStore):
    """Tables in the schema `maillard` of a database. Committed data is on the server's disk.

    `timeout` is the number of seconds to wait for a connection, for other transactions, and for a silent
    server. At most `pool_size` connections are open at a time, plus one for each log that is being read as
    a whole.

    The threads that need connections open them, and reuse idle ones. psycopg_pool is not used because its
    background threads retry with growing pauses, so a caller would see a late timeout instead of the
    immediate cause.
    """

    group_commits = True
    concurrent_decisions = True

    def __init__(
        self, url: str, *, timeout: float = 5.0, clock: Callable[[], int] | None = None, pool_size: int = 4
    ) -> None:
        self._url, self._timeout, self._clock, self._size = url, timeout, clock, pool_size
        self.where, self._secrets = self._describe()
        self._generation = 0
        self.renew()
        renew_after_fork(self)
        with self._translate_errors(), self._connection_slot():
            self._release_connection(self._connect())

    def renew(self) -> None:
        """After a fork: forget the parent's connections (psycopg does not close them in a child)."""
        self._idle: list[Connection] = []
        self._mutex = threading.Lock()
        self._permits = threading.BoundedSemaphore(self._size)

    def _describe(self) -> tuple[str, list[str]]:
        """The location of the log without secrets, and the secrets.

        Refuse a URL whose password may appear in another part.
        """
        authority, _, path = self._url.partition("://")[2].partition("?")[0].partition("/")
        try:
            parts = {name: str(value) for name, value in conninfo_to_dict(self._url).items()}
        except (psycopg.Error, UnicodeError):
            parts = None
        # A port that is no number may be part of a password.
        good_port = parts and parts.get("port", "1").replace(",", "").isdigit()
        if parts is None or not good_port or authority.count("@") > 1 or "@" in path:
            allowed = (
                "a URL such as postgresql://user:password@host:5432/database; "
                "write @, / and ? in a password as %40, %2F and %3F"
            )
            raise InvalidValue("log", "postgresql://...", allowed)
        secrets = [parts[name] for name in ("password", "sslpassword") if parts.get(name)]
        host = quote(parts.get("host", parts.get("hostaddr", "")), safe=":,")
        port = f":{parts['port']}" if "port" in parts else ""
        return f"postgresql://{host}{port}/{quote(parts.get('dbname', ''))}", secrets

    # Connections.

    def _connect(self) -> Connection:
        """Open a connection, and create or migrate the tables if necessary."""
        options: dict[str, Any] = {"client_encoding": "UTF8", "fallback_application_name": "maillard"}
        if "connect_timeout" not in conninfo_to_dict(self._url):
            options["connect_timeout"] = max(2, round(self._timeout))  # libpq's minimum is 2
        connection = Connection.connect(self._url, autocommit=True, **options)
        try:
            # Slightly longer than the server's lock timeout, whose error message is more informative.
            connection.response_timeout = self._timeout + 0.3
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
        if self._version(connection, exists) == len(schema.MIGRATIONS):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            # Another process may have created the tables in the meantime. Query the catalogue: to_regclass
            # uses a cache that sees the changes of other sessions only after taking a lock.
            schemas, tables = _one(connection.execute(_EXISTING))
            version = self._version(connection, tables > 0)
            if not schemas:
                connection.execute("CREATE SCHEMA maillard")
            if tables:  # wait for all transactions: those that begin later see the new version
                connection.execute("LOCK TABLE maillard.version IN ACCESS EXCLUSIVE MODE")
            else:
                connection.execute("CREATE TABLE maillard.version (number BIGINT NOT NULL)")
                connection.execute("INSERT INTO maillard.version VALUES (0)")
            for migration in schema.MIGRATIONS[version:]:
                # Collation "C" sorts by bytes, as SQLite and Python do.
                statements = migration.format(**_COLUMN_TYPES).replace(" TEXT", ' TEXT COLLATE "C"')
                connection.execute(statements.encode())
            connection.execute("UPDATE maillard.version SET number = %s", [len(schema.MIGRATIONS)])

    def _version(self, connection: Connection, exists: bool) -> int:
        """The version of the log's tables; 0 if there are none."""
        return schema.check_version(_one(connection.execute(_VERSION))[0] if exists else 0)

    def _connection_slot(self) -> AbstractContextManager[None]:
        """Wait for one of the pool's connections."""
        return self._acquired(self._permits, f"all {self._size} connections were in use for")

    @contextmanager
    def _transaction(self, experiment: str, mode: _Mode) -> Iterator[_Transaction]:
        with self._translate_errors(), self._connection_slot(), ExitStack() as stack:
            with self._mutex:
                idle = self._idle.pop() if self._idle else None
            transaction = None
            if idle is not None:
                try:
                    transaction = stack.enter_context(self._run_on(idle, experiment, mode))
                except psycopg.OperationalError:
                    # The server may have restarted. Only reads were sent, so retry on a new connection.
                    if not idle.lost:
                        raise
            if transaction is None:
                transaction = stack.enter_context(self._run_on(self._connect(), experiment, mode))
            yield transaction

    @contextmanager
    def _run_on(self, connection: Connection, experiment: str, mode: _Mode) -> Iterator[_Transaction]:
        """A transaction on this connection, which becomes idle again if the transaction succeeds."""
        try:
            # A pipeline sends statements without waiting for the results of the previous ones.
            with connection.pipeline() as pipeline:
                connection.current_pipeline = pipeline
                try:
                    connection.execute(mode.begin)
                    transaction = _Transaction(connection, experiment, self._clock, mode)
                    yield transaction
                    transaction.write_link()
                    end = connection.execute("COMMIT")
                    pipeline.sync()
                    connection.skip_io = True  # the end of the pipeline would cost another round trip
                except BaseException as error:
                    connection.discard(error)
                    raise
            connection.skip_io = False
            if end.statusmessage != "COMMIT":  # COMMIT of a failed transaction responds ROLLBACK, no error
                reason = f"the server responded {end.statusmessage} to COMMIT"
                raise psycopg.OperationalError(reason)  # noqa: TRY301  # one place discards the connection
        except BaseException as error:
            connection.discard(error)
            raise
        transaction.note_commit()
        self._release_connection(connection)

    def _release_connection(self, connection: Connection) -> None:
        with self._mutex:
            if connection.generation == self._generation:
                self._idle.append(connection)
                return
        connection.close()

    # The contract.

    def transaction(
        self, experiment: str, *, lock: bool, exclusive: bool = False, wait: bool = True
    ) -> AbstractContextManager[SQLTransaction]:
        """Begin a transaction. With `lock` it locks the experiment's row; else it may only add decisions.

        Transactions that add decisions share an advisory lock, which an `exclusive` transaction takes
        exclusively. So a change waits for decisions in progress, and a reward does not.
        """
        advisory = "pg_advisory_xact_lock" + ("" if exclusive else "_shared") if exclusive or not lock else ""
        row = (" FOR UPDATE" if wait else " FOR UPDATE NOWAIT") if lock else ""
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
        return self._transaction(experiment, _Mode(begin, advisory, row))

    def reading(self, experiment: str) -> AbstractContextManager[SQLTransaction]:
        """Begin a read-only transaction."""
        return self._transaction(experiment, _READING)

    @contextmanager
    def scanning(self, experiment: str) -> Iterator[SQLTransaction]:
        """Begin a read-only transaction outside the pool, because reading a whole log takes long."""
        with self._translate_errors(), closing(self._connect()) as connection:
            connection.response_timeout *= _SCAN_TIMEOUT_FACTOR
            connection.execute(_READING.begin)
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield _Transaction(connection, experiment, self._clock, _READING)

    def scrub(self) -> None:
        """Vacuum the tables, so that no erased data is left in old row versions."""
        with self._translate_errors(), closing(self._connect()) as connection:
            connection.response_timeout = 3600.0  # it sends no response until it is done
            connection.execute("VACUUM (INDEX_CLEANUP ON) decisions, assignments")

    def reclaim(self) -> None:
        """Vacuum the tables of which rows were removed."""
        with self._translate_errors(), closing(self._connect()) as connection:
            connection.response_timeout = 3600.0  # it sends no response until it is done
            connection.execute("VACUUM decisions, rewards, events, vectors, links, assignments")

    def close(self) -> None:
        """Close idle connections now, and the others when their transactions end."""
        with self._mutex:
            idle, self._idle = self._idle, []
            self._generation += 1
        for connection in idle:
            connection.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeError) as error:
            # The primary message only: the details may quote the data that was written.
            primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
            reason = shown = " ".join((primary or str(error)).split())
            for secret in self._secrets:
                shown = shown.replace(secret, "***")
            cause = error if shown == reason else None
            raise self._unavailable(shown, "try again when the database works") from cause


class _Transaction(SQLTransaction):
    IN = "= ANY(?)"
    connection: Connection

    def __init__(
        self, connection: Connection, name: str, clock: Callable[[], int] | None, mode: _Mode
    ) -> None:
        super().__init__(name, connection.written)
        self.connection, self._clock, self._mode = connection, clock, mode
        self._chain_locked = False
        self.load()

    def load(self) -> None:
        """Lock and read the experiment's head, then read the clock: waiting for the lock may take time.

        Raise InvalidLog if a newer maillard has migrated the tables since the connection was opened.
        """
        version = self._execute(_VERSION)
        if self._mode.advisory:
            self._execute(f"SELECT {self._mode.advisory}(hashtextextended(?, ?))", [self.name, _LOCK])
        found = self._execute(self.SELECT_HEAD + self._mode.row, [self.name])
        # A separate statement, because PostgreSQL may evaluate a locking SELECT before it waits for the lock.
        clock = self._execute(f"SELECT {_CLOCK}") if self._clock is None else None
        schema.check_version(_one(version)[0])
        self.set_head(found.fetchall())
        self.now = int(_one(clock)[0]) if clock is not None else self._clock()  # type: ignore[misc]

    def counts(self) -> Counts:
        with self._longer_timeout():
            return super().counts()

    def visits(self, epoch: int) -> Visits:
        with self._longer_timeout():
            return super().visits(epoch)

    def erase_unit(self, unit: str, token: str) -> int:
        with self._longer_timeout():
            return super().erase_unit(unit, token)

    def _lock_chain(self) -> None:
        if not self._chain_locked:
            self._execute("SELECT pg_advisory_xact_lock(hashtextextended(?, ?))", [self.name, _CHAIN_LOCK])
            self._chain_locked = True

    def write_link(self) -> None:
        """Add the link. The server computes the hash, so that there is no need to wait for the last one."""
        if self.commit:
            digest = self.commit.digest()  # this sorts the records
            chained = [self.experiment, FIRST_HASH, digest, digest]
            self._execute(_ADD_LINK, [*chained, self.now, *self.commit.contents()])
            self.commit = Commit()

    @contextmanager
    def _longer_timeout(self) -> Iterator[None]:
        """Raise the response timeout for statements that read every row."""
        normal = self.connection.response_timeout
        self.connection.response_timeout = normal * _SCAN_TIMEOUT_FACTOR
        try:
            yield
        finally:
            self.connection.response_timeout = normal

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.connection.execute(_to_psycopg(statement), parameters, binary=True)

    def _fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self._execute(statement, parameters).fetchall()

    @contextmanager
    def _cursor(self, statement: str, parameters: Sequence[Any]) -> Iterator[Any]:
        with self.connection.cursor(name="rows", binary=True) as cursor:
            cursor.execute(_to_psycopg(statement), parameters)
            yield cursor

    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.connection.cursor().executemany(_to_psycopg(statement), rows)

    def _insert(self, statement: str, rows: Sequence[Sequence[Any]], clause: str) -> list[Any]:
        if not rows:
            return []
        cursor = self.connection.cursor(binary=True)
        cursor.executemany(_to_psycopg(statement + clause), rows, returning=True)
        found: list[Any] = cursor.fetchall()
        while cursor.nextset():
            found += cursor.fetchall()
        return found

    def _execute_counted(self, statement: str, parameters: Sequence[Any]) -> int:
        cursor = self._execute(statement, parameters)
        if self.connection.current_pipeline is not None:
            self.connection.current_pipeline.sync()
        return cursor.rowcount

    @staticmethod
    def _list(values: Iterable[str]) -> Any:
        return list(values)


@lru_cache(maxsize=256)
def _to_psycopg(statement: str) -> bytes:
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None  # the statement returns one row
    return row
