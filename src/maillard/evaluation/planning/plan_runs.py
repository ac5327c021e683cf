"""The runs of a plan: each policy is simulated many times, and every log is evaluated like a real one."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from maillard.evaluation.planning.plan_result import PlanOption
from maillard.evaluation.sequential.aipw import estimate
from maillard.policies import Policy, WithFloor
from maillard.simulation.log_recorder import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.simulation.plans import Plan as SimulationPlan

    Floats = NDArray[np.float64]

_ROUNDS_PER_TASK = 1_000_000  # a fraction of a second
_COVERAGE_TOLERANCE = 0.02  # shortfall that is accepted from a normal interval
_MIN_DECAY = 0.7  # smallest α of the two-point weighting, which needs a floor of at least c t^-α


@dataclass(frozen=True)
class Run:
    """The regret of one simulated log and, for each target, its estimate.

    The arrays contain the value, its standard error, and the effective sample size as a fraction of the rows.
    """

    regret: float
    values: Floats
    errors: Floats
    effective_fractions: Floats


def run_all(
    plans: Sequence[SimulationPlan],
    targets: Floats,
    *,
    weighting: int,
    runs: int,
    workers: int,
    progress: Callable[[int, int], None],
) -> list[list[Run]]:
    """Run all policies on threads; after Ctrl-C each thread stops at the end of its current run."""
    stopped = threading.Event()
    chunk = max(1, min(runs, _ROUNDS_PER_TASK // plans[0].horizon))
    tasks = [(place, first) for place in range(len(plans)) for first in range(0, runs, chunk)]
    # Compile once, before several threads need the same function.
    record(dataclasses.replace(plans[0], checkpoints=(targets.shape[1] + 3,)), 0, every_arm=True)

    def work(place: int, first: int) -> list[Run]:
        block = range(first, min(first + chunk, runs))
        return [_run(plans[place], run, targets, weighting) for run in block if not stopped.is_set()]

    found: list[list[Run]] = [[] for _ in plans]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(work, *task) for task in tasks]
            for (place, _), future in zip(tasks, futures, strict=True):
                found[place] += future.result()
                progress(sum(map(len, found)), runs * len(plans))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _run(plan: SimulationPlan, run: int, targets: Floats, weighting: int) -> Run:
    """Simulate a log and evaluate it without its forced first rounds."""
    arms, rewards, log, logs, forced = record(plan, run, every_arm=True)
    assert logs is not None
    arm, reward, p = arms[forced:], rewards[forced:], np.exp(log[forced:])
    probabilities, no_groups = np.exp(logs[forced:]), np.zeros(arms.size - forced, np.int64)
    decay = max(_MIN_DECAY, plan.policy.decay if isinstance(plan.policy, WithFloor) else 0.0)
    found = np.empty((3, len(targets)))
    for place, target in enumerate(targets):
        weight, support = target[arm] / p, np.flatnonzero(target)
        with np.errstate(divide="ignore"):  # without a floor, a probability may underflow to 0
            propensity = 1.0 / (target[support] ** 2 / probabilities[:, support]).sum(axis=1)
        row = estimate(arm, reward, weight, propensity, no_groups, target[None], float(arm.size), decay)[
            weighting
        ]
        squares = float(np.square(weight).sum())  # a dot product would start the threads of BLAS
        effective = float(np.abs(weight).sum()) ** 2 / squares / arm.size if squares else 0.0
        found[:, place] = *row, effective
    return Run(float(plan.problem.gaps[arms].sum()), *found)


def summarise_runs(
    policy: Policy, runs: Sequence[Run], truth: Floats, horizon: int, confidence: float
) -> PlanOption:
    """The row of the plan for a policy, from its runs."""
    regret = np.array([run.regret for run in runs])
    values, errors = np.array([run.values for run in runs]), np.array([run.errors for run in runs])
    widths = NormalDist().inv_cdf((1 + confidence) / 2) * errors
    with np.errstate(invalid="ignore"):
        covered = (np.abs(values - truth) <= widths).mean(axis=0)  # a log without an interval does not cover
    mean = np.where(np.isnan(widths).any(axis=0), np.inf, widths.mean(axis=0))
    widest, coverage, root = int(mean.argmax()), float(covered.min()), math.sqrt(len(runs))
    epsilon, decay = (policy.epsilon, policy.decay) if isinstance(policy, WithFloor) else (0.0, 0.0)
    inner = policy.policy if isinstance(policy, WithFloor) else policy
    deviation = math.sqrt(confidence * (1 - confidence) / len(runs))
    assert isinstance(epsilon, float)
    return PlanOption(
        policy=str(policy),
        floor=epsilon,
        decay=decay,
        booster=getattr(inner, "booster", None),
        exploration=epsilon * _power_sum(horizon, decay),
        regret=float(regret.mean()),
        regret_error=float(regret.std(ddof=1)) / root,
        width=float(mean[widest]),
        width_error=float(widths[:, widest].std(ddof=1)) / root,
        coverage=coverage,
        effective_share=float(np.mean([run.effective_fractions for run in runs], axis=0).min()),
        valid=coverage >= confidence - _COVERAGE_TOLERANCE - 2 * deviation,
    )


def _power_sum(horizon: int, decay: float) -> float:
    """The sum of t^-decay for t from 1 to the horizon.

    Terms beyond t = 1000 are summed by the midpoint rule, with a relative error below 1e-7.
    """
    near = min(horizon, 1000)
    total = math.fsum(math.pow(t, -decay) for t in range(1, near + 1))
    return total + (math.pow(horizon + 0.5, 1 - decay) - math.pow(near + 0.5, 1 - decay)) / (1 - decay)
