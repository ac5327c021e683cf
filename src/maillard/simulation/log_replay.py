"""Runs a policy on the rewards of a log instead of a problem."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from maillard.simulation.compiled_plans import CompiledPlan, compile_plan, raise_failure
from maillard.simulation.engines import replay_loop
from maillard.simulation.random_streams import trial_generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.simulation.plans import Plan

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]


class LoggedRewards(NamedTuple):
    """The logged rewards that take the place of a problem, for one of two replay methods.

    *Thinned* (rejection sampling): a choice takes the reward of the next row that has `arms` equal to the
    chosen arm and is accepted with probability `keep`. *Queued*: the rewards are grouped by arm, those of one
    arm from `starts[arm]` to `starts[arm + 1]`, and each pull of an arm takes its next reward.
    """

    rewards: Floats
    arms: Places = np.zeros(0, np.int64)
    keep: Floats = np.zeros(0)
    starts: Places = np.zeros(0, np.int64)


class ReplayedRun(NamedTuple):
    """What a policy collected up to each checkpoint, or until the rows ran out."""

    sums: Floats
    "Sum of the rewards."
    arm_value_sums: Floats
    "Sum of `arm_values` over the chosen arms."
    length: int
    "Number of rounds."


@functools.lru_cache(maxsize=256)
def prepare(plan: Plan) -> CompiledPlan:
    """Compile the plan, or load it from the cache."""
    return compile_plan(plan, replay_loop)


def replay_trial(plan: Plan, rows: LoggedRewards, arm_values: Floats, trial: int) -> ReplayedRun:
    """Replay the plan's policy on logged rewards.

    `arm_values` has one number per arm; the result contains their sum over the chosen arms. The result
    depends on the rows, the plan's seed, its policy and the trial number only.
    """
    compiled = prepare(plan)
    checkpoints = np.array(plan.checkpoints, np.int64)
    sums, value_sums, ended = np.zeros(checkpoints.size), np.zeros(checkpoints.size), np.zeros(2, np.int64)
    n, s = np.zeros(arm_values.size), np.zeros(arm_values.size)
    status = compiled.run(
        *compiled.arguments, rows.arms, rows.keep, rows.rewards, rows.starts, arm_values, checkpoints, sums,
        value_sums, ended, n, s, trial_generator(plan.seed, plan.policy, trial),
    )  # fmt: skip
    if status:
        raise_failure(plan, compiled, status, int(ended[1]), n, s)
    return ReplayedRun(sums, value_sums, int(ended[0]))
