"""Confidence sequences for mean rewards: formulas, coverage at all rows, special cases."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.stats import beta, binomtest

from maillard.errors import InvalidValue
from maillard.evaluation import means
from maillard.evaluation.means import mean_intervals
from tests.evaluation.adaptive_logs import simulate_logs

EPSILON = 2.0**-52
mpmath.mp.dps = 60


def interval(
    pulls: float, total: float, low: float = 0, high: float = 1, confidence: float = 0.95
) -> tuple[float, float]:
    ((lower, upper),) = mean_intervals([pulls], [total], low, high, confidence)
    assert lower is not None
    assert upper is not None
    return lower, upper


def log_evidence(won: Fraction, lost: Fraction, mean: Fraction) -> mpmath.mpf:
    """ln E(mean), computed with 60 digits."""

    def real(x: Fraction) -> mpmath.mpf:
        return mpmath.mpf(x.numerator) / x.denominator

    s, f, m = real(won), real(lost), real(mean)
    value = mpmath.loggamma(s + 0.5) + mpmath.loggamma(f + 0.5) - mpmath.loggamma(s + f + 1)
    return value - mpmath.log(mpmath.pi) - s * mpmath.log(m) - f * mpmath.log(1 - m)


def excess(pulls: int, won: float, end: float, lower: bool) -> tuple[float, float]:
    """ln E - ln(1 / α) at an end of the interval: for the given sum, and for the sum before rounding."""
    s, f, m = Fraction(won), pulls - Fraction(won), Fraction(end)
    threshold = -mpmath.log(1 - mpmath.mpf(0.95))
    exact = log_evidence(s, f, m) - threshold
    error = min(3 * Fraction(EPSILON) * s, s if lower else f) * (1 if lower else -1)
    return float(exact), float(log_evidence(s - error, f + error, m) - threshold)


PULLS = [1, 2, 7, 15, 16, 17, 100, 12_345, 10**6, 10**9, 10**12]
FRACTIONS = [1e-9, 1e-3, 0.1, 0.4999, 0.5, 0.77, 0.999]


@pytest.mark.parametrize("pulls", PULLS)
def test_the_ends_solve_the_equation_up_to_rounding(pulls: int) -> None:
    """The ends differ from the solution of E(m) = 1 / α by rounding errors only, and only outwards."""
    wins = {
        1.0 * pulls,
        *(fraction * pulls for fraction in FRACTIONS),
        *(x for x in (0, 0.5, 1, 3, 15.7) if x <= pulls),
    }
    for won in sorted(wins):
        lost = pulls - won
        lower, upper = interval(pulls, won)
        assert 0 <= lower <= won / pulls <= upper <= 1
        for end, is_lower in ((lower, True), (upper, False)):
            if end in (0, 1):
                assert (won if is_lower else lost) < 0.5  # otherwise a float could represent the end
                continue
            exact, allowing = excess(pulls, won, end, is_lower)
            assert exact >= 0  # the interval contains all values that are not excluded
            steepness = abs(won - lost * end / (1 - end))
            assert 0 <= allowing <= 1e-11 + 50 * EPSILON * steepness
            assert allowing < 1e-6 or min(won, lost) == 0


def test_stirling_remainders_are_accurate() -> None:
    x = np.array([0.0, 1e-9, 0.3, 1, 5, 15.99, 16, 16.01, 20, 31.4, 100, 1e4, 1e8, 1e12])
    rest = [mpmath.mpf(v) - (v * mpmath.log(v) if v else 0) - mpmath.log(2 * mpmath.pi) / 2 for v in x]
    for value, half, v in zip(rest, means._stirling_half(x), x, strict=True):
        assert float(mpmath.loggamma(v + mpmath.mpf(0.5)) + value) == pytest.approx(half, abs=2e-14)
    for value, whole, v in zip(rest[1:], means._stirling_whole(x[1:]), x[1:], strict=True):
        exact = mpmath.loggamma(v + mpmath.mpf(1)) + value - mpmath.log(v) / 2
        assert float(exact) == pytest.approx(whole, abs=2e-14)


@pytest.mark.parametrize("pulls", [1, 10, 10**5, 10**9])
def test_closed_form_of_the_lower_end_if_all_rewards_are_maximal(pulls: int) -> None:
    lower, upper = interval(pulls, pulls)
    constant = mpmath.beta(pulls + 0.5, 0.5) / mpmath.pi
    assert lower == pytest.approx(float((0.05 * constant) ** (mpmath.mpf(1) / pulls)), abs=1e-12)
    assert upper == 1
    assert interval(pulls, 0) == pytest.approx((0, 1 - lower), abs=1e-12)


def test_the_average_over_q_is_the_beta_function() -> None:
    """The closed form of E equals the integral over q that defines it."""
    lower, upper = interval(9, 2.5)

    def average(mean: float) -> float:
        def bet(q: float) -> float:
            return float((q / mean) ** 2.5 * ((1 - q) / (1 - mean)) ** 6.5 / (np.pi * np.sqrt(q * (1 - q))))

        return float(mpmath.quad(bet, [0, 0.5, 1]))

    assert average(lower) == pytest.approx(20, rel=1e-6)
    assert average(upper) == pytest.approx(20, rel=1e-6)
    assert average(lower + 0.01) < 20 < average(lower - 0.01)


def test_the_factor_of_a_reward_has_an_expectation_of_at_most_one() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        values, probabilities = rng.random(5), rng.dirichlet(np.ones(5))
        mean, q = float(values @ probabilities), rng.random()
        expectation = probabilities @ ((q / mean) ** values * ((1 - q) / (1 - mean)) ** (1 - values))
        assert expectation <= 1 + 1e-12


# Coverage if the interval is checked at every row.

RUNS, ROWS, ALPHA = 500, 2000, 0.1


def misses(pulls: np.ndarray, sums: np.ndarray, mean: float) -> int:
    """In how many runs the interval excluded the mean at some row."""
    run, _ = new = np.nonzero(np.diff(pulls, axis=1, prepend=0))  # it changes only with a reward
    lower, upper = np.array(mean_intervals(pulls[new], sums[new], 0, 1, 1 - ALPHA)).T
    return np.unique(run[(lower > mean) | (upper < mean)]).size


REWARDS = {
    "bernoulli": (lambda rng: rng.random((RUNS, ROWS)) < 0.3, 0.3),
    "rare": (lambda rng: rng.random((RUNS, ROWS)) < 0.01, 0.01),
    "uniform": (lambda rng: rng.random((RUNS, ROWS)), 0.5),
    "two points": (lambda rng: np.where(rng.random((RUNS, ROWS)) < 0.4, 0.9, 0.2), 0.48),
}


@pytest.mark.parametrize("name", REWARDS)
def test_it_covers_the_mean_at_all_rows_simultaneously(name: str) -> None:
    make, mean = REWARDS[name]
    sums = make(np.random.default_rng(8)).cumsum(axis=1)
    pulls = np.broadcast_to(np.arange(1, ROWS + 1), sums.shape)
    missed = misses(pulls, sums, mean)
    assert binomtest(missed, RUNS, ALPHA, alternative="greater").pvalue > 1e-3


def adaptive() -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Pulls and sums of three arms after every row, under a policy that learns; and the true means."""
    truth = [0.6, 0.5, 0.45]
    logs = simulate_logs(truth, RUNS, ROWS, seed=11, floor=0.02)
    chosen = logs.arm[..., None] == np.arange(3)
    return chosen.cumsum(axis=1), (chosen * logs.reward[..., None]).cumsum(axis=1), truth


def test_it_covers_the_mean_under_adaptive_sampling() -> None:
    pulls, sums, truth = adaptive()
    for arm, mean in enumerate(truth):
        missed = misses(pulls[..., arm], sums[..., arm], mean)
        assert binomtest(missed, RUNS, ALPHA, alternative="greater").pvalue > 1e-3


def test_a_normal_interval_checked_after_every_row_does_not_cover() -> None:
    pulls, sums, truth = adaptive()
    for arm, truth_of in enumerate(truth):
        count, total = pulls[..., arm], sums[..., arm]
        mean = total / np.maximum(count, 1)
        error = 1.6449 * np.sqrt(mean * (1 - mean) / np.maximum(count, 1))
        missed = int(((np.abs(mean - truth_of) > error) & (count >= 30)).any(axis=1).sum())
        assert binomtest(missed, RUNS, 2 * ALPHA, alternative="greater").pvalue < 1e-9


@pytest.mark.parametrize("won", [0, 5, 50, 500, 900, 1000])
def test_it_is_less_than_twice_as_wide_as_clopper_pearson(won: int) -> None:
    lower, upper = interval(1000, won)
    fixed = (
        beta.ppf(0.025, won, 1001 - won) if won else 0.0,
        beta.ppf(0.975, won + 1, 1000 - won) if won < 1000 else 1.0,
    )
    assert lower <= fixed[0] <= fixed[1] <= upper
    assert 1.2 < (upper - lower) / (fixed[1] - fixed[0]) < 2


# Special cases and invalid arguments.


def test_an_interval_does_not_depend_on_other_arms() -> None:
    rng = np.random.default_rng(4)
    pulls = rng.integers(0, 10**6, 300)
    sums = rng.random(300) * pulls
    assert mean_intervals(pulls, sums, 0, 1, 0.9) == [
        interval(n, s, confidence=0.9) for n, s in zip(pulls.tolist(), sums.tolist(), strict=True)
    ]
    assert mean_intervals([], [], 0, 1, 0.95) == []


def test_the_interval_of_an_arm_without_rewards_is_the_whole_range() -> None:
    assert mean_intervals([0, 0], [0, 0], -2, 5, 0.95) == [(-2, 5), (-2, 5)]


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 1e-9), (1e6, 1e6 + 1), (-1e290, 1e290), (-3, -2)])
def test_another_range_is_a_change_of_scale(low: float, high: float) -> None:
    pulls, fractions = np.array([3, 50, 4000]), np.array([0.0, 0.37, 1.0])
    total = pulls * (low + fractions * (high - low))
    plain = mean_intervals(pulls, pulls * fractions, 0, 1, 0.95)
    for (lower, upper), (first, last) in zip(
        mean_intervals(pulls, total, low, high, 0.95), plain, strict=True
    ):
        rounding = 1e-9 + 100 * EPSILON * max(abs(low), abs(high)) / (high - low)
        assert (lower - low) / (high - low) == pytest.approx(first, abs=rounding)
        assert (upper - low) / (high - low) == pytest.approx(last, abs=rounding)
        assert low <= lower <= upper <= high


def test_a_sum_that_is_outside_the_range_because_of_rounding() -> None:
    tenth = [0.1] * 10
    assert sum(tenth) < 1.0 == math.fsum(tenth)
    assert interval(10, 10 * (1 + 4 * EPSILON)) == pytest.approx(interval(10, 10), abs=1e-12)
    assert interval(10, -1e-15) == pytest.approx(interval(10, 0), abs=1e-12)
    assert interval(10, sum(tenth), 0.1, 0.3) == pytest.approx(interval(10, 1.0, 0.1, 0.3), abs=1e-12)


def test_an_impossible_sum_has_no_interval() -> None:
    assert mean_intervals([10, 10, 10, 0], [10.1, 5, -0.1, 3], 0, 1, 0.95) == [
        (None, None),
        interval(10, 5),
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize("total", [1e-300, 1e-201, 1e-30, 1e-3])
def test_sums_near_zero(total: float) -> None:
    for pulls in (1, 10**12):
        lower, upper = interval(pulls, total)
        assert 0 <= lower <= total / pulls
        assert upper >= interval(pulls, 0)[1]


def test_width_increases_with_confidence_and_decreases_with_rewards() -> None:
    widths = [np.subtract(*interval(100, 30, confidence=c)[::-1]) for c in (0.5, 0.9, 0.99, 1 - 1e-12)]
    assert (np.diff(widths) > 0).all()
    widths = [np.subtract(*interval(n, 0.3 * n)[::-1]) for n in (10, 1000, 10**6, 10**9, 10**12, 10**15)]
    assert (np.diff(widths) < 0).all()


def test_invalid_arguments() -> None:
    for wrong in (
        {"low": 1},
        {"high": math.inf},
        {"low": math.nan},
        {"confidence": 1},
        {"confidence": 0},
        {"pulls": [-1]},
        {"pulls": [math.nan]},
        {"pulls": 1},
        {"sums": [1, 2]},
        {"sums": [math.inf]},
    ):
        given = {"pulls": [1], "sums": [1], "low": 0, "high": 1, "confidence": 0.95} | wrong
        with pytest.raises(InvalidValue):
            mean_intervals(**given)


def test_the_module_does_not_import_numba() -> None:
    """Importing numba takes a second and 60 MB, which a service that only shows intervals should not need."""
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('means', {str(Path(means.__file__))!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert module.mean_intervals([1], [1], 0, 1, 0.95)[0][1] == 1\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
