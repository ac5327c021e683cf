"""The runs of a plan: each policy is simulated many times, and every log is evaluated like a real one."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.comparing import compare
from maillard.evaluation.evaluating import evaluate_each
from maillard.evaluation.evaluation_report import Estimate
from maillard.evaluation.planning.plan_result import PlanOption
from maillard.evaluation.sequential.aipw import WEIGHTINGS, estimate
from maillard.policies import Policy, WithFloor
from maillard.simulation import Log
from maillard.simulation.plans import Plan as SimulationPlan
from maillard.simulation.simulated_logs import record

_ROUNDS_PER_TASK = 1_000_000  # a fraction of a second
_COVERAGE_TOLERANCE = 0.02  # shortfall that is accepted from a normal interval
_MAX_UNANSWERED = 0.05  # fraction of logs without a recommended estimate, from which an option has no width
_MIN_DECAY = 0.7  # smallest α of the two-point weighting, which needs a floor of at least c t^-α


class Question(NamedTuple):
    """What the log of the experiment will be asked."""

    targets: tuple[str | Policy, ...]
    against: str | Policy | None
    probabilities: Floats
    "Targets x arms; minus those of `against`, if there is one."
    estimator: str | None
    "One of the weightings of AIPW; None: the one that `evaluate` recommends for each log."
    confidence: float
    active: bool
    "Whether the log is evaluated while the experiment is running."


class Run(NamedTuple):
    """The regret of one simulated log and, for each target, its estimate."""

    regret: float
    estimates: Floats
    "3 x targets: both ends of the interval, and the effective sample size as a fraction of the rows."
    names: tuple[str, ...]
    "The estimator of each target; empty if none can be recommended."


def run_all(
    plans: Sequence[SimulationPlan],
    question: Question,
    runs: int,
    workers: int,
    progress: Callable[[int, int], None] | None,
    *,
    first: int = 0,
) -> list[list[Run]]:
    """Run all policies on threads, from the run `first` on.

    After Ctrl-C each thread stops at the end of its current run.
    """
    stopped = threading.Event()
    chunk = max(1, min(math.ceil(runs / workers), _ROUNDS_PER_TASK // plans[0].horizon))
    end = first + runs
    tasks = [(place, start) for place in range(len(plans)) for start in range(first, end, chunk)]
    # Compile once, before several threads need the same function.
    record(
        dataclasses.replace(plans[0], checkpoints=(question.probabilities.shape[1] + 3,)), 0, every_arm=True
    )

    def work(place: int, start: int) -> list[Run]:
        block = range(start, min(start + chunk, end))
        return [_run(plans[place], run, question) for run in block if not stopped.is_set()]

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


def _run(plan: SimulationPlan, run: int, question: Question) -> Run:
    """Simulate a log and evaluate it without its forced first rounds."""
    log = record(plan, run, every_arm=True)
    free = slice(log.forced, None)
    arm, p = log.arms[free], np.exp(log.log_probability[free])
    found = np.empty((3, len(question.probabilities)))
    for place, target in enumerate(question.probabilities):
        weight = target[arm] / p
        squares = float(np.square(weight).sum())  # a dot product would start the threads of BLAS
        found[2, place] = float(np.abs(weight).sum()) ** 2 / squares / arm.size if squares else 0.0
    names = (question.estimator or "",) * len(found[0])
    if question.estimator is None:
        best = _recommended(log, question)
        names = tuple("" if each is None else each.name for each in best)
        ends = [(np.nan, np.nan) if each is None else (each.lower, each.upper) for each in best]
        found[:2] = np.array(ends, np.float64).T
    else:
        found[:2] = _intervals(log, plan, question)
    return Run(float(plan.problem.gaps[log.arms].sum()), found, names)


def _recommended(log: Log, question: Question) -> list[Estimate | None]:
    """The estimate of each target that `evaluate` or `compare` recommends for this log."""
    options: dict[str, Any] = {"comparisons": 1, "active": question.active}
    confidence, against = question.confidence, question.against
    if against is None:
        found = evaluate_each(log, question.targets, confidence=confidence, **options)
        return [each.best for each in found]
    return [
        compare(log, target, against, confidence=confidence, **options).best for target in question.targets
    ]


def _intervals(log: Log, plan: SimulationPlan, question: Question) -> Floats:
    """Both ends of the interval of each target, by one weighting of AIPW."""
    assert log.log_probabilities is not None
    assert question.estimator is not None
    free = slice(log.forced, None)
    arm, reward, p = log.arms[free], log.rewards[free], np.exp(log.log_probability[free])
    probabilities, one_row = np.exp(log.log_probabilities[free]), np.zeros(arm.size, np.int64)
    decay = max(_MIN_DECAY, plan.policy.decay if isinstance(plan.policy, WithFloor) else 0.0)
    z, weighting = NormalDist().inv_cdf((1 + question.confidence) / 2), WEIGHTINGS.index(question.estimator)
    ends = []
    for target in question.probabilities:
        support = np.flatnonzero(target)
        with np.errstate(divide="ignore"):  # without a floor, a probability may underflow to 0
            propensity = 1.0 / (target[support] ** 2 / probabilities[:, support]).sum(axis=1)
        rows = (arm, reward, target[arm] / p, propensity, one_row, target[None])
        value, error = estimate(rows, float(arm.size), decay)[weighting]
        ends.append((value - z * error, value + z * error))
    return np.array(ends).T


def summarise_runs(plan: SimulationPlan, runs: Sequence[Run], truth: Floats, confidence: float) -> PlanOption:
    """The row of the plan for a policy, from its runs."""
    regret = np.array([run.regret for run in runs])
    lower, upper, effective = np.stack([run.estimates for run in runs], axis=1)  # each runs x targets
    widths, answers = (upper - lower) / 2, np.maximum(np.isfinite(lower).sum(axis=0), 1)
    with np.errstate(invalid="ignore"):
        covered = ((lower <= truth) & (truth <= upper)).sum(axis=0) / answers
    unanswered = 1.0 - np.isfinite(lower).mean(axis=0)
    decided = ((lower > 0) | (upper < 0)).mean(axis=0)  # not without an interval
    mean = np.where(unanswered > _MAX_UNANSWERED, np.inf, np.nansum(widths, axis=0) / answers)
    widest, coverage, root = int(mean.argmax()), float(covered.min()), math.sqrt(len(runs))
    names = Counter(name for run in runs for name in run.names if name)
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
        width_error=float(np.nanstd(widths[:, widest], ddof=1)) / root
        if np.isfinite(mean[widest])
        else np.inf,
        estimator=max(names, key=lambda name: names[name], default=""),
        unanswered=float(unanswered.max()),
        coverage=coverage,
        decided=float(decided.min()),
        effective_share=float(effective.mean(axis=0).min()),
        low_coverage=coverage < confidence - _COVERAGE_TOLERANCE,
        valid=coverage >= confidence - _COVERAGE_TOLERANCE - 2 * deviation,
    )


def _power_sum(horizon: int, decay: float) -> float:
    """The sum of t^-decay for t from 1 to the horizon.

    Terms beyond t = 1000 are summed by the midpoint rule, with a relative error below 1e-7.
    """
    near = min(horizon, 1000)
    total = math.fsum(math.pow(t, -decay) for t in range(1, near + 1))
    return total + (math.pow(horizon + 0.5, 1 - decay) - math.pow(near + 0.5, 1 - decay)) / (1 - decay)
