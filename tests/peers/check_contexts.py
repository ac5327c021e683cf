"""Fit OBP's policies and reward models to logs with contexts, and write what they predict.

It runs in the peers' environment: `.peers/bin/python check_contexts.py FOLDER`.

The logs are the data that OBP bundles and FOLDER/own.npz, a log of ours. For each, the script writes a file
FOLDER/NAME-fitted.npz with the rows to evaluate, the distributions of the fitted policies and the predicted
rewards, and prints the names. It does not import maillard.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def bundled_data() -> tuple[dict[str, Any], int]:
    """Return the feedback that OBP bundles, and the number of positions."""
    import pandas as pd

    # Imported by name: these packages are only in the peers' environment.
    datasets = import_module("obp.dataset")

    def pre_process(dataset: Any) -> None:
        """Replace OBP's method, which fails with pandas 3 in features of items that are not used here."""
        users = dataset.data.columns.str.contains("user_feature")
        dataset.context = pd.get_dummies(dataset.data.loc[:, users], drop_first=True).to_numpy(float)
        dataset.action_context = np.zeros((dataset.n_actions, 1))

    datasets.OpenBanditDataset.pre_process = pre_process
    dataset = datasets.OpenBanditDataset(behavior_policy="random", campaign="all")
    return dataset.obtain_batch_bandit_feedback(), dataset.len_list


def own_log(path: Path) -> dict[str, Any]:
    """Return the feedback in a file of ours, as OBP wants it."""
    with np.load(path, allow_pickle=False) as file:
        feedback: dict[str, Any] = {name: file[name] for name in file.files}
    counts = {name: int(feedback[name]) for name in ("n_rounds", "n_actions")}
    return feedback | counts | {"position": None}


def fit(feedback: dict[str, Any], positions: int) -> dict[str, Any]:
    """Fit to the first 30% of the rows, and predict all rows."""
    policies, ope = import_module("obp.policy"), import_module("obp.ope")
    linear_models = import_module("sklearn.linear_model")
    rows, arms = feedback["n_rounds"], feedback["n_actions"]
    learner = policies.IPWLearner(
        n_actions=arms,
        len_list=positions,
        base_classifier=linear_models.LogisticRegression(C=100, max_iter=1000, random_state=12345),
    )
    model = ope.RegressionModel(
        n_actions=arms,
        len_list=positions,
        action_context=np.eye(arms),
        base_model=linear_models.LogisticRegression(C=100, max_iter=1000, random_state=12345),
    )
    names = ("context", "action", "reward", "pscore", "position")
    given = {name: feedback[name] for name in names}
    start = {name: None if each is None else each[: rows * 3 // 10] for name, each in given.items()}
    learner.fit(**start)
    choices = learner.predict(context=feedback["context"])
    scores = np.exp(2.0 * learner.predict_score(context=feedback["context"]))
    targets = {
        "choices": choices,
        "mixed": 0.8 * choices + 0.2 / arms,
        "softmax": scores / scores.sum(axis=1, keepdims=True),
    }
    predicted = model.fit_predict(**given, n_folds=2, random_state=12345)
    at = np.arange(rows), slice(None), 0 if given["position"] is None else given["position"]
    distributions = {name: each[at] for name, each in targets.items()}
    arrays = {name: each for name, each in given.items() if each is not None}
    return arrays | distributions | {"predicted": predicted[at]}


def main(folder: Path) -> None:
    """Fit to both logs."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    logs = {"bundled": bundled_data(), "own": (own_log(folder / "own.npz"), 1)}
    for name, (feedback, positions) in logs.items():
        np.savez(folder / f"{name}-fitted.npz", **fit(feedback, positions))
    print(json.dumps(list(logs)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
