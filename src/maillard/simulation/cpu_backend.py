"""The CPU backend: compiled loops, several trials per call, one thread per worker."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidValue
from maillard.problems import ContextualProblem, Problem, codes
from maillard.problems.delays import Delay
from maillard.simulation.backends import CPU, Stopped, TrialBatch
from maillard.simulation.c_samplers import (
    address_of_sampler,
    reward_sampler,
    sample_beta,
    sample_binomial,
)
from maillard.simulation.compiled_plans import CompiledPlan, compile_plan, engines_for, raise_failure
from maillard.simulation.context_plans import compile_context_plan
from maillard.simulation.context_trials import run_context_trials
from maillard.simulation.engines import trial_loop
from maillard.simulation.random_streams import policy_key, trial_bit_generator
from maillard.simulation.sampler_calls import generator_words
from maillard.simulation.summary import PartialSummary, summarize_trials
from maillard.simulation.user_samplers import NoSampler, sampler_of
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.simulation.plans import Plan

SERIAL = False
_MAX_BATCH_ROUNDS, _MAX_BATCH_TRIALS = 4_000_000, 1000  # a batch takes a fraction of a second


def check(plan: Plan) -> None:
    """Raise `InvalidValue` for an engine that cannot run the plan."""
    if plan.engine is not None and plan.engine not in (engines := engines_for(plan)):
        raise InvalidValue(f"engine of {plan.policy.name} on this problem", plan.engine, " or ".join(engines))


def prepare(plan: Plan) -> None:
    """Compile the plan, or load it from the cache: seconds the first time on a machine, then milliseconds."""
    if isinstance(plan.problem, ContextualProblem):
        compile_context_plan(plan, plan.problem)
    else:
        compiled = _compiled(plan)
        sampler = sampler_of(plan.problem, in_python=compiled.in_python)
        problem_arguments(plan.problem, sampler, has_runs=compiled.has_runs)


@functools.lru_cache(maxsize=4096)
def _compiled(plan: Plan) -> CompiledPlan:
    return compile_plan(plan, trial_loop)


def batch_size(plan: Plan, trials: int, workers: int) -> int:
    """Return how many trials to run in one batch: small enough to keep all workers busy until the end."""
    return max(1, min(_MAX_BATCH_ROUNDS // plan.horizon, -(-trials // (4 * workers)), _MAX_BATCH_TRIALS))


def run(
    plan: Plan, first: int, count: int, *, summarize: bool, stop: NDArray[np.int64] | None = None
) -> TrialBatch | PartialSummary:
    """Run the trials `first`, ..., `first + count - 1`."""
    made: TrialBatch
    if isinstance(plan.problem, ContextualProblem):
        made = run_context_trials(plan, plan.problem, first, count, stop)
    else:
        made = run_trials(plan, first, count, stop=stop)
    return summarize_trials(made.regret, made.pulls) if summarize else made


def device_name() -> str:
    """Return the name of the device for provenance."""
    return CPU


def problem_arguments(problem: Problem, sampler: NoSampler, *, has_runs: bool = False) -> tuple[Any, ...]:
    """Return the problem's arguments of a loop: reward distribution, true means, delay, churn.

    `has_runs`: whether the loop simulates many rounds at once.
    """
    code, first, second, values, ends = problem.reward_distribution()
    if sampler.code is not None:
        code, values, ends = sampler.code, sampler.values, sampler.ends
    delay = problem.delay
    delays = (
        (delay.code, float(delay.rounds))
        if isinstance(delay, Delay) and problem.is_delayed
        else (codes.NO_DELAY, 0.0)
    )
    churn = np.array(problem.churn, np.float64)
    address = sampler.address or reward_sampler(code)
    counts = (has_runs and code == codes.BERNOULLI) or delays[0] == codes.GEOMETRIC
    binomial = address_of_sampler(sample_binomial) if counts else 0
    beta = address_of_sampler(sample_beta) if churn.size else 0
    means = problem.true_means.copy()
    return code, address, first, second, values, ends, means, *delays, churn, binomial, np.zeros(2), beta


@dataclass(frozen=True, eq=False)
class TrialResults(TrialBatch):
    """The results of consecutive trials, and the final state of the last one."""

    tally: Tally  # the rewards that the last trial has observed
    choices: NDArray[np.int64]  # how often each arm was chosen in additional choices from that state


def run_trials(
    plan: Plan, first: int, count: int, *, stop: NDArray[np.int64] | None = None, choices: int = 0
) -> TrialResults:
    """Run the trials `first`, ..., `first + count - 1`.

    Then choose `choices` times from the last one's final state.
    """
    compiled, problem = _compiled(plan), plan.problem
    arms, checkpoints = problem.arms, np.array(plan.checkpoints, np.int64)
    regret, pulls = np.zeros((count, checkpoints.size)), np.zeros((count, arms), np.int64)
    observed_pulls, observed_sums, chosen = np.zeros(arms), np.zeros(arms), np.zeros(arms, np.int64)
    goal = np.zeros(0) if problem.threshold is None else np.array([problem.threshold, problem.epsilon])
    stop = np.zeros(1, np.int64) if stop is None else stop
    sampler = sampler_of(problem, in_python=compiled.in_python)
    problem_values = problem_arguments(problem, sampler, has_runs=compiled.has_runs)
    key, bits = policy_key(plan.policy), [np.random.PCG64(0) for _ in range(trial_loop.TRIALS_PER_CALL)]
    rngs = tuple(np.random.Generator(each) for each in bits)
    generators = rngs if compiled.in_python else generator_words(bits)
    trials_per_call = 1 if sampler.one_trial_per_call else trial_loop.TRIALS_PER_CALL
    for start in range(0, count, trials_per_call):
        block = slice(start, min(start + trials_per_call, count))
        for place, trial in enumerate(range(block.start, block.stop)):
            # Setting the state is faster than new generators, which compiled code would have to unbox.
            bits[place].state = trial_bit_generator(plan.seed, key, first + trial).state
        sampler.start_trial(rngs[0])
        status = compiled.run(
            *compiled.arguments, *problem_values, goal, checkpoints, regret[block], pulls[block],
            observed_pulls, observed_sums, chosen, choices if block.stop == count else 0, stop,
            block.stop - start, generators,
        )  # fmt: skip
        sampler.raise_error()
        if status == trial_loop.STOPPED:
            raise Stopped("stopped")
        if status:
            raise_failure(plan, compiled, status, int(chosen[0]), observed_pulls, observed_sums)
    return TrialResults(regret, pulls, Tally(observed_pulls.astype(np.int64), observed_sums), chosen)
