"""Fast quadrature, compared with plain quadrature of each arm, and its parts with special functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import erfcx

from maillard import BernoulliThompson, GaussianThompson, Tally, policy
from maillard.policies.numerics import score_distributions, window_integrals
from maillard.policies.numerics.cdf_tables import CdfTable
from maillard.policies.numerics.quadrature import win_log_probabilities
from maillard.policies.numerics.score_distributions import BETA, GAUSSIAN, GUMBEL
from tests.policies import plain_quadrature

NOISES = {"ts": GAUSSIAN, "boltzmann-gumbel": GUMBEL, "ts-bernoulli": BETA}


def scores(name: str, arms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters of scores whose scales differ up to a thousandfold."""
    rng = np.random.default_rng(seed)
    n = np.exp(rng.uniform(0, math.log(1e6), arms)).astype(int) * 1.0
    a, b = policy(name, sigma2=0.25).score(n, np.rint(n * rng.random(arms)))
    return a * 1.0, b * 1.0


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize(("arms", "seed"), [(2, 1), (3, 2), (5, 3), (5, 4), (12, 5), (12, 6), (12, 7)])
def test_every_arm_agrees_with_plain_quadrature(name, arms, seed) -> None:
    a, b = scores(name, arms, seed)
    exact = plain_quadrature.win_log_probabilities(NOISES[name], a, b)
    log, error = win_log_probabilities(NOISES[name], a, b)
    assert (np.abs(log - exact) <= error + 1e-12 * np.maximum(1.0, np.abs(exact))).all()
    assert error[exact > math.log(1e-8)].max() < 1e-10
    assert error.max() < 1e-6


@pytest.mark.parametrize("name", NOISES)
def test_two_panels_are_not_enough(name) -> None:
    """The negative control: plain quadrature without refinement is far outside of the bounds."""
    a, b = scores(name, 12, 5)
    poor = plain_quadrature.win_log_probabilities(NOISES[name], a, b, refine=False)
    log, error = win_log_probabilities(NOISES[name], a, b)
    assert (np.abs(log - poor) > 1e-3 + error).any()


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("arms", [60, 300])
def test_interpolated_sums_for_many_rare_arms_stay_within_their_bounds(name, arms, monkeypatch) -> None:
    a, b = scores(name, arms, arms)
    log, error = win_log_probabilities(NOISES[name], a, b)
    rare = log < math.log(1e-20)
    assert np.count_nonzero(rare) > 20
    monkeypatch.setattr(window_integrals, "_FEW", 10**9)  # exact sums at every node
    exact, tight = win_log_probabilities(NOISES[name], a, b)
    assert np.array_equal(log[~rare], exact[~rare])
    assert (np.abs(log - exact) <= error + tight).all()
    assert np.median(error[rare]) < 0.1


def test_the_tails_of_many_rare_arms_are_not_guessed(monkeypatch) -> None:
    """The negative control: with too few points, the interpolated sums are wrong, and the bounds say so."""
    a, b = scores("ts", 60, 60)
    exact, _ = win_log_probabilities(GAUSSIAN, a, b)
    for name, value in (("_FEW", 0), ("_EVALUATIONS", 1), ("_ADDED", 0)):
        monkeypatch.setattr(window_integrals, name, value)
    log, error = win_log_probabilities(GAUSSIAN, a, b)
    assert np.abs(log - exact).max() > 1e-2
    assert (np.abs(log - exact) <= error + 1e-6).all()


def test_cold_arms_are_computed_once_and_share_equally() -> None:
    """A thousand arms of which few are warm: copies have equal probabilities, and all add up to 1."""
    rng = np.random.default_rng(3)
    pulls, sums = np.zeros(1000, int), np.zeros(1000)
    warm = rng.choice(1000, 20, replace=False)
    pulls[warm] = rng.integers(1, 2000, 20)
    sums[warm] = np.floor(pulls[warm] * rng.random(20))
    for made in (BernoulliThompson(), GaussianThompson(sigma2=0.25)):
        log = made.log_probabilities(Tally(pulls, sums))
        assert np.unique(log[pulls == 0]).size == 1
        assert abs(np.exp(log).sum() - 1.0) < 1e-12
    # Against one copy: P(cold arm wins) = E[F_cold^979 prod F_warm] of a single one.
    a, b = 1.0 + sums, 1.0 + pulls - sums
    few = np.append(np.flatnonzero(pulls), np.flatnonzero(pulls == 0)[:30])
    exact = plain_quadrature.win_log_probabilities(BETA, a[few], b[few])
    assert win_log_probabilities(BETA, a[few], b[few])[0] == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("most", [10.0, 1e3, 1e6, 1e9])
def test_tables_of_beta_distributions(most) -> None:
    rng = np.random.default_rng(0)
    n = np.rint(np.exp(rng.uniform(0, math.log(most), 12))) + 1
    s = np.minimum(np.rint(n * rng.random(12) ** 2), n)
    s[:2] = 0, n[1]
    a, b = 1 + s, 1 + n - s
    low, high = BETA.ends(a, b)
    table = CdfTable(BETA, a, b, low=low, high=high, log_norm=BETA.log_norm(a, b))
    x = 0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * np.linspace(-1.2, 1.1, 201)
    with np.errstate(all="ignore"):
        exact, found = BETA.logs(x, a[:, None], b[:, None]), table.logs(x, np.arange(12))
    assert np.abs(found[0] - exact[0]).max() < 1e-9
    assert np.abs(found[1] - exact[1]).max() < 1e-9


def test_scaled_tails_of_large_arrays() -> None:
    y = np.concatenate([np.linspace(0, 40, 20_001), np.geomspace(40, 1e12, 500)])
    assert score_distributions._scaled_tail(y.copy()) == pytest.approx(erfcx(y), rel=5e-15)


@pytest.mark.parametrize("noise", [GAUSSIAN, BETA])
def test_densities_are_the_derivatives_of_distribution_functions(noise) -> None:
    a, b = (np.array([3.0]), np.array([0.5])) if noise is GAUSSIAN else (np.array([8.0]), np.array([3.0]))
    x = np.linspace(*(float(end[0]) for end in noise.ends(a, b)), 41)[5:-5]
    log_cdf, ratio = noise.logs(x, a, b)
    assert noise.log_kernel(x, a, b) + noise.log_norm(a, b) == pytest.approx(log_cdf + ratio, rel=1e-12)
    step = 1e-4 * float(noise.spread(a, b)[0])
    around = [noise.log_kernel(x + d, a, b) for d in (-step, 0.0, step)]
    slope, bend = np.broadcast_arrays(*noise.slopes(x, a, b), x)[:2]
    assert (around[2] - around[0]) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-5)
    assert (around[2] - 2 * around[1] + around[0]) / step**2 == pytest.approx(bend, rel=1e-3, abs=1e-4)


def test_a_family_of_your_own_needs_only_logs_and_ends() -> None:
    class Plain(score_distributions.ScoreDistribution):
        def logs(self, x, a, b):
            return GAUSSIAN.logs(x, a, b)

        def ends(self, a, b):
            return GAUSSIAN.ends(a, b)

    a, b = scores("ts", 5, 3)
    exact, tight = win_log_probabilities(GAUSSIAN, a, b)
    log, error = win_log_probabilities(Plain(), a, b)
    assert (exact < math.log(1e-20)).any()
    assert (np.abs(log - exact) <= error + tight).all()
