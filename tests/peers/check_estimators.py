"""Print the estimates of OBP and of Vowpal Wabbit's estimators for given feedback, as JSON.

It runs in the peers' environment: `.peers/bin/python check_estimators.py FOLDER`.

The folder has levels.json and a .npz file for each case. This script does not import maillard.
"""

from __future__ import annotations

import json
import math
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

# OBP's class for each of our estimators. The class with the suffix "Tuning" chooses a level.
CLASSES = {
    "ips": "InverseProbabilityWeighting",
    "clipped-ips": "InverseProbabilityWeighting",
    "snips": "SelfNormalizedInverseProbabilityWeighting",
    "dm": "DirectMethod",
    "dr": "DoublyRobust",
    "clipped-dr": "DoublyRobust",
    "sndr": "SelfNormalizedDoublyRobust",
    "switch-dr": "SwitchDoublyRobust",
    "dr-os": "DoublyRobustWithShrinkage",
    "sg-ips": "SubGaussianInverseProbabilityWeighting",
    "sg-dr": "SubGaussianDoublyRobust",
}


def evaluated(feedback: dict[str, Any], target: Any, model: Any, estimators: list[Any]) -> dict[str, float]:
    """Return the estimates of OBP's estimators by name."""
    evaluation = import_module("obp.ope").OffPolicyEvaluation(
        bandit_feedback=feedback, ope_estimators=estimators
    )
    values = evaluation.estimate_policy_values(action_dist=target, estimated_rewards_by_reg_model=model)
    return {name: float(value) for name, value in values.items()}


def fixed(levels: dict[str, list[float]]) -> list[Any]:
    """Return every estimator at each of its levels."""
    ope, made = import_module("obp.ope"), []
    for name, cls in CLASSES.items():
        build = getattr(ope, cls)
        if name not in levels:
            made.append(build(estimator_name=name))
        made += [build(lambda_=level, estimator_name=f"{name}:{level:g}") for level in levels.get(name, ())]
    return made


def tuned(feedback: dict[str, Any], target: Any, model: Any, slope: dict[str, list[float]]) -> dict[str, Any]:
    """Return the value at the level that OBP's SLOPE chooses, that level, and all equivalent levels."""
    ope, found = import_module("obp.ope"), {}
    position = feedback["position"]
    given = {name: feedback[name] for name in ("reward", "action", "pscore")}
    given |= {"action_dist": target, "estimated_rewards_by_reg_model": model}
    given["position"] = np.zeros(len(given["action"]), int) if position is None else position
    for name, levels in slope.items():
        cls = CLASSES[name]
        estimator = getattr(ope, f"{cls}Tuning")(
            lambdas=list(levels), tuning_method="slope", estimator_name=name
        )
        value = evaluated(feedback, target, model, [estimator])[name]
        best = estimator.best_hyperparam
        rounds = {level: getattr(ope, cls)(level)._estimate_round_rewards(**given) for level in levels}
        equivalent_levels = [level for level in levels if np.array_equal(rounds[level], rounds[best])]
        found[name] = {"value": value, "level": best, "equivalent": equivalent_levels}
    return found


def more_robust(feedback: dict[str, Any], target: Any) -> float:
    """Return OBP's MRDR estimate with a table of weighted mean rewards per arm and position as the model."""
    base = import_module("sklearn.base").BaseEstimator

    class Means(base):  # type: ignore[misc, valid-type]  # the package is not installed here
        """Return the weighted mean reward of each arm (column), or `otherwise` for an arm without weight."""

        def __init__(self, otherwise: float = 0.0) -> None:
            self.otherwise = otherwise

        def fit(self, x: Any, y: Any, sample_weight: Any) -> Any:
            total, weight = x.T @ (sample_weight * y), x.T @ sample_weight
            none = np.full(weight.shape, self.otherwise)
            self.means_ = np.divide(total, weight, out=none, where=weight > 0)
            return self

        def predict(self, x: Any) -> Any:
            return x @ self.means_

    ope = import_module("obp.ope")
    rounds, arms, positions = target.shape
    model = ope.RegressionModel(
        n_actions=arms,
        len_list=positions,
        action_context=np.eye(arms),
        base_model=Means(float(feedback["reward"].mean())),
        fitting_method="mrdr",
    )
    given = {name: feedback[name] for name in ("action", "reward", "pscore", "position")}
    # With a context of zero columns, the model sees only the arm.
    estimated = model.fit_predict(context=np.zeros((rounds, 0)), action_dist=target, **given)
    return evaluated(feedback, target, estimated, [ope.DoublyRobust(estimator_name="mrdr")])["mrdr"]


def vowpal_wabbit(feedback: dict[str, Any], target: Any) -> dict[str, float]:
    """Return IPS, SNIPS, and half the width of the Gaussian interval of IPS."""
    module = {name: import_module(f"estimators.bandits.{name}") for name in ("ips", "snips", "gaussian")}
    estimators = {"ips": module["ips"].Estimator(), "snips": module["snips"].Estimator()}
    interval = module["gaussian"].Interval()
    count = len(feedback["action"])
    place = np.zeros(count, int) if feedback["position"] is None else feedback["position"]
    chosen = target[np.arange(count), feedback["action"], place]
    for p, reward, wanted in zip(
        feedback["pscore"].tolist(), feedback["reward"].tolist(), chosen.tolist(), strict=True
    ):
        for each in (*estimators.values(), interval):
            each.add_example(p, reward, wanted)
    low, high = interval.get(alpha=0.05)
    return {name: float(each.get()) for name, each in estimators.items()} | {
        "gaussian": (high - low)
        / 2
        * math.sqrt((count - 1) / count)  # its variance is over n - 1, ours over n
    }


def compared(path: Path, levels: dict[str, Any]) -> dict[str, Any]:
    """Return all estimates of one case."""
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    count, (arms, positions) = len(arrays["action"]), arrays["target"].shape
    feedback = {name: arrays[name] for name in ("action", "reward", "pscore")}
    feedback |= {"n_rounds": count, "n_actions": arms, "context": None, "position": arrays.get("position")}
    target = np.tile(arrays["target"], (count, 1, 1))
    models = {"mean": np.full((arms, positions), feedback["reward"].mean())}
    models |= {name: arrays[name] for name in ("arms", "table")}
    made: dict[str, Any] = {"models": {}, "tuned": {}}
    for name, model in models.items():
        q = np.tile(model, (count, 1, 1))
        made["models"][name] = evaluated(feedback, target, q, fixed(levels["fixed"]))
        made["tuned"][name] = tuned(feedback, target, q, levels["slope"])
    made["mrdr"] = more_robust(feedback, target)
    made["vowpal wabbit"] = vowpal_wabbit(feedback, target)
    return made


def main(folder: Path) -> None:
    """Print the estimates of all cases."""
    levels = json.loads((folder / "levels.json").read_text())
    print(json.dumps({path.stem: compared(path, levels) for path in sorted(folder.glob("*.npz"))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
