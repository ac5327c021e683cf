"""Specs: text such as "ms+:booster=8" is parsed and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maillard import InvalidValue, specs

KEYS = st.text(min_size=1, max_size=8)
NAMES = st.from_regex(r"[a-z][a-z0-9+-]{0,8}", fullmatch=True)
NUMBERS = st.one_of(
    st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
TEXTS = st.text(min_size=1, max_size=8)  # arbitrary text; special characters are quoted
VECTORS = st.lists(st.floats(0, 1), min_size=1, max_size=4).map(tuple)


@given(
    NAMES,
    st.dictionaries(KEYS, st.one_of(NUMBERS, TEXTS, VECTORS), max_size=4),
    st.lists(st.one_of(NUMBERS, TEXTS), max_size=3),
)
def test_specs_round_trip(name, options, values) -> None:
    text = specs.write(specs.Spec(name, tuple(values), options))
    back = specs.read(text)
    assert back == (name, tuple(values), options)
    assert specs.write(back) == text


def test_values_are_parsed_to_their_types() -> None:
    options = specs.read("x: a = 1 , b=1e-3,c=true,d=0..1,e=-1.5..2e3,f=word,g=0.1/0.2").options
    assert options == {
        "a": 1,
        "b": 1e-3,
        "c": True,
        "d": (0.0, 1.0),
        "e": (-1.5, 2000.0),
        "f": "word",
        "g": (0.1, 0.2),
    }
    assert specs.read("bernoulli:0.1,0.05") == ("bernoulli", (0.1, 0.05), {})


def test_a_value_without_a_key() -> None:
    assert specs.read("ms+:booster").values == ("booster",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "ms:",
        "MS",
        "ms x",
        "ms:=3",
        "ms:a=",
        "ms:a=1,a=2",
        "ms:a=1,,b=2",
        "ms:a=1,5",
        "1ms",
        "ms:'a",
        "ms:a='b",
        None,
        3,
    ],
)
def test_malformed_specs_are_rejected(text) -> None:
    with pytest.raises(InvalidValue, match="spec"):
        specs.read(text)
