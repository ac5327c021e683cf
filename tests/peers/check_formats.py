"""Print what other libraries read from exported log files, as JSON.

It runs in the peers' environment: `.peers/bin/python check_formats.py FOLDER`.

The folder has log.dsjson and log.npz. This script does not import maillard.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def read_with_vowpal_wabbit(path: Path) -> list[dict[str, Any]]:
    """Return the label of each line as parsed by Vowpal Wabbit, which also learns from it."""
    vw = import_module("vowpalwabbit")
    workspace = vw.Workspace("--dsjson --cb_explore_adf --epsilon 0.1 --quiet")
    read = []
    for line in path.read_text(encoding="utf8").splitlines():
        examples = workspace.parse(line)
        labels = [
            (place, cost.cost, cost.probability)
            for place, example in enumerate(examples[1:])
            for cost in example.get_label(vw.LabelType.CONTEXTUAL_BANDIT).costs
        ]
        workspace.learn(examples)
        workspace.finish_example(examples)
        ((place, cost, probability),) = labels
        # The first example is the shared context; the others are the arms.
        read.append({"arms": len(examples) - 1, "place": place, "cost": cost, "probability": probability})
    workspace.finish()
    return read


def read_with_estimators(path: Path, arms: list[str]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return each line as read by Vowpal Wabbit's estimators, and their IPS of always choosing each arm."""
    json_cooked = import_module("estimators.utils.ds_parse").json_cooked
    ips = import_module("estimators.bandits.ips")
    estimators = {arm: ips.Estimator() for arm in arms}
    read = []
    for line in path.read_bytes().splitlines():
        row = json_cooked(line)
        order = [int(place) for place in row["a_vec"]]
        read.append(
            {"cost": float(row["cost"]), "probability": row["p"], "place": row["a"] - 1, "order": order}
        )
        names = [each["Arm"]["name"] for each in json.loads(line)["c"]["_multi"]]
        for arm, estimator in estimators.items():
            target = 1.0 if names[row["a"] - 1] == arm else 0.0
            estimator.add_example(row["p"], -float(row["cost"]), target)
    return read, {arm: float(estimator.get()) for arm, estimator in estimators.items()}


def read_with_obp(path: Path) -> tuple[list[str], dict[str, float]]:
    """Return the arms, and OBP's IPW of always choosing each."""
    ope = import_module("obp.ope")
    with np.load(path, allow_pickle=False) as file:
        feedback: dict[str, Any] = {name: file[name] for name in file.files}
    feedback |= {"n_rounds": int(feedback["n_rounds"]), "n_actions": int(feedback["n_actions"])}
    feedback |= {"context": None, "position": None}
    rounds, arms = feedback["n_rounds"], feedback["arms"].tolist()
    evaluation = ope.OffPolicyEvaluation(
        bandit_feedback=feedback, ope_estimators=[ope.InverseProbabilityWeighting()]
    )
    values = {}
    for place, arm in enumerate(arms):
        target = np.zeros((rounds, len(arms), 1))
        target[:, place] = 1.0
        values[arm] = float(evaluation.estimate_policy_values(action_dist=target)["ipw"])
    return arms, values


def main(folder: Path) -> None:
    """Print what each library read."""
    arms, obp = read_with_obp(folder / "log.npz")
    estimated, ips = read_with_estimators(folder / "log.dsjson", arms)
    content = {
        "obp": obp,
        "estimators": ips,
        "estimators_rows": estimated,
        "vowpal_wabbit": read_with_vowpal_wabbit(folder / "log.dsjson"),
    }
    print(json.dumps(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
