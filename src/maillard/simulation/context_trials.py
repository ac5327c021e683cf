"""Runs trials on problems with contexts: the problem makes blocks of rounds, a compiled loop runs each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from maillard.simulation.backends import Stopped, TrialBatch
from maillard.simulation.c_samplers import reward_arguments
from maillard.simulation.context_plans import compile_context_plan, raise_context_failure
from maillard.simulation.plain_contexts import plain_trial
from maillard.simulation.random_streams import policy_key, trial_bit_generator

if TYPE_CHECKING:
    from maillard.array_types import Floats, Ints
    from maillard.problems import ContextualProblem
    from maillard.simulation.context_plans import ContextEngine
    from maillard.simulation.plans import Plan


def run_context_trials(
    plan: Plan, problem: ContextualProblem, first: int, count: int, stop: Ints | None = None
) -> TrialBatch:
    """Run the trials `first`, ..., `first + count - 1`."""
    regret = np.zeros((count, len(plan.checkpoints)))
    pulls = np.zeros((count, problem.arms), np.int64)
    stop = np.zeros(1, np.int64) if stop is None else stop
    key, engine = policy_key(plan.policy), compile_context_plan(plan, problem)
    for trial in range(count):
        rng = np.random.Generator(trial_bit_generator(plan.seed, key, first + trial))
        if engine is None:
            plain_trial(plan, problem, rng, regret[trial], pulls[trial], stop)
        else:
            _compiled_trial(plan, problem, engine, rng, regret[trial], pulls[trial], stop)
    return TrialBatch(regret, pulls)


def _compiled_trial(
    plan: Plan,
    problem: ContextualProblem,
    engine: ContextEngine,
    rng: np.random.Generator,
    regret: Floats,
    pulls: Ints,
    stop: Ints,
) -> None:
    state, progress, lost = engine.new_state(), np.zeros(3, np.int64), np.zeros(1)
    checkpoints, compiled = np.array(plan.checkpoints, np.int64), engine.plan
    for block in problem.contexts(rng, plan.horizon):
        if stop[0]:
            raise Stopped("stopped")
        status = compiled.run(
            *compiled.arguments, *state, *engine.contexts(block), block.mean, block.means,
            block.means.max(axis=1), *reward_arguments(block.rewards), progress, lost,
            checkpoints, regret, pulls, rng,
        )  # fmt: skip
        if status:
            raise_context_failure(plan, engine, status, progress)
