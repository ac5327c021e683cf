"""Segments: a policy with one tally per segment."""

from __future__ import annotations

import numpy as np
import pytest

from maillard import InvalidValue, SegmentTally, Tally, WithFloor, policy
from tests.conftest import NAMES, make

INNER = [name for name in NAMES if name != "dmed"]


def example() -> SegmentTally:
    tally, rng = SegmentTally.empty(arms=3), np.random.default_rng(0)
    for _ in range(60):
        tally.add(
            ("phone", "de") if rng.random() < 0.5 else "desktop", int(rng.integers(3)), float(rng.integers(2))
        )
    return tally


@pytest.mark.parametrize("name", INNER)
def test_each_segment_has_the_policy_of_its_own_tally(name) -> None:
    inner, tally = make(name), example()
    segmented = policy("segmented", policy=inner)
    assert policy(str(segmented)) == segmented
    assert segmented.probability_kind == inner.probability_kind
    for segment in (("phone", "de"), "desktop", "tablet"):
        found = segmented.distribution(tally, segment, eligible=[True, False, True])
        exact = inner.distribution(tally[segment], eligible=[True, False, True])
        assert np.array_equal(found.log_probabilities, exact.log_probabilities)
        assert np.array_equal(found.error, exact.error)


def test_specs_nest_and_keywords_reach_the_inner_policy() -> None:
    clicks = policy("segmented:policy='kl-ms+:booster=8'")
    assert str(clicks) == "segmented:policy='kl-ms+:booster=8'"
    floored = policy("segmented:policy='ms+:booster=8',floor=0.1", reward_range=(0, 1))
    assert str(floored) == "segmented:floor=0.1,policy='ms+:booster=8,sigma2=0.25'"
    assert policy(str(floored)) == floored
    assert isinstance(floored, WithFloor)
    assert policy(clicks, sigma2=9) == clicks
    assert np.allclose(floored.probabilities(SegmentTally.empty(2), "any"), 0.5)
    assert policy("segmented:policy='moss'", sigma2=1, horizon=9).needs_horizon


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("segmented", "policy: expected a policy without features.*got None"),
        ("segmented:policy='lin-ms:reward_range=0..1'", "policy: expected a policy without features"),
        ("segmented:policy='dmed:sigma2=1'", "policy: expected a policy without features"),
        ("segmented:policy='ms'", "ms: sigma2: expected a finite number"),
        ("segmented:policy=3", "policy: expected a policy without features, or its spec in quotes.*got 3"),
    ],
)
def test_invalid_inner_policies_are_named(spec, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        policy(spec)


def test_invalid_input_is_named() -> None:
    segmented = policy("segmented:policy='kl-ms+'")
    with pytest.raises(InvalidValue, match="tally: expected a SegmentTally"):
        segmented.probabilities(Tally.empty(2), "a")
    for segment in (None, 3, (), ("a", 1)):
        with pytest.raises(InvalidValue, match="segment: expected a string or a tuple of strings"):
            segmented.probabilities(SegmentTally.empty(2), segment)
    with pytest.raises(InvalidValue, match="arms: expected a whole number >= 1"):
        SegmentTally.empty(0)
    with pytest.raises(InvalidValue, match=r"tallies\['a'\]: expected a Tally of 2 arms"):
        SegmentTally(2, {"a": Tally.empty(3)})


def test_segment_tallies_add_up() -> None:
    one, two = example(), SegmentTally.empty(3)
    two.add("tablet", 0, 0.1)
    two.add("desktop", 1, 0.2)
    both = one + two
    assert both == two + one
    assert both["desktop"] == one["desktop"] + two["desktop"]
    assert set(both.segments) == {("phone", "de"), "desktop", "tablet"}
    assert one != both
    with pytest.raises(InvalidValue, match="tally: expected a tally of 3 arms"):
        one + SegmentTally.empty(2)
    with pytest.raises(InvalidValue, match="reward"):
        two.add("new", 0, float("nan"))
    assert "new" not in two.segments
