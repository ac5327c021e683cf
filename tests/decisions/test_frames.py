"""Rewards from data frames, tables and mappings, whose libraries are not imported to detect the type."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from maillard.decisions import Bandit, Reward
from maillard.decisions.frames import library_of, records_of
from maillard.decisions.opening import read_log
from maillard.errors import InvalidValue, UnknownName

NOON = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
COLUMNS = {"decision": ["a", "b"], "value": [1.0, 0.5], "at": [NOON, None], "event": [None, "click"]}
EXPECTED = [
    {"decision": "a", "value": 1.0, "at": NOON},
    {"decision": "b", "value": 0.5, "event": "click"},
]


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).astype({"at": "datetime64[ns, UTC]"}),
        pd.DataFrame(COLUMNS).astype({"event": "string", "decision": "category"}),
        pl.DataFrame(COLUMNS),
        pl.LazyFrame(COLUMNS),
        pa.table(COLUMNS),
        pa.table(COLUMNS).cast(
            pa.schema(
                {
                    "decision": pa.large_string(),
                    "value": pa.float32(),
                    "at": pa.timestamp("ns", tz="UTC"),
                    "event": pa.string(),
                }
            )
        ),
        pa.RecordBatch.from_pydict(COLUMNS),
        EXPECTED,
        iter(EXPECTED),
        [
            {"decision": np.str_("a"), "value": np.float32(1), "at": NOON, "event": float("nan")},
            {"decision": "b", "value": np.float64(0.5), "at": np.datetime64("NaT"), "event": "click"},
        ],
        [
            {"decision": "a", "value": 1, "at": pd.Timestamp(NOON), "event": pd.NA},
            {"decision": "b", "value": 0.5, "at": pd.NaT, "event": np.str_("click")},
        ],
    ],
    ids=lambda rows: type(rows).__module__ + "." + type(rows).__name__,
)  # fmt: skip
def test_every_type_of_table_gives_the_same_records(rows) -> None:
    records = list(records_of(rows))
    assert records == EXPECTED
    assert type(records[0]["at"]) is datetime
    assert records[0]["at"].tzinfo is not None


def test_nanoseconds_are_dropped_without_a_warning() -> None:
    frame = pd.DataFrame(
        {"decision": ["a"], "value": [1], "at": [pd.Timestamp("2026-01-01T00:00:00.123456789Z")]}
    )
    (row,) = records_of(frame)
    assert row["at"] == datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert row["value"] == 1


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, pa.table, lambda columns: [dict.fromkeys(columns, 1)]]
)
def test_an_unknown_column_is_an_error(make) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'decision'"):
        list(records_of(make({"decisionid": ["a"], "value": [1.0]})))


@pytest.mark.parametrize("rows", ["text", 7, None, {"decision": ["a"], "value": [1]}, ["a"], [("a", 1)]])
def test_rows_that_are_not_a_table_are_refused(rows) -> None:
    with pytest.raises(InvalidValue, match="mapping"):
        list(records_of(rows))


def test_duplicate_columns_are_refused() -> None:
    frame = pd.DataFrame([["a", "b", 1.0]], columns=["decision", "decision", "value"])
    with pytest.raises(InvalidValue, match="each column once"):
        list(records_of(frame))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_rewards_of_a_frame_are_applied(make) -> None:
    bandit = Bandit(["red", "blue"], "ms", reward=Reward(low=0, high=1))
    ids = [decision.id for decision in bandit.choose(size=4)]
    now = datetime.now(UTC)
    frame = make({"decision": ids, "value": [1.0, 0.0, 1.0, 0.5], "at": [now, None, None, now]})
    assert bandit.rewards(frame) == ["applied"] * 4
    assert bandit.rewards(frame) == ["duplicate"] * 4
    assert bandit.tally.sums.sum() == 2.5
    naive = make({"decision": ids, "value": [0.0] * 4, "at": [datetime(2026, 1, 1)] * 4, "event": ["x"] * 4})
    with pytest.raises(InvalidValue, match=r"rows\[0\]: at: expected an aware datetime"):
        bandit.rewards(naive)


@pytest.mark.parametrize("how", ["to_arrow", "to_pandas", "to_polars"])
def test_a_log_is_converted_to_a_frame_and_back(how) -> None:
    bandit = Bandit(["red", "blue"], "ms", reward=Reward(low=0, high=1))
    for decision in bandit.choose(unit="user", size=5)[:3]:
        bandit.reward(decision.id, 1.0)
    log = read_log(bandit)
    frame = getattr(log, how)()
    assert library_of(frame) == how.removeprefix("to_").replace("arrow", "pyarrow")
    assert frame.shape == (5, 26)
    assert [row.decision for row in read_log(frame).rows()] == [row.decision for row in log.rows()]
    empty = getattr(read_log(Bandit(["a", "b"], "uniform")), how)()
    assert empty.shape == (0, 26)
    assert list(read_log(empty).rows()) == []


def test_no_library_is_imported_to_detect_the_type() -> None:
    code = """
import sys
from maillard.decisions.frames import library_of, records_of
assert library_of([1]) is None
assert list(records_of([{"decision": "a", "value": 1}]))
assert not {"pandas", "polars", "pyarrow"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    log = read_log(Bandit(["a", "b"], "uniform"))
    with pytest.raises(Exception, match=r"pip install 'maillard\[decisions\]'"):
        log.to_arrow()
