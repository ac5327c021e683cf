"""Fit OBP's logistic policy to the data that it bundles, and print OBP's estimates of its value as JSON.

It runs in the peers' environment: `.peers/bin/python check_contexts.py FOLDER`. It writes the log and the
choices of the policy to FOLDER/contexts.npz. This script does not import maillard.
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

LEVELS = {"clipped-ips": 20.0, "sg-ips": 0.05}


def main(folder: Path) -> None:
    """Fit on the first 70% of the rows, and evaluate on the others."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import pandas as pd

    # Imported by name: these packages are only in the peers' environment.
    ope, datasets, policies = map(import_module, ("obp.ope", "obp.dataset", "obp.policy"))
    linear_models = import_module("sklearn.linear_model")

    def pre_process(dataset: Any) -> None:
        """Replace OBP's method, which fails with pandas 3 in features of items that are not used here."""
        users = dataset.data.columns.str.contains("user_feature")
        dataset.context = pd.get_dummies(dataset.data.loc[:, users], drop_first=True).to_numpy(float)
        dataset.action_context = np.zeros((dataset.n_actions, 1))

    datasets.OpenBanditDataset.pre_process = pre_process
    dataset = datasets.OpenBanditDataset(behavior_policy="random", campaign="all")
    train, test = dataset.obtain_batch_bandit_feedback(test_size=0.3, is_timeseries_split=True)
    learner = policies.IPWLearner(
        n_actions=dataset.n_actions,
        len_list=dataset.len_list,
        base_classifier=linear_models.LogisticRegression(C=100, max_iter=1000, random_state=12345),
    )
    learner.fit(**{name: train[name] for name in ("context", "action", "reward", "pscore", "position")})
    choices = learner.predict(context=test["context"])
    mixed = 0.8 * choices + 0.2 / dataset.n_actions
    # OBP's estimators take a level as `lambda_`.
    estimators = {
        "ips": ope.InverseProbabilityWeighting(),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting(),
        "clipped-ips": ope.InverseProbabilityWeighting(lambda_=LEVELS["clipped-ips"]),
        "sg-ips": ope.SubGaussianInverseProbabilityWeighting(lambda_=LEVELS["sg-ips"]),
    }
    names = ("action", "reward", "pscore", "position")
    given = {name: test[name] for name in names}
    found = {
        target: {
            name: float(each.estimate_policy_value(**given, action_dist=distribution))
            for name, each in estimators.items()
        }
        for target, distribution in (("choices", choices), ("mixed", mixed))
    }
    rows, position = np.arange(test["n_rounds"]), test["position"]
    arrays = {"choices": choices[rows, :, position], "mixed": mixed[rows, :, position]}
    np.savez(folder / "contexts.npz", **given, **arrays)
    print(json.dumps({"estimates": found, "levels": LEVELS}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
