"""Samplers of every type: compiled, vectorised and plain."""

from __future__ import annotations

import concurrent.futures
import math
from multiprocessing import get_context

import numba
import numpy as np
import pytest
from scipy import stats

import maillard
from maillard.errors import InvalidValue
from maillard.problems import Bernoulli, Custom
from maillard.simulation import cpu_backend
from maillard.simulation.compiled_plans import DIRECT, PLAIN
from maillard.simulation.plans import make_plan

MEANS = np.array([0.6, 0.4, 0.5])
POLICY = "ucb1:sigma2=0.25"  # its rounds are simulated one by one, also with built-in rewards


def flip(rng, arm):
    return 1.0 if rng.random() < MEANS[arm] else 0.0


def flips(rng, arm, size):
    return rng.random(size) < MEANS[arm]


compiled_flip = numba.njit(flip)


@numba.njit
def noisy(rng, arm):
    return MEANS[arm] + 0.1 * rng.standard_normal()


def custom(sampler, **options) -> Custom:
    return Custom(sampler, means=tuple(MEANS), **options)


@pytest.mark.parametrize("delay", [None, "geometric:3"])
@pytest.mark.parametrize("engine", [None, DIRECT])
def test_compiled_plain_and_built_in_rewards_are_the_same(engine, delay) -> None:
    def regret(problem):
        return maillard.simulate(POLICY, problem, 300, 20, seed=1, engine=engine).final_regret

    built_in = regret(Bernoulli(MEANS, delay=delay))
    for sampler in (flip, compiled_flip):
        assert (regret(custom(sampler, limits=(0, 1), delay=delay)) == built_in).all()
    # One more random number per round gives other trials.
    other = custom(lambda rng, arm: flip(rng, arm) + 0 * rng.random(), limits=(0, 1), delay=delay)
    assert (regret(other) != built_in).any()


def test_logs_of_compiled_and_plain_samplers_are_the_same() -> None:
    logs = [maillard.simulate_log("ts", custom(each, limits=(0, 1)), 200) for each in (flip, compiled_flip)]
    assert (logs[0].arms == logs[1].arms).all()
    assert (logs[0].rewards == logs[1].rewards).all()


def test_the_plain_engine_runs_every_sampler() -> None:
    for sampler in (flip, compiled_flip, flips):
        result = maillard.simulate(POLICY, custom(sampler), 50, 3, engine=PLAIN)
        assert (result.pulls.sum(axis=2) == 50).all()


def rewards_of(problem: Custom):
    log = maillard.simulate_log("uniform", problem, 9000, seed=4, probabilities="chosen")
    return [log.rewards[log.arms == arm] for arm in range(3)]


@pytest.mark.parametrize(
    "sampler",
    [noisy, noisy.py_func, lambda rng, arm, size: rng.normal(MEANS[arm], 0.1, size)],
    ids=["compiled", "plain", "vectorised"],
)
def test_rewards_have_their_distribution(sampler) -> None:
    for arm, rewards in enumerate(rewards_of(custom(sampler))):
        assert stats.kstest(rewards, stats.norm(MEANS[arm], 0.1).cdf).pvalue > 1e-5
        assert stats.kstest(rewards * 1.1, stats.norm(MEANS[arm], 0.1).cdf).pvalue < 1e-5


def test_blocks_are_used_in_order_and_grow() -> None:
    made: list[list[float]] = [[], [], []]
    sizes: list[list[int]] = [[], [], []]

    def sampler(rng, arm, size):
        block = rng.random(size)
        made[arm].extend(block)
        sizes[arm].append(size)
        return block

    for arm, rewards in enumerate(rewards_of(custom(sampler))):
        assert rewards.tolist() == made[arm][: rewards.size]
        assert sizes[arm][:8] == [16, 32, 64, 128, 256, 512, 1024, 1024][: len(sizes[arm])]


@pytest.mark.parametrize("sampler", [flips, compiled_flip, flip], ids=["vectorised", "compiled", "plain"])
def test_a_trial_depends_on_its_number_only(sampler) -> None:
    plan = make_plan(POLICY, custom(sampler), 100, 5, [50, 100])
    together = cpu_backend.run_trials(plan, 0, 20).regret
    alone = [cpu_backend.run_trials(plan, trial, 1).regret[0] for trial in (0, 9, 19)]
    assert np.array_equal(together[[0, 9, 19]], alone)
    other = cpu_backend.run_trials(plan, 1, 20).regret
    assert np.array_equal(together[1:], other[:-1])
    assert not np.array_equal(together, other)


def test_threads_and_processes_give_the_same_trials() -> None:
    def regret(sampler, **options):
        return maillard.simulate(POLICY, custom(sampler), 60, 40, seed=2, **options).final_regret

    for sampler in (compiled_flip, flips):
        assert (regret(sampler, threads=4) == regret(sampler, threads=1)).all()
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for sampler in (compiled_flip, flips):
            assert (regret(sampler, threads=1, executor=pool) == regret(sampler, threads=1)).all()


@numba.njit
def raises(rng, arm):
    if arm == 1 and rng.random() < 0.5:
        raise KeyError("no such arm")
    return 0.0


@pytest.mark.parametrize("run", [maillard.simulate, maillard.simulate_log])
@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        (lambda rng, arm: math.nan if arm else 0.0, InvalidValue, "sampler's reward for arm 1: .* got nan"),
        (lambda rng, arm: 2.0, InvalidValue, "arm 0: expected a finite number from 0 to 1, got 2.0"),
        (lambda rng, arm: 1 / 0, ZeroDivisionError, "division"),
        (numba.njit(lambda rng, arm: 2.5 * arm), InvalidValue, "arm 1: .* from 0 to 1, got 2.5"),
        (numba.njit(lambda rng, arm: np.nan), InvalidValue, "arm 0: .* got nan"),
        (raises, KeyError, "no such arm"),
        (numba.njit(lambda rng, arm: MEANS), InvalidValue, r"returns one number, but it returns .*array\("),
        (numba.njit(lambda rng, arm: rng.nothing()), InvalidValue, "but: Unknown attribute 'nothing'"),
        (lambda rng, arm, size: rng.random(3), InvalidValue, r"size 16: .* 16 numbers, got .* shape \(3,\)"),
        (lambda rng, arm, size: ["?"] * size, InvalidValue, "an array of 16 numbers, got"),
        (lambda rng, arm, size: np.arange(size), InvalidValue, "arm 0: .* from 0 to 1, got 2.0"),
        (lambda rng, arm, size: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_a_sampler_that_fails_is_reported(sampler, error, message, run) -> None:
    with pytest.raises(error, match=message):
        run(POLICY, custom(sampler, limits=(0, 1)), 100)


@pytest.mark.parametrize("infinite", [lambda rng, arm: math.inf, numba.njit(lambda rng, arm: -np.inf)])
def test_infinite_rewards_are_refused_without_limits(infinite) -> None:
    with pytest.raises(InvalidValue, match="a finite number from -inf to inf, got"):
        maillard.simulate(POLICY, custom(infinite), 100, 1)


@pytest.mark.parametrize("sampler", [lambda rng: 0.0, lambda rng, arm, count: 0.0, numba.njit(lambda: 0.0)])
def test_samplers_with_other_parameters_are_refused(sampler) -> None:
    with pytest.raises(
        InvalidValue, match=r"sampler: expected a function of \(rng, arm\), or of \(rng, arm, "
    ):
        custom(sampler)
