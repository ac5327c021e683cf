"""Compile every engine, the estimators and the loops that read large logs, once before the tests.

Otherwise, two test processes that need the same engine at the same time would both compile it.
"""

from __future__ import annotations

import itertools
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import maillard
from maillard import problems
from maillard.decisions.stores import machine_code
from maillard.simulation import cpu_backend, log_replay, simulated_logs
from maillard.simulation.compiled_plans import DIRECT, LAZY
from maillard.simulation.plans import Plan, make_plan

# A policy of every base class and its engines. Those that compile longest come first.
ENGINES: dict[str, list[str | None]] = {
    "adaucb": [None],
    "ucb1": [None, LAZY, DIRECT],
    "ts": [None, LAZY, DIRECT],
    "ts-bernoulli": [None],
    "ms": [None, DIRECT],
    "dmed": [None],
    "giro": [None],
}
# Linear policies of every type, for problems with contexts.
LINEAR = (
    "lin-ms",
    "lin-ucb",
    "lin-med",
    "lin-ts",
    "lin-ts:draws=joint",
    "igw",
    "lin-rand-ucb",
    "lin-boltzmann:eta=5",
    "lin-epsilon-greedy",
)
CONTEXTS = "linear:noise=bernoulli"
SEGMENTED = ("ms", "ucb1", "ts", "adaucb", "giro")
PREPARE = {
    "runs": cpu_backend.prepare,
    "logs": simulated_logs.prepare_recorder,
    "replays": log_replay.prepare,
}
JOBS = [
    (purpose, name, engine)
    for purpose, name in itertools.product(PREPARE, ENGINES)
    for engine in ENGINES[name]
    if purpose != "logs" or engine is None
]
JOBS.insert(0, ("evaluations", "", None))
JOBS += [("contexts", name, None) for name in (*LINEAR, *SEGMENTED)]


def compile_evaluations() -> None:
    """Compile the estimators, by evaluating a log of a bandit and a table without all probabilities."""
    bandit = maillard.Bandit(["a", "b"], "uniform", reward=maillard.Reward(low=0, high=1), seed=1)
    for decision in bandit.choose(size=200):
        bandit.reward(decision, float(decision.arm == "a"))
    maillard.evaluate(bandit, "arm:a", second_moment=1.0)
    table = {"action": [0, 1] * 100, "reward": [0.0, 1.0] * 100, "pscore": [0.5] * 200}
    maillard.evaluate(table, "arm:0", ["ips"], adaptive=False)
    maillard.evaluate(table, "arm:0")


def compile_one(job: tuple[str, str, str | None]) -> str:
    """Compile one engine, unless it is cached on disk."""
    purpose, name, engine = job
    started = time.perf_counter()
    if purpose == "evaluations":
        compile_evaluations()
        return f"{purpose}: {time.perf_counter() - started:.1f} s"
    if purpose == "contexts":
        problem = problems.problem("linear:model=shared" if "joint" in name else CONTEXTS)
        cpu_backend.prepare(make_plan(name, problem, 9, 0))
        return f"contexts with {name}: {time.perf_counter() - started:.1f} s"
    policy: Any = maillard.policy(name, sigma2=0.25, horizon=100)
    PREPARE[purpose](Plan(policy, problems.problem("bernoulli:0.5,0.4"), (100,), 0, engine))
    return f"{purpose} of {name}, {engine or 'fastest'}: {time.perf_counter() - started:.1f} s"


if __name__ == "__main__":
    machine_code.loops(build=True)
    with ProcessPoolExecutor() as pool:
        for line in pool.map(compile_one, JOBS):
            if "-v" in sys.argv:
                print(line, flush=True)
