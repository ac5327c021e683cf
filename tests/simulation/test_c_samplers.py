"""Samplers that compiled loops call by address return what NumPy's generator returns."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import maillard
from maillard.problems import Custom, Exponential, Poisson
from maillard.simulation.c_samplers import (
    address_of_sampler,
    sample_beta,
    sample_binomial,
    sample_exponential,
    sample_poisson,
)
from maillard.simulation.compiled_plans import DIRECT, PLAIN
from maillard.simulation.sampler_calls import call_sampler, generator_of, generator_words

EXPECTED = {
    sample_poisson: ([2.5, 0.0], lambda rng: rng.poisson(2.5)),
    sample_exponential: ([2.5, 0.0], lambda rng: 2.5 * rng.standard_exponential()),
    sample_binomial: ([40.0, 0.3], lambda rng: rng.binomial(40, 0.3)),
    sample_beta: ([4.0, 2.0], lambda rng: rng.beta(4.0, 2.0)),
}


@numba.njit
def sample_many(address, generators, place, numbers, out):
    rng = generator_of(generators, place)
    for i in range(out.size):
        out[i] = call_sampler(address, rng, numbers.ctypes.data)


@pytest.mark.parametrize("sampler", EXPECTED, ids=lambda sampler: sampler.__name__)
def test_a_c_sampler_returns_what_numpy_returns(sampler) -> None:
    numbers, expected = EXPECTED[sampler]
    bits = [np.random.PCG64(seed) for seed in (1, 2)]
    address, found, wanted = address_of_sampler(sampler), np.zeros(200), np.random.default_rng(2)
    sample_many(address, generator_words(bits), 1, np.array(numbers), found)
    assert found == pytest.approx([expected(wanted) for _ in range(200)], rel=1e-13)
    assert np.random.Generator(bits[1]).random() == wanted.random()  # as many random numbers
    assert np.random.Generator(bits[0]).random() == np.random.default_rng(1).random()  # none of the other's
    python = call_sampler(address, np.random.default_rng(2), np.array(numbers).ctypes.data)
    assert python == found[0]


MEANS = (2.0, 1.5)
SAMPLERS = {
    Poisson: lambda rng, arm: rng.poisson(MEANS[arm]),
    Exponential: lambda rng, arm: MEANS[arm] * rng.standard_exponential(),
}


@pytest.mark.parametrize("engine", [None, DIRECT, PLAIN])
@pytest.mark.parametrize("built_in", SAMPLERS)
def test_built_in_rewards_are_those_of_a_plain_sampler(built_in, engine) -> None:
    regret = [
        maillard.simulate("ms:sigma2=2", problem, 60, 10, seed=1, engine=engine).final_regret
        for problem in (built_in(MEANS), Custom(SAMPLERS[built_in], means=MEANS, limits=(0, np.inf)))
    ]
    assert (regret[0] == regret[1]).all()


@pytest.mark.parametrize("problem", ["bernoulli:0.5,0.4,delay=geometric:5", "bernoulli-dynamic:rate=0.2"])
def test_the_plain_engine_runs_delays_and_replaced_arms(problem) -> None:
    result = maillard.simulate("ms", problem, 60, 5, seed=1, engine=PLAIN)
    assert (result.pulls.sum(axis=2) == 60).all()
