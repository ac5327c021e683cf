"""Measure the nanoseconds per round of linear policies in simulations, compared with a floor.

The floor of a round is what every policy that uses the uncertainty of its estimates must compute: the
quadratic forms x' V^-1 x of K arms in d dimensions, in compiled code. Contexts are generated in advance. The
speed of a machine varies over time, so floor and policies alternate in short measurements of CPU time, and
the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

import maillard
from benchmarks.simulation import verdict
from maillard.problems import ContextBlock, Linear
from maillard.simulation.c_samplers import reward_arguments
from maillard.simulation.compiling import NUMBERS, TABLE, compile_function
from maillard.simulation.context_plans import compile_context_plan
from maillard.simulation.engines.ridge_models import multiply_features, quadratic_form, quadratic_forms
from maillard.simulation.plans import make_plan

ARMS = FEATURES = 10
ROUNDS = 5_000
POLICIES = (
    "lin-ucb",
    "lin-ms",
    "igw",
    "lin-epsilon-greedy",
    "lin-boltzmann:eta=10",
    "lin-imed",
    "lin-ts",
    "lin-ts:draws=joint",
    "lin-rand-ucb",
    "lin-med",
)
LIMITS = dict.fromkeys(("lin-ucb", "lin-ms", "igw", "lin-epsilon-greedy"), 3.0)  # with a disjoint model
PEERS_LIMIT = 100.0  # times the speed of the fastest peer
PLAIN_ROUNDS = 1000


@dataclass(frozen=True)
class Cell:
    """One policy and model, in nanoseconds per round."""

    policy: str
    model: str
    nanoseconds: float
    floor: float
    ratio: float

    @property
    def speed(self) -> float:
        """Rounds per second."""
        return 1e9 / self.nanoseconds


def build_disjoint_floor(forms: Any, multiply: Any, fingerprint: int) -> Any:
    """Return the loop that computes the quadratic forms of one row in K matrices, in every round."""

    def run(rows, inverses, products, out):  # type: ignore[no-untyped-def]
        for i in range(rows.shape[0]):
            multiply(rows[i, 0], products)
            forms(inverses, products, out)
        return fingerprint * 0

    return run


def build_shared_floor(form: Any, fingerprint: int) -> Any:
    """Return the loop that computes the quadratic forms of K rows in one matrix, in every round."""

    def run(rows, inverses, _products, out):  # type: ignore[no-untyped-def]
        for i in range(rows.shape[0]):
            for arm in range(rows.shape[1]):
                out[arm] = form(inverses, rows[i, arm])
        return fingerprint * 0

    return run


def floor_of(model: str) -> Any:
    """Return a function that measures the floor for the rows of a block, in seconds."""
    signature = types.int64(types.Array(types.float64, 3, "C"), TABLE, NUMBERS, NUMBERS)
    rng = np.random.default_rng(0)
    if model == "shared":
        run = compile_function(build_shared_floor, (quadratic_form,), signature)
        inverses = rng.normal(size=(FEATURES, FEATURES))
    else:
        run = compile_function(build_disjoint_floor, (quadratic_forms, multiply_features), signature)
        inverses = rng.normal(size=(ARMS, FEATURES * FEATURES))
    products, out = np.zeros(FEATURES * FEATURES), np.zeros(ARMS)

    def measure(rows: Any) -> float:
        started = time.process_time()
        run(rows, inverses, products, out)
        return time.process_time() - started

    return measure


def one_block(problem: Linear, rounds: int) -> ContextBlock:
    """Return many rounds as one block; its loop is called once."""
    parts = list(problem.contexts(np.random.default_rng(0), rounds))
    rows, means = (
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.means for part in parts]),
    )
    arrays = (np.concatenate(each) for each in zip(*(part.rewards[1:] for part in parts), strict=True))
    rewards, row = type(parts[0].rewards)(parts[0].rewards.code, *arrays), np.arange(rounds)
    return ContextBlock(rows, row, means, rewards, row, np.zeros(rounds, np.int64))


def measure(name: str, model: str, repeats: int, rounds: int = ROUNDS) -> Cell | None:
    """Measure one policy: floor, policy, floor, and so on; None if no compiled engine runs it."""
    problem = Linear(arms=ARMS, dim=FEATURES, model=model)
    plan = make_plan(name, problem, rounds, 0, [rounds])
    engine = compile_context_plan(plan, problem)
    if engine is None:
        return None
    block, floor = one_block(problem, rounds), floor_of(model)
    rows, row = engine.contexts(block)
    given = (rows, row, block.mean, block.means, block.means.max(axis=1), *reward_arguments(block.rewards))
    floors, taken = [floor(rows)], list[float]()
    for repeat in range(repeats):
        state, progress, lost, regret = engine.new_state(), np.zeros(3, np.int64), np.zeros(1), np.zeros(1)
        trial = progress, lost, np.array([rounds]), regret, np.zeros(ARMS, np.int64)
        rng = np.random.default_rng(repeat)
        started = time.process_time()
        engine.plan.run(*engine.plan.arguments, *state, *given, *trial, rng)
        taken.append(time.process_time() - started)
        floors.append(floor(rows))
    # Each measurement is compared with the floors before and after it.
    ratios = [each / min(floors[i : i + 2]) for i, each in enumerate(taken)]
    scale = 1e9 / rounds
    return Cell(name, model, scale * min(taken), scale * min(floors), float(np.median(ratios)))


def measure_plain(name: str) -> float:
    """Return the rounds per second of the plain loop around `policy.choose`."""
    problem, started = Linear(arms=ARMS, dim=FEATURES), time.process_time()
    maillard.simulate(name, problem, PLAIN_ROUNDS, 1, engine="plain", threads=1)
    return PLAIN_ROUNDS / (time.process_time() - started)


def compare_peers(file: Path, cells: list[Cell]) -> list[dict[str, Any]]:
    """Compare other libraries with the same policies; `benchmarks.peers` wrote the file."""
    made = json.loads(file.read_text(encoding="utf8"))["contexts"]
    ours = {cell.policy: cell.speed for cell in cells if cell.model == "disjoint"}
    rows = [row | {"times_slower": ours[row["like"]] / row["rounds_a_second"]} for row in made["rows"]]
    print(f"\n{'rounds per second':36s}{'peer':>12s}{'maillard':>14s}")
    for row in rows:
        print(
            f"{row['name']:28s}{row['version']:8s}{row['rounds_a_second']:12,.0f}{ours[row['like']]:14,.0f} "
            f"{row['like']:20s}{row['times_slower']:8,.0f} times slower"
        )
    fastest = max(row["rounds_a_second"] for row in rows)
    times = min(ours[name] for name in LIMITS) / fastest
    print(f"slowest of {', '.join(LIMITS)}: {times:,.0f} times the fastest peer", end="")
    print(verdict(times, PEERS_LIMIT, at_least=True))
    return rows


def main() -> None:
    """Print the tables and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer measurements: rough numbers")
    parser.add_argument("--peers", type=Path, metavar="FILE", help="speeds of other libraries")
    arguments = parser.parse_args()
    print(f"{ARMS} arms, {FEATURES} features, {ROUNDS:,d} rounds; floor: {ARMS} quadratic forms")
    print(f"{'policy':24s}{'model':10s}{'ns/round':>10s}{'floor':>8s}{'ratio':>8s}")
    cells = []
    for model in ("disjoint", "shared"):
        for name in POLICIES:
            if model == "disjoint" and "joint" in name:
                continue  # the same as independent draws
            cell = measure(name, model, 9 if arguments.quick else 41)
            if cell is None:
                print(f"{name:24s}{model:10s}{'plain':>10s}", flush=True)
                continue
            cells.append(cell)
            limit = LIMITS.get(name) if model == "disjoint" else None
            print(
                f"{name:24s}{model:10s}{cell.nanoseconds:10,.0f}{cell.floor:8,.0f}{cell.ratio:8.2f}"
                f"{verdict(cell.ratio, limit)}",
                flush=True,
            )
    plain = {name: measure_plain(name) for name in LIMITS}
    print(
        "\nplain loop, rounds per second: " + ", ".join(f"{name} {each:,.0f}" for name, each in plain.items())
    )
    results = {
        "cells": [asdict(cell) for cell in cells],
        "plain": plain,
        "peers": compare_peers(arguments.peers, cells) if arguments.peers else [],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
