"""Simulated logs of linear policies: visitors with a device and a flag, three arms, rewards 0 and 1.

The policy learns in batches, from the exact statistics of a `LinearTally`, and its logged probabilities are
those that it chose from. The mean rewards are not linear in the features.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard import Features, LinearTally, policy
from maillard.evaluation.contextual_targets import FrozenTarget
from maillard.evaluation.rules import Rule

ARMS = ("red", "green", "blue")
FLOOR = 0.1
POLICIES = ("lin-ts", "lin-rand-ucb", "lin-ms", "igw")
FEATURES = Features({"device": ["phone", "desktop"], "returning": bool})
CONTEXTS: list[dict[str, Any]] = [
    {"device": device, "returning": returning}
    for device, returning in itertools.product(("phone", "desktop", "tablet"), (False, True))
]
SHARES = np.array([0.30, 0.15, 0.20, 0.15, 0.12, 0.08])
"The probability of each context."
MEANS = np.array(
    [[0.3, 0.4, 0.6], [0.5, 0.4, 0.7], [0.5, 0.4, 0.3], [0.3, 0.6, 0.4], [0.4, 0.4, 0.5], [0.6, 0.3, 0.2]]
)
"The mean reward of each context and arm."
RULE = "rule:device=phone->blue,device=tablet&returning=true->red,else->green"


@dataclass(frozen=True, eq=False)
class ContextualLog:
    """The rows of a log: the index of each context, the probabilities, the chosen arm and the reward."""

    spec: str
    context: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    frozen: FrozenTarget
    "The policy as it was in the middle of the log."

    @cached_property
    def table(self) -> Any:
        """The log as an Arrow table."""
        import pyarrow as pa

        n, k = self.probabilities.shape
        offsets = np.arange(0, n * k + 1, k, dtype=np.int32)
        names = pa.array(ARMS)
        texts = pa.array([json.dumps(each) for each in CONTEXTS])
        chosen = self.probabilities[np.arange(n), self.arm]
        return pa.table(
            {
                "arm": names.take(pa.array(self.arm)),
                "eligible": pa.ListArray.from_arrays(offsets, names.take(pa.array(np.tile(np.arange(k), n)))),
                "log_probability": np.log(chosen),
                "log_probabilities": pa.ListArray.from_arrays(offsets, np.log(self.probabilities).ravel()),
                "reward": self.reward,
                "state": np.arange(1, n + 1),
                "context": texts.take(pa.array(self.context)),
            }
        )


def simulate_contextual_log(name: str, rounds: int, seed: int, batch: int = 50) -> ContextualLog:
    """A log of the policy with this name and a floor of 0.1."""
    rng = np.random.default_rng([seed, rounds, *name.encode()])
    chooser = policy(f"{name}:floor={FLOOR}", reward_range=(0, 1))
    tally, rows = (
        LinearTally.empty(FEATURES.dimension, len(ARMS)),
        [FEATURES.encode(each) for each in CONTEXTS],
    )
    context = rng.choice(len(CONTEXTS), rounds, p=SHARES)
    probabilities, arm = np.empty((rounds, len(ARMS))), np.empty(rounds, np.int64)
    reward = np.empty(rounds)
    frozen: FrozenTarget | None = None
    for first in range(0, rounds, batch):
        part = slice(first, first + batch)
        if frozen is None and first >= rounds // 2:
            more: dict[str, Any] = {"after": first + 1, "features": FEATURES, "name": f"frozen {name}"}
            frozen = FrozenTarget.of(chooser, tally.copy(), ARMS, ARMS, **more)
        by_context = np.array([chooser.probabilities(tally, row) for row in rows])
        p = probabilities[part] = by_context[context[part]]
        arm[part] = (rng.random(len(p))[:, np.newaxis] > p.cumsum(axis=1)).sum(axis=1).clip(0, len(ARMS) - 1)
        reward[part] = rng.random(len(p)) < MEANS[context[part], arm[part]]
        for c, a, r in zip(context[part].tolist(), arm[part].tolist(), reward[part].tolist(), strict=True):
            tally.add(rows[c], r, arm=a)
    assert frozen is not None
    return ContextualLog(str(chooser), context, probabilities, arm, reward, frozen)


def rule_distribution(spec: str) -> NDArray[np.float64]:
    """The arms that a rule chooses, contexts x arms."""
    rule = Rule.read(spec)
    return np.array([[float(arm == rule.clause_of(each).arm) for arm in ARMS] for each in CONTEXTS])


def frozen_distribution(target: FrozenTarget) -> NDArray[np.float64]:
    """The probabilities of a frozen policy, contexts x arms."""
    rows = [FEATURES.encode(each) for each in CONTEXTS]
    return np.array([target.policy.probabilities(target.tally, row) for row in rows])


def true_value(distribution: NDArray[np.float64], device: str | None = None) -> float:
    """The mean reward of a target, contexts x arms, for all visitors or for those with a device."""
    shares = SHARES * [device in (None, each["device"]) for each in CONTEXTS]
    return float((shares[:, np.newaxis] * distribution * MEANS).sum() / shares.sum())
