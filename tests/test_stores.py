"""One suite over every store: the contract, primitive by primitive, and what bandits make of it."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import psycopg
import pytest
from hypothesis import given, settings

from maillard.decisions import Bandit, Decision, Reward, ledger
from maillard.decisions.identifiers import new_ids
from maillard.decisions.records import Event, Observation
from maillard.decisions.state import replay
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.contract import Counts, Drawn, Head, Parked, Transaction
from maillard.decisions.stores.memory import MemoryStore, system_clock
from maillard.decisions.stores.postgresql import PostgreSQLStore
from maillard.decisions.stores.schema import MIGRATIONS
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import Conflict, InvalidValue, MaillardError, Paused, Unavailable, UnknownName
from maillard.tally import Tally
from tests import choosers
from tests.postgres import postgres, postgres_server  # noqa: F401  # fixtures

UNIT_RANGE = Reward(low=0, high=1)
EXPERIMENT = "home"
KINDS = ["memory", "sqlite", "postgresql"]


def new_id() -> str:
    return new_ids(1)[0]


class Clock:
    """A store's clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = system_clock()

    def __call__(self) -> int:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


class Log:
    """A log that can be opened several times."""

    def __init__(self, where: str | None) -> None:
        self.where, self.clock = where, Clock()
        self.opened: list[Store] = []
        self._memory = MemoryStore(self.clock) if where is None else None

    @property
    def kind(self) -> str:
        return KINDS[0] if self.where is None else KINDS[1 + self.where.startswith("postgresql://")]

    def open(self) -> Store:
        if self._memory is not None:
            return self._memory
        if self.kind == "postgresql":
            self.opened.append(PostgreSQLStore(self.where, clock=self.clock))
        else:
            self.opened.append(SQLiteStore(self.where, clock=self.clock))
        return self.opened[-1]

    def bandit(self, arms=("red", "blue"), policy="ms", reward=UNIT_RANGE, **options: Any) -> Bandit:
        options = {"log": self.open(), "experiment": EXPERIMENT, "staleness": 0} | options
        return Bandit(arms, policy, reward=reward, **options)

    def contents(self) -> Any:
        """Every row of every table."""
        if self._memory is not None:
            return repr(self._memory._experiments)
        if self.kind == "postgresql":
            with psycopg.connect(self.where) as connection:
                names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'maillard'")
                return {
                    name: sorted(map(repr, connection.execute(f'SELECT * FROM maillard."{name}"')))
                    for (name,) in names.fetchall()
                }
        with closing(sqlite3.connect(self.where)) as file:
            tables = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name: file.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for (name,) in tables
            }


@pytest.fixture(params=KINDS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    where = {
        "memory": lambda: None,
        "sqlite": lambda: str(tmp_path / "log.db"),
        "postgresql": lambda: request.getfixturevalue("postgres"),
    }[request.param]()
    made = Log(where)
    yield made
    for store in made.opened:
        store.close()


@pytest.fixture
def store(log: Log) -> Store:
    """A store with one experiment, which has started."""
    log.bandit()
    return log.open()


def decision(**fields: Any) -> Decision:
    made = {
        "id": new_id(),
        "experiment": EXPERIMENT,
        "time": system_clock(),
        "unit": None,
        "arm": "red",
        "eligible": ("red", "blue"),
        "log_probabilities": (-0.1, -2.0),
        "log_probability": -0.1,
        "policy_version": 1,
        "formula_version": 1,
        "state": 1,
        "epoch": 1,
        "cold": True,
    }
    return Decision(**made | fields)


def observation(
    row: Decision | str, value: float = 1.0, event: str = "e", at: int = 5, **more: Any
) -> Observation:
    identifier = row if isinstance(row, str) else row.id
    return Observation(decision=identifier, event=event, value=value, at=at, **{"arrived": 7} | more)


def write(store: Store, experiment: str = EXPERIMENT, lock: bool = True) -> Any:
    return store.transaction(experiment, lock=lock)


def events(store: Store, after: int = 0, experiment: str = EXPERIMENT) -> list[Event]:
    with store.reading(experiment) as transaction:
        return transaction.events(after)


def rewards_of(store: Store, experiment: str = EXPERIMENT) -> dict[str, tuple[Observation, ...]]:
    return {row.id: rewards for row, rewards, _ in store.rows(experiment)}


# The contract.


def test_an_experiment_is_made_once(log: Log) -> None:
    store = log.open()
    assert store.experiments() == []
    with write(store) as transaction:
        assert transaction.head is None
        transaction.create()
        assert transaction.head == Head(0, 0, 0)
        transaction.create()
        assert transaction.head == Head(0, 0, 0)
    with write(store, "\N{SNOWMAN} 'quoted\" %s ? {}") as transaction:
        transaction.create()
    assert store.experiments() == sorted([EXPERIMENT, "\N{SNOWMAN} 'quoted\" %s ? {}"])


def test_time_is_that_of_the_stores_clock(log: Log) -> None:
    store = log.open()
    with write(store) as transaction:
        assert transaction.now == log.clock.now
    log.clock.forward(5)
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.now == log.clock.now


@pytest.mark.parametrize("kind", KINDS)
def test_without_another_clock_it_is_the_time_of_day(kind: str, request, tmp_path) -> None:
    where = {"memory": None, "sqlite": tmp_path / "log.db"}.get(kind) or (
        request.getfixturevalue("postgres") if kind == "postgresql" else None
    )
    store = open_store(where)
    for lock in (True, False):
        before = system_clock()
        with write(store, lock=lock) as transaction:
            now = transaction.now
        assert before - 2_000 <= now <= system_clock() + 2_000
    store.close()


def test_events_move_the_head_and_come_back_in_order(store: Store) -> None:
    made = [
        Event(number=2, kind="reward", time=5, decision=new_id(), arm="red", value=0.1),
        Event(
            number=3, kind="revision", time=6, decision=new_id(), arm="red", value=1e-320, previous=-1.5e300
        ),
        Event(
            number=4, kind="policy", time=7, payload={"policy": "ms", "\N{SNOWMAN}": [None, 0.1, "'\"%s?"]}
        ),
    ]
    with write(store) as transaction:
        assert transaction.head == Head(1, 1, 1)
        transaction.add_events(made, Head(4, 4, 2))
        assert transaction.head == Head(4, 4, 2)
        assert transaction.events(1) == made
    assert events(store, 1) == made
    assert events(store, 3) == made[2:]
    assert events(store, 4) == []
    with write(store, lock=False) as transaction:
        assert transaction.head == Head(4, 4, 2)


def test_what_raises_leaves_nothing_behind(store: Store, log: Log) -> None:
    if log.kind == "memory":
        pytest.skip("memory undoes nothing: the ledger checks before it writes")
    before = log.contents()
    for error in (RuntimeError, KeyboardInterrupt, Conflict):
        with pytest.raises(error), write(store) as transaction:  # noqa: PT012  # it is the end of the block that matters
            transaction.add_decisions([decision()])
            transaction.add_events([Event(number=2, kind="pause", time=5)], Head(2, 2, 1))
            raise error
    assert log.contents() == before
    with write(store) as transaction:
        transaction.add_decisions([decision()])
    assert log.contents() != before


def test_decisions_come_back_as_they_were(store: Store) -> None:
    rows = [
        decision(),
        decision(unit="\N{SNOWMAN}\n'\"%s ? \\", arm="a, b", eligible=("a, b", "c"), origin=new_id()),
        decision(log_probabilities=(-0.1, -math.inf), log_probability=-5e-324, state=10**12, cold=False),
        decision(eligible=("red",), log_probabilities=(0.0,), log_probability=0.0, epoch=7),
    ]
    with write(store, lock=False) as transaction:
        transaction.add_decisions(rows)
        transaction.add_decisions([])
    ids = [row.id for row in rows]
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.decisions([*ids, new_id()]) == {row.id: row for row in rows}
        assert transaction.decisions([]) == {}
        assert transaction.drawn(ids) == {row.id: Drawn(row.arm, row.epoch, row.time) for row in rows}
    with store.reading("another") as transaction:
        assert transaction.decisions(ids) == {}
        assert transaction.drawn(ids) == {}
        assert transaction.head is None


def test_a_key_is_claimed_once(store: Store) -> None:
    first, second = decision(idempotency_key="k"), decision(idempotency_key="k", position=1)
    with write(store, lock=False) as transaction:
        assert transaction.keyed("k") == []
        assert transaction.claim(first)
        assert not transaction.claim(decision(idempotency_key="k"))
        transaction.add_decisions([second])
        assert transaction.keyed("k") == [first, second]
    with write(store, lock=False) as transaction:
        assert not transaction.claim(decision(idempotency_key="k", position=1))
        assert transaction.keyed("k") == [first, second]
        assert transaction.keyed("another") == []


def test_keys_of_experiments_are_apart(store: Store) -> None:
    with write(store, "another") as transaction:
        transaction.create()
        assert transaction.claim(decision(idempotency_key="k"))
    with write(store) as transaction:
        assert transaction.keyed("k") == []
        assert transaction.claim(decision(idempotency_key="k"))


def test_rewards_come_back_with_their_decisions(store: Store) -> None:
    early, late = decision(state=1), decision(state=2)
    rows = [
        observation(early, 0.1, "b"),
        observation(early, 0.1 + 0.2, "c", late=True),
        observation(late, 5e-324, "a", at=2**52, arrived=2**52),
    ]
    with write(store) as transaction:
        transaction.add_decisions([late, early])
        transaction.add_observations(rows)
        transaction.add_observations([])
        assert transaction.observations([early.id, late.id, new_id()]) == {
            early.id: rows[:2],
            late.id: rows[2:],
        }
        assert transaction.observations([]) == {}
        made = Event(number=2, kind="reward", time=5, decision=early.id, arm="red", value=0.1)
        transaction.add_events([made], Head(2, 1, 1))
    assert list(store.rows(EXPERIMENT)) == [(early, tuple(rows[:2]), (made,)), (late, (rows[2],), ())]
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.counts() == Counts({"red": 2}, 3, 1, 0)


def test_rows_are_ordered_and_may_be_left_half_read(store: Store) -> None:
    made = [decision(state=n % 3, arm="blue") for n in range(2500)]
    with write(store, lock=False) as transaction:
        transaction.add_decisions(made)
    expected = sorted(made, key=lambda row: (row.state, row.id))
    reading = store.rows(EXPERIMENT)
    assert next(reading)[0] == expected[0]
    with write(store, lock=False) as transaction:  # what comes meanwhile is not in what is read
        transaction.add_decisions([decision(state=9)])
    assert [row for row, *_ in reading] == expected[1:]
    reading = store.rows(EXPERIMENT)
    next(reading)
    reading.close()
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.counts().decisions == {"blue": 2500, "red": 1}


def test_a_reader_sees_one_state(store: Store, log: Log) -> None:
    if log.kind == "memory":
        pytest.skip("in memory, who reads has the lock")
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.events(1) == []
        with write(store) as writing:
            writing.add_events([Event(number=2, kind="pause", time=5)], Head(2, 2, 1))
        assert transaction.events(1) == []
    assert len(events(store, 1)) == 1


def test_parked_rewards_wait_until_they_are_taken_up(store: Store, log: Log) -> None:
    known, other, now = new_id(), new_id(), log.clock.now
    rows = [
        Parked(observation(known, 0.1, "a"), None),
        Parked(observation(known, 0.2, "b"), now + 1),
        Parked(observation(other, 0.3), now),
    ]
    with write(store) as transaction:
        transaction.park(rows)
        transaction.park([])
        assert transaction.parked([known, other, new_id()]) == {known: rows[:2], other: rows[2:]}
        assert transaction.parked([]) == {}
        assert transaction.count_parked() == 2  # one has expired
        assert transaction.counts().parked == 3
    assert sorted(store.all_parked(EXPERIMENT), key=repr) == sorted(rows, key=repr)
    with write(store) as transaction:
        transaction.unpark([known, new_id()])
        transaction.unpark([])
        assert transaction.parked([known, other]) == {other: rows[2:]}


def test_pending_decisions_are_due_in_their_order(store: Store, log: Log) -> None:
    ids, now = sorted(new_id() for _ in range(4)), log.clock.now
    with write(store) as transaction:
        transaction.add_pending({ids[1]: now, ids[0]: now, ids[2]: now - 1, ids[3]: now + 1})
        assert transaction.pending([*ids, new_id()]) == set(ids)
        assert transaction.pending([]) == set()
        transaction.remove_pending([])
        assert transaction.due(2) == [ids[2], ids[0]]
        transaction.remove_pending([ids[2], ids[0]])
        assert transaction.due(2) == [ids[1]]
        transaction.remove_pending([ids[1]])
        assert transaction.due(2) == []
        assert transaction.pending(ids) == {ids[3]}
    log.clock.forward(1)
    with write(store) as transaction:
        assert transaction.due(2) == [ids[3]]


def test_a_unit_is_assigned_by_whoever_knows_what_was_before(store: Store) -> None:
    with write(store, lock=False) as transaction:
        assert transaction.assigned(1, "u") is None
        assert transaction.assign(1, "u", "first", instead_of=None)
        assert not transaction.assign(1, "u", "second", instead_of=None)
        assert not transaction.assign(1, "u", "second", instead_of="third")
        assert transaction.assigned(1, "u") == "first"
        assert transaction.assign(1, "u", "second", instead_of="first")
        assert transaction.assigned(1, "u") == "second"
        assert transaction.assigned(2, "u") is None
        assert transaction.assigned(1, "v") is None


def test_a_unit_can_be_erased(store: Store) -> None:
    mine = [decision(unit="u", idempotency_key="k", position=n) for n in range(2)] + [decision(unit="u")]
    others = [decision(unit="v", idempotency_key="l"), decision()]
    with write(store) as transaction:
        transaction.add_decisions([*mine, *others])
        transaction.assign(1, "u", mine[0].id, instead_of=None)
        assert transaction.erase_unit("u", "token") == 3
        assert transaction.erase_unit("u", "token") == 0
        rows = transaction.decisions([row.id for row in [*mine, *others]])
        assert transaction.keyed("k") == []
        assert transaction.assigned(1, "u") is None
        assert transaction.assigned(1, "token") == mine[0].id
    assert [rows[row.id] for row in others] == others
    assert [rows[row.id] for row in mine] == [
        row._replace(unit="token", idempotency_key=row.idempotency_key and f"token:{row.id}") for row in mine
    ]
    store.scrub()


def test_where_a_log_is_has_no_secrets(postgres: str) -> None:  # noqa: F811
    store = PostgreSQLStore(postgres.replace("postgres@", "postgres:hunter2@") + "&sslpassword=hunter3")
    assert "hunter" not in store.where
    assert store.where.startswith("postgresql://")
    store.close()
    for url in (
        "postgresql://nobody:hunter2@127.0.0.1:1/nowhere",
        "postgresql://nobody:hunter2@hunter3@localhost:1/nowhere",
        "postgresql://nobody:hun/ter2@localhost/nowhere",
        "postgresql://nobody:hunter2@localhost/nowhere?hunter4=1",
    ):
        with pytest.raises(MaillardError) as caught:
            PostgreSQLStore(url)
        assert "hunter" not in str(caught.value).replace("hunter4", "")
        assert "ter2" not in str(caught.value)


def test_sessions_commit_to_the_disk(postgres: str) -> None:  # noqa: F811
    with psycopg.connect(postgres, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        store = PostgreSQLStore(postgres)
        with write(store) as transaction:
            assert transaction._all("SHOW synchronous_commit") == [("on",)]
        store.close()
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = remote_apply')
        store = PostgreSQLStore(postgres)
        with write(store) as transaction:
            assert transaction._all("SHOW synchronous_commit") == [("remote_apply",)]
        store.close()


def test_without_psycopg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "maillard.decisions.stores.postgresql")
    with pytest.raises(MaillardError, match=r"pip install 'maillard\[postgresql\]'"):
        open_store("postgresql://localhost/log")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_program_may_end_without_closing_its_log(kind: str, tmp_path: Path, request) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    program = """
import sys
from maillard.decisions import Bandit
Bandit(["red", "blue"], "uniform", log=sys.argv[1]).choose()
bandit = Bandit(log=sys.argv[1])
bandit.choose()
"""
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # SQLite's own connections warn in newer versions of Python; what is written is there in any case.
    assert (done.returncode, done.stderr if kind == "postgresql" else "") == (0, "")
    with closing(open_store(where)) as store:
        assert len(list(store.rows("default"))) == 2


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_log_of_another_version_is_refused(kind: str, tmp_path: Path, request) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    open_store(where).close()
    open_store(where).close()
    if kind == "postgresql":
        with psycopg.connect(where) as connection:
            connection.execute("UPDATE maillard.version SET number = number + 1")
    else:
        with closing(sqlite3.connect(where)) as connection:
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(InvalidValue, match="newer maillard"):
        open_store(where)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_many_may_make_the_tables_and_the_experiment_at_once(kind: str, tmp_path: Path, request) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    together = threading.Barrier(8)

    def start(_: int) -> Bandit:
        together.wait()
        return Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=where, experiment=EXPERIMENT)

    with ThreadPoolExecutor(8) as pool:
        bandits = list(pool.map(start, range(8)))
    assert [event.kind for event in events(bandits[0]._store)] == ["start"]
    for bandit in bandits:
        assert bandit.choose().state == 1
        bandit.close()
    store = open_store(where)
    assert len(list(store.rows(EXPERIMENT))) == 8
    store.close()


def test_locked_transactions_take_turns(log: Log) -> None:
    log.bandit()
    stores = [log.open() for _ in range(4)]

    def count_up(store: Store) -> None:
        for _ in range(25):
            with write(store) as transaction:
                number = transaction.head.number + 1
                transaction.add_events([Event(number=number, kind="pause", time=5)], Head(number, number, 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, stores))
    assert [event.number for event in events(stores[0])] == list(range(1, 102))


def test_decisions_do_not_wait_for_what_changes_the_state(log: Log) -> None:
    store = log.open()
    if not store.separate_lanes:
        pytest.skip("one writer at a time")
    log.bandit()
    with write(store), write(store, lock=False) as transaction:
        transaction.add_decisions([decision()])
    assert len(list(store.rows(EXPERIMENT))) == 1


def test_who_waits_too_long_for_a_lock_or_a_connection_is_told(postgres: str) -> None:  # noqa: F811
    store = PostgreSQLStore(postgres, timeout=0.3, pool_size=1)
    other = PostgreSQLStore(postgres)
    with write(store) as transaction:
        transaction.create()
    with write(other):
        with pytest.raises(Unavailable, match="lock timeout"), write(store):
            pass
        with write(store, lock=False), pytest.raises(Unavailable, match="all 1 connections"), write(store):
            pass
    with write(store):
        pass
    store.close()
    other.close()


# Choosing and learning.


def test_a_choice_is_logged_with_the_law_it_was_drawn_from(log: Log) -> None:
    bandit = log.bandit(["red", "blue", "green"])
    for n in range(20):
        made = bandit.choose(unit=f"u{n}", eligible=["blue", "red"] if n % 2 else None)
        assert bandit.decision(made.id) == made
        assert made.log_probability == dict(zip(made.eligible, made.log_probabilities, strict=True))[made.arm]
        assert made.state == bandit.state.number
        assert made.time == log.clock.now
        law = bandit.state.law(frozenset(["red", "blue"]) if n % 2 else None)
        assert (made.eligible, made.log_probabilities) == (law.arms, law.log_probabilities)
        assert bandit.reward(made.id, n / 20) == "learned"
    assert [row.unit for row, *_ in bandit._store.rows(EXPERIMENT)] == [f"u{n}" for n in range(20)]
    assert bandit.tally.round == 21


def test_a_batch_is_drawn_from_one_law(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(size=1200, idempotency_key="k")
    assert len({row.id for row in made}) == 1200
    assert {row.state for row in made} == {1}
    assert [row.position for row in made] == list(range(1200))
    assert bandit.choose(size=1200, idempotency_key="k") == made
    assert bandit.choose(size=0) == []
    assert sorted(row.id for row, *_ in log.open().rows(EXPERIMENT)) == sorted(row.id for row in made)


def test_rewards_are_learned_once(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose()
    assert bandit.reward(made.id.upper(), 0.25) == "learned"
    assert bandit.reward(made.id, 0.25) == "duplicate"
    before = log.contents()
    with pytest.raises(Conflict, match=r"0\.25.*0\.5"):
        bandit.reward(made.id, 0.5)
    assert log.contents() == before
    assert bandit.reward(made.id, 0.5, event="another") == "unchanged"  # the first counts
    assert bandit.summary()["arms"][made.arm]["sum"] == 0.25
    assert bandit.tally.round == 2


@pytest.mark.parametrize(
    ("combine", "total"), [("first", 0.25), ("last", 0.125), ("sum", 0.875), ("max", 0.5)]
)
def test_what_events_come_to_does_not_depend_on_their_order(log: Log, combine: str, total: float) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, combine=combine))
    rows = [(100.0, "b", 0.25), (100.0, "c", 0.5), (datetime.fromtimestamp(200, UTC), "a", 0.125)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        made = bandit.choose()
        outcomes = [bandit.reward(made.id, rows[n][2], at=rows[n][0], event=rows[n][1]) for n in order]
        assert outcomes[0] == "learned"
        assert set(outcomes[1:]) <= {"revised", "unchanged"}
        last = [event for event in events(bandit._store) if event.decision == made.id][-1]
        assert last.value == total
    assert bandit.tally.sums.sum() == 3 * total
    assert bandit.tally == replay(events(bandit._store)).tally


def test_a_reward_that_comes_first_is_parked_and_taken_up(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60))
    row = decision(time=log.clock.now)
    assert bandit.reward(row.id, 0.5) == "parked"
    assert bandit.reward(row.id, 0.5) == "duplicate"
    with pytest.raises(Conflict):
        bandit.reward(row.id, 0.25)
    assert bandit.summary()["parked"] == 1
    arrived = log.clock.now
    log.clock.forward(120)  # it came in time, though its decision did not
    with write(bandit._store) as transaction:
        assert ledger.append(transaction, bandit.state.reward, [row, row]) == 1
        assert ledger.append(transaction, bandit.state.reward, [row]) == 0
    assert bandit.summary()["parked"] == 0
    assert bandit.summary()["arms"]["red"]["sum"] == 0.5
    ((_, (reward,), (event,)),) = bandit._store.rows(EXPERIMENT)
    assert (reward.arrived, reward.late, event.value) == (arrived, False, 0.5)
    assert bandit.reward(row.id, 0.5) == "duplicate"


def test_no_more_are_parked_than_there_is_room_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_PARKED", 2)
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60))
    for _ in range(2):
        bandit.reward(new_id(), 0.5)
    with pytest.raises(MaillardError, match="waiting for decisions"):
        bandit.reward(new_id(), 0.5)
    log.clock.forward(61)  # those have expired
    assert bandit.reward(new_id(), 0.5) == "parked"


def test_a_late_reward_is_logged_and_not_learned(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60))
    made, other = bandit.choose(), bandit.choose()
    log.clock.forward(59.999999)
    assert bandit.reward(made.id, 0.5) == "learned"
    log.clock.forward(0.000001)
    assert (
        bandit.reward(other.id, 0.5, at=other.at) == "late"
    )  # judged by arrival, not by when it says it occurred
    assert bandit.reward(other.id, 0.5) == "duplicate"
    assert bandit.tally.round == 2
    assert bandit.summary()["late"] == 1
    assert [each.late for rows in rewards_of(log.open()).values() for each in rows] == [False, True]


def test_a_window_that_closes_gives_the_default(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60, default=0.125))
    made = [bandit.choose() for _ in range(3)]
    assert bandit.reward(made[0].id, 1) == "learned"
    log.clock.forward(60)
    bandit.settle()
    bandit.settle()
    assert bandit.tally.round == 4
    assert bandit.tally.sums.sum() == 1.25
    assert [event.kind for event in events(bandit._store)] == ["start", "reward", "default", "default"]
    assert bandit.reward(made[1].id, 1) == "late"
    log.clock.forward(-30)  # a clock that is set back opens no window
    assert bandit.reward(made[2].id, 1) == "late"
    assert bandit.reward(made[0].id, 0.5, event="more") == "unchanged"


def test_mature_rewards_are_learned_when_the_window_closes(log: Log) -> None:
    rule = Reward(low=0, high=1, window=60, default=0, mature_only=True, combine="sum")
    bandit = log.bandit(reward=rule)
    made = [bandit.choose() for _ in range(2)]
    assert bandit.reward(made[0].id, 0.5, event="a") == "waiting"
    assert bandit.reward(made[0].id, 0.25, event="b") == "waiting"
    assert bandit.tally.round == 1
    log.clock.forward(60)
    bandit.settle()
    assert bandit.choose().state == 3
    assert bandit.tally.sums.sum() == 0.75
    assert bandit.reward(made[0].id, 0.125, event="c") == "late"
    log.clock.forward(-30)
    assert bandit.reward(made[0].id, 0.125, event="d") == "late"


def test_many_rewards_at_once(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(size=10)
    rows = [{"decision_id": row.id, "value": 0.5} for row in made]
    assert bandit.rewards([*rows, rows[0], rows[1] | {"value": 1}]) == ["learned"] * 10 + [
        "duplicate",
        "conflict",
    ]
    before = log.contents()
    with pytest.raises(InvalidValue, match=r"rows\[1\].*value"):
        bandit.rewards([rows[0], rows[1] | {"value": math.nan}])
    assert log.contents() == before


def test_a_sticky_unit_keeps_its_arm_and_its_law(log: Log) -> None:
    bandit = log.bandit(sticky=True)
    first = bandit.choose(unit="u")
    bandit.reward(first.id, 1)
    again = [bandit.choose(unit="u") for _ in range(10)]
    assert {(row.arm, row.log_probability, row.state, row.origin) for row in again} == {
        (first.arm, first.log_probability, first.state, first.id)
    }
    assert len({row.id for row in [first, *again]}) == 11
    other = next(arm for arm in ("red", "blue") if arm != first.arm)
    moved = bandit.choose(unit="u", eligible=[other])
    assert (moved.arm, moved.origin) == (other, None)
    assert bandit.choose(unit="u").origin == moved.id
    bandit.retire_arm(other)
    assert bandit.choose(unit="u").arm == first.arm
    bandit.reset()
    assert bandit.choose(unit="u").origin is None


def test_a_key_that_was_used_returns_what_it_returned(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(unit="u", idempotency_key="k")
    bandit.reward(made.id, 1)
    assert bandit.choose(unit="u", idempotency_key="k") == made
    with pytest.raises(Conflict, match="another unit"):
        bandit.choose(unit="v", idempotency_key="k")
    with pytest.raises(Conflict, match="1 decisions, not 2"):
        bandit.choose(unit="u", idempotency_key="k", size=2)
    bandit.pause()
    assert bandit.choose(unit="u", idempotency_key="k") == made
    with pytest.raises(Paused):
        bandit.choose(unit="u", idempotency_key="l")
    assert len(list(log.open().rows(EXPERIMENT))) == 1


def test_threads_with_one_key_get_one_row(log: Log) -> None:
    bandits = [log.bandit(["red", "blue"]), log.bandit(["red", "blue"])]
    with ThreadPoolExecutor(8) as pool:
        for n in range(10):
            together = threading.Barrier(8)

            def choose(thread: int, n: int = n, together: threading.Barrier = together) -> Decision:
                together.wait()
                return bandits[thread % 2].choose(unit="u", idempotency_key=f"k{n}")

            assert len(set(pool.map(choose, range(8)))) == 1
    assert len(list(log.open().rows(EXPERIMENT))) == 10


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_processes_with_one_key_get_one_row(kind: str, sticky: bool, tmp_path: Path, request) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=where, sticky=sticky).close()
    context = get_context("forkserver")
    together = context.Barrier(2)
    ends = []
    for turn in (1, -1):  # keys in opposite orders, by several threads at a time
        receiving, sending = context.Pipe(duplex=False)
        keys = [f"k{n}" for n in range(60)][::turn]
        process = context.Process(target=choosers.race, args=(where, keys, together, sending))
        process.start()
        sending.close()
        ends.append((process, receiving))
    answers = []
    for process, receiving in ends:
        answers.append(receiving.recv())
        process.join()
        assert process.exitcode == 0
    assert answers[0] == answers[1]
    store = open_store(where)
    assert sorted(row.id for row, *_ in store.rows("default")) == sorted(answers[0].values())
    store.close()


# Changes.


def test_arms_come_and_go(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(eligible=["red"])
    bandit.retire_arm("red")
    assert {bandit.choose().arm for _ in range(20)} == {"blue"}
    bandit.reward(made.id, 0.5)  # rewards of its decisions still count
    bandit.add_arm("green")
    assert bandit.arms == ["blue", "green"]
    assert bandit.choose(eligible=["green"]).log_probability == 0.0
    bandit.add_arm("red")
    assert bandit.arms == ["red", "blue", "green"]
    assert bandit.summary()["arms"]["red"]["sum"] == 0.5
    for wrong in (
        lambda: bandit.add_arm("red"),
        lambda: bandit.retire_arm("purple"),
        lambda: bandit.add_arm(""),
    ):
        with pytest.raises(MaillardError):
            wrong()
    bandit.retire_arm("red")
    bandit.retire_arm("blue")
    with pytest.raises(InvalidValue, match="last one"):
        bandit.retire_arm("green")
    assert bandit.arms == ["green"]


def test_a_policy_changes_and_its_version_is_logged(log: Log) -> None:
    bandit = log.bandit()
    assert bandit.choose().policy_version == 1
    bandit.change_policy("ms+:booster=8")
    made = bandit.choose()
    assert (made.policy_version, made.state) == (2, 2)
    before = log.contents()
    for wrong in ("ms+:booster=-1", "no such policy", 7):
        with pytest.raises(MaillardError):
            bandit.change_policy(wrong)
    assert log.contents() == before


def test_a_pause_takes_rewards_and_makes_no_choices(log: Log) -> None:
    bandit, other = log.bandit(), log.bandit(staleness=3600)
    made = bandit.choose()
    bandit.pause()
    for each in (bandit, other):
        with pytest.raises(Paused):
            each.choose()
    assert bandit.reward(made.id, 1) == "learned"
    bandit.resume()
    assert bandit.choose().state == 4
    assert other.choose().state == 4


def test_a_reset_begins_an_epoch(log: Log) -> None:
    bandit = log.bandit()
    old = bandit.choose()
    bandit.reward(bandit.choose().id, 1)
    bandit.reset()
    assert bandit.tally == Tally.empty(2)
    assert bandit.choose().epoch == 2
    assert bandit.reward(old.id, 1) == "old epoch"
    assert bandit.tally == Tally.empty(2)


def test_a_snapshot_is_restored_here_and_elsewhere(log: Log) -> None:
    bandit = log.bandit()
    for value in (0.1, 0.2, 0.7):
        bandit.reward(bandit.choose().id, value)
    bandit.retire_arm("blue")
    kept, learned = bandit.snapshot(), bandit.tally
    bandit.add_arm("green")
    bandit.change_policy("ms+:booster=8")
    bandit.restore(kept)
    assert (bandit.arms, str(bandit.policy), bandit.state.epoch) == (
        ["red"],
        str(replay(events(bandit._store)).policy),
        2,
    )
    assert bandit.tally == learned
    other = log.bandit(["x"], experiment="other")
    other.restore(kept)
    assert other.tally == learned
    before = log.contents()
    for wrong in (
        None,
        {},
        kept | {"arms": ["red"]},
        kept | {"tally": {"pulls": [1, 0], "sums": [7.0, 0.0]}},
    ):
        with pytest.raises(MaillardError):
            bandit.restore(wrong)
    assert log.contents() == before


def test_a_warm_start_adds_what_was_learned_elsewhere(log: Log) -> None:
    bandit = log.bandit()
    bandit.warm_start({"blue": (10, 2.5)})
    bandit.warm_start(Tally([1, 0], [0.5, 0]))
    assert bandit.tally == Tally([1, 10], [0.5, 2.5])
    before = log.contents()
    for wrong in ({"purple": (1, 1)}, {"red": (1, 2)}, {"red": 7}, Tally([1], [1]), {"red": (-1, 0)}):
        with pytest.raises(MaillardError):
            bandit.warm_start(wrong)
    assert log.contents() == before


def test_a_log_is_resumed_where_it_was(log: Log) -> None:
    bandit = log.bandit(["red", "blue"], "ms+:booster=8")
    for value in (0.1, 0.2, 0.3):
        bandit.reward(bandit.choose().id, value)
    bandit.add_arm("green")
    tally = bandit.tally
    bandit.close()
    for arms, policy in ((None, None), (["red", "blue"], "ms+:booster=8"), (["red", "blue", "green"], None)):
        again = log.bandit(arms, policy, reward=UNIT_RANGE if arms else None)
        assert again.tally == tally
        assert again.arms == ["red", "blue", "green"]
        assert again.choose().state == 5
        again.close()


@pytest.mark.parametrize(
    "given",
    [
        {"arms": ["red"]},
        {"policy": "uniform"},
        {"policy": "ms+:booster=8"},
        {"reward": Reward(low=0, high=2)},
        {"sticky": True},
    ],
    ids=str,
)
def test_another_configuration_is_refused(log: Log, given: dict[str, Any]) -> None:
    log.bandit()
    before = log.contents()
    with pytest.raises(InvalidValue, match="to change it"):
        log.bandit(**given)
    assert log.contents() == before


def test_a_new_experiment_needs_arms_and_a_policy(log: Log) -> None:
    store = log.open()
    before = log.contents()
    for arms, policy in (
        (None, "ms"),
        (["red"], None),
        ([], "ms"),
        (["red", "red"], "ms"),
        (["red"], "thing"),
    ):
        with pytest.raises(MaillardError):
            log.bandit(arms, policy, log=store)
    assert store.experiments() == []
    assert log.contents() == before


def test_an_erased_unit_is_nowhere(log: Log, tmp_path: Path) -> None:
    bandit = log.bandit(sticky=True)
    name, key = "erica-musterfrau@example.org", "key-of-erica-musterfrau"
    made = [
        bandit.choose(unit=name, idempotency_key=key),
        bandit.choose(unit=name),
        bandit.choose(unit="other"),
    ]
    for row in made:
        bandit.reward(row.id, 1)
    tally = bandit.tally
    assert bandit.erase_unit(name) == 2
    assert bandit.erase_unit(name) == 0
    assert bandit.tally == tally
    units = [row.unit for row, *_ in bandit._store.rows(EXPERIMENT)]
    assert units[0] == units[1] != name
    assert units[2] == "other"
    assert "erica" not in repr(log.contents())
    for file in tmp_path.iterdir():
        assert b"erica" not in file.read_bytes()
    assert bandit.choose(unit=name, idempotency_key=key).origin is None  # a new unit, as far as anyone knows


def test_what_a_reader_keeps_from_being_erased_is_told(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "log.db", timeout=0.1)
    bandit = Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=store, experiment=EXPERIMENT)
    bandit.choose(unit="erica")
    with store.reading(EXPERIMENT) as transaction:
        transaction.events(0)
        with pytest.raises(Unavailable, match="erase again"):
            bandit.erase_unit("erica")
    assert bandit.erase_unit("erica") == 0
    for file in tmp_path.iterdir():
        assert b"erica" not in file.read_bytes()
    bandit.close()


# Several processes, which draw from what they knew last.


def test_a_stale_view_logs_the_state_it_drew_from(log: Log) -> None:
    first, second = log.bandit(), log.bandit(staleness=3600)
    made = first.choose()
    first.reward(made.id, 1)
    assert first.choose().state == 2
    stale = second.choose()
    assert (stale.state, stale.probabilities) == (1, {"red": 0.5, "blue": 0.5})
    # It learns of it when it writes, where a choice is written together with what is learned.
    assert second.choose().state == (1 if log.open().separate_lanes else 2)
    first.retire_arm("red")
    drawn = second.choose()  # drawn before the change, it would be logged after it: so it is drawn again
    assert (drawn.state, drawn.arm, drawn.eligible) == (3, "blue", ("blue",))


def test_a_retired_arm_is_not_chosen_any_more(log: Log) -> None:
    bandits = [log.bandit(staleness=3600) for _ in range(3)]
    retired = threading.Event()
    chosen: list[Decision] = []

    def choose(bandit: Bandit) -> None:
        end = time.monotonic() + 60
        while len(chosen) < 60 and time.monotonic() < end:
            done = retired.is_set()
            made = bandit.choose()
            if done:
                chosen.append(made)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(choose, bandit) for bandit in bandits[1:]]
        bandits[0].retire_arm("red")
        retired.set()
        for each in running:
            each.result()
    assert chosen
    assert {(row.arm, row.eligible) for row in chosen} == {("blue", ("blue",))}


# What is wrong is refused, and leaves nothing behind.


BAD: dict[str, tuple[Callable[[Bandit, Decision], object], type[MaillardError]]] = {
    "nan": (lambda b, d: b.reward(d.id, math.nan), InvalidValue),
    "infinite": (lambda b, d: b.reward(d.id, math.inf), InvalidValue),
    "above the range": (lambda b, d: b.reward(d.id, 1.0000001), InvalidValue),
    "below the range": (lambda b, d: b.reward(d.id, -1e-300), InvalidValue),
    "not a number": (lambda b, d: b.reward(d.id, "1"), InvalidValue),
    "none": (lambda b, d: b.reward(d.id, None), InvalidValue),
    "too large for a float": (lambda b, d: b.reward(d.id, 10**400), InvalidValue),
    "malformed id": (lambda b, d: b.reward("17", 1), InvalidValue),
    "id of another version": (lambda b, d: b.reward("8b9f4a3e-7a1f-4c55-9d65-0d2f7d1c2b3a", 1), InvalidValue),
    "no id": (lambda b, d: b.reward(None, 1), InvalidValue),
    "event with NUL": (lambda b, d: b.reward(d.id, 1, event="a\0b"), InvalidValue),
    "empty event": (lambda b, d: b.reward(d.id, 1, event=""), InvalidValue),
    "naive time": (lambda b, d: b.reward(d.id, 1, at=datetime(2020, 1, 1)), InvalidValue),
    "time before 1970": (lambda b, d: b.reward(d.id, 1, at=-1), InvalidValue),
    "nan time": (lambda b, d: b.reward(d.id, 1, at=math.nan), InvalidValue),
    "unknown arm": (lambda b, d: b.choose(eligible=["red", "purple"]), UnknownName),
    "retired arm": (lambda b, d: b.choose(eligible=["gone"]), InvalidValue),
    "no arm": (lambda b, d: b.choose(eligible=[]), InvalidValue),
    "arms as a string": (lambda b, d: b.choose(eligible="red"), InvalidValue),
    "unit with NUL": (lambda b, d: b.choose(unit="a\0b"), InvalidValue),
    "unit with a lone surrogate": (lambda b, d: b.choose(unit="\ud800"), InvalidValue),
    "unit that is long": (lambda b, d: b.choose(unit="x" * 513), InvalidValue),
    "unit that is a number": (lambda b, d: b.choose(unit=7), InvalidValue),
    "key with NUL": (lambda b, d: b.choose(idempotency_key="\0"), InvalidValue),
    "empty key": (lambda b, d: b.choose(idempotency_key=""), InvalidValue),
    "negative size": (lambda b, d: b.choose(size=-1), InvalidValue),
    "huge size": (lambda b, d: b.choose(size=10**12), InvalidValue),
    "size that is no number": (lambda b, d: b.choose(size=1.5), InvalidValue),
    "arm with NUL": (lambda b, d: b.add_arm("a\0"), InvalidValue),
    "arm with a lone surrogate": (lambda b, d: b.add_arm("\udfff"), InvalidValue),
    "erasing nothing": (lambda b, d: b.erase_unit(""), InvalidValue),
    "a decision of nobody": (lambda b, d: b.decision(new_id()), UnknownName),
}


def test_bad_input_is_an_error_and_writes_nothing(log: Log) -> None:
    bandit = log.bandit(["red", "blue", "gone"])
    bandit.retire_arm("gone")
    made = bandit.choose()
    before, state = log.contents(), bandit.state
    for name, (wrong, error) in BAD.items():
        with pytest.raises(error):
            wrong(bandit, made)
        assert bandit.state is state, name
    assert log.contents() == before
    with pytest.raises(InvalidValue):
        log.bandit(experiment="\0")
    bandit.close()
    for call in (bandit.choose, bandit.summary, lambda: bandit.reward(made.id, 1)):
        with pytest.raises(MaillardError, match="closed"):
            call()


def test_the_longest_names_fit(log: Log) -> None:
    longest = "\U0001f600" * 512
    bandit = log.bandit([longest, "x"], sticky=True)
    made = bandit.choose(unit=longest, idempotency_key=longest, eligible=[longest])
    assert bandit.reward(made.id, 1, event=longest) == "learned"
    assert bandit.reward(new_id(), 1, event=longest) == "parked"
    assert bandit.choose(unit=longest, idempotency_key=longest, eligible=[longest]) == made


# The state does not depend on how often or in which order things come.

AWKWARD = [
    0.1,
    0.2,
    0.3,
    1 / 3,
    -0.0,
    5e-324,
    -5e-324,
    1e-300,
    1e16,
    -1e16,
    1.0,
    -1.0,
    1e290,
    -1e290,
    0.1 + 0.2,
]
VALUES = st.sampled_from(AWKWARD) | st.floats(-1e290, 1e290)
ARMS = ["a", "b", "c"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[Any], int]:
    """How events combine; choices (None) and rewards (of which choice, value, time); a seed for the rest."""
    steps: list[Any] = [None]
    for made in range(1, draw(st.integers(1, 5)) + 1):
        more = st.tuples(st.integers(0, made - 1), VALUES, st.integers(1, 3))
        steps += draw(st.lists(more, max_size=4))
        steps.append(None)
    return draw(st.sampled_from(["first", "last", "sum", "max"])), steps, draw(st.integers(0, 2**32))


def clean_run(combine: str, steps: list[Any], seed: int) -> tuple[Bandit, list[Decision], list[Observation]]:
    bandit = Bandit(ARMS, "ms:sigma2=1", reward=Reward(combine=combine))
    bandit._rng = np.random.default_rng(seed)
    made: list[Decision] = []
    rewards: list[Observation] = []
    for number, step in enumerate(steps):
        if step is None:
            made.append(bandit.choose())
        else:
            place, value, at = step
            bandit.reward(made[place].id, value, at=at, event=f"e{number}")
            rewards.append(
                Observation(
                    decision=made[place].id, event=f"e{number}", value=value + 0.0, at=at * 10**6, arrived=0
                )
            )
    return bandit, made, rewards


def totals(store: Store, experiment: str, rule: Reward) -> dict[str, float | None]:
    return {row.id: rule.total(rewards) for row, rewards, _ in store.rows(experiment)}


def deliver(transaction: Transaction, rule: Reward, some: list[Decision | Observation]) -> None:
    """As a transaction of several calls would: decisions that were drawn elsewhere, and rewards."""
    for each in some:
        if isinstance(each, Decision):
            ledger.append(transaction, rule, [each])
        else:
            (outcome,) = ledger.observe(transaction, rule, [each])
            assert not isinstance(outcome, MaillardError)


def check_history(store: Store, history: tuple[str, list[Any], int]) -> None:
    clean, made, rewards = clean_run(*history)
    rng = Random(history[2])
    rule = clean.state.reward
    name = f"{rng.random()}-{new_id()}"
    Bandit(ARMS, "ms:sigma2=1", reward=rule, log=store, experiment=name)
    deliveries = [*made, *rewards] * 5
    rng.shuffle(deliveries)
    while deliveries:
        size = rng.choice([1, 1, 2, 5])
        with store.transaction(name, lock=True) as transaction:
            deliver(transaction, rule, deliveries[:size])
        del deliveries[:size]
    tally = Bandit(log=store, experiment=name).tally
    assert tally == replay(events(store, 0, name)).tally
    assert tally == clean.tally
    assert totals(store, name, rule) == totals(clean._store, "default", rule)
    assert store.all_parked(name) == []


def counts(kind: str, many: int) -> list[Any]:
    return [
        pytest.param(kind, many // 10, id=f"{kind}-{many // 10}"),
        pytest.param(kind, many, id=f"{kind}-{many}", marks=pytest.mark.torture),
    ]


@pytest.mark.parametrize(
    ("kind", "many"), [*counts("memory", 10_000), *counts("sqlite", 1_000), *counts("postgresql", 300)]
)
def test_the_state_does_not_depend_on_how_things_come(kind: str, many: int, tmp_path: Path, request) -> None:
    store: Store
    if kind == "memory":
        store = MemoryStore()
    elif kind == "sqlite":
        store = SQLiteStore(tmp_path / "log.db", synchronous="OFF")
    else:
        store = PostgreSQLStore(request.getfixturevalue("postgres"))

    @settings(max_examples=many)
    @given(histories())
    def check(history: tuple[str, list[Any], int]) -> None:
        check_history(store, history)
        if isinstance(store, MemoryStore):
            store._experiments.clear()

    check()
    store.close()
