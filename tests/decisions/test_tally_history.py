"""Tallies after many updates at once agree with a `Tally` that gets one update after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maillard import InvalidValue, Tally
from maillard.decisions.tally_history import TallyHistory, UpdateArrays

NAN = np.nan
REWARDS = {
    "clicks": [0.0, 1.0],
    "quarters": [0.25, -1.5, 3.0, 1024.0],
    "decimal": [0.1, 0.2, 0.3, 19.99],
    "large": [2.0**60, -(2.0**60), 3 * 2.0**58],
    "tiny": [5e-324, 1e-320, 2.0**-1060],
    "mixed": [1e16, 1.0, -1e16, 2.0**-40],
    "bound": [2.0**52, 1.0, -(2.0**52)],
}
EXACT = ("clicks", "quarters", "large", "tiny")


def updates(rewards: list[float], arms: int, size: int, seed: int) -> UpdateArrays:
    """Rewards of random arms; a third are revisions of an earlier reward of the arm."""
    rng = np.random.default_rng(seed)
    arm, value = rng.integers(0, arms, size), rng.choice(rewards, size)
    previous = np.full(size, NAN)
    held: dict[int, list[float]] = {each: [] for each in range(arms)}
    for i in range(size):
        earlier = held[arm[i]]
        if earlier and rng.random() < 1 / 3:
            previous[i] = earlier.pop(rng.integers(len(earlier)))
        earlier.append(value[i])
    return UpdateArrays(arm, value, previous)


def one_by_one(start: Tally, given: UpdateArrays, counts: Any) -> tuple[Any, Any, Tally]:
    tally, states = start.copy(), [start.copy()]
    for arm, value, previous in zip(*(each.tolist() for each in given), strict=True):
        tally.add(arm, value) if np.isnan(previous) else tally.revise(arm, previous, value)
        states.append(tally.copy())
    at = [states[count] for count in counts]
    return np.array([each.pulls for each in at]), np.array([each.sums for each in at]), tally


@pytest.mark.parametrize("start", [Tally.empty(3), Tally([4, 0, 2], [2.25, 0, -1])])
@pytest.mark.parametrize("kind", REWARDS)
def test_pulls_and_sums_are_those_of_a_tally(kind, start) -> None:
    rng = np.random.default_rng(1)
    history, plain = TallyHistory(start), start
    for part in range(4):
        given = updates(REWARDS[kind], 3, 200, seed=part)
        counts = np.sort(rng.integers(0, 201, 50))
        pulls, sums = history.advance(given, counts)
        expected_pulls, expected_sums, plain = one_by_one(plain, given, counts)
        np.testing.assert_array_equal(pulls, expected_pulls)
        np.testing.assert_array_equal(sums, expected_sums)
        assert history.tally == plain
    assert start.pulls.sum() in (0, 6)  # unchanged


@pytest.mark.parametrize("kind", REWARDS)
def test_which_rewards_are_added_at_once(kind, monkeypatch) -> None:
    slow: list[Any] = []
    monkeypatch.setattr(TallyHistory, "_add_one_by_one", lambda *arguments: slow.append(arguments))
    TallyHistory(Tally.empty(2)).advance(updates(REWARDS[kind], 2, 40, seed=0), np.array([40]))
    assert bool(slow) == (kind not in EXACT)


def test_a_sum_at_the_limit_of_exact_integers() -> None:
    """2^53 + 1 is not a float. A cumulative sum of floats would lose both ones."""
    given = UpdateArrays(np.zeros(3, np.int64), np.array([2.0**53, 1.0, 1.0]), np.full(3, NAN))
    _, sums = TallyHistory(Tally.empty(1)).advance(given, np.arange(4))
    assert sums[:, 0].tolist() == [0.0, 2.0**53, 2.0**53, 2.0**53 + 2]


def test_no_updates() -> None:
    nothing = UpdateArrays(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    pulls, sums = TallyHistory(Tally([1, 2], [1, 2])).advance(nothing, np.array([0, 0]))
    assert (pulls.tolist(), sums.tolist()) == ([[1, 2], [1, 2]], [[1.0, 2.0], [1.0, 2.0]])


@pytest.mark.parametrize(
    ("arm", "value", "previous"),
    [
        ([0, 1], [1.0, 1.0], [NAN, 0.0]),  # the arm has no reward to revise
        ([1, 1], [1.0, 1.0], [0.0, NAN]),
        ([0, 0], [1.0, np.inf], [NAN, NAN]),
        ([0, 0], [1e308, 1e308], [NAN, NAN]),
    ],
)
def test_the_same_updates_are_refused(arm, value, previous) -> None:
    given = UpdateArrays(np.array(arm), np.array(value), np.array(previous))
    with pytest.raises(InvalidValue):
        TallyHistory(Tally.empty(2)).advance(given, np.array([2]))
    with pytest.raises(InvalidValue):
        one_by_one(Tally.empty(2), given, [2])
