"""Helpers of the GPU tests.

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
SINCE, UNTIL = 11, 12  # of a kernel's arguments


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
    """A kernel that is launched once per round, and the contents of its trials' records after each round."""

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
    """Return the final pulls and reward sums of every arm, one row per trial."""
    ended = []
    collect, places = device._collect, np.array([record_at(arm) for arm in range(plan.problem.arms)])

    def copy_and_collect(memory: Any, *rest: Any) -> Any:
        numbers = memory.copy_to_host()[:trials]
        ended.append(np.concatenate([numbers[:, places + N], numbers[:, places + S]], axis=1))
        return collect(memory, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(device, "_collect", copy_and_collect)
        device.run(plan, 0, trials, summarize=False)
    return np.concatenate(ended)


@dataclass
class ObservedChoices:
    """Every choice of some trials and its probabilities, one row per choice."""

    chosen: NDArray[np.int64]
    probabilities: Floats


def observe_choices(plan: Plan, trials: int, monkeypatch: pytest.MonkeyPatch) -> ObservedChoices:
    """Run trials round by round, and compute from each tally the probabilities of the next choice."""
    arms = plan.problem.arms
    lockstep = device.tables_of(plan, plan.horizon)
    name = "_lockstep_kernel_of" if lockstep else "_kernel_of"
    steps = _Stepwise(getattr(device, name)(plan), arms)
    with monkeypatch.context() as patch:
        patch.setattr(device, name, lambda _plan: steps)
        patch.setattr(device, "ROUND_PAIRS", 0)  # otherwise a launch might run several more rounds
        device.run(plan, 0, trials, summarize=False)
    pulls, sums = (np.array(each)[:, :trials] for each in (steps.pulls, steps.sums))
    chosen, probabilities = [], []
    for t in range(arms + 1, plan.horizon + 1):  # round t has index t - 1; the rounds before were forced
        for trial in range(trials):
            tally = Tally(pulls[t - 2, trial].astype(np.int64), sums[t - 2, trial])
            more = pulls[t - 1, trial] - pulls[t - 2, trial]
            assert more.sum() == more.max() == 1
            chosen.append(int(more.argmax()))
            probabilities.append(plan.policy.probabilities(tally, round=t))
    return ObservedChoices(np.array(chosen), np.array(probabilities))


def deviation_bounds(observed: ObservedChoices) -> list[float]:
    """Return upper bounds of the probabilities that choices deviate from their distribution this much.

    There is one bound for the number of choices of every arm, one for the number of choices of the most
    probable arm, the second, and so on, and one for the sum of the probabilities of the chosen arms, which
    shows whether choices are as concentrated as they should be. Each of these minus its expectation is a
    martingale with steps of at most 1, so Freedman's inequality (1975) bounds its tails by its variance.
    """
    p, rows = observed.probabilities, np.arange(observed.chosen.size)
    own = (np.arange(p.shape[1]) == observed.chosen[:, None]).astype(float)
    order = np.argsort(-p, axis=1, kind="stable")
    ranked, ordered = np.take_along_axis(own, order, axis=1), np.take_along_axis(p, order, axis=1)
    sums = [*(own - p).sum(axis=0), *(ranked - ordered).sum(axis=0)]
    variances = [*(p * (1 - p)).sum(axis=0), *(ordered * (1 - ordered)).sum(axis=0)]
    square = (p**2).sum(axis=1)
    sums.append((p[rows, observed.chosen] - square).sum())
    variances.append(((p**3).sum(axis=1) - square**2).sum())
    return [freedman(float(x), float(v)) for x, v in zip(sums, variances, strict=True)]


def freedman(x: float, variance: float, step: float = 1.0) -> float:
    """Return Freedman's bound of the probability that a martingale deviates from 0 by x.

    The martingale has this variance and steps of at most `step`.
    """
    return min(1.0, 2 * float(np.exp(-(x**2) / (2 * (variance + step * abs(x) / 3 + 1e-9)))))


def python(code: str, *, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process with numba's compiler for GPUs but without a GPU."""
    variables = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": "", **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=check, env=variables
    )


def compile_output(code: str) -> str:
    """Run code that compiles for GPUs and return its output. Skip the test if libnvvm is missing."""
    done = python(code, check=False)
    if done.returncode and "libnvvm" in done.stderr.lower():
        pytest.skip("libnvvm, which compiles for GPUs, is not installed")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
