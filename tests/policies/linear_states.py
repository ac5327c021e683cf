"""Random states of linear policies: duplicate arms, ties, empty tallies, zero rows and masks included."""

from __future__ import annotations

import numpy as np

from maillard import LinearTally, Policy, policies, policy
from maillard.policies import LinearPolicy, policy_class
from tests.policies.linear_reference import Decision

NAMES = [name for name in policies.names() if issubclass(policy_class(name), LinearPolicy)]
VARIANTS = [
    "lin-ms:booster=1",
    "lin-med:beta=0.5",
    "lin-med:beta=0.001",
    "lin-med:emp=0.5,opt=0.5",
    "lin-ts:scale=2",
    "lin-rand-ucb:width=3",
    "igw:fast=true",
    "igw:exponent=0.25,scale=100",
    "lin-epsilon-greedy:epsilon=0",
    "lin-ucb:alpha=0",
    "lin-imed:beta=2",
]
MAX_CONDITION = 1e3


def make(spec: str, **parameters: object) -> Policy:
    """A linear policy for rewards from 0 to 1, unless the parameters say otherwise."""
    if spec.startswith("lin-boltzmann") and "eta" not in spec:
        parameters["eta"] = 5.0
    return policy(spec, **{"reward_range": (0, 1), **parameters})


def random_rows(rng: np.random.Generator, count: int, features: int) -> np.ndarray:
    """Rows on the grid: numbers, flags, signs or one-hot categories, with or without an intercept."""
    kind = rng.integers(4)
    if kind == 0:
        rows = rng.uniform(-1, 1, (count, features))
    elif kind == 1:
        rows = rng.integers(0, 2, (count, features)).astype(float)
    elif kind == 2:
        rows = rng.choice([-1.0, -0.5, 0.5, 1.0], (count, features))
    else:
        rows = np.eye(features)[rng.integers(features, size=count)]
    if rng.random() < 0.5:
        rows[:, 0] = 1.0
    return LinearTally.to_grid(rows)


def random_decision(
    rng: np.random.Generator, features: int, arms: int, *, shared: bool, events: int, masks: bool = True
) -> Decision:
    """A state with duplicates, zero rows, ties and masks in some of the cases."""
    coefficients = rng.uniform(-1, 1, (1 if shared else arms, features))
    rows = random_rows(rng, max(events, arms, 1), features)
    rewards = np.rint(rng.random(len(rows)) * 64) / 64
    chosen = rng.integers(arms, size=len(rows))
    signal = np.sum(rows * coefficients[0 if shared else chosen], axis=1) > 0
    rewards = np.where(rng.random(len(rows)) < 0.8, signal, rewards)
    history = [(rows[i], float(rewards[i]), int(chosen[i])) for i in range(events)]
    x = rows[rng.permutation(len(rows))[:arms]].copy() if shared else rows[0].copy()
    if shared and len(x) < arms:
        x = np.resize(x, (arms, features))
    if rng.random() < 0.3 and arms > 1:  # duplicate arms
        if shared:
            x[-1] = x[0]
        else:
            history = [event for event in history if event[2] != arms - 1]
            history += [(row, reward, arms - 1) for row, reward, arm in history if arm == 0]
    if rng.random() < 0.15:
        x[... if not shared else slice(0, 1 + arms // 3)] = 0.0
    eligible = None
    if masks and rng.random() < 0.3:
        eligible = [bool(value) for value in rng.random(arms) < 0.6]
        eligible[int(rng.integers(arms))] = True
    return Decision(features, None if shared else arms, x, history, eligible)


def ridge_for(decision: Decision, rng: np.random.Generator) -> float:
    """A ridge with which V has a condition number of at most MAX_CONDITION."""
    return float(max(10 ** rng.uniform(-2, 1), largest_eigenvalue(decision) / (MAX_CONDITION - 1)))


def largest_eigenvalue(decision: Decision) -> float:
    """The largest eigenvalue of G, over all models."""
    return max(float(np.linalg.eigvalsh(gram)[-1]) for gram in decision.tally().gram)
