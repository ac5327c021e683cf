"""Helpers for tests of stores and bandits: a log of each store type, and rows to write into it."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from maillard.decisions import Bandit, Decision, Reward
from maillard.decisions.decision import RewardEvent
from maillard.decisions.events import Event
from maillard.decisions.identifiers import new_ids
from maillard.decisions.stores import Store
from maillard.decisions.stores.memory import MemoryStore
from maillard.decisions.stores.postgresql import PostgreSQLStore
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.decisions.timestamps import system_clock

UNIT_RANGE = Reward(low=0, high=1)
EXPERIMENT = "home"
KINDS = ["memory", "sqlite", "postgresql"]


def new_id() -> str:
    return new_ids(1)[0]


class Clock:
    """A clock that only moves when `forward` is called."""

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
            # On a busy machine a writer may wait long, because SQLite does not queue writers.
            self.opened.append(SQLiteStore(self.where, clock=self.clock, timeout=60))
        return self.opened[-1]

    def bandit(self, arms=("red", "blue"), policy="ms", reward=UNIT_RANGE, **options: Any) -> Bandit:
        options = {"log": self.open(), "experiment": EXPERIMENT, "staleness": 0} | options
        return Bandit(arms, policy, reward=reward, **options)

    def contents(self) -> Any:
        """Every row of every table."""
        if self._memory is not None:
            return repr(_plain(self._memory._tables))
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
    """A store with one started experiment."""
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


def reward_event(
    row: Decision | str, value: float = 1.0, event: str = "e", at: int = 5, **more: Any
) -> RewardEvent:
    identifier = row if isinstance(row, str) else row.id
    return RewardEvent(decision=identifier, event=event, value=value, at=at, **{"arrived": 7} | more)


def write(store: Store, experiment: str = EXPERIMENT, lock: bool = True) -> Any:
    return store.transaction(experiment, lock=lock)


def events(store: Store, after: int = 0, experiment: str = EXPERIMENT) -> list[Event]:
    with store.reading(experiment) as transaction:
        return transaction.events(after)


def rewards_of(store: Store, experiment: str = EXPERIMENT) -> dict[str, tuple[RewardEvent, ...]]:
    return {row.id: rewards for row, rewards, _ in store.rows(experiment)}


def _plain(value: Any) -> Any:
    """A value without classes whose representation leaves out fields."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return _plain(list(value.items()))
    return [_plain(each) for each in value] if isinstance(value, list | tuple | set) else value
