"""Linear tallies: exact sums in any order, merging, revisions, JSON, and refused input."""

from __future__ import annotations

import copy
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maillard import InvalidValue, LinearTally, Tally
from maillard.feature_grid import STEPS, grid_units, to_grid
from maillard.linear_sums import MAX_COUNT, LinearSums

D, K = 3, 2

FEATURES = st.integers(-STEPS, STEPS).map(lambda units: units / STEPS)
REWARD = st.one_of(
    st.sampled_from([0.0, 1.0, 0.1, 5e-324, -5e-324, 1e300, -1e300, 0.75]),
    st.floats(-1e300, 1e300, allow_nan=False, allow_subnormal=True),
)
ROW = st.tuples(st.lists(FEATURES, min_size=D, max_size=D), REWARD, st.integers(0, K - 1))
ROWS = st.lists(ROW, max_size=12)


def tally_of(rows, shared=False) -> LinearTally:
    tally = LinearTally.empty(features=D, arms=None if shared else K)
    for x, reward, arm in rows:
        tally.add(x, reward, arm=None if shared else arm)
    return tally


def rounded(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf


def assert_exact(tally: LinearTally, rows) -> None:
    """Compare each statistic with the sum in rational numbers, rounded once."""
    for model in range(len(tally)):
        mine = [
            (list(map(Fraction, x)), Fraction(r)) for x, r, arm in rows if tally.arms is None or arm == model
        ]
        assert tally.counts[model] == len(mine)
        assert tally.sums[model] == rounded(sum((r for _, r in mine), Fraction(0)))
        assert tally.squares[model] == rounded(sum((r * r for _, r in mine), Fraction(0)))
        for i in range(D):
            assert tally.feature_sums[model, i] == rounded(sum((x[i] for x, _ in mine), Fraction(0)))
            assert tally.products[model, i] == rounded(sum((r * x[i] for x, r in mine), Fraction(0)))
            for j in range(D):
                assert tally.gram[model, i, j] == rounded(sum((x[i] * x[j] for x, _ in mine), Fraction(0)))
    assert tally.round == 1 + len(rows) == 1 + tally.counts.sum()


@given(ROWS, st.booleans(), st.randoms(use_true_random=False))
def test_sums_are_exact_so_order_does_not_matter(rows, shared, random) -> None:
    tally = tally_of(rows, shared)
    assert_exact(tally, rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    other = tally_of(shuffled, shared)
    assert other == tally
    assert other.to_json() == tally.to_json()
    for name in ("counts", "gram", "feature_sums", "products", "sums", "squares"):
        assert getattr(other, name).tobytes() == getattr(tally, name).tobytes()


def test_running_float_sums_would_differ() -> None:
    """The negative control for the test above."""
    rows = [([0.5, 0.25, 1.0], reward, 0) for reward in (0.1, 0.2, 0.3, 1e16, -1e16)]
    plain, backwards = np.zeros(D), np.zeros(D)
    for x, reward, _ in rows:
        plain += np.array(x) * reward
    for x, reward, _ in reversed(rows):
        backwards += np.array(x) * reward
    assert plain.tolist() != backwards.tolist()
    assert tally_of(rows) == tally_of(rows[::-1])


@given(ROWS, st.booleans(), st.randoms(use_true_random=False))
def test_merging_in_any_tree_gives_the_whole(rows, shared, random) -> None:
    whole = tally_of(rows, shared)
    parts = [tally_of([row], shared) for row in rows] or [tally_of([], shared)]
    while len(parts) > 1:
        one = parts.pop(random.randrange(len(parts)))
        other = parts.pop(random.randrange(len(parts)))
        parts.append(one + other)
    assert parts[0] == whole
    assert_exact(parts[0], rows)


@given(ROWS.filter(bool), REWARD, st.integers(0, 100))
def test_a_revision_replaces_a_reward(rows, new, which) -> None:
    x, old, arm = rows[which % len(rows)]
    tally = tally_of(rows)
    tally.revise(x, old, new, arm=arm)
    expected = [*rows]
    expected[which % len(rows)] = (x, new, arm)
    assert tally == tally_of(expected)
    assert_exact(tally, expected)
    tally.revise(x, new, old, arm=arm)
    assert tally == tally_of(rows)
    assert tally.to_json() == tally_of(rows).to_json()


@given(ROWS, ROW, st.integers(1, 3))
def test_removed_rewards_leave_no_trace(rows, row, count) -> None:
    x, reward, arm = row
    tally = tally_of([*rows, *[row] * count])
    tally.remove(x, reward, arm=arm, count=count)
    assert tally == tally_of(rows)
    assert_exact(tally, rows)


@given(ROWS, st.booleans())
def test_json_pickle_and_copies_round_trip(rows, shared) -> None:
    tally = tally_of(rows, shared)
    for twin in (
        LinearTally.from_json(tally.to_json()),
        pickle.loads(pickle.dumps(tally)),
        copy.copy(tally),
        copy.deepcopy(tally),
        tally.copy(),
        tally + tally_of([], shared),
    ):
        assert twin == tally
        assert twin.to_json() == tally.to_json()
        arm = None if shared else 0
        before = tally.to_json()
        twin.add([1, 0, 0], 0.1, arm=arm)
        assert twin != tally
        assert tally.to_json() == before
        assert twin.round == tally.round + 1
        assert twin.counts[0] == tally.counts[0] + 1
        tally.add([1, 0, 0], 0.1, arm=arm)  # and the other way round
        assert twin == tally
        tally.remove([1, 0, 0], 0.1, arm=arm)
        assert twin != tally


@pytest.mark.parametrize(
    "derive",
    [
        LinearTally.copy,
        lambda tally: tally + tally_of([]),
        lambda tally: tally_of([]) + tally,
        lambda tally: LinearTally.joined([tally]),
        lambda tally: LinearTally.joined([tally.only(0), tally.only(1)]),
    ],
)
def test_a_change_of_the_original_does_not_reach_what_was_derived_from_it(derive) -> None:
    rows = [([1, 0.5, 0], 0.1, 0), ([1, 0, 0.25], 0.2, 1)]
    tally = tally_of(rows)
    derived = derive(tally)
    for change in (
        lambda: tally.add([1, 0, 0], 1.0, arm=0),
        lambda: tally.revise([1, 0, 0.25], 0.2, 0.3, arm=1),
        lambda: tally.remove([1, 0.5, 0], 0.1, arm=0),
    ):
        change()
        assert derived == tally_of(rows)
        assert derived.gram.tobytes() == tally_of(rows).gram.tobytes()


@pytest.mark.parametrize("rewards", [[0.5, 0.5], [0.25] * 9 + [-0.25] * 7, [0.5, -0.5, 1.0]])
def test_the_common_scale_keeps_every_bit(rewards) -> None:
    """Each list has a sum or a sum of squares that needs a finer scale than the other sums."""
    rows = [([0, 0, 0], reward, 0) for reward in rewards]
    tally = LinearTally.from_json(tally_of(rows).to_json())
    assert_exact(tally, rows)
    assert tally == tally_of(rows)


def test_two_models_of_the_same_rewards_in_other_scales_are_equal() -> None:
    coarse, fine = tally_of([([1, 0.5, 0], 1.0, 0)]), tally_of([([1, 0.5, 0], 5e-324, 0)])
    fine.revise([1, 0.5, 0], 5e-324, 1.0, arm=0)
    assert fine == coarse
    assert fine.to_json() == coarse.to_json()


def test_one_hot_features_give_the_means_of_a_tally() -> None:
    rng = np.random.default_rng(5)
    arms, rewards = rng.integers(0, 4, 500), rng.normal(10, 3, 500).round(3)
    plain, shared = Tally.empty(4), LinearTally.empty(features=4, arms=None)
    disjoint = LinearTally.empty(features=1, arms=4)
    for arm, reward in zip(arms.tolist(), rewards.tolist(), strict=True):
        plain.add(arm, reward)
        shared.add(np.eye(4)[arm], reward)
        disjoint.add([1], reward, arm=arm)
    assert (shared.products[0] / np.diag(shared.gram[0])).tolist() == plain.means.tolist()
    assert (disjoint.sums / disjoint.counts).tolist() == plain.means.tolist()
    assert shared.round == disjoint.round == plain.round == 501
    assert disjoint.sums.tolist() == disjoint.products[:, 0].tolist() == plain.sums.tolist()


def test_shapes_types_and_read_only_arrays() -> None:
    tally = tally_of([([1, 0, 0], 1.0, 0)])
    assert (len(tally), tally.features, tally.arms) == (K, D, K)
    assert tally.counts.dtype == np.int64
    shapes = {"gram": (K, D, D), "feature_sums": (K, D), "products": (K, D), "sums": (K,), "squares": (K,)}
    for name, shape in shapes.items():
        array = getattr(tally, name)
        assert (array.shape, array.dtype, array.flags.writeable) == (shape, np.float64, False), name
    assert len(tally_of([], shared=True)) == 1
    assert tally_of([], shared=True).arms is None


def test_statistics_stay_the_same_object_until_the_model_changes() -> None:
    tally = tally_of([([1, 0, 0], 1.0, 0), ([1, 0, 0], 1.0, 1)])
    first, second = tally.statistics(0), tally.statistics(1)
    later = tally.copy()
    later.add([0, 1, 0], 1.0, arm=1)
    assert later.statistics(0) is tally.statistics(0) is first
    assert tally.statistics(1) is second
    assert later.statistics(1) is not second
    assert (second.count, later.statistics(1).count) == (1, 2)
    assert not second.gram.flags.writeable


def test_arms_are_joined_and_taken_out() -> None:
    rows = [([1, 0.5, 0], 0.1, 0), ([1, 0, 0.25], 0.2, 1)]
    tally = tally_of(rows)
    more = LinearTally.joined([tally, LinearTally.empty(features=D, arms=1)])
    more.add([1, 1, 1], 1.0, arm=2)
    assert (more.arms, more.counts.tolist(), more.round) == (3, [1, 1, 1], 4)
    assert LinearTally.joined([more.only(0), more.only(1)]) == tally
    one = tally.only(1)
    one.add([1, 0, 0], 1.0, arm=0)
    more.add([1, 0, 0], 1.0, arm=0)
    assert tally == tally_of(rows)
    tally.add([1, 0, 0], 1.0, arm=1)
    assert one == tally.only(1)
    with pytest.raises(InvalidValue, match="disjoint tallies of 3 features"):
        LinearTally.joined([tally, LinearTally.empty(features=2, arms=1)])
    with pytest.raises(InvalidValue, match="disjoint tallies of 3 features"):
        LinearTally.joined([tally, LinearTally.empty(features=3, arms=None)])
    with pytest.raises(InvalidValue, match="at least one tally"):
        LinearTally.joined([])
    with pytest.raises(InvalidValue, match="None, because all arms share one model"):
        LinearTally.empty(features=3, arms=None).only(0)


def test_the_text_of_a_tally_fits_on_a_screen() -> None:
    tally = LinearTally.empty(features=100, arms=1000)
    tally.add(np.zeros(100), 0.1, arm=0)
    lines = repr(tally).split("\n")
    assert lines[:4] == ["LinearTally(", "    features=100,", "    arms=1000,", lines[3]]
    assert lines[3].startswith("    counts=[1, 0, 0, ")
    assert lines[3].endswith("0, ... 1,000 arms],")
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([1, 0], r"x: expected 3 numbers, one per feature, got \(2,\)"),
        ([[1, 0, 0]], r"x: expected 3 numbers, one per feature, got \(1, 3\)"),
        (1.0, r"x: expected 3 numbers, one per feature, got \(\)"),
        (
            [1, math.nan, 0],
            r"x\[1\]: expected numbers from -1 to 1: divide the rows by a bound first, got nan",
        ),
        ([1, 0, math.inf], r"x\[2\]: expected numbers from -1 to 1.*got inf"),
        ([1, 0, -1.5], r"x\[2\]: expected numbers from -1 to 1.*got -1.5"),
        ([2, 0, 0], r"x\[0\]: expected numbers from -1 to 1.*got 2.0"),
        ([0.1, 0, 0], r"x\[0\]: expected multiples of 2\*\*-16: round the row with LinearTally.to_grid\(x\)"),
        ([0, 2.0**-17, 0], r"x\[1\]: expected multiples of 2\*\*-16"),
        (["1", "0", "0"], "x: expected numbers, one per feature"),
        ([True, False, False], "x: expected numbers, one per feature"),
        ([[1], [0, 0]], "x: expected numbers, one per feature"),
        (None, "x: expected numbers, one per feature"),
        ([], "x: expected numbers, one per feature"),
    ],
)
def test_rows_off_the_grid_are_refused(x, message) -> None:
    tally = tally_of([([1, 0, 0], 1.0, 0)])
    before = tally.to_json()
    for change in (
        lambda: tally.add(x, 1.0, arm=0),
        lambda: tally.revise(x, 1.0, 0.0, arm=0),
        lambda: tally.remove(x, 1.0, arm=0),
    ):
        with pytest.raises(InvalidValue, match=message):
            change()
    assert tally.to_json() == before


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, "1", None, 10**400, [1.0]])
def test_rewards_that_are_not_finite_numbers_are_refused(reward) -> None:
    tally = tally_of([([1, 0, 0], 1.0, 0)])
    before = tally.to_json()
    with pytest.raises(InvalidValue, match="reward: expected a finite number"):
        tally.add([1, 0, 0], reward, arm=0)
    with pytest.raises(InvalidValue, match="old: expected a finite number"):
        tally.revise([1, 0, 0], reward, 1.0, arm=0)
    with pytest.raises(InvalidValue, match="new: expected a finite number"):
        tally.revise([1, 0, 0], 1.0, reward, arm=0)
    assert tally.to_json() == before


@pytest.mark.parametrize("arm", [None, -1, K, 0.0, True, "0"])
def test_arms_that_are_missing_or_unknown_are_refused(arm) -> None:
    tally = tally_of([])
    with pytest.raises(InvalidValue, match="arm: expected the position of the chosen arm, from 0 to 1"):
        tally.add([1, 0, 0], 1.0, arm=arm)
    with pytest.raises(InvalidValue, match="arm: expected the position"):
        tally.statistics(arm)


def test_a_shared_tally_takes_no_arm() -> None:
    tally = tally_of([], shared=True)
    with pytest.raises(InvalidValue, match="arm: expected None, because all arms share one model"):
        tally.add([1, 0, 0], 1.0, arm=0)


def test_what_was_never_added_cannot_be_revised_or_removed() -> None:
    tally = tally_of([([1, 0.5, 0], 1.0, 0)])
    before = tally.to_json()
    with pytest.raises(InvalidValue, match="old: expected a reward that was added with this row, got 3"):
        tally.revise([1, 0.5, 0], 3.0, 0.0, arm=0)
    with pytest.raises(InvalidValue, match="old: expected a reward that was added"):
        tally.revise([1, 0.5, 0], 0.0, 0.0, arm=1)
    with pytest.raises(InvalidValue, match="reward: expected a reward that was added with this row, got 3"):
        tally.remove([1, 0.5, 0], 3.0, arm=0)
    with pytest.raises(InvalidValue, match="reward: expected a reward that was added"):
        tally.remove([1, 0.25, 0], 1.0, arm=0)
    with pytest.raises(
        InvalidValue, match="count: expected at most 1, the number of observed rewards, got 2"
    ):
        tally.remove([1, 0.5, 0], 1.0, arm=0, count=2)
    with pytest.raises(InvalidValue, match="count: expected a whole number >= 1"):
        tally.remove([1, 0.5, 0], 1.0, arm=0, count=0)
    assert tally.to_json() == before
    assert tally.round == 2


def test_sums_beyond_the_range_of_floats_are_refused() -> None:
    large = 1.7e308
    tally = tally_of([([1, 0, 0], large, 0), ([1, 0, 0], -1.0, 0)])
    assert tally.squares[0] == math.inf
    before = tally.to_json()
    with pytest.raises(InvalidValue, match="reward: expected a reward that keeps the sums within the range"):
        tally.add([1, 0, 0], large, arm=0)
    with pytest.raises(InvalidValue, match="new: expected a reward that keeps the sums within the range"):
        tally.revise([1, 0, 0], -1.0, large, arm=0)
    with pytest.raises(InvalidValue, match="range of floats"):
        tally + tally
    assert tally.to_json() == before
    tally.add([1, 0, 0], -large, arm=0)
    tally.add([1, 0, 0], large, arm=0)
    assert tally.sums[0] == float(Fraction(large) - 1)
    data = json.loads(tally_of([([1, 0, 0], large, 0)]).to_json())
    twice = {**data["models"][0], "sum": hex(2 * int(large)), "square": hex(4 * int(large) ** 2)}
    with pytest.raises(InvalidValue, match="model"):
        LinearTally.from_json(json.dumps({**data, "models": [twice, data["models"][1]]}))
    balanced = tally_of([([1, 0, 0], reward, 0) for reward in (large, -large, large)])
    before = balanced.to_json()
    with pytest.raises(InvalidValue, match="reward: expected a reward that keeps the sums within the range"):
        balanced.remove([1, 0, 0], -large, arm=0)
    assert balanced.to_json() == before


def test_the_number_of_rewards_is_bounded_by_the_integers_of_the_gram_matrix() -> None:
    """An intercept adds 2**32 units with each reward, so 2**31 rewards would be 2**63 units."""
    n = MAX_COUNT
    assert n * 2**32 <= np.iinfo(np.int64).max < (n + 1) * 2**32
    full = LinearTally.from_json(
        json.dumps(
            {
                "features": 1,
                "arms": 1,
                "models": [
                    {
                        "count": n,
                        "gram": [n * 2**32],
                        "feature_sums": [n * 2**16],
                        "scale": 0,
                        "products": [hex(n * 2**16)],
                        "sum": hex(n),
                        "square": hex(n),
                    }
                ],
            }
        )
    )
    assert full.gram[0, 0, 0] == full.feature_sums[0, 0] == full.products[0, 0] == full.sums[0] == n
    one = LinearTally.empty(features=1, arms=1)
    one.add([1], 1.0, arm=0)
    before = full.to_json()
    with pytest.raises(InvalidValue, match="count: expected at most 2147483647 rewards per model"):
        full.add([1], 1.0, arm=0)
    with pytest.raises(InvalidValue, match="count: expected at most 2147483647 rewards per model"):
        full + one
    assert full.to_json() == before
    full.remove([1], 1.0, arm=0)
    assert (full + one).to_json() == before


@pytest.mark.parametrize(
    ("features", "arms", "message"),
    [
        (0, 2, "features: expected a whole number >= 1"),
        (2.0, 2, "features: expected a whole number >= 1"),
        (True, 2, "features: expected a whole number >= 1"),
        (257, 2, r"features: expected at most 256 \(max_features\)"),
        (2, 0, "arms: expected a whole number >= 1, or None for a model that all arms share, got 0"),
        (2, "2", "arms: expected a whole number >= 1"),
    ],
)
def test_sizes_are_checked(features, arms, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        LinearTally.empty(features=features, arms=arms)


def test_the_limit_of_features_can_be_raised() -> None:
    assert LinearTally.empty(features=257, arms=10**5, max_features=300).features == 257


@pytest.mark.parametrize(
    "other",
    [
        LinearTally.empty(features=D + 1, arms=K),
        LinearTally.empty(features=D, arms=K + 1),
        LinearTally.empty(features=D, arms=None),
    ],
)
def test_only_tallies_of_the_same_schema_are_added(other) -> None:
    with pytest.raises(InvalidValue, match="a tally with features=3 and arms=2, like the first"):
        tally_of([]) + other
    assert tally_of([]) != other


def test_other_types_are_neither_added_nor_equal() -> None:
    with pytest.raises(TypeError):
        tally_of([]) + Tally.empty(K)
    assert tally_of([]) != Tally.empty(K)
    assert LinearSums.zero(1) != 0
    with pytest.raises(TypeError):
        hash(tally_of([]))


GOOD = json.loads(tally_of([([1, 0.5, 0], 0.75, 0)]).to_json())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        None,
        json.dumps({**GOOD, "features": 0}),
        json.dumps({**GOOD, "arms": 3}),
        json.dumps({**GOOD, "arms": 0}),
        json.dumps({**GOOD, "arms": None}),
        json.dumps({**GOOD, "models": {}}),
        json.dumps({**GOOD, "models": [{}, {}]}),
    ],
)
def test_other_json_is_refused(text) -> None:
    with pytest.raises(InvalidValue):
        LinearTally.from_json(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 0),
        ("count", -1),
        ("count", 1.0),
        ("count", True),
        ("count", 2**31),
        ("scale", -1),
        ("scale", 1075),
        ("gram", [0] * 6),
        ("gram", [2**33, 0, 0, 0, 0, 0]),
        ("gram", [-1, 0, 0, 0, 0, 0]),
        ("gram", [2**64, 0, 0, 0, 0, 0]),
        ("gram", [0] * 5),
        ("gram", None),
        ("feature_sums", [2**17, 0, 0]),
        ("feature_sums", [1.0, 0, 0]),
        ("products", ["0x40000", "0x0", "0x0"]),
        ("products", ["0x18000", "0x0"]),
        ("products", [1, 0, 0]),
        ("products", ["x", "0x0", "0x0"]),
        ("sum", "0x5"),
        ("sum", 3),
        ("square", "-0x1"),
        ("square", "0x0"),
    ],
)
def test_json_of_sums_that_no_rewards_have_is_refused(field, value) -> None:
    model = {**GOOD["models"][0], field: value}
    LinearTally.from_json(json.dumps(GOOD))
    with pytest.raises(InvalidValue):
        LinearTally.from_json(json.dumps({**GOOD, "models": [model, GOOD["models"][1]]}))


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5))
def test_the_grid_rounds_half_to_even(values) -> None:
    on_grid = to_grid(values)
    for value, nearest in zip(values, on_grid.tolist(), strict=True):
        assert Fraction(nearest) == Fraction(round(Fraction(value) * STEPS), STEPS)
        assert math.copysign(1, nearest) == 1 or nearest < 0
    assert grid_units(on_grid, (len(values),)).tolist() == [int(value * STEPS) for value in on_grid.tolist()]


def test_halves_and_limits_of_the_grid() -> None:
    step = 2.0**-16
    assert to_grid([step / 2, 3 * step / 2, -step / 2, -1, 1]).tolist() == [0, 2 * step, 0, -1, 1]
    assert LinearTally.to_grid([[0.1]]).shape == (1, 1)
    for bad in (math.nan, math.inf, 1.0000001, -2):
        with pytest.raises(InvalidValue, match="numbers from -1 to 1: divide the rows by a bound first"):
            to_grid([0.0, bad])
