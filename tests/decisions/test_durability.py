"""Acknowledged rows are in the log: after kills, after power loss, and from forked processes."""

from __future__ import annotations

import json
import os
import select
import sqlite3
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pytest

from maillard.decisions import Bandit
from maillard.decisions.state import replay
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import MaillardError
from maillard.tally import Tally
from tests.decisions import choosers
from tests.decisions.power import Disk

# Other tests of the process may have imported JAX, which warns of every fork.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.decisions.choosers", "maillard.decisions.stores.sqlite", "psycopg"])
DURABLE = ["sqlite", "postgresql"]


@pytest.fixture(params=DURABLE)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "log.db")
    return str(request.getfixturevalue("postgres"))


class Worker:
    """A process that reports acknowledged calls through a pipe."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        self._reading, writing = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(
            target=target, args=tuple(writing if a is Worker else a for a in arguments)
        )
        self.process.start()
        writing.close()
        self._received = b""

    def listen(self, seconds: float) -> None:
        """Read its output for some time, so that it never blocks on a full pipe."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._reading], [], [], left)[0] and not self._read():
                return

    def await_lines(self, count: int) -> None:
        """Read its output until it has written at least this many lines."""
        while self._received.count(b"\n") < count:
            assert self._read(), "the process has ended"

    def _read(self) -> bytes:
        some = os.read(self._reading.fileno(), 65536)
        self._received += some
        return some

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def acknowledged(self) -> list[list[str]]:
        """All lines of output, after the process and its children have ended."""
        while self._read():
            pass
        self.process.join()
        self._reading.close()
        return [line.split(" ", 2) for line in self._received.decode().splitlines()]


def check_log(store: Store, lines: list[list[str]], experiment: str = "default") -> None:
    """No acknowledged row is missing, no row is duplicated, and the state agrees with the log."""
    rows = {row.id: (row, rewards, events) for row, rewards, events in store.rows(experiment)}
    assert len(rows) == len(list(store.rows(experiment)))
    for kind, identifier, content in lines:
        if kind == "d":
            assert rows[identifier][0].arm == content
        elif kind == "r":
            (reward,) = rows[identifier][1]
            assert reward.value == float(content)
    made = Counter(identifier for kind, identifier, _ in lines if kind == "d")
    assert not made or max(made.values()) == 1
    bandit = Bandit(log=store, experiment=experiment)
    recomputed, statistics = Tally.empty(len(bandit.state.arms)), bandit.state.empty_statistics()
    for row, rewards, events in rows.values():
        assert [event.kind for event in events] == ["reward"] * len(rewards)
        if rewards:
            if statistics is not None:
                x = choosers.FEATURES.encode(json.loads(row.context))
                statistics.add(x, bandit.state.reward.total(rewards), bandit.state.arms.index(row.arm))
            recomputed.add(bandit.state.arms.index(row.arm), bandit.state.reward.total(rewards))
    with store.reading(experiment) as transaction:
        history = transaction.events(0)
    assert [event.number for event in history] == list(range(1, len(history) + 1))
    assert bandit.tally == replay(history).tally == recomputed
    assert bandit.statistics == replay(history).statistics == statistics
    context = {"device": "phone", "age": 20} if bandit.statistics else None
    assert bandit.choose(context=context).state == len(history)


def check_integrity(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize(
    ("kills", "contextual"),
    [(10, False), (4, True), *(pytest.param(100, each, marks=pytest.mark.torture) for each in (False, True))],
)
def test_kills_lose_and_duplicate_no_acknowledged_row(where: str, kills: int, contextual: bool) -> None:
    moments, lines, awaited = Random(7), [], 0
    for kill in range(kills):
        worker = Worker(choosers.until_killed, where, Worker, contextual)
        if kill % 5:  # the others may be killed while they open the log
            count = moments.randrange(1, 60)
            worker.await_lines(count)
            awaited += count
        worker.listen(moments.uniform(0, 0.05))
        worker.kill()
        lines += worker.acknowledged()
        if "://" not in where:
            check_integrity(where)
    assert len(lines) >= awaited > 10 * kills
    with closing(open_store(where)) as store:
        check_log(store, lines)


# Power loss.


def lose_power(
    folder: Path, synchronous: str, rng: Random | None, losses: int, contextual: bool = False
) -> list[int]:
    """The number of acknowledged rows lost in each simulated power loss; if none, the log is verified."""
    disk = Disk()
    store = SQLiteStore(folder / "log.db", connect=disk.connect, synchronous=synchronous)
    options = choosers.CONTEXTUAL if contextual else {"policy": choosers.POLICY}
    bandit = Bandit(choosers.ARMS, reward=choosers.RULE, log=store, **options)
    lines: list[str] = []
    stop = threading.Event()
    times = lambda: iter(lambda: int(stop.is_set()), 1)  # noqa: E731
    threads = [
        threading.Thread(target=choosers.choose_and_reward, args=(bandit, lines.append, times()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    moments = Random(11)
    taken: list[int] = []
    deadline = time.monotonic() + 60
    while len(taken) < losses and time.monotonic() < deadline:
        time.sleep(moments.uniform(0, 0.01))
        # Counted before the loss: rows that are acknowledged during it may or may not survive.
        if len(lines) > 20 + (taken[-1] if taken else 0):
            taken.append(len(lines))
            disk.lose_power(folder / str(len(taken)), rng)
    stop.set()
    for thread in threads:
        thread.join()
    bandit.close()
    assert len(taken) == losses
    return [
        missing_after(folder / str(n) / "log.db", [line.split(" ", 2) for line in lines[:count]])
        for n, count in enumerate(taken, 1)
    ]


def test_power_loss_with_contexts(tmp_path: Path) -> None:
    assert lose_power(tmp_path, "FULL", Random(3), 3, contextual=True) == [0] * 3


def missing_after(path: Path, lines: list[list[str]]) -> int:
    """The number of acknowledged rows that are missing in a log."""
    try:
        with closing(SQLiteStore(path)) as store:
            found = {row.id: rewards for row, rewards, _ in store.rows("default")}
            missing = sum(
                identifier not in found or (kind == "r" and not found[identifier])
                for kind, identifier, _ in lines
            )
            if not missing:
                check_log(store, lines)
    except MaillardError:  # the file is damaged
        return len(lines)
    check_integrity(str(path))
    return missing


@pytest.mark.parametrize("rest", ["is lost", "survives in part"])
def test_power_loss_loses_no_acknowledged_row(tmp_path: Path, rest: str) -> None:
    assert lose_power(tmp_path, "FULL", Random(5) if rest == "survives in part" else None, 20) == [0] * 20


def test_without_syncs_power_loss_loses_acknowledged_rows(tmp_path: Path) -> None:
    assert max(lose_power(tmp_path, "OFF", None, 3)) > 0


# Forks.


@pytest.mark.parametrize("parent_exits", [False, True])
def test_forked_children_can_use_the_bandit_of_their_parent(where: str, parent_exits: bool) -> None:
    worker = Worker(choosers.forked_children, where, Worker, parent_exits)
    lines = worker.acknowledged()
    assert worker.process.exitcode == 0
    if not parent_exits:
        assert [status for kind, _, status in lines if kind == "x"] == ["0"] * 4
    samples = [content for kind, _, content in lines if kind == "s"]
    assert len(set(samples)) == 4  # each child has its own random numbers
    with closing(open_store(where)) as store:
        check_log(store, [line for line in lines if line[0] in "dr"])
        assert len(list(store.rows("default"))) > 4 * 64
    if "://" not in where:
        check_integrity(where)


# Python 3.12 warns of forks in multi-threaded processes, which this test makes on purpose.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_bandit_can_be_sent_to_another_process(where: str, method: str) -> None:
    context = get_context(method)
    bandit = Bandit(choosers.ARMS, choosers.POLICY, reward=choosers.RULE, log=where)
    reading, writing = context.Pipe(duplex=False)
    others = [context.Process(target=choosers.pickled, args=(bandit, writing)) for _ in range(2)]
    for other in others:
        other.start()
    writing.close()
    lines: list[str] = []
    choosers.choose_and_reward(bandit, lines.append, range(20))
    received = b""
    while some := os.read(reading.fileno(), 65536):
        received += some
    reading.close()
    for other in others:
        other.join()
        assert other.exitcode == 0
    lines += received.decode().splitlines()
    assert len(lines) == 3 * 40
    check_log(bandit._store, [line.split(" ", 2) for line in lines])
    bandit.close()


def test_after_a_fork_during_a_read_only_the_parent_can_use_the_log(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    worker = Worker(choosers.fork_while_reading, path, Worker)
    lines = worker.acknowledged()
    assert worker.process.exitcode == 0
    assert [line[0] for line in lines if line[0] in "uo"] == ["u", "u", "o"]
    assert all("forked while" in line[2] for line in lines if line[0] == "u")
    with closing(open_store(path)) as store:
        check_log(store, [line for line in lines if line[0] in "dr"])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_that_ends_a_read_does_not_end_that_of_its_parent(postgres: str) -> None:
    with Bandit(choosers.ARMS, choosers.POLICY, reward=choosers.RULE, log=postgres):
        pass
    with closing(open_store(postgres)) as store, ExitStack() as stack:
        transaction = stack.enter_context(store.scanning("default"))
        before = transaction.events(0)
        child = get_context("fork").Process(target=stack.close)
        child.start()
        child.join()
        assert child.exitcode == 0
        assert transaction.events(0) == before


def test_a_log_in_memory_cannot_be_used_in_a_forked_child() -> None:
    worker = Worker(choosers.forked_memory, Worker)
    lines = worker.acknowledged()
    assert len(lines) == 3
    assert all("cannot be used in another process" in message for _, _, message in lines)
