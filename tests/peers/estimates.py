"""Compares our estimators with those of OBP and Vowpal Wabbit on simulated feedback.

Vowpal Wabbit defines `ips` and `snips` as this package does, and the Gaussian interval of `ips` with n - 1
instead of n. Its `mle`, `cressieread`, `clopper_pearson` and `cs` are different estimators and are not
compared.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard import FixedDistribution
from maillard.evaluation import Report, evaluate
from maillard.evaluation.estimators import all_estimators
from tests.peers.comparing import DOUBLE, Comparison, run_script

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Case", "cases", "compare_estimators"]

FIXED = {
    "clipped-ips": [2.0, 5.0],
    "clipped-dr": [2.0, 5.0],
    "switch-dr": [2.0, 5.0],
    "dr-os": [1.0, 10.0],
    "sg-ips": [0.0, 0.005, 0.5],
    "sg-dr": [0.0, 0.005, 0.5],
}
SLOPE = {name: list(cls.levels) for name, cls in all_estimators().items() if cls.levels}


@dataclass(frozen=True)
class Case:
    """A log in OBP's format, a target, and two reward models: by arm, and by arm and position."""

    name: str
    feedback: dict[str, Any]
    target: Floats
    "Arms x positions."
    arms: Floats
    "The model by arm, the same for all positions."
    table: Floats

    def write(self, folder: Path) -> None:
        """Write the case for the other libraries."""
        arrays = {
            name: value for name, value in self.feedback.items() if name in ("action", "reward", "pscore")
        }
        if "position" in self.feedback:
            arrays["position"] = self.feedback["position"]
        models = {"arms": np.tile(self.arms[:, None], self.target.shape[1]), "table": self.table}
        np.savez(folder / f"{self.name}.npz", target=self.target, **models, **arrays)

    def evaluate(self, estimators: list[str], model: str) -> Report:
        """Return our estimates. Without a model, every prediction is the mean reward."""
        probabilities = self.target[:, 0] if self.target.shape[1] == 1 else self.target
        mean = np.full_like(self.arms, self.feedback["reward"].mean())
        q = {"none": None, "mean": mean, "arms": self.arms, "table": self.table}[model]
        return evaluate(
            self.feedback,
            FixedDistribution(probabilities),
            estimators,
            reward_model=q,
            adaptive=False,
            min_effective_size=0.0,
        )


def cases() -> Iterator[Case]:
    """Yield all combinations of arms, positions, variation of the probabilities, rewards and seeds."""
    for arms, positions, variation, rewards, seed in itertools.product(
        (3, 10, 80), (1, 3), ("even", "constant", "varying"), ("binary", "real"), range(3)
    ):
        yield _case(arms, positions, variation, rewards, seed)


def _case(arms: int, positions: int, variation: str, rewards: str, seed: int) -> Case:
    rng = np.random.default_rng([arms, positions, len(variation), len(rewards), seed])
    count = 1000 + 10 * arms
    position = rng.integers(positions, size=count)
    if variation == "even":  # weights are round numbers and equal some of the levels
        logged_probabilities = np.full((count, arms), 1 / arms)
        target = np.zeros((arms, positions))
        for column in target.T:
            column[rng.choice(arms, 3, replace=False)] = 0.5, 0.3, 0.2
    else:
        logged_probabilities = rng.dirichlet(np.full(arms, 2.0), size=count)
        if variation == "constant":
            logged_probabilities = logged_probabilities[position]
        target = rng.dirichlet(np.full(arms, 0.5), size=positions).T
        target[0] = 0.0  # an arm that the target never chooses
    target /= target.sum(axis=0)
    action = (rng.random((count, 1)) > logged_probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)
    truth = rng.uniform(0.05, 0.6, size=(arms, positions))[action, position]
    reward = (rng.random(count) < truth).astype(float)
    if rewards == "real":
        reward = 20.0 * truth + 3.0 * rng.standard_normal(count) - 5.0
    feedback: dict[str, Any] = {
        "n_rounds": count,
        "n_actions": arms,
        "action": action,
        "reward": reward,
        "pscore": logged_probabilities[np.arange(count), action],
    }
    if positions > 1:
        feedback["position"] = position
    if seed == 0:  # all probabilities, which the additive estimators do not need
        feedback["pi_b"] = logged_probabilities[:, :, None]
    return Case(
        f"{arms} arms, {positions} positions, {variation}, {rewards}, seed {seed}",
        feedback,
        target,
        rng.uniform(-0.5, 1.0, size=arms),
        rng.uniform(-0.5, 1.0, size=(arms, positions)),
    )


def _compare_case(case: Case, theirs: dict[str, Any], found: Comparison) -> None:
    for model, values in theirs["models"].items():
        # SLOPE needs the mean as a known model: without a model, our variances include the error of the mean.
        report = case.evaluate([*values, *SLOPE], model)
        without = case.evaluate(list(values), "none") if model == "mean" else report
        for name, value in values.items():
            label = f"{case.name}: {name}, model {model}"
            found.near(label, _value_of(report, name), value, DOUBLE)
            found.near(f"{label}, by default", _value_of(without, name), value, DOUBLE)
        for name, tuned in theirs["tuned"][model].items():
            label = f"{case.name}: {name} by SLOPE, model {model}"
            if report[name].value is not None:
                found.equal(f"{label}: level", report[name].level in tuned["equivalent"], True)
            found.near(f"{label} at {tuned['level']:g}", _value_of(report, name), tuned["value"], DOUBLE)
    report = case.evaluate(["mrdr", "ips", "snips"], "none")
    found.near(f"{case.name}: mrdr", report["mrdr"].value, theirs["mrdr"], DOUBLE)
    by_vowpal_wabbit = theirs["vowpal wabbit"]
    for name in ("ips", "snips"):
        label = f"{case.name}: {name}, by Vowpal Wabbit's estimators"
        found.near(label, report[name].value, by_vowpal_wabbit[name], DOUBLE)
    label = f"{case.name}: the interval of ips, by Vowpal Wabbit's estimators"
    found.near(label, report["ips"].width / 2, by_vowpal_wabbit["gaussian"], DOUBLE)


def _value_of(report: Report, name: str) -> float | None:
    """Return an estimate; for switch-dr with every weight above its level, that of its model alone.

    We refuse it then if its terms are all equal, because there is no standard error.
    """
    value = report[name].value
    return report["dm"].value if value is None and name.startswith("switch-dr") else value


def _control(case: Case, theirs: dict[str, Any]) -> tuple[int, int]:
    """Compare with levels that are off by a tenth, or a wrong model; return how many of how many differ.

    All of them should.
    """
    wrong = Comparison()
    for name, levels in FIXED.items():
        level = levels[-1]
        report = case.evaluate([f"{name}:{0.9 * level:g}"], "table")
        value = theirs["models"]["table"][f"{name}:{level:g}"]
        wrong.near(name, report[f"{name}:{0.9 * level:g}"].value, value, DOUBLE)
    report = case.evaluate(["dm", "dr", "sndr"], "arms")
    for name in report:
        wrong.near(name, report[name].value, theirs["models"]["table"][name], DOUBLE)
    return wrong.count, len(wrong.differences)


def compare_estimators(folder: Path) -> tuple[str, Comparison]:
    """Evaluate simulated logs with all libraries; return a description and the comparison."""
    made = list(cases())
    (folder / "levels.json").write_text(json.dumps({"fixed": FIXED, "slope": SLOPE}))
    for case in made:
        case.write(folder)
    results, found = run_script("check_estimators.py", folder), Comparison()
    for case in made:
        _compare_case(case, results[case.name], found)
    # A case with varying probabilities: there, some weights lie between a level and a tenth less.
    last = made[-1]
    count, differ = _control(last, results[last.name])
    found.equal("wrong levels and models that were detected", differ, count)
    rounds = sum(case.feedback["n_rounds"] for case in made)
    return f"{len(made)} logs of {rounds:,} decisions, {differ} of {count} wrong ones detected", found
