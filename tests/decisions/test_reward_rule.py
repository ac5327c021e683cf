"""The reward rule: how the events of a decision are combined, and which rules and rewards are valid."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta

import pytest

from maillard import InvalidValue, Reward
from maillard.decisions.decision import RewardEvent


def rows(*events: tuple[str, int, float], late: tuple[str, ...] = ()) -> list[RewardEvent]:
    return [
        RewardEvent(decision="d", event=event, value=value, at=at, arrived=0, late=event in late)
        for event, at, value in events
    ]


@pytest.mark.parametrize(
    ("combine", "total"), [("first", 0.3), ("last", 0.2), ("sum", 0.3 + 0.7 + 0.2), ("max", 0.7)]
)
def test_events_are_combined_by_their_time_and_not_by_their_order(combine, total) -> None:
    made = rows(("b", 5, 0.3), ("c", 7, 0.7), ("a", 9, 0.2))
    rule = Reward(combine=combine)
    assert {rule.total(order) for order in itertools.permutations(made)} == {total}


def test_events_of_the_same_time_are_ordered_by_name() -> None:
    made = rows(("b", 5, 1.0), ("a", 5, 2.0))
    assert Reward(combine="first").total(made) == 2.0
    assert Reward(combine="last").total(made) == 1.0


def test_late_events_do_not_count() -> None:
    made = rows(("a", 1, 1.0), ("b", 2, 5.0), late=("b",))
    assert Reward(combine="max").total(made) == 1.0
    assert Reward().total(rows(("a", 1, 1.0), late=("a",))) is None


def test_a_sum_is_exact_and_clipped_to_the_range() -> None:
    made = rows(*((str(n), n, 0.1) for n in range(10)))
    assert Reward(combine="sum").total(made) == 1.0 != sum([0.1] * 10)
    assert Reward(low=0, high=0.5, combine="sum").total(made) == 0.5


@pytest.mark.parametrize(
    "bad",
    [
        {"low": 1, "high": 0},
        {"low": math.nan},
        {"high": math.inf},
        {"low": "0"},
        {"window": 0},
        {"window": -1},
        {"window": 1e12},
        {"default": 0},
        {"learn": "on_close"},
        {"learn": "provisional"},
        {"learn": "provisional", "window": 1},
        {"low": 0, "high": 1, "window": 1, "default": 2},
        {"combine": "mean"},
        {"low": 1, "high": 2, "combine": "sum"},
        {"learn": "at once", "window": 1},
    ],
)
def test_invalid_rules_are_refused(bad) -> None:
    with pytest.raises(InvalidValue):
        Reward(**bad)


def test_a_window_may_be_a_timedelta() -> None:
    assert Reward(window=timedelta(hours=1)) == Reward(window=3600)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.1, "1", None, [1], 10**400])
def test_invalid_rewards_are_refused(bad) -> None:
    with pytest.raises(InvalidValue, match="value"):
        Reward(low=0, high=1).check(bad)


def test_minus_zero_is_zero() -> None:
    assert math.copysign(1, Reward().check(-0.0)) == 1
