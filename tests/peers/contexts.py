"""Compares the values of OBP's fitted policies, whose choices depend on the context.

The logs are the data that OBP bundles and a log of ours, with our features as `context`. Rewards are
predicted by OBP's regression model or by our ridge model.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from maillard import Features, FixedDistribution, evaluate
from maillard.array_types import Floats
from maillard.decisions import Bandit, Reward
from maillard.decisions.opening import read_log, write_log
from maillard.evaluation.evaluation_log import open_log
from maillard.evaluation.reward_models import with_predictions
from maillard.evaluation.settings import Settings
from tests.peers.comparing import Comparison, run_script

TOLERANCE = 1e-12  # values of the bundled data are near 0.004
LEVELS = {
    "clipped-ips": 20.0, "clipped-dr": 20.0, "switch-dr": 20.0, "dr-os": 10.0, "sg-ips": 0.05, "sg-dr": 0.05
}  # fmt: skip
TARGETS = ("choices", "mixed", "softmax")
OPTIONS: dict[str, Any] = {"adaptive": False, "min_effective_size": 0, "max_unsupported": 1.0}


def make_log(path: Path, decisions: int = 1500) -> None:
    """Write a log of a linear policy in OBP's format, with the rows of features as context."""
    rng = random.Random(6)
    features = Features({"device": ["phone", "desktop"], "age": (18, 90)}, crosses=[("device", "age")])
    bandit = Bandit(
        ["red", "blue", "green"], "lin-ms:floor=0.3", features=features, reward=Reward(low=0, high=1), seed=6
    )
    for _ in range(decisions):
        device = rng.choice(["phone", "desktop"])
        decision = bandit.choose(context={"device": device, "age": rng.uniform(18, 90)})
        wanted = "blue" if device == "phone" else "red"
        bandit.reward(decision, float(rng.random() < (0.7 if decision.arm == wanted else 0.3)))
    write_log(read_log(bandit), path)


class Case:
    """A log with what OBP has fitted to it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        with np.load(folder / f"{name}-fitted.npz") as arrays:
            self.fitted: dict[str, Floats] = {key: arrays[key] for key in arrays.files}
        rows, arms = self.fitted["choices"].shape
        self.arms = [str(arm) for arm in range(arms)]
        context = self.fitted["context"]
        keys = [f"x{i}" for i in range(context.shape[1])]
        contexts = [
            {"row": row} | dict(zip(keys, each, strict=True)) for row, each in enumerate(context.tolist())
        ]
        self.log = {
            "arm": [self.arms[action] for action in self.fitted["action"]],
            "probability": self.fitted["pscore"],
            "reward": self.fitted["reward"].astype(float),
            "eligible": [self.arms] * rows,
            "context": [json.dumps(each) for each in contexts],
        }
        ranges = zip(keys, context.min(axis=0), context.max(axis=0), strict=True)
        self.features = Features({key: (low, high) for key, low, high in ranges if low < high})

    def our_predictions(self) -> Floats:
        """The rewards that our ridge model predicts, each row from the rows before it."""
        with open_log(self.log, Settings.of(0.95, OPTIONS)) as log:
            predicted = [each.predictions for each in with_predictions(log, self.features).columns()]
        return np.concatenate(predicted)

    def evaluate(self, target: str, model: str, estimators: list[str]) -> Any:
        """Return our estimates, with OBP's predictions as a table by row, or with those of our model."""
        matrix = self.fitted[target]
        if model == "theirs":
            # A position for each row has the row's own distribution and predictions.
            table = self.log | {"position": np.arange(len(matrix))}
            del table["context"]
            distribution = FixedDistribution(matrix.T)
            return evaluate(
                table, distribution, estimators, reward_model=self.fitted["predicted"].T, **OPTIONS
            )

        def choose(context: dict[str, Any]) -> dict[str, float]:
            row = matrix[context["row"]]
            return {self.arms[arm]: float(row[arm]) for arm in np.flatnonzero(row)}

        return evaluate(self.log, choose, estimators, features=self.features, **OPTIONS)


def compare_contexts(folder: Path) -> tuple[str, Comparison]:
    """Evaluate OBP's policies, and compare each estimate."""
    make_log(folder / "own.npz")
    cases = [Case(name, folder) for name in run_script("check_contexts.py", folder)]
    for case in cases:
        np.save(folder / f"{case.name}-ours.npy", case.our_predictions())
    given = {"logs": [case.name for case in cases], "levels": LEVELS, "targets": TARGETS}
    (folder / "levels.json").write_text(json.dumps(given))
    read, found = run_script("check_context_estimates.py", folder), Comparison()
    for case in cases:
        for target in TARGETS:  # otherwise a wrong model would go unnoticed
            theirs, ours = (read[case.name][model][target]["dm"] for model in ("theirs", "ours"))
            found.equal(f"{case.name}, {target}: the models differ", abs(theirs - ours) > 1e-4, True)
        for model, targets in read[case.name].items():
            for target, estimates in targets.items():
                specs = {name: f"{name}:{LEVELS[name]!r}" if name in LEVELS else name for name in estimates}
                report = case.evaluate(target, model, list(specs.values()))
                for name, value in estimates.items():
                    label = f"{case.name}, {target}, {specs[name]}, predictions {model}, by OBP"
                    found.near(label, report[specs[name]].value, value, TOLERANCE)
    rows = " and ".join(f"{len(case.log['arm']):,}" for case in cases)
    return f"{len(TARGETS)} fitted policies on {rows} rows", found
