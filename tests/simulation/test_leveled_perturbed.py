"""The engine of levels for Beta scores: its vectors, its thresholds, and its rare paths."""

from __future__ import annotations

import dataclasses

import numba
import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import problems
from maillard.simulation.compiled_plans import DIRECT, LAZY, LEVELED, engines_for
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.engines import level_vectors, leveled_perturbed, score_levels
from maillard.simulation.engines.level_vectors import LANES, LEVELS, LOST
from maillard.simulation.engines.score_levels import (
    FILTER,
    FILTERED,
    PARTS,
    SINCE,
    STATE,
    THRESHOLDS,
    A,
    B,
    limits_at,
    low_filter_at,
    parts_of,
    rounded_up,
    tails_at,
    terms_at,
)
from maillard.simulation.plans import Plan
from tests.simulation.test_dense_perturbed import compiled
from tests.simulation.test_engines import SURE, compare


@numba.njit
def lanes(numbers, limits):
    """Return the places whose number does not exceed its limit, from a word of bits."""
    found, bits = [-1], level_vectors.lanes_within(numbers.ctypes.data, limits.ctypes.data)
    while bits != 0:
        found.append(level_vectors.lowest_lane(bits))
        bits = level_vectors.other_lanes(bits)
    return found[1:]


@numba.njit
def level(number, limits):
    return level_vectors.level_of(number.ctypes.data, limits.ctypes.data)


def test_numbers_are_compared_with_limits() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        numbers = rng.integers(0, 65536, LANES).astype(np.uint16)
        limits = rng.integers(0, 65536, LANES).astype(np.uint16)
        limits[::3] = numbers[::3]
        assert lanes(numbers, limits) == np.flatnonzero(numbers <= limits).tolist()
        falling = -np.sort(-rng.integers(0, 65536, LEVELS)).astype(np.uint16)
        falling[3] = falling[4] = falling[5]
        for number in (*numbers[:4], falling[0], falling[5], 0, 65535):
            assert level(np.array([number], np.uint16), falling) == (number <= falling).sum()
    for few in ([], [0], [63], [0, 63]):
        numbers = np.ones(LANES, np.uint16)
        numbers[few] = 0
        assert lanes(numbers, np.zeros(LANES, np.uint16)) == few


@numba.njit
def store_terms(logs, norm, a, b):
    terms = np.empty(LEVELS)
    level_vectors.set_terms(terms.ctypes.data, logs.ctypes.data, norm, a, b)
    return terms


def test_terms_are_exponentials() -> None:
    """Also where the exponential is very small, or lost."""
    for low, high in ((-20.0, 0.0), (-599.0, -400.0), (-700.0, -590.0), (-1e9, -1e3), (0.0, 30.0)):
        logs = np.concatenate([np.linspace(low, high, LEVELS), np.linspace(-0.5, -0.1, LEVELS)])
        exponents = 0.25 + 2.0 * logs[:LEVELS] + 3.0 * logs[LEVELS:]
        expected = np.where(exponents >= LOST, np.exp(np.maximum(exponents, LOST)), 0.0)
        assert store_terms(logs, 0.25, 2.0, 3.0) == pytest.approx(expected, rel=1e-12, abs=0.0)


def table(a, b):
    """Return the engine's table for given parameters, with its thresholds placed."""
    arms = len(a)
    w = leveled_perturbed.begin(arms)
    w[A, :arms], w[B, :arms] = a, b
    for level in range(LEVELS):
        score_levels.set_threshold(parts_of(w), level, (level + 1) / (LEVELS + 1))
    compiled(score_levels.set_all_tails)(w, arms)
    compiled(score_levels.place_thresholds)(w, arms, 7)
    return w


def limits_of(w, arms):
    """Return the limits of all arms, one row per arm."""
    return parts_of(w)[limits_at(arms) : tails_at(arms)].view(np.uint16).reshape(-1, LEVELS)


def check_tails(w, arms, rel=1e-12) -> None:
    """Compare probabilities, terms and limits with SciPy's."""
    parts = parts_of(w)
    thresholds = parts[THRESHOLDS : THRESHOLDS + LEVELS]
    tails = parts[tails_at(arms) : terms_at(arms)].reshape(-1, LEVELS)
    terms = parts[terms_at(arms) :][: tails.size].reshape(-1, LEVELS)
    limits = limits_of(w, arms)
    assert (parts[FILTER : low_filter_at(arms)].view(np.uint16)[:arms] == limits[:arms, FILTERED]).all()
    assert (parts[low_filter_at(arms) : limits_at(arms)].view(np.uint16)[:arms] == limits[:arms, 0]).all()
    for arm in range(arms):
        a, b = w[A, arm], w[B, arm]
        exact = stats.beta.sf(thresholds, a, b)
        density = stats.beta.pdf(thresholds, a, b) * thresholds * (1 - thresholds)
        assert tails[arm] == pytest.approx(exact, rel=rel, abs=1e-14)
        assert terms[arm] == pytest.approx(density, rel=max(rel, 1e-10), abs=1e-200)
        assert abs(limits[arm] - np.minimum(exact * 65536, 65535)).max() <= 1.0


STATES = [
    ([1.0, 1.0], [1.0, 1.0]),
    ([1.0] * 100, [1.0] * 100),
    ([11.0, 15.0, 9.0, 30.0], [190.0, 200.0, 180.0, 300.0]),
    ([20000.0, 3.0, 5.0], [3000.0, 8.0, 2.0]),
    ([2.5, 3.5, 0.5 + 1], [8.0, 4.0, 2.25]),
    ([1.0] * 50, [400.0] * 50),
    ([400.0] * 50, [1.0] * 50),
    ([5001.0, 4001.0], [5001.0, 6001.0]),
]


@pytest.mark.parametrize(("a", "b"), STATES)
def test_thresholds_have_about_the_wanted_hazards_and_tails_are_exact(a, b) -> None:
    w = table(a, b)
    check_tails(w, len(a), rel=1e-9)
    thresholds = parts_of(w)[THRESHOLDS : THRESHOLDS + LEVELS]
    assert (np.diff(thresholds) > 0).all()
    assert w[STATE, SINCE] == 7
    hazards = sum(-stats.beta.logcdf(thresholds, *pair) for pair in zip(a, b, strict=True))
    wanted = np.array([score_levels.wanted_hazard(level) for level in range(LEVELS)])
    assert abs(np.log(hazards / wanted))[1:].max() < np.log(2.1)
    assert hazards[0] > score_levels.LOW_HAZARD  # far below the others is enough


def test_rewards_change_the_tails_by_a_recurrence() -> None:
    """Thousands of rewards of 0 and 1, without new thresholds in between."""
    policy = maillard.policy("ts-bernoulli")
    from maillard.simulation import compiling
    from maillard.simulation import policy_formulas as formulas

    parameters = compiling.parameters_of(policy)
    pairs = [compiling.address_of(policy, *formula) for formula in formulas.FORMULAS["perturbed"]]
    f = np.array([parameters.ctypes.data, *(address for address, _ in pairs), 2, 1, 0], np.int64)
    update = compiled(leveled_perturbed.update)
    w, rng = table([30.0, 20.0, 25.0], [270.0, 280.0, 275.0]), np.random.default_rng(4)
    w[0, :3], w[1, :3] = 298.0, [29.0, 19.0, 24.0]
    w[STATE, leveled_perturbed.STARTED] = 1.0
    for step in range(3000):
        update(f, w, 3, int(rng.integers(3)), float(rng.random() < 0.1), step)
    last = int(w[STATE, score_levels.CHANGED])
    compiled(score_levels.set_filters)(parts_of(w).ctypes.data, 3, last)
    check_tails(w, 3, rel=1e-9)


BETWEEN = [
    (3, 9, 0.1, 0.2),
    (3, 9, 0.2, 0.35),
    (3, 9, 0.34, 0.36),
    (30, 60, 0.4, 0.41),
    (3, 9, 0.5, 0.9),
    (1, 1, 0.2, 0.4),
    (1, 6, 0.01, 0.1),
    (200, 1900, 0.11, 0.113),
    (2.5, 7.25, 0.3, 0.4),
]


@pytest.fixture(scope="module")
def samplers():
    """Return compiled functions that sample many scores between two points, and the plain way."""
    fast, plain = leveled_perturbed.sample_beta_between, leveled_perturbed.sample_beta_under_peak

    def many(a, b, low, high, inverses, terms, rng, points):
        for place in range(points.size):
            points[place] = fast(a, b, low, high, inverses, terms, rng)

    def many_plain(a, b, low, high, inverses, terms, rng, points):
        for place in range(points.size):
            points[place] = plain(a, b, low, high, rng)

    return compiled(many), compiled(many_plain)


@pytest.mark.parametrize(("a", "b", "low", "high"), BETWEEN)
def test_samples_between_two_points_have_their_distribution(a, b, low, high, samplers) -> None:
    """With a density that is 10% too high at one end of a short interval, they do not."""
    distribution, rng, points = stats.beta(a, b), np.random.default_rng(5), np.empty(1_000_000)
    expected = np.diff(distribution.cdf(np.linspace(low, high, 41)))
    expected *= points.size / expected.sum()
    numbers, terms = np.zeros(3 * LEVELS), np.zeros(2)
    for place, x in enumerate((low, high)):
        numbers[place], numbers[LEVELS + place] = 1 / x, 1 / (1 - x)
        terms[place] = distribution.pdf(x) * x * (1 - x)

    def pvalue(sample) -> float:
        sample(a, b, low, high, numbers.ctypes.data + 8, terms.ctypes.data + 8, rng, points)
        return float(stats.chisquare(np.histogram(points, 40, (low, high))[0], expected).pvalue)

    assert min(pvalue(sample) for sample in samplers) > SURE
    terms[0] *= 1.1
    if (high - low) ** 2 * (
        (a - 1) / low**2 + (b - 1) / (1 - high) ** 2
    ) < 0.4:  # else logarithms decide more
        assert pvalue(samplers[0]) < SURE


def test_densities_are_between_their_bounds() -> None:
    """What `sample_beta_between` relies on, for random parameters and intervals."""
    rng = np.random.default_rng(7)
    for _ in range(2000):
        a, b = 1.0 + rng.gamma(0.5, 40.0, 2)
        low, high = np.sort(rng.uniform(0.01, 0.99, 2))
        high = low + (high - low) * rng.uniform(0.0, 0.2)
        i, j, width = a - 1.0, b - 1.0, high - low
        e = 0.125 * width**2 * (i / low**2 + j / (1.0 - high) ** 2)
        if e >= 1.0:
            continue
        z = np.linspace(0.0, 1.0, 51)
        logs = stats.beta.logpdf(low + z * width, a, b)
        f = np.exp(logs - logs.max())
        assert (f <= (1.0 + e + e * e) * ((1.0 - z) * f[0] + z * f[-1]) * (1.0 + 1e-9)).all()
        assert (f * ((1.0 - z) * f[-1] + z * f[0]) >= f[0] * f[-1] * (1.0 - 1e-9)).all()


class Reversed(maillard.BernoulliThompson):
    """Thompson sampling whose parameters change by several at once, or by fractions."""

    def score(self, n, s):
        return 1.0 + 1.5 * s, 1.0 + 2.0 * (n - s)


@pytest.mark.parametrize(
    ("policy", "text", "horizon"),
    [
        (maillard.policy("ts-bernoulli"), "bernoulli:0.5,0.45,0.45", 1500),
        (maillard.policy("ts-bernoulli"), "bernoulli:1,0.9,0", 400),
        (maillard.policy("ts-bernoulli"), "bernoulli-equal:arms=33", 2000),
        (maillard.policy("ts-bernoulli"), "bounded:0.5/0.3/0.2,0.2/0.3/0.5,values=0/0.5/1", 300),
        (Reversed(), "bernoulli:0.5,0.4,0.3", 300),
    ],
)
def test_the_engine_and_the_lazy_one_agree(policy, text, horizon) -> None:
    plan = Plan(policy, problems.problem(text), (horizon,), 1, LEVELED)
    # With rewards other than 0 and 1, the lazy engine is faster.
    assert engines_for(plan)[:2] == ([LAZY, LEVELED] if text.startswith("bounded") else [LEVELED, LAZY])
    assert min(compare(plan, dataclasses.replace(plan, seed=2, engine=DIRECT), 1000)) > SURE


def test_the_engine_and_the_lazy_one_agree_with_many_arms() -> None:
    """More than two vectors of numbers, and more than one arm pulled often."""
    text = "bernoulli:" + ",".join(["0.9", "0.88", "0.86"] + ["0.5"] * 67 + ["0.2"] * 100)
    plan = Plan(maillard.policy("ts-bernoulli"), problems.problem(text), (1500,), 1)
    assert engines_for(plan)[:2] == [LEVELED, LAZY]
    assert min(compare(plan, dataclasses.replace(plan, seed=2, engine=LAZY), 500)) > SURE
    shifted = dataclasses.replace(plan, problem=problems.problem(text.replace("0.88", "0.8")))
    assert min(compare(plan, dataclasses.replace(shifted, seed=2, engine=LAZY), 500)) < SURE


def test_a_wrong_limit_is_detected() -> None:
    """The comparison of 100,000 choices with probabilities notices limits that are 5% too high.

    The round increases fast, so that the thresholds are not placed anew, which would correct the limits.
    """
    choose = compiled(leveled_perturbed.choose)
    rng, f = np.random.default_rng(6), np.zeros(8, np.int64)
    policy, counts = maillard.policy("ts-bernoulli"), {}
    for factor in (1.0, 1.05):
        w = table([12.0, 9.0, 8.0], [90.0, 95.0, 90.0])
        seed = compiled(leveled_perturbed.seed_generators)
        seed(parts_of(w)[leveled_perturbed.GENERATORS : THRESHOLDS], rng)
        w[STATE, leveled_perturbed.STARTED] = 1.0
        limits = limits_of(w, 3)
        limits[1] = np.minimum(limits[1] * factor, 65535)
        for arm in range(3):
            compiled(score_levels.set_filters)(parts_of(w).ctypes.data, 3, arm)
        counts[factor] = np.bincount([choose(f, w, 3, 1000 * t, rng) for t in range(100_000)], minlength=3)
    p = policy.probabilities(maillard.Tally([100, 102, 96], [11, 8, 7]))
    assert stats.chisquare(counts[1.0], 1e5 * p).pvalue > SURE
    assert stats.chisquare(counts[1.05], 1e5 * p).pvalue < SURE


def test_rows_and_parts_are_aligned() -> None:
    for arms in (1, 63, 64, 65, 100, 512):
        w = leveled_perturbed.begin(arms)
        assert parts_of(w).ctypes.data % 64 == 0
        assert FILTER % 8 == limits_at(arms) % 8 == tails_at(arms) % 8 == terms_at(arms) % 8 == 0
        assert w.size >= PARTS * w.shape[1] + terms_at(arms) + LEVELS * rounded_up(arms)


class Pessimistic(maillard.BernoulliThompson):
    """Thompson sampling with a prior that the rewards move far away from."""

    def score(self, n, s):
        return 1.0 + s, 3000.0 + (n - s)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (maillard.policy("ts-bernoulli:floor=0.1"), "bernoulli:0.1,0.9,0.85,0.2"),
        (maillard.WithFloor(Pessimistic(), 0.2), "bernoulli:0.8,0.9"),
    ],
)
def test_arms_that_only_a_floor_pulls_keep_exact_tails(policy, text) -> None:
    """Their tails become tiny, negative by rounding, or have to grow after their terms were lost."""
    plan = Plan(policy, problems.problem(text), (40_000,), 1)
    assert min(compare(plan, dataclasses.replace(plan, seed=2, engine=LAZY), 60)) > SURE
    short = dataclasses.replace(plan, checkpoints=(600,))
    assert min(compare(short, dataclasses.replace(short, seed=2, engine=DIRECT), 500)) > SURE


class Broken(maillard.BernoulliThompson):
    """A formula that has no value after a hundred pulls."""

    def score(self, n, s):
        return 1.0 + s, np.where(n > 100, np.nan, 1.0 + (n - s))


def test_invalid_parameters_are_reported_at_once() -> None:
    plan = Plan(Broken(), problems.problem("bernoulli:0.95,0.2"), (200,), 1)
    with pytest.raises(maillard.InvalidValue, match="score of arm 0"):
        run_trials(plan, 0, 1)
