"""Random numbers that few problems need, as C functions.

Numba compiles these distributions for seconds, in every loop that names them. A loop calls them by address
instead, so that they are compiled once, and only for problems that need them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numba
from numba import types
from numba.extending import register_jitable

from maillard.problems import codes
from maillard.simulation.compiling import fingerprint_of, name_uniquely
from maillard.simulation.sampler_calls import PYTHON_SAMPLERS, generator_at

if TYPE_CHECKING:
    from maillard.problems.problem import RewardDistribution

_SIGNATURE = types.float64(types.intp, types.CPointer(types.float64))


def sample_poisson(rng: Any, numbers: Any) -> float:
    """Sample a Poisson number from its mean."""
    return float(rng.poisson(numbers[0]))


def sample_exponential(rng: Any, numbers: Any) -> float:
    """Sample an exponential number from its mean."""
    return float(numbers[0] * rng.standard_exponential())


def sample_binomial(rng: Any, numbers: Any) -> float:
    """Sample a binomial number from the number of trials and the probability."""
    return float(rng.binomial(int(numbers[0]), numbers[1]))


def sample_beta(rng: Any, numbers: Any) -> float:
    """Sample a Beta number from its two parameters."""
    return float(rng.beta(numbers[0], numbers[1]))


_REWARDS = {codes.POISSON: sample_poisson, codes.EXPONENTIAL: sample_exponential}


def reward_sampler(code: int) -> int:
    """Return the address of the sampler of a reward distribution; 0 if loops need none."""
    return address_of_sampler(_REWARDS[code]) if code in _REWARDS else 0


def reward_arguments(rewards: RewardDistribution) -> tuple[Any, ...]:
    """Return the arguments of a loop that samples rewards: code, sampler, and the arrays."""
    return rewards.code, reward_sampler(rewards.code), *rewards[1:]


@functools.cache
def address_of_sampler(sampler: Any) -> int:
    """Compile a function of a generator and the address of numbers, or load it from the disk."""
    register_jitable(error_model="numpy")(sampler)  # a dispatcher has another cache key in each process
    adapted = _adapt(sampler, fingerprint_of(sampler))
    name_uniquely(adapted, sampler)
    compiled = numba.cfunc(_SIGNATURE, cache=True, error_model="numpy")(adapted)
    _KEEP_ALIVE.append(compiled)
    PYTHON_SAMPLERS[compiled.address] = sampler
    return int(compiled.address)


_KEEP_ALIVE: list[Any] = []


def _adapt(sampler: Any, fingerprint: int) -> Any:
    def sample(generator, numbers):  # type: ignore[no-untyped-def]
        if fingerprint == 0:  # never: but only variables that the code uses enter the cache key
            return 0.0
        return sampler(generator_at(generator), numbers)

    return sample
