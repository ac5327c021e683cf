"""Nanoseconds a round of the simulator, each beside a floor measured in the same moment.

The floor is the least that a round can do: draw one uniform and one normal number from NumPy's PCG64, in
compiled code. A machine's speed drifts, so floor and simulator take turns in short spells, and the best spell
of each counts.
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
    "aoucb",
    "ucb1",
    "ucb+",
    "ocucb",
    "moss",
    "imed",
)
GAUSSIAN, BERNOULLI = "gaussian-equal", "bernoulli-equal"
SHORT, LONG = 20_000, 200_000
CELLS = [(SHORT, 2), (SHORT, 10), (SHORT, 100), (SHORT, 1000), (LONG, 10), (LONG, 1000)]

# Times the floor, at the short horizon; and for the first three, 1000 arms over 10 at the long one.
MAILLARD = ("ms", "ms+", "kl-ms")
INDICES = ("aoucb", "ucb1", "ucb+", "ocucb", "moss", "imed")
LIMITS = {(name, arms): limit for name in MAILLARD for arms, limit in ((2, 6.0), (10, 6.0), (100, 8.0))}
LIMITS |= {("ts", 10): 8.0, ("ts", 100): 25.0}
LIMITS |= {(name, arms): limit for name in INDICES for arms, limit in ((10, 10.0), (100, 15.0))}
GROWTH_LIMIT = 4.0
THREADS_LIMIT, START_LIMIT, MEMORY_LIMIT = 1.8, 2.0, 300.0  # times; seconds; megabytes

FIRST = 'import maillard; maillard.simulate({!r}, "gaussian-equal:arms=10", 1000, 10, seed=0)'
LONG_RUN = """
import resource, sys, maillard
maillard.simulate("ms+", "gaussian-equal:arms=10", 10**7, 1, seed=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6)
"""


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    spell: float  # seconds of one spell
    spells: int
    patience: float  # seconds of a cell after which two spells are enough
    threads: float  # seconds of a run on one thread
    processes: int  # fresh processes, of which the fastest counts


FULL = Effort(spell=0.04, spells=10, patience=1.0, threads=3.0, processes=5)
QUICK = Effort(spell=0.01, spells=4, patience=0.2, threads=0.5, processes=2)


@dataclass(frozen=True)
class Cell:
    """One policy on one problem, in nanoseconds a round."""

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
        """Times the floor."""
        return self.nanoseconds / self.floor

    @property
    def speed(self) -> float:
        """Rounds a second."""
        return 1e9 / self.nanoseconds


def _draw(rng: Any, rounds: int) -> float:
    total = 0.0
    for _ in range(rounds):
        total += rng.random() + rng.standard_normal()
    return total


draw = numba.njit(_draw, nogil=True)


def seconds(function: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(
    name: str, family: str, arms: int, horizon: int, effort: Effort, *, engine: str | None = None
) -> Cell:
    """Floor, simulator, floor, and so on."""
    world, rng = problem(f"{family}:arms={arms}"), np.random.Generator(np.random.PCG64(0))
    run_trials(make_plan(name, world, arms + 10, 0, [arms + 10], engine), 0, 1)  # compiles
    plan = make_plan(name, world, horizon, 0, [horizon], engine)
    trials = max(1, int(effort.spell / seconds(lambda: run_trials(plan, 0, 1))))
    rounds = int(1e5 * effort.spell / seconds(lambda: draw(rng, 100_000)))
    started = time.perf_counter()
    floors, taken = [seconds(lambda: draw(rng, rounds))], list[float]()
    while len(taken) < effort.spells:
        taken.append(seconds(lambda: run_trials(plan, 0, trials)))
        floors.append(seconds(lambda: draw(rng, rounds)))
        if len(taken) > 1 and time.perf_counter() - started > effort.patience:
            break
    each, floor = 1e9 * min(taken) / (trials * horizon), 1e9 * min(floors) / rounds
    return Cell(name, family, arms, horizon, engine or "fastest", trials, each, floor)


def verdict(value: float, limit: float | None, *, at_least: bool = False) -> str:
    """The limit, and whether it is kept."""
    if limit is None:
        return ""
    met = value >= limit if at_least else value <= limit
    return f"  limit {'>=' if at_least else '<='} {limit:g}: {'met' if met else 'MISSED'}"


def judged(name: str, family: str) -> bool:
    """Limits are for Gaussian rewards, but for KL-MS, which has Bernoulli rewards alone."""
    return family == (BERNOULLI if name == "kl-ms" else GAUSSIAN)


def measure_cells(effort: Effort) -> list[Cell]:
    """Every policy of the paper on every problem."""
    print(
        f"{'policy':16s}{'problem':17s}{'arms':>6s}{'horizon':>9s}{'ns/round':>10s}{'floor':>7s}{'ratio':>9s}"
    )
    cells = []
    for family in (GAUSSIAN, BERNOULLI):
        for horizon, arms in CELLS:
            for name in PAPER:
                if name == "kl-ms" and family != BERNOULLI:
                    continue
                cell = measure(name, family, arms, horizon, effort)
                cells.append(cell)
                limited = horizon == SHORT and judged(name, family)
                note = verdict(cell.ratio, LIMITS.get((name, arms)) if limited else None)
                print(
                    f"{name:16s}{family:17s}{arms:6,d}{horizon:9,d}{cell.nanoseconds:10,.1f}{cell.floor:7.1f}"
                    f"{cell.ratio:9.2f}{note}",
                    flush=True,
                )
    return cells


def compare_arms(cells: list[Cell]) -> dict[str, float]:
    """1000 arms over 10 at the long horizon; each in floors, so that drift cancels."""
    print(f"\ncost of 1000 arms over 10 at horizon {LONG:,d}")
    ratios = {(cell.policy, cell.problem, cell.arms): cell.ratio for cell in cells if cell.horizon == LONG}
    growth = {}
    for name, family in dict.fromkeys((name, family) for name, family, _ in ratios):
        times = growth[f"{name} {family}"] = ratios[name, family, 1000] / ratios[name, family, 10]
        note = verdict(times, GROWTH_LIMIT if name in MAILLARD and judged(name, family) else None)
        print(f"{name:16s}{family:17s}{times:8.2f}{note}")
    return growth


def compare_engines(effort: Effort) -> list[Cell]:
    """The obvious loop beside the lazy one."""
    print("\nms+ by the direct engine and by the lazy one, rounds a second")
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
    """Two threads over one; and the same of the floor, which shows what the machine has to give."""
    trials = int(effort.threads * typical.speed / SHORT)
    rounds = int(effort.threads * 1e9 / typical.floor)

    def run(threads: int) -> float:
        world = "gaussian-equal:arms=10"
        return seconds(
            lambda: maillard.simulate("ms+", world, SHORT, trials, threads=threads, progress=False)
        )

    def draw_on(threads: int) -> float:
        rngs = [np.random.default_rng(thread) for thread in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            return seconds(lambda: list(pool.map(lambda rng: draw(rng, rounds // threads), rngs)))

    spells = [(run(1), run(2), draw_on(1), draw_on(2)) for _ in range(3)]
    one, two, floor_one, floor_two = (min(each) for each in zip(*spells, strict=True))
    times, machine = one / two, floor_one / floor_two
    note = verdict(times, THREADS_LIMIT, at_least=True)
    print(f"\ntwo threads over one, {one:.2f} s: {times:.2f} (the floor: {machine:.2f}){note}", flush=True)
    return {"simulate": times, "floor": machine}


def child(code: str, **environment: str) -> float:
    """How long a fresh Python takes to run this."""
    variables = {**os.environ, **environment}
    return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True, env=variables))


def measure_start(effort: Effort) -> dict[str, float]:
    """Seconds to a first result in a fresh process, and what a cold cache compiles."""
    warm = min(child(FIRST.format("ms+")) for _ in range(effort.processes))
    alone = min(child("import numba") for _ in range(effort.processes))
    print(f"first result, warm cache: {warm:.2f} s, `import numba` {alone:.2f} s{verdict(warm, START_LIMIT)}")
    with tempfile.TemporaryDirectory() as folder:
        cold = child(FIRST.format("ms+"), NUMBA_CACHE_DIR=folder)
        child(FIRST.format(["ms", "ms+", "boltzmann"]), NUMBA_CACHE_DIR=folder)
        # Not the indices (.nbi), one of which may list several: each compiled engine has an .nbc of its own.
        engines = len(list(Path(folder).rglob("loop.*.nbc")))
    print(f"first result, cold cache: {cold:.1f} s")
    print(
        f"engines compiled for ms, ms+ and boltzmann: {engines}  limit 1: {'met' if engines == 1 else 'MISSED'}"
    )
    return {"warm": warm, "import numba": alone, "cold": cold, "engines": engines}


def measure_memory() -> float:
    """Megabytes of a long run at most.

    A process inherits the peak of the one that starts it, so a small one stands in between.
    """
    between = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LONG_RUN!r}], check=True)"
    done = subprocess.run([sys.executable, "-c", between], check=True, capture_output=True, text=True)
    peak = float(done.stdout)
    print(f"peak memory of 10^7 rounds of ms+ on 10 arms: {peak:.0f} MB{verdict(peak, MEMORY_LIMIT)}")
    return peak


def compare_peers(file: Path, effort: Effort) -> list[dict[str, Any]]:
    """Other libraries beside the same policies here; one thread each."""
    made = json.loads(file.read_text(encoding="utf8"))
    family, _, arms = made["problem"].partition(":arms=")
    print(f"\n{made['problem']}, rounds a second{'theirs':>18s}{'ours':>14s}")
    ours = {
        like: measure(like, family, int(arms), made["horizon"], effort).speed
        for like in dict.fromkeys(row["like"] for row in made["rows"])
    }
    rows = []
    for row in made["rows"]:
        speed = ours[row["like"]]
        rows.append(row | {"ours": speed, "times_slower": speed / row["rounds_a_second"]})
        print(
            f"{row['name']:28s}{row['version']:9s}{row['rounds_a_second']:19,.0f}{speed:14,.0f} {row['like']:13s}"
            f"{speed / row['rounds_a_second']:7,.0f} times slower"
        )
    return rows


def main() -> None:
    """Print the tables and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="shorter spells: rough numbers in a minute or two"
    )
    parser.add_argument("--peers", type=Path, metavar="FILE", help="what benchmarks.peers wrote")
    arguments = parser.parse_args()
    effort = QUICK if arguments.quick else FULL
    draw(np.random.default_rng(0), 1)
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
