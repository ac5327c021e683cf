from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maillard import InvalidValue, specs

KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
NAMES = st.from_regex(r"[a-z][a-z0-9+-]{0,8}", fullmatch=True)
NUMBERS = st.one_of(
    st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
WORDS = st.from_regex(r"[a-z]{1,8}", fullmatch=True).filter(
    lambda w: w not in ("true", "false", "nan", "inf", "infinity")
)
SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=4).map(tuple)


@given(
    NAMES,
    st.dictionaries(KEYS, st.one_of(NUMBERS, WORDS, SHARES), max_size=4),
    st.lists(st.one_of(NUMBERS, WORDS), max_size=3),
)
def test_specs_round_trip(name, options, values) -> None:
    text = specs.write(name, options, tuple(values))
    back = specs.read(text)
    assert back == (name, tuple(values), options)
    assert specs.write(name, back.options, back.values) == text


def test_values_are_read_as_a_person_means_them() -> None:
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "ms:",
        "ms+:booster",
        "MS",
        "ms x",
        "ms:=3",
        "ms:a=",
        "ms:a=1,a=2",
        "ms:a=1,,b=2",
        "ms:a=1,5",
        "1ms",
        None,
        3,
    ],
)
def test_malformed_specs_are_refused(text) -> None:
    if text == "ms+:booster":  # well formed: a value without a key, which a policy then refuses
        assert specs.read(text).values == ("booster",)
        return
    with pytest.raises(InvalidValue, match="spec"):
        specs.read(text)
