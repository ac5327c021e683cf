"""Verification from a checkpoint: it reads only later commits, gives the same result, and finds problems."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maillard import Bandit, Reward
from maillard.decisions import Verification, export_changes, prune, verify
from maillard.decisions import link_verification as links
from maillard.decisions import verification_checkpoint as checkpoints
from maillard.decisions.audit import Audit
from maillard.errors import InvalidValue
from tests.decisions.test_pruning import DAY, RULES, change, work
from tests.stores import EXPERIMENT, Log


def compare(found: Verification, whole: Verification) -> None:
    """Check that a verification from a checkpoint has the result of one of the whole log."""
    assert found.problems == whole.problems == []
    for name in ("decisions", "recomputed", "not_audited", "verdict", "largest_error", "not_recomputed"):
        assert getattr(found, name) == getattr(whole, name), name
    assert found.chain == whole.chain
    scores = {score.name: score for score in whole.arms}
    for score in found.arms:
        other = scores[score.name]
        assert score.observed == other.observed
        assert score.expected == pytest.approx(other.expected, rel=1e-12)
        assert score.variance == pytest.approx(other.variance, rel=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sticky", [False, True])
def test_each_run_continues_the_last_one(rule: str, sticky: bool, log: Log, tmp_path: Path) -> None:
    if sticky and log.kind == "postgresql":
        pytest.skip("the same code as for SQLite")
    bandit, store, path = log.bandit(reward=RULES[rule], sticky=sticky), log.open(), tmp_path / "checkpoint"
    before = 0
    for step in range(4):
        work(bandit, log, 25)
        if step == 1:
            bandit.add_arm("green")
        if step == 2:
            bandit.reset()
        found = verify(store, EXPERIMENT, checkpoint=path)
        assert found.verified_before == before
        before = found.decisions
        compare(found, verify(store, EXPERIMENT))
    again = verify(store, EXPERIMENT, checkpoint=path)
    assert again.verified_before == again.decisions == 100


def test_rewards_of_verified_decisions_are_checked(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit, path = log.bandit(), tmp_path / "checkpoint"
    made = work(bandit, log, 20, delay=30)
    assert log.where is not None
    assert verify(log.where, checkpoint=path).problems == []
    bandit.reward(made[3], 1.0)
    found = verify(log.where, checkpoint=path)
    assert found.problems == []
    bandit.reward(made[5], 1.0)
    change(log.where, "DELETE FROM rewards WHERE arrived = (SELECT max(arrived) FROM rewards)")
    (lost, *_) = verify(log.where, checkpoint=path).problems
    assert "lost a reward" in lost.what
    # The checkpoint is still the last one without a problem.
    assert json.loads(path.read_text())["commit"] == found.chain.commits  # type: ignore[union-attr]


TAMPERING = {
    "a later decision": "UPDATE decisions SET time = time + 1 WHERE id = (SELECT max(id) FROM decisions)",
    "a later update": "UPDATE events SET value = 0.5 WHERE number = (SELECT max(number) FROM events)",
    "a deleted decision": "DELETE FROM decisions WHERE id = (SELECT max(id) FROM decisions)",
    "the verified commit": "UPDATE links SET hash = zeroblob(32) WHERE number = {commit}",
    "a cut end": "DELETE FROM links WHERE number >= {commit}",
}


@pytest.mark.parametrize("what", TAMPERING)
def test_it_finds_changes_of(what: str, tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit, path = log.bandit(), tmp_path / "checkpoint"
    work(bandit, log, 20)
    assert log.where is not None
    verify(log.where, checkpoint=path)
    work(bandit, log, 20, delay=2)
    saved = path.read_bytes()
    change(log.where, TAMPERING[what].format(commit=json.loads(saved)["commit"]))
    assert verify(log.where, checkpoint=path).verdict == "broken"
    assert path.read_bytes() == saved


def test_earlier_rows_are_not_read_again(tmp_path: Path) -> None:
    """What a checkpoint saves: changes of earlier rows are found only without it."""
    log = Log(str(tmp_path / "log.db"))
    bandit, path = log.bandit(), tmp_path / "checkpoint"
    work(bandit, log, 20)
    assert log.where is not None
    verify(log.where, checkpoint=path)
    bandit.choose()
    change(log.where, "UPDATE decisions SET time = time + 1 WHERE id = (SELECT min(id) FROM decisions)")
    assert verify(log.where, checkpoint=path).problems == []
    assert verify(log.where).verdict == "broken"


def test_rows_from_outside_are_found(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit, path = log.bandit(), tmp_path / "checkpoint"
    work(bandit, log, 20)
    assert log.where is not None
    verify(log.where, checkpoint=path)
    columns = "experiment, time, unit, arm, log_probability, eligible, log_probabilities, policy_version, "
    columns += "formula_version, state, epoch, cold, position, origin, variant, seal"
    one = f"SELECT '0199c0de-0000-7000-8000-000000000000', {columns} FROM decisions LIMIT 1"
    change(log.where, f"INSERT INTO decisions (id, {columns}) {one}")
    assert "1 decisions are not in the chain" in verify(log.where, checkpoint=path).problems[0].what


def test_decisions_in_old_states(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are verified, from the saved state if it is old enough, and else with the whole log."""
    bandit, store, path = log.bandit(), log.open(), tmp_path / "checkpoint"
    stale = log.bandit(None, None, None, staleness=1e6)
    work(bandit, log, 30)
    verify(store, EXPERIMENT, checkpoint=path)
    assert stale.choose().state == 1
    found = verify(store, EXPERIMENT, checkpoint=path)
    assert (found.verified_before, found.recomputed, found.problems) == (30, 31, [])
    # With states of few events, the saved state is too new for the next one.
    monkeypatch.setattr(checkpoints, "_STATE_AGE", 2)
    stale = log.bandit(None, None, None, staleness=1e6)
    old = stale.state.number
    work(bandit, log, 30)
    assert verify(store, EXPERIMENT, checkpoint=path).verified_before == 31
    assert json.loads(path.read_text())["state"]["number"] > old
    assert stale.choose().state == old
    found = verify(store, EXPERIMENT, checkpoint=path)
    assert (found.verified_before, found.recomputed, found.problems) == (0, 62, [])
    assert verify(store, EXPERIMENT, checkpoint=path).verified_before == 62


def test_small_blocks_and_few_kept_states(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_MAX_ROWS", 3)
    monkeypatch.setattr(links, "_MAX_EVENTS", 4)
    monkeypatch.setattr(links, "_STATE_INTERVAL", 2)
    monkeypatch.setattr(checkpoints, "_STATE_AGE", 5)
    bandit, store, path = log.bandit(reward=RULES["sums"]), log.open(), tmp_path / "checkpoint"
    stale = log.bandit(None, None, None, staleness=1e6)
    work(bandit, log, 30)
    stale.choose()
    work(bandit, log, 30)
    compare(verify(store, EXPERIMENT, checkpoint=path), verify(store, EXPERIMENT))
    work(bandit, log, 30)
    compare(verify(store, EXPERIMENT, checkpoint=path), verify(store, EXPERIMENT))


def test_anchors(log: Log, tmp_path: Path) -> None:
    bandit, store, path = log.bandit(), log.open(), tmp_path / "checkpoint"
    early = bandit.head()
    work(bandit, log, 20)
    middle = bandit.head()
    verify(store, EXPERIMENT, checkpoint=path)
    work(bandit, log, 20)
    late = bandit.head()
    for head, before in ((late, 20), (middle, 40), (early, 0)):
        found = verify(store, EXPERIMENT, checkpoint=path, anchor=head.hash)
        assert found.problems == []
        assert found.chain is not None
        # For an earlier commit than the checkpoint's the whole log is read.
        assert (found.chain.anchor, found.verified_before) == (head.commit, 0 if head is middle else before)
    assert verify(store, EXPERIMENT, checkpoint=path, anchor="0" * 64).verdict == "broken"


def test_after_pruning_the_whole_log_is_verified_once(log: Log, tmp_path: Path) -> None:
    bandit, store, path = log.bandit(), log.open(), tmp_path / "checkpoint"
    work(bandit, log, 30)
    log.clock.forward(2 * DAY)
    work(bandit, log, 30)
    verify(store, EXPERIMENT, checkpoint=path)
    export_changes(store, tmp_path, EXPERIMENT)
    prune(store, before=log.clock.now / 1e6 - DAY, exported=tmp_path, experiment=EXPERIMENT)
    found = verify(store, EXPERIMENT, checkpoint=path)
    assert found.verified_before == 0
    compare(found, verify(store, EXPERIMENT))
    work(bandit, log, 30)
    found = verify(store, EXPERIMENT, checkpoint=path)
    assert (found.verified_before, found.decisions) == (30, 60)
    compare(found, verify(store, EXPERIMENT))


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[1]", b'{"format": 2}', b"\xff", b'{"format": 1, "state": 7}'],
)
def test_a_file_that_is_no_checkpoint_is_refused_and_kept(content: bytes, tmp_path: Path) -> None:
    log, path = Log(str(tmp_path / "log.db")), tmp_path / "checkpoint"
    work(log.bandit(), log, 5)
    path.write_bytes(content)
    with pytest.raises(InvalidValue, match="checkpoint"):
        verify(log.where, checkpoint=path)
    assert path.read_bytes() == content


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    log, path = Log(str(tmp_path / "log.db")), tmp_path / "checkpoint"
    work(log.bandit(), log, 5)
    verify(log.where, checkpoint=path)
    good: dict[str, Any] = json.loads(path.read_text())
    for name, value in {
        "hash": "abc", "commit": "7", "counts": {}, "chain": {}, "audit": {}, "state": {}, "experiment": "x",
    }.items():  # fmt: skip
        path.write_text(json.dumps(good | {name: value}))
        with pytest.raises(InvalidValue, match="checkpoint"):
            verify(log.where, checkpoint=path)


def test_files_and_logs_that_are_older_than_the_chain_have_no_checkpoint(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log.db"))
    work(log.bandit(), log, 5)
    assert log.where is not None
    export_changes(log.where, tmp_path, EXPERIMENT)
    with pytest.raises(InvalidValue, match="is not a whole log in a database"):
        verify(tmp_path / EXPERIMENT, checkpoint=tmp_path / "checkpoint")
    with closing(sqlite3.connect(log.where)) as connection, connection:
        connection.execute("DELETE FROM links WHERE number < 3")
    with pytest.raises(InvalidValue, match="older than its hash chain"):
        verify(log.where, checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_the_sums_of_an_audit_are_saved_exactly() -> None:
    bandit = Bandit(["red", "blue", "green"], "ms", reward=Reward(low=0, high=1), seed=1)
    audit = Audit()
    for n, decision in enumerate([*bandit.choose(size=50), bandit.choose(eligible=["red", "blue"])]):
        bandit.reward(decision.id, float(n % 3 == 0))
        audit.add(decision)
    copied = Audit.from_dict(json.loads(json.dumps(audit.to_dict())))
    assert copied.to_dict() == audit.to_dict()
    assert copied.scores() == audit.scores()
    assert copied.weights() == audit.weights()
