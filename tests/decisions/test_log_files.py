"""Logs are written to every format and read back unchanged; invalid logs are refused with a clear error."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from maillard import verify
from maillard.cli import main
from maillard.decisions import Bandit, Reward
from maillard.decisions.events import Event
from maillard.decisions.files import obp
from maillard.decisions.log import DecisionLog
from maillard.decisions.opening import import_log, read_log, write_log
from maillard.decisions.state import replay
from maillard.decisions.stores.memory import MemoryStore
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import Conflict, InvalidValue, MaillardError, UnknownName

ARMS = ["red", 'bl"ue,', "=1+1", "grün\n\r\u2028'", " ", "\N{SLICE OF PIZZA}"]
RULES = {
    "first": Reward(low=0, high=1),
    "last, with a window": Reward(low=-2, high=2, window=20, combine="last"),
    "sum, with a default": Reward(low=0, high=3, window=20, default=0, combine="sum", learn="on_arrival"),
    "sum, provisional": Reward(low=0, high=3, window=20, default=0, combine="sum", learn="provisional"),
    "max, mature": Reward(low=0, high=1, window=10, combine="max", learn="on_close"),
    "mature, with a default": Reward(low=0, high=1, window=20, default=0.25),
}


class Clock:
    """A clock that moves by `tick` with every call, or when `now` is set."""

    def __init__(self, tick: int = 1) -> None:
        self.now, self.tick = 1_790_000_000_123_456, tick

    def __call__(self) -> int:
        self.now += self.tick  # with a tick of 1, no two calls are at the same time
        return self.now


def run_random_experiment(
    store,
    clock: Clock,
    reward: Reward,
    seed: int,
    *,
    sticky: bool = False,
    steps: int = 150,
    set_back: float = 0,
) -> None:
    """Run a random experiment with events, decisions and rewards of every type.

    `set_back` is the probability, in each step, that the clock is set back.
    """
    rng = random.Random(seed)
    bandit = Bandit(
        ARMS[:3], "ms+:booster=8", reward=reward, log=store, experiment="home", sticky=sticky, staleness=0
    )
    ids: list[str] = []
    snapshot = bandit.snapshot()
    low, high = reward.range or (0, 1)
    for step in range(steps):
        clock.now += rng.randrange(1, 2_000_000) * (clock.tick or rng.randrange(2))
        if rng.random() < set_back:
            clock.now -= rng.randrange(40_000_000)
        match rng.randrange(24):
            case 0:
                bandit.add_arm(rng.choice(sorted(set(ARMS) - set(bandit.arms)) or [f"new {step}"]))
            case 1 if len(bandit.arms) > 2:
                bandit.retire_arm(rng.choice(bandit.arms))
            case 2:
                bandit.change_policy(
                    rng.choice(["ms:sigma2=0.25", "uniform", "ucb1:sigma2=0.25", "ms+:floor=0.05"])
                )
            case 3:
                rng.choice([bandit.reset, bandit.pause, lambda: bandit.restore(snapshot)])()
                bandit.resume()
            case 4:
                bandit.warm_start({bandit.arms[0]: (2, 2 * low + 0.1 * (high - low))})
            case 5:
                bandit.erase_unit(f"user,{rng.randrange(9)}")
            case 6:  # a reward that precedes its decision
                early = f"{clock.now // 1000:012x}7"
                early = f"{early[:8]}-{early[8:12]}-7abc-8abc-{rng.randrange(16**12):012x}"
                bandit.reward(early, low, event=f"e{step}")
            case kind if kind < 14:
                key = f"key {step}" if rng.random() < 0.3 else None
                unit = rng.choice([None, f"user,{rng.randrange(9)}", f"=cmd|'{rng.randrange(3)}'"])
                some = rng.sample(bandit.arms, rng.randrange(1, len(bandit.arms) + 1))
                made = bandit.choose(unit, rng.choice([None, some]), rng.randrange(1, 4), key)
                ids += [decision.id for decision in made]
            case _ if ids:
                at = None if rng.random() < 0.5 else from_microseconds(clock.now - rng.randrange(10**6))
                value = rng.choice([rng.uniform(low, high) / 3, low, high])
                bandit.reward(rng.choice(ids[-rng.choice([5, 50]) :]), value, at, f"event {step}")
                if rng.random() < 0.2:  # several at once, some of them again
                    rows = [{"decision": key, "value": value, "event": f"event {step}"} for key in ids[-4:]]
                    bandit.rewards(rows + rows[:2])
    bandit.choose(size=3)


def content(log: DecisionLog) -> tuple[object, ...]:
    """The whole content of a log."""
    return list(log.rows()), log.events, log.number, log.parked, log.experiment, log.arms, log.reward


def same_state(one, other) -> bool:
    names = (
        "number",
        "administrative",
        "epoch",
        "arms",
        "active",
        "tally",
        "policy",
        "policy_version",
        "paused",
        "sticky",
    )
    return all(getattr(one, name) == getattr(other, name) for name in names)


@pytest.fixture(params=["memory", "sqlite"])
def clocked_store(request, tmp_path):
    """An empty store and its clock."""
    clock = Clock()
    path = tmp_path / "store.db"
    return MemoryStore(clock) if request.param == "memory" else SQLiteStore(path, clock=clock), clock


@pytest.mark.parametrize("rule", RULES)
def test_a_log_is_read_from_files_as_it_was_written(rule, clocked_store, tmp_path) -> None:
    store, clock = clocked_store
    sticky = isinstance(store, SQLiteStore)
    run_random_experiment(store, clock, RULES[rule], seed=len(rule) + sticky, sticky=sticky)
    log = read_log(store)
    expected = content(log)
    rows, events, number, parked, *_ = expected
    assert len(rows) > 60
    assert len(events) > 15
    assert number > 40
    assert parked
    with_late = any(each.late for row in rows for each in row.rewards)
    assert with_late == (RULES[rule].window is not None)
    for name in ("log.parquet", "log.csv"):
        path = tmp_path / name
        assert write_log(log, path) == (len(rows), 0)
        back = read_log(path)
        assert content(back) == expected
        assert back.as_of == log.as_of
        assert same_state(back.final_state(), log.final_state())
        assert [back.reward_of(row) for row in back.rows()] == [log.reward_of(row) for row in rows]

        imported = tmp_path / f"{name}.db"
        assert import_log(path, imported) == len(rows)
        assert content(read_log(imported)) == expected
        copy = MemoryStore(clock)
        import_log(path, copy, "other")
        renamed = read_log(copy)
        assert [row.decision._replace(experiment="home") for row in renamed.rows()] == [
            r.decision for r in rows
        ]
        assert content(renamed)[1:4] == expected[1:4]
        assert not list(tmp_path.glob(".maillard*"))
    assert content(read_log(log.to_arrow())) == expected
    assert content(read_log(log.to_pandas())) == expected


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize(("tick", "set_back"), [(1, 0), (1, 0.1), (0, 0), (0, 0.1)])
def test_a_correct_log_verifies_even_if_the_clock_stops_or_is_set_back(
    rule, sticky, tick, set_back, tmp_path
) -> None:
    for seed in range(2):
        clock = Clock(tick)
        store = MemoryStore(clock)
        run_random_experiment(store, clock, RULES[rule], seed, sticky=sticky, set_back=set_back, steps=100)
        found = verify(store)
        assert found.problems == []
        assert found.recomputed == found.decisions > 40
        assert (found.not_audited > 0) == sticky
    write_log(read_log(store), tmp_path / "log.parquet")
    assert verify(tmp_path / "log.parquet").problems == []


@pytest.mark.parametrize("rule", RULES)
def test_an_imported_experiment_continues_like_the_original(rule, tmp_path) -> None:
    """Open windows and sticky assignments are copied: the same calls have the same results in both logs."""
    clock = Clock()
    store = SQLiteStore(tmp_path / "one.db", clock=clock)
    run_random_experiment(store, clock, RULES[rule], seed=3, sticky=True, steps=80)
    with Bandit(log=store, experiment="home", staleness=0) as bandit:
        fresh = [bandit.choose(f"new {i}").id for i in range(5)]
        other = next(arm for arm in bandit.arms if arm != bandit.decision(fresh[3]).arm)
        again = bandit.choose("new 3", [other])  # its first arm is not eligible, so it gets another
        bandit.reward(fresh[0], 0.25)
    import_log(store, tmp_path / "two.db")
    seen = []
    for name in ("one.db", "two.db"):
        now = Clock()
        now.now = clock.now + 1_000_000
        with Bandit(log=SQLiteStore(tmp_path / name, clock=now), experiment="home", staleness=0) as bandit:
            outcomes = [bandit.reward(key, 0.5, event="later") for key in fresh]
            unit = bandit.choose("new 1").arm, bandit.choose("new 2").origin, bandit.choose("new 3").origin
            now.now += 100_000_000
            bandit.settle()
            state = bandit.summary()
            seen.append((outcomes, unit, {**state, "log": None}, bandit.tally))
    assert seen[0] == seen[1]
    assert seen[0][1][1:] == (fresh[2], again.id)


def test_an_opened_log_does_not_contain_later_rows(tmp_path) -> None:
    bandit = Bandit(["a", "b"], "ms", reward=Reward(low=0, high=1, combine="sum"), log=tmp_path / "x.db")
    ids = [bandit.choose().id for _ in range(20)]
    for key in ids[:10]:
        bandit.reward(key, 0.25)
    log = read_log(bandit)
    before = content(log)
    for key in ids[5:]:
        bandit.reward(key, 0.5, event="more")
    bandit.choose()
    bandit.reset()
    bandit.choose()
    assert content(log)[1:] == before[1:]
    known = {row.decision.id: row for row in before[0]}
    later = [row for row in log.rows() if row.decision.id not in known]
    assert [row for row in log.rows() if row.decision.id in known] == before[0]
    assert not later  # decisions from later states are not in the log
    assert log.final_state().number == 11
    import_log(log, tmp_path / "y.db")
    assert read_log(tmp_path / "y.db").final_state().number == 11


def test_history_orders_rows_and_events(tmp_path) -> None:
    clock = Clock()
    store = MemoryStore(clock)
    run_random_experiment(store, clock, RULES["first"], seed=5)
    log = read_log(store)
    assert any(event.kind == "restore" for event in log.events)
    start, *history = log.history()
    assert isinstance(start, Event)
    state, seen = replay([start]), 0
    for each in history:
        if isinstance(each, Event):
            state = state.after([each])  # raises if it is not the next event
        else:
            assert each.decision.state == state.number
            assert log.policies[each.decision.policy_version] == str(state.policy)
            seen += 1
    assert seen == sum(1 for _ in log.rows())
    assert same_state(state, log.final_state())


def test_policies_by_version() -> None:
    bandit = Bandit(["a", "b"], "ms:sigma2=1")
    snapshot = bandit.snapshot()
    bandit.restore(snapshot)  # the same policy: no new version
    bandit.change_policy("uniform")
    bandit.restore(snapshot)
    assert read_log(bandit).policies == {1: "ms:sigma2=1", 2: "uniform", 3: "ms:sigma2=1"}
    assert bandit.choose().policy_version == 3


def test_reward_of_combines_in_time_rewards_or_gives_the_default() -> None:
    clock = Clock()
    rule = Reward(low=0, high=1, window=10, default=0.25, combine="sum", learn="on_arrival")
    bandit = Bandit(["a", "b"], "ms", reward=rule, log=MemoryStore(clock), staleness=0)
    early, never, late = (bandit.choose().id for _ in range(3))
    bandit.reward(early, 0.5)
    bandit.reward(early, 0.125, event="more")
    clock.now += 11_000_000
    bandit.reward(late, 1.0)
    bandit.settle()
    young = bandit.choose().id
    log = read_log(bandit)
    rewards = {row.decision.id: (log.reward_of(row), log.is_closed(row.decision)) for row in log.rows()}
    assert rewards == {early: (0.625, True), never: (0.25, True), late: (0.25, True), young: (None, False)}


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> DecisionLog:
    clock = Clock()
    path = tmp_path_factory.mktemp("log") / "home.db"
    store = SQLiteStore(path, clock=clock)
    run_random_experiment(store, clock, RULES["sum, with a default"], seed=1)
    return read_log(store)


def rewarded(log: DecisionLog) -> list[tuple[object, float | None]]:
    """The decisions with a final reward, and that reward."""
    final = [(row.decision, log.final_reward_of(row)) for row in log.rows()]
    return [pair for pair in final if pair[1] is not None]


def test_polars_and_tables_without_metadata_are_foreign(log) -> None:
    for frame in (log.to_polars(), log.to_polars().lazy(), log.to_arrow().replace_schema_metadata(None)):
        back = read_log(frame)
        assert back.foreign
        assert [row.decision for row in back.rows()] == [row.decision for row in log.rows()]
        assert list(map(back.reward_of, back.rows())) == list(map(log.reward_of, log.rows()))
        with pytest.raises(MaillardError, match="no events"):
            back.final_state()
        with pytest.raises(MaillardError, match="warm_start"):
            import_log(back, MemoryStore())


def test_a_frame_with_missing_rows_cannot_be_replayed(log) -> None:
    frame = log.to_pandas()
    assert content(read_log(frame.sample(frac=1, random_state=0))) == content(log)
    part = read_log(frame[frame.epoch == frame.epoch.max()])
    assert 0 < len(list(part.rows())) < len(frame)
    with pytest.raises(MaillardError, match=r"event \d+ is missing"):
        part.final_state()


def test_the_columns_of_an_exported_table(log, tmp_path) -> None:
    write_log(log, tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    assert table.column_names[:9] == [
        "id", "experiment", "time", "unit", "arm", "probability", "log_probability", "eligible",
        "log_probabilities",
    ]  # fmt: skip
    assert table.schema.field("time").type == pa.timestamp("us", tz="UTC")
    assert pa.types.is_dictionary(table.schema.field("policy").type)
    assert json.loads(table.schema.metadata[b"maillard"])["schema"] == 3
    rows = table.to_pylist()
    assert len({row["policy"] for row in rows}) > 1
    assert any(-math.inf in row["log_probabilities"] for row in rows)
    for row in rows:
        assert row["policy"] == log.policies[row["policy_version"]]
        assert row["probability"] == math.exp(row["log_probabilities"][row["eligible"].index(row["arm"])])
    closed = [row["closed"] for row in rows]
    assert any(closed)
    assert not all(closed)


def test_obp_has_the_rewarded_decisions(log, tmp_path) -> None:
    path = tmp_path / "log.npz"
    expected = rewarded(log)
    assert write_log(log, path) == (len(expected), sum(1 for _ in log.rows()) - len(expected))
    feedback = obp.to_obp(log)
    assert np.allclose(feedback["pi_b"].sum(axis=1), 1, atol=1e-12)
    places = np.arange(feedback["n_rounds"]), feedback["action"], 0
    assert np.array_equal(feedback["pi_b"][places], feedback["pscore"])
    for source in (path, feedback):
        back = read_log(source)
        assert back.foreign
        assert back.arms == log.arms
        got = rewarded(back)
        assert [value for _, value in got] == [value for _, value in expected]
        for (one, _), (other, _) in zip(got, expected, strict=True):
            assert (one.id, one.arm) == (other.id, other.arm)
            assert one.probabilities == pytest.approx({a: p for a, p in other.probabilities.items() if p > 0})


def test_bandit_feedback_of_other_programs_is_read() -> None:
    feedback = {
        "n_rounds": 3,
        "n_actions": 4,
        "action": [0, 3, 1],
        "reward": [1, 0, 1],
        "pscore": [0.5, 0.25, 1.0],
    }
    back = read_log(feedback)
    rows = list(back.rows())
    assert back.arms == ("0", "1", "2", "3")
    assert [row.decision.arm for row in rows] == ["0", "3", "1"]
    assert [row.decision.probability for row in rows] == pytest.approx([0.5, 0.25, 1.0])
    assert rows[0].decision.eligible == back.arms
    assert [math.isnan(log) for log in rows[0].decision.log_probabilities] == [False, True, True, True]
    pi_b = np.full((3, 4, 2), 0.25)
    pi_b[2, :, 1] = [0.1, 0.2, 0.3, 0.4]
    slots = read_log({**feedback, "pi_b": pi_b, "position": np.array([0, 0, 1]), "pscore": [0.25, 0.25, 0.2]})
    assert list(slots.rows())[2].decision.probabilities == pytest.approx(
        dict(zip("0123", pi_b[2, :, 1], strict=True))
    )
    assert [row.decision.position for row in slots.rows()] == [0, 0, 1]


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.npz", "log.dsjson"])
def test_foreign_logs_are_converted_to_every_format(name, tmp_path) -> None:
    feedback = {"action": [0, 1, 1], "reward": [1, 0, 0.5], "pscore": [0.5, 0.25, 0.75], "arms": ["a,", "b"]}
    source = read_log(feedback)
    write_log(source, tmp_path / name)
    back = read_log(tmp_path / name)
    assert list(back.rows()) == list(source.rows())
    assert back.foreign
    assert back.arms == source.arms


def test_dsjson_has_the_rewarded_decisions(log, tmp_path) -> None:
    path = tmp_path / "log.dsjson"
    expected = rewarded(log)
    assert write_log(log, path).rows == len(expected)
    assert rewarded(read_log(path)) == expected
    for line, (decision, reward) in zip(path.read_bytes().splitlines(), expected, strict=True):
        data = json.loads(line)
        assert line.find(b',"a"') - line.find(b',"Timestamp') >= 60
        assert list(data)[:5] == [
            "_label_cost",
            "_label_probability",
            "_label_Action",
            "_labelIndex",
            "Timestamp",
        ]
        assert data["_label_cost"] == -reward
        assert data["p"][0] == data["_label_probability"] == decision.probability
        assert data["c"]["_multi"][data["a"][0] - 1] == {"Arm": {"name": decision.arm}}


def test_dsjson_of_other_programs_is_read(tmp_path) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(
        '{"_label_cost":-1,"_label_probability":0.8,"_label_Action":2,"_labelIndex":1,"Timestamp":"2017-10-24T00:00:15.5160000Z",'
        '"Version":"1","EventId":"fa68","a":[2,1],"c":{"User":{"age":3},"_multi":[{"x":1},{"x":2}]},"p":[0.8,0.2]}\n'
        '{"RewardValue":1,"EventId":"other"}\n\n'
        '{"EventId":"fa69","a":[1,2],"c":{"_multi":[{"x":1},{"x":2}]},"p":[0.7,0.3]}\n',
        encoding="utf8",
    )
    back = read_log(path)
    first, second = back.rows()
    assert (first.decision.id, first.decision.arm, back.reward_of(first)) == ("fa68", "2", 1.0)
    assert first.decision.probabilities == pytest.approx({"1": 0.2, "2": 0.8})
    assert first.decision.at == datetime(2017, 10, 24, 0, 0, 15, 516000, UTC)
    assert (second.decision.arm, back.reward_of(second)) == ("1", None)


def test_a_foreign_table_requires_arm_and_probability(tmp_path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("arm,probability,reward,page\nred,0.5,1,x\nblue,0.25,,y\n", encoding="utf8")
    back = read_log(path)
    assert back.foreign
    assert back.arms == ("red", "blue")
    assert [(row.decision.arm, back.reward_of(row)) for row in back.rows()] == [("red", 1.0), ("blue", None)]
    assert math.isnan(next(back.rows()).decision.probabilities["blue"])
    path.write_text("arm,chance\nred,0.5\n", encoding="utf8")
    with pytest.raises(InvalidValue, match=r"arm and probability.* --columns probability=NAME"):
        read_log(path)
    with pytest.raises(InvalidValue, match="our name first: probability=chance, got 'chance=probability'"):
        read_log(path, columns={"chance": "probability"})
    with pytest.raises(UnknownName, match="unknown name 'chance'"):
        read_log(path, columns={"chance": "p"})


def test_one_probability_is_no_list_of_log_probabilities(tmp_path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("arm,probability,p1\nred,0.5,0.5\n", encoding="utf8")
    with pytest.raises(
        InvalidValue, match="log_probabilities: expected a list of log probabilities, one for"
    ):
        read_log(path, columns={"log_probabilities": "p1"})


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_a_csv_file_without_commas_is_refused_with_the_reason(separator, name, tmp_path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(separator.join(["banner", "p"]) + "\n" + separator.join(["red", "0,5"]), encoding="utf8")
    for columns in (None, {"arm": "banner", "probability": "p"}):
        with pytest.raises(InvalidValue, match=f"header: expected commas .* to have {name}, so convert it"):
            read_log(path, columns=columns)


def test_times_of_a_foreign_table_without_a_zone_are_utc(tmp_path) -> None:
    path = tmp_path / "own.csv"
    times = ["2026-03-02", "2026-03-02 00:30:00", "2026-03-02T01:00:00+00:15", "2026-03-02 01:00:00.5"]
    path.write_text("arm,probability,time\n" + "".join(f"red,1,{each}\n" for each in times), encoding="utf8")
    seconds = [
        (row.decision.at - datetime(2026, 3, 2, tzinfo=UTC)).total_seconds() for row in read_log(path).rows()
    ]
    assert seconds == [0, 1800, 2700, 3600.5]
    frame = pa.table({"arm": ["red"], "probability": [1.0], "time": [datetime(2026, 3, 2)]})
    assert next(read_log(frame).rows()).decision.at == datetime(2026, 3, 2, tzinfo=UTC)


def test_the_experiment_must_be_named_if_there_are_several(tmp_path) -> None:
    store = SQLiteStore(tmp_path / "two.db")
    for name in ("home", "cart"):
        with Bandit(
            ["a", "b"], "ms", reward=Reward(low=0, high=1), log=tmp_path / "two.db", experiment=name
        ) as bandit:
            bandit.choose(unit=name)
    with pytest.raises(InvalidValue, match="'cart', 'home'"):
        read_log(tmp_path / "two.db")
    with pytest.raises(UnknownName, match="Did you mean 'home'"):
        read_log(store, "hom")
    log = read_log(str(tmp_path / "two.db"), "cart")
    assert [row.decision.unit for row in log.rows()] == ["cart"]
    assert read_log(log, "cart") is log
    write_log(log, tmp_path / "cart.parquet")
    with pytest.raises(UnknownName):
        read_log(tmp_path / "cart.parquet", "home")
    both = pa.concat_tables([log.to_arrow(), read_log(store, "home").to_arrow()]).replace_schema_metadata(
        None
    )
    with pytest.raises(InvalidValue, match="'cart', 'home'"):
        read_log(both)
    assert [row.decision.unit for row in read_log(both, "home").rows()] == ["home"]


def test_an_import_refuses_existing_experiments_and_writes_nothing_of_a_damaged_log(log, tmp_path) -> None:
    target = tmp_path / "copy.db"
    import_log(log, target)
    with pytest.raises(Conflict, match="already"):
        import_log(log, target)
    with pytest.raises(Conflict, match="as experiment 'home'"):
        import_log(log, target, "other")
    write_log(log, tmp_path / "log.csv")
    text = (tmp_path / "log.csv").read_text(encoding="utf8")
    (tmp_path / "log.csv").write_text(text[: len(text) // 2].rpartition("\n")[0] + "\n", encoding="utf8")
    for store in (MemoryStore(), SQLiteStore(tmp_path / "empty.db")):
        with pytest.raises(MaillardError):
            import_log(tmp_path / "log.csv", store)
        assert store.experiments() == []
    with sqlite3.connect(tmp_path / "empty.db") as connection:
        assert connection.execute("SELECT count(*) FROM decisions").fetchone() == (0,)
    connection.close()


def test_a_newer_schema_is_refused(log, tmp_path) -> None:
    header = json.loads(log.to_arrow().schema.metadata[b"maillard"])
    newer = log.to_arrow().replace_schema_metadata({"maillard": json.dumps({**header, "schema": 4})})
    with pytest.raises(InvalidValue, match="a newer maillard wrote"):
        read_log(newer)


def test_a_file_is_written_completely_or_not_at_all(log, tmp_path) -> None:
    def broken():
        yield from list(log.rows())[:5]
        raise OSError(28, "No space left on device")

    half = DecisionLog(broken, experiment="home", source="half", events=log.events, number=log.number)
    for name in ("x.parquet", "x.csv", "x.npz", "x.dsjson"):
        with pytest.raises((InvalidValue, OSError), match="No space"):
            write_log(half, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidValue, match="folder that exists"):
        write_log(log, tmp_path / "no" / "x.csv")
    with pytest.raises(InvalidValue, match=r"ends in .*\.parquet"):
        write_log(log, tmp_path / "x.xlsx")


def test_an_interrupted_export_leaves_no_csv_with_the_metadata_of_another(log, tmp_path, monkeypatch) -> None:
    path = tmp_path / "log.csv"
    write_log(read_log({"action": [0], "reward": [1], "pscore": [1.0]}), path)
    replace = Path.replace

    def interrupted(self, target):
        if target == path:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_log(log, path)
    assert [each.name for each in tmp_path.iterdir()] == ["log.csv.json"]


def test_an_export_replaces_only_an_earlier_export(log, tmp_path) -> None:
    source = tmp_path / "copy.db"
    import_log(log, source)
    (tmp_path / "link.csv").symlink_to(source)
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    Bandit(["a"], "uniform", log=SQLiteStore(tmp_path / "live.parquet")).choose()  # a SQLite log
    (tmp_path / "notes.txt").write_text("mine")
    before = source.read_bytes()
    with read_log(source) as opened:
        for name in ("copy.db", "link.csv", "pipe.csv", "folder.csv", "live.parquet", "notes.txt"):
            with pytest.raises(InvalidValue, match="file: expected"):
                write_log(opened, tmp_path / name, "parquet")
        with pytest.raises(InvalidValue, match="plain file"):
            write_log(opened, "/dev/null", "csv")
        for name in ("postgresql://me:secret@host/db", "postgresql:/me:secret@host/db.csv", ""):
            with pytest.raises(InvalidValue, match="file: expected a path") as caught:
                write_log(opened, name, "csv")
            assert "secret" not in str(caught.value)
        write_log(opened, tmp_path / "log.csv")
        write_log(opened, tmp_path / "log.csv")
    assert source.read_bytes() == before
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with read_log(tmp_path / "log.csv") as opened:
        for name in ("log.csv", "log.csv.json"):
            with pytest.raises(InvalidValue, match="a file other than the log"):
                write_log(opened, tmp_path / name, "dsjson")
    assert content(read_log(tmp_path / "log.csv")) == content(log)


def test_an_export_does_not_change_other_files(log, tmp_path) -> None:
    (tmp_path / "x.csv.partial").write_text("mine")
    umask = os.umask(0o027)
    try:
        write_log(log, tmp_path / "x.csv")
    finally:
        os.umask(umask)
    assert (tmp_path / "x.csv.partial").read_text() == "mine"
    assert (tmp_path / "x.csv").stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x.csv", "x.csv.json", "x.csv.partial"]


def test_an_import_that_fails_leaves_no_file(log, tmp_path, monkeypatch) -> None:
    (tmp_path / "own.csv").write_text("arm,probability\nred,0.5\n", encoding="utf8")
    with pytest.raises(MaillardError, match="without events"):
        import_log(tmp_path / "own.csv", tmp_path / "new.db")
    assert run("import", tmp_path / "own.csv", tmp_path / "new.db", code=2)
    with pytest.raises(InvalidValue, match="folder that exists"):
        import_log(log, tmp_path / "no" / "new.db")
    with pytest.raises(InvalidValue, match="a name for a SQLite log"):
        import_log(log, tmp_path / "new.csv")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("maillard.decisions.files.store_transfer._add_decisions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_log(log, tmp_path / "new.db")
    assert [each.name for each in tmp_path.iterdir()] == ["own.csv"]
    with Bandit(["a"], "uniform", log=tmp_path / "old.db", experiment="other") as bandit:
        bandit.choose()
    with pytest.raises(KeyboardInterrupt):
        import_log(log, tmp_path / "old.db")
    with read_log(tmp_path / "old.db") as opened:
        assert opened.experiment == "other"


_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)  # SQLite's shared locks
"""


def test_reading_a_live_log_keeps_its_locks(tmp_path) -> None:
    """POSIX drops all of a process's locks on a file when the process closes any descriptor of it."""
    path = tmp_path / "live.db"

    def locked() -> bool:
        command = [sys.executable, "-c", _LOCK, path]
        return subprocess.run(command, check=False, capture_output=True).returncode != 0

    with Bandit(["a", "b"], "ms", reward=Reward(low=0, high=1), log=path) as bandit:
        bandit.reward(bandit.choose().id, 1.0)
        assert locked()
        with read_log(path) as log:
            assert len(list(log.rows())) == 1
            write_log(log, tmp_path / "log.parquet")
            with pytest.raises(InvalidValue):
                write_log(log, path, "parquet")
        assert verify(path).problems == []
        assert locked()
    assert not locked()


def test_a_log_verifies_while_it_is_written(tmp_path, monkeypatch) -> None:
    """All rows are those of one moment, even if rows are written between two queries of the store."""
    bandit = Bandit(["a", "b"], "ms", reward=Reward(low=0, high=1), log=tmp_path / "live.db")
    ids = [bandit.choose().id for _ in range(5)]
    rows = SQLiteStore.rows

    def growing(self, experiment):
        bandit.reward(ids.pop(), 0.5)
        return rows(self, experiment)

    monkeypatch.setattr(SQLiteStore, "rows", growing)
    for _ in range(3):
        assert verify(bandit).problems == []


def test_numbers_with_hundreds_of_digits_are_refused(log, tmp_path) -> None:
    times = '"at":"2026-01-01T00:00:00Z","arrived":"2026-01-01T00:00:00Z"'
    cells = {
        "rewards": f'[{{{{"event":"x","value":{{}},{times},"late":false}}}}]',
        "log_probabilities": "[{}]",
        "state": "{}",
        "log_probability": "{}",
    }
    for column, cell in cells.items():
        path = rewritten(log, tmp_path, column, cell.format("9" * 400))
        with pytest.raises(InvalidValue, match=f"row 3: {column}|row 3: eligible"):
            list(read_log(path).rows())
    (tmp_path / "big.dsjson").write_text(
        '{"_label_cost":' + "9" * 400 + ',"a":[1],"c":{"_multi":[{}]},"p":[1]}'
    )
    with pytest.raises(InvalidValue, match="line 1"):
        read_log(tmp_path / "big.dsjson")


GARBAGE = [
    "NULL", "-1", "0", "1", "7", "0.5", "9223372036854775807", "1e308", "9e999", "-9e999",
    "253402300800000000", "x'ff41'", "CAST(x'ff41' AS TEXT)", "char(0)", "''",
    "'zzz'", "'{'", "'[]'", "'{}'", "'null'",
    "'[1, 2]'", "'[null, null, null]'", "'[true]'", "'[\"red\", \"red\"]'", "'[\"\\ud800\"]'",
    "'" + "9" * 400 + "'", "'[" + "9" * 400 + "]'",
    "'" + "[" * 3000 + "'", "'{\"arms\": 5}'",
    "'{\"arms\": [\"a\"], \"active\": [], \"policy\": \"uniform\", \"tally\": {}}'",
    "'{\"tally\": {\"pulls\": [1], \"sums\": [1]}}'",
    "'start'", "'restore'", "'reward'", "'revision'", "'pause'",
]  # fmt: skip


def put_garbage(path: Path, rng: random.Random) -> None:
    """Write garbage into a random column of one row or of all rows."""
    connection = sqlite3.connect(path, isolation_level=None)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    changed = 0
    while changed < 1:
        table = rng.choice([*tables, "events", "decisions", "rewards"])
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column, where = rng.choice(columns), "WHERE 1"
        if table == "events" and rng.random() < 0.7:
            where = f"WHERE kind = '{rng.choice(['start', 'restore', 'policy', 'revision', 'add_arm'])}'"
        statement = f"UPDATE OR IGNORE {table} SET {column} = {rng.choice(GARBAGE)} {where}"
        with contextlib.suppress(sqlite3.IntegrityError):  # the garbage has another type than the column
            changed = connection.execute(statement).rowcount
    connection.close()


def flip_bytes(path: Path, rng: random.Random) -> None:
    """Change a few bytes of a file, like a faulty disk."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [put_garbage, flip_bytes])
def test_damaged_logs_raise_only_maillard_errors(damage, tmp_path) -> None:
    rng, clock = random.Random(11), Clock()
    store = SQLiteStore(tmp_path / "whole.db", clock=clock)
    run_random_experiment(store, clock, RULES["sum, with a default"], seed=2, sticky=True, steps=60)
    store.close()
    data, path, seen = (tmp_path / "whole.db").read_bytes(), tmp_path / "log.db", Counter[str]()

    def read() -> None:
        with read_log(path) as opened:
            for row in opened.rows():
                opened.reward_of(row)
            opened.final_state()

    def export(name: str) -> None:
        with read_log(path) as opened:
            write_log(opened, tmp_path / name)

    def copy() -> None:
        import_log(path, MemoryStore())

    calls = [read, copy]
    calls += [partial(export, name) for name in ("x.parquet", "x.csv", "x.npz", "x.dsjson")]
    for _ in range(20):
        path.write_bytes(data)
        damage(path, rng)
        try:
            seen[verify(path).verdict] += 1
        except MaillardError:
            seen["refused"] += 1
        for call in calls:
            with contextlib.suppress(MaillardError):
                call()
        for ending in ("-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
    assert seen["broken"] > 5


def rewritten(log: DecisionLog, folder: Path, column: str, cell: str) -> Path:
    """Write the log as CSV, with another value in one cell of the third row."""
    path = folder / "log.csv"
    write_log(log, path)
    with path.open(newline="", encoding="utf8") as file:
        lines = list(csv.reader(file))
    lines[3][lines[0].index(column)] = cell
    with path.open("w", newline="", encoding="utf8") as file:
        csv.writer(file).writerows(lines)
    return path


def garbled(data: bytes, rng: random.Random) -> bytes:
    """The data with a few bytes changed, removed or repeated."""
    content = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(content))
        match rng.randrange(4):
            case 0:
                content[place] = rng.randrange(256)
            case 1:
                content[place] = rng.choice(b'",:-0919eE[]{}NaNnull\n')
            case 2:
                del content[place : place + rng.randrange(1, 200)]
            case 3:
                content[place:place] = content[place : place + rng.randrange(1, 80)]
    return bytes(content)


@pytest.mark.parametrize("name", ["log.csv", "log.csv.json", "log.dsjson", "log.npz", "log.parquet"])
def test_garbled_files_raise_only_maillard_errors(name, log, tmp_path) -> None:
    rng = random.Random(7)
    write_log(log, tmp_path / name.removesuffix(".json"))
    path = tmp_path / name
    data, refused = path.read_bytes(), 0
    for _ in range(150):
        path.write_bytes(garbled(data, rng))
        try:
            opened = read_log(tmp_path / name.removesuffix(".json"))
            for row in opened.rows():
                opened.reward_of(row)
            assert opened.arms is not None
            assert opened.policies is not None
            if not opened.foreign:
                opened.final_state()
        except MaillardError:
            refused += 1
    assert refused > 60


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("id", "7", "row 3: id: expected the id of a decision"),
        ("time", "yesterday", "row 3: time: expected a time such as 2026-03-01 12:00:00 (UTC) or"),
        ("arm", "violet", "row 3: eligible: expected a list with the chosen arm ('violet')"),
        ("log_probability", "0.5", "row 3: log_probability: expected a finite number <= 0"),
        ("log_probability", "", "row 3: log_probability: expected a finite number <= 0, got None"),
        ("log_probabilities", "[1]", "row 3: eligible: expected a list with the chosen arm"),
        ("log_probabilities", "[" * 5000, "row 3: log_probabilities"),
        ("state", "-1", "row 3: state: expected a whole number >= 0"),
        ("state", str(2**63), "row 3: state: expected a whole number >= 0"),
        ("cold", "maybe", "row 3: cold"),
        ("rewards", '[{"event":"x"}]', "row 3: rewards"),
        ("rewards",
         '[{"event":"","value":1,"at":"2026-01-01T00:00:00Z","arrived":"2026-01-01T00:00:00Z","late":false}]',
         "row 3: rewards: event"),
        ("applied",
         '[{"number":1,"kind":"reward","value":1.0,"previous":null,"time":"2026-01-01T00:00:00Z"}]',
         "row 3: applied: number"),
    ],
)  # fmt: skip
def test_errors_name_the_row_and_the_column(column, cell, message, log, tmp_path) -> None:
    path = rewritten(log, tmp_path, column, cell)
    with pytest.raises(InvalidValue) as caught:
        list(read_log(path).rows())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.db", "a file that exists"),
        ("nothing.csv", "a file that exists"),
        ("x" * 5000, "a file that exists"),
        ("postgresql:/user:secret@host/db", "'postgresql...'"),
        (Path("postgresql://user:secret@host/db"), "'postgresql...'"),
        (Path("mysql://user:secret@host/db"), "'mysql...'"),
        ("host=here password=secret", "'...'"),
        (["postgresql://user:secret@host/db"], "a path, a postgresql:// URL"),
        ("mysql://user:secret@host/db", "postgresql"),
        (17, "a path, a postgresql:// URL"),
        ({}, "action, reward and pscore"),
        ({"action": [0], "reward": [1], "pscore": [0.0]}, "round 0: probability"),
        ({"action": [0], "reward": [1, 2], "pscore": [0.5]}, "reward: expected a number for each round, 1"),
        ({"action": [-1], "reward": [1], "pscore": [0.5]}, "indices of"),
        ({"action": [0], "reward": [math.inf], "pscore": [0.5]}, "round 0: reward"),
        (
            {"action": [0], "reward": [1], "pscore": [0.5], "pi_b": [[0.0, 1.0]]},
            "pi_b: expected a probability > 0",
        ),
        ({"action": [0], "reward": [1], "pscore": [0.5], "arms": ["a", "a"]}, "each name once"),
    ],
)
def test_invalid_sources_are_refused(source, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MaillardError) as caught:
        list(read_log(source).rows())
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


def test_export_and_import_commands(log, tmp_path) -> None:
    source = Path(log.source)
    rows = sum(1 for _ in log.rows())
    assert any(log.reward_of(row) is None for row in log.rows())
    assert all(read_log(source).reward_of(row) is not None for row in log.rows())  # all windows have closed
    assert (
        run("export", source, tmp_path / "a.parquet") == f"{tmp_path}/a.parquet: {rows} decisions of 'home'\n"
    )
    text = run("export", source, tmp_path / "a.vw", "--format", "dsjson")
    assert text == f"{tmp_path}/a.vw: {rows} decisions of 'home'\n"
    assert (
        run("import", tmp_path / "a.parquet", tmp_path / "b.db")
        == f"{tmp_path}/b.db: {rows} decisions of 'home'\n"
    )
    assert content(read_log(tmp_path / "b.db")) == content(log)
    run("export", tmp_path / "a.parquet", tmp_path / "a.csv")  # an exported file is a log, too
    text = run("import", tmp_path / "a.csv", tmp_path / "c.db", "--experiment", "other")
    assert text == f"{tmp_path}/c.db: {rows} decisions of 'other'\n"
    assert "Did you mean 'home'" in run("export", source, tmp_path / "x.csv", "--experiment", "hone", code=2)
    assert "already" in run("import", tmp_path / "a.csv", tmp_path / "c.db", "--experiment", "other", code=2)
    for address in (
        "postgresql://me:secret@127.0.0.1:1/db",
        "mysql://me:secret@127.0.0.1/db",
        "postgresql:/me:secret@127.0.0.1/db",
    ):
        assert "secret" not in run("verify", address, code=2)
        assert "secret" not in run("export", tmp_path / "a.csv", address, "--format", "csv", code=2)
        assert "secret" not in run("import", tmp_path / "a.csv", address, code=2)
        assert "secret" not in run("export", address, tmp_path / "x.csv", code=2)


def test_only_one_of_two_concurrent_imports_succeeds(postgres, log) -> None:
    together = threading.Barrier(2)

    def copy(_: int) -> object:
        together.wait(30)
        try:
            return import_log(log, postgres)
        except Conflict as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(copy, range(2)))
    assert sorted(type(each).__name__ for each in results) == ["Conflict", "int"]
    with read_log(postgres, "home") as back:
        assert content(back) == content(log)


def test_a_log_is_imported_into_postgresql_and_exported_again(postgres, log, tmp_path) -> None:
    rows = sum(1 for _ in log.rows())
    assert import_log(log, postgres) == rows
    with read_log(postgres, "home") as back:
        assert content(back) == content(log)
        write_log(back, tmp_path / "log.parquet")
    assert content(read_log(tmp_path / "log.parquet")) == content(log)
