"""Tallies: exact sums in any order, merging, JSON, and refused input."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maillard import InvalidValue, Tally

REWARDS = st.lists(
    st.tuples(st.integers(0, 2), st.floats(-1e300, 1e300, allow_nan=False, allow_subnormal=True)), max_size=30
)


def tally_of(rewards: list[tuple[int, float]]) -> Tally:
    tally = Tally.empty(3)
    for arm, reward in rewards:
        tally.add(arm, reward)
    return tally


@given(REWARDS, st.randoms(use_true_random=False))
def test_sums_are_exact_so_order_does_not_matter(rewards, random) -> None:
    tally = tally_of(rewards)
    shuffled = list(rewards)
    random.shuffle(shuffled)
    assert tally_of(shuffled) == tally
    for arm in range(3):
        mine = [reward for which, reward in rewards if which == arm]
        assert tally.sums[arm] == float(sum(map(Fraction, mine)))
        assert tally.sums[arm] == math.fsum(mine)
        assert tally.pulls[arm] == len(mine)
    assert tally.round == 1 + len(rewards)


def test_a_running_float_sum_would_differ() -> None:
    """The negative control for the test above."""
    rewards = [0.1] * 10
    plain = 0.0
    for reward in rewards:
        plain += reward
    assert plain != math.fsum(rewards)
    assert tally_of([(0, reward) for reward in rewards]).sums[0] == math.fsum(rewards)


@given(REWARDS, st.integers(0, 30), st.integers(0, 30))
def test_merging_in_any_grouping_gives_the_whole(rewards, i, j) -> None:
    parts = rewards[:i], rewards[i : i + j], rewards[i + j :]
    a, b, c = map(tally_of, parts)
    assert (a + b) + c == a + (b + c) == c + b + a == tally_of(rewards)


@given(REWARDS)
def test_json_pickle_and_copies_round_trip(rewards) -> None:
    tally = tally_of(rewards)
    for twin in (
        Tally.from_json(tally.to_json()),
        pickle.loads(pickle.dumps(tally)),
        copy.copy(tally),
        copy.deepcopy(tally),
        tally.copy(),
    ):
        assert twin == tally
        twin.add(0, 0.1)
        assert twin.pulls[0] == tally.pulls[0] + 1
        assert twin.sums[0] == twin._sums[0]


def test_sums_that_cancel_are_exactly_zero() -> None:
    merged = tally_of([(0, 0.2), (0, 0.4)]) + tally_of([(0, 0.1), (0, 0.7), (0, 0.1)])
    assert merged == tally_of([(0, 0.2), (0, 0.4), (0, 0.1), (0, 0.7), (0, 0.1)])
    none = tally_of([(0, 0.1), (0, 0.2)]) + tally_of([(0, -0.1), (0, -0.2)])
    none.add(0, 1e-17)
    assert none.sums[0] == 1e-17


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=12), st.integers(1, 11))
def test_merging_decimals(tenths, i) -> None:
    """Uses rewards that floats cannot represent exactly and whose rounding errors often cancel."""
    rewards = [(0, tenth / 10) for tenth in tenths]
    assert tally_of(rewards[:i]) + tally_of(rewards[i:]) == tally_of(rewards)


def test_pulls_do_not_wrap() -> None:
    with pytest.raises(InvalidValue, match=r"pulls\[0\]: expected at most 2\*\*53 pulls per arm"):
        Tally([2**53], [1.0]) + Tally([2**53], [1.0])


def test_means_tie_exactly_where_a_running_mean_does_not() -> None:
    tally, running = Tally.empty(2), [0.0, 0.0]
    for arm, rewards in enumerate(([1, 0, 1, 0, 1, 1], [1, 1, 0])):
        for count, reward in enumerate(rewards, 1):
            tally.add(arm, reward)
            running[arm] += (reward - running[arm]) / count
    assert tally.means[0] == tally.means[1]
    assert running[0] != running[1]


def test_cold_arms_have_no_mean() -> None:
    assert np.isnan(Tally([0, 2], [0, 1]).means).tolist() == [True, False]


def test_arrays_are_read_only_and_live() -> None:
    tally = Tally.empty(2)
    pulls = tally.pulls
    with pytest.raises(ValueError, match="read-only"):
        tally.pulls[0] = 1
    tally.add(1, 2.5)
    assert pulls.tolist() == [0, 1]


def test_given_arrays_are_not_shared() -> None:
    pulls, sums = np.array([1, 2]), np.array([1.0, 2.0])
    tally = Tally(pulls, sums)
    tally.add(0, 1)
    assert pulls[0] == 1
    assert sums[0] == 1.0


@pytest.mark.parametrize(
    ("pulls", "sums", "message"),
    [
        ([-1, 2], [0, 0], r"pulls\[0\]: expected whole numbers from 0 to 2\*\*53, got -1"),
        ([1, 2.5], [0, 0], r"pulls\[1\]: expected whole numbers.*got 2.5"),
        ([1, math.nan], [0, 0], r"pulls\[1\]: .*got nan"),
        ([1, math.inf], [0, 0], r"pulls\[1\]: .*got inf"),
        ([1, 2**60], [0, 0], r"pulls\[1\]"),
        ([1, 2**70], [0, 0], r"pulls\[1\]"),
        ([1, "x"], [0, 0], "pulls: expected whole numbers"),
        ([True, False], [0, 0], "pulls: expected whole numbers"),
        ([], [], "pulls: expected a list with one number per arm"),
        ([[1]], [[1]], "pulls: expected a list with one number per arm"),
        (5, 5, "pulls: expected a list with one number per arm"),
        ([1, 1], [0, math.nan], r"sums\[1\]: expected finite numbers, got nan"),
        ([1, 1], [0, -math.inf], r"sums\[1\]: expected finite numbers, got -inf"),
        ([1, 1], [0], r"sums: expected 2 numbers, as many as pulls"),
        ([1, 0], [0, 3], r"sums\[1\]: expected 0, because the arm has no pulls, got 3"),
        ([1, 1], [0, 1j], "sums: expected finite numbers"),
        ([1, 1], [[0], [1, 2]], "sums: expected finite numbers"),
        ([1, 1], None, "sums: expected finite numbers"),
        ([1], np.array([np.longdouble("1e400")]), r"sums\[0\]: expected finite numbers"),
    ],
)
def test_bad_tallies_are_rejected(pulls, sums, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        Tally(pulls, sums)


@pytest.mark.parametrize(
    ("arm", "reward", "message"),
    [
        (2, 1, "arm: expected a whole number from 0 to 1, got 2"),
        (-1, 1, "got -1"),
        (0.0, 1, "arm: expected a whole number"),
        ("0", 1, "arm: expected a whole number"),
        (True, 1, "arm: expected a whole number"),
        (0, math.nan, "reward: expected a finite number, got nan"),
        (0, math.inf, "got inf"),
        (0, None, "reward: expected a finite number, got None"),
        (0, "much", "got 'much'"),
        (0, "1", "got '1'"),
        (0, 10**400, "reward: expected a finite number"),
    ],
)
def test_bad_rewards_change_nothing(arm, reward, message) -> None:
    tally = Tally([1, 1], [1, 1])
    with pytest.raises(InvalidValue, match=message):
        tally.add(arm, reward)
    assert tally == Tally([1, 1], [1, 1])


def test_a_sum_past_the_float_range_is_rejected_and_changes_nothing() -> None:
    tally = Tally([1], [1.7e308])
    with pytest.raises(InvalidValue, match="sum within the range of floats"):
        tally.add(0, 1.7e308)
    assert tally == Tally([1], [1.7e308])
    with pytest.raises(InvalidValue, match="sum within the range of floats"):
        tally + tally
    tally.add(0, -1.7e308)
    assert tally.sums[0] == 0


@pytest.mark.parametrize("arms", [0, -1, 1.5, "3", True, None])
def test_an_empty_tally_requires_a_number_of_arms(arms) -> None:
    with pytest.raises(InvalidValue, match="arms: expected a whole number >= 1"):
        Tally.empty(arms)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"pulls": [1]}',
        '{"pulls": 1, "sums": 1}',
        '{"pulls": [1], "sums": [[]]}',
        '{"pulls": [1], "sums": [[1, "x"]]}',
        '{"pulls": [1], "sums": [NaN]}',
        '{"pulls": [0], "sums": [[0, 1]]}',
        '{"pulls": [[1]], "sums": [[1]]}',
        None,
        "[" * 100_000,
    ],
)
def test_bad_json_is_rejected(text) -> None:
    with pytest.raises(InvalidValue):
        Tally.from_json(text)


def test_adding_incompatible_tallies() -> None:
    with pytest.raises(InvalidValue, match="a tally of 2 arms"):
        Tally.empty(2) + Tally.empty(3)
    with pytest.raises(TypeError):
        Tally.empty(2) + 1
    assert Tally.empty(2) != 1


def test_a_number_too_long_to_be_written_is_refused_with_a_message() -> None:
    with pytest.raises(InvalidValue, match="reward: expected a finite number, got an object of type int"):
        Tally.empty(1).add(0, 10**5000)
