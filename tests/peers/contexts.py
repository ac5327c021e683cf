"""Compares the value of OBP's fitted logistic policy, whose choices depend on the context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from maillard import evaluate
from tests.peers.comparing import Comparison, run_script

TOLERANCE = 1e-10


def compare_contexts(folder: Path) -> tuple[str, Comparison]:
    """Evaluate a function of the context that has OBP's distribution for each row."""
    read = run_script("check_contexts.py", folder)
    with np.load(folder / "contexts.npz") as arrays:
        data = {name: arrays[name] for name in arrays.files}
    count, arms = data["choices"].shape
    names = [str(arm) for arm in range(arms)]
    log = {
        "arm": [names[action] for action in data["action"]],
        "probability": data["pscore"],
        "reward": data["reward"].astype(float),
        "position": data["position"],
        "eligible": [names] * count,
        "context": [f'{{"row": {row}}}' for row in range(count)],
    }
    found = Comparison()
    for target, estimates in read["estimates"].items():
        matrix = data[target]

        def choose(context: dict[str, Any], matrix: Any = matrix) -> dict[str, float]:
            row = matrix[context["row"]]
            return {names[arm]: float(row[arm]) for arm in np.flatnonzero(row)}

        levels = read["levels"]
        specs = {name: f"{name}:{levels[name]!r}" if name in levels else name for name in estimates}
        report = evaluate(log, choose, list(specs.values()), min_effective_size=0, max_unsupported=1.0)
        for name, value in estimates.items():
            found.near(f"{target}, {specs[name]}, by OBP", report[specs[name]].value, value, TOLERANCE)
    return f"the logistic policy on {count:,} rows", found
