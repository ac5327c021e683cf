"""Bulk reads: the arrays of a SQLite log are those of its rows."""

from __future__ import annotations

import dataclasses
import random
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, Reward
from maillard.decisions import DecisionLog, read_log
from maillard.decisions.log_arrays import LogArrays
from maillard.decisions.stores import bulk_reads
from maillard.decisions.stores.bulk_columns import OddRows, columns_of_rows
from maillard.decisions.stores.bulk_reads import BulkReader
from maillard.decisions.stores.contract import Row
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.native_reads import NativeReader
from maillard.decisions.stores.packed_reads import PackedReader
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.decisions.timestamps import clock_of
from tests.decisions.test_screening import ARMS, RULES, Clock, bandit_after

READERS = BulkReader, PackedReader, NativeReader
FIELDS = [field.name for field in dataclasses.fields(LogArrays)]


def parts_in(
    log: DecisionLog, size: int = 50_000, reader: type[BulkReader] = BulkReader
) -> Iterator[LogArrays]:
    assert log.read_chain is not None
    assert log.reward is not None
    with log.read_chain() as transaction:
        yield from reader(transaction).arrays(log.arms, log.number, log.reward.learn, size)


def assert_same_rows(log: DecisionLog, size: int = 50_000) -> int:
    """Check that the parts of every reader have the rows of the log, and return the number of parts."""
    assert loops(build=True) is not None
    rows = list(log.rows())
    counts = [check_parts(log, rows, parts_in(log, size, each)) for each in READERS]
    assert len(set(counts)) == 1
    return counts[0]


def check_parts(log: DecisionLog, rows: list[Row], parts: Iterator[LogArrays]) -> int:
    done, count = 0, 0
    for part in parts:
        mine = rows[done : done + len(part)]
        expected = LogArrays.of_rows(mine, log.arms)
        for name in set(FIELDS) - {"eligible", "eligible_sets", "rewards", "applied", "rows"}:
            if not name.startswith(("vector", "log_probabilities")):
                np.testing.assert_array_equal(getattr(part, name), getattr(expected, name), name)
        for place, row in enumerate(mine):
            assert part.eligible_sets[part.eligible[place]] == row.decision.eligible
            logs = part.vectors(part.vector[place : place + 1])
            assert tuple(logs.tolist()) == row.decision.log_probabilities
        for one, other in zip(part.applied, expected.applied, strict=True):
            np.testing.assert_array_equal(one, other)
        # Several rewards of a decision may be in another order.
        pairs = [
            sorted(zip(*(each.tolist() for each in some), strict=True))
            for some in (part.rewards, expected.rewards)
        ]
        assert pairs[0] == pairs[1]
        assert list(part.rows(np.arange(len(part)))) == mine
        done, count = done + len(part), count + 1
    assert done == len(rows)
    return count


def file_of(folder: Path, rule: Reward | None = None, **options: Any) -> Bandit:
    return bandit_after(rule=rule, log=folder / "log.db", **options)


@pytest.mark.parametrize("rule", RULES)
def test_the_rows_of_a_file(tmp_path, rule) -> None:
    with file_of(tmp_path, RULES[rule], rounds=120) as bandit:
        assert assert_same_rows(read_log(bandit)) == 1
        assert assert_same_rows(read_log(bandit), 70) > 1


def test_other_experiments_in_the_same_file(tmp_path) -> None:
    store = SQLiteStore(tmp_path / "log.db", synchronous="OFF")
    bandits = [
        Bandit(ARMS, "ms", reward=RULES["max"], log=store, seed=seed, experiment=f"test-{seed}")
        for seed in range(3)
    ]
    for _ in range(20):
        for bandit in bandits:
            for decision in bandit.choose(size=2):
                bandit.rewards([{"decision": decision, "value": 1.0}])
    for bandit in bandits:
        assert_same_rows(read_log(bandit), 15)
        bandit.close()


def test_sticky_units(tmp_path) -> None:
    with file_of(tmp_path, rounds=100, sticky=True) as bandit:
        assert_same_rows(read_log(bandit), 40)


@pytest.mark.parametrize("rule", RULES)
def test_a_log_that_grows_after_it_was_opened(tmp_path, rule) -> None:
    """Later decisions and rewards are left out, as they are row by row."""
    clock, rng = Clock(), random.Random(5)
    store = SQLiteStore(tmp_path / "log.db", synchronous="OFF", clock=clock_of(clock))
    bandit = Bandit(ARMS, "ms", reward=RULES[rule], seed=1, log=store)
    waiting = [each.id for each in bandit.choose(size=30)]
    for number in range(60):
        clock.now += timedelta(seconds=1)
        waiting.append(bandit.choose().id)
        bandit.reward(waiting.pop(rng.randrange(len(waiting))), rng.choice((0.0, 1.0)))
        if number == 30:
            log = read_log(bandit)
    assert_same_rows(log, 20)
    assert sum(map(len, parts_in(log))) < 91
    bandit.close()


def test_states_in_another_order_than_ids(tmp_path, monkeypatch) -> None:
    """Rows are held back until all of a state are read; but not too many of them."""
    bandit = file_of(tmp_path, rounds=60, busy=False)
    source = bandit._store.where
    ids = [row.decision.id for row in read_log(bandit).rows()]
    bandit.close()
    with sqlite3.connect(source) as connection:
        # Exchange two ids, and with them the place of their states.
        for one, other in ((ids[3], "x"), (ids[20], ids[3]), ("x", ids[20])):
            connection.execute("UPDATE decisions SET id = ? WHERE id = ?", (other, one))
            connection.execute("UPDATE rewards SET decision = ? WHERE decision = ?", (other, one))
            connection.execute("UPDATE events SET decision = ? WHERE decision = ?", (other, one))
    with read_log(source) as log:
        assert [row.decision.id for row in log.rows()] != ids
        for size in (18, 5):
            assert_same_rows(log, size)
        monkeypatch.setattr(bulk_reads, "_MAX_HELD_CHUNKS", 2)
        with pytest.raises(OddRows, match="order"):
            list(parts_in(log, 5))


def test_another_store_has_no_bulk_reads() -> None:
    with pytest.raises(OddRows, match="store"):
        list(parts_in(read_log(bandit_after(rounds=5))))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("whole", 3, [-1, 2**62 + 1, 1.0, "1", None, b"1"]),
        ("time", 3, [-1, 2**62, 1.0, None]),
        ("truth", 1, [-1, 2, "x"]),
        ("real", 0.5, [1, "1", None, float("inf"), float("nan")]),
        ("real?", None, [1, "1", float("-inf")]),
        ("log", -0.5, [0.1, float("nan"), None, 0]),
        ("text", "a", [None, 1, b"a"]),
        ("text?", None, [1, b"a", 0.5]),
        ("bytes?", None, ["a", 1]),
        ("kind", "revision", ["gift", None, 1]),
        ("empty", "", ["a", None, b""]),
        ("null", None, ["", 0]),
    ],
)
def test_values_of_other_types(kind, good, bad) -> None:
    columns_of_rows([(good,), (good,)], {"column": kind})
    for value in bad:
        with pytest.raises(OddRows):
            columns_of_rows([(good,), (value,)], {"column": kind})
