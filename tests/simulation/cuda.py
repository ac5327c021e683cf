"""What tests of the GPU share.

Plans, a kernel that stops after every round, and Python processes without a simulator.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import maillard
from maillard import problems
from maillard.simulation.backends import CUDA
from maillard.simulation.cuda import cuda_backend as device
from maillard.simulation.cuda.engines.trial_memory import N, S, record_at
from maillard.simulation.plans import Plan
from maillard.tally import Tally

Floats = NDArray[np.float64]
SINCE, UNTIL = 14, 15  # of a kernel's arguments


def plan_of(
    spec: str | maillard.Policy,
    text: str,
    horizon: int,
    seed: int,
    engine: str | None = None,
    where: str = CUDA,
) -> Plan:
    policy = maillard.policy(spec, sigma2=0.25, horizon=horizon) if isinstance(spec, str) else spec
    return Plan(policy, problems.problem(text), (horizon,), seed, engine, where)


class _Stepwise:
    """A kernel that is launched for every round by itself, and what its trials' records hold after each."""

    def __init__(self, kernel: Any, arms: int) -> None:
        self.kernel, self.pulls, self.sums = kernel, [], []  # type: Any, list[Floats], list[Floats]
        self.places = np.array([record_at(arm) for arm in range(arms)])

    def __getitem__(self, shape: Any) -> Any:
        def launch(*arguments: Any) -> None:
            for t in range(arguments[SINCE], arguments[UNTIL] + 1):
                self.kernel[shape](*arguments[:SINCE], t, t, *arguments[UNTIL + 1 :])
                memory = arguments[0].copy_to_host()
                self.pulls.append(memory[:, self.places + N])
                self.sums.append(memory[:, self.places + S])

        return launch


def finish(plan: Plan, trials: int, monkeypatch: pytest.MonkeyPatch) -> Floats:
    """How trials end: of every arm pulls and sum, one row a trial."""
    ended = []
    collect, places = device._collect, np.array([record_at(arm) for arm in range(plan.problem.arms)])

    def look(memory: Any, *rest: Any) -> Any:
        numbers = memory.copy_to_host()[:trials]
        ended.append(np.concatenate([numbers[:, places + N], numbers[:, places + S]], axis=1))
        return collect(memory, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(device, "_collect", look)
        device.run(plan, 0, trials, summarize=False)
    return np.concatenate(ended)


@dataclass
class Watched:
    """Every choice of some trials, and the probabilities that it had: one row each."""

    chosen: NDArray[np.int64]
    probabilities: Floats


def watch(plan: Plan, trials: int, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Run trials round by round, and compute from each tally what the policy's law was in the next round."""
    arms = plan.problem.arms
    steps = _Stepwise(device._kernel_of(plan), arms)
    with monkeypatch.context() as patch:
        patch.setattr(device, "_kernel_of", lambda _plan: steps)
        patch.setattr(device, "ROUND_PAIRS", 0)  # or a launch might run a round more, the second of a pair
        device.run(plan, 0, trials, summarize=False)
    pulls, sums = (np.array(each)[:, :trials] for each in (steps.pulls, steps.sums))
    chosen, laws = [], []
    for t in range(arms + 1, plan.horizon + 1):  # which is in place t - 1; the arms before were forced
        for trial in range(trials):
            tally = Tally(pulls[t - 2, trial].astype(np.int64), sums[t - 2, trial])
            more = pulls[t - 1, trial] - pulls[t - 2, trial]
            assert more.sum() == more.max() == 1
            chosen.append(int(more.argmax()))
            laws.append(plan.policy.probabilities(tally, round=t))
    return Watched(np.array(chosen), np.array(laws))


def chances(watched: Watched) -> list[float]:
    """How likely choices that stray so far from their probabilities are, at most.

    Of every arm, and of the most probable, the second, and so on, it is counted how often it is chosen; and
    of the chosen arm its probability is summed up, which tells whether choices are as concentrated as they
    ought to be. What each exceeds its expectation by is a martingale with steps of at most 1: Freedman's
    inequality (1975) bounds its tails by that of its variance.
    """
    p, rows = watched.probabilities, np.arange(watched.chosen.size)
    own = (np.arange(p.shape[1]) == watched.chosen[:, None]).astype(float)
    order = np.argsort(-p, axis=1, kind="stable")
    ranked, ordered = np.take_along_axis(own, order, axis=1), np.take_along_axis(p, order, axis=1)
    sums = [*(own - p).sum(axis=0), *(ranked - ordered).sum(axis=0)]
    variances = [*(p * (1 - p)).sum(axis=0), *(ordered * (1 - ordered)).sum(axis=0)]
    square = (p**2).sum(axis=1)
    sums.append((p[rows, watched.chosen] - square).sum())
    variances.append(((p**3).sum(axis=1) - square**2).sum())
    return [freedman(float(x), float(v)) for x, v in zip(sums, variances, strict=True)]


def freedman(x: float, variance: float, step: float = 1.0) -> float:
    """How likely it is at most that a martingale with this variance, and steps of at most `step`, strays by
    x.
    """
    return min(1.0, 2 * float(np.exp(-(x**2) / (2 * (variance + step * abs(x) / 3 + 1e-9)))))


def python(code: str, *, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has numba's compiler for GPUs, and no GPU."""
    surroundings = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": "", **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=check, env=surroundings
    )


def compiling(code: str) -> str:
    """What code prints that compiles for GPUs; without libnvvm nothing does."""
    done = python(code, check=False)
    if done.returncode and "libnvvm" in done.stderr.lower():
        pytest.skip("libnvvm, which compiles for GPUs, is not installed")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
