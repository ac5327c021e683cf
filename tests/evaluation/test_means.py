from __future__ import annotations

import math
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.stats import beta, binomtest

from maillard.errors import InvalidValue
from maillard.evaluation import means
from maillard.evaluation.means import mean_intervals
from tests.evaluation.adaptive_logs import draw

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
    """ln E(mean), to 60 digits less what cancels."""

    def real(x: Fraction) -> mpmath.mpf:
        return mpmath.mpf(x.numerator) / x.denominator

    s, f, m = real(won), real(lost), real(mean)
    value = mpmath.loggamma(s + 0.5) + mpmath.loggamma(f + 0.5) - mpmath.loggamma(s + f + 1)
    return value - mpmath.log(mpmath.pi) - s * mpmath.log(m) - f * mpmath.log(1 - m)


def off_by(pulls: int, won: float, end: float, lower: bool) -> tuple[float, float]:
    """How far ln E is above ln(1 / α) at an end of the interval; and of the one that allows for a sum rounded once."""
    s, f, m = Fraction(won), pulls - Fraction(won), Fraction(end)
    needed = -mpmath.log(1 - mpmath.mpf(0.95))
    exact = log_evidence(s, f, m) - needed
    doubt = min(3 * Fraction(EPSILON) * s, s if lower else f) * (1 if lower else -1)
    return float(exact), float(log_evidence(s - doubt, f + doubt, m) - needed)


PULLS = [1, 2, 7, 15, 16, 17, 100, 12_345, 10**6, 10**9, 10**12]
SHARES = [1e-9, 1e-3, 0.1, 0.4999, 0.5, 0.77, 0.999]


@pytest.mark.parametrize("pulls", PULLS)
def test_at_both_ends_the_evidence_is_what_excludes(pulls: int) -> None:
    """Up to what rounding may come to, outwards: a few ε of the two terms whose difference it is, and of the ends themselves."""
    wins = {
        1.0 * pulls,
        *(share * pulls for share in SHARES),
        *(x for x in (0, 0.5, 1, 3, 15.7) if x <= pulls),
    }
    for won in sorted(wins):
        lost = pulls - won
        lower, upper = interval(pulls, won)
        assert 0 <= lower <= won / pulls <= upper <= 1
        for end, is_lower in ((lower, True), (upper, False)):
            if end in (0, 1):
                assert (
                    won if is_lower else lost
                ) < 0.5  # what a float holds between it and the end of the range
                continue
            exact, allowing = off_by(pulls, won, end, is_lower)
            assert exact >= 0  # nothing that belongs to the interval is left out
            steepness = abs(won - lost * end / (1 - end))
            assert 0 <= allowing <= 1e-11 + 50 * EPSILON * steepness
            assert allowing < 1e-6 or min(won, lost) == 0


def test_what_is_left_of_the_gamma_functions_is_known_to_the_last_digits() -> None:
    x = np.array([0.0, 1e-9, 0.3, 1, 5, 15.99, 16, 16.01, 20, 31.4, 100, 1e4, 1e8, 1e12])
    rest = [mpmath.mpf(v) - (v * mpmath.log(v) if v else 0) - mpmath.log(2 * mpmath.pi) / 2 for v in x]
    for value, half, v in zip(rest, means._stirling_half(x), x, strict=True):
        assert float(mpmath.loggamma(v + mpmath.mpf(0.5)) + value) == pytest.approx(half, abs=2e-14)
    for value, whole, v in zip(rest[1:], means._stirling_whole(x[1:]), x[1:], strict=True):
        exact = mpmath.loggamma(v + mpmath.mpf(1)) + value - mpmath.log(v) / 2
        assert float(exact) == pytest.approx(whole, abs=2e-14)


@pytest.mark.parametrize("pulls", [1, 10, 10**5, 10**9])
def test_where_every_reward_was_the_best_the_lower_end_has_a_closed_form(pulls: int) -> None:
    lower, upper = interval(pulls, pulls)
    constant = mpmath.beta(pulls + 0.5, 0.5) / mpmath.pi
    assert lower == pytest.approx(float((0.05 * constant) ** (mpmath.mpf(1) / pulls)), abs=1e-12)
    assert upper == 1
    assert interval(pulls, 0) == pytest.approx((0, 1 - lower), abs=1e-12)


def test_the_average_over_q_is_the_beta_function() -> None:
    """The formula from its definition: what a bet on each q has come to, on average."""
    lower, upper = interval(9, 2.5)

    def average(mean: float) -> float:
        def bet(q: float) -> float:
            return float((q / mean) ** 2.5 * ((1 - q) / (1 - mean)) ** 6.5 / (np.pi * np.sqrt(q * (1 - q))))

        return float(mpmath.quad(bet, [0, 0.5, 1]))

    assert average(lower) == pytest.approx(20, rel=1e-6)
    assert average(upper) == pytest.approx(20, rel=1e-6)
    assert average(lower + 0.01) < 20 < average(lower - 0.01)


def test_a_bet_is_worth_at_most_one_whatever_the_rewards_are() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        values, law = rng.random(5), rng.dirichlet(np.ones(5))
        mean, q = float(values @ law), rng.random()
        worth = law @ ((q / mean) ** values * ((1 - q) / (1 - mean)) ** (1 - values))
        assert worth <= 1 + 1e-12


# Looking at every row.

RUNS, LOOKS, ALPHA = 500, 2000, 0.1


def misses(pulls: np.ndarray, sums: np.ndarray, mean: float) -> int:
    """In how many runs the interval excluded the mean at any look."""
    run, _ = new = np.nonzero(np.diff(pulls, axis=1, prepend=0))  # between two rewards it stays as it is
    lower, upper = np.array(mean_intervals(pulls[new], sums[new], 0, 1, 1 - ALPHA)).T
    return np.unique(run[(lower > mean) | (upper < mean)]).size


REWARDS = {
    "bernoulli": (lambda rng: rng.random((RUNS, LOOKS)) < 0.3, 0.3),
    "rare": (lambda rng: rng.random((RUNS, LOOKS)) < 0.01, 0.01),
    "uniform": (lambda rng: rng.random((RUNS, LOOKS)), 0.5),
    "two points": (lambda rng: np.where(rng.random((RUNS, LOOKS)) < 0.4, 0.9, 0.2), 0.48),
}


@pytest.mark.parametrize("name", REWARDS)
def test_it_covers_at_every_look_at_once(name: str) -> None:
    make, mean = REWARDS[name]
    sums = make(np.random.default_rng(8)).cumsum(axis=1)
    pulls = np.broadcast_to(np.arange(1, LOOKS + 1), sums.shape)
    missed = misses(pulls, sums, mean)
    assert binomtest(missed, RUNS, ALPHA, alternative="greater").pvalue > 1e-3


def adaptive() -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Rewards of three arms, as a policy that learns drew them: pulls and sums after every row."""
    truth = [0.6, 0.5, 0.45]
    logs = draw(truth, RUNS, LOOKS, seed=11, floor=0.02)
    chosen = logs.arm[..., None] == np.arange(3)
    return chosen.cumsum(axis=1), (chosen * logs.reward[..., None]).cumsum(axis=1), truth


def test_it_covers_where_a_policy_decides_what_is_seen() -> None:
    pulls, sums, truth = adaptive()
    for arm, mean in enumerate(truth):
        missed = misses(pulls[..., arm], sums[..., arm], mean)
        assert binomtest(missed, RUNS, ALPHA, alternative="greater").pvalue > 1e-3


def test_a_normal_interval_looked_at_after_every_row_does_not() -> None:
    pulls, sums, truth = adaptive()
    for arm, truth_of in enumerate(truth):
        count, total = pulls[..., arm], sums[..., arm]
        mean = total / np.maximum(count, 1)
        error = 1.6449 * np.sqrt(mean * (1 - mean) / np.maximum(count, 1))
        missed = int(((np.abs(mean - truth_of) > error) & (count >= 30)).any(axis=1).sum())
        assert binomtest(missed, RUNS, 2 * ALPHA, alternative="greater").pvalue < 1e-9


@pytest.mark.parametrize("won", [0, 5, 50, 500, 900, 1000])
def test_the_price_of_looking_at_any_time_is_less_than_twice_the_width(won: int) -> None:
    lower, upper = interval(1000, won)
    fixed = (
        beta.ppf(0.025, won, 1001 - won) if won else 0.0,
        beta.ppf(0.975, won + 1, 1000 - won) if won < 1000 else 1.0,
    )
    assert lower <= fixed[0] <= fixed[1] <= upper
    assert 1.2 < (upper - lower) / (fixed[1] - fixed[0]) < 2


# Whatever else comes.


def test_arms_by_themselves_and_together() -> None:
    rng = np.random.default_rng(4)
    pulls = rng.integers(0, 10**6, 300)
    sums = rng.random(300) * pulls
    assert mean_intervals(pulls, sums, 0, 1, 0.9) == [
        interval(n, s, confidence=0.9) for n, s in zip(pulls.tolist(), sums.tolist(), strict=True)
    ]
    assert mean_intervals([], [], 0, 1, 0.95) == []


def test_an_arm_without_rewards_may_have_any_mean() -> None:
    assert mean_intervals([0, 0], [0, 0], -2, 5, 0.95) == [(-2, 5), (-2, 5)]


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 1e-9), (1e6, 1e6 + 1), (-1e290, 1e290), (-3, -2)])
def test_another_range_is_a_change_of_scale(low: float, high: float) -> None:
    pulls, shares = np.array([3, 50, 4000]), np.array([0.0, 0.37, 1.0])
    total = pulls * (low + shares * (high - low))
    plain = mean_intervals(pulls, pulls * shares, 0, 1, 0.95)
    for (lower, upper), (first, last) in zip(
        mean_intervals(pulls, total, low, high, 0.95), plain, strict=True
    ):
        rounding = 1e-9 + 100 * EPSILON * max(abs(low), abs(high)) / (high - low)
        assert (lower - low) / (high - low) == pytest.approx(first, abs=rounding)
        assert (upper - low) / (high - low) == pytest.approx(last, abs=rounding)
        assert low <= lower <= upper <= high


def test_a_sum_that_rounding_has_brought_out_of_the_range() -> None:
    tenth = [0.1] * 10
    assert sum(tenth) < 1.0 == math.fsum(tenth)
    assert interval(10, 10 * (1 + 4 * EPSILON)) == pytest.approx(interval(10, 10), abs=1e-12)
    assert interval(10, -1e-15) == pytest.approx(interval(10, 0), abs=1e-12)
    assert interval(10, sum(tenth), 0.1, 0.3) == pytest.approx(interval(10, 1.0, 0.1, 0.3), abs=1e-12)


def test_a_sum_that_no_rewards_in_the_range_have_has_no_interval() -> None:
    assert mean_intervals([10, 10, 10, 0], [10.1, 5, -0.1, 3], 0, 1, 0.95) == [
        (None, None),
        interval(10, 5),
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize("total", [1e-300, 1e-201, 1e-30, 1e-3])
def test_sums_near_nothing(total: float) -> None:
    for pulls in (1, 10**12):
        lower, upper = interval(pulls, total)
        assert 0 <= lower <= total / pulls
        assert upper >= interval(pulls, 0)[1]


def test_more_confidence_and_fewer_rewards_are_wider() -> None:
    widths = [np.subtract(*interval(100, 30, confidence=c)[::-1]) for c in (0.5, 0.9, 0.99, 1 - 1e-12)]
    assert (np.diff(widths) > 0).all()
    widths = [np.subtract(*interval(n, 0.3 * n)[::-1]) for n in (10, 1000, 10**6, 10**9, 10**12, 10**15)]
    assert (np.diff(widths) < 0).all()


def test_a_thousand_arms_take_a_few_milliseconds() -> None:
    rng = np.random.default_rng(0)
    pulls = rng.integers(1, 10 ** rng.integers(1, 13, 1000))
    sums = rng.random(1000) * pulls
    times = []
    for _ in range(10):
        begin = time.process_time()
        mean_intervals(pulls, sums, 0, 1, 0.95)
        times.append(time.process_time() - begin)
    assert min(times) < 0.05  # seconds of CPU time, which other processes do not change


def test_refusals() -> None:
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


def test_the_module_needs_no_compiler() -> None:
    """Of itself: numba takes a second and 60 MB, which a service that shows intervals has no use for."""
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('means', {str(Path(means.__file__))!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "assert module.mean_intervals([1], [1], 0, 1, 0.95)[0][1] == 1\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
