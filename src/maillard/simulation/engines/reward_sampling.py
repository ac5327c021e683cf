"""Samples one reward of one arm, for every reward distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.problems.codes import (
    BERNOULLI,
    EXPONENTIAL,
    FINITE,
    GAUSSIAN,
    OWN_BLOCKS,
    OWN_COMPILED,
    POISSON,
    UNIFORM,
)
from maillard.simulation.compiling import rare
from maillard.simulation.sampler_calls import call_sampler

# Columns of `values` and `ends` for a user's sampler. Compiled: the limits, and the first reward that exceeds
# them. Vectorised: `values` has a block of rewards per arm; the next of them, and the end of the block.
LOW, HIGH = 0, 1
BAD_ARM, BAD_REWARD = 0, 1
NEXT, FILLED = 0, 1


def sample_reward(
    code: int, sampler: int, first: Any, second: Any, values: Any, ends: Any, arm: int, rng: Any
) -> float:
    """Sample a reward of an arm.

    `first`, `second`: the parameters of each arm. `values`, `ends`: a finite support, and where the
    probability of each value ends. A user's sampler has other uses for these two.
    """
    if code == GAUSSIAN:
        return first[arm] + second[arm] * rng.standard_normal()
    if code == BERNOULLI:
        return 1.0 if rng.random() < first[arm] else 0.0
    if code == OWN_COMPILED:
        reward = call_sampler(sampler, rng, arm)
        return reward if values[0, LOW] <= reward <= values[0, HIGH] else refuse(ends, arm, reward)
    return sample_other_reward(code, sampler, first, second, values, ends, arm, rng)


@rare
def refuse(ends: Any, arm: int, reward: float) -> float:
    """Record a reward that exceeds the limits, and return NaN."""
    ends[0, BAD_ARM], ends[0, BAD_REWARD] = arm, reward
    return np.nan


@rare
def sample_other_reward(
    code: int, sampler: int, first: Any, second: Any, values: Any, ends: Any, arm: int, rng: Any
) -> float:
    """Sample a reward of the less common distributions; those of some are C functions of their parameter."""
    if code == UNIFORM:
        return first[arm] + second[arm] * (2.0 * rng.random() - 1.0)
    if code == EXPONENTIAL or code == POISSON:  # noqa: PLR1714, SIM109  # numba compiles it faster
        return call_sampler(sampler, rng, first.ctypes.data + 8 * arm)
    if code == FINITE:
        u, place = rng.random(), 0
        while u >= ends[arm, place]:
            place += 1
        return values[arm, place]
    return (
        next_of_block(sampler, values, ends, arm, rng)
        if code == OWN_BLOCKS
        else call_sampler(sampler, rng, arm)
    )


def next_of_block(sampler: int, values: Any, ends: Any, arm: int, rng: Any) -> float:
    """Return the next reward of an arm's block; fill the block if it is used up."""
    if ends[arm, NEXT] == ends[arm, FILLED] and np.isnan(call_sampler(sampler, rng, arm)):
        return np.nan
    place = int(ends[arm, NEXT])
    ends[arm, NEXT] = place + 1.0
    return values[arm, place]
