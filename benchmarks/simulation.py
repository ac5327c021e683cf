"""Measure the simulator's nanoseconds per round, compared with a floor measured at the same time.

The floor is the minimal work of a round: generate one uniform and one normal number with NumPy's PCG64, in
compiled code. The speed of a machine varies over time, so floor and simulator alternate in short
measurements, and the best measurement of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

import maillard
from maillard.problems import problem
from maillard.simulation.cpu_backend import run_trials
from maillard.simulation.plans import make_plan

PAPER = (
    "ms",
    "ms+",
    "ms+:booster=8",
    "ms+:booster=16",
    "kl-ms",
    "ts",
    "ts-sg",
    "ts-bernoulli",
    "aoucb",
    "ucb1",
    "ucb+",
    "ocucb",
    "moss",
    "imed",
)
BERNOULLI_ONLY = ("kl-ms", "ts-bernoulli")
GAUSSIAN, BERNOULLI = "gaussian-equal", "bernoulli-equal"
SHORT, LONG = 20_000, 200_000
CELLS = [(SHORT, 2), (SHORT, 10), (SHORT, 100), (SHORT, 1000), (LONG, 10), (LONG, 1000)]

# Limits of time / floor at the short horizon, by the number of arms. GROWTH_LIMIT: time with 1000 arms / time
# with 10 arms at the long horizon, for Maillard sampling.
LIMITS = {10: 10.0, 100: 25.0}
MAILLARD = tuple(name for name in PAPER if "ms" in name)
GROWTH_LIMIT = 4.0
THREADS_LIMIT, START_LIMIT, MEMORY_LIMIT = 1.8, 2.0, 300.0  # ratio, seconds, megabytes

FIRST = 'import maillard; maillard.simulate({!r}, "gaussian-equal:arms=10", 1000, 10, seed=0)'
LONG_RUN = """
import resource, sys, maillard
maillard.simulate("ms+", "gaussian-equal:arms=10", 10**7, 1, seed=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6)
"""


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    duration: float  # seconds of one measurement
    repeats: int  # measurements per cell
    time_limit: float  # seconds per cell after which two measurements are enough
    threads: float  # seconds of a run on one thread
    processes: int  # number of new processes; the fastest counts


FULL = Effort(duration=0.04, repeats=10, time_limit=1.0, threads=3.0, processes=5)
QUICK = Effort(duration=0.01, repeats=4, time_limit=0.2, threads=0.5, processes=2)


@dataclass(frozen=True)
class Cell:
    """One policy on one problem, in nanoseconds per round."""

    policy: str
    problem: str
    arms: int
    horizon: int
    engine: str
    trials: int
    nanoseconds: float
    floor: float

    @property
    def ratio(self) -> float:
        """Time divided by the floor."""
        return self.nanoseconds / self.floor

    @property
    def speed(self) -> float:
        """Rounds per second."""
        return 1e9 / self.nanoseconds


def _generate(rng: Any, rounds: int) -> float:
    total = 0.0
    for _ in range(rounds):
        total += rng.random() + rng.standard_normal()
    return total


generate = numba.njit(_generate, nogil=True)


def seconds(function: Callable[[], object]) -> float:
    """Return the duration of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(
    name: str, family: str, arms: int, horizon: int, effort: Effort, *, engine: str | None = None
) -> Cell:
    """Measure one cell: floor, simulator, floor, and so on."""
    bandit_problem, rng = problem(f"{family}:arms={arms}"), np.random.Generator(np.random.PCG64(0))
    run_trials(make_plan(name, bandit_problem, arms + 10, 0, [arms + 10], engine), 0, 1)  # compiles
    plan = make_plan(name, bandit_problem, horizon, 0, [horizon], engine)
    trials = max(1, int(effort.duration / seconds(lambda: run_trials(plan, 0, 1))))
    rounds = int(1e5 * effort.duration / seconds(lambda: generate(rng, 100_000)))
    started = time.perf_counter()
    floors, taken = [seconds(lambda: generate(rng, rounds))], list[float]()
    while len(taken) < effort.repeats:
        taken.append(seconds(lambda: run_trials(plan, 0, trials)))
        floors.append(seconds(lambda: generate(rng, rounds)))
        if len(taken) > 1 and time.perf_counter() - started > effort.time_limit:
            break
    each, floor = 1e9 * min(taken) / (trials * horizon), 1e9 * min(floors) / rounds
    return Cell(name, family, arms, horizon, engine or "fastest", trials, each, floor)


def verdict(value: float, limit: float | None, *, at_least: bool = False) -> str:
    """Format the limit and whether the value meets it."""
    if limit is None:
        return ""
    met = value >= limit if at_least else value <= limit
    return f"  limit {'>=' if at_least else '<='} {limit:g}: {'met' if met else 'MISSED'}"


def measure_cells(effort: Effort) -> list[Cell]:
    """Measure every policy of the paper on every problem."""
    print(
        f"{'policy':16s}{'problem':17s}{'arms':>6s}{'horizon':>9s}{'ns/round':>10s}{'floor':>7s}{'ratio':>9s}"
    )
    cells = []
    for family in (GAUSSIAN, BERNOULLI):
        for horizon, arms in CELLS:
            for name in PAPER:
                if name in BERNOULLI_ONLY and family != BERNOULLI:
                    continue
                cell = measure(name, family, arms, horizon, effort)
                cells.append(cell)
                note = verdict(cell.ratio, LIMITS.get(arms) if horizon == SHORT else None)
                print(
                    f"{name:16s}{family:17s}{arms:6,d}{horizon:9,d}{cell.nanoseconds:10,.1f}{cell.floor:7.1f}"
                    f"{cell.ratio:9.2f}{note}",
                    flush=True,
                )
    return cells


def compare_arms(cells: list[Cell]) -> dict[str, float]:
    """Compare 1000 arms with 10 at the long horizon; each is relative to its floor, so that drift cancels."""
    print(f"\ntime with 1000 arms / time with 10 arms at horizon {LONG:,d}")
    ratios = {(cell.policy, cell.problem, cell.arms): cell.ratio for cell in cells if cell.horizon == LONG}
    growth = {}
    for name, family in dict.fromkeys((name, family) for name, family, _ in ratios):
        times = growth[f"{name} {family}"] = ratios[name, family, 1000] / ratios[name, family, 10]
        note = verdict(times, GROWTH_LIMIT if name in MAILLARD else None)
        print(f"{name:16s}{family:17s}{times:8.2f}{note}")
    return growth


def compare_engines(effort: Effort) -> list[Cell]:
    """Compare the direct engine with the lazy one."""
    print("\nms+ with the direct engine and with the lazy engine, rounds per second")
    cells = []
    for arms in (10, 100):
        direct, lazy = (
            measure("ms+", GAUSSIAN, arms, SHORT, effort, engine=engine) for engine in ("direct", "lazy")
        )
        cells += [direct, lazy]
        print(
            f"{arms:6,d} arms{direct.speed:14,.0f}{lazy.speed:14,.0f}{lazy.speed / direct.speed:8.1f} times"
        )
    return cells


def compare_threads(effort: Effort, typical: Cell) -> dict[str, float]:
    """Return the speedup by two threads, and that of the floor, which shows what the machine allows."""
    trials = int(effort.threads * typical.speed / SHORT)
    rounds = int(effort.threads * 1e9 / typical.floor)

    def run(threads: int) -> float:
        spec = "gaussian-equal:arms=10"
        return seconds(lambda: maillard.simulate("ms+", spec, SHORT, trials, threads=threads, progress=False))

    def floor_with(threads: int) -> float:
        rngs = [np.random.default_rng(thread) for thread in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            return seconds(lambda: list(pool.map(lambda rng: generate(rng, rounds // threads), rngs)))

    times = [(run(1), run(2), floor_with(1), floor_with(2)) for _ in range(3)]
    one, two, floor_one, floor_two = (min(each) for each in zip(*times, strict=True))
    speedup, floor_speedup = one / two, floor_one / floor_two
    note = verdict(speedup, THREADS_LIMIT, at_least=True)
    print(
        f"\nspeedup by two threads, from {one:.2f} s: {speedup:.2f} (floor: {floor_speedup:.2f}){note}",
        flush=True,
    )
    return {"simulate": speedup, "floor": floor_speedup}


def run_in_new_process(code: str, **environment: str) -> float:
    """Return how long a new Python process takes to run the code."""
    variables = {**os.environ, **environment}
    return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True, env=variables))


def measure_start(effort: Effort) -> dict[str, float]:
    """Measure the time to a first result in a new process, and count what a cold cache compiles."""
    warm = min(run_in_new_process(FIRST.format("ms+")) for _ in range(effort.processes))
    alone = min(run_in_new_process("import numba") for _ in range(effort.processes))
    print(f"first result, warm cache: {warm:.2f} s, `import numba` {alone:.2f} s{verdict(warm, START_LIMIT)}")
    with tempfile.TemporaryDirectory() as folder:
        cold = run_in_new_process(FIRST.format("ms+"), NUMBA_CACHE_DIR=folder)
        run_in_new_process(FIRST.format(["ms", "ms+", "boltzmann"]), NUMBA_CACHE_DIR=folder)
        # Each compiled engine has its own .nbc file. An index (.nbi) may list several.
        engines = len(list(Path(folder).rglob("trial_loop.*.nbc")))
    print(f"first result, cold cache: {cold:.1f} s")
    met = "met" if engines == 1 else "MISSED"
    print(f"engines compiled for ms, ms+ and boltzmann: {engines}  limit 1: {met}")
    return {"warm": warm, "import numba": alone, "cold": cold, "engines": engines}


def measure_memory() -> float:
    """Return the peak memory of a long run, in megabytes.

    A process inherits the peak of its parent, so a small process starts the measured one.
    """
    between = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LONG_RUN!r}], check=True)"
    done = subprocess.run([sys.executable, "-c", between], check=True, capture_output=True, text=True)
    peak = float(done.stdout)
    print(f"peak memory of 10^7 rounds of ms+ on 10 arms: {peak:.0f} MB{verdict(peak, MEMORY_LIMIT)}")
    return peak


def compare_peers(file: Path, effort: Effort) -> list[dict[str, Any]]:
    """Compare other libraries with the same policies of maillard, with one thread each."""
    made = json.loads(file.read_text(encoding="utf8"))
    family, _, arms = made["problem"].partition(":arms=")
    print(f"\n{made['problem']}, rounds per second{'peer':>16s}{'maillard':>14s}")
    ours = {
        like: measure(like, family, int(arms), made["horizon"], effort).speed
        for like in dict.fromkeys(row["like"] for row in made["rows"])
    }
    rows = []
    for row in made["rows"]:
        speed = ours[row["like"]]
        rows.append(row | {"ours": speed, "times_slower": speed / row["rounds_a_second"]})
        print(
            f"{row['name']:28s}{row['version']:9s}{row['rounds_a_second']:19,.0f}{speed:14,.0f} "
            f"{row['like']:13s}{speed / row['rounds_a_second']:7,.0f} times slower"
        )
    return rows


def main() -> None:
    """Print the tables and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="shorter measurements: rough numbers in a minute or two"
    )
    parser.add_argument("--peers", type=Path, metavar="FILE", help="file written by benchmarks.peers")
    arguments = parser.parse_args()
    effort = QUICK if arguments.quick else FULL
    generate(np.random.default_rng(0), 1)
    cells = measure_cells(effort)
    typical = next(cell for cell in cells if (cell.policy, cell.arms, cell.horizon) == ("ms+", 10, SHORT))
    results: dict[str, Any] = {
        "growth": compare_arms(cells),
        "engines": [asdict(cell) for cell in compare_engines(effort)],
        "threads": compare_threads(effort, typical),
        "start": measure_start(effort),
        "memory": measure_memory(),
        "peers": compare_peers(arguments.peers, effort) if arguments.peers else [],
        "cells": [asdict(cell) | {"ratio": cell.ratio} for cell in cells],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
