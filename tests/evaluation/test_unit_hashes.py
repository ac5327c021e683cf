"""Hashes of units and the compiled sums by hash, against plain Python."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from maillard import simulate_log
from maillard.evaluation import unit_sums
from maillard.evaluation.evaluation_log import open_log
from maillard.evaluation.log_sums import rows_by_target
from maillard.evaluation.moments import sums_by_unit
from maillard.evaluation.query import Query
from maillard.evaluation.settings import Settings
from maillard.evaluation.unit_hashes import sums_by_hash, unit_hashes
from maillard.evaluation.unit_sums import UnitSums
from maillard.evaluation.weighted_rows import WeightedRows

NAMES = {
    "plain": ["user 1", "user 2", "", "user 1", "a much longer name of a unit: " + "x" * 300],
    "not ASCII": ["Zoë", "Zoe", "日本", "😀"],
    "with the separator": ["a\0b", "a", "b", "\0", ""],
    "half of a surrogate pair": ["\ud83d", "?"],
    "none": [],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_a_hash_ends_in_the_crc_of_the_name(names) -> None:
    hashes = unit_hashes(names)
    assert hashes.min(initial=0) >= 0
    assert (hashes % 2**32).tolist() == [zlib.crc32(name.encode(errors="replace")) for name in names]


def test_different_names_have_different_hashes() -> None:
    rng = random.Random(1)
    names = [f"user {i}" for i in range(200_000)] + [f"{rng.getrandbits(64):016x}" for _ in range(300_000)]
    hashes = unit_hashes(names)
    assert np.unique(hashes).size == len(names)
    assert np.unique(hashes % 2**32).size < len(names), "32 bits alone are not enough"


def informative_rows(rows: int) -> WeightedRows:
    settings = Settings()
    log = simulate_log("ms+:floor=0.1", "bernoulli:0.6,0.4", horizon=rows + 2, seed=3)
    with open_log(log, settings) as opened:
        query = Query.of(opened, ["arm:1"], ["ips"], settings)
        return rows_by_target(next(iter(opened.columns())), opened, query)[0][0][0]


def test_sums_by_hash_equal_sums_by_unit() -> None:
    rng = np.random.default_rng(2)
    units = np.array([f"user {i}" for i in rng.integers(0, 3000, 8000)], np.object_)
    terms = rng.normal(size=(8000, 4))
    expected = sums_by_unit(terms.T, units)
    hashes, sums = sums_by_hash(unit_hashes(units.tolist()), terms)
    assert hashes.tolist() == unit_hashes(list(expected)).tolist(), "in the order in which they occur"
    np.testing.assert_allclose(sums, np.array(list(expected.values()))[:, 1:], rtol=1e-12)


@pytest.mark.parametrize("most", [50, 20_000])
def test_the_sample_is_that_of_plain_python(most, monkeypatch) -> None:
    monkeypatch.setattr(unit_sums, "_MAX_UNITS", most)
    rng, rows = np.random.default_rng(4), informative_rows(6000)
    units = np.array([f"user {i}" for i in rng.integers(0, 700, len(rows))], np.object_)
    units[rng.random(len(rows)) < 0.1] = None
    known = np.array([unit is not None for unit in units])
    w, r = rows.weight[known], rows.reward[known] - rows.center
    terms = [w, w * r, w * w, w * w * r, (w * r) ** 2, r, r * r]
    expected = sums_by_unit(np.stack(terms), units[known])
    bits = 0
    while len(expected) > most:
        bits += 1
        expected = {unit: each for unit, each in expected.items() if zlib.crc32(unit.encode()) % 2**bits == 0}
    assert bool(bits) == (most == 50)
    first = np.arange(len(rows)) < 2500
    whole = UnitSums.of(rows, units)
    merged = UnitSums.of(rows.filter(first), units[first]) + UnitSums.of(rows.filter(~first), units[~first])
    for found in (whole, merged):
        assert found.bits == bits
        assert found.hashes.tolist() == unit_hashes(list(expected)).tolist()
        np.testing.assert_allclose(found.sums, np.array(list(expected.values())), rtol=1e-12)
        assert found.design_effect() == pytest.approx(whole.design_effect(), rel=1e-12)


def test_rows_without_units() -> None:
    rows = informative_rows(100)
    nothing = UnitSums.of(rows, np.full(len(rows), None, np.object_))
    assert nothing.design_effect() is None
    assert (nothing + nothing).hashes.size == 0
