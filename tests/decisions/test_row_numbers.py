"""Row numbers of foreign tables: skipped numbers are missing rows, numbers that occur twice are copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from maillard import compare, evaluate, replay, verify
from maillard.decisions.opening import read_log
from maillard.decisions.pipeline_audit import PipelineAudit
from maillard.decisions.row_numbers import RowNumbers, steps_of
from maillard.errors import CannotAnswer

ROWS = 2000
ALL = np.arange(ROWS)
RNG = np.random.default_rng(1)  # only for the constants of this module
ARM = RNG.integers(0, 2, ROWS)
REWARD = (RNG.random(ROWS) < 0.3).astype(np.float64)
AT_END = (ALL == 0) | (ALL == ROWS - 1)  # whether these rows are missing cannot be seen
KEPT = np.flatnonzero((REWARD > 0) | (RNG.random(ROWS) >= 0.2) | AT_END)  # a fifth of the zeros is removed
MISSING = ROWS - KEPT.size
COPIED = np.repeat(ALL, 1 + ((REWARD > 0) & (RNG.random(ROWS) < 0.2)))  # a fifth of the clicks occur twice


def table(rows: np.ndarray, numbers: Any = None, name: str = "row", **more: Any) -> pa.Table:
    """A log of two arms with constant probabilities, of these rows, with these numbers."""
    columns = {
        "arm": np.array(["a", "b"], object)[ARM[rows]],
        "probability": np.full(rows.size, 0.5),
        "reward": REWARD[rows],
    }
    return pa.table(columns | ({} if numbers is None else {name: numbers}) | more)


def with_distributions(given: pa.Table) -> pa.Table:
    """The table with the probabilities of all arms, which is not read by the compiled loop."""
    n = len(given)
    given = given.append_column("eligible", pa.array([["a", "b"]] * n))
    return given.append_column("log_probabilities", pa.array([[np.log(0.5)] * 2] * n))


def sources(given: pa.Table, folder: Path) -> list[Any]:
    """The table in all formats."""
    folder.mkdir(exist_ok=True)
    pq.write_table(given, folder / "log.parquet", row_group_size=300)
    pyarrow.csv.write_csv(given, folder / "log.csv")
    full = with_distributions(given)
    return [given, full, folder / "log.parquet", folder / "log.csv", given.to_pandas()]


def warnings(source: Any, **options: Any) -> list[str]:
    report = evaluate(source, "arm:a", ["snips"], adaptive=False, **options)
    assert not report.diagnostics.faults
    return [each for each in report.warnings if "row numbers" in each]


TEXT = f"the row numbers skip {MISSING:,} of {ROWS:,}: rows are missing. If they were removed because of"


@pytest.mark.parametrize("name", ["event_id", "row", "index", "sequence", "__index_level_0__"])
def test_a_column_with_a_usual_name(name) -> None:
    gaps, whole = (table(rows, rows + 10_000, name) for rows in (KEPT, ALL))
    assert warnings(gaps)[0].startswith(TEXT)
    assert not warnings(whole)


def test_removed_rows_leave_gaps(tmp_path) -> None:
    gaps, whole = (
        sources(table(rows, rows + 10_000, "id"), tmp_path / str(rows.size)) for rows in (KEPT, ALL)
    )
    for source in gaps:
        (found,) = warnings(source)
        assert found.startswith(TEXT)
        difference = compare(source, "arm:a", "arm:b")
        assert any(each.startswith(TEXT) for each in difference.warnings)
        verified = verify(source)
        assert verified.verdict != "broken"
        assert verified.notes[0].startswith(TEXT)
        for answer in (evaluate(source, "arm:a", adaptive=False, reward_range=(0, 1)), difference):
            assert answer.best is None
            assert all(
                "rows are missing" in each.caveat for each in answer.values() if each.value is not None
            )
    for source in whole:  # the control
        assert not warnings(source)
        assert evaluate(source, "arm:a", adaptive=False, reward_range=(0, 1)).best is not None
        assert compare(source, "arm:a", "arm:b").best is not None


def test_the_index_of_a_data_frame(tmp_path) -> None:
    """The index that is left after rows of a data frame were removed, in memory and in files."""
    frame = table(ALL).to_pandas()
    left = frame.iloc[KEPT]
    left.to_parquet(tmp_path / "log.parquet")
    left.to_csv(tmp_path / "log.csv")
    for source in (left, tmp_path / "log.parquet", tmp_path / "log.csv"):
        assert warnings(source)[0].startswith(TEXT)
    for source in (frame, left.reset_index(drop=True), left.set_axis([f"row {each}" for each in KEPT])):
        assert not warnings(source)
    assert not warnings(frame.set_axis(np.random.default_rng(2).permutation(ROWS)))


def test_a_column_that_the_caller_names(tmp_path) -> None:
    """Whether other columns have whole numbers, or ids are strings."""
    given = table(KEPT, KEPT, "n", row=ALL[: KEPT.size], id=[f"{each:x}-" for each in KEPT])
    for source in sources(given, tmp_path):
        assert not warnings(source)  # `row` has no gaps
        assert warnings(source, columns={"id": "n"})[0].startswith(TEXT)


@pytest.mark.parametrize("rows", [COPIED, np.repeat(ALL, 2)], ids=["clicks", "all"])
def test_numbers_that_occur_twice_are_copies(rows, tmp_path) -> None:
    for source in sources(table(rows, rows), tmp_path):
        for answer in (
            evaluate(source, "arm:a", ["snips"], adaptive=False),
            compare(source, "arm:a", "arm:b", ["snips"]),
        ):
            assert "some rows appear twice" in answer.refusals["snips"]
        found = verify(source)
        assert found.verdict == "broken"
        first = int(np.flatnonzero(np.diff(rows) == 0)[0]) + 2
        assert f"(row {first} looks like a copy of the row before it)" in found.problems[-1].what
        with pytest.raises(CannotAnswer, match="some rows appear twice"):
            replay(source, "ms+", reward_range=(0, 1))
    if rows.size < 2 * ROWS:  # the control: without numbers, a few copies cannot be found
        assert not evaluate(table(rows), "arm:a", ["snips"], adaptive=False).diagnostics.faults


def visits(*, by_visitor: bool) -> np.ndarray:
    """The numbers of the visits of 300 visitors, most of whom come a few times."""
    visitor = RNG.zipf(1.5, ROWS) % 300
    order = np.argsort(visitor, kind="stable")
    first = np.concatenate([[True], np.diff(visitor[order]) != 0])
    number = ALL - np.maximum.accumulate(np.where(first, ALL, 0)) + 1
    if by_visitor:
        return number
    found = np.empty(ROWS, np.int64)
    found[order] = number
    return found


def swapped() -> np.ndarray:
    """Every tenth row is logged after the next one."""
    numbers = ALL.copy()
    numbers[0:-1:10], numbers[1::10] = numbers[1::10].copy(), numbers[0:-1:10].copy()
    return numbers


HONEST = {
    "every fourth": 4 * ALL,
    "large stride": 1_000_003 * ALL + 7,
    "a random third": np.sort(RNG.choice(3 * ROWS, ROWS, replace=False)),
    "hashes": RNG.integers(-(2**63), 2**63, ROWS, np.int64),
    "unsigned hashes": RNG.integers(0, 2**64, ROWS, np.uint64),
    "visits by time": visits(by_visitor=False),
    "visits by visitor": visits(by_visitor=True),
    "swapped": swapped(),
    "four parts, each with its own numbers": ALL % (ROWS // 4),
    "four parts with distant numbers": ALL % (ROWS // 4) + ALL // (ROWS // 4) * 10**6,
    "slates of two": ALL // 2,
    "backwards": ALL[::-1].copy(),
    "arms": ARM,
    "constant": np.zeros(ROWS, np.int64),
    "with a missing number": pa.array([None if each % 7 == 3 else each for each in ALL.tolist()]),
    "large, consecutive": ALL + 2**60,
}
UNUSUAL = ["hashes", "unsigned hashes", "with a missing number", "large, consecutive"]


@pytest.mark.parametrize("name", HONEST)
def test_honest_numbers(name, tmp_path) -> None:
    """Numbers of correct logs, and of shards and samples of them.

    Files may give unusual numbers another type.
    """
    given = {"numbers": HONEST[name]}
    if name == "slates of two":
        given["position"] = ALL % 2
    log = table(ALL, **given)
    for source in sources(log, tmp_path) if name in UNUSUAL else [log, with_distributions(log)]:
        assert not warnings(source)
        assert verify(source).verdict != "broken"


def test_a_dense_sample_is_only_a_warning(tmp_path) -> None:
    """Whether 80% of the rows were chosen at random cannot be seen."""
    sample = np.sort(np.random.default_rng(2).choice(ROWS * 5 // 4, ROWS, replace=False))
    for source in sources(table(ALL, sample), tmp_path):
        (found,) = warnings(source)
        assert "rows are missing" in found


def test_numbers_are_those_of_the_whole_file(tmp_path) -> None:
    """Neither the rows of one experiment nor a selection have gaps because others are left out."""
    names = pa.array(np.array(["one", "two"], object)[(ALL % 5 == 0).astype(int)])
    times = pa.array(ALL * 1_000_000, pa.timestamp("us", tz="UTC"))
    units = pa.array([f"u{each % 10}" for each in ALL])
    for source in sources(table(ALL, ALL, experiment=names, time=times, unit=units), tmp_path):
        assert not warnings(source, experiment="one")
        assert not warnings(source, experiment="one", unit=[f"u{each}" for each in range(9)])
        assert not warnings(source, experiment="one", since=300)
    gaps = table(KEPT, KEPT, experiment=names.take(pa.array(KEPT)), time=times.take(pa.array(KEPT)))
    for source in sources(gaps, tmp_path):
        (found,) = warnings(source, experiment="one")
        assert "the row numbers skip" in found


def test_counts_of_batches_can_be_added_in_any_order() -> None:
    numbers = np.repeat(KEPT, 1 + (KEPT % 50 == 0))
    whole = RowNumbers.of(steps_of(numbers, None), ARM[numbers])
    assert (whole.missing, whole.copies) == (MISSING, numbers.size - KEPT.size)
    ends = np.sort(np.random.default_rng(2).choice(np.flatnonzero(np.diff(numbers)) + 1, 20, replace=False))
    parts = np.split(numbers, ends)
    lasts = [None, *(int(part[-1]) for part in parts)]
    found = [RowNumbers.of(steps_of(part, last), ARM[part]) for part, last in zip(parts, lasts, strict=False)]
    assert sum(found, RowNumbers()) == sum(reversed(found), RowNumbers()) == whole


def test_all_ways_to_read_a_table_count_the_same(tmp_path) -> None:
    """Parquet files with the compiled loop, columns and rows."""
    rows = np.repeat(KEPT, 1 + (KEPT % 50 == 0))
    given = table(rows, rows)
    pq.write_table(given, tmp_path / "log.parquet", row_group_size=100)
    wanted = RowNumbers.of(steps_of(rows, None), ARM[rows])
    for source in sources(given, tmp_path):
        audit = PipelineAudit()
        for columns in read_log(source).columns():
            audit.add_columns(columns, foreign=True)
        assert audit.numbers == wanted
        report = evaluate(source, "arm:a", ["snips"], adaptive=False)
        assert report.evidence.sums.pipeline.numbers == wanted


def test_rows_are_tuples_of_three() -> None:
    for decision, rewards, applied in read_log(table(ALL, ALL)).rows():
        assert (decision.arm in "ab", len(rewards), applied) == (True, 1, ())
