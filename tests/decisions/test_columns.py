"""Logs as columns: equal from rows, files and data frames; selections; invalid rows are named in errors."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maillard.decisions.columns import Columns
from maillard.decisions.files.obp import to_obp
from maillard.decisions.files.table_columns import places_of
from maillard.decisions.opening import read_log, write_log
from maillard.decisions.stores.memory import MemoryStore
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import InvalidValue, MaillardError, UnknownName
from tests.decisions.test_log_files import RULES, Clock, run_random_experiment


def joined(log) -> dict[str, Any]:
    """The columns of a log, as one array each."""
    parts = list(log.columns())
    found = {}
    for field in dataclasses.fields(Columns):
        values = [getattr(part, field.name) for part in parts]
        if field.name == "eligible":
            values = [
                np.ones((len(p), len(log.arms)), bool) if v is None else v
                for p, v in zip(parts, values, strict=True)
            ]
        if field.name == "unit":
            values = [np.full(len(p), None) if v is None else v for p, v in zip(parts, values, strict=True)]
        found[field.name] = None if values[0] is None else np.concatenate(values)
    return found


def assert_same_columns(one, other) -> None:
    for name, values in joined(one).items():
        if name == "late_reward":  # only stores have it
            continue
        np.testing.assert_array_equal(values, joined(other)[name], err_msg=name)


@pytest.fixture(params=RULES)
def recorded(request):
    """The log of a random experiment."""
    clock = Clock()
    store = MemoryStore(clock)
    run_random_experiment(store, clock, RULES[request.param], seed=len(request.param), sticky=True)
    return read_log(store)


def test_columns_agree_with_rows(recorded) -> None:
    columns, rows = joined(recorded), list(recorded.rows())
    assert columns["arm"].tolist() == [recorded.arms.index(row.decision.arm) for row in rows]
    assert columns["log_probability"].tolist() == [row.decision.log_probability for row in rows]
    rewards = [recorded.reward_of(row) for row in rows]
    assert [None if np.isnan(each) else each for each in columns["reward"]] == rewards
    for log_p, eligible, row in zip(columns["log_probabilities"], columns["eligible"], rows, strict=True):
        probabilities = {
            arm: p for arm, p, e in zip(recorded.arms, np.exp(log_p), eligible, strict=True) if e
        }
        assert probabilities == {arm: np.exp(np.log(p) if p else -np.inf) for arm, p in probabilities.items()}
        assert set(probabilities) == set(row.decision.eligible)
        np.testing.assert_allclose(
            [probabilities[arm] for arm in row.decision.eligible], list(row.decision.probabilities.values())
        )
    assert columns["repeated"].any()
    assert not columns["repeated"].all()


def test_files_and_frames_have_the_same_columns(recorded, tmp_path) -> None:
    write_log(recorded, tmp_path / "log.parquet")
    write_log(recorded, tmp_path / "log.csv")
    opened = read_log(tmp_path / "log.parquet")
    assert opened.column_parts
    for other in (
        opened,
        read_log(tmp_path / "log.csv"),
        read_log(recorded.to_arrow()),
        read_log(recorded.to_pandas()),
    ):
        assert_same_columns(recorded, other)
    # The arms of a foreign log are in the order in which they appear.
    foreign = read_log(recorded.to_polars())
    assert sorted(foreign.arms) == sorted({arm for row in recorded.rows() for arm in row.decision.eligible})
    assert joined(foreign)["log_probability"].tolist() == joined(recorded)["log_probability"].tolist()


def test_an_obp_dict_has_the_columns_of_its_rows(recorded) -> None:
    opened = read_log(to_obp(recorded))
    rewarded = ~np.isnan(joined(recorded)["reward"])
    if recorded.reward.window is not None:  # rewards that are not final yet are not written
        rewarded &= joined(recorded)["closed"]
    for name in ("arm", "reward", "repeated"):
        assert joined(opened)[name].tolist() == joined(recorded)[name][rewarded].tolist()
    np.testing.assert_allclose(
        joined(opened)["log_probability"], joined(recorded)["log_probability"][rewarded], atol=1e-14
    )
    rows = list(opened.rows())
    assert joined(opened)["arm"].tolist() == [int(opened.arms.index(row.decision.arm)) for row in rows]


def test_a_selection_has_the_rows_of_its_period_units_and_epochs(recorded, tmp_path) -> None:
    write_log(recorded, tmp_path / "log.parquet")
    rows = list(recorded.rows())
    times = sorted(row.decision.time for row in rows)
    unit = next(row.decision.unit for row in rows if row.decision.unit)
    since, until = from_microseconds(times[20]), from_microseconds(times[60])
    for kwargs, wanted in (
        ({"since": since, "until": until}, lambda d: times[20] <= d.time < times[60]),
        ({"unit": unit}, lambda d: d.unit == unit),
        ({"unit": [unit, "unknown"], "epoch": 1}, lambda d: d.unit == unit and d.epoch == 1),
        ({"epoch": [2, 3]}, lambda d: d.epoch in (2, 3)),
    ):
        expected = [row for row in rows if wanted(row.decision)]
        for part in (recorded.select(**kwargs), read_log(tmp_path / "log.parquet", **kwargs)):
            assert list(part.rows()) == expected
            assert sum(len(some) for some in part.columns()) == len(expected)
            assert part.arms == recorded.arms
            with pytest.raises(MaillardError, match="from a part of a log"):
                part.final_state()
    assert recorded.select() is recorded
    with pytest.raises(InvalidValue, match="after since"):
        recorded.select(since=until, until=since)
    with pytest.raises(InvalidValue, match="epoch"):
        recorded.select(epoch=-1)


def test_columns_with_other_names_can_be_mapped(tmp_path) -> None:
    frame = pd.DataFrame(
        {
            "when": [datetime(2026, 1, 1, tzinfo=UTC)] * 3,
            "item_id": [2, 0, 2],
            "click": [0, 1, 0],
            "propensity_score": [0.5, 0.25, 0.5],
            "reward": ["not", "this", "one"],
        }
    )
    names = {"arm": "item_id", "reward": "click", "probability": "propensity_score", "time": "when"}
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    for source in (frame, tmp_path / "a.parquet", tmp_path / "a.csv"):
        log = read_log(source, columns=names)
        assert log.arms == ("0", "1", "2")
        found = joined(log)
        assert found["arm"].tolist() == [2, 0, 2]
        assert found["reward"].tolist() == [0, 1, 0]
        assert np.exp(found["log_probability"]).tolist() == [0.5, 0.25, 0.5]
        with pytest.raises(
            InvalidValue, match=r"^(?!frame).*columns: expected a table with .* 'item' for arm"
        ):
            read_log(source, columns=names | {"arm": "item"})
        with pytest.raises(UnknownName, match="Did you mean"):
            read_log(source, columns={"arms": "item_id"})
    with pytest.raises(InvalidValue, match="columns to rename"):
        read_log(
            {"action": np.array([0]), "reward": np.array([0.0]), "pscore": np.array([1.0])}, columns=names
        )


def test_a_folder_of_files_is_one_log(tmp_path) -> None:
    for number in range(3):
        table = pa.table(
            {"arm": [f"a{number}", "b"], "probability": [0.5, 0.5], "reward": [1.0, float(number)]}
        )
        pq.write_table(table, tmp_path / f"part-{number}.parquet")
    for source in (tmp_path, sorted(tmp_path.glob("*.parquet"))):
        log = read_log(source)
        assert log.arms == ("a0", "b", "a1", "a2")
        assert joined(log)["reward"].tolist() == [1, 0, 1, 1, 1, 2]
        assert joined(log)["row"].tolist() == [1, 2, 3, 4, 5, 6]
    pq.write_table(pa.table({"arm": ["x"], "p": [1.0]}), tmp_path / "part-9.parquet")
    with pytest.raises(InvalidValue, match=r"part-9.parquet: columns"):
        read_log(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidValue, match=r"folder with \.parquet files"):
        read_log(tmp_path / "empty")


BAD = {
    "probability": ({"probability": [0.5, 0.0]}, "row 2: probability: expected a number > 0"),
    "over one": ({"probability": [0.5, 1.5]}, "row 2: probability"),
    "NaN": ({"probability": [float("nan"), 0.5]}, "row 1: probability"),
    "reward": ({"reward": [1.0, float("nan")]}, "row 2: reward: expected a finite number"),
    "infinite": ({"reward": [1.0, float("inf")]}, "row 2: reward"),
    "no arm": ({"arm": ["red", None]}, "row 2: arm"),
    "text": ({"reward": ["one", "two"]}, "reward: expected values of type double"),
    "not one": (
        {"eligible": [["red", "blue"]] * 2, "log_probabilities": [np.log([0.5, 0.5]), np.log([0.7, 0.2])]},
        "row 2: log_probability",
    ),
    "sum": (
        {"eligible": [["red", "blue"]] * 2, "log_probabilities": [np.log([0.5, 0.5]), np.log([0.2, 0.5])]},
        "row 2: log_probabilities: expected probabilities with sum 1, got 0.7",
    ),
    "lengths": (
        {"eligible": [["red", "blue"]] * 2, "log_probabilities": [np.log([0.5, 0.5]), [0.0]]},
        "row 2: log_probabilities",
    ),
    "not eligible": ({"eligible": [["red", "blue"], ["red"]]}, "row 2: eligible"),
    "backwards": ({"state": [5, 4]}, "row 2: state"),
}


@pytest.mark.parametrize("what", BAD)
def test_the_error_of_an_invalid_table_names_the_row(what, tmp_path) -> None:
    change, message = BAD[what]
    table = {"arm": ["red", "blue"], "probability": [0.5, 0.5], "reward": [1.0, 0.0]}
    good, bad = pa.table(table), pa.table(table | change)
    assert len(joined(read_log(good))["arm"]) == 2
    pq.write_table(bad, tmp_path / "bad.parquet")
    for source in (bad, tmp_path / "bad.parquet"):
        with pytest.raises(InvalidValue) as caught:
            list(read_log(source).columns())
        assert message in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("pscore", 0.0), ("pscore", 2.0), ("reward", np.nan)])
def test_the_error_of_an_invalid_dict_names_the_round(name, value) -> None:
    feedback = {"action": np.array([0, 1]), "reward": np.array([1.0, 0.0]), "pscore": np.array([0.5, 0.5])}
    feedback[name][1] = value
    with pytest.raises(InvalidValue, match="round 1"):
        list(read_log(feedback).columns())


def test_a_filter_keeps_the_order_of_matrices() -> None:
    rng = np.random.default_rng(1)
    logs = np.log(rng.dirichlet(np.ones(3), 50))
    arm = rng.integers(0, 3, 50)
    table = {
        "arm": [f"a{each}" for each in arm],
        "log_probability": logs[np.arange(50), arm],
        "eligible": [["a0", "a1", "a2"]] * 50,
        "log_probabilities": list(logs),
        "unit": [None if each % 3 else f"u{each}" for each in range(50)],
    }
    (columns,) = read_log(pa.table(table)).columns()
    mask = rng.random(50) < 0.5
    chosen = columns.filter(mask)
    for field in dataclasses.fields(Columns):
        value, kept = getattr(columns, field.name), getattr(chosen, field.name)
        if value is None:
            assert kept is None
        else:
            np.testing.assert_array_equal(kept, value[mask], err_msg=field.name)
    assert chosen.log_probabilities is not None
    assert chosen.log_probabilities.flags.f_contiguous
    np.testing.assert_allclose(chosen.probabilities, np.exp(logs[mask]))


ARMS_BY_NUMBER = {
    "indices": ([2, 0, 1], pa.int16(), ["0", "1", "2"], [2, 0, 1]),
    "unknown numbers": ([2, 3, -1], pa.int64(), ["0", "1", "2"], [2, -1, -1]),
    "nulls": ([2, None, 1], pa.int8(), ["0", "1", "2"], [2, -1, 1]),
    "other names": ([17, 4, 4], pa.int32(), ["4", "17"], [1, 0, 0]),
    "another order": ([1, 0, 1], pa.int32(), ["1", "0"], [0, 1, 0]),
    "large numbers": ([0, 2**63, 1], pa.uint64(), ["0", "1"], [0, -1, 1]),
}


@pytest.mark.parametrize("what", ARMS_BY_NUMBER)
def test_the_index_of_an_arm_that_is_a_number(what) -> None:
    numbers, kind, arms, expected = ARMS_BY_NUMBER[what]
    for times in (1, 200):  # few rows, and many
        found = places_of(pa.array(numbers * times, kind), pa.array(arms))
        assert found.tolist() == expected * times
    assert places_of(pa.array([], kind), pa.array([], pa.string())).tolist() == []


@pytest.mark.parametrize("index", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_the_index_of_an_arm_in_a_dictionary(index) -> None:
    names, arms = ["c", "b", "a", "unknown"], pa.array(["a", "b", "c"])
    for codes in ([0, 2, 1, 3, 1], [0, None, 3, 1], [None], []):
        column = pa.DictionaryArray.from_arrays(pa.array(codes, index), pa.array(names))
        expected = [{"a": 0, "b": 1, "c": 2}.get(name, -1) for name in column.to_pylist()]
        assert places_of(column, arms).tolist() == expected
        assert places_of(column[1:], arms).tolist() == expected[1:]
