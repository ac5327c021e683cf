"""Samples one reward of one arm, for every reward distribution."""

from __future__ import annotations

from typing import Any

from maillard.problems.codes import BERNOULLI, EXPONENTIAL, FINITE, GAUSSIAN, POISSON, UNIFORM
from maillard.simulation.compiling import call, rare


def sample_reward(
    kind: int, sampler: int, first: Any, second: Any, values: Any, ends: Any, arm: int, rng: Any
) -> float:
    """Sample a reward of an arm.

    `first`, `second`: the parameters of each arm. `values`, `ends`: a finite support, and where the
    probability of each value ends.
    """
    if kind == GAUSSIAN:
        return first[arm] + second[arm] * rng.standard_normal()
    if kind == BERNOULLI:
        return 1.0 if rng.random() < first[arm] else 0.0
    return sample_other_reward(kind, sampler, first, second, values, ends, arm, rng)


@rare
def sample_other_reward(
    kind: int, sampler: int, first: Any, second: Any, values: Any, ends: Any, arm: int, rng: Any
) -> float:
    """Sample a reward of the less common distributions."""
    if kind == UNIFORM:
        return first[arm] + second[arm] * (2.0 * rng.random() - 1.0)
    if kind == EXPONENTIAL:
        return first[arm] * rng.standard_exponential()
    if kind == POISSON:
        return float(rng.poisson(first[arm]))
    if kind == FINITE:
        u, place = rng.random(), 0
        while u >= ends[arm, place]:
            place += 1
        return values[arm, place]
    return call(sampler, 0, float(arm), 0.0, 0.0, 0.0, 0.0)
