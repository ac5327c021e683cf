"""Screening: verification with arrays has the same result as verification row by row."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, Reward, Tally
from maillard.decisions import DecisionLog, Verification, read_log, screening
from maillard.decisions import verification as module
from maillard.decisions.audit import Audit
from maillard.decisions.events import TallyUpdate
from maillard.decisions.log_arrays import LogArrays
from maillard.decisions.screening import NotScreened, Screening
from maillard.decisions.stores.contract import Row
from maillard.policies import tally_batches

ARMS = ("red", "blue", "green", "white")
SETS = [None, None, ARMS[:2], ARMS[1:3], ARMS[2:3]]  # eligible arms


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


def parts_of(log: DecisionLog, size: int) -> Iterator[LogArrays]:
    rows = list(log.rows())
    return (LogArrays.of_rows(rows[i : i + size], log.arms) for i in range(0, max(len(rows), 1), size))


def screened(log: DecisionLog, size: int = 10**9) -> tuple[Verification, Audit]:
    found, audit = Verification(experiment=log.experiment, source=log.source), Audit()
    module._screen_rows(log, parts_of(log, size), found, audit)
    return found, audit


def plain(log: DecisionLog) -> tuple[Verification, Audit]:
    found, audit = Verification(experiment=log.experiment, source=log.source), Audit()
    module._verify_rows(log, found, audit)
    return found, audit


def assert_same(log: DecisionLog, size: int = 10**9) -> Verification:
    """Check that both have the same result, to the last problem."""
    (found, audit), (expected, expected_audit) = screened(log, size), plain(log)
    assert found.largest_error <= 1e-12
    found.largest_error = expected.largest_error = 0.0  # may differ by rounding
    assert found == expected
    scores = [sorted(each.scores(), key=lambda score: score.name) for each in (audit, expected_audit)]
    for one, other in zip(*scores, strict=True):
        assert one.name == other.name
        np.testing.assert_allclose(dataclasses.astuple(one)[1:], dataclasses.astuple(other)[1:], rtol=1e-12)
    np.testing.assert_allclose(
        dataclasses.astuple(audit.weights())[1:], dataclasses.astuple(expected_audit.weights())[1:], rtol=1e-9
    )
    assert (audit.left_out, audit.incomplete, audit.impossible) == (
        expected_audit.left_out, expected_audit.incomplete, expected_audit.impossible,
    )  # fmt: skip
    return found


def changed(log: DecisionLog, change: Callable[[list[Row]], None], **keywords: Any) -> DecisionLog:
    rows = list(log.rows())
    change(rows)
    given = {"events": log.events, "number": log.number, "as_of": log.as_of, **keywords}
    return DecisionLog(lambda: iter(rows), experiment=log.experiment, source="changed", **given)


def bandit_after(
    spec: str = "ms+:booster=8",
    rule: Reward | None = None,
    *,
    rounds: int = 280,
    values: tuple[float, ...] = (0.0, 1.0),
    sticky: bool = False,
    busy: bool = True,
) -> Bandit:
    """A bandit with rewards, eligible sets, revisions, late rewards and administrative events."""
    rng, clock = random.Random(1), Clock()
    rule = rule or Reward(low=0, high=1, combine="max")
    bandit = Bandit(ARMS, spec, reward=rule, clock=clock, seed=3, sticky=sticky)
    open_decisions: list[str] = []
    snapshots: list[Any] = []
    for turn in range(rounds):
        eligible = rng.choice(SETS) if busy else None
        unit = f"user-{rng.randrange(40)}" if sticky else None
        made = bandit.choose(unit=unit, eligible=eligible, size=rng.choice((1, 1, 4)) if busy else 1)
        open_decisions += [each.id for each in made]
        for _ in range(rng.choice((0, 1, 2))):
            if open_decisions:
                chosen = open_decisions.pop(rng.randrange(len(open_decisions)))
                for event in range(rng.choice((1, 1, 1, 2))):
                    bandit.reward(chosen, rng.choice(values), event=str(event))
        clock.now += timedelta(seconds=2 * rng.random())
        if busy:
            administer(bandit, turn, snapshots)
    return bandit


@cache
def log_of(rule: str) -> DecisionLog:
    """The log of a bandit with this reward rule, which many tests read."""
    log = read_log(bandit_after(rule=RULES[rule]))
    rows = list(log.rows())
    log._rows = lambda: iter(rows)
    return log


def administer(bandit: Bandit, turn: int, snapshots: list[Any]) -> None:
    """Make the administrative changes of this turn."""
    if turn == 60:
        snapshots.append(bandit.snapshot())
    elif turn == 100:
        bandit.retire_arm("white")
    elif turn == 130:
        bandit.warm_start(Tally([1, 2, 3, 0], [1, 1, 0, 0]))
    elif turn == 160:
        bandit.reset()
        bandit.add_arm("black")
    elif turn == 200:
        bandit.pause()
        bandit.resume()
    elif turn == 230:
        bandit.change_policy("ms:sigma2=0.3,floor=0.05")
    elif turn == 260:
        bandit.restore(snapshots[0])


RULES = {
    "plain": Reward(low=0, high=1),
    "max": Reward(low=0, high=1, combine="max"),
    "sum": Reward(low=0, high=3, combine="sum"),
    "on close": Reward(low=0, high=1, window=20, default=0),
    "on arrival": Reward(low=0, high=1, window=20, default=0, learn="on_arrival"),
    "no default": Reward(low=0, high=1, window=20),
    "provisional": Reward(low=0, high=1, window=20, default=0, learn="provisional"),
}


@pytest.mark.parametrize("size", [10**9, 37, 1])
@pytest.mark.parametrize("rule", RULES)
def test_a_correct_log_of_every_rule(rule, size) -> None:
    log = log_of(rule)
    found = assert_same(log, size)
    assert found.problems == []
    assert found.recomputed == found.decisions > 300


@pytest.mark.parametrize("spec", ["kl-ms+:floor=0.1", "epsilon-greedy", "ucb1", "uniform", "boltzmann"])
def test_other_policies(spec) -> None:
    found = assert_same(read_log(bandit_after(spec)), 50)
    assert found.recomputed == found.decisions


@pytest.mark.parametrize("values", [(0.1, 0.7), (0.25, 1.0), (1e-300, 0.5, 1.0)])
def test_rewards_that_are_not_whole(values) -> None:
    assert assert_same(read_log(bandit_after(values=values)), 50).problems == []


def test_most_rows_are_certainly_correct() -> None:
    """Otherwise all rows would be checked one by one, and the comparisons would prove nothing."""
    log = read_log(bandit_after(busy=False))
    rows = [row for row in log.rows() if len(row.rewards) > 1]
    suspects = [each for part in parts_of(log, 10**9) for each in Screening(log).add(part)]
    assert [each.row for each in suspects] == rows


def test_small_blocks(monkeypatch) -> None:
    log = read_log(bandit_after())
    monkeypatch.setattr(screening, "_MAX_BLOCK_VALUES", 40)
    monkeypatch.setattr(tally_batches, "_MAX_BLOCK_VALUES", 12)
    assert assert_same(log, 100).problems == []


def test_repeated_choices_of_units() -> None:
    for size in (10**9, 20, 1):
        assert assert_same(read_log(bandit_after(sticky=True)), size).problems == []


def test_an_empty_log() -> None:
    assert assert_same(read_log(Bandit(ARMS, "ms", reward=Reward(low=0, high=1)))).decisions == 0


def decision_changes() -> dict[str, Callable[[Any], Any]]:
    def logs(row: Any, change: Callable[[float], float]) -> Any:
        made = tuple(change(each) for each in row.log_probabilities)
        return row._replace(log_probabilities=made, log_probability=made[row.eligible.index(row.arm)])

    return {
        "probabilities": lambda row: logs(row, lambda each: each - 1e-9),
        "probabilities at the tolerance": lambda row: logs(row, lambda each: each - 0.9e-12),
        "rounding": lambda row: logs(row, lambda each: each * (1 + 2e-16)),
        "unknown": lambda row: logs(row, lambda each: math.nan),
        "impossible": lambda row: logs(row, lambda each: -math.inf),
        "one probability": lambda row: row._replace(log_probability=row.log_probability - 1e-3),
        "fewer probabilities": lambda row: row._replace(log_probabilities=row.log_probabilities[:1]),
        "more probabilities": lambda row: row._replace(log_probabilities=(*row.log_probabilities, -1.0)),
        "epoch": lambda row: row._replace(epoch=row.epoch + 1),
        "epoch 0": lambda row: row._replace(epoch=0),
        "policy version": lambda row: row._replace(policy_version=7),
        "formula version": lambda row: row._replace(formula_version=7),
        "formula version and epoch": lambda row: row._replace(formula_version=7, epoch=9),
        "cold": lambda row: row._replace(cold=not row.cold),
        "arm": lambda row: row._replace(arm=row.eligible[row.eligible.index(row.arm) - 1]),
        "unknown arm": lambda row: row._replace(arm="purple"),
        "eligible": lambda row: row._replace(eligible=row.eligible[::-1]),
        "unknown eligible": lambda row: row._replace(eligible=("purple", *row.eligible[1:])),
        "fewer eligible": lambda row: row._replace(eligible=row.eligible[1:]),
        "repeat": lambda row: row._replace(origin="0" * 32),
        "time": lambda row: row._replace(time=row.time + 10**9),
    }


@pytest.mark.parametrize("size", [10**9, 40])
@pytest.mark.parametrize("what", decision_changes())
def test_the_same_problems_of_decisions(what, size) -> None:
    change = decision_changes()[what]

    def apply(rows: list[Row]) -> None:
        for place in (0, 7, 100, len(rows) - 1):
            rows[place] = rows[place]._replace(decision=change(rows[place].decision))

    for rule in ("max", "on close"):
        found = assert_same(changed(log_of(rule), apply), size)
        expected = what not in ("rounding", "probabilities at the tolerance", "formula version", "time")
        assert bool(found.problem_count) == expected or (what, rule) == ("time", "on close")


def update_changes() -> dict[str, Callable[[TallyUpdate], TallyUpdate]]:
    return {
        "arm": lambda each: each._replace(arm="red" if each.arm != "red" else "blue"),
        "value": lambda each: each._replace(value=0.5),
        "kind": lambda each: each._replace(kind="default" if each.kind == "reward" else "reward"),
        "time": lambda each: each._replace(time=0),
    }


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("what", update_changes())
def test_the_same_problems_of_updates(what, rule) -> None:
    change = update_changes()[what]

    def apply(rows: list[Row]) -> None:
        chosen = [place for place, row in enumerate(rows) if row.applied][20::40]
        for place in chosen:
            *rest, last = rows[place].applied
            rows[place] = rows[place]._replace(applied=(*rest, change(last)))

    log = changed(log_of(rule), apply)
    found = assert_same(log, 64)
    assert found.problem_count or (what == "time" and RULES[rule].learn != "on_close")


def reward_changes() -> dict[str, Callable[[Any], Any]]:
    return {
        "value": lambda each: each._replace(value=1.0 - each.value),
        "outside": lambda each: each._replace(value=17.0),
        "late": lambda each: each._replace(late=not each.late),
        "arrived": lambda each: each._replace(arrived=each.arrived + 10**10),
    }


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("what", [*reward_changes(), "removed", "copied"])
def test_the_same_problems_of_rewards(what, rule) -> None:
    def apply(rows: list[Row]) -> None:
        chosen = [place for place, row in enumerate(rows) if row.rewards][10::20]
        for place in chosen:
            *rest, last = rows[place].rewards
            new = {"removed": (), "copied": (last, last._replace(event="again"))}.get(what)
            new = (reward_changes()[what](last),) if new is None else new
            rows[place] = rows[place]._replace(rewards=(*rest, *new))

    assert_same(changed(log_of(rule), apply), 64)


@pytest.mark.parametrize("rule", ["plain", "provisional", "on close"])
def test_the_same_problems_of_rewards_that_were_not_applied(rule) -> None:
    """The events after the removed update get other numbers, so that the log can be replayed."""

    def apply(rows: list[Row]) -> None:
        last = max((update.number, place) for place, row in enumerate(rows) for update in row.applied)
        rows[last[1]] = rows[last[1]]._replace(applied=rows[last[1]].applied[:-1])

    log = read_log(bandit_after(rule=RULES[rule], busy=False))
    shorter = changed(log, apply, number=log.number - 1)
    assert_same(shorter)


def broken_logs() -> dict[str, Callable[[list[Row]], None]]:
    def swap(rows: list[Row]) -> None:
        rows[3], rows[200] = rows[200], rows[3]

    def edit(change: Callable[[TallyUpdate], TallyUpdate]) -> Callable[[list[Row]], None]:
        def apply(rows: list[Row]) -> None:
            place = next(i for i, row in enumerate(rows) if i > 50 and row.applied)
            first, *rest = rows[place].applied
            rows[place] = rows[place]._replace(applied=(change(first), *rest))

        return apply

    def remove(rows: list[Row]) -> None:
        del rows[next(i for i, row in enumerate(rows) if i > 50 and row.applied)]

    def move(number: int) -> Callable[[list[Row]], None]:
        def apply(rows: list[Row]) -> None:
            rows[-1] = rows[-1]._replace(decision=rows[-1].decision._replace(state=number))

        return apply

    return {
        "order": swap,
        "removed": remove,
        "twice": edit(lambda each: each._replace(number=each.number + 1)),
        "before the decision": edit(lambda each: each._replace(number=2)),
        "administrative": edit(lambda each: each._replace(number=1)),
        "too large": edit(lambda each: each._replace(number=10**6)),
        "unknown arm": edit(lambda each: each._replace(arm="purple")),
        "not finite": edit(lambda each: each._replace(value=math.inf)),
        "kind": edit(lambda each: each._replace(kind="gift")),
        "later state": move(10**6),
        "state 0": move(0),
        "earlier state": move(5),
    }


@pytest.mark.parametrize("what", broken_logs())
def test_a_log_that_cannot_be_replayed_is_not_screened(what) -> None:
    log = changed(log_of("max"), broken_logs()[what])
    with pytest.raises(NotScreened):
        screened(log)


def test_a_policy_without_a_closed_form_is_not_screened() -> None:
    with pytest.raises(NotScreened):
        screened(read_log(bandit_after("ts", rounds=20)))
