"""Several experiments of one SQLite log share a commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from maillard.decisions import Bandit, Reward, read_log, verify
from maillard.decisions.call_arguments import Request
from maillard.decisions.choosing import Repeated
from maillard.decisions.decision import RewardEvent
from maillard.decisions.session import Call, Session
from maillard.decisions.shared_batches import run_together
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.decisions.stores.sqlite_transaction import insert_rows
from maillard.decisions.timestamps import NOW
from maillard.errors import Conflict, InvalidValue, MaillardError, Paused, Unavailable

NAMES = ["home", "search", "cart"]


class CountingConnection:
    """A connection that counts commits, and may fail at the next one."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.commits, self.fails = 0, False

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == "COMMIT":
            self.commits += 1
            if self.fails:
                raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def connections() -> list[CountingConnection]:
    return []


@pytest.fixture
def store(tmp_path, connections) -> Iterator[SQLiteStore]:
    def connect(path: str) -> CountingConnection:
        made = CountingConnection(path)
        connections.append(made)
        return made

    opened = SQLiteStore(tmp_path / "log.db", connect=connect)
    yield opened
    opened.close()


@pytest.fixture
def bandits(store) -> list[Bandit]:
    return [
        Bandit(["a", "b"], "kl-ms+:floor=0.2", reward=Reward(low=0, high=1), log=store, experiment=name)
        for name in NAMES
    ]


def decide(bandit: Bandit, key: str | None = None, size: int = 1) -> tuple[Session, Call]:
    return bandit.session, Call("decide", Request("user", None, key, size))


def reward(bandit: Bandit, decision: str, value: float) -> tuple[Session, Call]:
    return bandit.session, Call("rewards", [RewardEvent(decision, "reward", value, NOW, NOW, False)])


def commits(connections) -> int:
    return sum(each.commits for each in connections)


def test_one_commit_for_all_experiments(store, bandits, connections, tmp_path) -> None:
    before = commits(connections)
    first = run_together(store, [decide(each, key="k", size=2) for each in bandits] + [decide(bandits[0])])
    assert commits(connections) == before + 1
    assert [len(rows) for rows in first] == [2, 2, 2, 1]
    rewards = [reward(bandit, rows[0].id, 1.0) for bandit, rows in zip(bandits, first[:3], strict=True)]
    answers = run_together(store, [*rewards, *(decide(each, key="k", size=2) for each in bandits)])
    assert commits(connections) == before + 2
    assert answers[:3] == [["applied"]] * 3
    for rows, again in zip(first[:3], answers[3:], strict=True):  # the same keys: the same decisions
        assert isinstance(again, Repeated)
        assert [row.id for row in again] == [row.id for row in rows]
    for bandit in bandits:
        assert bandit.state.tally.pulls.sum() == 1
    for name in NAMES:
        with read_log(tmp_path / "log.db", name) as log:
            found = verify(log)
        assert found.problems == []
        assert found.decisions == (3 if name == "home" else 2)


def test_a_key_twice_in_one_batch(store, bandits) -> None:
    answers = run_together(store, [decide(bandits[0], "k"), decide(bandits[1], "k"), decide(bandits[0], "k")])
    assert answers[2][0].id == answers[0][0].id != answers[1][0].id
    other = bandits[0].session, Call("decide", Request("someone else", None, "k", 1))
    answers = run_together(store, [other, decide(bandits[1], "k"), decide(bandits[2])])
    assert isinstance(answers[0], Conflict)
    assert not isinstance(answers[1], MaillardError)


def test_a_reward_for_a_decision_of_another_call_of_the_batch(store, bandits) -> None:
    """Calls run in the order decisions, rewards; a reward sees the decisions of its batch."""
    (made,) = run_together(store, [decide(bandits[1], "first")])
    answers = run_together(
        store, [decide(bandits[0]), reward(bandits[1], made[0].id, 0.5), decide(bandits[1])]
    )
    assert answers[1] == ["applied"]
    assert bandits[1].state.tally.pulls.sum() == 1


def test_an_error_concerns_only_its_experiment(store, bandits, tmp_path) -> None:
    bandits[0].pause()
    answers = run_together(store, [decide(each) for each in bandits])
    assert isinstance(answers[0], Paused)
    assert all(len(rows) == 1 for rows in answers[1:])
    with sqlite3.connect(tmp_path / "log.db") as direct:  # the experiment disappears
        direct.execute("DELETE FROM experiments WHERE name = 'search'")
    answers = run_together(store, [decide(each, "again") for each in (bandits[1], bandits[2])])
    assert isinstance(answers[0], MaillardError)
    assert "no longer in" in str(answers[0])
    assert len(answers[1]) == 1
    with read_log(tmp_path / "log.db", "cart") as log:
        assert len(list(log.rows())) == 2


def test_a_failed_commit_fails_all_and_changes_nothing(store, bandits, connections, tmp_path) -> None:
    made = run_together(store, [decide(each) for each in bandits])
    numbers = [bandit.state.number for bandit in bandits]
    connections[0].fails = True
    calls = [decide(bandits[0]), reward(bandits[1], made[1][0].id, 1.0)]
    with pytest.raises(Unavailable, match="disk I/O error"):
        run_together(store, calls)
    connections[0].fails = False
    assert [bandit.state.number for bandit in bandits] == numbers
    assert run_together(store, calls)[1] == ["applied"]
    with read_log(tmp_path / "log.db", "home") as log:
        assert len(list(log.rows())) == 2


def test_sticky_units_and_invalid_rewards(store) -> None:
    made = [
        Bandit(["a", "b"], "uniform", reward=Reward(low=0, high=1), log=store, experiment=name, sticky=True)
        for name in NAMES
    ]
    first = run_together(store, [decide(each, key=f"{n}") for n in range(3) for each in made])
    for n, name in enumerate(NAMES):
        rows = first[n::3]
        assert {row[0].experiment for row in rows} == {name}
        assert len({row[0].arm for row in rows}) == 1
        assert [row[0].origin is None for row in rows] == [True, False, False]
    with pytest.raises(InvalidValue):
        made[0].reward(first[0][0].id, 7.0)


def test_rows_are_inserted_with_few_statements() -> None:
    """Few for the rows of one call, and few different ones, because each is prepared and kept."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE numbers (a, b)")
    statements: list[str] = []

    class Recording:
        def execute(self, statement: str, parameters: Any) -> Any:
            statements.append(statement)
            return connection.execute(statement, parameters)

    different: set[str] = set()
    for count in range(200):
        rows = [(n, -n) for n in range(count)]
        found = insert_rows(Recording(), "INSERT INTO numbers (a, b) VALUES (?, ?)", rows, " RETURNING a, b")
        assert found == rows
        assert connection.execute("SELECT a, b FROM numbers ORDER BY rowid").fetchall() == rows
        assert len(statements) <= count // 64 + 2
        different.update(statements)
        statements.clear()
        connection.execute("DELETE FROM numbers")
    assert len(different) == 15 + 4
