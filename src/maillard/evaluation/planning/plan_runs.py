"""The runs of a plan: each policy is simulated many times, and every log is evaluated like a real one."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.means import mean_intervals
from maillard.evaluation.planning.plan_result import PlanOption
from maillard.evaluation.sequential.aipw import estimate
from maillard.policies import WithFloor
from maillard.simulation.plans import Plan as SimulationPlan
from maillard.simulation.simulated_logs import record

_ROUNDS_PER_TASK = 1_000_000  # a fraction of a second
_COVERAGE_TOLERANCE = 0.02  # shortfall that is accepted from a normal interval
_MIN_DECAY = 0.7  # smallest α of the two-point weighting, which needs a floor of at least c t^-α


class Run(NamedTuple):
    """The regret of one simulated log and, for each target, its estimate."""

    regret: float
    estimates: Floats
    "3 x targets: both ends of the interval, and the effective sample size as a fraction of the rows."


def run_all(  # noqa: PLR0917
    plans: Sequence[SimulationPlan],
    targets: Floats,
    weighting: int,
    confidence: float,
    runs: int,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> list[list[Run]]:
    """Run all policies on threads; after Ctrl-C each thread stops at the end of its current run."""
    stopped = threading.Event()
    chunk = max(1, min(runs, _ROUNDS_PER_TASK // plans[0].horizon))
    tasks = [(place, first) for place in range(len(plans)) for first in range(0, runs, chunk)]
    # Compile once, before several threads need the same function.
    record(dataclasses.replace(plans[0], checkpoints=(targets.shape[1] + 3,)), 0, every_arm=True)

    def work(place: int, first: int) -> list[Run]:
        block = range(first, min(first + chunk, runs))
        settings = (targets, weighting, confidence)
        return [_run(plans[place], run, *settings) for run in block if not stopped.is_set()]

    found: list[list[Run]] = [[] for _ in plans]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(work, *task) for task in tasks]
            for (place, _), future in zip(tasks, futures, strict=True):
                found[place] += future.result()
                if progress is not None:
                    progress(sum(map(len, found)), runs * len(plans))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def uses_own_rewards(plan: SimulationPlan, target: Floats) -> bool:
    """Whether `evaluate` would recommend `cs-arm`: there is no floor, and the target is a single arm."""
    floored = isinstance(plan.policy, WithFloor) and bool(np.any(plan.policy.epsilon))
    unit_range = plan.problem.support == (0.0, 1.0)
    return not floored and unit_range and np.count_nonzero(target) == 1 and target.max() == 1.0


def _run(plan: SimulationPlan, run: int, targets: Floats, weighting: int, confidence: float) -> Run:
    """Simulate a log and evaluate it, as `evaluate` recommends, without its forced first rounds."""
    log = record(plan, run, every_arm=True)
    assert log.log_probabilities is not None
    free = slice(log.forced, None)
    arm, reward, p = log.arms[free], log.rewards[free], np.exp(log.log_probability[free])
    probabilities, one_row = np.exp(log.log_probabilities[free]), np.zeros(arm.size, np.int64)
    decay = max(_MIN_DECAY, plan.policy.decay if isinstance(plan.policy, WithFloor) else 0.0)
    found, z = np.empty((3, len(targets))), NormalDist().inv_cdf((1 + confidence) / 2)
    for place, target in enumerate(targets):
        weight, support = target[arm] / p, np.flatnonzero(target)
        with np.errstate(divide="ignore"):  # without a floor, a probability may underflow to 0
            propensity = 1.0 / (target[support] ** 2 / probabilities[:, support]).sum(axis=1)
        rows = (arm, reward, weight, propensity, one_row, target[None])
        if uses_own_rewards(plan, target):
            mine = reward[arm == support[0]]
            ((lower, upper),) = mean_intervals([mine.size], [mine.sum()], 0.0, 1.0, confidence)
        else:
            value, error = estimate(rows, float(arm.size), decay)[weighting]
            lower, upper = value - z * error, value + z * error
        squares = float(np.square(weight).sum())  # a dot product would start the threads of BLAS
        effective = float(np.abs(weight).sum()) ** 2 / squares / arm.size if squares else 0.0
        found[:, place] = lower, upper, effective
    return Run(float(plan.problem.gaps[log.arms].sum()), found)


def summarise_runs(plan: SimulationPlan, runs: Sequence[Run], truth: Floats, confidence: float) -> PlanOption:
    """The row of the plan for a policy, from its runs."""
    regret = np.array([run.regret for run in runs])
    lower, upper, effective = np.stack([run.estimates for run in runs], axis=1)  # each runs x targets
    widths = (upper - lower) / 2
    with np.errstate(invalid="ignore"):
        covered = ((lower <= truth) & (truth <= upper)).mean(
            axis=0
        )  # a log without an interval does not cover
    mean = np.where(np.isnan(widths).any(axis=0), np.inf, widths.mean(axis=0))
    widest, coverage, root = int(mean.argmax()), float(covered.min()), math.sqrt(len(runs))
    floored = plan.policy if isinstance(plan.policy, WithFloor) else WithFloor(plan.policy, 0.0)
    deviation = math.sqrt(confidence * (1 - confidence) / len(runs))
    assert isinstance(floored.epsilon, float)
    return PlanOption(
        policy=str(plan.policy),
        floor=floored.epsilon,
        decay=floored.decay,
        booster=getattr(floored.policy, "booster", None),
        exploration=floored.epsilon * _power_sum(plan.horizon, floored.decay),
        regret=float(regret.mean()),
        regret_error=float(regret.std(ddof=1)) / root,
        width=float(mean[widest]),
        width_error=float(widths[:, widest].std(ddof=1)) / root,
        coverage=coverage,
        effective_share=float(effective.mean(axis=0).min()),
        valid=coverage >= confidence - _COVERAGE_TOLERANCE - 2 * deviation,
    )


def _power_sum(horizon: int, decay: float) -> float:
    """The sum of t^-decay for t from 1 to the horizon.

    Terms beyond t = 1000 are summed by the midpoint rule, with a relative error below 1e-7.
    """
    near = min(horizon, 1000)
    total = math.fsum(math.pow(t, -decay) for t in range(1, near + 1))
    return total + (math.pow(horizon + 0.5, 1 - decay) - math.pow(near + 0.5, 1 - decay)) / (1 - decay)
