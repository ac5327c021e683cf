"""Buckets of arms, and the estimates of weights from a potential, agree with plain computations."""

from __future__ import annotations

import numpy as np
import pytest

from maillard.simulation.compiled_plans import compile_plan
from maillard.simulation.engines import arm_buckets, lazy_sampled, trial_loop, weight_bounds
from maillard.simulation.engines.direct_engines import log_weight
from tests.simulation.test_engines import NAMES, has_lazy, plan_of

ARMS = 40


def filled_table(rng: np.random.Generator, moves: int) -> tuple[np.ndarray, np.ndarray]:
    """A table after random moves and removals, and the bucket of each arm (-1: none)."""
    w, buckets = arm_buckets.make_table(ARMS, 1), np.full(ARMS, -1)
    for _ in range(moves):
        arm = int(rng.integers(ARMS))
        if rng.random() < 0.2:
            arm_buckets.remove_arm(w, arm)
            buckets[arm] = -1
        else:
            buckets[arm] = min(rng.geometric(0.2), arm_buckets.LAST_BUCKET)
            arm_buckets.move_arm(w, arm, buckets[arm])
    return w, buckets


def lengths_of(buckets: np.ndarray) -> np.ndarray:
    return np.where(buckets >= 0, 0.5 ** np.maximum(buckets, 0), 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_masses_are_exact_sums_of_lengths(seed) -> None:
    w, buckets = filled_table(np.random.default_rng(seed), 500)
    lengths = lengths_of(buckets)
    assert w[arm_buckets.MASS, arm_buckets.TOTAL] == lengths.sum()
    for bucket in range(arm_buckets.BUCKETS):
        assert w[arm_buckets.MASS, bucket] == lengths[buckets == bucket].sum()


@pytest.mark.parametrize("seed", range(5))
def test_every_arm_owns_an_interval_of_its_length(seed) -> None:
    w, buckets = filled_table(np.random.default_rng(seed), 500)
    lengths, step = lengths_of(buckets), 0.5**12
    assert buckets.max() > 10  # shorter arms than the steps occur, too
    positions = np.arange(0.5 * step, lengths.sum(), step)
    found = [arm_buckets.find_arm(w, position) for position in positions]
    arms = np.array([arm for arm, _, _ in found])
    assert all(bucket == buckets[arm] and 0.0 <= into < 1.0 for arm, bucket, into in found)
    long = lengths >= step
    np.testing.assert_array_equal(np.bincount(arms, minlength=ARMS)[long], (lengths / step)[long])
    assert arm_buckets.find_arm(w, float(lengths.sum()))[1] == arm_buckets.BUCKETS


def test_few_arms_own_intervals_of_their_bounds() -> None:
    w = lazy_sampled.begin(4)
    w[weight_bounds.BOUND, :4], w[arm_buckets.BUCKET, :4] = [0.75, 0.0, 0.125, 0.5], [0, -1, 3, 1]
    for position, expected in ((0.7, (0, 0, 0.7)), (0.8, (2, 3, 0.4)), (1.0, (3, 1, 0.25))):
        assert lazy_sampled.walk_to_arm(w, 4, position) == pytest.approx(expected)
    assert lazy_sampled.walk_to_arm(w, 4, 1.375)[1] == arm_buckets.BUCKETS


def test_the_comparison_with_an_exponential_is_exact() -> None:
    rng = np.random.default_rng(0)
    y = -rng.exponential(1.0, 20_000) * rng.choice([1e-3, 1.0, 30.0], 20_000)
    near = np.exp(y) * (1 + rng.normal(0, 1e-3, y.size))
    for x in (rng.random(y.size), near):
        np.testing.assert_array_equal(
            [lazy_sampled.is_below_exp(*pair) for pair in zip(x, y, strict=True)], x < np.exp(y)
        )


def state_of(spec: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """The addresses of a policy's formulas, and the engine's table with random pulls and means."""
    rng = np.random.default_rng(seed)
    f = compile_plan(plan_of(spec, "bernoulli:0.5,0.4", 10, 0), trial_loop).arguments[0]
    w = lazy_sampled.begin(ARMS)
    w[weight_bounds.N, :ARMS] = pulls = np.ceil(10 ** rng.uniform(0, 6, ARMS))
    w[weight_bounds.MEAN, :ARMS] = rng.binomial(pulls.astype(np.int64), rng.random(ARMS)) / pulls
    for arm in range(ARMS):
        weight_bounds.set_potential(f, w, arm)
    return f, w, rng


def test_estimates_are_within_their_error() -> None:
    checked = 0
    for seed in range(10):
        f, w, rng = state_of("kl-ms", seed)
        assert f[4]
        for best in [*rng.random(5), *np.minimum(w[weight_bounds.MEAN, :5] + 1e-6, 1 - 1e-9)]:
            for arm in range(ARMS):
                log, error = weight_bounds.estimate(f, w, arm, best, 9.0, 9.0, weight_bounds.AT_BEST)
                exact = log_weight(f, w[weight_bounds.N, arm], w[weight_bounds.MEAN, arm], best, 9.0, 9.0)
                assert abs(log - exact) <= error + 1e-13 * abs(exact)
                checked += error > 0
    assert checked > 1000


def test_an_estimate_without_its_error_would_be_wrong() -> None:
    """Negative control: rounding errors of estimates are larger than those of the formula."""
    wrong = 0
    for seed in range(10):
        f, w, _ = state_of("kl-ms", seed)
        for arm in range(ARMS):
            best = min(w[weight_bounds.MEAN, arm] + 1e-4, 1 - 1e-9)
            log, _ = weight_bounds.estimate(f, w, arm, best, 9.0, 9.0, weight_bounds.AT_BEST)
            exact = log_weight(f, w[weight_bounds.N, arm], w[weight_bounds.MEAN, arm], best, 9.0, 9.0)
            wrong += abs(log - exact) > 1e-13 * abs(exact)
    assert wrong > 0


@pytest.mark.parametrize("spec", [name for name in NAMES if has_lazy(name)])
def test_a_potential_gives_the_formula_for_rivals(spec) -> None:
    policy = plan_of(spec, "bernoulli:0.5,0.4", 10, 0).policy
    if not getattr(policy, "has_potential", False):
        return
    n, mean, best = np.array([1, 7, 50]), np.array([0.0, 3 / 7, 0.2]), np.array([0.3, 0.9, 0.21])
    rise = policy.slope(best) * (mean - best)
    expected = -n * (policy.potential(mean) - policy.potential(best) - rise)
    np.testing.assert_allclose(policy.rival(n, mean, best, 9), expected, rtol=1e-9)
