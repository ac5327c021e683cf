"""Rounds a second of the simulator on a GPU, each beside a floor measured in the same run.

The floor is the least that a round can do: draw one uniform and one normal number, with the same generators, on as many threads. A
line is one policy on one problem: a wave of trials, with its memory, its reductions and all that belongs to a run but compiling. With
`--grid` also the paper's policies on its ten problems, compiling included; `python -m benchmarks.gpu` needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import maillard
from maillard.reproduction.experiments import read
from maillard.simulation.cuda import machine
from maillard.simulation.cuda.draws import begin_stream, normals, uniform
from maillard.simulation.cuda.toolkit import cuda, jit, require_device
from maillard.simulation.cuda.twins import Twins
from maillard.simulation.machine import CUDA, Plan
from maillard.simulation.runner import make_study

HORIZON = 20_000
GAUSSIAN = "gaussian-equal:arms={}"
LOUD = "gaussian-equal:arms={},variance=1"
# Policy, problem, rounds a second that are asked for.
CELLS: list[tuple[str, str, float | None]] = [
    ("ms+", GAUSSIAN.format(2), 4e10),
    ("ms+", GAUSSIAN.format(10), 2e10),
    ("ms+", GAUSSIAN.format(100), 5e9),
    ("ts", GAUSSIAN.format(10), 1e10),
    ("ucb1", GAUSSIAN.format(10), 1e10),
    ("ms+", LOUD.format(2), None),
    ("ms+", LOUD.format(10), None),
    ("ms+", LOUD.format(100), None),
    ("ts", LOUD.format(10), None),
    ("ts", LOUD.format(100), None),
    ("ucb1", LOUD.format(10), None),
    ("ucb1", LOUD.format(100), None),
    ("moss", LOUD.format(100), None),
    ("aoucb", "bernoulli-equal:arms=100", None),
    ("ms+", "bernoulli-equal:arms=10", None),
    ("ms+", "bernoulli-equal:arms=100", None),
    ("ms+", GAUSSIAN.format(1000), None),
]
GRID_TRIALS, GRID_SECONDS = 100_000, 120.0


@dataclass(frozen=True)
class Cell:
    """One policy on one problem."""

    policy: str
    problem: str
    trials: int
    speed: float  # rounds a second
    floor: float  # the same of the floor
    asked: float | None
    registers: int
    compiling: float  # seconds


def draw(key: Any, rounds: int, sums: Any) -> None:
    """The floor: what every round draws."""
    thread = device.grid(1)
    rng = device.local.array(2, np.uint64)
    begin_stream(rng, key, np.uint64(thread))
    total = 0.0
    for _ in range(rounds // 2):
        one, two = normals(rng)
        total += one + two + uniform(rng) + uniform(rng)
    sums[thread] = total


device = cuda()


def seconds(function: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    function()
    device.synchronize()
    return time.perf_counter() - started


def floor(threads: int) -> float:
    """Rounds a second that only draw."""
    compiled, key, sums = (
        jit(Twins().copy(draw)),
        device.to_device(np.arange(2, dtype=np.uint64)),
        device.device_array(threads),
    )
    grid = threads // machine.THREADS_A_BLOCK, machine.THREADS_A_BLOCK
    compiled[grid](key, 2, sums)
    return threads * HORIZON / min(seconds(lambda: compiled[grid](key, HORIZON, sums)) for _ in range(3))


def plan_of(policy: str, where: str) -> Plan:
    """A policy on a problem, on the GPU, measured at the horizon alone."""
    (plan,) = make_study(policy, where, HORIZON, 1, 0, device=CUDA, checkpoints=[HORIZON]).plans
    return plan


def measure(policy: str, where: str, asked: float | None, repeats: int) -> Cell:
    """One cell."""
    plan = plan_of(policy, where)
    trials = machine.wave_size(plan)
    compiling = seconds(lambda: machine.prepare(plan))
    least = floor(trials // machine.THREADS_A_BLOCK * machine.THREADS_A_BLOCK)
    took = min(seconds(lambda: machine.run_wave(plan, 0, trials, whole=False)) for _ in range(repeats))
    registers = next(iter(machine._kernel_of(plan).get_regs_per_thread().values()))
    return Cell(policy, where, trials, trials * HORIZON / took, least, asked, registers, compiling)


def run_grid() -> dict[str, float]:
    """The paper's policies on its ten problems: seconds, and rounds a second."""
    groups, started = read("experiments.toml")["groups"], time.perf_counter()
    problems = [*groups["gaussian-1"], *groups["bernoulli"]]
    for each in problems:
        before = time.perf_counter()
        done = maillard.simulate(
            groups["paper"], each, HORIZON, GRID_TRIALS, device=CUDA, keep="summary", progress=False
        )
        print(
            f"  {each:38} {time.perf_counter() - before:6.1f} s   mean regret {' '.join(f'{mean:.1f}' for mean in done.mean[:, -1])}",
            flush=True,
        )
    took = time.perf_counter() - started
    rounds = len(problems) * len(groups["paper"]) * GRID_TRIALS * HORIZON
    return {
        "seconds": took,
        "asked": GRID_SECONDS,
        "speed": rounds / took,
        "cells": len(problems) * len(groups["paper"]),
    }


def main() -> int:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/gpu.json"))
    parser.add_argument("--grid", action="store_true", help="also the paper's policies on its ten problems")
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    require_device()
    print(f"{machine.device_name()}: rounds a second, T = {HORIZON}")
    cells = []
    for policy, where, asked in CELLS:
        cell = measure(policy, where, asked, given.repeats)
        cells.append(cell)
        verdict = "" if asked is None else f"   asked {asked:.1e}: {'yes' if cell.speed >= asked else 'NO'}"
        line = f"{policy:6} {where:34} {cell.trials:7} trials {cell.speed:9.3g}/s   floor {cell.floor:9.3g}/s   ratio {cell.floor / cell.speed:6.1f}"
        print(
            f"{line}   {cell.registers} registers, compiled in {cell.compiling:4.1f} s{verdict}", flush=True
        )
    found: dict[str, Any] = {
        "device": machine.device_name(),
        "horizon": HORIZON,
        "cells": [asdict(cell) for cell in cells],
    }
    if given.grid:
        found["grid"] = run_grid()
        print(
            f"grid: {found['grid']['cells']} cells of {GRID_TRIALS} trials in {found['grid']['seconds']:.1f} s, compiling included; asked {GRID_SECONDS:.0f}"
        )
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
