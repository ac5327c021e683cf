"""Acknowledged decisions and rewards are in the log.

After `kill -9` under load, after restarts of PostgreSQL, and with two services on one database.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from maillard.decisions import verify
from tests.decisions.test_durability import check_integrity
from tests.postgres import Server
from tests.service.clients import ARMS, EXPERIMENT, ClientRecord, Clients, contradictions, create_experiment
from tests.serving import Service, serving

MIN_RATE = 500  # requests a second
MAX_START = 2.0  # seconds


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "log.db")
    return str(request.getfixturevalue("postgres"))


def check(database: str, record: ClientRecord) -> None:
    """Assert that nothing acknowledged is lost, duplicated or changed, and recompute every probability."""
    wrong = contradictions(database, record)
    assert not wrong, "\n".join([f"{len(wrong)} contradictions", *wrong[:5]])
    found = verify(database, EXPERIMENT)
    assert found.problems == []
    assert all(score.z is None or abs(score.z) < 7 for score in found.arms)  # requests interleave at random
    assert found.recomputed == found.decisions == len(record.decisions)
    if "://" not in database:
        check_integrity(database)


def report(what: str, kill_test: KillTest, record: ClientRecord) -> None:
    print(
        f"{what}: ready after {statistics.median(kill_test.starts):.2f} s (median), "
        f"{max(kill_test.starts):.2f} s (worst), {max(kill_test.cpu_starts):.2f} s (worst, without waiting "
        f"for a processor); {kill_test.rate:,.0f} requests per second; "
        f"{len(record.decisions):,} decisions and {len(record.rewards):,} rewards acknowledged; "
        f"retried after status: {dict(record.refused)}"
    )


def check_performance(kill_test: KillTest) -> None:
    """Assert that the load was high enough and restarts were fast. For torture tests, on an idle machine.

    The median start is within the limit, and so is every start minus the time spent waiting for a processor.
    """
    assert kill_test.rate >= MIN_RATE
    assert statistics.median(kill_test.starts) < MAX_START, kill_test.starts
    assert max(kill_test.cpu_starts) < MAX_START, kill_test.cpu_starts


class KillTest:
    """A service under load that is killed and restarted, with the times that its starts took."""

    def __init__(self, service: Service, clients: Clients) -> None:
        self._service, self._clients, self._moments = service, clients, Random(7)
        self.seconds = 0.0
        self.starts: list[float] = []
        "Seconds from each kill until the service was ready."
        self.cpu_starts: list[float] = []
        "The same without the time that the service waited for a processor."
        self.requests = 0

    def run_load(self, least: int = 20) -> None:
        """Let the clients work for a moment."""
        before, began = self._clients.record.requests, time.monotonic()
        self._clients.wait_for_requests(least)
        time.sleep(self._moments.uniform(0.1, 0.5))
        self.seconds += time.monotonic() - began
        self.requests += self._clients.record.requests - before

    def kill(self, while_starting: bool) -> None:
        """Kill and restart the service; with `while_starting`, kill it a second time while it starts."""
        if while_starting:
            self._service.kill()
            self._service.launch()
            time.sleep(self._moments.uniform(0, 1))
        self.add_start(self._service.restart(), self._service.cpu_wait)

    def add_start(self, seconds: float, cpu_wait: float = 0.0) -> None:
        """Record a start."""
        self.starts.append(seconds)
        self.cpu_starts.append(seconds - cpu_wait)

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.torture)])
def test_kills_under_load_lose_and_duplicate_nothing(database: str, kills: int) -> None:
    with serving(database) as service:
        create_experiment(service)
        with Clients([service], 32) as clients:
            kill_test = KillTest(service, clients)
            for kill in range(kills):
                kill_test.run_load()
                kill_test.kill(while_starting=kill % 5 == 4)
            kill_test.run_load()
    report(f"{kills} kills", kill_test, clients.record)
    assert clients.record.refused[0] >= kills  # each kill breaks at least one request
    check(database, clients.record)
    if kills >= 100:
        check_performance(kill_test)


# A store that acknowledges before it commits: after the first decision of a process it never commits.
_EARLY_ACKNOWLEDGEMENT = """
import sqlite3
from maillard.decisions.stores.sqlite import SQLiteStore

class EarlyAcknowledgement(sqlite3.Connection):
    has_decisions = False

    def execute(self, statement, *parameters):
        if "INTO decisions" in statement:
            self.has_decisions = True
        elif statement == "COMMIT" and self.has_decisions:
            statement = "SELECT 0"
        elif statement == "BEGIN IMMEDIATE" and self.in_transaction:
            statement = "SELECT 0"
        return super().execute(statement, *parameters)

def connect(store, path):
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=EarlyAcknowledgement)

SQLiteStore._open = connect

# Look up idempotency keys first: a key that turns out to be used would roll back what was acknowledged.
from maillard.decisions.stores.shared_commits import SQLiteSharedTransaction
SQLiteSharedTransaction.expects_new = property(lambda self: False, lambda self, value: None)
"""


def test_acknowledging_before_the_commit_is_detected(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with serving(path, prelude=_EARLY_ACKNOWLEDGEMENT) as service:
        create_experiment(service)
        with Clients([service], 16) as clients:
            kill_test = KillTest(service, clients)
            for _ in range(4):
                kill_test.run_load(100)
                service.restart()
    found = contradictions(path, clients.record)
    assert any("is lost" in each for each in found)
    with pytest.raises(AssertionError):
        check(path, clients.record)


@dataclass(frozen=True)
class SmallLog:
    """A log and the record of its clients."""

    database: str
    record: ClientRecord


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallLog:
    database = str(tmp_path_factory.mktemp("service") / "log.db")
    with serving(database) as service:
        create_experiment(service)
        with Clients([service], 4, decisions=60, rewarded=2) as clients:
            clients.join()
    check(database, clients.record)
    return SmallLog(database, clients.record)


def _change_first(
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[[ClientRecord], ClientRecord]:
    def changed(record: ClientRecord) -> ClientRecord:
        key = next(iter(record.decisions))
        return replace(record, decisions=record.decisions | {key: change(record.decisions[key])})

    return changed


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (_change_first(lambda response: response | {"id": response["id"][::-1]}), "is lost"),
        (_change_first(lambda response: response | {"arm": "mauve"}), "was sent"),
        (
            _change_first(
                lambda response: response | {"log_probability": response["log_probability"] - 1e-15}
            ),
            "was sent",
        ),
        (
            lambda record: replace(record, decisions=dict(list(record.decisions.items())[1:])),
            "no client received",
        ),
        (lambda record: replace(record, rewards=dict(list(record.rewards.items())[1:])), "was acknowledged"),
        (lambda record: replace(record, rewards=dict.fromkeys(record.rewards, 0.5)), "the tally is"),
        (lambda record: replace(record, rewards=record.rewards | {"unknown": 1.0}), "is lost"),
        (lambda record: replace(record, faults=["409"]), "409"),
    ],
)
def test_contradictions_between_log_and_record_are_detected(
    small: SmallLog, changed: Callable[[ClientRecord], ClientRecord], found: str
) -> None:
    assert any(found in each for each in contradictions(small.database, changed(small.record)))


@pytest.mark.parametrize("restarts", [2, pytest.param(20, marks=pytest.mark.torture)])
def test_restarts_of_postgresql_under_load(private_postgres: Server, restarts: int) -> None:
    database = private_postgres.url()
    with serving(database) as service:
        create_experiment(service)
        first = service.pid
        with Clients([service], 32) as clients:
            kill_test = KillTest(service, clients)
            for restart in range(restarts):
                kill_test.run_load()
                private_postgres.stop(immediate=restart % 2 == 0)
                private_postgres.start()
                began = time.monotonic()
                service.await_ready()
                clients.wait_for_requests(1)
                kill_test.add_start(time.monotonic() - began)
            kill_test.run_load()
        assert service.pid == first
        report(f"{restarts} restarts of PostgreSQL", kill_test, clients.record)
        check(database, clients.record)
    if restarts >= 20:
        check_performance(kill_test)


@pytest.mark.parametrize("decisions", [5_000, pytest.param(100_000, marks=pytest.mark.torture)])
def test_two_services_on_one_postgresql(postgres: str, decisions: int) -> None:
    with ExitStack() as stack:
        services = [stack.enter_context(serving(postgres)) for _ in range(2)]
        create_experiment(services[0])
        with Clients(services, 64, decisions, rewarded=4) as clients:
            clients.join()
    record = clients.record
    assert len(record.decisions) == decisions
    check(postgres, record)
    scores = verify(postgres, EXPERIMENT).arms
    assert sorted(score.name for score in scores) == sorted(ARMS)
    for score in scores:
        assert score.z is not None, score
        assert abs(score.z) < 7, score
