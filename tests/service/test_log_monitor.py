"""The monitor, which reads the log continuously for activity, reward series and the audit."""

from __future__ import annotations

import math
import random
import sqlite3
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from maillard import Bandit, Reward, verify, wire_schema
from maillard.decisions import import_log
from maillard.decisions.audit import live_limit
from maillard.decisions.choosing import Request
from maillard.decisions.identifiers import creation_time
from maillard.decisions.session import Call
from maillard.decisions.stores import Store
from maillard.decisions.stores.memory import MemoryStore
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.decisions.timestamps import from_microseconds, system_clock
from maillard.errors import MaillardError, Unavailable
from maillard.service.log_monitor import Monitor
from tests.stores import EXPERIMENT, Log, decision, new_id, write

ARMS = ["red", "blue", "green"]
MEANS = {"red": 0.3, "blue": 0.5, "green": 0.4, "grey": 0.9}


def make_decisions(bandit: Bandit, rounds: int, seed: int = 0, size: int = 1) -> None:
    """Make decisions and report rewards for most of them; some rewards are revised."""
    rng = random.Random(seed)
    for _ in range(rounds):
        rewards = [
            {"decision": made.id, "value": float(rng.random() < MEANS[made.arm]), "event": str(event)}
            for made in bandit.choose(size=size)
            for event in range(rng.choice((0, 1, 1, 2)))
        ]
        bandit.rewards(rewards)


def read_activity(store: Store, monitor: Monitor | None = None, arms: Any = ARMS) -> dict[str, Any]:
    """The activity after the monitor has read the whole log."""
    monitor = monitor or Monitor(store, lag=0)
    monitor.advance(60)
    activity = monitor.activity(EXPERIMENT, arms)
    assert activity["complete"]
    return activity


def rounded(thing: Any) -> Any:
    """Round sums, whose last digits depend on the order of addition, and drop the time of reading."""
    if isinstance(thing, dict):
        return {key: rounded(value) for key, value in thing.items() if key != "as_of"}
    if isinstance(thing, list):
        return [rounded(value) for value in thing]
    return round(thing, 9) if isinstance(thing, float) else thing


def approximately(z: float | None) -> Any:
    return None if z is None else pytest.approx(z, rel=1e-9, abs=1e-9)


def check_against_the_log(activity: dict[str, Any], bandit: Bandit) -> None:
    """Compare the activity with `summary` and `verify` of the same log."""
    summary, found = bandit.summary(), verify(bandit)
    assert activity["decisions"] == summary["decisions"] == found.decisions
    traffic = {each["arm"]: each for each in activity["arms"]}
    for arm, each in summary["arms"].items():
        assert traffic[arm]["decisions"] == each["decisions"]
        assert traffic[arm]["fraction"] == pytest.approx(each["decisions"] / max(summary["decisions"], 1))
    audit = activity["audit"]
    assert audit["verdict"] == found.audit_verdict
    # The monitor looks all the time, `verify` once.
    assert found.weights is not None
    assert audit["limit"] == pytest.approx(live_limit(found.arms, found.weights), rel=1e-9)
    assert audit["limit"] > found.limit
    assert audit["left_out"] == found.not_audited
    scores = {each["arm"]: each for each in audit["arms"]}
    for score in found.arms:
        assert scores[score.name]["chosen"] == score.observed
        assert scores[score.name]["expected"] == pytest.approx(score.expected, rel=1e-12)
        assert scores[score.name]["z"] == approximately(score.z)
    counted = found.decisions - found.not_audited
    assert audit["weights"]["mean"] == pytest.approx(found.weights.observed / counted, rel=1e-12)
    assert audit["weights"]["expected"] == pytest.approx(found.weights.expected / counted, rel=1e-12)
    assert audit["weights"]["z"] == approximately(found.weights.z)


def series_totals(activity: dict[str, Any]) -> dict[str, tuple[int, Any]]:
    """The number and sum of rewards of each arm, over all buckets."""
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for point in activity["series"]["points"]:
        for arm, cell in point["arms"].items():
            count[arm] += cell["rewards"]
            total[arm] += cell["rewards"] * cell["mean"]
    return {arm: (count[arm], pytest.approx(total[arm], rel=1e-12, abs=1e-9)) for arm in count}


def tallied(bandit: Bandit) -> dict[str, tuple[int, float]]:
    arms = bandit.summary()["arms"]
    return {arm: (each["pulls"], each["sum"]) for arm, each in arms.items() if each["pulls"]}


# Counts, rewards and the audit.


def test_activity_agrees_with_summary_and_verify(log: Log) -> None:
    bandit = log.bandit(ARMS, "ms+:booster=8,floor=0.3", Reward(low=0, high=1, combine="last"))
    bandit.session._random.rng = np.random.default_rng(0)
    make_decisions(bandit, 100)
    make_decisions(bandit, 10, seed=1, size=40)
    activity = read_activity(log.open())
    check_against_the_log(activity, bandit)
    assert series_totals(activity) == tallied(bandit)
    assert activity["rewards"] == sum(pulls for pulls, _ in tallied(bandit).values())
    assert activity["audit"]["verdict"] == "consistent"


def test_changing_arms_and_a_reset(log: Log) -> None:
    bandit = log.bandit(ARMS, "ms:floor=0.3", Reward(low=0, high=1, combine="sum"))
    make_decisions(bandit, 60)
    bandit.add_arm("grey")
    bandit.retire_arm("red")
    make_decisions(bandit, 60, seed=1)
    first = tallied(bandit)
    bandit.reset()
    make_decisions(bandit, 60, seed=2)
    bandit.choose(size=100, eligible=["blue"])
    activity = read_activity(log.open(), arms=["red", "blue", "green", "grey"])
    check_against_the_log(activity, bandit)
    both = {
        arm: tuple(map(sum, zip(first.get(arm, (0, 0)), tallied(bandit).get(arm, (0, 0)), strict=True)))
        for arm in activity["series"]["points"][0]["arms"]
    }
    assert series_totals(activity) == both  # over all epochs


def test_sticky_units(log: Log) -> None:
    bandit = log.bandit(ARMS, "uniform", sticky=True)
    for n in range(120):
        bandit.choose(unit=f"user-{n % 80}")
    activity = read_activity(log.open())
    check_against_the_log(activity, bandit)
    assert activity["audit"]["left_out"] == 40
    assert activity["decisions"] == 120


@pytest.mark.parametrize("learn", ["on_close", "provisional", "on_arrival"])
def test_the_series_has_only_final_rewards(learn) -> None:
    """Recent decisions, of which only the clicks are known, are left out."""
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    rule = Reward(low=0, high=1, window=60, default=0, learn=learn)
    bandit = Bandit(ARMS, "uniform", reward=rule, experiment=EXPERIMENT, clock=lambda: now[0], seed=1)
    store = bandit._store
    for each in bandit.choose(size=30)[:10]:
        bandit.reward(each.id, 1)
    activity = read_activity(store)
    assert activity["series"]["points"] == []
    now[0] += timedelta(seconds=61)
    bandit.settle()
    now[0] += timedelta(seconds=5)
    bandit.reward(bandit.choose().id, 1)
    activity = read_activity(store)
    (point,) = [each for each in activity["series"]["points"] if each["rewards"]]
    assert (point["rewards"], point["mean"]) == (30, pytest.approx(1 / 3))
    assert (activity["series"]["until"] is None) == (learn == "on_close")


def test_default_rewards_are_counted(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60, default=0))
    made = bandit.choose(size=30)
    for each in made[:10]:
        bandit.reward(each.id, 1)
    log.clock.forward(61)
    bandit.settle()
    activity = read_activity(log.open())
    assert activity["rewards"] == 30
    assert series_totals(activity) == tallied(bandit)
    (point,) = activity["series"]["points"]
    assert (point["rewards"], point["mean"]) == (30, pytest.approx(1 / 3))


def test_activity_has_the_documented_schema(log: Log) -> None:
    bandit = log.bandit(ARMS)
    make_decisions(bandit, 50)
    monitor = Monitor(log.open(), lag=0)
    for activity in (monitor.activity("nothing", ARMS), read_activity(log.open(), monitor)):
        written = msgspec.json.encode(activity)
        decoded = msgspec.json.decode(written, type=wire_schema.Activity)
        assert {each.arm for each in decoded.arms} == set(ARMS)
        assert {each.arm for each in decoded.audit.arms} == set(ARMS)
        assert msgspec.json.decode(written).keys() == msgspec.json.decode(msgspec.json.encode(decoded)).keys()
    assert b'Z"' in written


def test_an_experiment_without_decisions(log: Log) -> None:
    log.bandit(ARMS)
    activity = read_activity(log.open())
    assert (activity["decisions"], activity["rewards"], activity["series"]["points"]) == (0, 0, [])
    assert activity["audit"]["verdict"] == "not enough data"
    assert activity["arms"] == [{"arm": arm, "decisions": 0, "fraction": 0.0} for arm in ARMS]
    assert activity["audit"]["weights"] == {"mean": None, "expected": None, "z": None}
    unread = Monitor(log.open()).activity(EXPERIMENT, ARMS)
    assert (unread["as_of"], unread["complete"]) == (None, False)


# Choices that do not agree with the logged probabilities.


def log_decisions(
    store: Store, logged: tuple[float, float], actual: tuple[float, float], rows: int = 2000
) -> None:
    """Write decisions that are sampled from `actual` and logged with other probabilities."""
    rng = random.Random(5)
    with write(store) as transaction:
        chosen = rng.choices(("red", "blue"), actual, k=rows)
        logs = tuple(math.log(p) if p else -math.inf for p in logged)
        transaction.add_decisions(
            [
                decision(arm=arm, log_probabilities=logs, log_probability=logs[("red", "blue").index(arm)])
                for arm in chosen
            ]
        )


@pytest.mark.parametrize(
    ("logged", "actual", "verdict"),
    [
        ((0.8, 0.2), (0.8, 0.2), "consistent"),
        ((0.9, 0.1), (0.8, 0.2), "broken"),  # the probability of a branch, not of the arm
        ((0.76, 0.24), (0.8, 0.2), "broken"),
        ((1.0, 0.0), (1.0, 0.0), "not enough data"),
        ((1.0, 0.0), (0.99, 0.01), "broken"),  # an arm with probability 0 was chosen
    ],
)
def test_the_audit_detects_wrong_probabilities(
    store: Store, logged: tuple[float, float], actual: tuple[float, float], verdict: str
) -> None:
    log_decisions(store, logged, actual)
    monitor = Monitor(store, lag=0)
    audit = read_activity(store, monitor, ("red", "blue"))["audit"]
    assert audit["verdict"] == verdict
    assert (audit["impossible"] > 0) == (logged[1] == 0 < actual[1])
    far = [z for _, _, z in monitor.calibration() if abs(z) > audit["limit"]]
    assert bool(far) == (verdict == "broken" and logged[1] > 0)


def test_the_audit_detects_probabilities_that_become_wrong(store: Store) -> None:
    monitor = Monitor(store, lag=0)
    log_decisions(store, (0.5, 0.5), (0.5, 0.5))
    assert read_activity(store, monitor)["audit"]["verdict"] == "consistent"
    log_decisions(store, (0.5, 0.5), (0.9, 0.1))
    assert read_activity(store, monitor)["audit"]["verdict"] == "broken"


def test_the_audit_detects_a_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    bandit = Bandit(["red", "blue"], "uniform", log=path, experiment=EXPERIMENT)
    bandit.choose(size=2000)
    bandit.close()
    with closing(sqlite3.connect(path)) as file:
        red, blue = -0.35667494393873245, -1.2039728043259361
        file.execute("UPDATE vectors SET data = ?", [struct.pack("<dd", red, blue)])
        file.execute(f"UPDATE decisions SET log_probability = CASE arm WHEN 'red' THEN {red} ELSE {blue} END")
        file.commit()
    with closing(SQLiteStore(path)) as store:
        assert read_activity(store)["audit"]["verdict"] == "broken"


def test_the_calibration_of_every_experiment(log: Log) -> None:
    for name in ("one", "two"):
        log.bandit(ARMS, "uniform", experiment=name).choose(size=400)
    log.bandit(ARMS, "uniform", experiment="three").choose(size=3)
    monitor = Monitor(log.open(), lag=0)
    assert list(monitor.calibration()) == []
    monitor.advance(60)
    found = {(name, arm): z for name, arm, z in monitor.calibration()}
    assert found.keys() == {(name, arm) for name in ("one", "two") for arm in ARMS}
    for (name, arm), z in found.items():
        scores = {each["arm"]: each["z"] for each in monitor.activity(name, ARMS)["audit"]["arms"]}
        assert z == scores[arm]
        assert abs(z) < 6


# Incremental reading.


def test_reading_in_steps_or_at_once_gives_the_same_result(log: Log) -> None:
    """The result does not depend on when and in how many steps the log is read."""
    bandits = [
        log.bandit(ARMS, "ms", Reward(low=0, high=1, combine="last"), experiment=name)
        for name in (EXPERIMENT, "other")
    ]
    eager, seldom, store = Monitor(log.open(), lag=0), Monitor(log.open(), lag=0), log.open()
    for step in range(12):
        make_decisions(bandits[step % 2], 15, seed=step, size=1 + step)
        log.clock.forward(7.3)
        eager.advance(0)  # a single step
        if step == 5:
            seldom.advance(60)
    whole = read_activity(store)
    check_against_the_log(whole, bandits[0])
    for monitor in (eager, seldom):
        assert rounded(read_activity(store, monitor)) == rounded(whole)
    other = [rounded(each.activity("other", ARMS)) for each in (eager, seldom)]
    assert other[0] == other[1]
    assert other[0]["decisions"] == bandits[1].summary()["decisions"]


def test_with_little_time_all_parts_make_progress(store: Store) -> None:
    bandit = Bandit(log=store, experiment=EXPERIMENT)
    bandit.rewards([{"decision": made.id, "value": 1} for made in bandit.choose(size=2500)][:2000])
    monitor = Monitor(store, lag=0)
    steps = 0
    while not (activity := monitor.activity(EXPERIMENT, ARMS))["complete"]:
        traffic, complete = monitor.traffic([EXPERIMENT])
        assert (traffic[EXPERIMENT][0], complete) == (activity["decisions"], False)
        monitor.advance(0)
        steps += 1
        assert steps < 50
        if 0 < activity["decisions"] < 2500:
            with store.reading("") as transaction:
                (last,) = transaction.decisions_between("0", "g", activity["decisions"])[-1:]
            assert activity["as_of"] == from_microseconds(creation_time(last.id))
    traffic, complete = monitor.traffic([EXPERIMENT])
    assert (traffic[EXPERIMENT][0], complete) == (2500, True)
    assert activity["decisions"] == 2500
    assert activity["rewards"] == bandit.summary()["rewards"]
    assert steps > 4
    bandit.choose(size=5000)
    monitor.advance(0)
    assert not monitor.activity(EXPERIMENT, ARMS)["complete"]
    monitor.advance(60)
    monitor.advance(0)  # an unfinished round that finds nothing new leaves the activity complete
    assert read_activity(store, monitor)["decisions"] == 7500
    assert monitor.activity(EXPERIMENT, ARMS)["complete"]


class CountingStore:
    """A store that counts reads, and fails on demand."""

    def __init__(self, store: Store) -> None:
        self.store, self.readings, self.rows = store, 0, 0
        self.failing: Iterator[bool] = iter(())
        self.concurrent_decisions = store.concurrent_decisions

    def experiments(self) -> list[str]:
        self._attempt()
        return self.store.experiments()

    @contextmanager
    def reading(self, experiment: str) -> Iterator[Any]:
        self._attempt()
        with self.store.reading(experiment) as transaction:
            self.transaction = transaction
            yield self if experiment == "" else transaction

    def decisions_between(self, after: str, before: str, limit: int) -> Any:
        rows = self.transaction.decisions_between(after, before, limit)
        self.rows += len(rows)
        return rows

    def documents(self, kind: str) -> Any:
        return self.transaction.documents(kind)

    def heads(self) -> Any:
        return self.transaction.heads()

    def _attempt(self) -> None:
        self.readings += 1
        if next(self.failing, False):
            raise Unavailable("the store is unavailable")


def test_an_unavailable_store_loses_nothing(store: Store) -> None:
    bandit = Bandit(log=store, experiment=EXPERIMENT)
    make_decisions(bandit, 15, size=100)
    counting = CountingStore(store)
    rng = random.Random(0)
    counting.failing = iter([rng.random() < 0.6 for _ in range(60)])
    monitor = Monitor(counting, lag=0)
    failed = 0
    while not monitor.activity(EXPERIMENT, ARMS)["complete"]:
        try:
            monitor.advance(60)
        except Unavailable:
            failed += 1
            assert not monitor.activity(EXPERIMENT, ARMS)["complete"]
    assert failed > 5
    counting.failing = iter(())
    activity = read_activity(store, monitor)
    check_against_the_log(activity, bandit)
    assert series_totals(activity) == tallied(bandit)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_failed_round_is_repeated(store: Store, which: int) -> None:
    """The activity is complete only after the names, the decisions and the events have been read."""
    bandit = Bandit(log=store, experiment=EXPERIMENT)
    bandit.rewards([{"decision": made.id, "value": 1} for made in bandit.choose(size=80)])
    counting = CountingStore(store)
    counting.failing = iter([attempt == which for attempt in range(1, which + 1)])
    monitor = Monitor(counting, lag=0)
    with pytest.raises(Unavailable):
        monitor.advance(60)
    while not (activity := monitor.activity(EXPERIMENT, ARMS))["complete"]:
        monitor.advance(0)
    assert (activity["decisions"], activity["rewards"]) == (80, 80)


def test_a_file_that_disappears_and_returns(tmp_path: Path) -> None:
    path, aside = tmp_path / "log.db", tmp_path / "aside.db"
    bandit = Bandit(["red", "blue"], "uniform", log=path, experiment=EXPERIMENT)
    bandit.choose(size=500)
    with closing(SQLiteStore(path)) as store:
        monitor = Monitor(store, lag=0)
        assert read_activity(store, monitor)["decisions"] == 500
        path.rename(aside)
        with pytest.raises(Unavailable, match="no longer exists"):
            monitor.advance(1)
        assert not monitor.activity(EXPERIMENT, ARMS)["complete"]
        assert monitor.activity(EXPERIMENT, ARMS)["decisions"] == 500
        aside.rename(path)
        bandit.choose(size=7)
        assert read_activity(store, monitor)["decisions"] == 507
    bandit.close()


def test_without_new_rows_no_experiment_is_read(log: Log) -> None:
    for name in ("one", "two", "three"):
        make_decisions(log.bandit(ARMS, experiment=name), 40)
    counting = CountingStore(log.open())
    monitor = Monitor(counting, lag=0)
    monitor.advance(60)
    rows, counting.readings = counting.rows, 0
    monitor.advance(60)
    assert counting.readings == 2  # the heads, and the decisions of all experiments
    assert counting.rows == rows == 120


def test_decisions_within_the_lag_are_not_read_yet(log: Log) -> None:
    store = log.open()
    bandit = log.bandit(ARMS)
    bandit.choose(size=50)
    long_lag = Monitor(store, lag=3600)
    long_lag.advance(60)
    activity = long_lag.activity(EXPERIMENT, ARMS)
    assert (activity["decisions"], activity["complete"]) == (0, True)
    monitor = Monitor(store)
    lag = timedelta(seconds=6 if log.kind == "postgresql" else 1)
    before = datetime.now(UTC)
    monitor.advance(60)
    assert before - lag <= monitor.activity(EXPERIMENT, ARMS)["as_of"] <= datetime.now(UTC) - lag
    assert read_activity(store)["decisions"] == 50
    short_lag = Monitor(store, lag=0.2)
    short_lag.advance(60)
    assert short_lag.activity(EXPERIMENT, ARMS)["decisions"] in (0, 50)
    time.sleep(0.3)
    assert read_activity(store, short_lag)["decisions"] == 50


@pytest.mark.parametrize(  # PostgreSQL's lag is 6 seconds
    "log", ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.torture)], indirect=True
)
def test_reading_while_others_write_misses_nothing(log: Log) -> None:
    """Every row is counted exactly once.

    The lag is longer than the default of SQLite, because a busy machine may stop a thread for a second
    between the creation of an id and its commit.
    """
    names = [EXPERIMENT, "other"]
    bandits = [
        log.bandit(ARMS, "ms", experiment=name, sticky=name == "other") for name in names for _ in range(2)
    ]
    lag = 6.0 if log.kind == "postgresql" else 4.0
    monitor, stop = Monitor(log.open(), lag=lag), threading.Event()
    errors: list[BaseException] = []

    def work(bandit: Bandit, seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not stop.is_set():
                for made in bandit.choose(unit=f"user-{rng.randrange(500)}", size=rng.choice((1, 1, 7))):
                    bandit.reward(made.id, rng.random())
                stop.wait(0.02)
        except BaseException as error:  # noqa: BLE001  # reported below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(bandit, seed)) for seed, bandit in enumerate(bandits)]
    for thread in threads:
        thread.start()
    counts: list[int] = []
    end = time.monotonic() + lag + 0.5
    while time.monotonic() < end or not counts[-1]:
        monitor.advance(0.05)
        counts.append(monitor.activity(EXPERIMENT, ARMS)["decisions"])
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert counts == sorted(counts)
    assert counts[-1] > 0
    time.sleep(lag)
    for name, bandit in zip(names, bandits[::2], strict=True):
        monitor.advance(60)
        activity = monitor.activity(name, ARMS)
        assert counts[-1] < monitor.activity(EXPERIMENT, ARMS)["decisions"]
        check_against_the_log(activity, bandit)
        assert series_totals(activity) == tallied(bandit)


@pytest.mark.parametrize("log", ["memory", "sqlite"], indirect=True)
def test_a_writer_that_stops_between_an_id_and_its_commit_loses_nothing(log: Log) -> None:
    """Without any lag: no other process can commit a younger id before it."""
    stopped, other = log.bandit(ARMS, "uniform"), log.bandit(ARMS, "uniform")
    stopped.choose()
    created, commit = threading.Event(), threading.Event()

    def stop(_transaction: Any, _state: Any) -> None:
        created.set()
        assert commit.wait(60)

    def write() -> None:
        """Make a decision and stop in the same transaction, after the id was created."""
        request = Request(size=1, unit=None, eligible=None, key=None)
        stopped.session.run([Call("decide", request), Call("change", stop)])

    store = log.open()
    monitor = Monitor(store, lag=0)
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(write)
        assert created.wait(60)
        waiting = threads.submit(other.choose)
        if log.kind == "sqlite":  # readers of a log in memory wait for writers
            monitor.advance(60)
        commit.set()
        writing.result(60)
        waiting.result(60)
    assert read_activity(store, monitor)["decisions"] == 3


def test_activity_while_the_monitor_reads(log: Log) -> None:
    bandit = log.bandit([f"arm-{n}" for n in range(40)], "uniform")
    bandit.choose(size=4000)
    monitor = Monitor(log.open(), lag=0)
    reader = threading.Thread(target=monitor.advance, args=(60,))
    reader.start()
    totals = []
    while reader.is_alive():
        activity = monitor.activity(EXPERIMENT, ())
        list(monitor.calibration())
        totals.append(activity["decisions"])
        assert sum(each["decisions"] for each in activity["arms"]) == activity["decisions"]
        assert sum(each["chosen"] for each in activity["audit"]["arms"]) == activity["decisions"]
    reader.join()
    assert totals == sorted(totals)
    assert monitor.activity(EXPERIMENT, ())["decisions"] == 4000


# Experiments that are created or imported later.


def test_old_rows_are_not_read_again_for_a_new_experiment(log: Log) -> None:
    first = log.bandit(ARMS, "uniform", experiment="first")
    first.choose(size=300)
    counting = CountingStore(log.open())
    monitor = Monitor(counting, lag=0)
    monitor.advance(60)
    log.clock.now = system_clock()
    bandit = log.bandit(ARMS, "uniform")
    bandit.choose(size=200)
    assert read_activity(log.open(), monitor)["decisions"] == 200
    assert counting.rows == 500
    assert monitor.activity("first", ARMS)["decisions"] == 300


@pytest.mark.parametrize("read_between", [False, True])
def test_an_imported_experiment_is_read_from_its_start(log: Log, read_between: bool) -> None:
    old = MemoryStore()
    bandit = Bandit(ARMS, "ms", reward=Reward(low=0, high=1), log=old, experiment="old")
    make_decisions(bandit, 300)
    time.sleep(0.01)
    log.clock.now = system_clock()
    here = log.bandit(ARMS, "uniform")
    here.choose(size=1500)
    store = log.open()
    monitor = Monitor(store, lag=0)
    assert read_activity(store, monitor)["decisions"] == 1500
    import_log(bandit, store, "old")
    resumed = Bandit(log=store, experiment="old", staleness=0)
    if read_between:
        monitor.advance(0)
    make_decisions(resumed, 20, seed=1)  # it continues in this store
    here.choose(size=10)
    assert read_activity(store, monitor)["decisions"] == 1510
    activity = monitor.activity("old", ARMS)
    check_against_the_log(activity, resumed)
    assert series_totals(activity) == tallied(resumed)
    again = Monitor(store, lag=0)
    again.advance(60)
    assert rounded(again.activity("old", ARMS)) == rounded(activity)


def test_several_imports_in_small_steps(log: Log) -> None:
    old = []
    for n in range(3):
        bandit = Bandit(ARMS, "uniform", reward=Reward(low=0, high=1), experiment=f"old-{n}")
        bandit.choose(size=150 + n)
        old.append(bandit)
    time.sleep(0.01)
    log.clock.now = system_clock()
    log.bandit(ARMS, "uniform").choose(size=20)
    store = log.open()
    monitor = Monitor(store, lag=0)
    monitor.advance(60)
    for bandit in old:
        import_log(bandit, store)
    for _ in range(40):
        monitor.advance(0)
    for n in range(3):
        assert monitor.activity(f"old-{n}", ARMS)["decisions"] == 150 + n
    assert read_activity(store, monitor)["decisions"] == 20


# Saving the position.


def restored(store: Any) -> Monitor:
    monitor = Monitor(store, lag=0)
    monitor.restore()
    return monitor


def test_a_restored_monitor_reads_only_new_rows(log: Log) -> None:
    names = [EXPERIMENT, "other"]
    bandits = [
        log.bandit(ARMS, "ms", Reward(low=0, high=1, combine="last"), experiment=name) for name in names
    ]
    store = log.open()
    counting = CountingStore(store)
    for step in range(6):
        for number, bandit in enumerate(bandits):
            make_decisions(bandit, 15, seed=10 * step + number, size=1 + step)
        log.clock.forward(7.3)
        monitor = restored(counting)
        monitor.advance(60)
        saver = Monitor(store, lag=0)
        vars(saver).update({name: vars(monitor)[name] for name in vars(monitor).keys() - {"_store"}})
        saver.save()
    assert counting.rows == sum(bandit.summary()["decisions"] for bandit in bandits)
    for name, bandit in zip(names, bandits, strict=True):
        fresh, last = Monitor(store, lag=0), restored(store)
        for each in (fresh, last):
            each.advance(60)
        activity = last.activity(name, ARMS)
        assert rounded(activity) == rounded(fresh.activity(name, ARMS))
        check_against_the_log(activity, bandit)
        assert series_totals(activity) == tallied(bandit)


def test_what_was_read_after_the_last_save_is_read_again(log: Log) -> None:
    """The process was killed before it saved the position again."""
    bandit = log.bandit(ARMS, "ms", Reward(low=0, high=1, combine="last"))
    make_decisions(bandit, 300, size=10)
    store = log.open()
    killed, seen = Monitor(store, lag=0), set()
    for _ in range(5):
        killed.advance(0)  # parts of decisions and events
        killed.save()
        killed.advance(0)
        restored_now = restored(store)
        seen.add(restored_now.activity(EXPERIMENT, ARMS)["decisions"])
        activity = read_activity(store, restored_now)
        check_against_the_log(activity, bandit)
        assert series_totals(activity) == tallied(bandit)
    assert len(seen - {0, 3000}) > 1


def test_a_save_during_the_reading_of_an_imported_experiment(log: Log) -> None:
    old = Bandit(ARMS, "uniform", reward=Reward(low=0, high=1), experiment="old")
    make_decisions(old, 30, size=150)
    time.sleep(0.01)
    log.clock.now = system_clock()
    log.bandit(ARMS, "uniform").choose(size=20)
    store = log.open()
    monitor = Monitor(store, lag=0)
    monitor.advance(60)
    import_log(old, store)
    seen = set()
    for _ in range(12):
        for _ in range(3):  # decisions, then the events of both experiments
            monitor.advance(0)
        monitor.save()
        monitor = restored(store)
        seen.add(monitor.activity("old", ARMS)["decisions"])
    assert len(seen) > 2  # it was saved in between
    monitor.advance(60)
    activity = monitor.activity("old", ARMS)
    assert activity["complete"]
    check_against_the_log(activity, Bandit(log=store, experiment="old"))
    assert read_activity(store, monitor)["decisions"] == 20


def test_nothing_is_saved_unless_something_was_read(log: Log) -> None:
    bandit = log.bandit(ARMS)
    store = log.open()
    monitor = Monitor(store, lag=0)
    for rows in (5, 0, 7, 0):
        before = saved_position(store)
        bandit.choose(size=rows) if rows else None
        monitor.advance(60)
        monitor.save()
        assert (saved_position(store) == before) == (rows == 0)
    assert not monitor.save_is_due


def saved_position(store: Store) -> str | None:
    with store.reading("") as transaction:
        return transaction.documents("monitor").get("position")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-5],
        lambda text: "{}",
        lambda text: text.replace('"format":2', '"format":999'),
        lambda text: text.replace('"weights":[', '"weights":["x",'),
        lambda text: text.replace('"left_out"', '"left"'),
        lambda text: text.replace(f'"{EXPERIMENT}":', '"no longer here":'),
        lambda text: text.replace('"number":', '"number":9'),  # more events than there are
    ],
)
def test_a_position_that_does_not_fit_is_ignored(log: Log, damage: Any) -> None:
    bandit = log.bandit(ARMS)
    make_decisions(bandit, 50)
    store = log.open()
    monitor = Monitor(store, lag=0)
    monitor.advance(60)
    monitor.save()
    text = saved_position(store)
    assert text is not None
    assert damage(text) != text
    with store.transaction("", lock=False) as transaction:
        transaction.put_document("monitor", "position", damage(text))
    again = restored(store)
    assert again.activity(EXPERIMENT, ARMS)["decisions"] == 0
    check_against_the_log(read_activity(store, again), bandit)


# Rewards over time.


def test_a_revision_changes_the_last_bucket_of_its_arm(log: Log) -> None:
    bandit = log.bandit(ARMS, "uniform", Reward(low=0, high=10, combine="sum"))
    first, second = (bandit.choose(eligible=["red"]) for _ in range(2))
    other = bandit.choose(eligible=["blue"])
    bandit.reward(first.id, 2, event="a")
    log.clock.forward(5)
    bandit.reward(second.id, 1, event="a")
    log.clock.forward(5)
    bandit.reward(other.id, 7)
    bandit.reward(first.id, 3, event="b")
    activity = read_activity(log.open())
    means = {n: each["arms"] for n, each in enumerate(activity["series"]["points"]) if each["arms"]}
    assert means == {
        0: {"red": {"rewards": 1, "mean": 2.0}},
        5: {"red": {"rewards": 1, "mean": 4.0}},
        10: {"blue": {"rewards": 1, "mean": 7.0}},
    }
    assert activity["rewards"] == 3
    assert series_totals(activity) == tallied(bandit)


def test_a_revision_after_buckets_have_doubled(log: Log) -> None:
    bandit = log.bandit(ARMS, "uniform", Reward(low=0, high=10, combine="sum"))
    early, late = (bandit.choose(eligible=[arm]) for arm in ("red", "blue"))
    bandit.reward(early.id, 2, event="a")
    log.clock.forward(1000)
    bandit.reward(late.id, 5)
    bandit.reward(early.id, 4, event="b")
    activity = read_activity(log.open())
    assert activity["series"]["bucket"] == 8
    assert activity["series"]["points"][0]["arms"] == {"red": {"rewards": 1, "mean": 6.0}}
    assert series_totals(activity) == tallied(bandit)


def test_memory_does_not_grow_with_the_log() -> None:
    store = MemoryStore()
    bandit = Bandit(["red", "blue"], "uniform", log=store, experiment=EXPERIMENT)
    monitor = Monitor(store, lag=0)
    for _ in range(6):
        bandit.choose(size=8000)
        monitor.advance(60)
        (known,) = monitor._experiments.values()
        buffered = sum(len(rows) for rows in known.audit._buffer.values())
        assert buffered <= 10_000
    assert read_activity(store, monitor)["decisions"] == 48_000


# Invalid rows.


def test_invalid_ids(tmp_path: Path) -> None:
    """Decisions with invalid ids are counted, although their time is unknown."""
    path = tmp_path / "log.db"
    store = SQLiteStore(path)
    with write(store) as transaction:
        transaction.create()
        transaction.add_decisions([decision(id=new_id(), unit="odd") for _ in range(150)])
        transaction.add_decisions([decision(id=new_id()) for _ in range(20)])
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE decisions SET id = '01-odd-' || substr(id, 20) WHERE unit = 'odd'")
        file.commit()
    monitor = Monitor(store, lag=0)
    while not monitor.activity(EXPERIMENT, ARMS)["complete"]:
        monitor.advance(0)
    assert monitor.activity(EXPERIMENT, ARMS)["decisions"] == 170


def test_missing_events(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    bandit = Bandit(ARMS, "uniform", reward=Reward(low=0, high=1), log=path, experiment=EXPERIMENT)
    bandit.rewards([{"decision": made.id, "value": 1} for made in bandit.choose(size=2500)])
    bandit.close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("DELETE FROM events WHERE number BETWEEN 100 AND 2000")
        file.commit()
    with closing(SQLiteStore(path)) as store:
        assert read_activity(store)["rewards"] == 2500 - 1901


@pytest.mark.parametrize("place", [0, -1])
def test_an_unreadable_row_is_an_error_but_events_are_still_read(tmp_path: Path, place: int) -> None:
    path = tmp_path / "log.db"
    with closing(SQLiteStore(path)) as store:
        for name in ("one", "two", "three"):
            bandit = Bandit(ARMS, "uniform", reward=Reward(low=0, high=1), log=store, experiment=name)
            bandit.rewards([{"decision": made.id, "value": 1} for made in bandit.choose(size=1100)])
        with store.reading("") as transaction:
            rows = transaction.decisions_between("0", "g", 10_000)
        with closing(sqlite3.connect(path)) as file:
            file.execute("UPDATE decisions SET log_probabilities = 'x' WHERE id = ?", [rows[place].id])
            file.commit()
        monitor = Monitor(store, lag=0)
        for _ in range(8):
            with pytest.raises(MaillardError, match="one distribution"):
                monitor.advance(60)
        for name in ("one", "two", "three"):
            activity = monitor.activity(name, ARMS)
            assert (activity["rewards"], activity["complete"]) == (1100, False)
        assert monitor.activity("one", ARMS)["decisions"] == (1100 if place else 0)  # the decisions before it
