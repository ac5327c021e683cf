"""Records one run of a plan: every choice with its exact log probability, and every reward."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maillard.simulation.compiled_plans import (
    CompiledPlan,
    compile_formulas,
    plain_plan,
    raise_failure,
)
from maillard.simulation.cpu_backend import UserSampler, problem_arguments
from maillard.simulation.engines import direct_engines, recording_loop
from maillard.simulation.policy_formulas import engine_shape, without_floor
from maillard.simulation.random_streams import trial_generator
from maillard.tally import Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.simulation.plans import Plan


class RecordedRun(NamedTuple):
    """One run, round by round."""

    arms: NDArray[np.int64]
    rewards: NDArray[np.float64]
    log_probability: NDArray[np.float64]
    "Of the chosen arm."
    log_probabilities: NDArray[np.float64] | None
    "Round x arm."
    forced: int
    "Initial rounds that pulled the arms in order, with probability 1."


def record(plan: Plan, trial: int, *, every_arm: bool) -> RecordedRun:
    """Run one trial and record it, with the log probabilities of every arm or of the chosen one only."""
    compiled, problem, horizon = prepare_recorder(plan), plan.problem, plan.horizon
    chosen, rewards, log_chosen = np.zeros(horizon, np.int64), np.zeros(horizon), np.zeros(horizon)
    log_all = np.zeros((horizon, problem.arms) if every_arm else (0, 0))
    n, s = np.zeros(problem.arms), np.zeros(problem.arms)
    sampler = UserSampler(problem)
    sampler.rng = trial_generator(plan.seed, plan.policy, trial)
    status = compiled.run(
        compiled.addresses, *problem_arguments(problem, sampler), *compiled.arguments,
        chosen, rewards, log_chosen, log_all, n, s, sampler.rng,
    )  # fmt: skip
    if sampler.error:
        raise sampler.error
    if status:
        raise_failure(plan, compiled, status, int(chosen[0]), n, s)
    forced = min(compiled.forced, horizon)
    return RecordedRun(chosen, rewards, log_chosen, log_all if every_arm else None, forced)


@functools.cache
def _loop(shape: str) -> Any:
    return recording_loop.compile_loop(direct_engines.DISTRIBUTIONS[shape], direct_engines.ENGINES[shape][2])


@functools.lru_cache(maxsize=64)
def prepare_recorder(plan: Plan) -> CompiledPlan:
    """Compile the recorder of a plan.

    Without a compiled distribution, it calls `policy.log_probabilities`.
    """
    shape = engine_shape(without_floor(plan.policy))
    shape = "sampled" if shape == "constant" else shape
    if shape in direct_engines.DISTRIBUTIONS:
        _, fields = compile_formulas(plan.policy, plan.problem.arms)
        return CompiledPlan(run=_loop(shape), **fields)

    def compute(_f: Any, w: Any, _arms: int, t: int) -> int:
        tally = Tally(w[direct_engines.N].astype(np.int64), w[direct_engines.S])
        w[direct_engines.LOG] = plan.policy.log_probabilities(tally, round=t)
        w[direct_engines.PROBABILITY] = np.exp(w[direct_engines.LOG])
        return 0

    return plain_plan(plan, recording_loop.build(compute, direct_engines.update, 1))
