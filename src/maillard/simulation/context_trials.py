"""Runs trials on problems with contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from maillard.simulation.backends import TrialBatch
from maillard.simulation.plain_contexts import plain_trial
from maillard.simulation.random_streams import policy_key, trial_bit_generator

if TYPE_CHECKING:
    from maillard.array_types import Ints
    from maillard.problems import ContextualProblem
    from maillard.simulation.plans import Plan


def run_context_trials(
    plan: Plan, problem: ContextualProblem, first: int, count: int, stop: Ints | None = None
) -> TrialBatch:
    """Run the trials `first`, ..., `first + count - 1`."""
    regret = np.zeros((count, len(plan.checkpoints)))
    pulls = np.zeros((count, problem.arms), np.int64)
    stop = np.zeros(1, np.int64) if stop is None else stop
    key = policy_key(plan.policy)
    for trial in range(count):
        rng = np.random.Generator(trial_bit_generator(plan.seed, key, first + trial))
        plain_trial(plan, problem, rng, regret[trial], pulls[trial], stop)
    return TrialBatch(regret, pulls)
