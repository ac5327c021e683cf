"""Regression tests: interrupts, long readers, deleted files, clocks that are set back, odd arguments."""

from __future__ import annotations

import math
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from maillard import (
    Bandit,
    Conflict,
    InvalidValue,
    MaillardError,
    Reward,
    Tally,
    Unavailable,
    read_log,
    verify,
)
from maillard.decisions.stores import open_store
from maillard.decisions.stores.postgresql import PostgreSQLStore
from maillard.decisions.stores.sqlite import SQLiteStore
from tests.stores import Log, new_id

UNIT = Reward(low=0, high=1)


# The log's file and its locks.


def test_an_interrupt_while_waiting_for_the_lock_leaves_no_transaction_open(tmp_path) -> None:
    path = tmp_path / "log.db"
    bandit = Bandit(["a", "b"], "uniform", log=path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    release = threading.Timer(0.6, other.execute, ["COMMIT"])
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        release.start()
        with pytest.raises(KeyboardInterrupt):
            bandit.choose()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        release.join()
    other.execute("BEGIN IMMEDIATE")  # succeeds only if the lock is free
    other.execute("COMMIT")
    other.close()
    bandit.choose()


def test_a_long_read_does_not_block_writers(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("maillard.decisions.stores.sqlite._CHECKPOINT_BYTES", 1)
    monkeypatch.setattr("maillard.decisions.stores.sqlite._CHECKPOINT_COMMITS", 16)
    bandit = Bandit(["a", "b"], "uniform", log=SQLiteStore(tmp_path / "log.db", timeout=3600))
    bandit.choose(size=2000)
    rows = bandit._store.rows("default")
    next(rows)
    for _ in range(64):
        bandit.choose()  # if it waited for the reader, it would wait for an hour
    rows.close()
    for _ in range(16):
        bandit.choose()
    size = (tmp_path / "log.db-wal").stat().st_size
    for _ in range(32):
        bandit.choose()
    assert (tmp_path / "log.db-wal").stat().st_size == size  # the file is reused from its start


def test_the_size_of_the_write_ahead_log_is_bounded(tmp_path) -> None:
    bandit = Bandit(["a", "b"], "uniform", log=tmp_path / "log.db")
    for size, times in ((5000, 12), (1, 600)):
        for _ in range(times):
            bandit.choose(size=size)
        assert (tmp_path / "log.db-wal").stat().st_size < 12 << 20


@pytest.mark.parametrize("how", ["removed", "replaced", "folder"])
def test_nothing_is_acknowledged_after_the_file_was_removed_or_replaced(how, tmp_path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "log.db"
    bandit = Bandit(["a", "b"], "uniform", log=path)
    decision = bandit.choose()
    if how == "removed":
        path.unlink()
    elif how == "folder":
        shutil.rmtree(folder)
    else:
        Bandit(["x"], "uniform", log=folder / "new.db").close()
        (folder / "new.db").replace(path)
    for _ in range(2):
        with pytest.raises(MaillardError):
            bandit.choose()
        with pytest.raises(MaillardError):
            bandit.reward(decision.id, 1.0)
        with pytest.raises(MaillardError):
            bandit.summary()
    assert path.exists() == (how == "replaced")  # a removed file is not created again


def test_reading_a_log_keeps_the_locks_of_its_writer(tmp_path) -> None:
    """POSIX drops all of a process's locks on a file when the process closes any descriptor of it."""
    path = tmp_path / "log.db"
    bandit = Bandit(["a", "b"], "uniform", log=path)
    bandit.choose()
    verify(path)
    script = f"from maillard import Bandit; b = Bandit(log={str(path)!r}); b.choose(); b.close()"
    subprocess.run([sys.executable, "-c", script], check=True)
    ids = [bandit.choose().id for _ in range(5)]
    check = f"from maillard import Bandit; b = Bandit(log={str(path)!r}); [b.decision(i) for i in {ids!r}]"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_calls_on_a_deleted_experiment_are_refused(log: Log) -> None:
    bandit = log.bandit()
    if log.kind == "memory":
        bandit._store._tables.experiments.clear()
    elif log.kind == "sqlite":
        with sqlite3.connect(log.where) as connection:
            connection.execute("DELETE FROM experiments")
        connection.close()
    else:
        with psycopg.connect(log.where) as server:
            server.execute("DELETE FROM maillard.experiments")
    for call in (bandit.choose, bandit.pause, lambda: bandit.reward(new_id(), 1.0), bandit.summary):
        with pytest.raises(MaillardError, match="is no longer in"):
            call()


def test_the_version_of_the_tables_is_checked_after_a_reconnect(postgres) -> None:
    """A newer release has migrated the tables while the connection was lost."""
    bandit = Bandit(["a", "b"], "uniform", log=postgres)
    bandit.choose()
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("UPDATE maillard.version SET number = number + 1")
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'maillard'"
        server.execute(others)
        for _ in range(2):
            with pytest.raises(MaillardError, match="newer"):
                bandit.choose()
        server.execute("UPDATE maillard.version SET number = number - 1")
    bandit.choose()
    assert len(list(bandit._store.rows("default"))) == 2


def test_a_log_replaced_by_an_older_copy_is_not_written(tmp_path) -> None:
    path = tmp_path / "log.db"
    with Bandit(["a", "b"], "ms", reward=UNIT, log=path) as bandit:
        bandit.choose()
    shutil.copy(path, tmp_path / "backup.db")
    bandit = Bandit(log=path)
    bandit.reward(bandit.choose().id, 1.0)
    bandit._store.close()
    shutil.copy(tmp_path / "backup.db", path)  # the same file with older content
    with pytest.raises(MaillardError, match="fewer events than before"):
        bandit.choose()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), InvalidValue),
        ((["a", "b"], "nope"), MaillardError),
        ((["a", "a"], "uniform"), InvalidValue),
        ((["a", "b"], "ms"), InvalidValue),  # neither a range nor sigma2
    ],
)
def test_a_call_that_fails_leaves_no_file(arguments, error, tmp_path) -> None:
    with pytest.raises(error):
        Bandit(*arguments, log=tmp_path / "new.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "log",
    [
        "postgresql://u:s3cret",
        "postgresql:/u:s3cret@h/db",
        Path("postgresql://u:s3cret@h/db"),
        b"postgresql://u:s3cret@h/db",
        "postgres:/u:s3cret@h/db",
        "host=localhost password=s3cret dbname=x",
        "mysql://u:s3cret@h/db",
        "postgresql://u:s3cret@h:p0rt/db",
    ],
)
def test_no_error_shows_a_password(log, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MaillardError) as caught:
        Bandit(["a"], "uniform", log=log)
    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cret" not in str(error) + repr(error)
        error = error.__cause__ or error.__context__
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("log", [[], {}, object(), 3.5, "a\0b", "\ud800.db", "", "x" * 300 + "/log.db"])
def test_an_invalid_log_argument_is_refused(log) -> None:
    with pytest.raises(MaillardError):
        Bandit(["a"], "uniform", log=log)


def test_a_folder_is_refused_as_a_log(tmp_path) -> None:
    with pytest.raises(InvalidValue, match="a file, in a folder"):
        Bandit(["a"], "uniform", log=tmp_path)


# Stale states, concurrent transactions and clocks.


def test_a_state_is_used_no_longer_than_staleness_allows(postgres) -> None:
    fresh = Bandit(["a", "b"], "ms", reward=UNIT, log=postgres)
    stale = Bandit(log=postgres, staleness=0.3)
    seen = [stale.choose().state]
    used_old_state = updated = False
    while not (used_old_state and updated):
        fresh.reward(fresh.choose().id, 1.0)
        seen.append(stale.choose().state)
        used_old_state |= seen[-1] == seen[-2]
        updated |= seen[-1] > seen[0]


def test_a_change_waits_for_running_choices_and_a_reward_does_not(postgres) -> None:
    bandit = Bandit(["a", "b"], "ms", reward=UNIT, log=postgres)
    other = Bandit(log=postgres)
    decision = bandit.choose()
    with bandit._store.transaction("default", lock=False):
        assert other.reward(decision.id, 1.0) == "applied"
        assert other.choose().state == 2
        change = threading.Thread(target=other.pause)
        change.start()
        change.join(0.3)
        assert change.is_alive()
    change.join(10)
    assert not change.is_alive()
    assert other.state.paused


def test_choices_do_not_wait_until_closed_windows_are_settled(postgres) -> None:
    rule = Reward(low=0, high=1, window=0.01, default=0)
    bandit = Bandit(["a", "b"], "ms", reward=rule, log=PostgreSQLStore(postgres, timeout=60))
    bandit.choose()
    bandit.session._settled -= 10
    with PostgreSQLStore(postgres).transaction("default", lock=True):
        bandit.choose()  # would fail after 60 seconds if it waited
    bandit.session._settled -= 10
    bandit.choose()
    assert bandit.state.tally.pulls.sum() >= 1  # the window of the first choice was settled


def test_a_checkpoint_has_the_state_of_its_transaction(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("maillard.decisions.session._CHECKPOINT_INTERVAL", 2)
    bandit = Bandit(["a", "b"], "ms", reward=UNIT, log=tmp_path / "log.db", staleness=1e6)
    other = Bandit(log=tmp_path / "log.db")
    for _ in range(5):
        other.reward(other.choose().id, 1.0)
        bandit.reward(bandit.choose().id, 0.0)
    assert Bandit(log=tmp_path / "log.db").tally == other.session.refresh().tally


def test_a_closed_window_stays_closed_when_the_clock_is_set_back(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=9, window=5, combine="sum"))
    decision = bandit.choose()
    assert bandit.reward(decision.id, 1.0, event="a") == "applied"
    log.clock.forward(6)
    assert bandit.reward(decision.id, 2.0, event="b") == "late"
    log.clock.forward(-4)
    assert bandit.reward(decision.id, 4.0, event="c") == "late"
    assert bandit.tally.sums.sum() == 1.0
    assert verify(bandit).problems == []


def test_times_in_1970_are_valid(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=9))
    decision = bandit.choose()
    assert bandit.reward(decision.id, 1.0, at=1.0, event="x") == "applied"
    assert bandit.reward(decision.id, 5.0, at=0, event="y") == "revised"


# Calls.


def test_arms_may_come_from_a_generator(log: Log) -> None:
    assert log.bandit(name for name in "ab").arms == ["a", "b"]


def test_an_idempotency_key_is_bound_to_its_eligible_arms(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(idempotency_key="k")
    assert bandit.choose(idempotency_key="k", eligible=["blue", "red"]) == made
    for arm in ("red", "blue"):
        with pytest.raises(Conflict, match="among other arms: 'red', 'blue'"):
            bandit.choose(idempotency_key="k", eligible=[arm])
    bandit.add_arm("green")
    assert bandit.choose(idempotency_key="k") == made  # among all arms of its time, as before
    bandit.retire_arm("red")
    assert bandit.choose(idempotency_key="k") == made
    few = bandit.choose(idempotency_key="l", eligible=["blue"])
    with pytest.raises(Conflict, match="among other arms: 'blue'"):
        bandit.choose(idempotency_key="l")
    bandit.retire_arm("green")
    assert bandit.choose(idempotency_key="l", eligible=["blue"]) == few


def test_a_sticky_unit_keeps_an_arm_to_which_the_policy_gives_probability_zero(log: Log) -> None:
    bandit = log.bandit(sticky=True)
    made = bandit.choose(unit="u")
    (other,) = {"red", "blue"} - {made.arm}
    bandit.change_policy(f"arm:{other}")
    again = bandit.choose(unit="u", eligible=[made.arm])
    assert (again.arm, again.origin) == (made.arm, made.id)
    batch = bandit.choose(unit="v", size=3)
    assert [each.arm for each in batch] == [other] * 3
    assert [each.origin for each in batch] == [None, batch[0].id, batch[0].id]
    assert len({each.id for each in batch}) == 3
    assert verify(bandit).problems == []


def test_decisions_made_elsewhere_are_appended_once(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose()
    elsewhere = made._replace(id=new_id())
    assert bandit.reward(elsewhere.id, 1.0) == "parked"
    assert bandit.append([elsewhere, elsewhere]) == 1
    assert bandit.append([elsewhere]) == 0
    assert bandit.tally.pulls.sum() == 1
    assert bandit.decision(elsewhere.id) == elsewhere
    assert verify(bandit).problems == []
    wrong: list[Any] = [
        elsewhere._replace(experiment="other"),
        elsewhere._replace(id="x"),
        elsewhere._replace(arm="green"),
        elsewhere._replace(state=99),
        elsewhere._replace(log_probabilities=(0.0,)),
        tuple(elsewhere),
    ]
    for bad in wrong:
        with pytest.raises(MaillardError):
            bandit.append([bad])


@pytest.mark.parametrize(
    "bad",
    [
        {"low": 0, "high": 1.7e308},
        {"low": -1e300, "high": 0},
        {"combine": []},
        {"window": math.nan},
    ],
)
def test_reward_rules_with_unusable_numbers_are_refused(bad) -> None:
    with pytest.raises(InvalidValue):
        Reward(**bad)


@pytest.mark.parametrize("at", [10**400, 1e305, math.nan, -1, "now", True])
def test_invalid_times_are_refused(at) -> None:
    bandit = Bandit(["a"], "uniform")
    with pytest.raises(InvalidValue, match="at"):
        bandit.reward(bandit.choose().id, 1.0, at=at)


@pytest.mark.parametrize(
    "change",
    [{"active": None}, {"active": 5}, {"tally": {1, 2}}, {"tally": None}, {"arms": None}, {"policy": 3}],
)
def test_invalid_snapshots_are_refused(change) -> None:
    bandit = Bandit(["a"], "uniform")
    with pytest.raises(MaillardError):
        bandit.restore(bandit.snapshot() | change)
    assert bandit.state.number == 1


def test_too_many_pulls_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"a total of at most 2\*\*62"):
        Tally([2**53] * 2000, [0.0] * 2000)


def test_calls_after_close_are_refused(tmp_path) -> None:
    bandit = Bandit(["a"], "uniform", log=tmp_path / "log.db")
    made = bandit.choose()
    bandit.close()
    bandit.close()
    calls: list[Any] = [
        bandit.choose,
        lambda: bandit.choose(size=0),
        lambda: bandit.decision(made.id),
        lambda: bandit.reward(made.id, 1.0),
        bandit.settle,
        bandit.summary,
        bandit.snapshot,
        bandit.pause,
        lambda: bandit.append([made]),
    ]
    for call in calls:
        with pytest.raises(MaillardError, match="is closed"):
            call()


def test_ten_thousand_arms() -> None:
    arms = [f"arm {n}" for n in range(10_000)]
    bandit = Bandit(arms, "ms", reward=UNIT)
    for decision in bandit.choose(size=20):
        bandit.reward(decision.id, 1.0)
    bandit.choose()
    assert verify(bandit).recomputed == 21


def test_a_store_can_be_passed_as_the_log(tmp_path) -> None:
    store = SQLiteStore(tmp_path / "log.db")
    assert open_store(store) is store
    assert Bandit(["a"], "uniform", log=store).choose().arm == "a"
    (tmp_path / "log.db").unlink()
    with pytest.raises(Unavailable, match="no longer exists"):
        Bandit(log=store)


@pytest.mark.parametrize("state", ["x", "{}", "[]", None])
def test_an_unusable_checkpoint_is_ignored(state, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("maillard.decisions.session._CHECKPOINT_INTERVAL", 2)
    path = tmp_path / "log.db"
    with Bandit(["a", "b"], "ms", reward=UNIT, log=path) as bandit:
        for decision in bandit.choose(size=9):
            bandit.reward(decision.id, 0.3)
    connection = sqlite3.connect(path)
    if state is None:
        assert connection.execute("DELETE FROM checkpoints").rowcount == 1
    else:
        assert connection.execute("UPDATE checkpoints SET state = ?", [state]).rowcount == 1
    connection.commit()
    connection.close()
    assert Bandit(log=path).tally == bandit.tally


@pytest.mark.parametrize("payload", ["{", "{}", "[]", '{"arms": 5}', "\udcff"])
def test_a_damaged_start_event_is_refused(payload, tmp_path) -> None:
    path = tmp_path / "log.db"
    Bandit(["a", "b"], "ms", reward=UNIT, log=path).close()
    connection = sqlite3.connect(path)
    connection.execute(
        "UPDATE events SET payload = CAST(? AS TEXT)", [payload.encode("utf8", "surrogateescape")]
    )
    connection.commit()
    connection.close()
    with pytest.raises(MaillardError):
        Bandit(log=path)


def test_a_relative_path_is_resolved_when_the_log_is_opened(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    bandit = Bandit(["a", "b"], "uniform", log="log.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    made = bandit.choose()
    assert bandit.decision(made.id) == made
    assert list(Path.cwd().iterdir()) == []


def test_a_log_of_which_only_a_part_is_readable_is_refused(tmp_path, monkeypatch) -> None:
    """Without a lock, only the main file is readable; that is refused if a write-ahead log has more rows."""
    path = tmp_path / "log.db"
    bandit = Bandit(["a", "b"], "uniform", log=path)
    bandit.choose(size=10)
    real = sqlite3.connect

    def connect(address: str, **options: Any) -> Any:
        if "mode=rw" in str(address):  # fails as in a folder without permission to write
            address = f"file:{tmp_path}/none/log.db?mode=rw"
        return real(address, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(Unavailable):
        verify(path)


def test_choices_settle_at_least_as_many_windows_as_they_open(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=1, default=0))
    for _ in range(4):
        bandit.choose(size=3000)
        log.clock.forward(2)
        bandit.session._settled -= 10
    assert bandit.tally.pulls.sum() >= 9000


def test_a_decision_made_by_another_process_can_be_appended(tmp_path) -> None:
    one = Bandit(["a", "b"], "ms", reward=UNIT, log=tmp_path / "log.db")
    other = Bandit(log=tmp_path / "log.db")
    one.add_arm("c")
    made = one.choose(eligible=["c"])._replace(id=new_id())
    assert other.append([made]) == 1
    one.choose(idempotency_key="k")
    with pytest.raises(Conflict, match="'k'"):
        other.append([made._replace(id=new_id(), idempotency_key="k")])
    for change in (
        {"log_probability": 5.0},
        {"time": -5},
        {"time": 1.5},
        {"eligible": ("c", "c"), "log_probabilities": (0.0, 0.0)},
        {"cold": 7},
        {"unit": ""},
        {"idempotency_key": "x" * 5000},
        {"epoch": 2},
        {"log_probabilities": (math.nan,)},
        {"origin": new_id()},
    ):
        with pytest.raises(InvalidValue):
            other.append([made._replace(id=new_id(), **change)])
    assert verify(one).problems == []


def test_a_log_opened_before_a_decision_is_appended_verifies(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose()
    elsewhere = made._replace(id=new_id())
    bandit.reward(elsewhere.id, 1.0)
    opened = read_log(bandit)
    bandit.append([elsewhere])
    assert verify(opened).problems == []
    assert verify(bandit).problems == []
