"""Logs that an earlier version wrote still open, verify and evaluate with the same results.

`old_logs` contains an SQLite log with two experiments, "home" and "shop", and their exports as Parquet and
CSV. The version that wrote them had schema 1, in which the column `applied` was called `learned`. "home"
has every administrative event; "shop" has sticky assignments, a reward window with a default, and summed
rewards.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from maillard import evaluate
from maillard.decisions import Bandit, import_log, read_log, verify, write_log

OLD_LOGS = Path(__file__).parent / "old_logs"
VERSION_3 = "version3.db"  # an SQLite log with one experiment, whose tables have version 3: no contexts
HOME_ESTIMATES = {  # of arm:blue, as the earlier version computed them
    "ips": (0.4211249652096683, 0.29797964062106447, 0.5442702897982722),
    "snips": (0.42621080426191527, 0.30836779868529973, 0.5440538098385308),
    "aipw": (0.45003336600997224, 0.33896467787729234, 0.5611020541426521),
    "aipw-sqrt": (0.4549467501474136, 0.34591074392108734, 0.5639827563737398),
    "aipw-two-point": (0.4618432380821437, 0.3442006184308403, 0.5794858577334472),
    "cs-bernstein": (0.383781901167015, 0.18629421584034658, 0.9560580928013479),
    "cs-dr": (0.45042373033801963, 0.0, 1.0),
    "cs-betting": (0.424473001406156, 0.2676925889374379, 0.6073595649832043),
}


@pytest.fixture
def old_logs(tmp_path: Path) -> Path:
    """A copy, because SQLite may write files next to a database."""
    return shutil.copytree(OLD_LOGS, tmp_path / "old_logs")


@pytest.mark.parametrize("name", ["both.db", "home.parquet", "home.csv"])
def test_an_old_log_verifies_and_evaluates_as_before(old_logs, name) -> None:
    found = verify(old_logs / name, "home")
    assert found.problems == []
    assert (found.decisions, found.recomputed) == (160, 160)
    assert found.largest_error <= 1e-12  # exp and log differ in the last bit between processors
    assert found.verdict == "consistent"
    report = evaluate(
        old_logs / name, "arm:blue", list(HOME_ESTIMATES), experiment="home", epoch="all", missing="ignore"
    )
    for estimator, expected in HOME_ESTIMATES.items():
        estimate = report[estimator]
        assert (estimate.value, estimate.lower, estimate.upper) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["both.db", "shop.parquet", "shop.csv"])
def test_an_old_log_with_windows_and_sticky_units_verifies(old_logs, name) -> None:
    found = verify(old_logs / name, "shop")
    assert found.problems == []
    assert (found.decisions, found.recomputed, found.not_audited) == (30, 30, 10)


@pytest.mark.parametrize("experiment", ["home", "shop"])
def test_old_files_have_the_rows_of_the_old_store(old_logs, experiment) -> None:
    stored = read_log(old_logs / "both.db", experiment)
    for ending in ("parquet", "csv"):
        exported = read_log(old_logs / f"{experiment}.{ending}")
        assert list(exported.rows()) == list(stored.rows())
        assert exported.events == stored.events
        assert exported.final_state().tally == stored.final_state().tally


def test_an_old_file_can_be_imported_and_continued(old_logs, tmp_path) -> None:
    import_log(old_logs / "home.parquet", tmp_path / "new.db")
    with Bandit(log=tmp_path / "new.db", experiment="home") as bandit:
        bandit.choose()
    assert verify(tmp_path / "new.db").problems == []


def test_an_old_file_is_rewritten_in_the_new_schema(old_logs, tmp_path) -> None:
    log = read_log(old_logs / "home.parquet")
    write_log(log, tmp_path / "new.parquet")
    assert "learned" not in read_log(tmp_path / "new.parquet").to_arrow().column_names
    assert list(read_log(tmp_path / "new.parquet").rows()) == list(log.rows())


def test_a_log_without_contexts_is_read_and_migrated(old_logs) -> None:
    log = old_logs / VERSION_3
    before = log.read_bytes()
    found: Any = verify(log)
    assert found.problems == []
    assert (found.decisions, found.recomputed, found.chain.decisions, found.chain.erased) == (40, 40, 40, 8)
    assert log.read_bytes() == before  # `verify` opens it for reading only
    rows = list(read_log(log).rows())
    with Bandit(log=log, experiment="home") as bandit:
        made = bandit.choose(unit="user-1", context={"device": "phone"})
        bandit.reward(made, 1.0)
        assert bandit.decision(made.id).context == '{"device":"phone"}'
    found = verify(log)
    assert found.problems == []
    assert (found.decisions, found.chain.decisions) == (41, 41)
    assert list(read_log(log).rows())[:-1] == rows
