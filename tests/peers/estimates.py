"""Estimators side by side with OBP's and Vowpal Wabbit's, on feedback that is drawn here.

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
from tests.peers.comparing import DOUBLE, Comparison, said_by

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
    """A log as OBP has it, a target, and two models of rewards: by arm, and by arm and position."""

    name: str
    feedback: dict[str, Any]
    target: Floats
    "Arms x positions."
    arms: Floats
    "The model of each arm, whatever the position."
    table: Floats

    def write(self, folder: Path) -> None:
        """What the other libraries get."""
        arrays = {
            name: value for name, value in self.feedback.items() if name in ("action", "reward", "pscore")
        }
        if "position" in self.feedback:
            arrays["position"] = self.feedback["position"]
        models = {"arms": np.tile(self.arms[:, None], self.target.shape[1]), "table": self.table}
        np.savez(folder / f"{self.name}.npz", target=self.target, **models, **arrays)

    def evaluate(self, estimators: list[str], model: str) -> Report:
        """Ours, of the same."""
        shares = self.target[:, 0] if self.target.shape[1] == 1 else self.target
        q = {"mean": None, "arms": self.arms, "table": self.table}[model]
        return evaluate(
            self.feedback,
            FixedDistribution(shares),
            estimators,
            reward_model=q,
            adaptive=False,
            min_effective_size=0.0,
        )


def cases() -> Iterator[Case]:
    """Arms x positions x how probabilities vary x rewards x seeds."""
    for arms, positions, kind, rewards, seed in itertools.product(
        (3, 10, 80), (1, 3), ("even", "constant", "varying"), ("binary", "real"), range(3)
    ):
        yield _case(arms, positions, kind, rewards, seed)


def _case(arms: int, positions: int, kind: str, rewards: str, seed: int) -> Case:
    rng = np.random.default_rng([arms, positions, len(kind), len(rewards), seed])
    count = 1000 + 10 * arms
    position = rng.integers(positions, size=count)
    if kind == "even":  # weights are round numbers, and lie on the levels that they are compared with
        laws = np.full((count, arms), 1 / arms)
        target = np.zeros((arms, positions))
        for column in target.T:
            column[rng.choice(arms, 3, replace=False)] = 0.5, 0.3, 0.2
    else:
        laws = rng.dirichlet(np.full(arms, 2.0), size=count)
        if kind == "constant":
            laws = laws[position]
        target = rng.dirichlet(np.full(arms, 0.5), size=positions).T
        target[0] = 0.0  # an arm that the target never chooses
    target /= target.sum(axis=0)
    action = (rng.random((count, 1)) > laws.cumsum(axis=1)[:, :-1]).sum(axis=1)
    truth = rng.uniform(0.05, 0.6, size=(arms, positions))[action, position]
    reward = (rng.random(count) < truth).astype(float)
    if rewards == "real":
        reward = 20.0 * truth + 3.0 * rng.standard_normal(count) - 5.0
    feedback: dict[str, Any] = {
        "n_rounds": count,
        "n_actions": arms,
        "action": action,
        "reward": reward,
        "pscore": laws[np.arange(count), action],
    }
    if positions > 1:
        feedback["position"] = position
    if seed == 0:  # whole laws, which the additive estimators do not need
        feedback["pi_b"] = laws[:, :, None]
    return Case(
        f"{arms} arms, {positions} positions, {kind}, {rewards}, seed {seed}",
        feedback,
        target,
        rng.uniform(-0.5, 1.0, size=arms),
        rng.uniform(-0.5, 1.0, size=(arms, positions)),
    )


def _compare_case(case: Case, theirs: dict[str, Any], found: Comparison) -> None:
    for model, values in theirs["models"].items():
        report = case.evaluate([*values, *SLOPE], model)
        for name, value in values.items():
            found.near(f"{case.name}: {name}, model {model}", report[name].value, value, DOUBLE)
        for name, tuned in theirs["tuned"][model].items():
            what = f"{case.name}: {name} by SLOPE, model {model}"
            found.equal(f"{what}: level", report[name].level in tuned["alike"], True)
            found.near(f"{what} at {tuned['level']:g}", report[name].value, tuned["value"], DOUBLE)
    report = case.evaluate(["mrdr", "ips", "snips"], "mean")
    found.near(f"{case.name}: mrdr", report["mrdr"].value, theirs["mrdr"], DOUBLE)
    by_vowpal_wabbit = theirs["vowpal wabbit"]
    for name in ("ips", "snips"):
        what = f"{case.name}: {name}, by Vowpal Wabbit's estimators"
        found.near(what, report[name].value, by_vowpal_wabbit[name], DOUBLE)
    what = f"{case.name}: the interval of ips, by Vowpal Wabbit's estimators"
    found.near(what, report["ips"].width / 2, by_vowpal_wabbit["gaussian"], DOUBLE)


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
    """Draw, evaluate here and there, compare; in words what was compared."""
    made = list(cases())
    (folder / "levels.json").write_text(json.dumps({"fixed": FIXED, "slope": SLOPE}))
    for case in made:
        case.write(folder)
    said, found = said_by("check_estimators.py", folder), Comparison()
    for case in made:
        _compare_case(case, said[case.name], found)
    # A case with varying probabilities: there, some weights lie between a level and a tenth less.
    last = made[-1]
    count, differ = _control(last, said[last.name])
    found.equal("wrong levels and models that were found out", differ, count)
    rounds = sum(case.feedback["n_rounds"] for case in made)
    return f"{len(made)} logs of {rounds:,} decisions, {differ} of {count} wrong ones found out", found
