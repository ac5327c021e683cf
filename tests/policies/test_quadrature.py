"""Thompson probabilities: accuracy, the reported bound, tails, limits."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from scipy.special import log_ndtr

from maillard import BernoulliThompson, GaussianThompson, Tally, policy
from maillard.policies.numerics.quadrature import win_log_probabilities
from maillard.policies.numerics.score_distributions import BETA, GAUSSIAN, GUMBEL
from tests.policies import reference


@pytest.mark.parametrize(("arms", "cases"), [(2, 8), (3, 5), (10, 1)])
def test_gaussian_thompson_against_mpmath(arms, cases) -> None:
    rng = np.random.default_rng(arms)
    for _ in range(cases):
        n = np.exp(rng.uniform(0, math.log(1e4), arms)).astype(int)
        s = n * rng.normal(scale=10 ** rng.uniform(-2, 0.3), size=arms)
        exact = reference.log_probabilities("ts", n.tolist(), s.tolist(), t=int(n.sum()) + 1, sigma2=0.25)
        distribution = GaussianThompson(sigma2=0.25).distribution(Tally(n, s))
        for log, error, true in zip(
            distribution.log_probabilities, distribution.error, map(float, exact), strict=True
        ):
            assert abs(log - true) <= error + 1e-15 * abs(true)
            if true > math.log(1e-8):
                assert abs(log - true) <= 1e-10


def test_two_arms_have_a_closed_form() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        scales = 10 ** rng.uniform(-6, 1, 2)
        gap = 10 ** rng.uniform(-6, 3)
        log, error = win_log_probabilities(GAUSSIAN, np.array([0.0, -gap]), scales)
        exact = log_ndtr(-gap / math.hypot(*scales))
        assert abs(log[1] - exact) <= error[1] + 1e-14 * abs(exact)
        assert np.isfinite(log).all()
        if exact > math.log(1e-8):
            assert abs(log[1] - exact) < 1e-10


def test_a_policy_with_two_arms_uses_the_closed_form() -> None:
    tally = Tally([30, 12], [18.0, 5.0])
    log = GaussianThompson(sigma2=0.25).log_probabilities(tally)
    general, error = win_log_probabilities(GAUSSIAN, tally.means, np.sqrt(0.25 / tally.pulls))
    assert np.abs(log - general).max() <= error.max()
    far = GaussianThompson(sigma2=0.25).log_probabilities(Tally([10**9, 10**9], [10**9, 0.0]))
    assert far[1] == pytest.approx(log_ndtr(-math.sqrt(2e9)), rel=1e-12)


def test_equal_gumbel_scales_give_a_softmax() -> None:
    means = np.array([0.0, -0.3, -1.0, -7.0])
    log, _ = win_log_probabilities(GUMBEL, means, np.full(4, 0.2))
    assert log == pytest.approx(means / 0.2 - np.log(np.exp(means / 0.2).sum()), abs=1e-11)


def test_bernoulli_thompson_with_two_arms_is_an_exact_sum() -> None:
    """P(Beta(a, b) > Beta(c, d)) for whole parameters is a finite sum of products of factorials."""
    a, b, c, d = 9, 4, 6, 11
    total = sum(
        math.comb(c + d - 1, j) * math.exp(_log_beta(a + j, b + c + d - 1 - j) - _log_beta(a, b))
        for j in range(c, c + d)
    )
    log, _ = win_log_probabilities(BETA, np.array([a, c], float), np.array([b, d], float))
    assert math.exp(log[0]) == pytest.approx(total, rel=1e-11)


@pytest.mark.parametrize("n", [10, 10**3, 10**5, 10**7, 10**9])
@pytest.mark.parametrize("failures", [1, 5])
def test_bernoulli_thompson_where_all_but_a_few_succeed(n, failures) -> None:
    """Against n successes in n pulls the integral is E[X^(n+1)], a quotient of Gamma functions."""
    mp = reference.mp
    with mp.workdps(50):
        a, b = n + 1 - failures, failures + 1
        exact = mp.loggamma(a + n + 1) - mp.loggamma(a + b + n + 1) - mp.loggamma(a) + mp.loggamma(a + b)
    distribution = BernoulliThompson().distribution(Tally([n, n], [n, n - failures]))
    assert abs(distribution.log_probabilities[1] - float(exact)) <= distribution.error[1] < 1e-11


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@pytest.mark.parametrize("noise", [GAUSSIAN, GUMBEL])
def test_scales_that_differ_a_thousandfold_at_a_thousand_arms(noise) -> None:
    rng = np.random.default_rng(1)
    scales = 0.5 * 10 ** rng.uniform(-3, 0, 1000)
    log, error = win_log_probabilities(noise, rng.normal(scale=0.3, size=1000), scales)
    assert abs(np.exp(log).sum() - 1) < 1e-12
    assert error[log > math.log(1e-8)].max() < 1e-10
    assert np.isfinite(log).all()


def test_a_fixed_rule_is_not_accurate() -> None:
    """The negative control for adaptive panels: one 256-point rule has a much larger error."""
    rng = np.random.default_rng(1)
    means, scales = rng.normal(scale=0.3, size=200), 0.5 * 10 ** rng.uniform(-3, 0, 200)
    log, _ = win_log_probabilities(GAUSSIAN, means, scales)
    x, w = np.polynomial.legendre.leggauss(256)
    low, high = (means - 12 * scales).max(), (means + 12 * scales).max()
    x = 0.5 * (low + high) + 0.5 * (high - low) * x
    log_cdf, ratio = GAUSSIAN.logs(x, means[:, None], scales[:, None])
    fixed = np.exp(ratio + log_cdf.sum(axis=0)) @ w * 0.5 * (high - low)
    assert np.abs(fixed - np.exp(log)).max() > 1e-5


def test_narrow_spikes_far_from_the_origin_are_not_missed() -> None:
    """With a billion pulls at mean 1000, relative coordinates prevent rounding errors."""
    log, _ = win_log_probabilities(GAUSSIAN, np.array([1000.0, 1000.0 - 2e-5]), np.array([1.6e-5, 1.6e-5]))
    gap = 1000.0 - (1000.0 - 2e-5)
    assert log[1] == pytest.approx(log_ndtr(-gap / (1.6e-5 * math.sqrt(2))), abs=1e-11)


@pytest.mark.parametrize("k", [3, 30])
def test_far_arms_keep_finite_logs_within_their_bounds(k) -> None:
    """With k - 1 equal arms, the far arm competes with their maximum: an integral in mpmath."""
    mp = reference.mp
    log, error = win_log_probabilities(
        GAUSSIAN, np.append(np.zeros(k - 1), -3.0), np.append(np.full(k - 1, 0.02), 0.1)
    )
    with mp.workdps(40):

        def integrand(x):
            return mp.npdf(x, -3, mp.mpf("0.1")) * mp.ncdf(x, 0, mp.mpf("0.02")) ** (k - 1)

        points = [mp.mpf(i) / 100 for i in range(-40, 21)]
        exact = mp.log(mp.quad(integrand, points))
    assert abs(log[-1] - float(exact)) <= error[-1]
    assert error[-1] < 1e-2


@pytest.mark.parametrize(
    ("name", "pulls", "sums"),
    [
        ("ts", [10**4, 10**9, 1], [101000.0, 1e10, 0.0]),
        ("ts", [10**4, 10**6, 3, 50], [29000.0, 3e6, 1.0, 30.0]),
        ("boltzmann-gumbel", [10**5, 10**9, 4000], [101000.0, 1e9, 0.0]),
        ("ts-bernoulli", [1000, 300000, 60], [709.0, 209623.0, 3.0]),
    ],
)
def test_a_narrow_distribution_in_a_wide_interval_is_found(name, pulls, sums) -> None:
    """Where a rare arm wins, another score's cdf may rise within a thousandth of the tabulated interval."""
    parameters = {} if name == "ts-bernoulli" else {"sigma2": 1.0}
    exact = reference.log_probabilities(name, pulls, sums, t=sum(pulls) + 1, **parameters)
    distribution = policy(name, sigma2=1.0).distribution(Tally(pulls, sums))
    assert distribution.log_probabilities.min() < math.log(1e-20)
    for log, error, true in zip(
        distribution.log_probabilities, distribution.error, map(float, exact), strict=True
    ):
        assert abs(log - true) <= error + 1e-15 * abs(true)
    assert distribution.error.max() < 1e-6


def test_a_log_beyond_the_window_is_its_peak() -> None:
    distribution = policy("ts:sigma2=1e-6").distribution(Tally([10**9] * 3, [0, 0, 1e12]))
    assert distribution.log_probabilities[:2] == pytest.approx(-2.5e20, rel=1e-5)


def test_many_copies_of_few_distributions_are_fast_and_exact() -> None:
    log, _ = win_log_probabilities(GAUSSIAN, np.zeros(10**6), np.ones(10**6))
    assert np.allclose(log, -math.log(10**6), rtol=1e-12)


@pytest.mark.torture
@pytest.mark.parametrize("most_pulls", [50, 10**6])
def test_a_million_arms_in_bounded_memory(most_pulls) -> None:
    rng = np.random.default_rng(6)
    pulls = np.exp(rng.uniform(0, math.log(most_pulls), 10**6)).astype(int)
    tracemalloc.start()
    log, _ = win_log_probabilities(GAUSSIAN, rng.random(10**6), 0.5 / np.sqrt(pulls))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(log).all()
    assert abs(np.exp(log).sum() - 1) < 1e-12
    assert peak < 2e9


@pytest.mark.torture
def test_the_reported_bound_covers_three_thousand_pairs() -> None:
    rng = np.random.default_rng(9)
    for _ in range(3000):
        scales, gap = 10 ** rng.uniform(-6, 1, 2), 10 ** rng.uniform(-6, 3)
        log, error = win_log_probabilities(GAUSSIAN, np.array([0.0, -gap]), scales)
        exact = log_ndtr(-gap / math.hypot(*scales))
        assert abs(log[1] - exact) <= error[1] + 1e-14 * abs(exact)


def test_memory_is_bounded() -> None:
    """Fifty thousand distinct arms; the whole table of 16 nodes and 80 panels would be half a gigabyte."""
    rng = np.random.default_rng(5)
    means, scales = rng.random(50_000), 0.5 / np.sqrt(np.exp(rng.uniform(0, 9, 50_000)))
    tracemalloc.start()
    log, _ = win_log_probabilities(GAUSSIAN, means, scales)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(log).all()
    assert abs(np.exp(log).sum() - 1) < 1e-12
    assert peak < 150e6
