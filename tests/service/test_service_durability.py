"""What the service acknowledged is in its log: after `kill -9` under load, after restarts of PostgreSQL, from two services at once."""

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
from tests.service.clients import ARMS, EXPERIMENT, Clients, Told, begin, contradictions
from tests.serving import Service, serving

LEAST_RATE = 500  # requests a second
READY = 2.0  # seconds


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "log.db")
    return str(request.getfixturevalue("postgres"))


def check(where: str, told: Told) -> None:
    """Nothing acknowledged is lost, doubled or altered, and every probability can be computed again."""
    wrong = contradictions(where, told)
    assert not wrong, "\n".join([f"{len(wrong)} contradictions", *wrong[:5]])
    found = verify(where, EXPERIMENT)
    assert found.problems == []
    assert all(score.z is None or abs(score.z) < 7 for score in found.arms)  # requests interleave at random
    assert found.recomputed == found.decisions == len(told.decisions)
    if "://" not in where:
        check_integrity(where)


def report(what: str, lives: Lives, told: Told) -> None:
    print(
        f"{what}: ready after {statistics.median(lives.starts):.2f} s (median), {max(lives.starts):.2f} s (worst), "
        f"{max(lives.own_starts):.2f} s (worst, without waiting for a processor); {lives.rate:,.0f} requests a second; "
        f"{len(told.decisions):,} decisions and {len(told.rewards):,} rewards acknowledged; "
        f"sent again after status: {dict(told.refused)}"
    )


def check_lives(lives: Lives) -> None:
    """The load was high enough, and the service was ready again soon: for torture, on a machine that is not busy.

    Half of the starts are within the limit. Each one is, without the time in which other processes had the
    processors.
    """
    assert lives.rate >= LEAST_RATE
    assert statistics.median(lives.starts) < READY, lives.starts
    assert max(lives.own_starts) < READY, lives.own_starts


class Lives:
    """The lives of a service under load: how long each was, and how long it took to begin."""

    def __init__(self, service: Service, clients: Clients) -> None:
        self._service, self._clients, self._moments = service, clients, Random(7)
        self.seconds = 0.0
        self.starts: list[float] = []
        "Seconds from a kill until the next life was ready."
        self.own_starts: list[float] = []
        "The same, without those in which it could have run and others had the processors."
        self.requests = 0

    def live(self, least: int = 20) -> None:
        """Answer requests for a moment."""
        before, began = self._clients.told.requests, time.monotonic()
        self._clients.go_on(least)
        time.sleep(self._moments.uniform(0.1, 0.5))
        self.seconds += time.monotonic() - began
        self.requests += self._clients.told.requests - before

    def die(self, while_starting: bool) -> None:
        """Be killed, perhaps once more in the next start, and start."""
        if while_starting:
            self._service.kill()
            self._service.launch()
            time.sleep(self._moments.uniform(0, 1))
        self.start(self._service.restart(), self._service.waited)

    def start(self, seconds: float, waited: float = 0.0) -> None:
        """Another life has begun."""
        self.starts.append(seconds)
        self.own_starts.append(seconds - waited)

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.torture)])
def test_kills_under_load_lose_nothing_and_double_nothing(where: str, kills: int) -> None:
    with serving(where) as service:
        begin(service)
        with Clients([service], 32) as clients:
            lives = Lives(service, clients)
            for kill in range(kills):
                lives.live()
                lives.die(while_starting=kill % 5 == 4)
            lives.live()
    report(f"{kills} kills", lives, clients.told)
    assert clients.told.refused[0] >= kills  # each kill cut somebody short
    check(where, clients.told)
    if kills >= 100:
        check_lives(lives)


# A store that says too early that it has committed: of its transactions with decisions, it commits every
# twentieth.
_TOO_EARLY = """
import sqlite3
from maillard.decisions.stores.sqlite import SQLiteStore

class TooEarly(sqlite3.Connection):
    drew, count = False, 0

    def execute(self, statement, *parameters):
        if "INTO decisions" in statement:
            self.drew = True
        elif statement == "COMMIT" and self.drew:
            self.drew, self.count = False, self.count + 1
            statement = "COMMIT" if self.count % 20 == 0 else "SELECT 0"
        elif statement == "BEGIN IMMEDIATE" and self.in_transaction:
            statement = "SELECT 0"
        return super().execute(statement, *parameters)

def connect(store, path):
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=TooEarly)

SQLiteStore._open = connect
"""


def test_a_service_that_acknowledges_before_it_commits_is_found_out(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with serving(path, prelude=_TOO_EARLY) as service:
        begin(service)
        with Clients([service], 16) as clients:
            lives = Lives(service, clients)
            for _ in range(4):
                lives.live(100)
                service.restart()
    found = contradictions(path, clients.told)
    assert any("is lost" in each for each in found)
    with pytest.raises(AssertionError):
        check(path, clients.told)


@dataclass(frozen=True)
class Small:
    """A log, and what clients were told of it."""

    where: str
    told: Told


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    where = str(tmp_path_factory.mktemp("service") / "log.db")
    with serving(where) as service:
        begin(service)
        with Clients([service], 4, decisions=60, rewarded=2) as clients:
            clients.join()
    check(where, clients.told)
    return Small(where, clients.told)


def _forge(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Told], Told]:
    def forged(told: Told) -> Told:
        key = next(iter(told.decisions))
        return replace(told, decisions=told.decisions | {key: change(told.decisions[key])})

    return forged


@pytest.mark.parametrize(
    ("forged", "found"),
    [
        (_forge(lambda answer: answer | {"id": answer["id"][::-1]}), "is lost"),
        (_forge(lambda answer: answer | {"arm": "mauve"}), "was told"),
        (_forge(lambda answer: answer | {"log_probability": answer["log_probability"] - 1e-15}), "was told"),
        (lambda told: replace(told, decisions=dict(list(told.decisions.items())[1:])), "nobody was told"),
        (lambda told: replace(told, rewards=dict(list(told.rewards.items())[1:])), "was acknowledged"),
        (lambda told: replace(told, rewards=dict.fromkeys(told.rewards, 0.5)), "the tally is"),
        (lambda told: replace(told, rewards=told.rewards | {"unheard of": 1.0}), "is lost"),
        (lambda told: replace(told, faults=["409"]), "409"),
    ],
)
def test_what_was_not_said_is_found_out(small: Small, forged: Callable[[Told], Told], found: str) -> None:
    assert any(found in each for each in contradictions(small.where, forged(small.told)))


@pytest.mark.parametrize("restarts", [2, pytest.param(20, marks=pytest.mark.torture)])
def test_restarts_of_postgresql_under_load(private_postgres: Server, restarts: int) -> None:
    where = private_postgres.url()
    with serving(where) as service:
        begin(service)
        first = service.pid
        with Clients([service], 32) as clients:
            lives = Lives(service, clients)
            for restart in range(restarts):
                lives.live()
                private_postgres.stop(immediate=restart % 2 == 0)
                private_postgres.start()
                began = time.monotonic()
                service.await_ready()
                clients.go_on(1)
                lives.start(time.monotonic() - began)
            lives.live()
        assert service.pid == first
        report(f"{restarts} restarts of PostgreSQL", lives, clients.told)
        check(where, clients.told)
    if restarts >= 20:
        check_lives(lives)


@pytest.mark.parametrize("decisions", [5_000, pytest.param(100_000, marks=pytest.mark.torture)])
def test_two_services_on_one_postgresql(postgres: str, decisions: int) -> None:
    with ExitStack() as stack:
        services = [stack.enter_context(serving(postgres)) for _ in range(2)]
        begin(services[0])
        with Clients(services, 64, decisions, rewarded=4) as clients:
            clients.join()
    told = clients.told
    assert len(told.decisions) == decisions
    check(postgres, told)
    scores = verify(postgres, EXPERIMENT).arms
    assert sorted(score.name for score in scores) == sorted(ARMS)
    for score in scores:
        assert score.z is not None, score
        assert abs(score.z) < 7, score
