"""The runs of a plan: each policy simulated many times, every log evaluated as the real one would be."""

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
from maillard.evaluation.sequential.aipw import WEIGHTINGS, estimate
from maillard.policies import Policy, WithFloor
from maillard.simulation.log_recorder import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.simulation.plans import Plan as Simulated

    Floats = NDArray[np.float64]

__all__ = ["WEIGHTINGS", "Run", "option_of", "run_all"]

_ROUNDS = 1_000_000  # of one task: a fraction of a second
_SLACK = 0.02  # how far from its level a normal interval may be where its theory applies
_DECAY = 0.7  # the fastest decay of a floor that the two-point weighting is made for, unless the floor's own is faster


@dataclass(frozen=True)
class Run:
    """What one simulated log says: its regret, and for each target value, standard error and effective share."""

    regret: float
    values: Floats
    errors: Floats
    shares: Floats


def run_all(
    simulated: Sequence[Simulated],
    laws: Floats,
    *,
    weighting: int,
    runs: int,
    workers: int,
    progress: Callable[[int, int], None],
) -> list[list[Run]]:
    """All runs of all policies, on threads; Ctrl-C ends them with the run that is under way."""
    stopped = threading.Event()
    chunk = max(1, min(runs, _ROUNDS // simulated[0].horizon))
    tasks = [(place, first) for place in range(len(simulated)) for first in range(0, runs, chunk)]
    # One thread compiles, before several ask for the same at once.
    record(dataclasses.replace(simulated[0], checkpoints=(laws.shape[1] + 3,)), 0, every_arm=True)

    def work(place: int, first: int) -> list[Run]:
        block = range(first, min(first + chunk, runs))
        return [_run(simulated[place], run, laws, weighting) for run in block if not stopped.is_set()]

    found: list[list[Run]] = [[] for _ in simulated]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(work, *task) for task in tasks]
            for (place, _), future in zip(tasks, futures, strict=True):
                found[place] += future.result()
                progress(sum(map(len, found)), runs * len(simulated))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def _run(simulated: Simulated, run: int, laws: Floats, weighting: int) -> Run:
    """Simulate a log and evaluate it; the rounds that pull each arm once, with probability 1, say nothing and are left out."""
    arms, rewards, log, logs, forced = record(simulated, run, every_arm=True)
    assert logs is not None
    arm, reward, p = arms[forced:], rewards[forced:], np.exp(log[forced:])
    chances, nobody = np.exp(logs[forced:]), np.zeros(arms.size - forced, np.int64)
    decay = max(_DECAY, simulated.policy.decay if isinstance(simulated.policy, WithFloor) else 0.0)
    found = np.empty((3, len(laws)))
    for place, law in enumerate(laws):
        weight, support = law[arm] / p, np.flatnonzero(law)
        with np.errstate(divide="ignore"):  # an arm without a floor may have a chance that no float can hold
            propensity = 1.0 / (law[support] ** 2 / chances[:, support]).sum(axis=1)
        row = estimate(arm, reward, weight, propensity, nobody, law[None], float(arm.size), decay)[weighting]
        squares = float(np.square(weight).sum())  # a product of vectors would start the threads of BLAS
        share = float(np.abs(weight).sum()) ** 2 / squares / arm.size if squares else 0.0
        found[:, place] = *row, share
    return Run(float(simulated.problem.gaps[arms].sum()), *found)


def option_of(
    policy: Policy, runs: Sequence[Run], truth: Floats, horizon: int, confidence: float
) -> PlanOption:
    """The row of a policy, from its runs."""
    regret = np.array([run.regret for run in runs])
    values, errors = np.array([run.values for run in runs]), np.array([run.errors for run in runs])
    widths = NormalDist().inv_cdf((1 + confidence) / 2) * errors
    with np.errstate(invalid="ignore"):
        covered = (np.abs(values - truth) <= widths).mean(axis=0)  # a log without an interval covers nothing
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
        effective_share=float(np.mean([run.shares for run in runs], axis=0).min()),
        holds=coverage >= confidence - _SLACK - 2 * deviation,
    )


def _power_sum(horizon: int, decay: float) -> float:
    """1 + 2^-decay + ... + T^-decay; far terms by the midpoint rule, whose error is under 1e-7 of the sum."""
    near = min(horizon, 1000)
    total = math.fsum(math.pow(t, -decay) for t in range(1, near + 1))
    return total + (math.pow(horizon + 0.5, 1 - decay) - math.pow(near + 0.5, 1 - decay)) / (1 - decay)
