"""The scenarios of real life: their logs are what they claim to be, and their truths are true."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage import real_life
from benchmarks.coverage.real_life_scenarios import (
    RATES,
    ROWS,
    SCENARIOS,
    Question,
    case_of,
    mean_purchase,
    purchases,
)
from maillard import verify
from maillard.decisions import read_log

FALSE_ALARM = 1e-4  # probability that a test fails by accident
RUNS = 3
# One scenario for each way to make a log. Without a floor the weights have no useful bound. The rewards of
# repeat visitors are tested below, because they depend on each other.
CHECKED = (
    "added arm", "ramp at the weekend", "eligibility", "rise, floor", "novelty, floor", "file by arm, time",
    "revenue", "late conversions", "one missing reward", "reset", "lost zeros, file",
    "policy changed after a look",
)  # fmt: skip


def one(name, run=0):
    return case_of(name, 0, run)


def question(case, name):
    return next(each for each in case.questions if each.name == name)


def scores(case, asked):
    """Inverse propensity scores of what was simulated. Given the past, each has the mean of its row."""
    recorded = case.recorded
    reward = np.where(recorded.late, 1.0, recorded.reward)
    places = [recorded.setup.arms.index(arm) for arm in asked.arms]
    rows = recorded.eligible[:, places].all(axis=1) & ~np.isnan(reward)
    rows &= recorded.epoch == recorded.epoch[-1]
    signs = sum(sign * (recorded.arm == place) for sign, place in zip((1, -1), places, strict=False))
    return (signs * reward * np.exp(-recorded.log_probability))[rows]


@pytest.fixture(scope="module")
def deviations():
    """Score minus truth in each row, by scenario and question."""
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for name in CHECKED:
        for case in [one(name, run) for run in range(RUNS)]:
            for asked in case.questions:
                if asked.kind in ("value", "difference"):
                    found.setdefault((name, asked.name), []).append(scores(case, asked) - asked.truth)
    return {key: np.concatenate(each) for key, each in found.items()}


def rejected(deviation, tests):
    """Whether the sum of the deviations is not 0, by a normal test at a joint level of `FALSE_ALARM`."""
    return abs(deviation.sum()) > stats.norm.ppf(1 - FALSE_ALARM / tests / 2) * np.sqrt((deviation**2).sum())


def test_truths_are_true(deviations) -> None:
    assert {key for key, each in deviations.items() if rejected(each, len(deviations))} == set()


def test_wrong_truths_are_found(deviations) -> None:
    """The season before the arm was added, the rates of weekdays, and the rates at the end of a rise."""
    for key, truth, wrong in (
        (("added arm", "c"), 0.285 * 1.75, 0.285),
        (("ramp at the weekend", "a"), 0.13, 0.1),
        (("rise, floor", "b"), 0.25, 0.4),
        (("late conversions", "a"), 0.12, 0.2),
    ):
        assert rejected(deviations[key] + truth - wrong, len(deviations))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_case_depends_on_the_seed_and_the_run_alone(name) -> None:
    first, again, other = one(name, 1), one(name, 1), one(name, 2)
    assert first.logs[-1].equals(again.logs[-1], check_metadata=True)
    assert first.questions == again.questions
    assert not first.logs[-1].equals(other.logs[-1])
    assert [each.name for each in first.questions] == [each.name for each in other.questions]


@pytest.mark.parametrize(
    "name",
    [
        "added arm", "ramp at the weekend", "eligibility", "late conversions", "repeat visitors, sticky",
        "one missing reward", "reset", "policy changed after a look", "revenue",
    ],
)  # fmt: skip
def test_own_logs_pass_verification(name) -> None:
    case = one(name)
    found = verify(case.logs[0])
    assert not read_log(case.logs[0]).foreign
    assert (found.problem_count, found.problems) == (0, [])
    assert found.recomputed == case.recorded.rows  # repeats have the probabilities of their origin
    assert found.verdict == "consistent"


def test_verification_finds_that_rows_are_lost() -> None:
    assert verify(one("lost zeros, export").logs[0]).verdict == "broken"


def test_added_arm_and_eligibility() -> None:
    case = one("added arm")
    assert not case.recorded.eligible[:ROWS, 2].any()
    assert case.recorded.eligible[ROWS:].all()
    assert question(case, "c - a").truth == pytest.approx(-0.05 * 0.3 * 1.75)
    assert question(case, "a").truth == pytest.approx(0.3 * 1.375)
    case = one("eligibility")
    assert question(case, "b - a").truth == pytest.approx(0.03)
    assert question(case, "b").truth == pytest.approx(0.13)
    premium = ~case.recorded.eligible[:, 1]
    assert stats.binomtest(int(premium.sum()), ROWS, 0.4).pvalue > FALSE_ALARM
    assert (case.recorded.arm[premium] == 0).all()


def test_foreign_files() -> None:
    plain = one("file in order, time").logs[0]
    assert plain.num_rows == ROWS
    assert read_log(plain).foreign
    by_arm, by_reward = (one(f"file by {what}, no time").logs[0] for what in ("arm", "reward"))
    assert (np.diff([ord(arm) for arm in by_arm["arm"].to_pylist()]) >= 0).all()
    assert (np.diff(by_reward["reward"].to_numpy()) >= 0).all()
    assert "time" not in by_arm.column_names
    assert (np.diff(one("file by arm, time").logs[0]["time"].to_numpy().astype(int)) < 0).any()
    twice = one("file duplicated, time").logs[0]
    assert twice.slice(0, 2).to_pylist()[0] == twice.slice(0, 2).to_pylist()[1]
    assert twice.num_rows == 2 * ROWS
    case = one("duplicated clicks")
    assert case.logs[0].num_rows == ROWS + case.recorded.reward.sum()
    case = one("lost zeros, file")
    zeros, left = (case.recorded.reward == 0).sum(), case.logs[0]["reward"].to_numpy()
    assert (left == 1).sum() == ROWS - zeros
    assert stats.binomtest(int((left == 0).sum()), int(zeros), 0.8).pvalue > FALSE_ALARM
    case = one("lost zeros, file with row numbers")
    numbers, left = (case.logs[0][name].to_numpy() for name in ("row", "reward"))
    assert (case.recorded.reward[numbers] == left).all()
    assert numbers.size < ROWS
    answers = [real_life.answer(case.logs[0], asked) for asked in case.questions]
    assert all(each.warned and each.best is None for each in answers)


def test_probabilities_after_the_update_are_those_of_the_next_row() -> None:
    case = one("probabilities after the update")
    logged, recorded = np.array(case.logs[0]["log_probabilities"].to_pylist()), case.recorded
    assert (logged[:-1] == recorded.logs[1:]).all()
    assert (logged != recorded.logs).any()


def test_revenue() -> None:
    rng = np.random.default_rng(1)
    mean = 0.02 * mean_purchase()
    found = purchases(rng, np.full(1_000_000, mean))
    limit = stats.norm.ppf(1 - FALSE_ALARM / 2) * found.std() / 1000
    assert abs(found.mean() - mean) < limit
    assert abs(found.mean() - 1.2 * mean) > limit
    assert found.max() == 2000
    assert mean == pytest.approx(1, abs=0.1)


def test_late_rewards_are_in_the_log_but_not_in_the_reward() -> None:
    rows = one("late conversions").logs[0].to_pylist()
    late = [row for row in rows if any(each["late"] for each in row["rewards"])]
    assert late
    assert all(row["arm"] == "b" and row["reward"] == 0 for row in late)


def test_visitors() -> None:
    rates, counts = [], []
    for run in range(8):
        recorded = one("repeat visitors", run).recorded
        units, visits = np.unique(recorded.setup.units, return_counts=True)
        assert units.size == 300
        by_unit: dict[str, list[float]] = {unit: [] for unit in units.tolist()}
        for unit, reward in zip(recorded.setup.units, recorded.reward.tolist(), strict=True):
            by_unit[unit].append(reward)
        pairs = [sum(each) * (sum(each) - 1) / (len(each) * (len(each) - 1)) for each in by_unit.values()]
        rates.append(np.mean(pairs))  # of E rate²; each unit has at least 3 visits
        counts.append(visits.max() / visits.mean())
    correlation = (np.array(rates) - 0.3**2) / (0.3 * 0.7)
    error = correlation.std(ddof=1) / np.sqrt(8)
    assert abs(correlation.mean() - 0.19) < stats.t.ppf(1 - FALSE_ALARM / 2, 7) * error
    assert abs(correlation.mean() - 0.0) > stats.t.ppf(1 - FALSE_ALARM / 2, 7) * error
    assert min(counts) > 3  # few visitors make many visits
    sticky = one("repeat visitors, sticky").recorded
    assert len(set(zip(sticky.setup.units, sticky.arm.tolist(), strict=True))) == 300


def test_looks_at_visitors_who_return() -> None:
    for name in ("repeat visitors, running", "repeat visitors, sticky, running"):
        case = one(name)
        assert len(case.logs) == 20
        assert case.logs[-1].num_rows == case.recorded.rows
        assert verify(case.logs[9]).verdict == "consistent"
        assert {each.options["active"] for each in case.questions} == {True}
        seen = {unit for unit in case.logs[9]["unit"].to_pylist() if unit is not None}
        assert len(seen) < case.logs[9].num_rows / 2
    assert len(set(one("repeat visitors, 1,000 units").recorded.setup.units)) == 1000


def test_looks_are_at_the_same_log() -> None:
    looks = one("peeking").logs
    assert [look.num_rows for look in looks] == list(range(100, ROWS + 1, 100))
    assert all(looks[-1].slice(0, look.num_rows).equals(look) for look in looks)
    assert verify(looks[4]).verdict == "consistent"


def test_outcomes_compare_with_the_truth() -> None:
    case = one("stationary, floor")
    low, high = (real_life.outcome(case, Question("b", "value", ("b",), truth)) for truth in (0.0, RATES[1]))
    assert (low.covered, high.covered) == (False, True)
    assert low.estimator == "aipw-two-point"
    assert low.width > 0
    assert not low.claimed
    season = one("added arm")
    separate = real_life.outcome(season, question(season, "c - a, separately"))
    assert (separate.claimed, separate.wrong, separate.covered) == (True, True, False)
    better = Question("c - a", "separate", ("c", "a"), 0.086)
    assert not real_life.outcome(season, better).wrong
    error = real_life.outcome(case, Question("x", "value", ("x",), 0.1))
    assert (error.error, error.warned, error.covered) == ("UnknownName", True, None)
    summary = real_life.summary([low, high, error])
    assert summary["coverage"] == 0.5
    assert (
        summary["silent_misses"]
        == summary["no_answer"]
        == summary["warned"]
        == pytest.approx(1 / 3, abs=1e-5)
    )
    assert summary["errors"] == {"UnknownName": 1}


def test_the_command_writes_what_one_process_computes(tmp_path, capsys) -> None:
    written = tmp_path / "found.json"
    name = "80 rows"
    arguments = ["--runs", "12", "--only", name, "--processes", "1", "--output", str(written)]
    assert real_life.main(arguments) == 0
    assert "80 rows" in capsys.readouterr().out
    content = json.loads(written.read_text(encoding="utf8"))
    assert content["runs"] == 12
    made = real_life.run_scenario(name, 12, 0)
    assert content["scenarios"][name]["questions"] == json.loads(json.dumps(made["questions"]))
    head, _, *rows = real_life.lines({name: made}, content["scenarios"])
    assert len({line.count("|") for line in (head, *rows)}) == 1
    assert head.endswith("| coverage before | silent before | none before |")


def test_the_page_has_the_numbers_of_the_data() -> None:
    import json
    from pathlib import Path

    from benchmarks.coverage.real_life_page import DOCS, HERE, table

    def read(which: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(
            Path(HERE, f"real_life_{which}.json").read_text(encoding="utf8")
        )
        return found

    made = table(read("before"), read("after"))
    assert len({line.count("|") for line in made.split("\n")}) == 1
    assert made in (DOCS / "explanation" / "trust.md").read_text(encoding="utf8")
