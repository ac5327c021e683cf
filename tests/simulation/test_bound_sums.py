"""Sums of bounds, and the bounds on weights, agree with plain computations."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from maillard.simulation import vector_operations
from maillard.simulation.compiled_plans import compile_plan
from maillard.simulation.engines import bound_sums, lazy_sampled, trial_loop, weight_bounds
from maillard.simulation.engines.direct_engines import log_weight
from maillard.simulation.engines.reward_sampling import sample_reward
from tests.simulation.test_engines import NAMES, has_lazy, plan_of

ARMS = 40
SIZES = [1, 5, 32, 33, 700, 1024, 1025, 1500]


def changed_table(arms: int, changes: int) -> np.ndarray:
    """A table in which random bounds were changed; about a third are 0."""
    rng = np.random.default_rng(arms)
    w: np.ndarray = bound_sums.make_table(arms, 1)
    for arm in rng.integers(arms, size=changes):
        bound = rng.choice([0.0, rng.random(), 1e-6 * rng.random()])
        bound_sums.change_bound(w, arms, int(arm), bound_sums.rounded_up(bound))
    return w


@pytest.mark.parametrize("arms", SIZES)
def test_changed_sums_are_those_that_are_added_up(arms) -> None:
    w = changed_table(arms, 4 * arms)
    changed = w.copy()
    assert bound_sums.add_up(w, arms) == w[bound_sums.BOUND].sum() > 0.0
    # Entries after the last arm of a node are never reached.
    positions = np.random.default_rng(1).random(2000) * w[bound_sums.BOUND].sum()
    for position in positions:
        assert bound_sums.find_arm(w, arms, position) == bound_sums.find_arm(changed, arms, position)


@pytest.mark.parametrize("arms", SIZES)
def test_every_arm_owns_an_interval_of_its_bound(arms) -> None:
    w = changed_table(arms, 4 * arms)
    bounds = w[bound_sums.BOUND, :arms]
    ends = np.cumsum(bounds)
    for arm in np.flatnonzero(bounds):
        for within in (0.0, 0.5 * bounds[arm], bounds[arm] - 0.5 * bound_sums.UNIT):
            found = bound_sums.find_arm(w, arms, float(ends[arm] - bounds[arm] + within))
            assert found[0] == arm
            assert found[1] == within


def test_bounds_are_rounded_up() -> None:
    numbers = np.random.default_rng(2).random(1000) ** 8
    rounded = np.array([bound_sums.rounded_up(number) for number in numbers])
    assert (rounded >= numbers).all()
    assert (rounded < numbers + bound_sums.UNIT).all()
    assert (rounded * bound_sums.UNITS % 1.0 == 0.0).all()


def test_compiled_vector_operations_agree_with_those_in_python() -> None:
    # Functions with an overload compile as part of others.
    count = numba.njit(lambda *given: vector_operations.count_up_to(*given))  # noqa: PLW0108
    add = numba.njit(lambda *given: vector_operations.add_after(*given))  # noqa: PLW0108
    largest = numba.njit(lambda *given: vector_operations.largest(*given))  # noqa: PLW0108
    rng = np.random.default_rng(3)
    w = rng.random((3, 104))
    w[1, 50] = 0.25
    for start in (0, 32, 72):
        for limit in (-1.0, 0.25, rng.random(), 2.0):
            counted = vector_operations.count_up_to(w, 1, start, limit)
            assert count(w, 1, start, limit) == counted == (w[1, start : start + 32] <= limit).sum()
        for place in (0, 7, 30, 31):
            expected, found = w.copy(), w.copy()
            vector_operations.add_after(expected, 1, start, place, 0.5)
            add(found, 1, start, place, 0.5)
            np.testing.assert_array_equal(found, expected)
            assert (expected != w).sum() == 31 - place
    for numbers in (1, 32, 33, 96):
        last = -(-numbers // 32) * 32
        assert largest(w, 2, numbers) == vector_operations.largest(w, 2, numbers) == w[2, :last].max()


def test_bounds_on_the_exponential() -> None:
    w = lazy_sampled.begin(4)
    for x in [0.0, -np.inf, *-(np.random.default_rng(0).random(5000) ** 3 * 40)]:
        low, high = weight_bounds.exp_bounds(w, x)
        assert low <= np.exp(x) * (1 + 1e-15)
        assert high >= np.exp(x) * (1 - 1e-15)
        assert high - low <= max(4e-4 * np.exp(x), bound_sums.UNIT)


MANY, LEVELS = "bernoulli:" + "0.3," * 30 + "0.2,0.4", "bounded:0.5/0.3/0.2,0.2/0.3/0.5,values=0/0.5/1"
LAZY = (
    "ms",
    "ms+:booster=16,c=1,d=1",
    "kl-ms",
    "kl-ms:jeffreys=true",
    "kl-ms+",
    "boltzmann:schedule=log,eta=3",
)
BOUNDED = [(spec, text) for spec in LAZY for text in (MANY, LEVELS)]


@pytest.mark.parametrize(("spec", "text"), [*BOUNDED, ("ms+", "gaussian:1,0.9,0.8,0.7,variance=0.25")])
def test_weights_are_within_their_bounds(spec, text) -> None:
    plan = plan_of(spec, text, 3000, 0)
    code, first, second, values, ends = plan.problem.reward_distribution()
    arms, rng = plan.problem.arms, np.random.default_rng(6)
    compiled, w = compile_plan(plan, trial_loop), lazy_sampled.begin(arms)
    f = compiled.arguments[0]
    assert f[weight_bounds.CONCENTRATES]
    used = 0
    with np.errstate(all="ignore"):
        for t in range(1, 1500):
            arm = t - 1 if t <= arms else lazy_sampled.choose(f, w, arms, t, rng)
            reward = sample_reward(code, 0, first, second, values, ends, arm, rng)
            lazy_sampled.update(f, w, arms, arm, reward, t + 1)
            if t <= arms:
                continue
            state = w[weight_bounds.STATE]
            best = w[weight_bounds.MEAN, int(state[weight_bounds.LEADER])]
            assert best == w[weight_bounds.MEAN, :arms].max()
            assert state[weight_bounds.RIVALS] == w[bound_sums.BOUND, :arms].sum()
            if state[weight_bounds.OVERFLOW] or t >= state[weight_bounds.LAST_ROUND]:
                continue  # the next choice begins with new bounds
            for each in set(range(arms)) - {int(state[weight_bounds.LEADER])}:
                weight = np.exp(weight_bounds.exact_log_weight(f, w, each, best, t + 1, t + 1))
                assert w[weight_bounds.FLOOR, each] <= best
                assert weight <= w[bound_sums.BOUND, each] * (1 + 1e-9)
                if best <= w[weight_bounds.CEILING, each]:
                    assert weight >= w[weight_bounds.LOW, each] * (1 - 1e-9)
                    used += w[weight_bounds.LOW, each] > 0.5 * weight
    # Lower bounds pay if a reward hardly changes a weight.
    assert used > 1000 or text != MANY or spec.startswith("boltzmann")


def state_of(spec: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """The addresses of a policy's formulas, and the engine's table with random pulls and means."""
    rng = np.random.default_rng(seed)
    f = compile_plan(plan_of(spec, "bernoulli:0.5,0.4", 10, 0), trial_loop).arguments[0]
    w = lazy_sampled.begin(ARMS)
    w[weight_bounds.N, :ARMS] = pulls = np.ceil(10 ** rng.uniform(0, 6, ARMS))
    w[weight_bounds.MEAN, :ARMS] = rng.binomial(pulls.astype(np.int64), rng.random(ARMS)) / pulls
    return f, w, rng


def test_estimates_are_within_their_error() -> None:
    checked = 0
    for seed in range(10):
        f, w, rng = state_of("kl-ms", seed)
        assert f[weight_bounds.POTENTIAL_FORMULA]
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
