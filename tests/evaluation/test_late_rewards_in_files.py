"""Rewards after the window are known from an exported file as they are from the store."""

from __future__ import annotations

import dataclasses
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maillard import Bandit, Reward, compare, evaluate
from maillard.decisions import read_log, write_log
from maillard.decisions.columns import columns_of
from maillard.decisions.decision import RewardEvent
from maillard.decisions.files.reward_lists import fields_of_late_rewards, late_rewards
from maillard.decisions.reward_rule import Combine

START = datetime(2026, 3, 1, tzinfo=UTC)
COMBINE: tuple[Combine, ...] = get_args(Combine)


def experiment(combine: Combine = "first", *, late: bool = True, log: Any = None, rows: int = 400) -> Bandit:
    """An experiment whose decisions have 0 to 3 rewards, some at the same time; those of b may be late."""
    now = [START]
    rule = Reward(low=0, high=5, window="1h", default=0, combine=combine)
    bandit = Bandit(["a", "b"], "uniform", reward=rule, clock=lambda: now[0], seed=1, log=log)
    rng = np.random.default_rng(7)
    made = bandit.choose(size=rows // 2)
    now[0] += timedelta(minutes=1)
    made += bandit.choose(size=rows // 2)
    for decision in made:
        for event in range(rng.integers(0, 3)):
            bandit.reward(decision, float(rng.integers(0, 4)), event=f"timely {event}")
    now[0] += timedelta(hours=2)
    bandit.settle()
    for decision in made if late else ():
        if decision.arm == "b":
            for name in ("late 1", "a late 2")[: rng.integers(0, 3)]:
                # As early as a timely one, so that its name decides which is first; or later.
                at = START + timedelta(minutes=int(rng.integers(1, 3)))
                assert bandit.reward(decision, float(rng.integers(2, 6)), event=name, at=at) == "late"
    return bandit


def exports(bandit: Bandit, folder: Path) -> dict[str, Any]:
    """The same log in all formats that have the individual rewards."""
    log = read_log(bandit)
    for ending in ("parquet", "csv"):
        write_log(log, folder / f"log.{ending}")
    # Some programs write other names of list elements.
    renamed = folder / "renamed.parquet"
    pq.write_table(log.to_arrow(), renamed, use_compliant_nested_type=False, row_group_size=100)
    table = log.to_arrow()
    parts = pa.concat_tables([table.slice(first, 7) for first in range(0, len(table), 7)])
    return {
        "Parquet": folder / "log.parquet",
        "Parquet with other names": renamed,
        "CSV": folder / "log.csv",
        "Arrow": table,
        "Arrow in many batches": parts,
        "pandas": log.to_pandas(),
    }


def late_column(log: Any) -> np.ndarray:
    """The rewards with late ones, of all rows."""
    parts = [
        np.full(len(each), np.nan) if each.late_reward is None else each.late_reward
        for each in read_log(log).columns()
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize(
    ("combine", "store"), [*((combine, None) for combine in COMBINE), ("last", "log.db")]
)
def test_files_give_the_late_rewards_of_the_store(combine, store, tmp_path) -> None:
    with experiment(combine, log=None if store is None else tmp_path / store) as bandit:
        stored = evaluate(bandit, "arm:b", active=False)
        compared = compare(bandit, "arm:b", "arm:a", active=False)
        wanted = late_column(bandit)
        late = stored.diagnostics.late
        assert (late["a"].count, late["b"].count) == (0, np.isfinite(wanted).sum())
        assert late["b"].count > 80
        assert "late rewards" in "; ".join(stored.warnings)
        for name, file in exports(bandit, tmp_path).items():
            assert late_column(file) == pytest.approx(wanted, rel=1e-14, nan_ok=True), name
            found = evaluate(file, "arm:b")
            for arm, each in found.diagnostics.late.items():
                assert dataclasses.astuple(each) == pytest.approx(
                    dataclasses.astuple(late[arm]), rel=1e-12
                ), name
            assert found.warnings == stored.warnings, name
            assert compare(file, "arm:b", "arm:a").warnings == compared.warnings, name


def test_without_late_rewards_nothing_is_reported(tmp_path) -> None:
    """The control: the same experiment without late rewards."""
    with experiment("sum", late=False) as bandit:
        assert evaluate(bandit, "arm:b", active=False).diagnostics.late == {}
        for name, file in exports(bandit, tmp_path).items():
            report = evaluate(file, "arm:b")
            assert report.diagnostics.late == {}, name
            assert not any("late rewards" in each for each in report.warnings), name
            assert np.isnan(late_column(file)).all(), name


def test_a_selection_has_its_own_late_rewards(tmp_path) -> None:
    with experiment() as bandit:
        write_log(read_log(bandit), tmp_path / "log.parquet")
        stored, found, whole = (
            evaluate(log, "arm:b", active=False, since=since).diagnostics.late["b"]
            for log, since in (
                (bandit, START + timedelta(seconds=30)),
                (tmp_path / "log.parquet", START + timedelta(seconds=30)),
                (tmp_path / "log.parquet", None),
            )
        )
        assert found == stored
        assert 0 < found.count < whole.count


@pytest.mark.parametrize("combine", COMBINE)
def test_totals_of_many_decisions_equal_those_of_each(combine) -> None:
    rng = np.random.default_rng(3)
    rule = Reward(low=0, high=6, window="1h", combine=combine)
    decisions = [
        [
            RewardEvent("", f"{rng.integers(0, 4)}{number}", float(rng.normal(2, 3)), int(rng.integers(0, 3)),
                        0, bool(rng.random() < 0.3))
            for number in range(rng.integers(0, 5))
        ]
        for _ in range(500)
    ]  # fmt: skip
    wanted = np.array([rule.total_with_late(each) for each in decisions], np.float64)
    assert 100 < np.isfinite(wanted).sum() < 400
    fields = fields_of_late_rewards(rule)
    events = [[{name: getattr(each, name) for name in fields} for each in row] for row in decisions]
    assert late_rewards(pa.array(events), rule) == pytest.approx(wanted, rel=1e-14, nan_ok=True)
    assert late_rewards(pa.array(events).slice(20, 50), rule) == pytest.approx(
        wanted[20:70], rel=1e-14, nan_ok=True
    )
    timely = [[event | {"late": False} for event in row] for row in events]
    assert late_rewards(pa.array(timely), rule) is None


def test_the_order_of_events_decides_only_first_and_last() -> None:
    events = [
        {"value": 1.0, "late": True, "at": 2, "event": "a"},
        {"value": 2.0, "late": False, "at": 1, "event": "b"},
        {"value": 4.0, "late": False, "at": 2, "event": "c"},
    ]
    wanted = {"first": 2.0, "last": 4.0, "sum": 7.0, "max": 4.0}
    for combine, order in itertools.product(COMBINE, itertools.permutations(events)):
        rule = Reward(window="1h", combine=combine)
        assert late_rewards(pa.array([list(order), []]), rule)[0] == wanted[combine]


def clicks(counts: dict[str, tuple[int, int]]) -> Bandit:
    """An experiment with these numbers of timely and of late clicks by arm, of 500 decisions each."""
    now = [START]
    rule = Reward.clicks(window="1h")
    bandit = Bandit(["a", "b"], "uniform", reward=rule, clock=lambda: now[0], seed=1)
    made = bandit.choose(size=1200)
    for arm, (timely, _) in counts.items():
        for decision in [each for each in made if each.arm == arm][:timely]:
            bandit.reward(decision, 1)
    now[0] += timedelta(hours=2)
    bandit.settle()
    for arm, (timely, late) in counts.items():
        for decision in [each for each in made if each.arm == arm][timely : timely + late]:
            bandit.reward(decision, 1)
    return bandit


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (120, "'b' would have the largest mean"),
        (40, "its mean would be"),
        (4, None),  # less than a tenth
    ],
)
def test_late_rewards_that_matter(late, words, tmp_path) -> None:
    """The mean of b changes by more than a tenth, with or without a change of the ranking."""
    write_log(read_log(clicks({"a": (150, 0), "b": (100, late)})), tmp_path / "log.parquet")
    report = evaluate(tmp_path / "log.parquet", "arm:b")
    found = [each for each in report.warnings if "late rewards" in each]
    assert [words in each for each in found] == ([True] if words else [])
    assert report.diagnostics.late["b"].count == late
    # The late rewards of b do not matter for a, unless the ranking changes.
    others = [each for each in evaluate(tmp_path / "log.parquet", "arm:a").warnings if "late rewards" in each]
    assert bool(others) == (late == 120)


def test_rows_without_the_rule_have_no_late_rewards(tmp_path) -> None:
    """A table without metadata is foreign, and a foreign log has no rule by which rewards combine."""
    with experiment() as bandit:
        table = read_log(bandit).to_arrow().replace_schema_metadata(None)
        log = read_log(table)
        assert log.foreign
        assert np.isnan(late_column(table)).all()
        (columns,) = columns_of(log, log.rows())
        assert columns.late_reward is None
