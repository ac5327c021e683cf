"""Plain trials on problems with contexts: a loop in Python around the policy, for choices and for logs.

The compiled engines are compared with it, and it runs policies that are more than formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.linear_tally import LinearTally
from maillard.policies.base.policy import sample_arms
from maillard.policies.segmented_policy import SegmentedPolicy
from maillard.segment_tally import SegmentTally
from maillard.simulation.backends import Stopped
from maillard.simulation.c_samplers import reward_arguments
from maillard.simulation.engines.reward_sampling import sample_reward
from maillard.simulation.policy_formulas import forced_rounds, without_floor
from maillard.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maillard.array_types import Floats, Ints
    from maillard.problems import ContextBlock, ContextualProblem
    from maillard.simulation.plans import Plan


class PlainState:
    """The tally of one trial, of the type that the policy needs."""

    def __init__(self, plan: Plan, problem: ContextualProblem) -> None:
        self.policy, self.problem = plan.policy, problem
        self.uses_segments = isinstance(without_floor(plan.policy), SegmentedPolicy)
        self.tally: Any = Tally.empty(problem.arms)
        if self.uses_segments:
            self.tally = SegmentTally.empty(problem.arms)
        elif plan.policy.uses_context:
            self.tally = LinearTally.empty(problem.dim, None if problem.shared else problem.arms)

    def context(self, block: ContextBlock, i: int) -> dict[str, Any]:
        """Return the arguments of the policy's methods for round i of a block."""
        if self.uses_segments:
            return {"x": self.problem.segments[block.segment[i]]}
        return {"x": block.rows[block.row[i]]} if self.policy.uses_context else {}

    def add(self, block: ContextBlock, i: int, arm: int, reward: float) -> None:
        """Add the reward of an arm in round i of a block."""
        if self.uses_segments:
            self.tally.add(self.problem.segments[block.segment[i]], arm, reward)
        elif not self.policy.uses_context:
            self.tally.add(arm, reward)
        elif self.problem.shared:
            self.tally.add(block.rows[block.row[i], arm], reward)
        else:
            self.tally.add(block.rows[block.row[i]], reward, arm=arm)


def plain_trial(
    plan: Plan,
    problem: ContextualProblem,
    rng: np.random.Generator,
    regret: Floats,
    pulls: Ints,
    stop: Ints,
) -> None:
    """Run one trial: fill in the regret at each checkpoint, and the pulls of each arm."""
    state, forced, lost, place = PlainState(plan, problem), forced_rounds(plan.policy, problem.arms), 0.0, 0
    for t, block, i in rounds(problem, rng, plan.horizon):
        if stop[0]:
            raise Stopped("stopped")
        arm = t - 1 if t <= forced else plan.policy.choose(state.tally, rng, **state.context(block, i))
        pulls[arm] += 1
        lost += block.means[block.mean[i]].max() - block.means[block.mean[i], arm]
        state.add(block, i, arm, reward_of(block, i, arm, rng))
        if t == plan.checkpoints[place]:
            regret[place] = lost
            place += 1


def rounds(
    problem: ContextualProblem, rng: np.random.Generator, horizon: int
) -> Iterator[tuple[int, ContextBlock, int]]:
    """Yield the number of each round, from 1, with its block and its place in the block."""
    t = 0
    for block in problem.contexts(rng, horizon):
        for i in range(block.row.size):
            t += 1
            yield t, block, i


def reward_of(block: ContextBlock, i: int, arm: int, rng: np.random.Generator) -> float:
    """Sample the reward of an arm in round i of a block."""
    place = int(block.mean[i]) * block.means.shape[1] + arm
    code, sampler, first, second, values, ends = reward_arguments(block.rewards)
    return sample_reward(code, sampler, first, second, values, ends, place, rng)


def record_contexts(
    plan: Plan,
    problem: ContextualProblem,
    rng: np.random.Generator,
    chosen: Ints,
    rewards: Floats,
    log_chosen: Floats,
    log_all: Floats,
) -> tuple[Floats, Any]:
    """Run one trial and fill in the log: each arm is sampled from exactly the logged distribution.

    `log_all` may be empty. Returns the encoded contexts and the names of the segments, None without segments.
    """
    state, forced = PlainState(plan, problem), forced_rounds(plan.policy, problem.arms)
    shape = (problem.arms, problem.dim) if problem.shared else (problem.dim,)
    contexts, segment = np.zeros((chosen.size, *shape)), np.zeros(chosen.size, np.int64)
    for t, block, i in rounds(problem, rng, chosen.size):
        log = np.where(np.arange(problem.arms) == t - 1, 0.0, -np.inf)
        if t > forced:
            log = plan.policy.log_probabilities(state.tally, **state.context(block, i))
        arm = t - 1 if t <= forced else int(sample_arms(np.exp(log), rng, 1)[0])
        reward = reward_of(block, i, arm, rng)
        state.add(block, i, arm, reward)
        place = t - 1
        chosen[place], rewards[place], log_chosen[place] = arm, reward, log[arm]
        contexts[place], segment[place] = block.rows[block.row[i]], block.segment[i]
        if log_all.size:
            log_all[place] = log
    return contexts, np.array(problem.segments)[segment] if problem.segments else None
