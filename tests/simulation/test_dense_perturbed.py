"""The dense engine for Gaussian scores: its normal numbers, its vectors, and its rare paths."""

from __future__ import annotations

import dataclasses
import math

import numba
import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import problems
from maillard.simulation import compiling
from maillard.simulation.compiled_plans import DENSE, DIRECT, LAZY, engines_for
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.engines import dense_perturbed, normal_blocks, random_words
from maillard.simulation.engines.largest_scores import LOWEST, MOST_ARMS, WIDTH, two_largest_scores
from maillard.simulation.engines.normal_blocks import (
    CAREFUL,
    ERROR,
    GENERATORS,
    NUMBERS,
    PAIRS,
    SIZE,
    WORDS,
)
from maillard.simulation.engines.random_words import LANES
from maillard.simulation.plans import Plan
from tests.simulation.test_engines import SURE, compare


def compiled(function):
    """Return a function of an engine, compiled as engines compile it."""
    for each in compiling._reached(function, set()):
        compiling._register(each)
    return numba.njit(error_model="numpy")(function)


@numba.njit
def scan(locations, spreads, numbers, arms, apart, location, spread):
    addresses = locations.ctypes.data, spreads.ctypes.data, numbers.ctypes.data
    return two_largest_scores(*addresses, arms, apart, location, spread)


@pytest.fixture(scope="module")
def blocks():
    """Return compiled functions that seed a block, fill it, and return exact numbers."""

    seed = compiled(random_words.seed_generators)
    functions = normal_blocks.fill_block, normal_blocks.exact_number
    return lambda block, rng: seed(block[GENERATORS:], rng), *(compiled(function) for function in functions)


def xoshiro256_plus_plus(state: list[int]) -> int:
    """Advance one generator, in Python's whole numbers."""

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (64 - by))) & mask

    mask = 2**64 - 1
    word = (rotate((state[0] + state[3]) & mask, 23) + state[0]) & mask
    shifted = (state[1] << 17) & mask
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = rotate(state[3], 45)
    return word


def test_words_are_those_of_xoshiro256_plus_plus(blocks) -> None:
    seed, fill, _ = blocks
    block = np.zeros(SIZE)
    seed(block, np.random.default_rng(1))
    states = block[GENERATORS:].view(np.uint64).reshape(4, LANES).T.tolist()
    for _ in range(2):
        fill(block)
        want = [[xoshiro256_plus_plus(state) for state in states] for _ in range(PAIRS // LANES)]
        assert block[WORDS:GENERATORS].view(np.uint64).tolist() == [word for row in want for word in row]


# The first halves of words at the ends and at the limits of the formulas, and some in between.
RADII = [
    0,
    1,
    2**14 - 1,
    2**14,
    2**14 + 1,
    2**20,
    2**31,
    int(2**31.5),
    3 * 2**30 - 1,
    3 * 2**30,
    2**32 - 2,
    2**32 - 1,
]
ANGLES = [
    sign + near
    for sign in (0, 2**30, 2**31, 3 * 2**30)
    for near in (0, 1, 2**28, 2**29 - 1, 2**29, 2**30 - 1)
]


def fill_with(words: np.ndarray) -> np.ndarray:
    """Return a block with the numbers of given words: first halves, then second halves."""
    block = np.zeros(SIZE)
    block[WORDS:GENERATORS].view(np.uint32)[:] = words
    compiled(normal_blocks.transform)(block[WORDS:GENERATORS].view(np.uint32), block[:PAIRS].view(np.float32))
    return block


def test_numbers_in_single_precision_are_near_the_exact_ones(blocks) -> None:
    rng = np.random.default_rng(2)
    radii = np.array([each for each in RADII for _ in ANGLES])
    radii = np.concatenate([radii, rng.integers(0, 2**32, PAIRS - radii.size)])
    angles = np.resize(np.array([*ANGLES]), PAIRS)
    angles[len(RADII) * len(ANGLES) :] = rng.integers(0, 2**32, PAIRS - len(RADII) * len(ANGLES))
    block = fill_with(np.concatenate([radii, angles]))
    exact = [blocks[2](block, place) for place in range(NUMBERS)]
    for number, (want, is_near), radius in zip(
        block[:PAIRS].view(np.float32), exact, [*radii, *radii], strict=True
    ):
        assert is_near == (radius >= CAREFUL)
        assert abs(number - want) < 0.6 * ERROR or not is_near
    # The exact number is in the cell of its word.
    for place in range(PAIRS):
        squares = exact[place][0] ** 2 + exact[PAIRS + place][0] ** 2
        low, high = (-2 * math.log((radii[place] + part) / 2**32 or 2**-65) for part in (1, 0))
        assert low * (1 - 1e-12) - 1e-12 <= squares <= high * (1 + 1e-12)


def test_exact_numbers_and_those_in_single_precision_are_normal(blocks) -> None:
    seed, fill, exact = blocks
    block = np.zeros(SIZE)
    seed(block, np.random.default_rng(3))
    numbers, exact_numbers = [], []
    for _ in range(100):
        fill(block)
        numbers.append(block[:PAIRS].view(np.float32).copy())
        exact_numbers += [exact(block, place)[0] for place in range(0, NUMBERS, 9)]
    z = np.array(numbers, dtype=float)
    for sample in (z.ravel(), exact_numbers):
        assert stats.kstest(sample, "norm").pvalue > SURE
    assert abs(np.mean(z[:, :PAIRS] * z[:, PAIRS:])) < 5 / np.sqrt(z.size / 2)  # partners are not correlated
    assert abs(np.mean((z[:, :PAIRS] * z[:, PAIRS:]) ** 2) - 1) < 5 * np.sqrt(8 / (z.size / 2))
    assert stats.kstest(1.03 * z.ravel(), "norm").pvalue < SURE


@pytest.mark.parametrize("arms", [1, 2, 7, 8, 9, 40, 100, 250])
def test_the_two_largest_scores_and_the_arm_are_found(arms) -> None:
    rng, width = np.random.default_rng(arms), WIDTH * (arms // WIDTH + 1)
    for _ in range(200):
        locations, spreads = np.full(width, LOWEST), np.zeros(width)
        locations[:arms], spreads[:arms] = rng.standard_normal(arms), rng.random(arms)
        numbers = rng.standard_normal(width).astype(np.float32)
        scores = locations + spreads * numbers
        order = np.argsort(scores)[::-1]
        apart = int(rng.integers(arms))
        kept = locations[apart], spreads[apart]
        locations[apart] = LOWEST
        found = scan(locations, spreads, numbers, -(-arms // WIDTH) * WIDTH, apart, *kept)
        assert int(np.float64(found[0]).view(np.int64)) % MOST_ARMS == order[0]
        assert found[0] == pytest.approx(scores[order[0]], rel=2**-41)
        assert found[1] == pytest.approx(scores[order[1]] if arms > 1 else LOWEST, rel=2**-41)


class Uncertain(maillard.GaussianThompson):
    """Thompson sampling with a wide score of an arm that never wins: all differences are below the error."""

    def score(self, n, s):
        return s / n, np.sqrt(self.sigma2 / n) + np.where(s / n < -1e8, 1e7, 0.0)


class Extreme(maillard.GaussianThompson):
    """Thompson sampling with a location beyond that of masked arms."""

    def score(self, n, s):
        return s / n - np.where(s / n < -1e8, 1e301, 0.0), np.sqrt(self.sigma2 / n)


@pytest.mark.parametrize("policy", [Uncertain(sigma2=0.25), Extreme(sigma2=0.25)])
def test_scores_that_are_near_each_other_are_compared_in_double_precision(policy) -> None:
    plan = Plan(policy, problems.Gaussian([0.5, 0.4, 0.4, -1e9], variance=0.25), (300,), 1)
    assert engines_for(plan)[0] == DENSE
    assert min(compare(plan, dataclasses.replace(plan, seed=2, engine=DIRECT))) > SURE


def test_the_lazy_engine_takes_over_and_gives_back() -> None:
    """With these means, one arm wins nearly always at first; later, ten arms compete."""
    ts = maillard.policy("ts", sigma2=0.25)
    easy = Plan(ts, problems.problem("gaussian:1,0.2,0.2,0.2"), (4000,), 1)
    assert min(compare(easy, dataclasses.replace(easy, seed=2, engine=LAZY), 1500)) > SURE
    wide = Plan(ts, problems.problem("gaussian-linear:arms=30,variance=4"), (4000,), 1)
    assert min(compare(wide, dataclasses.replace(wide, seed=2, engine=DIRECT), 400)) > SURE


def test_when_the_lazy_engine_runs() -> None:
    w = dense_perturbed.begin(10)
    assert w.shape[1] % WIDTH == 0
    assert w.ctypes.data % 64 == 0
    w[dense_perturbed.DENSE, dense_perturbed.SAMPLED] = w[dense_perturbed.STATE, dense_perturbed.ROUND] = 0.0
    for sampled, want in ((10.0, False), (900.0, True)):
        w[dense_perturbed.DENSE, dense_perturbed.SINCE] = w[
            dense_perturbed.DENSE, dense_perturbed.SAMPLED
        ] = 0.0
        w[dense_perturbed.STATE, dense_perturbed.ROUND] = w[dense_perturbed.STATE, dense_perturbed.WORK] = (
            sampled
        )
        assert dense_perturbed.many_compete(w, 10, 1000) == want


def test_more_arms_run_on_the_lazy_engine() -> None:
    for arms, engine in ((256, DENSE), (257, LAZY)):
        plan = Plan(
            maillard.policy("ts", sigma2=0.25), problems.problem(f"gaussian-equal:arms={arms}"), (1000,), 0
        )
        assert engines_for(plan)[0] == engine
    plan = Plan(
        maillard.policy("boltzmann-gumbel", sigma2=0.25), problems.problem("bernoulli:0.5,0.4"), (1000,), 0
    )
    assert engines_for(plan)[0] == LAZY


@pytest.mark.parametrize("arms", [1, 2, 3, 8, 9])
def test_policies_with_a_prior_choose_only_existing_arms(arms) -> None:
    """All rewards are negative, so that a place without an arm would win with a score of 0."""
    policy, problem = maillard.policy("ts-sg", sigma2=1), problems.Gaussian([-5.0] * arms)
    for horizon in (1, 200):
        assert (run_trials(Plan(policy, problem, (horizon,), 1), 0, 200).pulls.sum(axis=1) == horizon).all()
    first = run_trials(Plan(policy, problem, (1,), 2), 0, 3000).pulls.sum(axis=0)
    assert arms == 1 or stats.chisquare(first).pvalue > SURE
