"""Answers in real life: drift, eligibility, units, missing and late rewards, epochs, many comparisons."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, Reward, compare, evaluate, evaluate_each, simulate_log
from maillard.errors import InvalidValue
from maillard.evaluation import unit_sums
from maillard.evaluation.sequential.doubly_robust import DoublyRobustState
from maillard.evaluation.sequential.running_mean import deviation
from maillard.evaluation.term_sums import QUARTERS, arms_p_value, constancy_test, skewness
from maillard.evaluation.unit_hashes import unit_hashes
from maillard.evaluation.unit_sums import UnitSums

START = datetime(2026, 3, 1, tzinfo=UTC)
CLICKS = Reward(low=0, high=1)


def best_of(report: Any) -> Any:
    """The recommended estimate, which must exist."""
    assert report.best is not None
    return report.best


def run(rates, *, rows: int = 2000, seed: int = 1, policy: str = "uniform", **options: Any) -> Bandit:
    """A finished experiment; `rates(row, arm)` is the probability of a click."""
    bandit = Bandit(["a", "b"], policy, reward=CLICKS, seed=seed, **options)
    rng = np.random.default_rng(seed)
    for start in range(0, rows, 50):
        for row, decision in enumerate(bandit.choose(size=50), start):
            bandit.reward(decision, float(rng.random() < rates(row, decision.arm)))
    return bandit


# The sequence for a mean that changes.


def test_the_deviation_is_the_root_of_the_mixture() -> None:
    from maillard.evaluation.sequential import running_mean

    for squares in (0.0, 0.3, 7.0, 1e3, 1e7):
        for level in (math.log(2 / 0.05), math.log(2 / 1e-6)):
            s = deviation(squares, level)
            exponents = running_mean._BETS * s - running_mean._PENALTIES * squares
            assert np.log(np.mean(np.exp(exponents - exponents.max()))) + exponents.max() == pytest.approx(
                level
            )


def test_the_running_mean_is_covered_at_all_rows_although_it_changes() -> None:
    """500 logs with rising means: at most 5% of them may exclude the running mean at any of 20 looks."""
    rng, misses, wrong = np.random.default_rng(1), 0, 0
    rows, trials = 1000, 500
    value = np.linspace(0.1, 0.7, rows)
    for _ in range(trials):
        arm = rng.integers(0, 2, rows)
        reward = (rng.random(rows) < np.where(arm == 1, value, 0.5)).astype(float)
        sequence = DoublyRobustState.start(arms=2, alpha=0.05)
        missed = missed_last = False
        for look in range(0, rows, 50):
            part = slice(look, look + 50)
            sequence.advance(
                arm=arm[part], reward=reward[part], weight=2.0 * arm[part],
                probabilities=np.full((50, 2), 0.5), target_row=np.zeros(50, int),
                target_probabilities=[[0.0, 1.0]],
            )  # fmt: skip
            _, lower, upper = sequence.mean_interval()
            missed |= not lower <= value[: look + 50].mean() <= upper
            missed_last |= not lower <= value[0] <= upper
        misses, wrong = misses + missed, wrong + missed_last
    assert misses <= 0.05 * trials
    assert wrong > 0.5 * trials  # the negative control: the first value is not the running mean


# Constant means.


@pytest.mark.parametrize(("rise", "changed"), [(0.0, False), (0.5, True)])
def test_a_trend_is_reported_and_answered_with_an_average(rise, changed) -> None:
    bandit = run(lambda row, _: 0.2 + rise * row / 2000)
    report = evaluate(bandit, "arm:b", active=False)
    assert report.changed == changed
    assert any("the means changed over time" in each for each in report.warnings) == changed
    best = report.best
    assert best is not None
    assert best.lower < 0.2 + rise / 2 < best.upper
    if changed:
        assert "needs constant means" in report["cs-betting"].caveat
        assert "needs constant means" in report["aipw-two-point"].caveat
        assert not report["aipw"].caveat
        assert not report["cs-mean"].caveat
        assert best_of(evaluate(bandit, "arm:b")).name == "cs-mean"  # while it is running


def test_the_tests_of_constant_means_have_their_level() -> None:
    """Under constant means the p-values are uniform; 400 logs, 5%: 20 ± 4.4 rejections, at most 38 (4 sd)."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(400):
        count = rng.integers(50, 400, (3, QUARTERS)).astype(float)
        total = rng.binomial(count.astype(int), np.array([[0.1], [0.3], [0.5]])).astype(float)
        found.append(arms_p_value(np.stack([count, total, total], axis=2)))
    assert sum(p < 0.05 for p in found) <= 38
    assert sum(p < 0.5 for p in found) > 130
    drift = np.stack([count, total * [0.5, 0.8, 1.2, 1.5], total * [0.5, 0.8, 1.2, 1.5]], axis=2)
    assert arms_p_value(drift) < 1e-6


def test_sums_without_information_have_no_test() -> None:
    assert constancy_test(np.zeros((QUARTERS, 10)), 0.0, 1.0) is None
    assert skewness(np.zeros((QUARTERS, 10))) is None
    assert arms_p_value(np.zeros((2, QUARTERS, 3))) == 1.0


# Comparisons.


def test_comparisons_use_decisions_in_which_both_arms_could_be_chosen() -> None:
    """Premium visitors convert more often and may not see b, which is better for the others."""
    bandit = Bandit(["a", "b"], "uniform", reward=CLICKS, seed=2)
    rng = np.random.default_rng(2)
    for row in range(6000):
        premium = row % 5 < 2
        decision = bandit.choose(eligible=["a"]) if premium else bandit.choose()
        rate = 0.5 if premium else {"a": 0.10, "b": 0.13}[decision.arm]
        bandit.reward(decision, float(rng.random() < rate))
    separate = [evaluate(bandit, f"arm:{arm}", active=False) for arm in ("a", "b")]
    assert best_of(separate[1]).upper < best_of(separate[0]).lower  # b seems to be worse
    assert separate[1].population == "the 3,600 of 6,000 decisions in which 'b' could have been chosen"
    assert any("To compare it with another arm, use compare" in each for each in separate[1].warnings)
    found = compare(bandit, "arm:b", "arm:a", active=False)
    assert found.population == "the 3,600 of 6,000 decisions in which both 'a' and 'b' could have been chosen"
    for name in ("ips", "snips", "cs-dr", "cs-betting", "cs-mean"):
        assert found[name].lower < 0.03 < found[name].upper
    assert found.first.diagnostics.rows == found.second.diagnostics.rows == 3600


def test_the_order_of_a_comparison_does_not_matter() -> None:
    """Caveats are those of both targets."""
    log = simulate_log("ms", "bernoulli:0.6,0.1", horizon=1500, seed=4)
    one, other = compare(log, "arm:0", "arm:1"), compare(log, "arm:1", "arm:0")
    for name, estimate in one.items():
        assert set(estimate.caveat.split("; ")) == set(other[name].caveat.split("; "))
        if estimate.lower is not None:
            assert (estimate.lower, estimate.upper) == pytest.approx((-other[name].upper, -other[name].lower))


def test_intervals_that_a_reader_may_choose_from_are_valid_together() -> None:
    log = simulate_log("uniform", "bernoulli:0.5,0.5,0.5,0.5", horizon=2000, seed=1)
    arms = [f"arm:{arm}" for arm in range(4)]
    several, one = evaluate_each(log, arms), evaluate(log, arms[0])
    assert several[0].confidence == pytest.approx(1 - 0.05 / 4)
    assert several[0]["snips"].width > one["snips"].width
    assert evaluate_each(log, arms, comparisons=1)[0]["snips"] == one["snips"]
    assert "4 of them are valid together with 95%" in str(several[0])
    pair = compare(log, "arm:0", "arm:1")
    assert pair.comparisons == 6
    assert pair.confidence == pytest.approx(1 - 0.05 / 6)
    assert pair["aipw"].width > compare(log, "arm:0", "arm:1", comparisons=1)["aipw"].width
    assert compare(log, "arm:0", "uniform").comparisons == 1
    for bad in (0, 1.5, True, "2"):
        with pytest.raises(InvalidValue, match="comparisons"):
            evaluate(log, "arm:0", comparisons=bad)


# Running experiments.


def test_a_running_experiment_is_answered_with_a_confidence_sequence(tmp_path) -> None:
    bandit = run(lambda *_: 0.3, policy="kl-ms+:floor=0.2", log=tmp_path / "log.db")
    assert best_of(evaluate(bandit, "arm:a")).anytime_valid
    assert best_of(compare(bandit, "arm:a", "arm:b")).anytime_valid
    assert not best_of(evaluate(bandit, "arm:a", active=False)).anytime_valid
    bandit.archive()
    finished = evaluate(tmp_path / "log.db", "arm:a")
    assert not finished.active
    assert not best_of(finished).anytime_valid
    assert "a number of rows that was fixed in advance" in best_of(finished).assumes
    bandit.close()


# Units, missing and late rewards, epochs.


def test_visitors_who_return_are_clustered() -> None:
    """Units with their own rates: the rows of a unit are alike."""
    rng = np.random.default_rng(5)
    rates = rng.beta(0.6, 0.6, 150)

    def log(alike: bool) -> Bandit:
        bandit = Bandit(["a", "b"], "uniform", reward=CLICKS, seed=5)
        for row in range(3000):
            unit = row % 150
            decision = bandit.choose(unit=f"user-{unit}")
            bandit.reward(decision, float(rng.random() < (rates[unit] if alike else 0.5)))
        return bandit

    different = evaluate(log(alike=False), "arm:a", active=False)
    assert different["snips"].interval == "normal"
    alike = evaluate(log(alike=True), "arm:a", active=False)
    assert alike.diagnostics.design_effect > 1.5
    assert alike["snips"].interval == "normal, by unit"
    assert best_of(alike).name == "snips"
    assert any("the design effect is" in each for each in alike.warnings)
    assert alike["snips"].width > 1.2 * different["snips"].width
    rows = evaluate(log(alike=True), "arm:a", active=False, cluster="row")
    assert rows["snips"].interval == "normal"


def test_a_sample_of_units_merges_in_any_order() -> None:
    rng = np.random.default_rng(1)
    parts = [
        UnitSums(0, unit_hashes([f"u{i}" for i in range(start, start + 9000)]), rng.random((9000, 8)))
        for start in (0, 6000, 12_000)
    ]
    one, other = (parts[0] + parts[1]) + parts[2], parts[2] + (parts[1] + parts[0])
    assert one.bits == other.bits == 1
    assert len(one.hashes) <= unit_sums._MAX_UNITS
    first, second = (np.argsort(each.hashes) for each in (one, other))
    np.testing.assert_array_equal(one.hashes[first], other.hashes[second])
    np.testing.assert_allclose(one.sums[first], other.sums[second])


def test_one_missing_reward_does_not_prevent_an_answer() -> None:
    bandit = run(lambda *_: 0.3)
    complete = evaluate(bandit, "arm:a", active=False)
    bandit.choose()  # its reward is never reported
    report = evaluate(bandit, "arm:a", active=False)
    assert report.best is not None
    assert best_of(report).value == pytest.approx(best_of(complete).value, abs=1e-3)
    assert best_of(report).lower < complete[best_of(report).name].lower + 1e-6
    assert "of the rewards are missing" in report.warnings[0]
    assert compare(bandit, "arm:a", "arm:b", active=False).best is not None


def test_the_last_epoch_is_the_default() -> None:
    bandit = run(lambda *_: 0.8, rows=500)
    bandit.reset()
    rng = np.random.default_rng(1)
    for decision in bandit.choose(size=1000):
        bandit.reward(decision, float(rng.random() < 0.2))
    last, pooled = evaluate(bandit, "arm:a"), evaluate(bandit, "arm:a", epoch="all")
    assert best_of(last).lower < 0.2 < best_of(last).upper
    assert last["snips"].value < 0.3 < pooled["snips"].value
    assert "2 epochs are pooled" in pooled.warnings[-1]


def test_late_conversions_that_would_change_the_ranking_are_reported() -> None:
    now = [START]
    rule = Reward(low=0, high=1, window="1h", default=0)
    bandit = Bandit(["a", "b"], "uniform", reward=rule, clock=lambda: now[0], seed=1)
    rng = np.random.default_rng(1)
    made = bandit.choose(size=1000)
    for decision in made:
        if decision.arm == "a" and rng.random() < 0.2:
            bandit.reward(decision, 1)
    now[0] += timedelta(hours=2)
    bandit.settle()
    assert not evaluate(bandit, "arm:b").warnings
    for decision in made:
        if decision.arm == "b" and rng.random() < 0.4:
            assert bandit.reward(decision, 1) == "late"
    report = evaluate(bandit, "arm:b")
    assert any("'b' would have the largest mean" in each for each in report.warnings)
    assert report.diagnostics.late["b"].count > 150


# Revenue, and arms without a floor.


def test_a_few_large_rewards_make_normal_intervals_doubtful() -> None:
    bandit = Bandit(["a", "b"], "uniform", reward=Reward(low=0, high=2000), seed=1)
    rng = np.random.default_rng(1)
    for decision in bandit.choose(size=3000):
        bandit.reward(
            decision, float(np.clip(rng.lognormal(2.5, 1.5), 0, 2000)) if rng.random() < 0.02 else 0.0
        )
    report = evaluate(bandit, "arm:a", active=False)
    assert "a few large terms dominate the sum" in report["snips"].caveat
    assert best_of(report).anytime_valid
    assert report["ips"].lower >= 0  # not outside of the range


def test_an_arm_without_a_floor_is_answered_from_its_own_rewards() -> None:
    log = simulate_log("kl-ms+", "bernoulli:0.02,0.005", horizon=4000, seed=2)
    report = evaluate(log, "arm:1")
    assert best_of(report).name == "cs-arm"
    assert best_of(report).lower < 0.005 < best_of(report).upper
    assert report["cs-arm"].width < 0.5 * report["cs-betting"].width
    assert "cs-arm" not in evaluate(log, "uniform")
