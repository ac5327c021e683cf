"""Bandits on every type of store: choices, rewards, changes, several processes, invalid input."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from maillard.decisions import Bandit, Decision, Reward, ledger
from maillard.decisions.events import TallyUpdate
from maillard.decisions.state import replay
from maillard.decisions.stores import open_store
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.errors import Conflict, InvalidValue, MaillardError, Paused, Stale, Unavailable, UnknownName
from maillard.tally import Tally
from tests.decisions import choosers
from tests.stores import (
    EXPERIMENT,
    KINDS,
    UNIT_RANGE,
    Log,
    decision,
    events,
    new_id,
    rewards_of,
    write,
)

# Choices and rewards.


def test_a_choice_is_logged_with_the_probabilities_it_was_sampled_from(log: Log) -> None:
    bandit = log.bandit(["red", "blue", "green"])
    for n in range(20):
        made = bandit.choose(unit=f"u{n}", eligible=["blue", "red"] if n % 2 else None)
        assert bandit.decision(made.id) == made
        assert made.log_probability == dict(zip(made.eligible, made.log_probabilities, strict=True))[made.arm]
        assert made.state == bandit.state.number
        assert made.time == log.clock.now
        expected = bandit.state.choice_distribution(frozenset(["red", "blue"]) if n % 2 else None)
        assert (made.eligible, made.log_probabilities) == (expected.arms, expected.log_probabilities)
        assert bandit.reward(made.id, n / 20) == "applied"
    assert [row.unit for row, *_ in bandit._store.rows(EXPERIMENT)] == [f"u{n}" for n in range(20)]
    assert bandit.tally.round == 21


def test_a_summary_says_that_visitors_return(log: Log) -> None:
    bandit = log.bandit()
    for n in range(40):
        bandit.reward(bandit.choose(unit=f"user-{n}").id, 0.5)
    bandit.reward(bandit.choose().id, 0.5)
    for _ in range(2):  # 41 decisions have squares of at most 45, 1.1 times as many
        bandit.reward(bandit.choose(unit="user-1").id, 0.5)
    summary = bandit.summary()
    assert (summary["units"], summary["decisions"], summary["refusal"]) == (40, 43, None)
    for n in range(10):
        bandit.reward(bandit.choose(unit=f"user-{n}").id, 0.5)
    summary = bandit.summary()
    assert summary["refusal"].startswith("Visitors return (53 decisions, 40 units)")
    bandit.reset()
    assert bandit.summary()["refusal"] is None
    assert bandit.summary()["units"] == 0


def test_a_batch_is_sampled_from_one_distribution(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(size=1200, idempotency_key="k")
    assert len({row.id for row in made}) == 1200
    assert {row.state for row in made} == {1}
    assert [row.position for row in made] == list(range(1200))
    assert bandit.choose(size=1200, idempotency_key="k") == made
    assert bandit.choose(size=0) == []
    assert sorted(row.id for row, *_ in log.open().rows(EXPERIMENT)) == sorted(row.id for row in made)


def test_a_reward_event_is_applied_once(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose()
    assert bandit.reward(made.id.upper(), 0.25) == "applied"
    assert bandit.reward(made.id, 0.25) == "duplicate"
    before = log.contents()
    with pytest.raises(Conflict, match=r"0\.25.*0\.5"):
        bandit.reward(made.id, 0.5)
    assert log.contents() == before
    assert bandit.reward(made.id, 0.5, event="another") == "unchanged"  # combine="first" is the default
    assert bandit.summary()["arms"][made.arm]["sum"] == 0.25
    assert bandit.tally.round == 2


@pytest.mark.parametrize(
    ("combine", "total"), [("first", 0.25), ("last", 0.125), ("sum", 0.875), ("max", 0.5)]
)
def test_the_combined_reward_does_not_depend_on_the_order_of_events(
    log: Log, combine: str, total: float
) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, combine=combine))
    rows = [(100.0, "b", 0.25), (100.0, "c", 0.5), (datetime.fromtimestamp(200, UTC), "a", 0.125)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        made = bandit.choose()
        outcomes = [bandit.reward(made.id, rows[n][2], at=rows[n][0], event=rows[n][1]) for n in order]
        assert outcomes[0] == "applied"
        assert set(outcomes[1:]) <= {"revised", "unchanged"}
        updates = [event for event in events(bandit._store) if isinstance(event, TallyUpdate)]
        last = [event for event in updates if event.decision == made.id][-1]
        assert last.value == total
    assert bandit.tally.sums.sum() == 3 * total
    assert bandit.tally == replay(events(bandit._store)).tally


def test_a_reward_before_its_decision_is_parked_and_applied_when_the_decision_arrives(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60))
    row = decision(time=log.clock.now)
    assert bandit.reward(row.id, 0.5) == "parked"
    assert bandit.reward(row.id, 0.5) == "duplicate"
    with pytest.raises(Conflict):
        bandit.reward(row.id, 0.25)
    assert bandit.summary()["parked"] == 1
    arrived = log.clock.now
    log.clock.forward(120)  # the reward arrived within the window, the decision is appended after it
    with write(bandit._store) as transaction:
        assert ledger.append(transaction, bandit.state.reward, [row, row]) == 1
        assert ledger.append(transaction, bandit.state.reward, [row]) == 0
    assert bandit.summary()["parked"] == 0
    assert bandit.summary()["arms"]["red"]["sum"] == 0.5
    ((_, (reward,), (event,)),) = bandit._store.rows(EXPERIMENT)
    assert (reward.arrived, reward.late, event.value) == (arrived, False, 0.5)
    assert bandit.reward(row.id, 0.5) == "duplicate"


def test_the_number_of_parked_rewards_is_limited(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_PARKED", 2)
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60))
    for _ in range(2):
        bandit.reward(new_id(), 0.5)
    with pytest.raises(MaillardError, match="rewards already wait"):
        bandit.reward(new_id(), 0.5)
    assert bandit.rewards([{"decision": new_id(), "value": 0.5}] * 2) == ["refused"] * 2
    log.clock.forward(61)  # the two parked rewards have expired
    now = f"{log.clock.now // 1000:012x}"
    late, timely = new_id(), f"{now[:8]}-{now[8:]}{new_id()[13:]}"
    assert bandit.reward(timely, 0.5) == "parked"
    with pytest.raises(InvalidValue, match="window is still open"):
        bandit.reward(late, 0.5)
    assert bandit.summary()["parked"] == 1


def test_a_late_reward_is_logged_but_not_applied(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60))
    made, other = bandit.choose(), bandit.choose()
    log.clock.forward(59.999999)
    assert bandit.reward(made.id, 0.5) == "applied"
    log.clock.forward(0.000001)
    # A reward is late by its time of arrival, not by `at`.
    assert bandit.reward(other.id, 0.5, at=other.at) == "late"
    assert bandit.reward(other.id, 0.5) == "duplicate"
    assert bandit.tally.round == 2
    assert bandit.summary()["late"] == 1
    assert [each.late for rows in rewards_of(log.open()).values() for each in rows] == [False, True]


def test_decisions_without_a_reward_get_the_default_when_the_window_closes(log: Log) -> None:
    bandit = log.bandit(reward=Reward(low=0, high=1, window=60, default=0.125, learn="on_arrival"))
    made = [bandit.choose() for _ in range(3)]
    assert bandit.reward(made[0].id, 1) == "applied"
    log.clock.forward(60)
    bandit.settle()
    bandit.settle()
    assert bandit.tally.round == 4
    assert bandit.tally.sums.sum() == 1.25
    assert [event.kind for event in events(bandit._store)] == ["start", "reward", "default", "default"]
    assert bandit.reward(made[1].id, 1) == "late"
    log.clock.forward(-30)  # a closed window stays closed if the clock is set back
    assert bandit.reward(made[2].id, 1) == "late"
    assert bandit.reward(made[0].id, 0.5, event="more") == "unchanged"


def test_by_default_rewards_are_applied_when_the_window_closes(log: Log) -> None:
    rule = Reward(low=0, high=1, window=60, default=0, combine="sum")
    bandit = log.bandit(reward=rule)
    made = [bandit.choose() for _ in range(2)]
    assert bandit.reward(made[0].id, 0.5, event="a") == "waiting"
    assert bandit.reward(made[0].id, 0.25, event="b") == "waiting"
    assert bandit.tally.round == 1
    log.clock.forward(60)
    bandit.settle()
    assert bandit.choose().state == 3
    assert bandit.tally.sums.sum() == 0.75
    assert bandit.reward(made[0].id, 0.125, event="c") == "late"
    log.clock.forward(-30)
    assert bandit.reward(made[0].id, 0.125, event="d") == "late"


def test_several_rewards_in_one_call(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(size=10)
    rows = [{"decision": row.id, "value": 0.5} for row in made]
    assert bandit.rewards([*rows, rows[0], rows[1] | {"value": 1}]) == ["applied"] * 10 + [
        "duplicate",
        "conflict",
    ]
    before = log.contents()
    with pytest.raises(InvalidValue, match=r"rows\[1\].*value"):
        bandit.rewards([rows[0], rows[1] | {"value": math.nan}])
    assert log.contents() == before


def test_a_sticky_unit_keeps_its_arm_and_its_probability(log: Log) -> None:
    bandit = log.bandit(sticky=True)
    first = bandit.choose(unit="u")
    bandit.reward(first.id, 1)
    again = [bandit.choose(unit="u") for _ in range(10)]
    assert {(row.arm, row.log_probability, row.state, row.origin) for row in again} == {
        (first.arm, first.log_probability, first.state, first.id)
    }
    assert len({row.id for row in [first, *again]}) == 11
    other = next(arm for arm in ("red", "blue") if arm != first.arm)
    moved = bandit.choose(unit="u", eligible=[other])
    assert (moved.arm, moved.origin) == (other, None)
    assert bandit.choose(unit="u").origin == moved.id
    bandit.retire_arm(other)
    assert bandit.choose(unit="u").arm == first.arm
    bandit.reset()
    assert bandit.choose(unit="u").origin is None


def test_a_used_idempotency_key_returns_the_first_decision(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(unit="u", idempotency_key="k")
    bandit.reward(made.id, 1)
    assert bandit.choose(unit="u", idempotency_key="k") == made
    with pytest.raises(Conflict, match="a unit other than"):
        bandit.choose(unit="v", idempotency_key="k")
    with pytest.raises(Conflict, match="1 decisions, not 2"):
        bandit.choose(unit="u", idempotency_key="k", size=2)
    bandit.pause()
    assert bandit.choose(unit="u", idempotency_key="k") == made
    with pytest.raises(Paused):
        bandit.choose(unit="u", idempotency_key="l")
    assert len(list(log.open().rows(EXPERIMENT))) == 1


def test_threads_with_the_same_idempotency_key_get_the_same_decision(log: Log) -> None:
    bandits = [log.bandit(["red", "blue"]), log.bandit(["red", "blue"])]
    with ThreadPoolExecutor(8) as pool:
        for n in range(10):
            together = threading.Barrier(8)

            def choose(thread: int, n: int = n, together: threading.Barrier = together) -> Decision:
                together.wait()
                return bandits[thread % 2].choose(unit="u", idempotency_key=f"k{n}")

            assert len(set(pool.map(choose, range(8)))) == 1
    assert len(list(log.open().rows(EXPERIMENT))) == 10


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_processes_with_the_same_idempotency_key_get_the_same_decision(
    kind: str, sticky: bool, tmp_path: Path, request
) -> None:
    where = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=where, sticky=sticky).close()
    context = get_context("forkserver")
    together = context.Barrier(2)
    processes = []
    for step in (1, -1):  # the processes use the keys in opposite orders, each in several threads
        receiving, sending = context.Pipe(duplex=False)
        keys = [f"k{n}" for n in range(60)][::step]
        process = context.Process(target=choosers.race, args=(where, keys, together, sending))
        process.start()
        sending.close()
        processes.append((process, receiving))
    ids_by_key = []
    for process, receiving in processes:
        ids_by_key.append(receiving.recv())
        process.join()
        assert process.exitcode == 0
    assert ids_by_key[0] == ids_by_key[1]
    store = open_store(where)
    assert sorted(row.id for row, *_ in store.rows("default")) == sorted(ids_by_key[0].values())
    store.close()


# Administrative changes.


def test_arms_are_added_and_retired(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose(eligible=["red"])
    bandit.retire_arm("red")
    assert {bandit.choose().arm for _ in range(20)} == {"blue"}
    bandit.reward(made.id, 0.5)  # rewards of decisions made before the retirement still count
    bandit.add_arm("green")
    assert bandit.arms == ["blue", "green"]
    assert bandit.choose(eligible=["green"]).log_probability == 0.0
    bandit.add_arm("red")
    assert bandit.arms == ["red", "blue", "green"]
    assert bandit.summary()["arms"]["red"]["sum"] == 0.5
    for wrong in (
        lambda: bandit.add_arm("red"),
        lambda: bandit.retire_arm("purple"),
        lambda: bandit.add_arm(""),
    ):
        with pytest.raises(MaillardError):
            wrong()
    bandit.retire_arm("red")
    bandit.retire_arm("blue")
    with pytest.raises(InvalidValue, match="the only active one"):
        bandit.retire_arm("green")
    assert bandit.arms == ["green"]


def test_a_policy_change_is_logged_with_its_version(log: Log) -> None:
    bandit = log.bandit()
    assert bandit.choose().policy_version == 1
    bandit.change_policy("ms+:booster=8")
    made = bandit.choose()
    assert (made.policy_version, made.state) == (2, 2)
    before = log.contents()
    for wrong in ("ms+:booster=-1", "no such policy", 7):
        with pytest.raises(MaillardError):
            bandit.change_policy(wrong)
    assert log.contents() == before


def test_a_paused_experiment_accepts_rewards_but_makes_no_choices(log: Log) -> None:
    bandit, other = log.bandit(), log.bandit(staleness=3600)
    made = bandit.choose()
    bandit.pause()
    for each in (bandit, other):
        with pytest.raises(Paused):
            each.choose()
    assert bandit.reward(made.id, 1) == "applied"
    bandit.resume()
    assert bandit.choose().state == 4
    assert other.choose().state == 4


def test_an_archived_experiment_makes_no_choices_and_no_changes(log: Log) -> None:
    bandit = log.bandit()
    made = bandit.choose()
    bandit.archive()
    assert bandit.summary()["archived"]
    with pytest.raises(Paused, match=r"archived; resume it first \(bandit\.resume\(\)\)"):
        bandit.choose()
    for change in (bandit.pause, bandit.reset, lambda: bandit.add_arm("green")):
        with pytest.raises(Paused, match=r"archived; resume it first \(bandit\.resume\(\)\)"):
            change()
    assert bandit.reward(made.id, 1) == "applied"
    again = log.bandit()
    assert again.state.archived
    again.resume()
    assert again.choose().arm in ("red", "blue")
    assert not bandit.summary()["paused"]


def test_a_change_is_refused_if_another_change_came_first(log: Log) -> None:
    bandit, other = log.bandit(), log.bandit()
    seen = bandit.state.administrative
    bandit.reward(bandit.choose().id, 1)  # a reward is not an administrative change
    bandit.change_policy("ms+", expected=seen)
    for method in ("pause", "resume", "archive", "reset"):
        with pytest.raises(Stale, match=f"not {seen}"):
            getattr(other, method)(expected=seen)
    with pytest.raises(Stale):
        other.add_arm("green", expected=seen)
    with pytest.raises(Stale):
        other.retire_arm("red", expected=seen)
    with pytest.raises(Stale):
        other.change_policy("ms", expected=seen)
    assert (other.session.refresh().policy_version, other.arms) == (2, ["red", "blue"])
    other.pause(expected=other.state.administrative)


def test_a_reset_starts_an_epoch(log: Log) -> None:
    bandit = log.bandit()
    old = bandit.choose()
    bandit.reward(bandit.choose().id, 1)
    bandit.reset()
    assert bandit.tally == Tally.empty(2)
    assert bandit.choose().epoch == 2
    assert bandit.reward(old.id, 1) == "old epoch"
    assert bandit.tally == Tally.empty(2)


def test_a_snapshot_is_restored_in_the_same_and_in_another_experiment(log: Log) -> None:
    bandit = log.bandit()
    for value in (0.1, 0.2, 0.7):
        bandit.reward(bandit.choose().id, value)
    bandit.retire_arm("blue")
    snapshot, tally = bandit.snapshot(), bandit.tally
    bandit.add_arm("green")
    bandit.change_policy("ms+:booster=8")
    bandit.restore(snapshot)
    assert (bandit.arms, str(bandit.policy), bandit.state.epoch) == (
        ["red"],
        str(replay(events(bandit._store)).policy),
        2,
    )
    assert bandit.tally == tally
    other = log.bandit(["x"], experiment="other")
    other.restore(snapshot)
    assert other.tally == tally
    before = log.contents()
    for wrong in (
        None,
        {},
        snapshot | {"arms": ["red"]},
        snapshot | {"tally": {"pulls": [1, 0], "sums": [7.0, 0.0]}},
    ):
        with pytest.raises(MaillardError):
            bandit.restore(wrong)
    assert log.contents() == before


def test_a_warm_start_adds_pulls_and_sums_to_the_tally(log: Log) -> None:
    bandit = log.bandit()
    bandit.warm_start({"blue": (10, 2.5)})
    bandit.warm_start(Tally([1, 0], [0.5, 0]))
    assert bandit.tally == Tally([1, 10], [0.5, 2.5])
    before = log.contents()
    for wrong in ({"purple": (1, 1)}, {"red": (1, 2)}, {"red": 7}, Tally([1], [1]), {"red": (-1, 0)}):
        with pytest.raises(MaillardError):
            bandit.warm_start(wrong)
    assert log.contents() == before


def test_a_reopened_log_has_the_same_state(log: Log) -> None:
    bandit = log.bandit(["red", "blue"], "ms+:booster=8")
    for value in (0.1, 0.2, 0.3):
        bandit.reward(bandit.choose().id, value)
    bandit.add_arm("green")
    tally = bandit.tally
    bandit.close()
    for arms, policy in ((None, None), (["red", "blue"], "ms+:booster=8"), (["red", "blue", "green"], None)):
        again = log.bandit(arms, policy, reward=UNIT_RANGE if arms else None)
        assert again.tally == tally
        assert again.arms == ["red", "blue", "green"]
        assert again.choose().state == 5
        again.close()


@pytest.mark.parametrize(
    "given",
    [
        {"arms": ["red"]},
        {"policy": "uniform"},
        {"policy": "ms+:booster=8"},
        {"reward": Reward(low=0, high=2)},
        {"sticky": True},
    ],
    ids=str,
)
def test_reopening_a_log_with_another_configuration_is_refused(log: Log, given: dict[str, Any]) -> None:
    log.bandit()
    before = log.contents()
    with pytest.raises(InvalidValue, match="to change it"):
        log.bandit(**given)
    assert log.contents() == before


def test_a_new_experiment_requires_arms_and_a_known_policy(log: Log) -> None:
    store = log.open()
    before = log.contents()
    for arms, policy in (
        (None, "ms"),
        ([], "ms"),
        (["red", "red"], "ms"),
        (["red"], "thing"),
    ):
        with pytest.raises(MaillardError):
            log.bandit(arms, policy, log=store)
    assert store.experiments() == []
    assert log.contents() == before


def test_an_erased_unit_leaves_no_trace(log: Log, tmp_path: Path) -> None:
    bandit = log.bandit(sticky=True)
    name, key = "erica-musterfrau@example.org", "key-of-erica-musterfrau"
    made = [
        bandit.choose(unit=name, idempotency_key=key),
        bandit.choose(unit=name),
        bandit.choose(unit="other"),
    ]
    for row in made:
        bandit.reward(row.id, 1)
    tally = bandit.tally
    assert bandit.erase_unit(name) == 2
    assert bandit.erase_unit(name) == 0
    assert bandit.tally == tally
    units = [row.unit for row, *_ in bandit._store.rows(EXPERIMENT)]
    assert units[0] == units[1] != name
    assert units[2] == "other"
    assert "erica" not in repr(log.contents())
    for file in tmp_path.iterdir():
        assert b"erica" not in file.read_bytes()
    assert bandit.choose(unit=name, idempotency_key=key).origin is None  # the unit counts as new


def test_an_erasure_that_a_reader_blocks_is_an_error(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "log.db", timeout=0.1)
    bandit = Bandit(["red", "blue"], "ms", reward=UNIT_RANGE, log=store, experiment=EXPERIMENT)
    bandit.choose(unit="erica")
    with store.reading(EXPERIMENT) as transaction:
        transaction.events(0)
        with pytest.raises(Unavailable, match="erase again"):
            bandit.erase_unit("erica")
    assert bandit.erase_unit("erica") == 0
    for file in tmp_path.iterdir():
        assert b"erica" not in file.read_bytes()
    bandit.close()


# Several bandits on one log. Each samples from the state that it read last.


def test_a_stale_bandit_logs_the_state_it_sampled_from(log: Log) -> None:
    first, second = log.bandit(), log.bandit(staleness=3600)
    made = first.choose()
    first.reward(made.id, 1)
    assert first.choose().state == 2
    stale = second.choose()
    assert (stale.state, stale.probabilities) == (1, {"red": 0.5, "blue": 0.5})
    # Unless the store allows concurrent decisions, writing a choice also reads the new events.
    assert second.choose().state == (1 if log.open().concurrent_decisions else 2)
    first.retire_arm("red")
    # The first sample is from the state before the change but would be logged after it: it is repeated.
    chosen = second.choose()
    assert (chosen.state, chosen.arm, chosen.eligible) == (3, "blue", ("blue",))


def test_a_retired_arm_is_never_chosen_after_its_retirement(log: Log) -> None:
    bandits = [log.bandit(staleness=3600) for _ in range(3)]
    retired = threading.Event()
    chosen: list[Decision] = []

    def choose(bandit: Bandit) -> None:
        end = time.monotonic() + 60
        while len(chosen) < 60 and time.monotonic() < end:
            done = retired.is_set()
            made = bandit.choose()
            if done:
                chosen.append(made)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(choose, bandit) for bandit in bandits[1:]]
        bandits[0].retire_arm("red")
        retired.set()
        for each in running:
            each.result()
    assert chosen
    assert {(row.arm, row.eligible) for row in chosen} == {("blue", ("blue",))}


# Invalid input is refused and writes nothing.


BAD: dict[str, tuple[Callable[[Bandit, Decision], object], type[MaillardError]]] = {
    "nan": (lambda b, d: b.reward(d.id, math.nan), InvalidValue),
    "infinite": (lambda b, d: b.reward(d.id, math.inf), InvalidValue),
    "above the range": (lambda b, d: b.reward(d.id, 1.0000001), InvalidValue),
    "below the range": (lambda b, d: b.reward(d.id, -1e-300), InvalidValue),
    "not a number": (lambda b, d: b.reward(d.id, "1"), InvalidValue),
    "none": (lambda b, d: b.reward(d.id, None), InvalidValue),
    "too large for a float": (lambda b, d: b.reward(d.id, 10**400), InvalidValue),
    "malformed id": (lambda b, d: b.reward("17", 1), InvalidValue),
    "id of another version": (lambda b, d: b.reward("8b9f4a3e-7a1f-4c55-9d65-0d2f7d1c2b3a", 1), InvalidValue),
    "no id": (lambda b, d: b.reward(None, 1), InvalidValue),
    "event with NUL": (lambda b, d: b.reward(d.id, 1, event="a\0b"), InvalidValue),
    "empty event": (lambda b, d: b.reward(d.id, 1, event=""), InvalidValue),
    "naive time": (lambda b, d: b.reward(d.id, 1, at=datetime(2020, 1, 1)), InvalidValue),
    "time before 1970": (lambda b, d: b.reward(d.id, 1, at=-1), InvalidValue),
    "nan time": (lambda b, d: b.reward(d.id, 1, at=math.nan), InvalidValue),
    "unknown arm": (lambda b, d: b.choose(eligible=["red", "purple"]), UnknownName),
    "retired arm": (lambda b, d: b.choose(eligible=["gone"]), InvalidValue),
    "no arm": (lambda b, d: b.choose(eligible=[]), InvalidValue),
    "arms as a string": (lambda b, d: b.choose(eligible="red"), InvalidValue),
    "unit with NUL": (lambda b, d: b.choose(unit="a\0b"), InvalidValue),
    "unit with a lone surrogate": (lambda b, d: b.choose(unit="\ud800"), InvalidValue),
    "unit that is too long": (lambda b, d: b.choose(unit="x" * 513), InvalidValue),
    "unit that is a number": (lambda b, d: b.choose(unit=7), InvalidValue),
    "key with NUL": (lambda b, d: b.choose(idempotency_key="\0"), InvalidValue),
    "empty key": (lambda b, d: b.choose(idempotency_key=""), InvalidValue),
    "negative size": (lambda b, d: b.choose(size=-1), InvalidValue),
    "huge size": (lambda b, d: b.choose(size=10**12), InvalidValue),
    "size that is not an integer": (lambda b, d: b.choose(size=1.5), InvalidValue),
    "arm with NUL": (lambda b, d: b.add_arm("a\0"), InvalidValue),
    "arm with a lone surrogate": (lambda b, d: b.add_arm("\udfff"), InvalidValue),
    "erasing an empty unit": (lambda b, d: b.erase_unit(""), InvalidValue),
    "unknown decision": (lambda b, d: b.decision(new_id()), InvalidValue),
}


def test_bad_input_is_an_error_and_writes_nothing(log: Log) -> None:
    bandit = log.bandit(["red", "blue", "gone"])
    bandit.retire_arm("gone")
    made = bandit.choose()
    before, state = log.contents(), bandit.state
    for name, (wrong, error) in BAD.items():
        with pytest.raises(error):
            wrong(bandit, made)
        assert bandit.state is state, name
    assert log.contents() == before
    with pytest.raises(InvalidValue):
        log.bandit(experiment="\0")
    bandit.close()
    for call in (bandit.choose, bandit.summary, lambda: bandit.reward(made.id, 1)):
        with pytest.raises(MaillardError, match="closed"):
            call()


def test_names_of_maximal_length_are_accepted(log: Log) -> None:
    longest = "\U0001f600" * 512
    bandit = log.bandit([longest, "x"], sticky=True)
    made = bandit.choose(unit=longest, idempotency_key=longest, eligible=[longest])
    assert bandit.reward(made.id, 1, event=longest) == "applied"
    assert bandit.reward(new_id(), 1, event=longest) == "parked"
    assert bandit.choose(unit=longest, idempotency_key=longest, eligible=[longest]) == made
