"""Failed writes: a clear error, no acknowledgement without a row, and recovery without intervention."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maillard.decisions import Bandit, Decision
from maillard.decisions.stores import open_store
from maillard.decisions.stores.postgresql import PostgreSQLStore
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import MaillardError, Unavailable
from tests.decisions import choosers
from tests.decisions.test_durability import PROCESSES, Worker, check_integrity, check_log
from tests.postgres import Server


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.005)


def make(log: Any) -> Bandit:
    return Bandit(choosers.ARMS, choosers.POLICY, reward=choosers.RULE, log=log)


class Load:
    """Threads that choose and reward, and retry calls that failed."""

    def __init__(self, bandit: Bandit, threads: int = 4) -> None:
        self.acknowledged: list[list[str]] = []
        self.errors: list[MaillardError] = []
        self._stop = threading.Event()
        self._bandit = bandit
        self._threads = [threading.Thread(target=self._work) for _ in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        for n in itertools.count():
            made: Decision | None = self._try(self._bandit.choose)
            if made is None:
                return
            self.acknowledged.append(["d", made.id, made.arm])
            value = n / 7
            if self._try(self._bandit.reward, made.id, value) is None:
                return
            self.acknowledged.append(["r", made.id, repr(value)])

    def _try(self, call: Callable[..., Any], *arguments: Any) -> Any:
        while not self._stop.is_set():
            try:
                return call(*arguments)
            except Unavailable as error:
                self.errors.append(error)
                time.sleep(0.002)
        return None

    def go_on(self, more: int = 40) -> None:
        """Wait until `more` further calls are acknowledged."""
        count = len(self.acknowledged)
        wait_for(lambda: len(self.acknowledged) >= count + more)

    def fail(self) -> MaillardError:
        """Wait until calls fail, and return the first error."""
        count = len(self.errors)
        wait_for(lambda: len(self.errors) >= count + 8)
        return self.errors[count]


def test_a_full_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    worker = Worker(choosers.fill_disk, path, Worker)
    lines = worker.acknowledged()
    assert worker.process.exitcode == 0
    check_integrity(path)
    errors = [line[2] for line in lines if line[0] == "u"]
    assert errors
    assert all(path in error and "Nothing was acknowledged" in error for error in errors)
    assert [line[0] for line in lines[-3:]] == ["d", "r", "x"]  # it continued when the file could grow again
    with closing(open_store(path)) as store:
        check_log(store, [line for line in lines if line[0] in "dr"])


def test_a_file_without_write_permission() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with make(path) as bandit:
            made = bandit.choose()
        before = path.read_bytes()
        path.parent.chmod(0o555)
        path.chmod(0o444)
        # Root may write everything, so the other process runs as nobody.
        worker = Worker(choosers.without_rights, str(path), Worker, made.id)
        lines = worker.acknowledged()
        assert worker.process.exitcode == 0
        assert [line[0] for line in lines] == ["u", "o"]
        assert str(path) in lines[0][2]
        assert lines[1][2] == made.arm  # reading still works
        assert path.read_bytes() == before
        path.parent.chmod(0o755)
        path.chmod(0o644)
        with make(path) as bandit:
            bandit.reward(made.id, 1.0)


@pytest.mark.parametrize(
    ("broken", "mended", "message"),
    [
        ("query_only = ON", "query_only = OFF", "readonly"),
        ("max_page_count = 1", "max_page_count = 1073741823", "full"),  # no new pages
    ],
)
def test_a_file_that_cannot_be_written_for_a_while(
    tmp_path: Path, broken: str, mended: str, message: str
) -> None:
    store = SQLiteStore(tmp_path / "log.db")
    bandit = make(store)
    with Load(bandit) as load:
        load.go_on()
        with store._lock:
            store._write_connection().execute(f"PRAGMA {broken}").fetchall()
        assert message in str(load.fail())
        with store._lock:
            store._write_connection().execute(f"PRAGMA {mended}").fetchall()
        load.go_on()
    check_log(store, load.acknowledged)
    bandit.close()


def test_a_database_that_another_process_has_locked(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    store = SQLiteStore(path, timeout=1)
    bandit = make(store)
    locked, enough = PROCESSES.Event(), PROCESSES.Event()
    with Load(bandit) as load:
        load.go_on()
        other = PROCESSES.Process(target=choosers.lock, args=(path, locked, enough))
        other.start()
        try:
            assert locked.wait(60)
            error = load.fail()
            assert "locked" in str(error)
            assert (
                bandit.decision(load.acknowledged[0][1]).arm == load.acknowledged[0][2]
            )  # reading still works
        finally:
            enough.set()
            other.join()
        load.go_on()
    check_log(store, load.acknowledged)
    bandit.close()


class _Attempts:
    """A connection that counts how often a transaction is begun; `enough` is called at the 30th time."""

    def __init__(self, path: str, enough: Callable[[], Any]) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._enough, self.count = enough, 0

    def execute(self, statement: str, *parameters: Any) -> Any:
        self.count += statement == "BEGIN IMMEDIATE"
        if self.count == 30:
            self._enough()
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_writer_tries_often_while_another_process_writes(tmp_path: Path) -> None:
    """SQLite alone tries 16 times in a second, and then ten times. Busy processes would starve each other."""
    path = str(tmp_path / "log.db")
    make(path).close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        connections: list[_Attempts] = []

        def connect(where: str) -> _Attempts:
            connections.append(_Attempts(where, lambda: other.in_transaction and other.execute("ROLLBACK")))
            return connections[-1]

        bandit = make(SQLiteStore(path, connect=connect, timeout=600))
        writer = connections[0]
        writer.count = 0
        other.execute("BEGIN IMMEDIATE")
        bandit.choose()
        assert writer.count == 30
        bandit.close()


def test_a_file_that_is_not_a_log(tmp_path: Path) -> None:
    for name, content in {
        "text.db": b"not a database, but longer than the header of one" * 100,
        "empty.db": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    for name in ("text.db", "other.db"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(MaillardError, match="log"):
            make(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    make(tmp_path / "empty.db").close()
    with pytest.raises(MaillardError, match="folder that exists"):
        make(tmp_path / "nowhere" / "log.db")
    with pytest.raises(MaillardError):
        make(tmp_path)


@pytest.mark.parametrize("immediate", [True, False])
def test_a_server_that_stops_and_starts_again(private_postgres: Server, immediate: bool) -> None:
    store = PostgreSQLStore(private_postgres.url())
    bandit = make(store)
    with Load(bandit) as load:
        load.go_on()
        private_postgres.stop(immediate=immediate)
        error = load.fail()
        assert store.where in str(error)
        assert "Nothing was acknowledged" in str(error)
        private_postgres.start()
        load.go_on()
    check_log(store, load.acknowledged)
    assert len(store.experiments()) == 1
    bandit.close()


def test_closed_idle_connections_are_not_an_error(private_postgres: Server) -> None:
    store = PostgreSQLStore(private_postgres.url())
    bandit = make(store)
    for immediate in (False, True):
        bandit.reward(bandit.choose().id, 1.0)
        private_postgres.stop(immediate=immediate)
        private_postgres.start()
        bandit.reward(bandit.choose().id, 1.0)
    assert bandit.tally.round == 5
    bandit.close()


def processes_of(server: Server) -> list[int]:
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return [postmaster, *map(int, children)]


@pytest.fixture
def frozen(private_postgres: Server) -> Iterator[Callable[[bool], None]]:
    stopped: list[int] = []

    def freeze(on: bool) -> None:
        if on:
            stopped[:] = processes_of(private_postgres)
        for process in stopped:
            os.kill(process, signal.SIGSTOP if on else signal.SIGCONT)
        if not on:
            stopped.clear()

    yield freeze
    freeze(False)


def test_a_server_that_does_not_respond(private_postgres: Server, frozen: Callable[[bool], None]) -> None:
    store = PostgreSQLStore(private_postgres.url(), timeout=3)
    bandit = make(store)
    made = bandit.choose()
    frozen(True)
    for _ in range(2):  # with an existing and with a new connection
        with pytest.raises(Unavailable, match=r"not responded|timeout"):
            bandit.reward(made.id, 1.0)
    frozen(False)
    assert bandit.reward(made.id, 1.0) == "applied"
    check_log(store, [["d", made.id, made.arm], ["r", made.id, "1.0"]])
    bandit.close()
