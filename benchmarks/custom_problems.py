"""Measure the nanoseconds per round of every type of sampler of a `Custom` problem.

All of them sample the same Bernoulli or Gaussian rewards as a built-in problem, on one thread; times are CPU
times. The speed of a machine varies over time, so the types alternate in short measurements, and the best
measurement of each counts. "ms" samples the sum of many rewards of these built-in problems at once, but a
sampler returns one reward at a time: there the limit does not apply.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np

from maillard.problems import Bernoulli, Custom, Gaussian, Problem
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.plans import Plan, make_plan

POLICIES = ("ms", "ts", "ucb1")
HORIZON, ARMS = 20_000, (2, 10)
LIMIT = 3.0  # time with a compiled sampler / time with the built-in problem
MEANS = np.array([0.75] + [0.5] * (max(ARMS) - 1))
SD = 0.5


def flip(rng: np.random.Generator, arm: int) -> float:
    """Sample a Bernoulli reward."""
    return 1.0 if rng.random() < MEANS[arm] else 0.0


def flips(rng: np.random.Generator, arm: int, size: int) -> Any:
    """Sample Bernoulli rewards."""
    return rng.random(size) < MEANS[arm]


def noisy(rng: np.random.Generator, arm: int) -> float:
    """Sample a Gaussian reward."""
    return float(MEANS[arm] + SD * rng.standard_normal())


def noisy_rewards(rng: np.random.Generator, arm: int, size: int) -> Any:
    """Sample Gaussian rewards."""
    return MEANS[arm] + SD * rng.standard_normal(size)


BUILT_IN, COMPILED, VECTORISED, PLAIN = "built-in", "compiled", "vectorised", "plain"


def problems(arms: int) -> dict[str, dict[str, Problem]]:
    """Return the problems by family and type."""
    means = tuple(MEANS[:arms].tolist())

    def custom(sampler: Any) -> Problem:
        return Custom(sampler, means=means, limits=(-100.0, 100.0))

    return {
        "Bernoulli": {
            BUILT_IN: Bernoulli(means),
            COMPILED: custom(numba.njit(flip)),
            VECTORISED: custom(flips),
            PLAIN: custom(flip),
        },
        "Gaussian": {
            BUILT_IN: Gaussian(means, variance=SD**2),
            COMPILED: custom(numba.njit(noisy)),
            VECTORISED: custom(noisy_rewards),
            PLAIN: custom(noisy),
        },
    }


def seconds(plan: Plan, trials: int) -> float:
    """Return the CPU time of some trials; other programs on the machine change it less than the duration."""
    started = time.thread_time()
    run_trials(plan, 0, trials)
    return time.thread_time() - started


def measure(policy: str, family: dict[str, Problem], duration: float, repeats: int) -> dict[str, float]:
    """Return the nanoseconds per round of each type; each measurement takes about `duration` seconds."""
    spec = f"{policy}:sigma2=0.25"
    plans = {kind: make_plan(spec, each, HORIZON, 0, [HORIZON]) for kind, each in family.items()}
    for plan in plans.values():
        seconds(plan, 1)  # compiles
    trials = {kind: max(1, round(duration / seconds(plan, 1))) for kind, plan in plans.items()}
    taken: dict[str, list[float]] = {kind: [] for kind in plans}
    for _ in range(repeats):
        for kind, plan in plans.items():
            taken[kind].append(seconds(plan, trials[kind]) / trials[kind])
    return {kind: 1e9 * min(each) / HORIZON for kind, each in taken.items()}


def alone(sampler: Any, calls: int = 100_000) -> float:
    """Return the nanoseconds of a call of a plain sampler from Python."""
    rng, best = np.random.default_rng(0), math.inf
    for _ in range(5):
        started = time.thread_time()
        for call in range(calls):
            sampler(rng, call % 2)
        best = min(best, time.thread_time() - started)
    return 1e9 * best / calls


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter measurements")
    arguments = parser.parse_args()
    duration, repeats = (0.02, 5) if arguments.quick else (0.05, 20)
    rows, samplers = [], {"Bernoulli": flip, "Gaussian": noisy}
    print(f"{HORIZON:,d} rounds: nanoseconds per round, and ratio to the built-in problem")
    kinds = "".join(f"{kind:>18s}" for kind in (BUILT_IN, COMPILED, VECTORISED, PLAIN))
    print(f"{'policy':7s}{'rewards':10s}{'arms':>4s}{kinds}")
    for policy, arms in itertools.product(POLICIES, ARMS):
        for name, family in problems(arms).items():
            found = measure(policy, family, duration, repeats)
            ratios = {kind: each / found[BUILT_IN] for kind, each in found.items()}
            cells = "".join(f"{found[kind]:11,.1f} {ratios[kind]:6.2f}" for kind in found)
            verdict = "many at once" if policy == "ms" else "met" if ratios[COMPILED] < LIMIT else "MISSED"
            print(f"{policy:7s}{name:10s}{arms:4d}{cells}  < {LIMIT:g}: {verdict}", flush=True)
            row = {"policy": policy, "rewards": name, "arms": arms, "nanoseconds": found, "ratios": ratios}
            rows.append(row)
    calls = {name: alone(sampler) for name, sampler in samplers.items()}
    shown = ", ".join(f"{name} {each:,.0f} ns" for name, each in calls.items())
    print(f"a call of the plain sampler alone: {shown}")
    results = {"rows": rows, "calls": calls}
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
