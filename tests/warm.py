"""Compile every engine once, on all cores, before the tests.

Two processes that need the same one at the same time would both compile it.
"""

from __future__ import annotations

import itertools
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import maillard
from maillard import problems
from maillard.simulation import cpu_backend, log_recorder, log_replay
from maillard.simulation.compiled_plans import DIRECT
from maillard.simulation.plans import Plan

# A policy of every shape, those that compile longest first, and the engines that it has; to run, to log, to
# replay.
SHAPES = {"adaucb": [None], "ucb1": [None, DIRECT], "ts": [None, DIRECT], "ms": [None, DIRECT], "dmed": [None], "giro": [None]}  # fmt: skip
KINDS = {"runs": cpu_backend.prepare, "logs": log_recorder.prepare_recorder, "replays": log_replay.prepare}
JOBS = [
    (kind, name, engine)
    for kind, name in itertools.product(KINDS, SHAPES)
    for engine in SHAPES[name]
    if kind != "logs" or engine is None
]


def compile_one(job: tuple[str, str, str | None]) -> str:
    """Compile one, unless it is on disk."""
    kind, name, engine = job
    started = time.perf_counter()
    policy: Any = maillard.policy(name, sigma2=0.25, horizon=100)
    KINDS[kind](Plan(policy, problems.problem("bernoulli:0.5,0.4"), (100,), 0, engine))
    return f"{kind} of {name}, {engine or 'fastest'}: {time.perf_counter() - started:.1f} s"


if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        for line in pool.map(compile_one, JOBS):
            if "-v" in sys.argv:
                print(line, flush=True)
