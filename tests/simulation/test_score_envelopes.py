"""Envelopes of scores, buckets of hazards and the candidates that they give, compared with SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from maillard.simulation.engines import hazard_buckets, lazy_perturbed, score_sampling
from maillard.simulation.engines import score_envelopes as envelopes
from maillard.simulation.engines.lazy_perturbed import FIRST, STATE
from maillard.simulation.engines.score_sampling import BETA, GAUSSIAN, GUMBEL

SURE = 1e-6
CASES = [
    *[(GAUSSIAN, 0.3, 0.5, threshold, rate) for threshold in (-0.5, 0.4, 2.0) for rate in (0.2, 2.0, 8.0)],
    *[(GUMBEL, 0.3, 0.5, threshold, rate) for threshold in (-0.5, 0.4, 3.0) for rate in (0.2, 2.0)],
    *[
        (BETA, a, b, threshold, rate)
        for a, b in ((1.0, 1.0), (1.0, 30.0), (2.0, 1.0), (7.0, 90.0), (300.0, 200.0))
        for threshold in (0.05, 0.3, 0.7)
        for rate in (1.0, 20.0, 150.0)
    ],
]


def distribution(code: int, a: float, b: float):
    return {GAUSSIAN: stats.norm, GUMBEL: stats.gumbel_r, BETA: stats.beta}[code](a, b)


@pytest.mark.parametrize(("code", "a", "b", "threshold", "rate"), CASES)
def test_the_envelope_lies_above_the_density_and_touches_it(code, a, b, threshold, rate) -> None:
    norm = envelopes.log_norm(a, b) if code == BETA else 0.0
    scale = envelopes.density_scale(code, b)
    x = threshold + np.linspace(0.0, (0.999999 - threshold) if code == BETA else 12.0, 20001)
    density = np.array([envelopes.log_density(code, a, b, norm, each) for each in x]) - math.log(scale)
    assert density == pytest.approx(distribution(code, a, b).logpdf(x), abs=1e-8)
    height = envelopes.tangent(code, a, b, norm, threshold, rate) - math.log(scale)
    slack = (height - rate * (x - threshold) - density).min()
    assert slack > -1e-9
    if code != GUMBEL:  # whose envelope omits a factor
        assert slack < 1e-3


def test_a_gumbel_density_has_no_envelope_that_falls_faster() -> None:
    assert envelopes.tangent(GUMBEL, 0.0, 0.5, 0.0, 1.0, 2.1) == np.inf


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (1.0, 5.5), (3.0, 1.0), (2.5, 40.0), (1e5, 2e6)])
def test_the_constant_of_a_beta_density(a, b) -> None:
    from scipy.special import betaln

    norm = envelopes.log_norm(a, b)
    assert norm == pytest.approx(-betaln(a, b), rel=1e-10, abs=1e-12)
    for new in ((a + 1.0, b), (a, b + 1.0), (a + 0.25, b + 0.75)):
        assert envelopes.next_log_norm(norm, *new, a, b) == pytest.approx(-betaln(*new), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (1.0, 30.0), (7.0, 90.0), (300.0, 200.5)])
def test_beta_samples_have_their_distribution(a, b) -> None:
    rng = np.random.default_rng(3)
    samples = [score_sampling.sample_beta(a, b, rng) for _ in range(5000)]
    assert stats.kstest(samples, stats.beta(a, b).cdf).pvalue > SURE
    assert stats.kstest(samples, stats.beta(1.15 * a, b).cdf).pvalue < SURE


def test_buckets_round_weights_up_and_find_arms_in_proportion() -> None:
    rng = np.random.default_rng(4)
    arms, weights = 40, {}
    w = np.zeros((hazard_buckets.HEIGHT, 64))
    hazard_buckets.begin_buckets(w, 0)
    hazard_buckets.clear_buckets(w, 0, arms)
    for arm in rng.integers(0, arms, 500):
        weight = 2.0 ** rng.uniform(-6.0, 0.0)
        bucket, row = hazard_buckets.bucket_for(weight), 2 + int(arm) % 2
        weights[int(arm)] = w[hazard_buckets.WEIGHTS, bucket]
        assert weight <= weights[int(arm)] < 1.51 * weight
        hazard_buckets.move_arm(w, 0, int(arm), row * hazard_buckets.BUCKETS + bucket)
    for row in (2, 3):
        total = math.fsum(weight for arm, weight in weights.items() if 2 + arm % 2 == row)
        assert w[hazard_buckets.TOTALS, row] == total
        steps = 4 * 2**16
        found = [hazard_buckets.find_arm(w, 0, row, total * (step + 0.5) / steps) for step in range(steps)]
        assert all(0.0 <= into <= weight == weights[arm] for arm, into, weight in found)
        counts = np.bincount([arm for arm, _, _ in found], minlength=arms)
        expected = [weights.get(arm, 0.0) * (2 + arm % 2 == row) for arm in range(arms)]
        assert np.abs(counts * total / steps - expected).max() < 4.0 * total / steps


def frequency_above(code: int, a: float, b: float, threshold: float, top: float, rate: float) -> float:
    """Return how often the only arm that is not certain is above `top`."""
    w = lazy_perturbed.begin(2)
    w[STATE, lazy_perturbed.THRESHOLD], w[STATE, lazy_perturbed.TYPICAL_RATE] = threshold, rate
    w[lazy_perturbed.A], w[lazy_perturbed.B] = a, b
    if code == BETA:
        w[lazy_perturbed.NORM] = envelopes.log_norm(a, b)
    lazy_perturbed.fill_buckets(code, w, 1, 1.0)
    assert w[STATE, lazy_perturbed.TOTAL] > 0.0
    assert w[FIRST + hazard_buckets.LIST, 0] != hazard_buckets.UNWEIGHTED
    rng, rounds = np.random.default_rng(5), 20_000
    found = [
        lazy_perturbed.find_candidate(code, w, rng.standard_exponential(), top, rng) for _ in range(rounds)
    ]
    return found.count(0) / rounds


CANDIDATES = [
    *[(GAUSSIAN, 0.0, 1.0, threshold, above) for threshold in (0.85, 1.5) for above in (0.0, 0.7)],
    *[(GUMBEL, 0.0, 1.0, threshold, above) for threshold in (1.6, 3.0) for above in (0.0, 0.7)],
    *[(BETA, 7.0, 60.0, threshold, above) for threshold in (0.15, 0.2) for above in (0.0, 0.03)],
]


@pytest.mark.parametrize(("code", "a", "b", "threshold", "above"), CANDIDATES)
def test_candidates_are_above_with_the_right_probability(code, a, b, threshold, above) -> None:
    exact = distribution(code, a, b)
    # The tangent touches near the threshold: there the envelope is tight.
    rate = max(envelopes.slope_at(code, a, b, threshold), 0.9 / b)
    seen = frequency_above(code, a, b, threshold, threshold + above, rate)
    due = float(exact.sf(threshold + above))
    assert abs(seen - due) < 5.0 * math.sqrt(due * (1.0 - due) / 20_000)


def test_buckets_that_are_too_small_are_detected(monkeypatch) -> None:
    """Without the factor of the highest point, the density of the score exceeds that of the candidate."""
    monkeypatch.setattr(lazy_perturbed, "allowed_mass", lambda w, bucket: np.inf)
    monkeypatch.setattr(lazy_perturbed, "bucket_for", lambda mass: hazard_buckets.bucket_for(0.7 * mass))
    due = float(stats.norm.sf(0.85))
    seen = frequency_above(GAUSSIAN, 0.0, 1.0, 0.85, 0.85, 0.85)
    assert abs(seen - due) > 5.0 * math.sqrt(due * (1.0 - due) / 20_000)


def test_a_comparison_with_exp_agrees_with_exp() -> None:
    rng = np.random.default_rng(6)
    for x in (-np.inf, -50.0, -2.0, -0.3, 0.0, 0.2, 3.0):
        for u in [*rng.random(50), np.exp(x) * (1.0 - 1e-12), np.exp(x) * (1.0 + 1e-12), 0.0]:
            assert lazy_perturbed.is_below_exp(u, x) == (u < np.exp(x))
