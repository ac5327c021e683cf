"""Exports made from columns have the table that rows give, and odd logs are exported row by row."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maillard.decisions import Bandit, Reward, read_log, write_log
from maillard.decisions.files import arrow, column_batches, sql_batches
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores import native_reads
from maillard.decisions.stores.bulk_columns import OddRows
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import InvalidLog
from tests.decisions.test_log_files import RULES, Clock, run_random_experiment


def plain_table(log: DecisionLog) -> pa.Table:
    return pa.Table.from_batches(arrow.plain_batches(log), schema=arrow.schema())


def fast_table(log: DecisionLog) -> pa.Table:
    return pa.Table.from_batches(arrow.column_batches(log, arrow.schema()), schema=arrow.schema())


@pytest.fixture(params=["packed", "native"])
def reader(request, monkeypatch) -> None:
    """Read columns as in a small log, and as in a large one."""
    if request.param == "native":
        assert loops(build=True) is not None
        monkeypatch.setattr(native_reads, "MIN_DECISIONS", 1)


def assert_same(one: pa.Table, other: pa.Table) -> None:
    assert one.schema.equals(other.schema)
    for name in one.column_names:
        columns = one[name], other[name]
        if name == "policy":  # the dictionary of each batch has its own order
            columns = tuple(each.cast(pa.string()) for each in columns)
        assert columns[0].equals(columns[1]), name
    one.validate(full=True)


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("reader")
def test_the_table_of_columns_is_that_of_rows(tmp_path, monkeypatch, rule, sticky) -> None:
    clock = Clock()
    store = SQLiteStore(tmp_path / "log.db", clock=clock, synchronous="OFF")
    run_random_experiment(store, clock, RULES[rule], 1, sticky=sticky)
    store.close()
    with read_log(tmp_path / "log.db") as log:
        expected = plain_table(log)
        assert expected.equals(fast_table(log))
        monkeypatch.setattr(column_batches, "MAX_BATCH_ROWS", 20)
        assert len(list(arrow.column_batches(log, arrow.schema()))) > 2
        assert_same(fast_table(log), expected)
        write_log(log, tmp_path / "log.parquet")
        written = pq.read_table(tmp_path / "log.parquet")
        assert_same(written.replace_schema_metadata(None), expected)
        assert list(read_log(tmp_path / "log.parquet").rows()) == list(log.rows())


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("learn", ["on_close", "provisional", "on_arrival"])
def test_rows_and_rewards_after_the_log_was_opened_are_left_out(tmp_path, learn) -> None:
    clock = Clock()
    rule = Reward(low=0, high=1, window=20, default=0, learn=learn)
    store = SQLiteStore(tmp_path / "log.db", clock=clock, synchronous="OFF")
    with Bandit(["a", "b"], "uniform", reward=rule, log=store, experiment="home", staleness=0) as bandit:
        early = bandit.choose(size=20)
        bandit.rewards([{"decision": each.id, "value": 1} for each in early[:5]])
        with read_log(tmp_path / "log.db") as log:
            before = plain_table(log)
            clock.now += 5_000_000
            bandit.rewards([{"decision": each.id, "value": 1} for each in early[3:9]])
            later = bandit.choose(size=4)
            bandit.rewards([{"decision": each.id, "value": 1} for each in later])
            clock.now += 30_000_000
            bandit.rewards([{"decision": each.id, "value": 1, "event": "late"} for each in early])
            bandit.choose(size=3)
            assert fast_table(log).equals(plain_table(log))
            if learn != "on_close":  # there, a reward is an event only when the window closes
                assert fast_table(log).slice(0, 20).equals(before)
        with read_log(tmp_path / "log.db") as log:
            assert fast_table(log).equals(plain_table(log))
            assert fast_table(log).num_rows == 27


@pytest.mark.usefixtures("reader")
def test_one_arm_and_many_arms(tmp_path) -> None:
    for count in (1, 100):  # the vectors of 100 arms are compressed
        arms = [f"arm {i}" for i in range(count)]
        with Bandit(arms, "ms+:booster=8", reward=Reward(low=0, high=1), log=tmp_path / f"{count}.db") as it:
            for decision in [*it.choose(size=5), it.choose(eligible=arms[:1])]:
                it.reward(decision.id, 0.5)
                it.choose("somebody", idempotency_key=f"key of {decision.id}")
        with read_log(tmp_path / f"{count}.db") as log:
            assert fast_table(log).equals(plain_table(log))


@pytest.mark.usefixtures("reader")
def test_several_experiments_in_one_file(tmp_path) -> None:
    bandits = [
        Bandit(["a", "b"], "uniform", reward=Reward(low=0, high=1), log=tmp_path / "log.db", experiment=name)
        for name in ("one", "two")
    ]
    for _ in range(3):
        for bandit in bandits:
            for decision in bandit.choose(size=4):
                bandit.reward(decision.id, 1)
    for name in ("one", "two"):
        with read_log(tmp_path / "log.db", name) as log:
            assert fast_table(log).equals(plain_table(log))
            assert fast_table(log).num_rows == 12


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("rule", RULES)
def test_the_rows_of_some_decisions(tmp_path, rule) -> None:
    clock = Clock()
    store = SQLiteStore(tmp_path / "log.db", clock=clock, synchronous="OFF")
    run_random_experiment(store, clock, RULES[rule], 3)
    store.close()
    with read_log(tmp_path / "log.db") as log:
        expected = plain_table(log)
        chosen = expected.take(list(range(0, len(expected), 7)))
        unknown = "0" * 36
        for ids, rows in (([unknown, *chosen["id"].to_pylist()], chosen), ([unknown], chosen.slice(0, 0))):
            wanted = np.array(sorted(ids), "S36")
            assert log.read_chain is not None
            with log.read_chain() as transaction:
                ((given, found),) = sql_batches.batches_of(transaction, log, [wanted])
            assert given is wanted
            assert_same(pa.Table.from_batches(found, schema=arrow.schema()), rows)


def test_a_log_of_an_older_version_is_exported_row_by_row(tmp_path) -> None:
    old = shutil.copy(Path(__file__).parent / "old_logs" / "both.db", tmp_path / "old.db")
    for name in ("home", "shop"):
        with read_log(old, name) as log:
            with pytest.raises(OddRows):
                fast_table(log)
            assert log.to_arrow().replace_schema_metadata(None).equals(plain_table(log))
            write_log(log, tmp_path / "old.parquet")
            assert list(read_log(tmp_path / "old.parquet").rows()) == list(log.rows())


def test_a_selection_is_exported_row_by_row(tmp_path) -> None:
    with Bandit(["a", "b"], "uniform", reward=Reward(low=0, high=1), log=tmp_path / "log.db") as bandit:
        bandit.choose(size=3)
        bandit.choose("somebody")
    with read_log(tmp_path / "log.db", unit="somebody") as log:
        assert log.to_arrow()["unit"].to_pylist() == ["somebody"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE decisions SET arm = 'c' WHERE state = 3",
        "UPDATE decisions SET cold = 2 WHERE state = 3",
        "UPDATE decisions SET time = -1 WHERE state = 3",
        "UPDATE decisions SET log_probability = 1 WHERE state = 3",
        "UPDATE events SET kind = 'gift' WHERE number = 3",
        "UPDATE events SET previous = 1 WHERE number = 3",
        "UPDATE rewards SET late = 7",
        "DELETE FROM vectors WHERE state = 3",
        "UPDATE vectors SET data = x'00' WHERE state = 3",
        "UPDATE arm_lists SET names = '[]'",
    ],
)
@pytest.mark.usefixtures("reader")
def test_damage_is_reported_as_by_rows(tmp_path, damage) -> None:
    with Bandit(
        ["a", "b"], "ms+:booster=8", reward=Reward(low=0, high=1), log=tmp_path / "log.db", staleness=0
    ) as bandit:
        for _ in range(5):
            bandit.reward(bandit.choose().id, 1)
    connection = sqlite3.connect(tmp_path / "log.db")
    assert connection.execute(damage).rowcount
    connection.commit()
    connection.close()
    with read_log(tmp_path / "log.db") as log:
        with pytest.raises(OddRows):
            fast_table(log)
        with pytest.raises(InvalidLog) as expected:
            plain_table(log)
        with pytest.raises(InvalidLog) as found:
            write_log(log, tmp_path / "log.parquet")
        assert str(found.value) == str(expected.value)
    assert [
        each.name for each in tmp_path.iterdir() if "parquet" in each.name or "maillard" in each.name
    ] == []
