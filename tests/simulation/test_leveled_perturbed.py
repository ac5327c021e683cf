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
from maillard.simulation.engines.level_vectors import LEVELS, RANK_BITS
from maillard.simulation.engines.score_levels import (
    KEPT,
    LIMITS,
    PARTS,
    SINCE,
    STATE,
    THRESHOLDS,
    A,
    B,
    parts_of,
    rounded_up,
    tails_at,
    terms_at,
)
from maillard.simulation.plans import Plan
from tests.simulation.test_dense_perturbed import compiled
from tests.simulation.test_engines import SURE, compare


@numba.njit
def scan(limits, numbers, arms, apart, kept):
    addresses = limits.ctypes.data, numbers.ctypes.data
    return level_vectors.two_highest_levels(*addresses, limits.shape[1], arms, apart, kept.ctypes.data)


@numba.njit
def following(numbers, limits, first, arms):
    return level_vectors.next_within(numbers.ctypes.data, limits.ctypes.data, first, arms)


@pytest.mark.parametrize("arms", [1, 2, 31, 32, 33, 100, 127])
def test_the_two_highest_levels_are_found(arms) -> None:
    rng, places = np.random.default_rng(arms), rounded_up(arms)
    for trial in range(200):
        # Small numbers, so that some equal a limit.
        limits = -np.sort(-rng.integers(0, 30, (LEVELS, places)), axis=0).astype(np.uint16)
        numbers = rng.integers(0, 60, places + 32).astype(np.uint16)
        levels = (numbers[:arms] <= limits[:, :arms]).sum(axis=0)
        apart = int(rng.integers(arms)) if trial % 5 else arms
        kept = np.zeros(LEVELS, np.uint16)
        if apart < arms:
            kept[:] = limits[:, apart]
            limits[:, apart] = rng.integers(0, 60, LEVELS)
        first, second, slack = scan(limits, numbers, arms, apart, kept)
        arm = first % 2**RANK_BITS
        assert first >> RANK_BITS == levels.max()
        assert second >> RANK_BITS == (np.sort(levels)[-2] if arms > 1 else 0)
        if levels.max() > 0:
            assert levels[arm] == levels.max()
            own = kept if arm == apart else limits[:, arm]
            assert slack == int(own[levels.max() - 1]) - int(numbers[arm])
            assert slack >= 0
        row = limits[3]
        found, at = [], following(numbers, row, 0, arms)
        while at < arms:
            found.append(at)
            at = following(numbers, row, at + 1, arms)
        assert found == np.flatnonzero(numbers[:arms] <= row[:arms]).tolist()


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


def check_tails(w, arms, rel=1e-12) -> None:
    """Compare probabilities, terms and limits with SciPy's."""
    parts = parts_of(w)
    thresholds = parts[THRESHOLDS : THRESHOLDS + LEVELS]
    tails = parts[tails_at(arms) : terms_at(arms)].reshape(-1, LEVELS)
    terms = parts[terms_at(arms) :][: tails.size].reshape(-1, LEVELS)
    limits = parts[LIMITS : tails_at(arms)].view(np.uint16).reshape(LEVELS, -1)
    for arm in range(arms):
        a, b = w[A, arm], w[B, arm]
        exact = stats.beta.sf(thresholds, a, b)
        density = stats.beta.pdf(thresholds, a, b) * thresholds * (1 - thresholds)
        assert tails[arm] == pytest.approx(exact, rel=rel, abs=1e-14)
        assert terms[arm] == pytest.approx(density, rel=max(rel, 1e-10), abs=1e-200)
        assert abs(limits[:, arm] - np.minimum(exact * 65536, 65535)).max() <= 1.0


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
    assert abs(np.log(hazards / wanted)).max() < np.log(2.1)


def test_rewards_change_the_tails_by_a_recurrence() -> None:
    """Thousands of rewards of 0 and 1, without new thresholds in between."""
    policy = maillard.policy("ts-bernoulli")
    from maillard.simulation import compiling
    from maillard.simulation import policy_formulas as formulas

    parameters = compiling.parameters_of(policy)
    pairs = [compiling.address_of(policy, *formula) for formula in formulas.FORMULAS["perturbed"]]
    f = np.array([parameters.ctypes.data, *(address for address, _ in pairs), 2, 1, 0], np.int64)
    update, put_back = compiled(leveled_perturbed.update), compiled(score_levels.put_back)
    w, rng = table([30.0, 20.0, 25.0], [270.0, 280.0, 275.0]), np.random.default_rng(4)
    w[0, :3], w[1, :3] = 298.0, [29.0, 19.0, 24.0]
    w[STATE, leveled_perturbed.STARTED] = 1.0
    for step in range(3000):
        update(f, w, 3, int(rng.integers(3)), float(rng.random() < 0.1), step)
    put_back(w, 3)
    check_tails(w, 3, rel=1e-9)


def test_samples_between_two_points_have_their_distribution() -> None:
    sample = compiled(leveled_perturbed.sample_beta_between)
    rng = np.random.default_rng(5)
    for a, b, low, high in (
        (3, 9, 0.1, 0.2),
        (3, 9, 0.2, 0.35),
        (3, 9, 0.5, 0.9),
        (1, 1, 0.2, 0.4),
        (1, 6, 0, 1),
    ):
        distribution = stats.beta(a, b)
        points = [sample(a, b, low, high, rng) for _ in range(20_000)]
        cumulative = (distribution.cdf(points) - distribution.cdf(low)) / (
            distribution.cdf(high) - distribution.cdf(low)
        )
        assert stats.kstest(cumulative, "uniform").pvalue > SURE
        assert stats.kstest(cumulative**1.1, "uniform").pvalue < SURE


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
    plan = Plan(policy, problems.problem(text), (horizon,), 1)
    assert engines_for(plan)[:2] == [LEVELED, LAZY]
    assert min(compare(plan, dataclasses.replace(plan, seed=2, engine=DIRECT), 1000)) > SURE


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
        limits = parts_of(w)[LIMITS : tails_at(3)].view(np.uint16).reshape(LEVELS, -1)
        limits[:, 1] = np.minimum(limits[:, 1] * factor, 65535)
        counts[factor] = np.bincount([choose(f, w, 3, 1000 * t, rng) for t in range(100_000)], minlength=3)
    p = policy.probabilities(maillard.Tally([100, 102, 96], [11, 8, 7]))
    assert stats.chisquare(counts[1.0], 1e5 * p).pvalue > SURE
    assert stats.chisquare(counts[1.05], 1e5 * p).pvalue < SURE


def test_rows_and_parts_are_aligned() -> None:
    for arms in (1, 31, 32, 100):
        w = leveled_perturbed.begin(arms)
        assert parts_of(w).ctypes.data % 64 == 0
        assert LIMITS % 8 == KEPT % 8 == tails_at(arms) % 8 == terms_at(arms) % 8 == 0
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
