"""Compiled simulation of one log, as the arrays that estimators read.

Unlike in `simulate_log`, no round is forced. As in a live bandit, arms without rewards have a probability by
formula, so every row has support. Thompson sampling over three arms is compiled, too. The logged
distribution is that of `WithFloor`, p = (1 - s) p_policy + s / K.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from benchmarks.coverage.choice_probabilities import win
from maillard.policies import Policy, Sampled, WithFloor
from maillard.simulation.c_samplers import reward_arguments
from maillard.simulation.compiling import address_of, borrowed, compile_function, parameters_of
from maillard.simulation.engines.direct_engines import PROBABILITY, begin, compute_sampled, sample_arm, update
from maillard.simulation.engines.reward_sampling import sample_reward

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.problems import Problem

    Floats = NDArray[np.float64]

__all__ = ["Logger", "Rows"]

_F8, _I8 = types.float64, types.int64
_NUMBERS, _PLACES, _TABLE = types.Array(_F8, 1, "C"), types.Array(_I8, 1, "C"), types.Array(_F8, 2, "C")
# The policy's addresses; the problem; uniform weights; out: arms, rewards, probabilities; random numbers.
_SIGNATURE = _I8(
    _PLACES, _I8, _I8, _NUMBERS, _NUMBERS, _TABLE, _TABLE, _NUMBERS, _PLACES, _NUMBERS, _TABLE, types.npy_rng
)


def _build(choice_probabilities: Any, fingerprint: int) -> Any:
    def run(  # type: ignore[no-untyped-def]  # noqa: PLR0917  # compiled
        f, kind, sampler, first, second, values, ends, uniform_weights, chosen, rewards, probabilities, rng
    ):
        arms, table = first.size, begin(first.size)
        w, f, rng = borrowed(table), borrowed(f), borrowed(rng)
        for t in range(chosen.size):
            choice_probabilities(f, w, arms, t + 1)
            for arm in range(arms):
                weight = uniform_weights[t]
                w[PROBABILITY, arm] = (1.0 - weight) * w[PROBABILITY, arm] + weight / arms
                probabilities[t, arm] = w[PROBABILITY, arm]
            arm = sample_arm(w, arms, rng)
            reward = sample_reward(kind, sampler, first, second, values, ends, arm, rng)
            chosen[t], rewards[t] = arm, reward
            update(f, w, arms, arm, reward, t + 1)
        return fingerprint * 0 * table.size  # so that the table lives until here

    return run


@dataclass(frozen=True, eq=False)
class Rows:
    """The arrays of a log, in log order."""

    arm: NDArray[np.int64]
    reward: Floats
    probabilities: Floats  # row x arm

    @classmethod
    def empty(cls, horizon: int, arms: int) -> Rows:
        """Uninitialised arrays for a run."""
        return cls(np.zeros(horizon, np.int64), np.zeros(horizon), np.zeros((horizon, arms)))


class Logger:
    """Simulates logs of a policy on a problem, with or without a floor."""

    def __init__(self, policy: Policy, problem: Problem, horizon: int) -> None:
        self._rewards, self._name = problem.reward_distribution(), f"{policy} on {problem}"
        self.uniform_weights = np.zeros(horizon)  # weight of the uniform distribution by round
        if isinstance(policy, WithFloor):
            assert isinstance(policy.epsilon, float)
            self.uniform_weights = policy.epsilon * np.arange(1.0, horizon + 1) ** -policy.decay
            policy = policy.policy
        sampled = isinstance(policy, Sampled)
        wanted: list[tuple[str, int, int]] = (
            [("leader", 2, -1), ("rival", 4, -1)] if sampled else [("score", 2, 0), ("score", 2, 1)]
        )
        pairs = [address_of(policy, *formula) for formula in wanted]
        parameters = parameters_of(policy)
        self._alive = (parameters, pairs)  # must live as long as their addresses are used
        self._addresses = np.array([parameters.ctypes.data, *(address for address, _ in pairs), 0], np.int64)
        self._run = compile_function(_build, (compute_sampled if sampled else win,), _SIGNATURE)

    def write(self, rows: Rows, seed: int, run: int) -> None:
        """Simulate run number `run`; its random numbers depend on seed, policy, problem and `run`."""
        rewards = self._rewards
        key = (zlib.crc32(self._name.encode()), run)
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
        self._run(
            self._addresses,
            *reward_arguments(rewards),
            self.uniform_weights,
            rows.arm,
            rows.reward,
            rows.probabilities,
            rng,
        )
