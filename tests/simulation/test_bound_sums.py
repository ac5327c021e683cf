"""Sums of bounds, and the bounds on weights, agree with plain computations."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import maillard
from maillard.simulation import vector_operations
from maillard.simulation.compiled_plans import compile_plan
from maillard.simulation.engines import bound_sums, lazy_sampled, trial_loop, weight_bounds
from maillard.simulation.engines.direct_engines import log_weight
from maillard.simulation.engines.reward_sampling import sample_reward
from tests.simulation.test_engines import NAMES, has_lazy, plan_of

ARMS, LATE = 40, 1e8  # a round later than the pulls of the arms
SIZES = [1, 5, 32, 33, 700, 1024, 1025, 1500]


def sums_of(arms: int) -> int:
    """The position of the sums in a table with one vector."""
    return bound_sums.vector_start(arms, 1)


def changed_table(arms: int, changes: int) -> np.ndarray:
    """A table in which random bounds were changed; about a third are 0."""
    rng = np.random.default_rng(arms)
    w: np.ndarray = bound_sums.make_table(arms, 1, 1)
    for arm in rng.integers(arms, size=changes):
        bound = rng.choice([0.0, rng.random(), 1e-6 * rng.random()])
        bound_sums.change_bound(w, arms, sums_of(arms), int(arm), bound_sums.rounded_up(bound))
    return w


@pytest.mark.parametrize("arms", SIZES)
def test_changed_sums_are_those_that_are_added_up(arms) -> None:
    w = changed_table(arms, 4 * arms)
    changed, total = w.copy(order="F"), w[bound_sums.BOUND, :arms].sum()
    assert bound_sums.add_up(w, arms, sums_of(arms)) == total > 0.0
    # Entries after the last arm of a node are never reached.
    for position in np.random.default_rng(1).random(2000) * total:
        found = bound_sums.find_arm(w, arms, sums_of(arms), position)
        assert found == bound_sums.find_arm(changed, arms, sums_of(arms), position)


@pytest.mark.parametrize("arms", SIZES)
def test_parts_of_a_table_do_not_overlap(arms) -> None:
    w = bound_sums.make_table(arms, 2, 1)
    w[:, :arms] = 1.0
    for vector in range(2):
        for arm in range(arms):
            vector_operations.set_number(w, bound_sums.vector_start(arms, vector) + arm, 2.0 + vector)
    w[:, -1] = 4.0
    for arm in range(arms):
        bound_sums.change_bound(w, arms, bound_sums.vector_start(arms, 2), arm, 3.0)
        for vector in range(2):
            position = bound_sums.vector_start(arms, vector) + arm
            assert vector_operations.number_at(w, position) == 2.0 + vector
    assert (w[bound_sums.BOUND, :arms] == 3.0).all()
    assert (np.delete(w[:, :arms], bound_sums.BOUND, axis=0) == 1.0).all()
    assert (w[:, -1] == 4.0).all()


@pytest.mark.parametrize("arms", SIZES)
def test_every_arm_owns_an_interval_of_its_bound(arms) -> None:
    w = changed_table(arms, 4 * arms)
    bounds = w[bound_sums.BOUND, :arms]
    ends = np.cumsum(bounds)
    for arm in np.flatnonzero(bounds):
        for within in (0.0, 0.5 * bounds[arm], bounds[arm] - 0.5 * bound_sums.UNIT):
            position = float(ends[arm] - bounds[arm] + within)
            found = bound_sums.find_arm(w, arms, sums_of(arms), position)
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
    number = numba.njit(lambda *given: vector_operations.number_at(*given))  # noqa: PLW0108
    replace = numba.njit(lambda *given: vector_operations.set_number(*given))  # noqa: PLW0108
    rng = np.random.default_rng(3)
    w = rng.random((13, 8)).T
    memory = vector_operations.memory_of(w)
    memory[50] = 0.25
    assert memory[50] == w[2, 6] == number(w, 50) == vector_operations.number_at(w, 50)
    for start in (0, 32, 72):
        for limit in (-1.0, 0.25, rng.random(), 2.0):
            counted = vector_operations.count_up_to(w, start, limit)
            assert count(w, start, limit) == counted == (memory[start : start + 32] <= limit).sum()
        for place in (0, 7, 30, 31):
            expected, found = w.copy(order="F"), w.copy(order="F")
            vector_operations.add_after(expected, start, place, 0.5)
            add(found, start, place, 0.5)
            np.testing.assert_array_equal(found, expected)
            assert (expected != w).sum() == 31 - place
    for start, numbers in ((0, 1), (8, 32), (32, 33), (8, 96)):
        expected_largest = memory[start : start + -(-numbers // 32) * 32].max()
        assert largest(w, start, numbers) == vector_operations.largest(w, start, numbers) == expected_largest
    expected, found = w.copy(order="F"), w.copy(order="F")
    vector_operations.set_number(expected, 50, 7.0)
    replace(found, 50, 7.0)
    np.testing.assert_array_equal(found, expected)
    assert expected[2, 6] == 7.0


def test_bounds_on_the_exponential() -> None:
    w = lazy_sampled.begin(4)
    for x in [0.0, -np.inf, *-(np.random.default_rng(0).random(5000) ** 3 * 40)]:
        low, high = weight_bounds.exp_bounds(w, bound_sums.vector_start(4, weight_bounds.POWERS), x)
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


def number_of(w: np.ndarray, arms: int, vector: int, arm: int) -> float:
    """An arm's number in a vector."""
    return vector_operations.number_at(w, bound_sums.vector_start(arms, vector) + arm)


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
            lead, best = int(w[weight_bounds.LEADER]), w[weight_bounds.BEST]
            assert best == w[weight_bounds.MEAN, lead] == w[weight_bounds.MEAN, :arms].max()
            assert w[weight_bounds.RIVALS] == w[bound_sums.BOUND, :arms].sum()
            if w[weight_bounds.OVERFLOW] or t >= w[weight_bounds.LAST_ROUND]:
                continue  # the next choice begins with new bounds
            for each in set(range(arms)) - {lead}:
                weight = np.exp(weight_bounds.exact_log_weight(f, w, each, best, t + 1, t + 1))
                assert number_of(w, arms, weight_bounds.MEANS, each) == w[weight_bounds.MEAN, each]
                assert number_of(w, arms, weight_bounds.FLOORS, each) <= best
                assert weight <= w[bound_sums.BOUND, each] * (1 + 1e-9)
                if best <= w[weight_bounds.CEILING, each]:
                    assert weight >= w[weight_bounds.LOW, each] * (1 - 1e-9)
                    used += w[weight_bounds.LOW, each] > 0.5 * weight
    assert used > 1000 or text != MANY


def state_of(spec: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """The addresses of a policy's formulas, and the engine's table with random pulls and means."""
    rng = np.random.default_rng(seed)
    f = compile_plan(plan_of(spec, "bernoulli:0.5,0.4", 10, 0), trial_loop).arguments[0]
    w = lazy_sampled.begin(ARMS)
    w[weight_bounds.N, :ARMS] = pulls = np.ceil(10 ** rng.uniform(0, 6, ARMS))
    w[weight_bounds.MEAN, :ARMS] = rng.binomial(pulls.astype(np.int64), rng.random(ARMS)) / pulls
    numbers = f[weight_bounds.SQUARED_GAP : weight_bounds.SQUARED_GAP + 2].view(np.float64)
    w[weight_bounds.CURVATURE], w[weight_bounds.BOOST] = numbers
    for arm in range(ARMS):
        weight_bounds.set_potential(f, w, ARMS, arm)
    return f, w, rng


def estimated_and_exact(f: np.ndarray, w: np.ndarray, arm: int, best: float) -> tuple[float, float, float]:
    """The logarithms of an arm's weight by `estimate` and by the formula, and the error of the estimate."""
    log, factor, error = weight_bounds.estimate(f, w, ARMS, arm, best, LATE, LATE, weight_bounds.AT_BEST)
    exact = log_weight(f, w[weight_bounds.N, arm], w[weight_bounds.MEAN, arm], best, LATE, LATE)
    return log + np.log(factor), exact, error


@pytest.mark.parametrize("spec", ["kl-ms", "ms", "ms+", "ms+:booster=16,d=1"])
def test_estimates_are_within_their_error(spec) -> None:
    checked = 0
    for seed in range(10):
        f, w, rng = state_of(spec, seed)
        assert (f[weight_bounds.POTENTIAL_FORMULA] != 0) == (spec == "kl-ms")
        assert (w[weight_bounds.CURVATURE] > 0.0) == (spec != "kl-ms")
        for best in [*rng.random(5), *np.minimum(w[weight_bounds.MEAN, :5] + 1e-6, 1 - 1e-9)]:
            for arm in range(ARMS):
                estimated, exact, error = estimated_and_exact(f, w, arm, best)
                assert abs(estimated - exact) <= error + 1e-13 * abs(exact)
                checked += error > 0
    assert checked > 200


def test_an_estimate_without_its_error_would_be_wrong() -> None:
    """Negative control: rounding errors of estimates are larger than those of the formula."""
    wrong = 0
    for seed in range(10):
        f, w, _ = state_of("kl-ms", seed)
        for arm in range(ARMS):
            best = min(w[weight_bounds.MEAN, arm] + 1e-4, 1 - 1e-9)
            estimated, exact, _ = estimated_and_exact(f, w, arm, best)
            wrong += abs(estimated - exact) > 1e-13 * abs(exact)
    assert wrong > 0


def test_a_range_of_weights_contains_the_weight() -> None:
    w = lazy_sampled.begin(ARMS)
    rng = np.random.default_rng(8)
    for x in rng.random(2000) ** 3 * 40:
        factor, error = 1.0 + x * rng.random(), 1e-3 * rng.random()
        low, high = weight_bounds.weight_range(w, ARMS, -x, factor, error)
        assert low <= np.exp(-x - error) * factor * (1 + 1e-12)
        assert high >= np.exp(-x + error) * factor * (1 - 1e-12)
        assert high - low <= (4e-4 + 4 * error) * factor * max(np.exp(-x), 2 * bound_sums.UNIT / 4e-4)


@pytest.mark.parametrize("spec", [name for name in NAMES if has_lazy(name)])
def test_a_potential_gives_the_formula_for_rivals(spec) -> None:
    policy = plan_of(spec, "bernoulli:0.5,0.4", 10, 0).policy
    if not getattr(policy, "has_potential", False):
        return
    n, mean, best = np.array([1, 7, 50]), np.array([0.0, 3 / 7, 0.2]), np.array([0.3, 0.9, 0.21])
    rise = policy.slope(best) * (mean - best)
    expected = -n * (policy.potential(mean) - policy.potential(best) - rise)
    np.testing.assert_allclose(policy.rival(n, mean, best, 9), expected, rtol=1e-9)


@pytest.mark.parametrize("spec", [name for name in NAMES if has_lazy(name)])
def test_a_squared_gap_gives_the_formula_for_rivals(spec) -> None:
    policy = plan_of(spec, "bernoulli:0.5,0.4", 10, 0).policy
    numbers = getattr(policy, "squared_gap", None)
    assert (numbers is not None) == (spec.partition(":")[0] in {"ms", "ms+"})
    if numbers is None:
        return
    n, mean, best = np.array([1, 7, 50]), np.array([0.0, 3 / 7, 0.2]), np.array([0.3, 0.9, 0.21])
    x = numbers[0] * n * (best - mean) ** 2
    assert 0.0 <= numbers[1] <= 1.0
    np.testing.assert_allclose(policy.rival(n, mean, best, 9), np.log1p(numbers[1] * x) - x, rtol=1e-9)


@pytest.mark.parametrize("base", [maillard.MaillardSampling, maillard.MaillardSamplingPlus])
def test_overriding_the_formula_for_rivals_removes_the_squared_gap(base) -> None:
    class Changed(base):  # type: ignore[misc]
        def rival(self, n, mean, best, t):
            return -n * (best - mean)

    class Same(base):  # type: ignore[misc]
        pass

    assert Changed(sigma2=0.25).squared_gap is None
    assert Same(sigma2=0.25).squared_gap == base(sigma2=0.25).squared_gap is not None
