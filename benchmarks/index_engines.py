"""Measure the engines of index policies, in nanoseconds of CPU time per round and relative to the floor.

The floor is that of `benchmarks.simulation`. Floor and engines alternate, and the best measurement of each
counts. The table supports the choice of the engine in `compiled_plans.engines_for`: a policy that declares
the form of its index runs on the shortlist engine, with any number of arms.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import numpy as np

from benchmarks.simulation import BERNOULLI, GAUSSIAN, LONG, SHORT, generate
from maillard.problems import problem
from maillard.simulation.compiled_plans import LAZY, SHORTLIST
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.plans import make_plan

INDICES = ("aoucb", "ucb1", "ucb+", "ocucb", "moss", "imed")
ARMS = (2, 10, 100, 1000)
ENGINES = (LAZY, SHORTLIST)
FLOOR_ROUNDS = 1_000_000


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    started = time.process_time()
    function()
    return time.process_time() - started


def compare(name: str, spec: str, horizon: int, trials: int, repeats: int) -> list[float]:
    """Return the nanoseconds per round of the floor and of each engine."""
    rng = np.random.default_rng(0)
    plans = [make_plan(name, problem(spec), horizon, 0, [horizon], engine) for engine in ENGINES]
    for plan in plans:
        run_trials(plan, 0, 1)  # compiles
    best = [np.inf] * (1 + len(plans))
    for repeat in range(repeats):
        taken = cpu_seconds(functools.partial(generate, rng, FLOOR_ROUNDS))
        best[0] = min(best[0], 1e9 * taken / FLOOR_ROUNDS)
        for place, plan in enumerate(plans, 1):
            taken = cpu_seconds(functools.partial(run_trials, plan, repeat * trials, trials))
            best[place] = min(best[place], 1e9 * taken / (trials * horizon))
    return best


def main() -> None:
    """Print one row for each policy, problem and number of arms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, nargs="+", default=ARMS)
    parser.add_argument("--horizon", type=int, default=SHORT, help=f"default {SHORT:,d}; long: {LONG:,d}")
    parser.add_argument("--trials", type=int, default=8, help="of one measurement")
    parser.add_argument("--repeats", type=int, default=8, help="measurements of each engine")
    options = parser.parse_args()
    generate(np.random.default_rng(0), 1)
    print(
        f"{'policy':8s}{'problem':17s}{'arms':>6s}{'floor':>7s}" + "".join(f"{name:>18s}" for name in ENGINES)
    )
    for family in (GAUSSIAN, BERNOULLI):
        for arms in options.arms:
            for name in INDICES:
                spec = f"{family}:arms={arms}"
                floor, *times = compare(name, spec, options.horizon, options.trials, options.repeats)
                columns = "".join(f"{each:10,.1f} ({each / floor:5.1f})" for each in times)
                print(f"{name:8s}{family:17s}{arms:6,d}{floor:7.1f}{columns}", flush=True)


if __name__ == "__main__":
    main()
