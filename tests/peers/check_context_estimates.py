"""Print OBP's estimates of the values of policies that depend on the context, as JSON.

It runs in the peers' environment: `.peers/bin/python check_context_estimates.py FOLDER`.

The folder has levels.json and, for each log, what check_contexts.py has fitted and the predicted rewards of
our model. This script does not import maillard.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def estimates(
    fitted: dict[str, Any], target: str, predicted: Any, levels: dict[str, float]
) -> dict[str, float]:
    """Return the estimates for a target and predicted rewards, by name."""
    shared = import_module("check_estimators")  # in the same folder
    ope, made = import_module("obp.ope"), []
    for name, cls in shared.CLASSES.items():
        level = {"lambda_": levels[name]} if name in levels else {}
        made.append(getattr(ope, cls)(**level, estimator_name=name))
    feedback = {name: fitted[name] for name in ("action", "reward", "pscore", "context")}
    rows, arms = fitted[target].shape
    # Each row has the distribution and the predictions at its own position.
    feedback |= {"n_rounds": rows, "n_actions": arms, "position": None}
    found: dict[str, float] = shared.evaluated(
        feedback, fitted[target][:, :, None], predicted[:, :, None], made
    )
    return found


def main(folder: Path) -> None:
    """Print the estimates for each log, model and target."""
    given = json.loads((folder / "levels.json").read_text())
    found: dict[str, Any] = {}
    for name in given["logs"]:
        with np.load(folder / f"{name}-fitted.npz") as arrays:
            fitted = {key: arrays[key] for key in arrays.files}
        models = {"theirs": fitted["predicted"], "ours": np.load(folder / f"{name}-ours.npy")}
        found[name] = {
            model: {
                target: estimates(fitted, target, predicted, given["levels"]) for target in given["targets"]
            }
            for model, predicted in models.items()
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
