"""Incremental exports to a folder: completeness, crash safety, and reading them with the live tail."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from maillard import compare, evaluate, replay
from maillard.decisions import (
    Bandit,
    DecisionLog,
    Reward,
    export_changes,
    import_log,
    read_log,
    verify,
    write_log,
)
from maillard.decisions.files import arrow, column_batches, export_folders, increments
from maillard.decisions.files.export_folders import Manifest, folder_name, read_manifest
from maillard.decisions.stores.memory import MemoryStore
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import Conflict, InvalidLog, InvalidValue, Unavailable, UnknownName
from tests.stores import EXPERIMENT, UNIT_RANGE, Clock, Log

OLD_LOG = Path(__file__).parent / "old_logs" / "both.db"
RULES = {
    "on_arrival": Reward(low=0, high=1),
    "on_arrival_window": Reward(low=0, high=1, window="1h"),
    "on_close": Reward(low=0, high=1, window="1h", default=0),
    "provisional": Reward(low=0, high=1, window="1h", default=0.25, learn="provisional"),
    "sum": Reward(low=0, high=3, window="1h", default=0, combine="sum", learn="on_arrival"),
}


class Visitors:
    """Makes decisions, and reports rewards: in time, late, revised, or never."""

    def __init__(self, bandit: Bandit, clock: Clock) -> None:
        self.bandit, self.clock = bandit, clock
        self.rng, self.ids, self.events = random.Random(7), list[str](), 0

    def visit(self, count: int, hours: float = 0.2) -> None:
        for _ in range(count):
            unit = f"user {self.rng.randrange(40)}"
            self.ids.append(self.bandit.choose(unit=unit).id)
            self.clock.forward(3600 * hours * self.rng.random())
            for identifier in self.rng.sample(self.ids[-12:], min(len(self.ids), 2)):
                self.events += 1
                value = float(self.rng.random() < 0.4)
                self.bandit.reward(identifier, value, event=f"e{self.events}")
        self.bandit.settle()


def same(
    folder: Any, source: Any, experiment: str | None = EXPERIMENT, *, any_time: bool = False
) -> DecisionLog:
    """The log in a folder, which must be equal to the other log. `any_time`: the log has no fixed clock."""
    read, whole = read_log(folder, experiment), read_log(source, experiment)
    assert list(read.rows()) == list(whole.rows())
    for name in ("events", "number", "parked", "as_of", "arms", "policies", "experiment"):
        assert getattr(read, name) == getattr(whole, name) or (name == "as_of" and any_time), name
    read.check_rows()
    assert read.final_state().write() == whole.final_state().write()
    return read


def report(source: Any, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = evaluate(source, "arm:red", active=False, **options).to_dict()
    del found["source"]
    return found


def assert_equal(one: Any, other: Any, where: str = "") -> None:
    """Compare two reports field by field; NaN is equal to NaN."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_equal(one[name], other[name], f"{where}.{name}")
    else:
        assert repr(one) == repr(other), where


def manifest_of(folder: Path) -> Manifest:
    found = read_manifest(folder)
    assert found is not None
    return found


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# Increments.


@pytest.mark.parametrize("rule", RULES)
def test_increments_add_up_to_the_log(rule, tmp_path) -> None:
    log = Log(None)
    visitors = Visitors(log.bandit(policy="ms:floor=0.2", reward=RULES[rule]), log.clock)
    store, folder = log.open(), tmp_path / "exported"
    for count in (30, 20, 40, 0, 5):
        visitors.visit(count)
        tail = [folder, store] if folder.exists() else store
        assert_equal(report(tail), report(store))
        before = read_manifest(folder / EXPERIMENT)
        made = export_changes(store, folder)
        assert made.commit == visitors.bandit.head().commit
        assert made.rows >= count
        read = same(folder, store)
        manifest = manifest_of(folder / EXPERIMENT)
        assert before is None or set(before.files) <= set(manifest.files)
        for each in manifest.files:
            times = (
                pq.read_table(folder / EXPERIMENT / each.path, columns=["time"]).column("time").to_pylist()
            )
            assert {f"day={time:%Y-%m-%d}" for time in times} == {each.path.partition("/")[0]}
        assert_equal(report(read), report(store))
    assert made.rows < 40  # the last increment has only what changed


def test_increments_of_every_store(log, tmp_path) -> None:
    visitors = Visitors(log.bandit(reward=RULES["on_close"], sticky=True), log.clock)
    bandit, store, folder = visitors.bandit, log.open(), tmp_path / "exported"

    def step(change: Callable[[], Any]) -> None:
        change()
        visitors.visit(8)
        same([folder, store] if folder.exists() else store, store)
        export_changes(store, folder)
        same(folder, store)

    step(lambda: None)
    step(lambda: bandit.add_arm("green"))
    step(lambda: log.clock.forward(7200))  # windows close, with the default
    step(bandit.reset)
    step(lambda: bandit.change_policy("kl-ms+:floor=0.1"))
    step(lambda: bandit.retire_arm("green"))
    step(lambda: bandit.erase_unit("user 1"))
    found = verify(folder, EXPERIMENT)
    assert found.problems == []
    assert found.recomputed > 30
    # A store counts the rows of the last epoch only, so that the quarters of the log are others.
    write_log(read_log(store), tmp_path / "whole.parquet")
    for tail in (folder, [folder, store]):
        assert_equal(report(tail), report(tmp_path / "whole.parquet"))
        assert_equal(report(tail, epoch="all"), report(store, epoch="all"))
    assert bandit.head().commit == manifest_of(folder / EXPERIMENT).commit
    bandit.archive()
    export_changes(store, folder)
    same(folder, store)


def test_everything_works_on_a_folder(tmp_path) -> None:
    log = Log(str(tmp_path / "log.db"))
    visitors = Visitors(log.bandit(policy="ms:floor=0.2"), log.clock)
    folder = tmp_path / "exported"
    for count in (300, 200):
        visitors.visit(count)
        export_changes(visitors.bandit, folder)
    store = log.open()
    one, other = (compare(each, "arm:red", "arm:blue", active=False) for each in (folder, store))
    assert {name: each.value for name, each in one.items()} == {
        name: each.value for name, each in other.items()
    }
    assert (replay(folder, "ts").mean == replay(store, "ts").mean).all()
    assert verify(folder).recomputed == 500
    import_log(folder, tmp_path / "copy.db")
    same(tmp_path / "copy.db", store, any_time=True)
    write_log(read_log(folder), tmp_path / "whole.parquet")
    same(tmp_path / "whole.parquet", store)
    part = read_log(folder, from_state=10, to_state=30)
    assert list(part.rows()) == list(read_log(store, from_state=10, to_state=30).rows())
    assert {10 <= row.decision.state <= 30 for row in part.rows()} == {True}


def test_windows_that_close_without_an_event_are_closed_in_a_later_increment(tmp_path) -> None:
    log = Log(None)
    bandit = log.bandit(reward=RULES["on_arrival_window"])
    bandit.choose(size=3)
    store = log.open()
    export_changes(store, tmp_path)
    log.clock.forward(7200)
    assert export_changes(store, tmp_path).rows == 0
    closed = [columns.closed.tolist() for columns in read_log(tmp_path).columns()]
    assert closed == [columns.closed.tolist() for columns in read_log(store).columns()] == [[True] * 3]


def test_an_increment_without_changes_writes_no_file(tmp_path) -> None:
    log = Log(None)
    log.bandit().choose(size=5)
    store = log.open()
    first, second = export_changes(store, tmp_path), export_changes(store, tmp_path)
    assert (first.rows, first.files, second.rows, second.files) == (5, 1, 0, 0)
    assert files_of(tmp_path / EXPERIMENT) == {
        ".lock",
        "manifest.json",
        next(iter(manifest_of(tmp_path / EXPERIMENT).files)).path,
    }


def test_a_log_without_decisions(tmp_path) -> None:
    log = Log(None)
    log.bandit()
    assert export_changes(log.open(), tmp_path).rows == 0
    same(tmp_path, log.open())


def test_the_erased_name_stays_in_old_files_and_the_log_has_the_token(tmp_path) -> None:
    log = Log(None)
    bandit = log.bandit(sticky=True)
    ids = [bandit.choose(unit=unit).id for unit in ("ann", "bob", "ann")]
    store = log.open()
    export_changes(store, tmp_path)
    assert bandit.erase_unit("ann") == 2
    bandit.reward(ids[1], 1.0)
    assert export_changes(store, tmp_path).rows == 3  # two of the unit, and one with a reward
    read = same(tmp_path, store)
    assert "ann" not in {row.decision.unit for row in read.rows()}
    assert verify(tmp_path).problems == []
    first = manifest_of(tmp_path / EXPERIMENT).files[0].path
    assert pq.read_table(tmp_path / EXPERIMENT / first).column("unit").to_pylist().count("ann") == 2


# Rows as Arrow batches.


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_batches_are_equal_to_those_of_rows(rule, kind, tmp_path, request, monkeypatch) -> None:
    where = str(tmp_path / "log.db") if kind == "sqlite" else request.getfixturevalue("postgres")
    log = Log(where)
    bandit = log.bandit(reward=RULES[rule], sticky=rule == "on_close")
    visitors = Visitors(bandit, log.clock)
    visitors.visit(40)
    export_changes(bandit, tmp_path)
    bandit.add_arm("green")
    visitors.visit(25)
    bandit.change_policy("ts")
    for row in bandit.choose(size=5, idempotency_key="one"):
        bandit.reward(row.id, 1.0)
    bandit.reset()
    visitors.visit(20)
    bandit.retire_arm("red")
    visitors.visit(20)
    for index in range(100):  # enough arms for compressed distributions
        bandit.add_arm(f"arm {index}")
    bandit.change_policy("uniform")
    visitors.visit(5)
    monkeypatch.setattr(column_batches, "MAX_BATCH_ROWS", 30)
    plain_batches = arrow.plain_batches

    def unexpected(*_: object) -> Any:
        raise AssertionError("a batch was not read without an object for each row")

    for before in (None, manifest_of(tmp_path / EXPERIMENT)):
        with increments.changes_since(log.open(), EXPERIMENT, before, owned=False) as changes:
            with monkeypatch.context() as patched:
                patched.setattr(arrow, "plain_batches", unexpected)
                fast = [row for batch in changes.batches for row in batch.to_pylist()]
            plain = [row for batch in plain_batches(changes.log) for row in batch.to_pylist()]
            assert len(fast) == len(plain) > 60
            assert sorted(fast, key=_id) == sorted(plain, key=_id)
    for store in log.opened:
        store.close()


def _id(row: dict[str, Any]) -> str:
    return str(row["id"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE decisions SET arm = 'pink' WHERE state = 1", "arm"),
        ("UPDATE decisions SET log_probability = 0.5", "0.5"),
        ("UPDATE decisions SET time = -1", "-1"),
        ("UPDATE decisions SET cold = 2", "got 2"),
        ("DELETE FROM vectors", "distribution"),
        ("UPDATE vectors SET data = x'00'", "log_probabilities"),
        ("UPDATE vectors SET data = x'000000000000f87f000000000000f87f'", "log_probabilities"),
        ("UPDATE rewards SET value = 9e999", "inf"),
        ("UPDATE rewards SET late = 3", "got 3"),
        ("UPDATE events SET kind = 'other' WHERE decision IS NOT NULL", "other"),
        ("UPDATE events SET previous = 0.5 WHERE decision IS NOT NULL", "previous"),
    ],
)
def test_damaged_rows_are_refused(change, message, tmp_path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit = log.bandit()
    for row in bandit.choose(size=5):
        bandit.reward(row.id, 1.0)
    with closing(sqlite3.connect(tmp_path / "log.db")) as file, file:
        file.execute(change)
    with pytest.raises(InvalidLog, match=message):
        export_changes(tmp_path / "log.db", tmp_path / "exported")
    assert not (tmp_path / "exported" / EXPERIMENT / "manifest.json").exists()


# Logs that began before the hash chain existed.


def test_a_log_that_began_before_the_chain_is_exported_completely(tmp_path) -> None:
    path, folder = tmp_path / "both.db", tmp_path / "exported"
    shutil.copy(OLD_LOG, path)
    assert export_changes(path, folder, "home") == (str(folder / "home"), "home", 160, 1, 0)
    same(folder, path, "home", any_time=True)
    with Bandit(log=path, experiment="home") as bandit:  # adds a chain
        decision = bandit.choose()
        same([folder, path], path, "home", any_time=True)
        made = export_changes(path, folder, "home")
        assert made.rows == 161
        assert made.commit > 0
        same(folder, path, "home", any_time=True)
        bandit.reward(decision.id, 1.0)
        assert export_changes(path, folder, "home").rows == 1
        same(folder, path, "home", any_time=True)
        old = next(row.decision.id for row in read_log(path, "home").rows() if not row.rewards)
        bandit.reward(old, 1.0)
        assert export_changes(path, folder, "home").rows == 1
        same(folder, path, "home", any_time=True)
    assert len(files_of(folder / "home")) == 2 + len(manifest_of(folder / "home").files)


# Failures.


@pytest.fixture
def exported(tmp_path) -> tuple[Bandit, Any, Path]:
    log = Log(None)
    bandit = log.bandit()
    bandit.choose(size=5)
    export_changes(log.open(), tmp_path / "exported")
    bandit.choose(size=5)
    return bandit, log.open(), tmp_path / "exported"


@pytest.mark.parametrize("failing", ["write_manifest", "digest_of_file"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_an_interrupted_increment_leaves_a_valid_folder(exported, failing, error, monkeypatch) -> None:
    bandit, store, folder = exported
    before = (folder / EXPERIMENT / "manifest.json").read_text()

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(export_folders, failing, fail)
        with pytest.raises(type(error)):
            export_changes(store, folder)
    assert (folder / EXPERIMENT / "manifest.json").read_text() == before
    assert len(list(read_log(folder).rows())) == 5
    bandit.choose(size=2)
    assert export_changes(store, folder).rows == 7
    same(folder, store)
    named = {each.path for each in manifest_of(folder / EXPERIMENT).files}
    assert files_of(folder / EXPERIMENT) == named | {"manifest.json", ".lock"}


def test_an_increment_that_is_interrupted_while_it_reads_leaves_no_files(exported, monkeypatch) -> None:
    _, store, folder = exported
    before = files_of(folder)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(increments.DayFiles, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            export_changes(store, folder)
    assert files_of(folder) == before


def test_files_of_others_are_not_removed(exported) -> None:
    _, store, folder = exported
    (folder / EXPERIMENT / "notes.txt").write_text("mine")
    export_changes(store, folder)
    assert (folder / EXPERIMENT / "notes.txt").read_text() == "mine"


def test_a_log_that_does_not_continue_the_export_is_refused(tmp_path) -> None:
    folder = tmp_path / "exported"
    logs = [Log(None), Log(None)]
    for log in logs:
        log.bandit().choose(size=5)
    export_changes(logs[0].open(), folder)
    with pytest.raises(Conflict, match=r"commit 2 has another hash.*Export it to a new folder"):
        export_changes(logs[1].open(), folder)
    with pytest.raises(Conflict, match="does not continue the log"):
        read_log([folder, logs[1].open()])
    shorter = Log(None)
    shorter.bandit()
    with pytest.raises(Conflict, match="commit 2 is missing"):
        export_changes(shorter.open(), folder)


def test_a_decision_that_was_removed_before_it_was_exported_is_an_error(tmp_path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit = log.bandit()
    export_changes(bandit, tmp_path / "exported")
    removed = bandit.choose(size=3)[1].id
    with closing(sqlite3.connect(tmp_path / "log.db")) as file, file:
        file.execute("DELETE FROM decisions WHERE id = ?", [removed])
    with pytest.raises(InvalidLog, match="it was removed before it was exported") as raised:
        export_changes(bandit, tmp_path / "exported")
    assert raised.value.value == removed
    assert len(list(read_log(tmp_path / "exported").rows())) == 0


def test_only_one_export_at_a_time(exported) -> None:
    _, store, folder = exported
    with (
        export_folders.exclusive(folder / EXPERIMENT),
        pytest.raises(Unavailable, match="another export is writing"),
    ):
        export_changes(store, folder)


@pytest.mark.parametrize("damage", ["size", "content", "missing", "manifest", "format", "path"])
def test_damage_is_found(exported, damage) -> None:
    _, store, folder = exported
    export_changes(store, folder)
    place = folder / EXPERIMENT
    manifest = place / "manifest.json"
    file = place / manifest_of(place).files[0].path
    data = json.loads(manifest.read_text())
    if damage == "size":
        file.write_bytes(file.read_bytes() + b"x")
    elif damage == "content":  # the name of the writer in the footer, which nothing else depends on
        content = file.read_bytes()
        file.write_bytes(content.replace(b"parquet-cpp-arrow", b"parquet-cpp-ARROW"))
        assert file.read_bytes() != content
        assert "does not have the SHA-256 in the manifest" in verify(folder).problems[0].what
        return
    elif damage == "missing":
        file.unlink()
    elif damage == "manifest":
        manifest.write_text("{}")
    elif damage == "format":
        manifest.write_text(json.dumps(data | {"format": 2}))
    else:
        data["files"][0]["path"] = "../day=2026-01-01/commits-1-2.parquet"
        manifest.write_text(json.dumps(data))
    with pytest.raises(InvalidLog):
        read_log(folder)
    assert verify(folder).verdict == "broken"


# Folders.


def test_several_experiments_in_a_folder(tmp_path) -> None:
    store, folder = MemoryStore(Clock()), tmp_path / "exported"
    names = ["home", "shop/€", "..", "x" * 400]
    for name in names:
        Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=store, experiment=name).choose(size=2)
        export_changes(store, folder, name)
    assert sorted(path.name for path in folder.iterdir()) == sorted(map(folder_name, names))
    for name in names:
        same(folder, store, name)
        assert read_log(folder / folder_name(name)).experiment == name
    with pytest.raises(InvalidValue, match="experiment: expected experiment= or --experiment, one of"):
        read_log(folder)
    with pytest.raises(UnknownName, match="unknown name 'hom'"):
        read_log(folder, "hom")
    with pytest.raises(UnknownName):
        read_log(folder / "home", "shop/€")
    with pytest.raises(InvalidValue, match="columns: expected None"):
        read_log(folder / "home", columns={"arm": "item"})


def test_an_export_does_not_mix_experiments(tmp_path) -> None:
    store = MemoryStore()
    Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=store, experiment="home")
    export_changes(store, tmp_path)
    (tmp_path / "home").rename(tmp_path / "shop")
    Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=store, experiment="shop")
    with pytest.raises(InvalidValue, match="expected an export of 'shop'; choose another folder, got 'home'"):
        export_changes(store, tmp_path, "shop")


@pytest.mark.parametrize("log", [7, None])
def test_a_log_must_be_in_a_store(log, tmp_path) -> None:
    with pytest.raises(InvalidValue, match="expected a path, a postgresql:// URL, a store or a Bandit"):
        export_changes(log, tmp_path)


def test_more_days_than_open_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(increments, "_MAX_OPEN_FILES", 2)
    monkeypatch.setattr("maillard.decisions.files.arrow.MAX_BATCH_ROWS", 5)
    log = Log(None)
    bandit = log.bandit()
    rng = random.Random(3)
    for _ in range(60):  # an appended decision may have any time
        (made,) = Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, experiment=EXPERIMENT).choose(size=1)
        bandit.append([made._replace(time=log.clock.now + 86_400_000_000 * rng.randrange(6), state=1)])
    export_changes(log.open(), tmp_path)
    same(tmp_path, log.open())
    paths = [each.path for each in manifest_of(tmp_path / EXPERIMENT).files]
    assert any(path.endswith("-2.parquet") for path in paths)
    assert len(set(paths)) == len(paths)


def test_exports_while_another_thread_writes(tmp_path) -> None:
    path, folder = tmp_path / "log.db", tmp_path / "exported"
    stop = threading.Event()
    rule = Reward(low=0, high=1, window=0.05, default=0)

    def write() -> None:
        with Bandit(["red", "blue"], "ms", reward=rule, log=path, experiment=EXPERIMENT) as bandit:
            ready.set()
            for number in range(3000):
                made = bandit.choose(unit=f"user {number % 9}")
                if number % 3:
                    bandit.reward(made.id, 1.0)
                if stop.is_set():
                    break
            bandit.settle()

    ready = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        ready.wait()
        for _ in range(5):
            export_changes(path, folder)
            assert verify(folder).problems == []
            assert verify([folder, path]).problems == []
    finally:
        stop.set()
        writer.join()
    export_changes(path, folder)
    with closing(SQLiteStore(path, read_only=True)) as store:
        assert list(read_log(folder).rows()) == list(read_log(store).rows())


def test_the_tail_of_a_long_log_is_equal_to_the_bit(tmp_path) -> None:
    """More than one batch of columns, so that sums are added in the same order."""
    log = Log(None)
    bandit, rng = log.bandit(policy="ms:floor=0.1"), random.Random(5)
    store = log.open()
    for part in range(3):
        for made in [bandit.choose(size=1000) for _ in range(9)]:
            rewarded = [each.id for each in made if rng.random() < 0.6]
            bandit.rewards([{"decision": each, "value": rng.random()} for each in rewarded])
            log.clock.forward(9000)
        if part < 2:
            export_changes(store, tmp_path)
    assert_equal(report([tmp_path, store]), report(store))
    assert sum(map(len, read_log(tmp_path).columns())) == 18_000
