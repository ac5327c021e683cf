"""Estimates and verdicts have their nominal error rates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from maillard.reproduction.claim_statistics import (
    CONFIDENCE,
    Check,
    TrialEstimate,
    average,
    binomial_bounds,
    fisher_p_value,
    judge,
    log_deviation,
    log_growth,
    log_mean,
    mean,
)


def band(rate: float, repeats: int) -> float:
    """4.5 standard errors of a rate; less than one in a hundred thousand rates deviates by more."""
    return 4.5 * math.sqrt(rate * (1 - rate) / repeats)


def plain(found: TrialEstimate) -> TrialEstimate:
    """The same estimate without its skewness."""
    return TrialEstimate(found.value, found.variance, found.freedom, found.trials)


def test_a_difference_agrees_with_welchs_test():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.5, 1, 12), rng.normal(0, 3, 30)
    quantity = plain(mean(a) - mean(b))
    peer = stats.ttest_ind(a, b, equal_var=False, alternative="greater")
    assert quantity.freedom == pytest.approx(peer.df)
    assert quantity.value / quantity.error == pytest.approx(peer.statistic)
    assert quantity.lower(1 - peer.pvalue) == pytest.approx(0, abs=1e-12)


def test_skewness_moves_intervals_to_where_the_tail_is():
    """For skewed trials, Student's upper end is too low too often; the correction improves it."""
    rng, repeats = np.random.default_rng(6), 4000
    found = [mean(rng.lognormal(0, 1, 50)) for _ in range(repeats)]
    truth = math.exp(0.5)
    missed = np.mean([each.upper(CONFIDENCE) < truth for each in found])
    student = np.mean([plain(each).upper(CONFIDENCE) < truth for each in found])
    assert student - missed > 2 * band(0.1, repeats)
    assert np.mean([each.lower(CONFIDENCE) > truth for each in found]) < 1 - CONFIDENCE + band(0.05, repeats)
    quantile = found[0]._quantile(0.9)
    skewness = found[0].third / found[0].variance ** 1.5
    back = quantile + skewness * quantile**2 / 3 + skewness**2 * quantile**3 / 27 + skewness / 6
    assert back == pytest.approx(stats.t.ppf(0.9, found[0].freedom))


@pytest.mark.parametrize(
    ("draw", "measure", "truth", "slack"),
    [
        (lambda rng: rng.normal(3, 1, 8), mean, 3.0, 0.0),
        (lambda rng: rng.exponential(2, 200), log_mean, math.log(2), 0.015),
        (lambda rng: rng.normal(0, 3, 100), log_deviation, math.log(3), 0.015),
        (lambda rng: rng.exponential(3, 200), log_deviation, math.log(3), 0.05),
    ],
)
def test_intervals_have_their_nominal_coverage(draw, measure, truth, slack):
    """Exact for normal means; otherwise asymptotic, with a tolerance of `slack`."""
    rng, repeats = np.random.default_rng(2), 4000
    found = [measure(draw(rng)) for _ in range(repeats)]
    below = np.mean([each.lower(CONFIDENCE) <= truth for each in found])
    above = np.mean([each.upper(CONFIDENCE) >= truth for each in found])
    for coverage in (below, above):
        assert abs(coverage - CONFIDENCE) < band(CONFIDENCE, repeats) + slack
    # Control: the test detects a standard error that is a third too small.
    short = [TrialEstimate(each.value, each.variance * 4 / 9, each.freedom, each.trials) for each in found]
    missed = min(
        np.mean([each.lower(CONFIDENCE) <= truth for each in short]),
        np.mean([each.upper(CONFIDENCE) >= truth for each in short]),
    )
    assert missed < CONFIDENCE - band(CONFIDENCE, repeats) - slack


def test_the_jackknife_agrees_with_its_definition():
    values = np.random.default_rng(3).gamma(0.5, size=25)
    left = [math.log(np.delete(values, i).std(ddof=1)) for i in range(values.size)]
    found = log_deviation(values)
    assert found.value == pytest.approx(math.log(values.std(ddof=1)))
    assert found.error == pytest.approx((values.size - 1) * np.std(left, ddof=1) / math.sqrt(values.size))


@pytest.mark.parametrize("values", [np.ones(5), np.array([0.0, 0, 0, 1])])
def test_a_deviation_that_depends_on_one_trial_decides_nothing(values):
    found = log_deviation(values)
    assert found.lower(0.95) == -math.inf
    assert judge([Check("", found, -50.0)]).outcome == "open"


def test_growth_uses_that_the_trials_are_paired():
    rng = np.random.default_rng(8)
    early = rng.exponential(1, 400)
    late = 2 * early + 0.01 * rng.normal(size=400)
    paired, apart = log_growth(early, late), log_mean(late) - log_mean(early)
    assert paired.value == pytest.approx(apart.value)
    assert paired.error < apart.error / 50
    repeats = [log_growth(a, 2 * a + rng.exponential(1, 200)).value for a in rng.exponential(1, (2000, 200))]
    a = rng.exponential(1, 200)
    assert log_growth(a, 2 * a + rng.exponential(1, 200)).error == pytest.approx(np.std(repeats), rel=0.3)


def test_fisher_p_value_agrees_with_scipy():
    for counts in ((11, 400, 0, 400), (3, 40, 5, 60), (0, 10, 0, 10), (10, 10, 0, 10)):
        table = [[counts[0], counts[1] - counts[0]], [counts[2], counts[3] - counts[2]]]
        assert fisher_p_value(*counts) == pytest.approx(
            stats.fisher_exact(table, alternative="greater").pvalue
        )


@pytest.mark.parametrize(("events", "trials"), [(0, 200), (1, 4000), (17, 60), (200, 200)])
def test_binomial_bounds_are_those_of_clopper_and_pearson(events, trials):
    low, high = binomial_bounds(events, trials)
    peer = stats.binomtest(events, trials).proportion_ci(confidence_level=2 * CONFIDENCE - 1, method="exact")
    assert (low, high) == pytest.approx((peer.low, peer.high), abs=1e-12)


def test_sums_and_averages_add_variances():
    one, two = TrialEstimate(1.0, 4.0, 10, 11), TrialEstimate(3.0, 12.0, 20, 21)
    assert (one + two).variance == (two - one).variance == 16.0
    assert average([one, two]) == (one + two) * 0.5
    assert (one - 1.0).lower(0.95) < 0


def checks(*values: float, error: float = 1.0) -> list[Check]:
    return [Check("", TrialEstimate(value, error**2, 1e9, 100)) for value in values]


def test_a_claim_is_the_conjunction_of_its_checks():
    assert judge(checks(2, 3)).outcome == "holds"
    assert judge(checks(2, 1)).outcome == "open"
    assert judge(checks(9, -3)).outcome == "fails"
    assert (
        judge(checks(9, -1.8)).outcome == "open"
    )  # beyond 1.64, the quantile for one check, but not beyond that for two
    assert judge(checks(-1.8)).outcome == "fails"


def test_false_claims_hold_as_rarely_as_the_confidence_states():
    """The hardest case is one check at its limit of 0 and the others far above theirs.

    True claims do not fail more often than stated either.
    """
    rng, repeats = np.random.default_rng(4), 4000
    outcomes = [judge(checks(rng.normal(), 50, 50)).outcome for _ in range(repeats)]
    assert abs(outcomes.count("holds") / repeats - (1 - CONFIDENCE)) < band(1 - CONFIDENCE, repeats)
    outcomes = [judge(checks(*rng.normal(size=4))).outcome for _ in range(repeats)]
    assert outcomes.count("fails") / repeats < 1 - CONFIDENCE + band(1 - CONFIDENCE, repeats)


@pytest.mark.parametrize("truth", [0.2, -0.2])
def test_the_suggested_trials_decide_with_a_power_of_80_percent(truth):
    """The power is 80% if the estimate is right, and far less with a third of the trials."""
    verdict = judge([Check("", TrialEstimate(truth, 1 / 20, 1e9, 20))])
    assert verdict.outcome == "open"
    n = verdict.trials_needed
    assert n is not None
    rng, repeats = np.random.default_rng(5), 2000

    def power(trials: int) -> float:
        found = [judge([Check("", mean(rng.normal(truth, 1, trials)))]).outcome for _ in range(repeats)]
        return found.count("holds" if truth > 0 else "fails") / repeats

    assert abs(power(n) - 0.8) < band(0.8, repeats) + 0.01
    assert power(n // 3) < 0.6


def test_checks_are_above_or_below_and_corrected_for_selection():
    found = TrialEstimate(2.0, 1.0, 1e9, 100)
    assert Check("x", found, 0.1).holds(0.95)
    assert not Check("x", found, 0.1, among=3).holds(0.95)
    assert Check("x", found, 4.0, below=True).holds(0.95)
    assert Check("x", found, 0.1, below=True).fails(0.95)
    assert Check("x", found, 0.1, below=True).text == "x is below 0.1"
    poor, good = (Check("x", TrialEstimate(value, 1.0, 1e9, 100), among=2) for value in (-9.0, 9.0))
    assert replace(poor, others=(good,)).holds(0.95)
    assert not replace(poor, others=(Check("x", found, 1.5),)).fails(0.95)
    assert replace(poor, others=(poor,)).fails(0.95)


def test_undecidable_claims_suggest_no_number_of_trials():
    assert judge([Check("", TrialEstimate(0.0, 1.0, 9, 10))]).trials_needed is None
