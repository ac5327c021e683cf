"""Rounds a second of the simulator on a GPU, each beside a floor measured in the same run.

The floor is the least that a round can do: draw one uniform and one normal number, with the same generators,
on as many threads. A line is one policy on one problem: a wave of trials, with its memory, its reductions and
all that belongs to a run but compiling. With `--grid` also the paper's policies on its ten problems,
compiling included; `python -m benchmarks.gpu` needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import maillard
from benchmarks.agreement import HORIZON, file_of, grid
from maillard.simulation.backends import CUDA
from maillard.simulation.cuda import cuda_backend
from maillard.simulation.cuda.cuda_toolkit import cuda, jit, require_device
from maillard.simulation.cuda.device_functions import DeviceFunctions
from maillard.simulation.cuda.device_random_numbers import normals, seed_stream, uniform
from maillard.simulation.plans import Plan, make_experiment

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
    ("moss", LOUD.format(100), None),
    ("ms+", "bernoulli-equal:arms=10", None),
    ("ms+", "bernoulli-equal:arms=100", None),
    ("ms+", GAUSSIAN.format(1000), None),
]
GRID_TRIALS, GRID_SECONDS = 100_000, 120.0
DATA = Path(__file__).parent.parent / "docs" / "gpu.json"
START = "<!-- speeds: written by `python -m benchmarks.gpu --grid --profile --output docs/gpu.json` -->"
END = "<!-- end of speeds -->"


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
    seed_stream(rng, key, np.uint64(thread))
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
        jit(DeviceFunctions().copy(draw)),
        device.to_device(np.arange(2, dtype=np.uint64)),
        device.device_array(threads),
    )
    grid = threads // cuda_backend.THREADS_PER_BLOCK, cuda_backend.THREADS_PER_BLOCK
    compiled[grid](key, 2, sums)
    return threads * HORIZON / min(seconds(lambda: compiled[grid](key, HORIZON, sums)) for _ in range(3))


def plan_of(policy: str, where: str) -> Plan:
    """A policy on a problem, on the GPU, measured at the horizon alone."""
    (plan,) = make_experiment(policy, where, HORIZON, 1, 0, device=CUDA, checkpoints=[HORIZON]).plans
    return plan


def measure(policy: str, where: str, asked: float | None, repeats: int) -> Cell:
    """One cell."""
    plan = plan_of(policy, where)
    trials = cuda_backend.batch_size(plan)
    compiling = seconds(lambda: cuda_backend.prepare(plan))
    least = floor(trials // cuda_backend.THREADS_PER_BLOCK * cuda_backend.THREADS_PER_BLOCK)
    took = min(seconds(lambda: cuda_backend.run(plan, 0, trials, summarize=True)) for _ in range(repeats))
    registers = next(iter(cuda_backend._kernel_of(plan).get_regs_per_thread().values()))
    return Cell(policy, where, trials, trials * HORIZON / took, least, asked, registers, compiling)


def run_grid(folder: Path | None) -> dict[str, float]:
    """The paper's policies on its ten problems, most arms first: seconds, and rounds a second."""
    (problems, policies), started = grid(), time.perf_counter()
    for each in reversed(problems):
        before = time.perf_counter()
        done = maillard.simulate(
            policies, each, HORIZON, GRID_TRIALS, device=CUDA, keep="summary", progress=False
        )
        means = " ".join(f"{mean:.1f}" for mean in done.mean[:, -1])
        print(f"  {each:38} {time.perf_counter() - before:6.1f} s   mean regret {means}", flush=True)
        if folder is not None:  # to be compared with the same from a CPU
            np.savez_compressed(
                file_of(folder, each), final=done.final.astype(np.float32), pulls=done.mean_pulls
            )
    took = time.perf_counter() - started
    cells = len(problems) * len(policies)
    return {
        "seconds": took,
        "asked": GRID_SECONDS,
        "speed": cells * GRID_TRIALS * HORIZON / took,
        "cells": cells,
    }


# What a profiler counts of a kernel, and what it is called here.
COUNTED = {
    "smsp__thread_inst_executed_per_inst_executed.ratio": "threads of 32 active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue slots used, %",
    "sm__warps_active.avg.per_cycle_active": "warps at once",
    "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio": "waits for instructions",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "waits for memory",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "waits for the last result",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio": "waits for arithmetic",
    "l1tex__t_sector_hit_rate.pct": "L1 hits, %",
    "lts__t_sector_hit_rate.pct": "L2 hits, %",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory bandwidth used, %",
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active": "float64 units used, %",
}
PROFILED = 2_000  # rounds: a profiler runs a kernel a dozen times


def profile(policy: str, where: str) -> dict[str, float]:
    """What bounds a cell: the counters of NVIDIA's profiler, ncu, which must be installed."""
    counters = ["--metrics", ",".join(COUNTED), "--csv", "--clock-control", "none"]
    kernel = ["--kernel-name", "regex:advance", "--launch-skip", "1", "--launch-count", "1"]
    again = [sys.executable, "-m", "benchmarks.gpu", "--one", policy, where]
    command = ["ncu", *counters, *kernel, *again]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    rows = csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"'))
    values = {row["Metric Name"]: row["Metric Value"].replace(",", "") for row in rows}
    return {said: float(values[name]) for name, said in COUNTED.items() if name in values}


def run_one(policy: str, where: str) -> None:
    """One launch of a cell's kernel, for a profiler."""
    plan = dataclasses.replace(plan_of(policy, where), checkpoints=(PROFILED,))
    cuda_backend.prepare(plan)
    cuda_backend._first_launch_rounds = lambda threads, last: last  # noqa: ARG005
    cuda_backend.run(plan, 0, cuda_backend.batch_size(plan) // 2, summarize=True)


def table(found: dict[str, Any]) -> str:
    """Return the measurements as text and tables for docs/gpu.md."""
    compiling = [cell["compiling"] for cell in found["cells"]]
    fastest, slowest = min(each for each in compiling if each > 1), max(compiling)
    lines = [
        f"Rounds per second on one {found['device']}, T = {found['horizon']:,}, for batches of trials, excluding",
        f"compilation, which takes {fastest:.0f} to {slowest:.0f} s for each policy class, once per process. The floor,",
        "measured in the same run, generates one uniform and one normal number per round and does nothing else.",
        "",
        "| policy | problem | rounds/s | required | floor / rounds/s |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for cell in found["cells"]:
        asked = "" if cell["asked"] is None else f"{cell['asked']:.0e}"
        lines.append(
            f"| `{cell['policy']}` | `{cell['problem']}` | {cell['speed']:.2e} | {asked} | {cell['floor'] / cell['speed']:.1f} |"
        )
    if grid := found.get("grid"):
        lines += [
            "",
            f"The paper's nine policies on its ten problems, {GRID_TRIALS:,} trials in each of {grid['cells']} cells,",
            f"including compilation: {grid['seconds']:.0f} s ({grid['asked']:.0f} s required).",
        ]
    if profiles := found.get("profiles"):
        lines += [
            "",
            f"The profiler's counters at T = {PROFILED:,} show the limits (waits are in cycles between two",
            "instructions of a warp):",
            "",
            "| | " + " | ".join(f"`{each}`" for each in profiles) + " |",
            "| --- |" + " ---: |" * len(profiles),
        ]
        for said in COUNTED.values():
            found_here = [f"{each[said]:.1f}" if said in each else "" for each in profiles.values()]
            if any(found_here):
                lines.append(f"| {said} | " + " | ".join(found_here) + " |")
    return "\n".join(lines)


def write_page(found: dict[str, Any], page: Path) -> None:
    """Put the table into its place on the page."""
    text = page.read_text(encoding="utf8")
    before, rest = text.split(START)
    page.write_text(f"{before}{START}\n\n{table(found)}\n\n{END}{rest.split(END)[1]}", encoding="utf8")


def main() -> int:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/gpu.json"))
    parser.add_argument("--grid", action="store_true", help="also the paper's policies on its ten problems")
    parser.add_argument("--save", type=Path, help="a folder for the final regrets of the grid")
    parser.add_argument(
        "--profile", action="store_true", help="also what bounds the cells for which a speed is asked"
    )
    parser.add_argument("--asked", action="store_true", help="only the cells for which a speed is asked")
    parser.add_argument("--one", nargs=2, metavar=("POLICY", "PROBLEM"), help="one launch, for a profiler")
    parser.add_argument("--page", action="store_true", help="only write docs/gpu.md from docs/gpu.json")
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    if given.page:
        write_page(json.loads(DATA.read_text(encoding="utf8")), DATA.with_suffix(".md"))
        return 0
    require_device()
    if given.one:
        run_one(*given.one)
        return 0
    chosen = [cell for cell in CELLS if cell[2] is not None or not given.asked]
    found: dict[str, Any] = {"device": cuda_backend.gpu_name(), "horizon": HORIZON, "cells": []}
    if given.output.exists():  # what is not measured now stays
        found = json.loads(given.output.read_text(encoding="utf8")) | {"cells": []}

    def keep(**more: Any) -> None:
        found.update(more)
        given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")

    print(f"{found['device']}: rounds a second, T = {HORIZON}")
    for policy, where, asked in chosen:
        cell = measure(policy, where, asked, given.repeats)
        found["cells"].append(asdict(cell))
        verdict = "" if asked is None else f"   asked {asked:.1e}: {'yes' if cell.speed >= asked else 'NO'}"
        line = f"{policy:6} {where:34} {cell.speed:9.3g}/s   floor {cell.floor:9.3g}/s   ratio {cell.floor / cell.speed:6.1f}"
        print(
            f"{line}   {cell.registers} registers, compiled in {cell.compiling:4.1f} s{verdict}", flush=True
        )
    keep()
    if given.grid:
        keep(grid=(grid := run_grid(given.save)))
        print(
            f"grid: {grid['cells']} cells of {GRID_TRIALS} trials in {grid['seconds']:.1f} s; asked {GRID_SECONDS:.0f}"
        )
    if given.profile:
        profiles: dict[str, Any] = {}
        for policy, where, asked in CELLS:
            if asked is not None:
                profiles[f"{policy} {where}"] = counted = profile(policy, where)
                print(f"{policy} on {where}:", json.dumps(counted), flush=True)
                keep(profiles=profiles)
    return 0


if __name__ == "__main__":
    sys.exit(main())
