"""The coverage study: exact probabilities, independence of threads, and detection of bad intervals."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage import __main__ as command
from benchmarks.coverage import cell_simulation, page
from benchmarks.coverage.cells import CELLS, CONFIDENCE, SIGMA2, Cell
from benchmarks.coverage.choice_probabilities import both_below
from benchmarks.coverage.floorless import FLOORS, coverage_by_floor, ips_deviation, z_score
from benchmarks.coverage.logs import Logger, Rows
from benchmarks.coverage.methods import METHODS, NAIVE, SEQUENCES, STABILISED, WEIGHTED, intervals
from benchmarks.coverage.parallel import Work
from benchmarks.coverage.tables import BAND
from maillard import Tally
from maillard.evaluation.sequential import bernstein, betting, doubly_robust
from maillard.evaluation.sequential.confidence_sequence import level_of
from tests.test_docs import ROOT

RUNS, ROWS = 400, 600
FALSE_ALARM = 1e-4  # probability that a test fails by accident


def log_of(cell, rows, run=0):
    made = Rows.empty(rows, 3)
    Logger(cell.policy, cell.problem, rows).write(made, seed=3, run=run)
    return made


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_logged_probabilities_are_those_of_the_policy(cell) -> None:
    log = log_of(cell, 2000)
    tally = Tally.empty(3)
    for row in range(2000):
        if row < 50 or row % 100 == 0:  # the first rows have arms without rewards
            expected = cell.policy.probabilities(tally)
            np.testing.assert_allclose(log.probabilities[row], expected, rtol=1e-12, atol=1e-14)
        tally.add(int(log.arm[row]), float(log.reward[row]))
    assert np.abs(log.reward - np.array(cell.means)[log.arm]).max() <= SIGMA2**0.5


def test_two_correlated_normal_variables() -> None:
    r = np.linspace(0, 0.5**0.5, 8)
    assert [both_below(0, 0, each) for each in r] == pytest.approx(
        0.25 + np.arcsin(r) / (2 * np.pi), abs=1e-15
    )
    for h, k, each in ((0.3, -1.2, 0.6), (2.5, 1.0, 0.2), (-3.0, -2.0, 0.7)):
        exact = stats.multivariate_normal([0, 0], [[1, each], [each, 1]])
        assert both_below(h, k, each) == pytest.approx(exact.cdf([h, k]), abs=1e-8)
    assert both_below(9.0, 0.5, 0.3) == both_below(40.0, 0.5, 0.3) == stats.norm.cdf(0.5)
    assert both_below(-9.0, 0.5, 0.3) == 0.0


@pytest.fixture(scope="module")
def found():
    """Misses at the end, and of naive intervals at any row, of run x arm x method, for one cell."""
    cell = Cell("ms", (0.9, 1.0, 1.1), "5%")
    logger, rows = Logger(cell.policy, cell.problem, ROWS), Rows.empty(ROWS, 3)
    missed, ever = [], []
    for run in range(RUNS):
        logger.write(rows, 4, run)
        made = intervals(rows, cell.means, (ROWS,), 1 / cell.least(ROWS))
        truth = np.array(cell.means)[:, None]
        missed.append((made.ends[0, ..., 0] > truth) | (made.ends[0, ..., 1] < truth))
        ever.append(made.ever[0])
    return np.array(missed), np.array(ever)


def rejected(misses, tests):
    """Whether so many misses reject a probability of at most 10%, at a joint level of `FALSE_ALARM`."""
    value = stats.binom.sf(misses.sum(axis=0) - 1, misses.shape[0], 1 - CONFIDENCE)
    return value < FALSE_ALARM / tests


def test_sequences_cover_at_all_rows_and_naive_intervals_checked_at_every_row_do_not(found) -> None:
    missed, ever = found
    sequences = missed[:, :, [METHODS.index(name) for name in SEQUENCES]]
    assert not rejected(sequences, sequences[0].size).any()
    assert rejected(ever, ever[0].size).all(axis=0)[NAIVE.index("sample mean")]


def outside(covered, runs, tests):
    """Whether this number of misses rejects a coverage of 88 to 92%, at a joint level of `FALSE_ALARM`."""
    low, high = stats.binom.ppf([FALSE_ALARM / tests / 2, 1 - FALSE_ALARM / tests / 2], runs, BAND)
    return (covered < low) | (covered > high)


def test_stabilised_intervals_cover(found) -> None:
    columns = [METHODS.index(name) for name in STABILISED]
    covered = (~found[0][:, :, columns]).sum(axis=0)
    assert not outside(covered, RUNS, covered.size).any()


def test_without_a_floor_stabilised_intervals_do_not_cover() -> None:
    coverage = coverage_by_floor(RUNS, 6, Work(2))
    covered = dict(zip(FLOORS, np.rint(RUNS * coverage), strict=True))
    columns = [WEIGHTED.index(name) for name in STABILISED]
    assert not outside(covered[0.1][columns], RUNS, 3).any()
    assert outside(covered[0.0][WEIGHTED.index("AIPW")], RUNS, 3)


def test_a_value_is_outside_the_interval_if_and_only_if_it_was_excluded_at_some_row() -> None:
    cell = Cell("ts", (0.5, 1.0, 1.5), "5%")
    level, target_row = level_of(1 - CONFIDENCE), np.zeros(300, np.int64)
    for run in range(3):
        log = log_of(cell, 300, run)
        ends = intervals(log, cell.means, (300,), 1 / cell.least(300)).ends[0]
        reward = (log.reward + 0.5) / 3
        for arm in range(3):
            weight = np.where(log.arm == arm, 1 / log.probabilities[:, arm], 0.0)
            for value in np.linspace(0.05, 0.95, 9):
                rows = [
                    bernstein.excluded_at(weight * reward, weight * (1 - reward), value, level, 0.0, 0.0),
                    doubly_robust.excluded_at(
                        (log.arm, reward, weight, log.probabilities, target_row, np.eye(1, 3, arm)),
                        value=value,
                        level=level,
                    ),
                    betting.excluded_at(weight, reward, value, level, 1 / cell.least(300), 0.0),
                ]
                for name, row in zip(SEQUENCES, rows, strict=True):
                    lower, upper = (ends[arm, METHODS.index(name)] + 0.5) / 3
                    assert (row == 0) == (lower <= value <= upper)


def test_inverse_propensity_scoring_on_logs_of_ms_is_unbiased() -> None:
    right = ips_deviation(2000, 5, Work(2))
    late = ips_deviation(2000, 5, Work(2), late=True)  # the probability after the update of the row
    assert abs(z_score(right)) < 4
    assert abs(z_score(late)) > 4


def test_counts_depend_on_the_seed_alone(monkeypatch) -> None:

    monkeypatch.setattr(cell_simulation, "HORIZONS", (50, 200))
    once, again, other = (
        cell_simulation.run(CELLS[1], 60, seed, Work(threads)) for threads, seed in ((1, 7), (2, 7), (1, 8))
    )
    assert once.as_lists() == again.as_lists() != other.as_lists()
    assert cell_simulation.Outcome.from_lists(once.as_lists()).as_lists() == once.as_lists()


def test_the_command_writes_the_page_and_continues_where_it_stopped(tmp_path, monkeypatch, capfd) -> None:
    results, written = tmp_path / "coverage.json", tmp_path / "docs" / "coverage.md"
    written.parent.mkdir()
    arguments = ["coverage", "--runs", "2", "--results", str(results), "--page", str(written)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert command.main() == 0
    text, tables = written.read_text(encoding="utf8"), written.with_name("coverage-appendix.md")
    first_tables = tables.read_text(encoding="utf8")
    first = json.loads(results.read_text(encoding="utf8"))
    del first[CELLS[3].name]
    results.write_text(json.dumps(first), encoding="utf8")
    run, cells_run = cell_simulation.run, []

    def spy(cell, *arguments):
        cells_run.append(cell.name)
        return run(cell, *arguments)

    monkeypatch.setattr(cell_simulation, "run", spy)
    assert command.main() == 0  # runs the one cell that is missing
    assert cells_run == [CELLS[3].name]
    assert CELLS[3].name in json.loads(results.read_text(encoding="utf8"))
    assert written.read_text(encoding="utf8") == text
    assert tables.read_text(encoding="utf8") == first_tables
    assert (tmp_path / "pictures" / page.PICTURE).stat().st_size > 10_000
    capfd.readouterr()


def test_the_page_matches_its_results(tmp_path) -> None:
    page.write(json.loads(command.RESULTS.read_text(encoding="utf8")), tmp_path / "coverage.md")
    for name in ("coverage.md", "coverage-appendix.md"):
        made = (tmp_path / name).read_text(encoding="utf8")
        shown = (ROOT / "docs" / "explanation" / name).read_text(encoding="utf8")
        assert made == shown, "run `make coverage`"
