"""Simple decisions of a shared commit, which are made in one pass, agree with those of `DecisionBatch`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard.decisions import Bandit, Reward, chain, read_log, verify
from maillard.decisions.call_arguments import Request
from maillard.decisions.choosing import Repeated
from maillard.decisions.identifiers import new_ids
from maillard.decisions.session import Call, Session
from maillard.decisions.shared_batches import run_together
from maillard.decisions.stores.shared_commits import SQLiteSharedTransaction
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import Unavailable
from tests.decisions.test_shared_commits import CountingConnection

NAMES = ["home", "search", "cart"]
RULE = Reward(low=0, high=1)
SECOND = 1_000_000


class Clock:
    now = 10**15

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path, clock) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(tmp_path / "log.db", clock=clock)
    yield opened
    opened.close()


def bandits(store: SQLiteStore, rule: Reward = RULE) -> list[Bandit]:
    return [
        Bandit(["a", "b", "c"], "ms+:floor=0.2", reward=rule, log=store, experiment=name) for name in NAMES
    ]


def decide(
    bandit: Bandit, key: str | None = None, unit: str | None = "user", arms: set[str] | None = None
) -> tuple[Session, Call]:
    eligible = None if arms is None else frozenset(arms)
    return bandit.session, Call("decide", Request(unit, eligible, key, 1))


def look_up_keys(store: SQLiteStore) -> None:
    """Let `DecisionBatch` handle all requests from now on."""
    store._lookups = 10**9


def count_simple(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many decisions each later commit makes in one pass."""
    counts: list[int] = []
    add_new = SQLiteSharedTransaction.add_new

    def counting(self: SQLiteSharedTransaction, batches: Any) -> None:
        counts.append(sum(len(rows) for _, rows, _ in batches))
        add_new(self, batches)

    monkeypatch.setattr(SQLiteSharedTransaction, "add_new", counting)
    return counts


def check_logs(path: Path, decisions: dict[str, int]) -> None:
    """Verify the log of each experiment and count its decisions."""
    for name, count in decisions.items():
        with read_log(path, name) as log:
            found = verify(log)
        assert found.problems == []
        assert found.decisions == count
        assert found.chain is not None
        assert found.chain.unchained == 0


def table(path: Path, name: str, ignored: set[str]) -> list[tuple[Any, ...]]:
    """The rows of a table without the columns that have random values."""
    with sqlite3.connect(path) as connection:
        cursor = connection.execute(f"SELECT * FROM {name}")
        rows = cursor.fetchall()
    kept = [place for place, (column, *_) in enumerate(cursor.description) if column not in ignored]
    return [tuple(row[place] for place in kept) for row in rows]


@pytest.mark.parametrize("window", [None, "1h"])
def test_they_are_those_of_a_decision_batch(tmp_path, clock, window, monkeypatch) -> None:
    """The same decisions, distributions and links; only ids, salts and hashes are random."""
    logs = tmp_path / "simple.db", tmp_path / "general.db"
    answers, counts = [], count_simple(monkeypatch)
    for path in logs:
        store = SQLiteStore(path, clock=clock)
        made = bandits(store, Reward(low=0, high=1, window=window))
        if path == logs[1]:
            look_up_keys(store)
        for number, bandit in enumerate(made):
            bandit.session._random.rng = np.random.default_rng(number)
        # In the order of their keys, in which a decision batch processes requests.
        calls = [decide(each, f"{n:03}", f"user-{n}" if n % 3 else None) for n in range(40) for each in made]
        calls += [decide(each) for each in made]  # a separate commit, so that its order does not matter
        found = [run_together(store, calls[start : start + 60]) for start in range(0, len(calls), 60)]
        answers.append([[row._replace(id="") for row in rows] for part in found for rows in part])
        store.close()
        check_logs(path, dict.fromkeys(NAMES, 41))
    assert answers[0] == answers[1]
    assert counts == [60, 60, 3]
    for name in ("vectors", "arm_lists", "pending", "experiments", "links", "chains"):
        ignored = {"hash", "decisions", "decision"}
        assert table(logs[0], name, ignored) == table(logs[1], name, ignored)
    rows = [sorted(table(path, "decisions", {"id", "seal"}), key=repr) for path in logs]
    assert rows[0] == rows[1]


def test_the_link_of_decisions_is_that_of_a_commit(store) -> None:
    made = bandits(store)[0].choose(size=9)
    records = [chain.decision_record(row, None, bytes(32)) for row in reversed(made)]
    commit = chain.Commit()
    commit.decisions += records
    for last in (None, (7, bytes(range(32)))):
        assert chain.link_of_decisions(last, 5, list(records)) == commit.link(last, 5)


def test_other_requests_share_the_commit(store, tmp_path, monkeypatch) -> None:
    made, counts = bandits(store), count_simple(monkeypatch)
    two = made[1].session, Call("decide", Request(None, None, "two", 2))
    answers = run_together(
        store, [decide(made[0], "k", arms={"a", "b"}), two, decide(made[2]), decide(made[0])]
    )
    assert [len(rows) for rows in answers] == [1, 2, 1, 1]
    assert answers[0][0].eligible == ("a", "b")
    assert counts == [3]
    made[0].pause()
    answers = run_together(store, [decide(made[0]), decide(made[1], arms={"unknown"}), decide(made[2])])
    assert [type(each).__name__ for each in answers] == ["Paused", "UnknownName", "list"]
    assert counts == [3, 1]
    check_logs(tmp_path / "log.db", {"home": 2, "search": 2, "cart": 2})


def test_a_repeated_key_is_found(store, tmp_path, monkeypatch) -> None:
    made, counts = bandits(store), count_simple(monkeypatch)
    (first,), *_ = run_together(store, [decide(each, "k") for each in made])
    again, other = run_together(store, [decide(made[0], "k"), decide(made[1], "new")])
    assert isinstance(again, Repeated)
    assert again == [first]
    assert len(other) == 1
    assert counts == [3, 2]  # and nothing of the second was kept
    for _ in range(31):  # keys are looked up in 32 commits; the first was that of the repeated key
        run_together(store, [decide(made[0]), decide(made[1])])
    assert counts == [3, 2]
    run_together(store, [decide(made[0]), decide(made[1])])
    assert counts == [3, 2, 2]
    with pytest.raises(Exception, match="other than"):
        made[0].choose("someone else", idempotency_key="k")
    for bandit in made:  # the same key twice in one commit
        one, same = run_together(store, [decide(bandit, "twice"), decide(bandit, "twice")])
        assert one[0].id == same[0].id
    check_logs(tmp_path / "log.db", {"home": 1 + 32 + 1, "search": 1 + 1 + 32 + 1, "cart": 2})


def test_other_connections_are_noticed(store, tmp_path) -> None:
    """Another process makes decisions, applies rewards and adds arms between two commits."""
    other = SQLiteStore(tmp_path / "log.db")
    mine, theirs = bandits(store), bandits(other)
    for _ in range(3):
        answers = run_together(store, [decide(each) for each in mine])
        run_together(other, [decide(each) for each in theirs])
        answers = run_together(store, [decide(each) for each in mine])
        theirs[0].reward(answers[0][0].id, 1.0)
        theirs[1].choose()
    theirs[2].add_arm("d")
    answers = run_together(store, [decide(each) for each in mine])
    assert answers[0][0].state == theirs[0].state.number == 4
    assert "d" in answers[2][0].eligible
    other.close()
    check_logs(tmp_path / "log.db", {"home": 10, "search": 13, "cart": 10})


def test_own_changes_are_noticed(store, tmp_path) -> None:
    made = bandits(store)
    for number in range(3):
        first, *_ = run_together(store, [decide(each) for each in made])
        made[0].reward(first[0].id, 1.0)
        made[1].add_arm(f"more-{number}")
        made[2].choose(size=2)
    answers = run_together(store, [decide(each) for each in made])
    assert [rows[0].state for rows in answers] == [4, 4, 1]
    check_logs(tmp_path / "log.db", {"home": 4, "search": 4, "cart": 10})


def test_due_windows_are_closed_first(store, tmp_path, clock, monkeypatch) -> None:
    made, counts = bandits(store, Reward(low=0, high=1, window="10s", default=0)), count_simple(monkeypatch)
    run_together(store, [decide(each) for each in made])
    run_together(store, [decide(made[0]), decide(made[1])])
    clock.now += 11 * SECOND
    answers = run_together(store, [decide(made[0]), decide(made[1]), decide(made[2])])
    assert counts == [3, 2, 0]
    assert {rows[0].state for rows in answers} == {1}  # a batch decides, then settles
    assert [bandit.state.number for bandit in made] == [3, 3, 2]
    answers = run_together(store, [decide(each) for each in made])
    assert [rows[0].state for rows in answers] == [3, 3, 2]
    assert counts == [3, 2, 0, 3]
    check_logs(tmp_path / "log.db", {"home": 4, "search": 4, "cart": 3})


def test_two_sessions_of_one_experiment(store, tmp_path) -> None:
    """A service has two if an experiment was created again while it was open."""
    one, two = bandits(store), bandits(store)
    answers = run_together(store, [decide(each) for each in (one[0], two[0], one[1], two[0])])
    assert len({rows[0].id for rows in answers}) == 4
    check_logs(tmp_path / "log.db", {"home": 3, "search": 1})


def test_a_failed_commit_leaves_the_chain_as_it_was(tmp_path, monkeypatch) -> None:
    connections: list[CountingConnection] = []

    def connect(path: str) -> CountingConnection:
        connections.append(CountingConnection(path))
        return connections[-1]

    store = SQLiteStore(tmp_path / "log.db", connect=connect)
    made = bandits(store)
    run_together(store, [decide(each) for each in made])
    connections[0].fails = True
    with pytest.raises(Unavailable):
        run_together(store, [decide(each) for each in made])
    connections[0].fails = False
    run_together(store, [decide(each) for each in made])
    store.close()
    check_logs(tmp_path / "log.db", dict.fromkeys(NAMES, 2))


def test_ids_are_new_and_in_ascending_order(store) -> None:
    before = new_ids(1)[0]
    made = bandits(store)
    first = [rows[0].id for rows in run_together(store, [decide(each) for each in made * 5])]
    second = [rows[0].id for rows in run_together(store, [decide(each) for each in made * 5])]
    assert len({before, *first, *second}) == 31
    assert before < min(first) <= max(first) < min(second)
