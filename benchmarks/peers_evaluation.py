"""How long OBP takes for IPW, SNIPW and DR with bootstrapped intervals, on feedback that is given.

Run it in the peers' environment: `.peers/bin/python -m benchmarks.peers_evaluation FILE.npz OUT.json`. It
imports nothing of this project. The file contains `action`, `reward` and `pscore` for each round, the arrays
`target` and `model` (arms x positions; the model predicts the reward of each arm), and `position` for each
round if there are several positions. The inputs that OBP needs per round are built before the timing starts.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

BOOTSTRAPS = 100
ALPHA = 0.05
# By our names: OBP's classes.
ESTIMATORS = {
    "ips": "InverseProbabilityWeighting",
    "snips": "SelfNormalizedInverseProbabilityWeighting",
    "dr": "DoublyRobust",
}


def run(arrays: dict[str, Any], repetitions: int = 3) -> dict[str, Any]:
    """Return the estimates with their intervals, and the seconds of each repetition.

    The seconds are given in total and for the intervals alone.
    """
    ope = import_module("obp.ope")
    rounds, (arms, positions) = len(arrays["action"]), arrays["target"].shape
    feedback = {name: arrays[name] for name in ("action", "reward", "pscore")}
    feedback |= {"n_rounds": rounds, "n_actions": arms, "context": None, "position": arrays.get("position")}
    shape = (rounds, arms, positions)
    # Views of one matrix: the full arrays would be large, and filling them is not part of the measurement.
    target, model = (np.broadcast_to(arrays[name], shape) for name in ("target", "model"))
    estimators = [getattr(ope, cls)(estimator_name=name) for name, cls in ESTIMATORS.items()]
    seconds: list[float] = []
    of_intervals: list[float] = []
    values, intervals = {}, {}
    for _ in range(repetitions):
        started = time.perf_counter()
        evaluation = ope.OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=estimators)
        given = {"action_dist": target, "estimated_rewards_by_reg_model": model}
        values = evaluation.estimate_policy_values(**given)
        between = time.perf_counter()
        intervals = evaluation.estimate_intervals(
            **given, alpha=ALPHA, n_bootstrap_samples=BOOTSTRAPS, random_state=0
        )
        ended = time.perf_counter()
        seconds.append(ended - started)
        of_intervals.append(ended - between)
    ends = {
        name: [float(each[f"{100 * (1 - ALPHA)}% CI ({end})"]) for end in ("lower", "upper")]
        for name, each in intervals.items()
    }
    return {
        "seconds": seconds,
        "seconds for intervals": of_intervals,
        "rounds": rounds,
        "arms": arms,
        "positions": positions,
        "bootstraps": BOOTSTRAPS,
        "obp": metadata.version("obp"),
        "values": {name: float(value) for name, value in values.items()},
        "intervals": ends,
    }


def main(source: str, target: str) -> None:
    """Read, run, write."""
    with np.load(source, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    Path(target).write_text(json.dumps(run(arrays), indent=2) + "\n", encoding="utf8")


if __name__ == "__main__":
    main(*sys.argv[1:])
