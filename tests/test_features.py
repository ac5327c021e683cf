"""Features: the encoding of mappings and data frames, JSON, extensions, and refused input."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import pickle
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maillard import Features, InvalidValue, LinearTally, UnknownName, hashed
from maillard.feature_grid import grid_units
from maillard.features import category, flag, number
from maillard.features.feature_types import bin_of

STEPS = 65536
finite = st.floats(-1e6, 1e6)

EXAMPLE = Features(
    {"device": ["phone", "desktop"], "age": (18, 90), "returning": bool, "city": hashed(32)},
    crosses=[("device", "age")],
)
LENIENT = Features(
    {
        "device": category(["phone", "desktop"], default="phone"),
        "age": number(18, 90, default=40),
        "returning": flag(default=False),
        "city": hashed(8, default="nowhere"),
    },
    crosses=[("device", "age"), ("age", "age"), ("device", "city"), ("returning", "age")],
    rest=hashed(6),
)

CROSSED = Features({}, rest=hashed(4, numbers="bins"), rest_crosses=hashed(6, numbers="bins"))


def bucket(text: str, buckets: int) -> int:
    """The documented hash, written anew."""
    return int(hashlib.blake2b(text.encode("utf-8")).hexdigest()[:16], 16) % buckets


def column(features: Features, row, name: str) -> float:
    return float(row[features.names.index(name)])


def test_the_columns_of_the_example_are_in_the_documented_order() -> None:
    assert EXAMPLE.names == (
        "intercept",
        "device=phone",
        "device=desktop",
        "device=(other)",
        "age",
        "returning",
        *(f"city#{i}" for i in range(32)),
        "device=phone*age",
        "device=desktop*age",
        "device=(other)*age",
    )
    assert EXAMPLE.dimension == 41
    assert EXAMPLE.inputs == ("device", "age", "returning", "city")


def test_a_row_of_the_example() -> None:
    row = EXAMPLE.encode({"device": "desktop", "age": 36, "returning": True, "city": "Zürich"})
    expected = np.zeros(41)
    expected[[0, 2, 5, 6 + 14]] = 1  # Zürich is in bucket 14
    expected[4] = expected[39] = -0.5
    assert row.tolist() == expected.tolist()
    assert row.dtype == np.float64


@given(st.floats(allow_nan=False, allow_infinity=False), st.tuples(finite, finite))
def test_numbers_have_the_units_of_their_type(value, ends) -> None:
    low, high = sorted(ends)
    try:
        features = Features({"age": (low, high)}, intercept=False)
    except InvalidValue:  # no range, or too wide
        return
    for given_value in (value, low, high, (low + high) / 2, math.nextafter(low, -math.inf)):
        units = features.types["age"].encode("age", given_value)[1]
        assert features.encode_units({"age": given_value}).tolist() == [units]


@pytest.mark.parametrize(
    ("text", "place"), [("Zürich", 14), ("", 3), ("Bern", 13), ("17", 17), ("browser=firefox", 28)]
)
def test_buckets_never_change(text, place) -> None:
    """`printf Zürich | b2sum` starts with c6d7d8b21d02f72e, and this number modulo 32 is 14."""
    assert bucket(text, 32) == place
    assert EXAMPLE.types["city"].bucket("city", text) == place
    assert Features({"city": hashed(32)}).encode({"city": text})[1:].tolist() == np.eye(32)[place].tolist()


@given(st.text(), st.integers(1, 40))
def test_hashed_values(text, buckets) -> None:
    features = Features({"city": hashed(buckets)}, intercept=False)
    try:
        expected = np.eye(buckets)[bucket(text, buckets)]
    except UnicodeEncodeError:
        with pytest.raises(InvalidValue, match="city: expected text that can be encoded as UTF-8"):
            features.encode({"city": text})
    else:
        assert features.encode({"city": text}).tolist() == expected.tolist()


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_scaled_and_rounded(one, other, value) -> None:
    low, high = sorted((one, other))
    if low == high:
        return
    counts = Counter[tuple[str, str]]()
    [encoded] = Features({"x": (low, high)}, intercept=False).encode({"x": value}, counts).tolist()
    inside = min(max(value, low), high)
    assert counts == ({} if inside == value else {("x", "clipped"): 1})
    assert -1 <= encoded <= 1
    assert (encoded * STEPS).is_integer()
    exact = (Fraction(inside) - Fraction(low)) / (Fraction(high) - Fraction(low)) * 2 - 1
    # The scaled float has a relative error of a few 2**-53, and rounding one of half a step.
    assert abs(Fraction(encoded) - exact) * STEPS <= Fraction(1, 2) + Fraction(1, 10**9)


def test_limits_and_halves_of_a_range() -> None:
    features = Features({"x": (-1, 1)}, intercept=False)
    step = 1 / STEPS
    pairs = {-1: -1, 1: 1, 0: 0, 7: 1, -7: -1, step / 2: 0, 3 * step / 2: 2 * step, -3 * step / 2: -2 * step}
    assert [float(features.encode({"x": x})[0]) for x in pairs] == list(pairs.values())
    assert math.copysign(1, features.encode({"x": -step / 4})[0]) == 1  # never -0.0


def test_crosses_multiply_rounded_columns_and_round_again() -> None:
    features = Features({"a": (0, 1), "b": (0, 1), "d": ["x"]}, crosses=[("a", "b"), ("a", "a"), ("b", "d")])
    row = features.encode({"a": 1 / 3, "b": 0.9, "d": "x"})
    a, b = column(features, row, "a"), column(features, row, "b")
    assert a == Fraction(round((Fraction(1 / 3) * 2 - 1) * STEPS), STEPS)
    for name, product in (("a*b", (a, b)), ("a*a", (a, a))):
        exact = Fraction(product[0]) * Fraction(product[1]) * STEPS
        assert exact.denominator > 1
        assert column(features, row, name) == Fraction(round(exact), STEPS)
    assert column(features, row, "b*d=x") == b
    assert column(features, row, "b*d=(other)") == 0
    negative = features.encode({"a": 0.2, "b": 0.5, "d": "x"})  # -0.6 times 0
    assert math.copysign(1, column(features, negative, "a*b")) == 1
    tiny = {"a": [0.5 - 2.0**-17], "b": [0.625], "d": ["x"]}  # -2**-16 times 0.25
    assert math.copysign(1, column(features, features.encode_frame(tiny)[0], "a*b")) == 1


def test_a_cross_of_two_categories_has_one_column_per_pair() -> None:
    features = Features({"a": ["x", "y"], "b": ["u"]}, crosses=[("a", "b")], intercept=False)
    for i, a in enumerate(["x", "y", "?"]):
        for j, b in enumerate(["u", "?"]):
            assert features.encode({"a": a, "b": b})[5:].tolist() == np.eye(6)[2 * i + j].tolist()


def test_values_outside_are_counted_and_encode_stays_pure() -> None:
    counts = Counter[tuple[str, str]]()
    before = LENIENT.to_json()
    row = LENIENT.encode({"device": "watch", "age": 17.5, "city": None, "returning": math.nan}, counts)
    assert counts == {
        ("device", "other"): 1,
        ("age", "clipped"): 1,
        ("city", "default"): 1,
        ("returning", "default"): 1,
    }
    assert column(LENIENT, row, "device=(other)") == 1
    assert column(LENIENT, row, "age") == -1
    assert row.tolist() == LENIENT.encode({"device": "watch", "age": 17.5}).tolist()
    LENIENT.encode({"device": "watch"}, counts)
    assert counts["device", "other"] == 2
    assert LENIENT.to_json() == before


def test_defaults_replace_missing_values() -> None:
    missing = LENIENT.encode({})
    given_ = LENIENT.encode({"device": "phone", "age": 40, "returning": False, "city": "nowhere"})
    assert missing.tolist() == given_.tolist()
    for value in (None, math.nan, np.float32("nan"), pd.NA, pd.NaT):
        assert LENIENT.encode(dict.fromkeys(LENIENT.inputs, value)).tolist() == missing.tolist()
    counts = Counter[tuple[str, str]]()
    unknown = Features({"device": category(["phone"], default="unknown")})
    assert unknown.encode({}, counts).tolist() == [1, 0, 1]
    assert counts == {("device", "default"): 1}


def test_whole_numbers_are_levels_in_decimal_digits() -> None:
    features = Features({"shelf": [1, 2, "3"], "shop": hashed(32)}, intercept=False)
    assert features.names[:3] == ("shelf=1", "shelf=2", "shelf=3")
    for value in (2, "2", 2.0, np.int64(2), np.float32(2), np.str_("2")):
        row = features.encode({"shelf": value, "shop": 17})
        assert row[:4].tolist() == [0, 1, 0, 0]
        assert row[4 + 17] == 1  # the bucket of "17"


@pytest.mark.parametrize("true", [True, 1, 1.0, np.True_, np.int8(1)])
def test_flags_are_true_and_false_or_one_and_zero(true) -> None:
    features = Features({"new": bool}, intercept=False)
    assert features.encode({"new": true}).tolist() == [1]
    assert features.encode({"new": not true}).tolist() == [0]


def test_undeclared_keys_go_to_the_rest() -> None:
    features = Features({"age": (0, 1)}, rest=hashed(32))
    assert features.names[-1] == "rest#31"
    row = features.encode({"age": 1, "browser": "firefox", "plan": 3, "member": True, "nothing": None})
    texts = ["browser=firefox", "plan=3", "member=true"]
    assert np.flatnonzero(row[2:]).tolist() == sorted(bucket(text, 32) for text in texts) == [1, 15, 28]
    assert set(row[2:].tolist()) == {0.0, 1.0}
    one = Features({}, rest=hashed(1), intercept=False)
    assert one.encode({"a": "b", "c": "d"}).tolist() == [1.0]  # two keys in one bucket
    assert one.encode({}).tolist() == [0.0]
    with pytest.raises(
        InvalidValue, match=r"speed: expected text or a whole number of at most 64 bits, got 1\.5"
    ):
        features.encode({"age": 1, "speed": 1.5})
    with pytest.raises(InvalidValue, match="context: expected names as keys, got 7"):
        features.encode({"age": 1, 7: "x"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("number", "bin_"),
    [
        (0, "~0.0"), (-0.0, "~0.0"), (1, "~1.0"), (1.4999, "~1.0"), (1.5, "~1.5"), (2, "~2.0"), (18, "~16.0"),
        (24, "~24.0"), (31.9, "~24.0"), (-31, "~-24.0"), (0.1, "~0.09375"),
        (2**70, "~1.1805916207174113e+21"),
        (np.float32(36), "~32.0"), (5e-324, "~5e-324"),
    ],
)  # fmt: skip
def test_numbers_may_be_hashed_by_their_bin(number, bin_) -> None:
    features = Features({}, rest=hashed(64, numbers="bins"))
    assert np.flatnonzero(features.encode({"age": number})[1:]).tolist() == [bucket(f"age={bin_}", 64)]
    declared = Features({"age": hashed(64, numbers="bins")}, intercept=False)
    assert np.flatnonzero(declared.encode({"age": number})).tolist() == [bucket(bin_, 64)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_bin_has_numbers_of_similar_size(value) -> None:
    end = float(bin_of(value)[1:])
    assert bin_of(end) == bin_of(value)
    assert abs(end) <= abs(value) < 2 * abs(end) or value == 0 or abs(value) < 1e-300
    assert math.copysign(1, end) == math.copysign(1, value) or value == 0


def test_texts_and_flags_have_no_bin() -> None:
    features = Features({}, rest=hashed(64, numbers="bins"))
    row = features.encode({"age": "36", "new": True, "visits": None})
    assert np.flatnonzero(row[1:]).tolist() == sorted(bucket(text, 64) for text in ["age=36", "new=true"])
    with pytest.raises(InvalidValue, match="age: expected a finite number, got inf"):
        features.encode({"age": math.inf})
    with pytest.raises(InvalidValue, match="numbers: expected 'text' or 'bins', got 'scaled'"):
        hashed(3, numbers="scaled")


def test_undeclared_keys_of_context_and_arm_are_crossed() -> None:
    features = Features({"price": (0, 10)}, rest=hashed(16), rest_crosses=hashed(32, numbers="bins"))
    assert features.names[-33:-31] == ("rest#15", "rest_crosses#0")
    context, arm = {"device": "phone", "age": 36}, {"topic": "news", "price": 5, "new": True, "old": None}
    row = features.encode(context, arm=arm)
    alone = ["device=phone", "age=36", "topic=news", "new=true"]
    pairs = [f"{one}*{two}" for one in ("device=phone", "age=~32.0") for two in ("topic=news", "new=true")]
    assert np.flatnonzero(row[2:18]).tolist() == sorted({bucket(text, 16) for text in alone})
    assert np.flatnonzero(row[18:]).tolist() == sorted({bucket(text, 32) for text in pairs})
    assert set(row[2:].tolist()) == {0.0, 1.0}
    assert features.encode({**context, **arm})[:18].tolist() == row[:18].tolist()
    assert not features.encode({**context, **arm})[18:].any()  # without an arm there are no pairs
    assert not features.encode({"price": 5}, arm={"topic": "news"})[
        18:
    ].any()  # a declared key is not crossed


def test_a_frame_has_the_same_bins() -> None:
    frame = pd.DataFrame({"age": [36.5, None, -3.0], "visits": [0, 7, 10**6], "new": [True, False, None]})
    rows = [
        {"age": 36.5, "visits": 0, "new": True},
        {"visits": 7, "new": False},
        {"age": -3.0, "visits": 10**6},
    ]
    assert CROSSED.encode_frame(frame).tolist() == [CROSSED.encode(row).tolist() for row in rows]


def test_a_declaration_without_crosses_of_the_rest_keeps_its_version() -> None:
    assert json.loads(Features({}, rest=hashed(2)).to_json())["version"] == 1
    assert json.loads(Features({}, rest=hashed(2, numbers="bins")).to_json())["version"] == 2
    data = json.loads(Features({}, rest=hashed(2), rest_crosses=hashed(3)).to_json())
    assert (data["version"], data["rest_crosses"]) == (2, {"type": "hashed", "buckets": 3})


def test_any_mapping_is_accepted() -> None:
    context = {"device": "phone", "age": 20, "returning": False, "city": "Bern"}
    assert EXAMPLE.encode(MappingProxyType(context)).tolist() == EXAMPLE.encode(context).tolist()
    with pytest.raises(InvalidValue, match="context: expected a mapping of feature names to values"):
        EXAMPLE.encode(["phone"])


def test_rows_are_on_the_grid_of_linear_tallies() -> None:
    tally = LinearTally.empty(features=LENIENT.dimension, arms=None)
    tally.add(LENIENT.encode({"age": 33.3}), 1.0)
    assert tally.counts.tolist() == [1]


VALUES = {
    "device": st.sampled_from(["phone", "desktop", "watch", "", None]),
    "age": st.one_of(st.none(), st.floats(-100, 200), st.sampled_from([18.0, 90.0, math.nan, 1e300, -0.0])),
    "returning": st.sampled_from([True, False, None]),
    "city": st.one_of(st.none(), st.text(alphabet="abcü", max_size=3)),
    "plan": st.one_of(st.none(), st.sampled_from(["basic", "pro", ""])),
}
ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=12)
SCHEMA = pa.schema(
    [
        ("device", pa.string()),
        ("age", pa.float64()),
        ("returning", pa.bool_()),
        ("city", pa.string()),
        ("plan", pa.string()),
    ]
)


def frames_of(rows):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    polars = pl.DataFrame(table)
    pandas = table.to_pandas()
    middle = len(rows) // 2
    chunked = pa.concat_tables([table.slice(0, middle), table.slice(middle)])
    yield from (table, chunked, polars, polars.lazy(), pandas, pandas.set_index(pandas.index + 7))
    yield table.set_column(0, "device", table["device"].dictionary_encode())
    yield pandas.astype({"device": "category", "city": "category"})
    yield polars.with_columns(pl.col("device").cast(pl.Categorical))
    yield pa.concat_tables(
        part.set_column(0, "device", part["device"].dictionary_encode())
        for part in (table.slice(0, middle), table.slice(middle))
    )


@settings(max_examples=40)
@given(ROWS)
def test_a_frame_is_encoded_with_the_bits_of_its_rows(rows) -> None:
    counts = Counter[tuple[str, str]]()
    expected = np.array([LENIENT.encode(row, counts) for row in rows]).reshape(-1, LENIENT.dimension)
    if rows:
        grid_units(expected, expected.shape)  # refuses what is not on the grid
    for frame in frames_of(rows):
        found = Counter[tuple[str, str]]()
        encoded = LENIENT.encode_frame(frame, found)
        assert encoded.shape == expected.shape
        assert encoded.tobytes() == expected.tobytes(), type(frame)
        assert found == counts


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int64", "uint64", "float32", "float16", "Int64", "Float64"]
)
def test_columns_of_numbers_of_every_type(dtype) -> None:
    features = Features({"x": (-10, 100), "c": [0, 7]}, crosses=[("c", "x")])
    values = [0, 7, 100, 33]
    frame = pd.DataFrame({"x": values, "c": values}).astype(dtype)
    expected = np.array([features.encode({"x": value, "c": value}) for value in values])
    assert features.encode_frame(frame).tobytes() == expected.tobytes()
    assert features.encode_frame(pa.Table.from_pandas(frame)).tobytes() == expected.tobytes()


def test_large_integers_are_rounded_as_floats() -> None:
    features = Features({"x": (0, 2**53)}, intercept=False)
    values = [2**53 + 1, 2**62 + 1, -(2**62) - 1, 2**52 + 1]
    counts, found = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    expected = np.array([features.encode({"x": value}, counts) for value in values])
    assert features.encode_frame(pd.DataFrame({"x": values}), found).tobytes() == expected.tobytes()
    assert counts == found == {("x", "clipped"): 2}


def test_a_column_of_a_dictionary_without_room_for_more_indices() -> None:
    levels = [f"level {i}" for i in range(128)]
    features = Features({"x": category(levels, default="level 3")}, intercept=False)
    indices = pa.array([*range(128), None], pa.int8())
    frame = pa.table({"x": pa.DictionaryArray.from_arrays(indices, pa.array(levels))})
    assert features.encode_frame(frame).argmax(1).tolist() == [*range(128), 3]


def test_a_whole_column_may_be_missing() -> None:
    frame = pd.DataFrame({"age": [20.0, 30.0]})
    expected = [LENIENT.encode({"age": age}) for age in (20.0, 30.0)]
    counts = Counter[tuple[str, str]]()
    assert LENIENT.encode_frame(frame, counts).tolist() == np.array(expected).tolist()
    assert counts == {(name, "default"): 2 for name in ("device", "returning", "city")}
    nulls = pa.table({"age": [20.0, 30.0], "device": pa.nulls(2), "returning": pa.nulls(2)})
    assert LENIENT.encode_frame(nulls).tolist() == np.array(expected).tolist()
    assert Features({"age": (0, 100)}).encode_frame(pa.table({"age": [0, 50]})).tolist() == [[1, -1], [1, 0]]


GOOD = {"device": "phone", "age": 20.0, "returning": True, "city": "Bern"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": None}, "age: expected a value, because the feature declares no default, got None"),
        ({"age": math.nan}, "age: expected a value, because the feature declares no default"),
        ({"device": None}, "device: expected a value"),
        ({"age": "20"}, "age: expected a finite number, got '20'"),
        ({"age": True}, "age: expected a finite number, got True"),
        ({"age": math.inf}, "age: expected a finite number, got inf"),
        ({"age": Decimal(20)}, "age: expected a finite number, got Decimal"),
        ({"returning": "yes"}, "returning: expected True or False, got 'yes'"),
        ({"returning": 2}, "returning: expected True or False, got 2"),
        ({"device": True}, "device: expected text or a whole number of at most 64 bits, got True"),
        ({"device": 1.5}, "device: expected text or a whole number"),
        ({"city": 2.0**64}, "city: expected text or a whole number"),
        ({"city": b"Bern"}, "city: expected text or a whole number"),
    ],
)
def test_values_that_are_missing_or_of_the_wrong_type_are_refused(change, message) -> None:
    counts = Counter[tuple[str, str]]()
    with pytest.raises(InvalidValue, match=f"^{message}"):
        EXAMPLE.encode({**GOOD, "device": "watch", **change}, counts)
    assert not counts
    frame = pa.Table.from_pylist([{**GOOD, "device": "watch", **change}])
    with pytest.raises(InvalidValue, match=f"^frame: row 0: {message}"):
        EXAMPLE.encode_frame(frame, counts)
    assert not counts


def test_values_that_no_frame_has_are_refused_too() -> None:
    for value in (10**400, [1], {}, object(), pd.NA):
        for name in GOOD:
            with pytest.raises(InvalidValue, match=f"^{name}: expected"):
                EXAMPLE.encode({**GOOD, name: value})
    with pytest.raises(InvalidValue, match="city: expected text or a whole number"):
        EXAMPLE.encode({**GOOD, "city": 10**5000})


def test_errors_in_frames_name_the_first_row() -> None:
    frame = pd.DataFrame([GOOD, GOOD, GOOD])
    for name, values, message in (
        ("age", [1.0, math.nan, math.nan], "frame: row 1: age: expected a value"),
        ("age", [1.0, 2.0, math.inf], "frame: row 2: age: expected a finite number"),
        ("device", ["x", None, None], "frame: row 1: device: expected a value"),
        ("city", ["x", "y", None], "frame: row 2: city: expected a value"),
    ):
        with pytest.raises(InvalidValue, match=f"^{message}"):
            EXAMPLE.encode_frame(frame.assign(**{name: values}))
    with pytest.raises(InvalidValue, match=r"^frame: row 1: speed: expected text or a whole number"):
        LENIENT.encode_frame(frame.assign(speed=[1.0, 2.5, 3.5]))
    with pytest.raises(InvalidValue, match=r"^frame: row 0: age: expected a value"):
        EXAMPLE.encode_frame(frame.drop(columns="age"))


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"feature: unknown name 'devise'\. Did you mean 'device'\?"):
        EXAMPLE.encode({"devise": "phone", "age": 20, "returning": True, "city": "Bern"})
    with pytest.raises(UnknownName, match=r"frame: column: unknown name 'devise'\. Did you mean 'device'\?"):
        EXAMPLE.encode_frame(pd.DataFrame([{**GOOD, "devise": 1}]))
    with pytest.raises(UnknownName, match="feature: unknown name '7'"):
        EXAMPLE.encode({**GOOD, 7: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "frame",
    [
        [GOOD],
        None,
        "frame",
        pd.DataFrame({"age": [1, "x"]}),
        pa.table([pa.array([1]), pa.array([2])], names=["age", "age"]),
        pd.DataFrame({"device": [["phone"]]}),
    ],
)
def test_other_frames_are_refused(frame) -> None:
    with pytest.raises(InvalidValue, match="frame"):
        LENIENT.encode_frame(frame)


def test_a_lazy_frame_that_cannot_be_collected_is_refused() -> None:
    frame = pl.DataFrame({"device": ["phone"]}).lazy().with_columns(pl.col("missing"))
    with pytest.raises(InvalidValue, match="frame: expected a lazy frame that can be collected"):
        LENIENT.encode_frame(frame)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"age": 5},
            r"features\['age'\]: expected a range \(low, high\), a list of levels, bool, hashed\(m\)",
        ),
        ({"age": "number"}, r"features\['age'\]: expected a range"),
        ({"age": int}, r"features\['age'\]: expected a range"),
        ({"age": (90, 18)}, r"features\['age'\]: range: expected low < high"),
        ({"age": (1, 1)}, r"range: expected low < high"),
        ({"age": (0, math.inf)}, "high: expected a finite number, got inf"),
        ({"age": (-1.7e308, 1.7e308)}, "range: expected low < high, with a finite difference"),
        ({"age": (True, 2)}, "low: expected a finite number"),
        ({"device": []}, "levels: expected at least one level, each once"),
        ({"device": ["a", "a"]}, "levels: expected at least one level, each once"),
        ({"device": [1, "1"]}, "levels: expected at least one level, each once"),
        ({"device": ["a", None]}, "level: expected text or a whole number"),
        ({"device": ["(other)"]}, "expected features whose columns have different names, got 'device="),
        ({"intercept": bool}, "features whose columns have different names, got 'intercept'"),
        ({"": bool}, "features: expected names that are not empty"),
        ({1: bool}, "features: expected names that are not empty"),
        (["age"], "features: expected a mapping of names to types"),
        ({"city": hashed(1000)}, r"at most 256 columns \(max_dimension\).*got 1001"),
    ],
)
def test_declarations_are_checked(declared, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        Features(declared)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: number(0, 1, default=2), "default: expected a number from 0.0 to 1.0, got 2"),
        (lambda: number(0, 1, default="x"), "default: expected a finite number"),
        (lambda: flag(default="x"), "default: expected True or False"),
        (lambda: category(["a"], default=True), "default: expected text"),
        (lambda: category("abc"), "levels: expected a list of levels, got 'abc'"),
        (lambda: category(7), "levels: expected a list of levels"),
        (lambda: hashed(0), "buckets: expected a whole number >= 1"),
        (lambda: hashed(2.0), "buckets: expected a whole number >= 1"),
        (lambda: hashed(True), "buckets: expected a whole number >= 1"),
        (lambda: hashed(2, default=1.5), "default: expected text"),
    ],
)
def test_types_are_checked(make, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        make()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"crosses": [("a", "N")]}, UnknownName, "crosses: feature: unknown name 'N'. Did you mean 'n'?"),
        ({"crosses": ["an"]}, InvalidValue, "crosses: expected pairs of feature names"),
        ({"crosses": [("a", "n", "n")]}, InvalidValue, "crosses: expected pairs of feature names"),
        ({"crosses": [("a", "n"), ("n", "a")]}, InvalidValue, "crosses: expected each pair once"),
        ({"crosses": [("a", "a")]}, InvalidValue, "two different features, or a number with itself"),
        ({"crosses": [(["a"], "n")]}, UnknownName, "crosses"),
        ({"rest": 32}, InvalidValue, r"rest: expected hashed\(m\), or None, got 32"),
        ({"rest_crosses": hashed(2)}, InvalidValue, r"rest_crosses: expected hashed\(m\) next to rest="),
        ({"rest": hashed(2), "rest_crosses": 2}, InvalidValue, r"rest_crosses: expected hashed\(m\)"),
        ({"intercept": 1}, InvalidValue, "intercept: expected True or False"),
        ({"max_dimension": 3}, InvalidValue, "at most 3 columns"),
    ],
)
def test_options_are_checked(options, error, message) -> None:
    with pytest.raises(error, match=message):
        Features({"a": ["x"], "n": (0, 1)}, **options)


def test_there_is_at_least_one_column() -> None:
    assert Features({}).encode({}).tolist() == [1.0]
    with pytest.raises(InvalidValue, match="at least one feature, or an intercept"):
        Features({}, intercept=False)


def test_long_and_short_forms_are_equal() -> None:
    types = {"device": category(("phone", "desktop")), "age": number(18.0, 90), "returning": flag()}
    long = Features({**types, "city": hashed(32)}, crosses=[("device", "age")], max_dimension=41)
    assert long == EXAMPLE
    assert Features({"a": ("x", "y")}) == Features({"a": ["x", "y"]})
    assert number(np.int64(1), np.float32(2), default=np.int64(1)) == number(1, 2, default=1)
    assert hash(Features({"a": bool})) == hash(Features({"a": flag()}))


@pytest.mark.parametrize(
    "other",
    [
        Features({"a": ["x"], "n": (0, 2)}),
        Features({"n": (0, 1), "a": ["x"]}),
        Features({"a": ["x"], "n": (0, 1)}, intercept=False),
        Features({"a": ["x"], "n": (0, 1)}, crosses=[("a", "n")]),
        Features({"a": ["x"], "n": (0, 1)}, rest=hashed(2)),
        Features({"a": ["x"], "n": (0, 1)}, rest=hashed(2), rest_crosses=hashed(2)),
        Features({"a": ["x"], "n": number(0, 1, default=0)}),
        Features({"a": ["x"]}),
        "features",
    ],
)
def test_other_declarations_are_not_equal(other) -> None:
    assert Features({"a": ["x"], "n": (0, 1)}) != other


@pytest.mark.parametrize("features", [EXAMPLE, LENIENT, CROSSED, Features({})], ids=repr)
def test_json_and_pickle_round_trip(features) -> None:
    for twin in (
        Features.from_json(features.to_json()),
        pickle.loads(pickle.dumps(features)),
        copy.deepcopy(features),
    ):
        assert twin == features
        assert hash(twin) == hash(features)
        assert twin.to_json() == features.to_json()
        assert twin.names == features.names
        if features.types:
            assert twin.encode(GOOD).tobytes() == features.encode(GOOD).tobytes()


def test_stored_features_may_exceed_the_default_limit() -> None:
    large = Features({"city": hashed(1000)}, max_dimension=2000)
    assert Features.from_json(large.to_json()) == large
    with pytest.raises(InvalidValue, match="at most 500 columns"):
        Features.from_json(large.to_json(), max_dimension=500)


DATA = json.loads(LENIENT.to_json())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        None,
        json.dumps({**DATA, "version": 3}),
        json.dumps({**DATA, "features": {}}),
        json.dumps({**DATA, "features": [7]}),
        json.dumps({**DATA, "features": DATA["features"][:1] * 2}),
        json.dumps({**DATA, "features": [{"name": "a", "type": "unknown"}]}),
        json.dumps({**DATA, "features": [{"name": "a", "type": []}]}),
        json.dumps({**DATA, "features": [{"name": "a", "type": "flag", "low": 1}]}),
        json.dumps({**DATA, "features": [{"name": "a", "type": "number"}]}),
        json.dumps({**DATA, "crosses": None}),
        json.dumps({**DATA, "crosses": [7]}),
        json.dumps({**DATA, "intercept": None}),
        json.dumps({**DATA, "rest": {"type": "flag"}}),
        json.dumps({**DATA, "rest": 7}),
        json.dumps({**DATA, "rest": None, "rest_crosses": {"type": "hashed", "buckets": 2}}),
        json.dumps({**DATA, "pairs": None}),
    ],
)
def test_other_json_is_refused(text) -> None:
    with pytest.raises(InvalidValue):
        Features.from_json(text)


def test_an_appended_feature_keeps_the_earlier_columns_in_front() -> None:
    old = Features({"device": ["phone"], "age": (18, 90)})
    new = Features({"device": ["phone"], "age": (18, 90), "new": bool}, crosses=[("device", "age")])
    assert new.extends(old)
    assert old.extends(old)
    assert not old.extends(new)
    assert new.names[: old.dimension] == old.names
    context = {"device": "phone", "age": 30}
    assert new.encode({**context, "new": True})[: old.dimension].tolist() == old.encode(context).tolist()


def test_with_crosses_positions_say_where_the_earlier_columns_are() -> None:
    declared = {"device": ["phone"], "age": (18, 90)}
    old = Features(declared, crosses=[("device", "age")])
    new = Features({**declared, "new": bool}, crosses=[("device", "age"), ("new", "age")])
    assert not new.extends(old)
    positions = new.positions(old)
    assert [new.names[place] for place in positions] == list(old.names)
    context = {"device": "watch", "age": 30}
    assert new.encode({**context, "new": True})[positions].tolist() == old.encode(context).tolist()
    more_crosses = Features(declared, crosses=[("device", "age"), ("age", "age")])
    assert more_crosses.extends(old)


@pytest.mark.parametrize(
    "new",
    [
        Features({"device": ["phone", "watch"]}, rest=hashed(2)),  # "other" means something else
        Features({"device": category(["phone"], default="phone")}, rest=hashed(2)),
        Features({"device": ["phone"], "age": (0, 1)}, rest=hashed(2)),  # the rest means something else
        Features({"device": ["phone"]}, rest=hashed(3)),
        Features({"device": ["phone"]}, rest=hashed(2), intercept=False),
        Features({"gadget": ["phone"]}, rest=hashed(2)),
    ],
)
def test_a_changed_feature_is_no_extension(new) -> None:
    old = Features({"device": ["phone"]}, rest=hashed(2))
    assert not new.extends(old)
    with pytest.raises(InvalidValue, match="features: expected a column that means the same as '"):
        new.positions(old)


def test_the_text_of_features_fits_on_a_line() -> None:
    assert (
        repr(EXAMPLE) == "Features(device: category, age: number, returning: flag, city: hashed; 41 columns)"
    )
    many = Features({f"flag {i}": bool for i in range(100)})
    assert repr(many).endswith("flag 3: flag, ... 100 features; 101 columns)")
    assert len(repr(many)) <= 110


def test_importing_features_imports_no_library_of_frames() -> None:
    code = (
        "import sys, maillard; assert 'maillard.features' not in sys.modules; "
        "maillard.Features({'a': bool}).encode({'a': True}); "
        "print([name for name in ('pandas', 'polars', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
