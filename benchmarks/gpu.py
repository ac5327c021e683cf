"""Measure the simulator's rounds per second on a GPU, compared with a floor measured in the same run.

The floor is the minimal work of a round: generate one uniform and one normal number, with the same generators
and the same number of threads. Each line is one policy on one problem, from the call of `simulate` to its
summary, but without compilation. `--grid` also runs the paper's policies on its ten problems, including
compilation. `python -m benchmarks.gpu` needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import maillard
from benchmarks.agreement import file_of, grid
from maillard.simulation.backends import CUDA
from maillard.simulation.cuda import cuda_backend, lockstep_kernel
from maillard.simulation.cuda.cuda_toolkit import cuda, jit, require_device
from maillard.simulation.cuda.device_functions import DeviceFunctions
from maillard.simulation.cuda.device_random_numbers import normals, seed_stream, uniform
from maillard.simulation.plans import Plan, make_experiment

HORIZON = 20_000
GAUSSIAN = "gaussian-equal:arms={}"
UNIT_VARIANCE = "gaussian-equal:arms={},variance=1"
# Policy, problem, required rounds per second.
CELLS: list[tuple[str, str, float | None]] = [
    ("ucb1", GAUSSIAN.format(100), 5e9),
    ("ms+", GAUSSIAN.format(100), 1e10),
    ("ms+", GAUSSIAN.format(10), 4e10),
    ("ms+", GAUSSIAN.format(2), 8e10),
    ("ucb1", GAUSSIAN.format(10), 1e10),
    ("ts", GAUSSIAN.format(10), 1e10),
    ("ms+", UNIT_VARIANCE.format(2), None),
    ("ms+", UNIT_VARIANCE.format(10), None),
    ("ms+", UNIT_VARIANCE.format(100), None),
    ("ts", UNIT_VARIANCE.format(10), None),
    ("ts", UNIT_VARIANCE.format(100), None),
    ("ucb1", UNIT_VARIANCE.format(10), None),
    ("ucb1", UNIT_VARIANCE.format(100), None),
    ("ucb1", "bernoulli-equal:arms=100", None),
    ("kl-ucb:family=gaussian", UNIT_VARIANCE.format(100), None),
    ("moss", GAUSSIAN.format(10), None),
    ("moss", GAUSSIAN.format(100), None),
    ("aoucb", GAUSSIAN.format(10), None),
    ("aoucb", GAUSSIAN.format(100), None),
    ("ucb+", GAUSSIAN.format(10), None),
    ("ucb+", GAUSSIAN.format(100), None),
    ("ocucb", GAUSSIAN.format(10), None),
    ("ocucb", GAUSSIAN.format(100), None),
    ("ms+", "bernoulli-equal:arms=10", None),
    ("ms+", "bernoulli-equal:arms=100", None),
    ("ms+", GAUSSIAN.format(1000), None),
]
LONG = 4.0  # seconds: so long a run is not repeated
GRID_TRIALS, GRID_SECONDS = 100_000, 120.0
DOCS = Path(__file__).parent.parent / "docs"
DATA, PAGE = DOCS / "data" / "gpu.json", DOCS / "how-to" / "gpu.md"
START = "<!-- speeds: written by `python -m benchmarks.gpu --grid --profile --output docs/data/gpu.json` -->"
END = "<!-- end of speeds -->"


@dataclass(frozen=True)
class Cell:
    """One policy on one problem."""

    policy: str
    problem: str
    trials: int
    speed: float  # rounds per second
    floor: float  # rounds per second of the floor
    required: float | None  # required rounds per second
    registers: int
    compiling: float  # seconds


def generate(key: Any, rounds: int, sums: Any) -> None:
    """The floor: generate the random numbers of every round."""
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
    """Return the duration of one call."""
    started = time.perf_counter()
    function()
    device.synchronize()
    return time.perf_counter() - started


def floor(threads: int) -> float:
    """Return the rounds per second of the floor."""
    compiled, key, sums = (
        jit(DeviceFunctions().copy(generate)),
        device.to_device(np.arange(2, dtype=np.uint64)),
        device.device_array(threads),
    )
    grid = threads // cuda_backend.THREADS_PER_BLOCK, cuda_backend.THREADS_PER_BLOCK
    compiled[grid](key, 2, sums)
    return threads * HORIZON / min(seconds(lambda: compiled[grid](key, HORIZON, sums)) for _ in range(3))


def plan_of(policy: str, where: str) -> Plan:
    """Return the plan of a policy on a problem on the GPU, with one checkpoint at the horizon."""
    (plan,) = make_experiment(policy, where, HORIZON, 1, 0, device=CUDA, checkpoints=[HORIZON]).plans
    return plan


def measure(policy: str, where: str, required: float | None, repeats: int) -> Cell:
    """Measure one policy on one problem."""
    plan = plan_of(policy, where)
    trials = cuda_backend.batch_size(plan)
    compiling = seconds(lambda: cuda_backend.prepare(plan))
    floor_speed = floor(trials // cuda_backend.THREADS_PER_BLOCK * cuda_backend.THREADS_PER_BLOCK)

    def run() -> object:
        return maillard.simulate(policy, where, HORIZON, trials, device=CUDA, keep="summary", progress=False)

    took = seconds(run)
    for _ in range(repeats - 1):
        if took < LONG:
            took = min(took, seconds(run))
    registers = next(iter(cuda_backend.kernel_of(plan).get_regs_per_thread().values()))
    return Cell(policy, where, trials, trials * HORIZON / took, floor_speed, required, registers, compiling)


# Values of the kernels' constants that `--tune` compares; the first are those in use.
CONSTANTS: dict[tuple[Any, str], tuple[int, ...]] = {
    (cuda_backend, "MIN_WAITING_THREADS"): (8, 16, 24, 4),
    (cuda_backend, "ROUND_PAIRS"): (2, 1, 3),
    (cuda_backend, "MAX_REGISTERS"): (80, 64, 96, 128),
    (cuda_backend, "THREADS_PER_PROCESSOR"): (6144, 1536),
}
LOCKSTEP_CONSTANTS: dict[tuple[Any, str], tuple[int, ...]] = {
    (lockstep_kernel, "MAX_REGISTERS"): (80, 64, 96, 128),
    (lockstep_kernel, "MAX_ARMS_PER_THREAD"): (13, 7, 25),
    (cuda_backend, "THREADS_PER_PROCESSOR"): (6144, 1536),
}


def tune(policy: str, where: str, limit: float) -> None:
    """Print the speed of one cell for each value of each constant, the other constants unchanged."""
    plan, started = plan_of(policy, where), time.perf_counter()
    constants = LOCKSTEP_CONSTANTS if cuda_backend.tables_of(plan, HORIZON) else CONSTANTS
    for (module, name), values in constants.items():
        usual = getattr(module, name)
        for value in values:
            if time.perf_counter() - started > limit:
                return
            setattr(module, name, value)
            cuda_backend._KERNELS.clear()
            cuda_backend.prepare(plan)
            trials = cuda_backend.batch_size(plan)
            took = min(
                seconds(lambda: cuda_backend.run(plan, 0, trials, summarize=True))  # noqa: B023
                for _ in range(2)
            )
            print(f"{policy} {where} {name}={value}: {trials * HORIZON / took:9.3g}/s", flush=True)
        setattr(module, name, usual)


def run_grid(folder: Path | None) -> dict[str, float]:
    """Run the paper's policies on its ten problems, most arms first. Return the duration and the speed."""
    (problems, policies), started = grid(), time.perf_counter()
    for each in reversed(problems):
        before = time.perf_counter()
        result = maillard.simulate(
            policies, each, HORIZON, GRID_TRIALS, device=CUDA, keep="summary", progress=False
        )
        means = " ".join(f"{mean:.1f}" for mean in result.mean[:, -1])
        print(f"  {each:38} {time.perf_counter() - before:6.1f} s   mean regret {means}", flush=True)
        if folder is not None:  # for benchmarks.agreement
            np.savez_compressed(
                file_of(folder, each), final=result.final.astype(np.float32), pulls=result.mean_pulls
            )
    took = time.perf_counter() - started
    cells = len(problems) * len(policies)
    return {
        "seconds": took,
        "required": GRID_SECONDS,
        "speed": cells * GRID_TRIALS * HORIZON / took,
        "cells": cells,
    }


# The profiler's metrics and their names on the page.
METRICS = {
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
PROFILED = 2_000  # rounds; few, because the profiler runs a kernel a dozen times


def profile(policy: str, where: str) -> dict[str, float]:
    """Return the profiler's counters for one cell. NVIDIA's profiler ncu must be installed."""
    counters = ["--metrics", ",".join(METRICS), "--csv", "--clock-control", "none"]
    kernel = ["--kernel-name", "regex:lazy|direct|lockstep", "--launch-skip", "1", "--launch-count", "1"]
    again = [sys.executable, "-m", "benchmarks.gpu", "--one", policy, where]
    command = ["ncu", *counters, *kernel, *again]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    rows = csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"'))
    values = {row["Metric Name"]: row["Metric Value"].replace(",", "") for row in rows}
    return {title: float(values[name]) for name, title in METRICS.items() if name in values}


def run_one(policy: str, where: str) -> None:
    """Launch the kernel of one cell once, for the profiler."""
    plan = dataclasses.replace(plan_of(policy, where), checkpoints=(PROFILED,))
    cuda_backend.prepare(plan)
    cuda_backend._first_launch_rounds = lambda work, last: last  # noqa: ARG005
    cuda_backend.run(plan, 0, cuda_backend.batch_size(plan) // 2, summarize=True)


def table(found: dict[str, Any]) -> str:
    """Return the measurements as text and tables for docs/how-to/gpu.md."""
    compiling = [cell["compiling"] for cell in found["cells"]]
    fastest, slowest = min((each for each in compiling if each > 1), default=0.0), max(compiling)
    lines = [
        f"Rounds per second on one {found['device']}, T = {found['horizon']:,}, one batch of "
        f"{found['cells'][0]['trials']:,} trials, from the call of `simulate` to its summary, excluding",
        f"compilation, which takes {fastest:.0f} to {slowest:.0f} s for each policy class, once per machine. "
        "The floor,",
        "measured in the same run, generates one uniform and one normal number per round and does nothing "
        "else.",
        "",
        "| policy | problem | rounds/s | target | floor / rounds/s |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for cell in found["cells"]:
        required = "" if cell["required"] is None else f"{cell['required']:.0e}"
        ratio = cell["floor"] / cell["speed"]
        lines.append(
            f"| `{cell['policy']}` | `{cell['problem']}` | {cell['speed']:.2e} | {required} | {ratio:.1f} |"
        )
    if grid := found.get("grid"):
        note = f"; {grid['note']}" if "note" in grid else ""
        lines += [
            "",
            f"The paper's nine policies on its ten problems, {GRID_TRIALS:,} trials in each of "
            f"{grid['cells']} cells,",
            f"including compilation: {grid['seconds']:.0f} s ({grid['required']:.0f} s required{note}).",
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
        for title in METRICS.values():
            values = [f"{each[title]:.1f}" if title in each else "" for each in profiles.values()]
            if any(values):
                lines.append(f"| {title} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def write_page(found: dict[str, Any], page: Path) -> None:
    """Replace the measurements on the page."""
    text = page.read_text(encoding="utf8")
    before, rest = text.split(START)
    page.write_text(f"{before}{START}\n\n{table(found)}\n\n{END}{rest.split(END)[1]}", encoding="utf8")


def arguments() -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/gpu.json"))
    parser.add_argument(
        "--grid", action="store_true", help="also run the paper's policies on its ten problems"
    )
    parser.add_argument("--save", type=Path, help="folder for the final regrets of the grid")
    parser.add_argument(
        "--profile", action="store_true", help="also profile the cells that have a required speed"
    )
    parser.add_argument(
        "--required", action="store_true", help="measure only the cells that have a required speed"
    )
    parser.add_argument("--others", action="store_true", help="measure only the other cells")
    parser.add_argument(
        "--one", nargs=2, metavar=("POLICY", "PROBLEM"), help="launch one kernel, for the profiler"
    )
    parser.add_argument(
        "--page", action="store_true", help="only write docs/how-to/gpu.md from docs/data/gpu.json"
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=np.inf, help="begin no measurement after so many seconds"
    )
    parser.add_argument(
        "--tune",
        nargs=2,
        metavar=("POLICY", "PROBLEM"),
        help="only print the speed of one cell for other values of the constants",
    )
    return parser.parse_args()


def main() -> int:
    """Measure, print and save the results."""
    args = arguments()
    if args.page:
        write_page(json.loads(DATA.read_text(encoding="utf8")), PAGE)
        return 0
    require_device()
    if args.one:
        run_one(*args.one)
        return 0
    if args.tune:
        tune(args.tune[0], args.tune[1], args.seconds)
        return 0
    chosen = [cell for cell in CELLS if not (args.others if cell[2] is not None else args.required)]
    found: dict[str, Any] = {"device": cuda_backend.gpu_name(), "horizon": HORIZON, "cells": []}
    if args.output.exists():  # keep earlier measurements of other cells, the grid and the profiler
        found = json.loads(args.output.read_text(encoding="utf8"))

    order = [(policy, where) for policy, where, _ in CELLS]

    def save(**more: Any) -> None:
        found.update(more)
        found["cells"].sort(key=lambda cell: order.index((cell["policy"], cell["problem"])))
        args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")

    print(f"{found['device']}: rounds per second, T = {HORIZON}")
    started, failed = time.perf_counter(), 0
    for policy, where, required in chosen:
        if time.perf_counter() - started > args.seconds:
            break
        try:
            cell = measure(policy, where, required, args.repeats)
        except Exception:  # noqa: BLE001  # time on a GPU is scarce: measure the other cells
            traceback.print_exc()
            failed += 1
            continue
        others = [each for each in found["cells"] if (each["policy"], each["problem"]) != (policy, where)]
        save(cells=[*others, asdict(cell)])
        verdict = (
            ""
            if required is None
            else f"   required {required:.1e}: {'yes' if cell.speed >= required else 'NO'}"
        )
        print(
            f"{policy:6} {where:34} {cell.speed:9.3g}/s   floor {cell.floor:9.3g}/s   "
            f"ratio {cell.floor / cell.speed:6.1f}   {cell.registers} registers, "
            f"compiled in {cell.compiling:4.1f} s{verdict}",
            flush=True,
        )
    if args.grid:
        save(grid=(grid := run_grid(args.save)))
        print(
            f"grid: {grid['cells']} cells of {GRID_TRIALS} trials in {grid['seconds']:.1f} s; "
            f"required {GRID_SECONDS:.0f}"
        )
    if args.profile:
        profiles: dict[str, Any] = {}
        for policy, where, required in CELLS:
            if required is not None:
                profiles[f"{policy} {where}"] = counters = profile(policy, where)
                print(f"{policy} on {where}:", json.dumps(counters), flush=True)
                save(profiles=profiles)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
