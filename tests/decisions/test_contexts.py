"""Decisions that depend on a context, in every store: probabilities, statistics, verification, erasure."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from maillard import Bandit, Features, LinearTally, Reward, SegmentTally, Tally, policy, verify
from maillard.decisions import encoded_contexts, export_changes, import_log, prune, read_log, write_log
from maillard.decisions.encoded_contexts import decode, encode
from maillard.decisions.files import export_folders
from maillard.decisions.files.obp import to_obp
from maillard.decisions.segment_contexts import SegmentContexts
from maillard.errors import Conflict, InvalidValue, UnknownName
from maillard.feature_grid import STEPS
from maillard.features import number
from tests.stores import UNIT_RANGE, Log

DEVICES = ["phone", "desktop", "watch"]  # the last one is not a level
FEATURES = Features({"device": ["phone", "desktop"], "age": (18, 90)}, crosses=[("device", "age")])
ITEMS = Features(
    {"device": ["phone", "desktop"], "price": (0, 10), "new": bool}, crosses=[("device", "price")]
)
ARMS: dict[str, dict[str, Any]] = {
    "red": {"price": 1, "new": True},
    "blue": {"price": 5.5, "new": False},
    "green": {"price": 9, "new": False},
}
ANY_RANGE = {"policy": "lin-ms:sigma2=0.25,centre=0.5"}


@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(20,), (3, 7), (1,), (70,)])
def test_few_and_many_numbers_have_the_same_binary_form(shape, zeros, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    units = rng.integers(-STEPS, STEPS + 1, shape) * (rng.random(shape) >= zeros)
    few = encode(units)
    assert np.array_equal(decode(few), units)
    monkeypatch.setattr(encoded_contexts, "_FEW", 0)
    assert encode(units) == few


def visitor(rng: random.Random) -> dict[str, Any]:
    return {"device": rng.choice(DEVICES), "age": round(rng.uniform(10, 100), 3)}


def shopper(rng: random.Random) -> dict[str, Any]:
    return {"device": rng.choice(DEVICES)}


def disjoint(log: Log, **options: Any) -> Bandit:
    options = {"policy": "lin-ms:floor=0.1", "features": FEATURES} | options
    return log.bandit(["red", "blue", "green"], **options)


def shared(log: Log, **options: Any) -> Bandit:
    options = {"policy": "lin-ts:floor=0.1", "features": ITEMS, "model": "shared"} | options
    return log.bandit(ARMS, **options)


def segmented(log: Log, **options: Any) -> Bandit:
    return log.bandit(["red", "blue"], **{"policy": "kl-ms+:floor=0.1", "segments": ["device"]} | options)


def learn(bandit: Bandit, rng: random.Random, times: int, context=visitor) -> list[Any]:
    """Choose and reward; a third of the decisions gets no reward, and some rewards are revised."""
    made = []
    for _ in range(times):
        made.append(bandit.choose(unit=f"user-{rng.randrange(9)}", context=context(rng)))
        for event in range(rng.choice((0, 1, 2))):
            bandit.reward(made[-1], float(rng.random() < 0.5), event=str(event))
    return made


def rule_of(bandit: Bandit) -> Any:
    return bandit.state.context


def statistics_of(bandit: Bandit) -> Any:
    return bandit.statistics


def check(bandit: Bandit, decisions: int | None = None) -> Any:
    found = verify(bandit)
    assert found.problems == []
    assert found.recomputed == found.decisions
    assert found.largest_error == 0.0
    assert decisions is None or found.decisions == decisions
    return found


LAST = Reward(low=0, high=1, combine="last")


# Distributions and statistics.


def test_a_decision_has_the_probabilities_of_the_policy(log) -> None:
    bandit, rng = disjoint(log, reward=LAST), random.Random(1)
    lin_ms = policy("lin-ms:floor=0.1", reward_range=(0, 1))
    tally = LinearTally.empty(features=FEATURES.dimension, arms=3)
    for _ in range(30):
        context = visitor(rng)
        x = FEATURES.encode(context)
        decision = bandit.choose(context=context)
        expected = lin_ms.log_probabilities(tally, x).tolist()
        assert list(decision.log_probabilities) == expected
        assert json.loads(decision.context) == context
        assert np.array_equal(decode(decision.encoded), x * STEPS)
        arm = ("red", "blue", "green").index(decision.arm)
        assert decision.cold == (tally.counts[arm] == 0)
        value = rng.random()
        bandit.reward(decision, value)
        tally.add(x, value, arm)
        assert bandit.statistics == tally
        assert np.array_equal(bandit.tally.pulls, tally.counts)
    check(bandit, 30)


def test_a_shared_model_has_a_row_for_each_arm(log) -> None:
    bandit, rng = shared(log), random.Random(2)
    lin_ts = policy("lin-ts:floor=0.1", reward_range=(0, 1))
    tally = LinearTally.empty(features=ITEMS.dimension, arms=None)
    for step in range(20):
        context = shopper(rng)
        eligible = None if step % 3 else ["red", "green"]
        decision = bandit.choose(context=context, eligible=eligible)
        rows = np.array([ITEMS.encode({**context, **ARMS[arm]}) for arm in decision.eligible])
        assert decision.log_probabilities == pytest.approx(lin_ts.log_probabilities(tally, rows), rel=1e-9)
        assert np.array_equal(decode(decision.encoded) / STEPS, rows)
        assert decision.cold == (step == 0)
        bandit.reward(decision, step / 20)
        tally.add(rows[decision.eligible.index(decision.arm)], step / 20)
    assert bandit.statistics == tally
    assert bandit.tally.pulls.sum() == 20
    check(bandit, 20)


def test_arms_that_differ_at_every_decision(log) -> None:
    bandit = log.bandit([], "lin-ms:floor=0.1", features=ITEMS, model="shared", reward=LAST)
    rng, tally = random.Random(3), LinearTally.empty(features=ITEMS.dimension, arms=None)
    for step in range(25):
        names = [f"article-{rng.randrange(100)}" for _ in range(4)]
        actions = {name: {"price": rng.randrange(11), "new": rng.random() < 0.5} for name in names}
        context = shopper(rng)
        decision = bandit.choose(unit="u", context=context, actions=actions)
        assert decision.eligible == tuple(actions)
        rows = [ITEMS.encode({**context, **each}) for each in actions.values()]
        lin_ms = policy("lin-ms:floor=0.1", reward_range=(0, 1))
        assert decision.log_probabilities == tuple(lin_ms.log_probabilities(tally, rows))
        bandit.reward(decision, 0.25)
        bandit.reward(decision, step / 25, event="later")
        tally.add(rows[decision.eligible.index(decision.arm)], step / 25)
    assert bandit.statistics == tally
    assert bandit.tally.pulls.tolist() == [25]
    summary = bandit.summary()
    assert (summary["arms"], summary["decisions"]) == ({}, 25)
    check(bandit, 25)
    with pytest.raises(InvalidValue, match="no fixed arms"):
        bandit.choose(context={"device": "phone"})
    assert bandit.erase_unit("u") == 25
    assert check(bandit).erased_contexts == 25


def test_segments_have_a_tally_each(log) -> None:
    bandit, rng = segmented(log, segments=["device", "returning"]), random.Random(4)
    inner = policy("kl-ms+:floor=0.1", reward_range=(0, 1))
    tally = SegmentTally.empty(arms=2)
    for _ in range(40):
        context = {"device": rng.choice(DEVICES), "returning": rng.random() < 0.5, "age": rng.randrange(90)}
        segment = context["device"], str(context["returning"]).lower()
        decision = bandit.choose(context=context)
        assert decision.log_probabilities == tuple(inner.log_probabilities(tally[segment]))
        assert decode(decision.encoded) == segment
        arm = ("red", "blue").index(decision.arm)
        assert decision.cold == (tally[segment].pulls[arm] == 0)
        bandit.reward(decision, 1.0)
        tally.add(segment, arm, 1.0)
    assert bandit.statistics == tally
    check(bandit, 40)


def test_segments_beyond_the_limit_share_a_tally(log, monkeypatch) -> None:
    monkeypatch.setattr(SegmentContexts, "limit", 3)
    monkeypatch.setattr(SegmentContexts.__init__, "__kwdefaults__", {"limit": 3, "dynamic": False})
    bandit = segmented(log, reward=LAST)
    assert rule_of(bandit).limit == 3
    early = [bandit.choose(context={"device": f"device-{n}"}) for n in range(6)]
    assert {decode(each.encoded) for each in early} == {(f"device-{n}",) for n in range(6)}
    for each in early:  # the first three get a tally
        bandit.reward(each, 1.0)
    bandit.reward(early[1], 0.0, event="later")
    bandit.reward(early[5], 0.0, event="later")
    assert decode(bandit.choose(context={"device": "device-5"}).encoded) == ("(other)",)
    known = statistics_of(bandit).segments
    assert set(known) == {("device-0",), ("device-1",), ("device-2",), ("(other)",)}
    assert known["(other)",].sums.sum() == 2.0
    assert known["(other)",].pulls.sum() == 3
    assert known["device-1",].sums.sum() == 0.0
    check(bandit, 7)


def test_a_bandit_without_features_stores_contexts(log) -> None:
    bandit = log.bandit()
    made = bandit.choose(unit="user-1", context={"device": "phone", "age": np.int64(30), "gap": float("nan")})
    assert json.loads(made.context) == {"device": "phone", "age": 30, "gap": None}
    assert made.encoded is None
    bandit.reward(made, 1.0)
    bandit.choose(size=5, context={"device": "phone"})
    (first, second) = bandit.choose(context=[{"n": 1}, {"n": 2}])
    assert (first.context, second.context) == ('{"n":1}', '{"n":2}')
    check(bandit, 8)
    assert bandit.erase_unit("user-1") == 1
    assert bandit.decision(made.id).context is None
    found = check(bandit, 8)
    assert (found.chain.erased, found.erased_contexts) == (1, 0)


def test_batches(log) -> None:
    bandit, rng = disjoint(log), random.Random(5)
    learn(bandit, rng, 10)
    batch = bandit.choose(size=6, context=visitor(rng))
    assert len({each.log_probabilities for each in batch}) == 1
    contexts = [visitor(rng) for _ in range(5)]
    each = bandit.choose(context=contexts, idempotency_key="batch")
    assert [json.loads(row.context) for row in each] == contexts
    assert [row.position for row in each] == list(range(5))
    assert len({row.log_probabilities for row in each}) > 1
    assert bandit.choose(context=contexts, idempotency_key="batch") == each
    assert bandit.choose(context=[]) == []
    with pytest.raises(InvalidValue, match="number of contexts"):
        bandit.choose(context=contexts, size=4)
    check(bandit, 21)


def test_idempotency_keys(log) -> None:
    bandit, context = disjoint(log), {"device": "phone", "age": 30}
    first = bandit.choose(unit="u", context=context, idempotency_key="k")
    assert bandit.choose(unit="u", context=context, idempotency_key="k") == first
    with pytest.raises(Conflict, match="another context"):
        bandit.choose(unit="u", context=context | {"age": 31}, idempotency_key="k")
    check(bandit, 1)


def test_sticky_units_keep_arm_distribution_and_rows(log) -> None:
    bandit, rng = disjoint(log, sticky=True, reward=LAST), random.Random(6)
    made = learn(bandit, rng, 60)
    assert len({(row.unit, row.arm) for row in made}) == 9
    again = [row for row in made if row.origin is not None]
    origins = {row.id: row for row in made}
    for row in again:
        assert row.encoded == origins[row.origin].encoded
    assert any(row.context != origins[row.origin].context for row in again)
    with pytest.raises(UnknownName, match="devise"):
        bandit.choose(unit=again[0].unit, context={"devise": "phone", "age": 3})
    check(bandit, 60)


@pytest.mark.parametrize("learning", ["on_close", "provisional", "on_arrival"])
@pytest.mark.parametrize("make", [disjoint, shared, segmented])
def test_windows(log, make, learning) -> None:
    rule = Reward(low=0, high=1, window=60, default=0, combine="last", learn=learning)
    bandit, rng = make(log, reward=rule), random.Random(7)
    learn(bandit, rng, 12, shopper if make is shared else visitor)
    log.clock.forward(61)
    bandit.settle()
    assert bandit.tally.pulls.sum() == 12
    learn(bandit, rng, 12, shopper if make is shared else visitor)
    bandit.summary()
    log.clock.forward(30)
    learn(bandit, rng, 5, shopper if make is shared else visitor)
    check(bandit, 29)


def test_a_process_may_choose_from_an_older_state(log) -> None:
    bandit, rng = disjoint(log), random.Random(8)
    stale = Bandit(log=log.open(), experiment="home", staleness=1e6)
    before = stale.choose(context={"device": "phone", "age": 30})
    learn(bandit, rng, 20)
    later = stale.choose(context={"device": "phone", "age": 30})
    if log.kind != "memory":  # one process, one state
        assert later.state == before.state
    assert later.log_probabilities == before.log_probabilities or log.kind == "memory"
    bandit.reward(later, 1.0)
    check(bandit, 22)


# Changes.


def test_arms_come_and_go(log) -> None:
    rng = random.Random(9)
    for make, context, more in (
        (disjoint, visitor, {}),
        (segmented, visitor, {}),
        (shared, shopper, {"features": {"price": 2, "new": True}}),
    ):
        bandit = make(log, experiment=make.__name__)
        learn(bandit, rng, 8, context)
        bandit.add_arm("late", **more)
        learn(bandit, rng, 8, context)
        bandit.retire_arm("blue")
        learn(bandit, rng, 8, context)
        assert "blue" not in bandit.choose(context=context(rng)).eligible
        bandit.add_arm("blue")
        learn(bandit, rng, 8, context)
        found = verify(bandit)
        assert found.problems == []
    with pytest.raises(InvalidValue, match="features of arm 'new'"):
        bandit.add_arm("new")
    with pytest.raises(UnknownName, match="prize"):
        bandit.add_arm("new", features={"prize": 1, "new": False})
    with pytest.raises(InvalidValue, match="arms have no features"):
        disjoint(log, experiment="disjoint").add_arm("new", features={"age": 1})


def test_the_policy_changes_and_the_statistics_stay(log) -> None:
    bandit, rng = disjoint(log), random.Random(10)
    learn(bandit, rng, 15)
    before = bandit.statistics
    bandit.change_policy("lin-ucb:floor=0.2")
    assert bandit.statistics == before
    learn(bandit, rng, 15)
    with pytest.raises(InvalidValue, match="segments="):
        bandit.change_policy("kl-ms+")
    check(bandit, 30)


def test_appended_features_keep_the_statistics(log) -> None:
    bandit, rng = disjoint(log, reward=LAST), random.Random(11)
    learn(bandit, rng, 15)
    old = bandit.choose(context={"device": "phone", "age": 20})
    tally = statistics_of(bandit)
    wider = Features(
        {"device": ["phone", "desktop"], "age": (18, 90), "returning": bool}, crosses=[("device", "age")]
    )
    bandit.change_features(wider)
    assert bandit.state.epoch == 1
    assert bandit.statistics == tally.spread(wider.positions(FEATURES), wider.dimension)
    # A reward of an earlier decision is applied with its own row.
    bandit.reward(old, 0.75)
    bandit.reward(old, 0.5, event="later")
    row = np.zeros(wider.dimension)
    row[wider.positions(FEATURES)] = FEATURES.encode({"device": "phone", "age": 20})
    tally = tally.spread(wider.positions(FEATURES), wider.dimension)
    tally.add(row, 0.5, ("red", "blue", "green").index(old.arm))
    assert bandit.statistics == tally
    made = bandit.choose(context={"device": "phone", "age": 20, "returning": True})
    assert (old.feature_version, made.feature_version) == (1, 2)
    learn(bandit, rng, 10, lambda rng: {**visitor(rng), "returning": rng.random() < 0.5})
    check(bandit, 27)


def test_other_features_begin_a_new_epoch(log) -> None:
    bandit, rng = disjoint(log), random.Random(12)
    old = learn(bandit, rng, 15)[-1]
    other = Features({"age": (18, 90)})
    bandit.change_features(other)
    assert bandit.state.epoch == 2
    assert bandit.statistics == LinearTally.empty(features=2, arms=3)
    assert bandit.tally == Tally.empty(3)
    assert bandit.reward(old, 1.0, event="after") == "old epoch"
    learn(bandit, rng, 10, lambda rng: {"age": rng.randrange(90)})
    check(bandit, 25)
    with pytest.raises(InvalidValue, match="differ from the current ones"):
        bandit.change_features(other)
    with pytest.raises(InvalidValue, match="began without"):
        segmented(log, experiment="other").change_features(other)


@pytest.mark.parametrize("make", [disjoint, shared, segmented])
def test_snapshots(log, make) -> None:
    context = shopper if make is shared else visitor
    bandit, rng = make(log), random.Random(13)
    learn(bandit, rng, 12, context)
    saved, tally, statistics = bandit.snapshot(), bandit.tally, bandit.statistics
    saved = json.loads(json.dumps(saved))
    bandit.reset()
    assert bandit.statistics == bandit.state.context.empty(len(bandit.arms))
    learn(bandit, rng, 5, context)
    bandit.restore(saved)
    assert (bandit.tally, bandit.statistics) == (tally, statistics)
    learn(bandit, rng, 5, context)
    other = make(log, experiment="copy")
    other.restore(saved)
    assert other.statistics == statistics
    check(bandit, 22)
    check(other, 0)
    with pytest.raises(InvalidValue, match="snapshot"):
        log.bandit(experiment="plain").restore(saved)


def test_warm_starts(log, tmp_path) -> None:
    rng = random.Random(14)
    plain = log.bandit(["red", "blue", "green"], experiment="plain")
    learn(plain, rng, 30)
    write_log(read_log(log.open(), "plain"), tmp_path / "plain.parquet")
    bandit, expected = disjoint(log), LinearTally.empty(features=FEATURES.dimension, arms=3)
    for row in read_log(tmp_path / "plain.parquet").rows():
        if row.applied:
            arm = ("red", "blue", "green").index(row.decision.arm)
            expected.add(FEATURES.encode(json.loads(row.decision.context)), row.applied[-1].value, arm)
    bandit.warm_start(tmp_path / "plain.parquet")
    assert bandit.statistics == expected
    assert bandit.tally == plain.tally
    learn(bandit, rng, 5)
    groups = segmented(log, experiment="groups", segments=["device"], policy="ts")
    with pytest.raises(UnknownName, match="green"):
        groups.warm_start(tmp_path / "plain.parquet")
    groups.add_arm("green")
    groups.warm_start(tmp_path / "plain.parquet")
    assert (
        sum(each.pulls.sum() for each in statistics_of(groups).segments.values()) == plain.tally.pulls.sum()
    )
    # From statistics, and from a log with the same features.
    again = disjoint(log, experiment="again")
    again.warm_start(expected)
    assert again.statistics == expected
    write_log(read_log(log.open(), "home"), tmp_path / "home.csv")
    final = bandit.statistics
    last = disjoint(log, experiment="last")
    last.warm_start(tmp_path / "home.csv")
    assert last.statistics == final
    for each in (bandit, groups, again, last):
        assert verify(each).problems == []
    with pytest.raises(InvalidValue, match="uses contexts"):
        bandit.warm_start({"red": (1, 1.0)})


def test_a_log_is_resumed(log) -> None:
    rng = random.Random(15)
    learn(disjoint(log), rng, 10)
    if log.kind == "memory":
        return
    resumed = Bandit(log=log.open(), experiment="home")
    assert rule_of(resumed).features == FEATURES
    learn(resumed, rng, 5)
    again = disjoint(log)
    assert again.statistics == resumed.statistics
    with pytest.raises(InvalidValue, match="change_features"):
        disjoint(log, features=Features({"age": (0, 1)}))
    with pytest.raises(InvalidValue, match="has features"):
        segmented(log)
    check(again, 15)


def test_appended_decisions(log) -> None:
    bandit, rng = disjoint(log), random.Random(16)
    elsewhere = disjoint(Log(None))
    made = elsewhere.choose(context=visitor(rng))
    assert bandit.append([made]) == 1
    assert bandit.reward(made, 1.0) == "applied"
    check(bandit, 1)
    with pytest.raises(InvalidValue, match="encoded"):
        bandit.append([elsewhere.choose(context=visitor(rng))._replace(encoded=None)])


# Erasure and tampering.


@pytest.mark.parametrize("make", [disjoint, shared, segmented])
def test_erasing_a_unit_removes_its_contexts(log, make) -> None:
    bandit, rng = make(log), random.Random(17)
    learn(bandit, rng, 20, shopper if make is shared else visitor)
    secret = {"device": "telephone-of-zoe"} | ({"age": 77.125} if make is disjoint else {})
    for _ in range(3):
        bandit.reward(bandit.choose(unit="zoe", context=secret), 1.0)
    assert "telephone-of-zoe" in repr(log.contents())
    assert bandit.erase_unit("zoe") == 3
    found = check(bandit, 23)
    assert found.erased_contexts == 3
    assert found.chain.erased == 3
    # A segment is the name of a tally, which stays.
    assert ("telephone-of-zoe" in repr(log.contents())) == (make is segmented)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE decisions SET context = replace(context, 'phone', 'phones') WHERE state = 3", "follow"),
        ("UPDATE decisions SET context = NULL WHERE state = 3", "hash"),
        ("UPDATE decisions SET context = '{' WHERE state = 3", "encoded: "),
        ("UPDATE decisions SET encoded = x'00010001000000000000' WHERE state = 3", "hash"),
        ("UPDATE decisions SET encoded = NULL WHERE state = 3", "hash"),
        ("UPDATE decisions SET feature_version = 2 WHERE state = 3", "feature_version"),
        ("UPDATE decisions SET cold = 1 - cold WHERE state = 3", "cold"),
        (
            "UPDATE events SET payload = (SELECT payload FROM events WHERE number = 9) WHERE number = 8",
            "does not have the feature row",
        ),
        ("UPDATE events SET payload = NULL WHERE number = 8", "row: expected the feature row"),
        ("UPDATE events SET payload = 'AAAA' WHERE number = 8", "encoded"),
    ],
)
def test_a_changed_context_is_found(tmp_path, change, problem) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit = disjoint(log)
    for step in range(8):
        made = bandit.choose(context={"device": "phone", "age": 20 + step})
        bandit.reward(made, 1.0)
    check(bandit, 8)
    bandit.close()
    with closing(sqlite3.connect(log.where, isolation_level=None)) as connection:
        connection.execute(change)
    found = verify(log.where)
    assert any(problem in each.what for each in found.problems), found.problems
    assert found.verdict == "broken"


def test_a_context_that_was_added_later_is_found(tmp_path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit = log.bandit()
    bandit.choose(size=3)
    bandit.close()
    for column in ("context", "unit"):
        with closing(sqlite3.connect(log.where, isolation_level=None)) as connection:
            connection.execute(f"UPDATE decisions SET {column} = '{{}}'")
        assert "hash of its rows" in verify(log.where).problems[0].what
        with closing(sqlite3.connect(log.where, isolation_level=None)) as connection:
            connection.execute(f"UPDATE decisions SET {column} = NULL")
        assert verify(log.where).problems == []


# Files.


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "frame"])
@pytest.mark.parametrize("make", [disjoint, shared, segmented])
def test_files_keep_what_verify_needs(tmp_path, make, name) -> None:
    log = Log(str(tmp_path / "log.db"))
    rule = Reward(low=0, high=1, window=60, combine="last")
    bandit, rng = make(log, reward=rule, sticky=True), random.Random(18)
    learn(bandit, rng, 30, shopper if make is shared else visitor)
    bandit.erase_unit("user-3")
    stored = read_log(log.open(), "home")
    if name == "frame":
        exported = read_log(stored.to_pandas())
    else:
        write_log(stored, tmp_path / name)
        exported = read_log(tmp_path / name)
    assert list(exported.rows()) == list(stored.rows())
    assert exported.events == stored.events
    assert exported.final_state().statistics == bandit.statistics
    found = verify(exported)
    assert found.problems == []
    assert found.recomputed == 30
    assert found.erased_contexts > 0
    import_log(exported, tmp_path / "copy.db", "copy")
    assert verify(tmp_path / "copy.db").problems == []
    with Bandit(log=tmp_path / "copy.db", experiment="copy") as copy:
        assert copy.statistics == bandit.statistics
        copy.choose(context={"device": "phone"} if make is shared else {"device": "phone", "age": 20})


def test_columns_of_contexts(tmp_path) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit = disjoint(log)
    bandit.choose(context={"device": "phone", "age": 36})
    frame = read_log(log.open(), "home").to_pandas()
    assert frame["context"].tolist() == ['{"device":"phone","age":36}']
    assert frame["feature_version"].tolist() == [1]
    # Tables of other programs may have contexts in other forms.
    frame = frame[["arm", "probability"]].assign(context=[{"device": "phone"}], actions=[3])
    frame.attrs = {}
    assert next(iter(read_log(frame).rows())).decision.context is None


def test_the_context_of_open_bandit_pipeline() -> None:
    bandit, rng = disjoint(Log(None)), random.Random(20)
    for row in (made := bandit.choose(context=[visitor(rng) for _ in range(4)])):
        bandit.reward(row, 1.0)
    feedback = to_obp(read_log(bandit))
    expected = [FEATURES.encode(json.loads(row.context)).tolist() for row in made]
    assert sorted(feedback["context"].tolist()) == sorted(expected)
    first = next(iter(read_log(feedback).rows())).decision
    assert list(json.loads(first.context).values()) == feedback["context"][0].tolist()
    for wrong in (feedback["context"][:2], [1, 2, 3, 4], [["a"]] * 4):
        with pytest.raises(InvalidValue, match="a row of numbers for each"):
            read_log(feedback | {"context": wrong})
    plain = Bandit(["red", "blue"], "uniform")
    plain.reward(plain.choose(context={"device": "phone"}), 1.0)
    assert to_obp(read_log(plain))["context"] is None


@pytest.mark.parametrize("make", [disjoint, shared, segmented])
def test_checkpoints_export_folders_and_pruning(tmp_path, make) -> None:
    context = shopper if make is shared else visitor
    log = Log(str(tmp_path / "log.db"))
    bandit, rng = make(log, reward=LAST), random.Random(19)
    made = learn(bandit, rng, 20, context)
    assert verify(log.where, checkpoint=tmp_path / "checkpoint").problems == []
    export_changes(log.where, tmp_path / "folder")
    # Decisions that will be pruned get rewards later, which change the statistics.
    log.clock.forward(3 * 86_400)
    for row in made[-3:]:
        bandit.reward(row, 0.25, event="late")
    learn(bandit, rng, 10, context)
    found = verify(log.where, checkpoint=tmp_path / "checkpoint")
    assert (found.problems, found.decisions, found.verified_before) == ([], 30, 20)
    export_changes(log.where, tmp_path / "folder")
    exported = read_log(tmp_path / "folder")
    assert list(exported.rows()) == list(read_log(log.where).rows())
    assert verify(exported).problems == []
    statistics = bandit.statistics
    before = (log.clock.now - 2 * 86_400 * 1_000_000) / 1e6
    assert prune(bandit, before=before, exported=tmp_path / "folder").decisions == 20
    bandit.close()
    found = verify(log.where)
    assert (found.problems, found.decisions) == ([], 10)
    with Bandit(log=log.open(), experiment="home") as resumed:
        assert resumed.statistics == statistics
    write_log(read_log(log.where), tmp_path / "rest.parquet")
    rest = read_log(tmp_path / "rest.parquet")
    assert rest.final_state().statistics == statistics
    assert verify(rest).problems == []


def test_an_export_folder_of_an_earlier_version(tmp_path, monkeypatch) -> None:
    log = Log(str(tmp_path / "log.db"))
    bandit = log.bandit()
    bandit.choose(size=4)
    export_changes(log.where, tmp_path / "folder")
    for path in (tmp_path / "folder").rglob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.drop_columns(["context", "actions", "encoded", "feature_version"]), path)
    monkeypatch.setattr(export_folders, "check_sizes", lambda *_: None)  # the manifest has those of now
    assert list(read_log(tmp_path / "folder").rows()) == list(read_log(log.where).rows())


# Errors.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "lin-ms"}, "declare features=Features"),
        ({"policy": "segmented:policy=ts"}, "segments="),
        (
            {"policy": "kl-ms+", "features": FEATURES},
            "because the experiment has features",
        ),
        ({"policy": "lin-ms", "segments": ["device"]}, "has segments"),
        ({"segments": ["device"], "features": FEATURES}, "not both"),
        ({"segments": "device"}, "list of different keys"),
        ({"segments": ["a", "a"]}, "list of different keys"),
        ({"model": "shared"}, "Features"),
        ({"features": {"age": (0, 1)}}, "Features"),
        ({"features": FEATURES, "model": "mixed"}, "'disjoint'"),
        ({"features": FEATURES, "model": "shared"}, "a mapping from each arm to its features"),
        ({"arms": ARMS, "features": FEATURES}, "model='shared'"),
        ({"arms": ARMS}, "Features"),
        ({"arms": [], "features": FEATURES}, "at least one"),
        ({"arms": {"red": {"prize": 1}}, "features": ITEMS, "model": "shared"}, "prize"),
        ({"arms": None, "features": FEATURES}, "arms as well"),
        ({"policy": "lin-ms", "features": FEATURES, "reward": Reward()}, "centre"),
    ],
)
def test_wrong_declarations(options, message) -> None:
    options = {"arms": ["red", "blue"], "reward": UNIT_RANGE} | options
    with pytest.raises((InvalidValue, UnknownName), match=message):
        Bandit(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "context: expected a mapping with a value for each feature: 'device', 'age'"),
        ({"context": {"device": "phone"}}, "age: expected a value"),
        ({"context": {"device": "phone", "age": 3, "agee": 3}}, "agee.*Did you mean 'age'"),
        ({"context": {"device": "phone", "age": "old"}}, "age: expected a finite number, got 'old'"),
        ({"context": {"device": "phone", "age": [3]}}, "context: age"),
        ({"context": {"device": "phone", "age": float("inf")}}, "finite"),
        ({"context": {3: "phone"}}, "names as keys"),
        ({"context": "phone"}, "a mapping"),
        ({"context": {"device": "x" * 20_000, "age": 3}}, "at most 16384 bytes"),
        ({"context": {"device": "\ud800", "age": 3}}, "UTF-8"),
        ({"context": {"device": "phone", "age": 3}, "actions": {"a": {}}}, "only an experiment without arms"),
        ({"context": [{"device": "phone", "age": 3}, {"device": 1.5, "age": 3}]}, "device"),
        ({"context": [{"device": "phone", "age": 3}, 7]}, r"contexts\[1\]"),
    ],
)
def test_wrong_contexts(arguments, message) -> None:
    bandit = disjoint(Log(None))
    with pytest.raises((InvalidValue, UnknownName), match=message):
        bandit.choose(**arguments)
    assert bandit.summary()["decisions"] == 0


def test_wrong_actions() -> None:
    bandit = Bandit([], features=ITEMS, model="shared", reward=UNIT_RANGE)
    assert str(bandit.policy) == "lin-ms:floor=0.1,reward_range=0..1"
    for arguments, message in (
        ({"actions": {}}, "a mapping from the name"),
        ({"actions": {"a": 3}}, "actions"),
        ({"actions": {"a": {"price": 1, "new": True}}, "context": {"price": 3}}, "names that no arm has"),
        ({"actions": {"a": {"price": 1}}, "context": {"device": "x"}}, "actions: a: new"),
        ({"actions": {str(n): {} for n in range(2000)}}, "at most 1000"),
        (
            {"actions": {"a": {"price": 1, "new": True}}, "context": {"device": "x"}, "eligible": ["a"]},
            "eligible",
        ),
    ):
        with pytest.raises((InvalidValue, UnknownName), match=message):
            bandit.choose(**arguments)
    with pytest.raises(InvalidValue, match="gets its arms with every decision"):
        bandit.add_arm("a", features={"price": 1, "new": True})


def test_a_missing_segment() -> None:
    bandit = segmented(Log(None))
    for context, message in (
        (None, "a value for each of 'device'"),
        ({}, "context: device: expected a value"),
        ({"device": 1.5}, "context: device"),
    ):
        with pytest.raises(InvalidValue, match=message):
            bandit.choose(context=context)


def test_defaults_fill_missing_values(log) -> None:
    bandit = disjoint(log, features=Features({"age": number(0, 100, default=50)}))
    made = bandit.choose(context={})
    assert made.context == "{}"
    assert np.array_equal(decode(made.encoded), [STEPS, 0])
    check(bandit, 1)
