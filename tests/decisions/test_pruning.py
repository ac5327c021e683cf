"""Pruning: which decisions are removed, what stays, and that the rest of the log can still be verified."""

from __future__ import annotations

import json
import sqlite3
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from maillard import Bandit, Reward, evaluate
from maillard.decisions import (
    Pruned,
    Verification,
    export_changes,
    import_log,
    link_verification,
    prune,
    pruning,
    read_log,
    verify,
    write_log,
)
from maillard.decisions.events import Prune
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Transaction
from maillard.errors import CannotAnswer, InvalidValue, MaillardError, Unavailable
from tests.stores import EXPERIMENT, UNIT_RANGE, Log

DAY = 86_400.0


def work(bandit: Bandit, log: Log, rounds: int = 40, delay: int = 5) -> list[str]:
    """Make decisions a minute apart, whose rewards arrive some decisions later; return their ids."""
    made: list[str] = []
    for n in range(rounds):
        log.clock.forward(60)
        decision = bandit.choose(unit=f"user-{n % 7}", idempotency_key=f"{log.clock.now}" if n % 3 else None)
        made.append(decision.id)
        if n >= delay and n % 4:
            bandit.reward(made[n - delay], float(n % 3 == 0), event="click" if n % 2 else None)
    return made


def seconds(log: Log, days_ago: float = 0.0) -> float:
    return log.clock.now / 1e6 - days_ago * DAY


def prune_log(log: Log, folder: Path, days_ago: float, store: Store | None = None, **options) -> Pruned:
    return prune(
        store or log.open(), before=seconds(log, days_ago), exported=folder, experiment=EXPERIMENT, **options
    )


def checked(store: Store, **options) -> Verification:
    found = verify(store, EXPERIMENT, **options)
    assert found.problems == []
    assert found.chain is not None
    return found


def test_a_pruned_log_keeps_its_state_and_verifies(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(), log.open()
    old = work(bandit, log)
    log.clock.forward(2 * DAY)
    new = work(bandit, log)
    whole = verify(store, EXPERIMENT)
    head, tally, arms = bandit.head(), bandit.tally, bandit.summary()["arms"]
    export_changes(store, tmp_path, EXPERIMENT)
    result = prune_log(log, tmp_path, 1.5)
    assert (result.decisions, result.experiment) == (40, EXPERIMENT)
    assert 0 < result.commit < head.commit
    found = checked(store)
    assert (found.decisions, found.recomputed) == (40, 40)
    assert {row.decision.id for row in store.rows(EXPERIMENT)} == set(new)
    assert found.chain is not None
    assert found.chain.pruned is not None
    pruned = found.chain.pruned
    assert (pruned.commit, pruned.hash, pruned.decisions) == (result.commit, result.hash, 40)
    assert found.chain.commits == head.commit + 1
    # The state is the same for the bandit that was open, and for one that opens the log.
    assert bandit.tally == tally
    assert log.bandit(None, None, None).tally == tally
    assert {arm: each["pulls"] for arm, each in bandit.summary()["arms"].items()} == {
        arm: each["pulls"] for arm, each in arms.items()
    }
    # Everything goes on.
    more = work(bandit, log)
    bandit.reward(new[-1], 1.0, event="late")
    assert checked(store).decisions == 80
    assert whole.decisions == 80
    with pytest.raises(InvalidValue, match="old ones were pruned"):
        bandit.decision(old[0])
    with pytest.raises(InvalidValue, match="old decisions of this experiment were pruned"):
        bandit.reward(old[0], 1.0, event="more")
    assert bandit.decision(more[0]).id == more[0]


def test_a_log_can_be_pruned_again_and_as_a_whole(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(), log.open()
    for _ in range(3):
        work(bandit, log)
        log.clock.forward(2 * DAY)
        bandit.add_arm(f"arm-{log.clock.now}")
    for pruned in (40, 80, 120):
        export_changes(store, tmp_path, EXPERIMENT)
        with read_log(store, EXPERIMENT) as opened:
            times = sorted(row.decision.time / 1e6 for row in opened.rows())
        before = times[40] if len(times) > 40 else seconds(log, 1.0)
        assert prune(store, before=before, exported=tmp_path, experiment=EXPERIMENT).decisions == 40
        found = checked(store)
        assert found.chain is not None
        assert found.chain.pruned is not None
        assert found.chain.pruned.decisions == pruned
        assert found.decisions == 120 - pruned
    # Nothing is left to prune, and the log goes on.
    assert prune_log(log, tmp_path, 1.0).decisions == 0
    work(bandit, log)
    assert checked(store).decisions == 40
    events = [each for each in read_log(store, EXPERIMENT).events if isinstance(each, Prune)]
    assert [each.decisions for each in events] == [40, 80, 120]


def test_anchors_of_pruned_and_later_commits(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(), log.open()
    early = bandit.head()
    work(bandit, log)
    log.clock.forward(2 * DAY)
    work(bandit, log)
    late = bandit.head()
    export_changes(store, tmp_path, EXPERIMENT)
    result = prune_log(log, tmp_path, 1.5)
    for anchor, commit in ((late.hash, late.commit), (result.hash, result.commit)):
        found = checked(store, anchor=anchor)
        assert found.chain is not None
        assert found.chain.anchor == commit
    assert early.commit < result.commit
    (problem,) = verify(store, EXPERIMENT, anchor=early.hash).problems
    assert f"a commit before {result.commit}, which was pruned" in problem.what
    assert "you can verify the export instead" in problem.what
    (problem,) = verify(store, EXPERIMENT, anchor="0" * 64).problems
    assert "does not extend the published head" in problem.what


RULES = {
    "no window": UNIT_RANGE,
    "on_close": Reward(low=0, high=1, window=1800, default=0),
    "provisional": Reward(low=0, high=1, window=1800, default=0, learn="provisional"),
    "sums": Reward(low=0, high=10, window=7200, combine="sum"),
}


@pytest.mark.parametrize("rule", RULES)
def test_any_commit_can_be_the_boundary(rule: str, log: Log, tmp_path: Path) -> None:
    """Rewards of pruned decisions in later commits stay, and are applied to the rebuilt states."""
    bandit, store = log.bandit(reward=RULES[rule]), log.open()
    work(bandit, log, 60)
    log.clock.forward(2 * DAY)
    work(bandit, log, 5)
    bandit.settle()
    tally = bandit.tally
    export_changes(store, tmp_path, EXPERIMENT)
    times = sorted(row.decision.time for row in store.rows(EXPERIMENT))
    removed = 0
    for place in (7, 30, 59):
        before = times[place] / 1e6
        removed += prune(store, before=before, exported=tmp_path, experiment=EXPERIMENT).decisions
        assert removed == place
        assert checked(store).decisions == 65 - place
    assert log.bandit(None, None, None).tally == tally


def test_open_windows_and_recent_decisions_are_not_pruned(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(reward=Reward(low=0, high=1, window="3d", default=0)), log.open()
    work(bandit, log, 10)
    log.clock.forward(2 * DAY)
    export_changes(store, tmp_path, EXPERIMENT)
    with pytest.raises(InvalidValue, match="a time at least one day ago"):
        prune_log(log, tmp_path, 0.9)
    assert prune_log(log, tmp_path, 1.0).decisions == 0  # the windows are open
    log.clock.forward(2 * DAY)
    assert prune_log(log, tmp_path, 1.0).decisions == 0  # they have closed, but are not settled
    bandit.settle()
    with pytest.raises(InvalidValue, match="a newer export: 10 of these decisions have got rewards since"):
        prune_log(log, tmp_path, 1.0)
    export_changes(store, tmp_path, EXPERIMENT)
    assert prune_log(log, tmp_path, 1.0, dry_run=True).decisions == 10
    assert verify(store, EXPERIMENT).decisions == 10
    assert prune_log(log, tmp_path, 1.0).decisions == 10
    assert checked(store).decisions == 0


def test_missing_rewards_of_pruned_decisions_still_count_as_missing(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(), log.open()
    work(bandit, log)
    log.clock.forward(2 * DAY)
    work(bandit, log)
    before = bandit.summary()
    export_changes(store, tmp_path, EXPERIMENT)
    prune_log(log, tmp_path, 1.5)
    after = bandit.summary()
    for arm in before["arms"]:
        assert after["arms"][arm]["missing"] == before["arms"][arm]["missing"]
    assert after["refusal"] == before["refusal"]


def test_idempotency_keys_of_pruned_decisions_are_forgotten(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(), log.open()
    first = bandit.choose(idempotency_key="key")
    log.clock.forward(2 * DAY)
    kept = bandit.choose(idempotency_key="other")
    export_changes(store, tmp_path, EXPERIMENT)
    assert prune_log(log, tmp_path, 1.0).decisions == 1
    assert bandit.choose(idempotency_key="other").id == kept.id
    assert bandit.choose(idempotency_key="key").id != first.id
    checked(store)


def test_sticky_units_keep_their_arm_and_earlier_epochs_can_be_pruned(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(sticky=True), log.open()
    work(bandit, log, 20)
    log.clock.forward(2 * DAY)
    work(bandit, log, 20)
    export_changes(store, tmp_path, EXPERIMENT)
    arms = {f"user-{n}": bandit.choose(unit=f"user-{n}").arm for n in range(7)}
    assert prune_log(log, tmp_path, 1.0).decisions == 0  # the epoch has not ended
    assert {unit: bandit.choose(unit=unit).arm for unit in arms} == arms
    bandit.reset()
    log.clock.forward(2 * DAY)
    work(bandit, log, 20)
    arms = {unit: bandit.choose(unit=unit).arm for unit in arms}
    export_changes(store, tmp_path, EXPERIMENT)
    # A part of an epoch cannot be pruned, because later decisions repeat earlier ones.
    assert prune_log(log, tmp_path, 3.5).decisions == 0
    assert prune_log(log, tmp_path, 1.5).decisions == 54
    checked(store)
    assert {unit: bandit.choose(unit=unit).arm for unit in arms} == arms
    checked(store)


def test_decisions_in_old_states_stay_verifiable(log: Log, tmp_path: Path) -> None:
    """A process with an old view of the state logs a decision after the boundary."""
    bandit, store = log.bandit(), log.open()
    stale = log.bandit(None, None, None, staleness=1e6)
    work(bandit, log, 30)
    log.clock.forward(2 * DAY)
    late = stale.choose()
    work(bandit, log, 30)
    assert late.state == 1
    export_changes(store, tmp_path, EXPERIMENT)
    assert prune_log(log, tmp_path, 1.0).decisions == 30
    event = next(each for each in read_log(store, EXPERIMENT).events if isinstance(each, Prune))
    assert (event.base, checked(store).decisions) == (1, 31)
    assert stale.choose().state >= event.number  # it reads the event, so that no state is lost
    with pytest.raises(InvalidValue, match="because earlier states were pruned"):
        bandit.append([late._replace(id="0199c0de-0000-7000-8000-000000000000", idempotency_key=None)])
    checked(store)


def test_an_archived_experiment_can_be_pruned(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(), log.open()
    work(bandit, log, 10)
    bandit.archive()
    log.clock.forward(2 * DAY)
    export_changes(store, tmp_path, EXPERIMENT)
    assert prune_log(log, tmp_path, 1.0).decisions == 10
    checked(store)
    bandit.resume()
    work(bandit, log, 5)
    checked(store)


def test_only_what_was_exported_is_pruned(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(), log.open()
    work(bandit, log, 10, delay=0)
    export_changes(store, tmp_path, EXPERIMENT)
    work(bandit, log, 10, delay=0)
    log.clock.forward(2 * DAY)
    assert prune_log(log, tmp_path, 1.0).decisions == 10
    place = tmp_path / EXPERIMENT / "manifest.json"
    other = tmp_path / "other"
    with pytest.raises(InvalidValue, match="a folder that experiment 'home' was exported to"):
        prune_log(log, other, 1.0)
    export_changes(store, tmp_path, EXPERIMENT)
    manifest = json.loads(place.read_text())
    for change, problem in (
        ({"hash": "0" * 64}, "an export of this log"),
        ({"commit": manifest["commit"] + 7}, "an export of this log"),
        ({"files": manifest["files"][:1]}, "all decisions up to commit"),
        ({"files": [manifest["files"][1] | {"sha256": "0" * 64}]}, "SHA-256 in the manifest"),
        (
            {"files": [manifest["files"][1] | {"path": "day=2020-01-01/commits-1-2.parquet"}]},
            "a file that the",
        ),
        ({"files": [manifest["files"][1] | {"path": "../x.parquet"}]}, "files: path"),
    ):
        place.write_text(json.dumps(manifest | change))
        with pytest.raises(InvalidValue, match=problem):
            prune_log(log, tmp_path, 1.0)
        assert verify(store, EXPERIMENT).decisions == 10
    place.write_text(json.dumps(manifest))
    assert prune_log(log, tmp_path, 1.0).decisions == 10


def test_before_is_a_time_with_a_zone(log: Log, tmp_path: Path) -> None:
    log.bandit()
    with pytest.raises(InvalidValue, match="before: expected an aware datetime"):
        prune(log.open(), before=datetime(2026, 1, 1), exported=tmp_path)
    with pytest.raises(InvalidValue, match="was exported to"):
        prune(log.open(), before=datetime(2026, 1, 1, tzinfo=UTC), exported=tmp_path)


def pruned_file(tmp_path: Path) -> str:
    log = Log(str(tmp_path / "log.db"))
    bandit, store = log.bandit(), log.open()
    work(bandit, log)
    log.clock.forward(2 * DAY)
    work(bandit, log)
    bandit.add_arm("green")
    export_changes(store, tmp_path, EXPERIMENT)
    times = sorted(row.decision.time / 1e6 for row in store.rows(EXPERIMENT))
    assert prune(store, before=times[20], exported=tmp_path).decisions == 20
    for each in log.opened:
        each.close()
    assert log.where is not None
    return log.where


def change(path: str, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount > 0


TAMPERING = {
    "the base state": (
        "UPDATE documents SET content = replace(content, 'pulls', 'pills') WHERE kind = 'pruned'",
        "the document was changed",
    ),
    "no base state": ("DELETE FROM documents WHERE kind = 'pruned'", "from which later states are rebuilt"),
    "the hash": (
        "UPDATE events SET payload = json_set(payload, '$.hash', printf('%064d', 7)) WHERE kind = 'prune'",
        "was changed",
    ),
    "the number": (
        "UPDATE events SET payload = json_set(payload, '$.decisions', 19) WHERE kind = 'prune'",
        "was changed",
    ),
    "a kept event": (
        "UPDATE events SET payload = replace(payload, 'red', 'RED') WHERE kind = 'start'",
        "that pruning kept do not have the digest",
    ),
    "an update of a pruned decision": (
        "UPDATE events SET value = 1 - value WHERE decision NOT IN (SELECT id FROM decisions)",
        "was changed",
    ),
    "a reward of a pruned decision": (
        "DELETE FROM rewards WHERE decision NOT IN (SELECT id FROM decisions)",
        "lost a reward",
    ),
    "a decision": (
        "DELETE FROM decisions WHERE id = (SELECT max(id) FROM decisions)",
        "was deleted",
    ),
}


@pytest.mark.parametrize("what", TAMPERING)
def test_verify_finds_changes_of(what: str, tmp_path: Path) -> None:
    path = pruned_file(tmp_path)
    assert verify(path).problems == []
    statement, problem = TAMPERING[what]
    change(path, statement)
    found = verify(path)
    assert found.verdict == "broken"
    assert any(problem in each.what for each in found.problems), found.problems


def test_verify_finds_decisions_that_were_added_to_a_pruned_log(tmp_path: Path) -> None:
    path = pruned_file(tmp_path)
    columns = "experiment, time, unit, arm, log_probability, eligible, log_probabilities, policy_version, "
    columns += "formula_version, state, epoch, cold, position, origin, variant, seal"
    one = f"SELECT '0199c0de-0000-7000-8000-000000000000', {columns} FROM decisions LIMIT 1"
    change(path, f"INSERT INTO decisions (id, {columns}) {one}")
    assert "1 decisions are not in the chain" in verify(path).problems[0].what


def test_a_pruned_log_resumes_without_its_checkpoint(tmp_path: Path) -> None:
    path = pruned_file(tmp_path)
    with Bandit(log=path, experiment=EXPERIMENT) as bandit:
        tally = bandit.tally
    for statement in ("UPDATE checkpoints SET state = 'damaged'", "DELETE FROM checkpoints"):
        change(path, statement)
        with Bandit(log=path, experiment=EXPERIMENT) as bandit:
            assert bandit.tally == tally
    change(path, "DELETE FROM documents")
    with pytest.raises(MaillardError, match="the state after event"):
        Bandit(log=path, experiment=EXPERIMENT)


def test_a_damaged_log_is_not_pruned(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit, store = log.bandit(), log.open()
    work(bandit, log)
    log.clock.forward(2 * DAY)
    export_changes(store, tmp_path, EXPERIMENT)
    assert log.where is not None
    change(log.where, "UPDATE rewards SET value = 1 - value")
    with pytest.raises(CannotAnswer, match="nothing was removed, because the decisions are not consistent"):
        prune_log(log, tmp_path, 1.0)
    assert len(list(store.rows(EXPERIMENT))) == 40


class Interrupted(Exception):
    """Stands for the end of a process."""


class MortalStore:
    """A store that ends the process before one of its write transactions begins."""

    def __init__(self, store: Store, transactions: int) -> None:
        self._store, self._left = store, transactions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def transaction(self, experiment: str, **options: bool) -> AbstractContextManager[Transaction]:
        if not self._left:
            raise Interrupted
        self._left -= 1
        return self._store.transaction(experiment, **options)


def test_a_prune_that_is_interrupted_leaves_a_log_that_verifies(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_verification, "_MAX_ROWS", 9)
    monkeypatch.setattr(pruning, "_MAX_DISTRIBUTIONS", 5)
    bandit, store = log.bandit(), log.open()
    work(bandit, log)
    log.clock.forward(2 * DAY)
    work(bandit, log)
    tally, whole = bandit.tally, {row.decision.id: row for row in store.rows(EXPERIMENT)}
    export_changes(store, tmp_path, EXPERIMENT)
    times = sorted(row.decision.time / 1e6 for row in whole.values())
    left = len(whole)
    for transactions in range(100):
        mortal: Any = MortalStore(store, transactions)
        try:
            done = prune(mortal, before=times[33], exported=tmp_path, experiment=EXPERIMENT)
        except Interrupted:
            done = None
        found = checked(store)
        # The decisions that are left have all their rewards, and their number never rises.
        rows = list(store.rows(EXPERIMENT))
        assert all(row == whole[row.decision.id] for row in rows)
        assert len(rows) <= left
        left = len(rows)
        assert log.bandit(None, None, None).tally == tally
        assert checked(store, checkpoint=tmp_path / f"{transactions}").decisions <= found.decisions
        if done is not None:
            break
    assert left == 47
    assert transactions > 3
    assert found.decisions == 47
    with store.reading(EXPERIMENT) as transaction:
        assert transaction.links(0, 1)[0].number == found.chain.pruned.commit + 1  # type: ignore[union-attr]
    work(bandit, log)
    checked(store)


def test_pruned_rows_are_gone_from_all_tables(tmp_path: Path) -> None:
    path = pruned_file(tmp_path)
    with closing(sqlite3.connect(path)) as connection:

        def count(table: str) -> int:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

        removed = 20
        assert count("decisions") == 80 - removed
        assert count("events WHERE number <= (SELECT payload ->> 'base' FROM events WHERE kind = 'prune') "
                     "AND decision IS NOT NULL") == 0  # fmt: skip
        assert count("vectors WHERE state < (SELECT min(state) FROM decisions)") == 0
        last = "SELECT payload ->> 'commit' FROM events WHERE kind = 'prune'"
        assert count(f"links WHERE number <= ({last})") == 0
        assert count("decisions WHERE idempotency_key IS NOT NULL") < 80 * 2 / 3


def test_a_pruned_log_can_be_exported_evaluated_and_verified(log: Log, tmp_path: Path) -> None:
    bandit, store = log.bandit(policy="ms:floor=0.2"), log.open()
    work(bandit, log, 200, delay=2)
    log.clock.forward(2 * DAY)
    work(bandit, log, 200, delay=2)
    export_changes(store, tmp_path, EXPERIMENT)
    times = sorted(row.decision.time / 1e6 for row in store.rows(EXPERIMENT))
    prune(store, before=times[150], exported=tmp_path, experiment=EXPERIMENT)
    with read_log(store, EXPERIMENT) as opened:
        state = opened.final_state()
        assert state.tally == bandit.tally
        report = evaluate(opened, "arm:blue", missing="ignore")
        assert any("were pruned from the log" in each for each in report.warnings)
        for name in ("log.parquet", "log.csv"):
            write_log(opened, tmp_path / name)
    for name in ("log.parquet", "log.csv"):
        found = verify(tmp_path / name)
        assert found.problems == []
        assert found.recomputed == 250
        with read_log(tmp_path / name) as exported:
            assert exported.final_state().tally == bandit.tally
            assert exported.pruned is not None
            with pytest.raises(MaillardError, match="a pruned log cannot be imported"):
                import_log(exported, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
    # The bandit of another experiment can learn from it.
    other = Bandit(["red", "blue"], "ms", reward=UNIT_RANGE)
    other.warm_start(str(tmp_path / "log.parquet"))
    assert other.tally.pulls.sum() == bandit.tally.pulls.sum()


def test_rows_that_are_removed_from_an_export_of_a_pruned_log_are_found(tmp_path: Path) -> None:
    path = pruned_file(tmp_path)
    with read_log(path) as opened:
        table = opened.to_arrow()
    assert verify(table).problems == []
    rewarded = next(n for n, row in enumerate(table.to_pylist()) if row["applied"])
    shorter = pa.concat_tables([table.slice(0, rewarded), table.slice(rewarded + 1)])
    assert verify(shorter).verdict == "broken"
    with pytest.raises(InvalidValue, match="rows were removed from the table"):
        evaluate(shorter, "arm:blue")


def test_verify_refuses_a_log_that_is_pruned_meanwhile(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit, store = log.bandit(), log.open()
    work(bandit, log)
    log.clock.forward(2 * DAY)
    export_changes(store, tmp_path, EXPERIMENT)
    opened = read_log(store, EXPERIMENT)
    prune_log(log, tmp_path, 1.0)
    with pytest.raises(Unavailable, match="was pruned while it was verified"):
        verify(opened)
    checked(store)


def test_a_log_that_is_older_than_its_chain_is_not_pruned(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit, store = log.bandit(), log.open()
    work(bandit, log)
    log.clock.forward(2 * DAY)
    export_changes(store, tmp_path, EXPERIMENT)
    assert log.where is not None
    change(log.where, "DELETE FROM links WHERE number < 5")
    with pytest.raises(CannotAnswer, match="the log is older than its hash chain"):
        prune_log(log, tmp_path, 1.0)


def prune_in_child(where: str, folder: str, before: float, ready: Any, removing: bool) -> None:
    """Run in a process that is killed; `ready` is set at its start, or when it begins to remove rows."""
    link_verification._MAX_ROWS = 5
    pruning._MAX_DISTRIBUTIONS = 5
    remove = pruning._remove_rows

    def announced(*arguments: Any) -> None:
        ready.set()
        remove(*arguments)

    if removing:
        vars(pruning)["_remove_rows"] = announced
    else:
        ready.set()
    prune(where, before=before, exported=folder, experiment=EXPERIMENT)


@pytest.mark.torture
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_killed_prune_leaves_a_log_that_verifies(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Processes are killed at random times, while another one decides and learns."""
    where = str(tmp_path / "log.db") if kind == "sqlite" else str(request.getfixturevalue("postgres"))
    log, random, processes = Log(where), Random(5), get_context("spawn")
    log.clock.now -= round(10 * DAY * 1e6)
    bandit, store = log.bandit(), log.open()
    for _ in range(5):
        work(bandit, log, 120)
        log.clock.forward(DAY)
    times = sorted(row.decision.time / 1e6 for row in store.rows(EXPERIMENT))
    left = list[int]()
    for step in range(10):
        export_changes(store, tmp_path, EXPERIMENT)  # rewards of old decisions may have arrived
        ready, before, removing = processes.Event(), times[40 * (step + 1)], step % 3 > 0
        child = processes.Process(target=prune_in_child, args=(where, str(tmp_path), before, ready, removing))
        child.start()
        assert ready.wait(120)
        child.join(random.uniform(0.0, 0.1 if removing else 2.0))
        child.kill()
        child.join()
        found = checked(store)
        left.append(len(list(store.rows(EXPERIMENT))) - found.decisions)
        work(bandit, log, 3)
        assert log.bandit(None, None, None).tally == bandit.tally
        for each in log.opened[2:]:
            each.close()
        del log.opened[2:]
    export_changes(store, tmp_path, EXPERIMENT)
    prune(store, before=times[400], exported=tmp_path, experiment=EXPERIMENT)
    assert checked(store).decisions == 230  # 600 and 30 more, of which 400 were removed
    print(f"decisions that the interrupted prunes had still to remove: {left}")
