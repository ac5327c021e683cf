"""Simulated logs of linear policies whose arms differ at every decision, with rewards 0 and 1.

A visitor with a device sees an offer: from two to six of twelve articles, in some order. The policy has one
model for all articles, which learns in batches, and its logged probabilities are those that it chose from.
The mean rewards are not linear in the features.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard import Features, LinearTally, policy

FLOOR = 0.1
TOPICS = ("news", "sport", "art")
FEATURES = Features({"topic": list(TOPICS), "price": (0, 3), "device": ["phone", "desktop"]})
ARTICLES: dict[str, dict[str, Any]] = {
    f"article-{number}": {"topic": TOPICS[number % 3], "price": number % 4} for number in range(12)
}
DEVICES = ("phone", "desktop")
OFFERS: list[tuple[str, list[str]]] = [
    (
        DEVICES[number % 2],
        [f"article-{each}" for each in np.random.default_rng(number).permutation(12)[:size]],
    )
    for number, size in enumerate([2, 3, 4, 5, 6] * 6)
]
"The device of the visitor and the articles in the order in which they are listed; all are equally likely."
NAME = "article-5"

Distribution = Callable[[str, list[str]], dict[str, float] | None]


def mean_reward(device: str, article: str) -> float:
    """The mean reward of an article on a device."""
    topic, price = ARTICLES[article]["topic"], ARTICLES[article]["price"]
    return 0.2 + 0.15 * float(topic == "news" and device == "phone") + 0.1 * float(abs(price - 1.5))


def cheapest(context: dict[str, Any], actions: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The cheapest action on phones, any other time a mixture of it and the uniform distribution."""
    name = min(actions, key=lambda each: (actions[each]["price"], each))
    rest = 0.0 if context["device"] == "phone" else 0.5
    return {each: (1.0 - rest) * (each == name) + rest / len(actions) for each in actions}


TARGETS: dict[str, tuple[Any, Distribution]] = {
    "uniform": ("uniform", lambda _, names: dict.fromkeys(names, 1.0 / len(names))),
    "first": ("rank:1", lambda _, names: {names[0]: 1.0}),
    "function": (
        cheapest,
        lambda device, names: cheapest({"device": device}, {name: ARTICLES[name] for name in names}),
    ),
    "name": (f"arm:{NAME}", lambda _, names: {NAME: 1.0} if NAME in names else None),
}
"Each target, and its distribution in an offer; None if it cannot choose there."


def true_value(distribution: Distribution, device: str | None = None) -> float:
    """The mean reward of a target in the offers in which it can choose, of all devices or of one."""
    values = []
    for of_offer, names in OFFERS:
        found = distribution(of_offer, names) if device in (None, of_offer) else None
        if found is not None:
            values.append(sum(p * mean_reward(of_offer, name) for name, p in found.items()))
    return float(np.mean(values))


@dataclass(frozen=True, eq=False)
class ActionLog:
    """The rows of a log: the index of each offer, its probabilities, the rank of the choice, the reward."""

    offer: NDArray[np.int64]
    probabilities: list[NDArray[np.float64]]
    rank: NDArray[np.int64]
    reward: NDArray[np.float64]

    @cached_property
    def table(self) -> Any:
        """The log as an Arrow table."""
        import pyarrow as pa

        offers = [OFFERS[each] for each in self.offer.tolist()]
        texts = [json.dumps({name: ARTICLES[name] for name in names}) for _, names in OFFERS]
        contexts = [json.dumps({"device": device}) for device, _ in OFFERS]
        return pa.table(
            {
                "arm": [names[rank] for (_, names), rank in zip(offers, self.rank.tolist(), strict=True)],
                "eligible": [names for _, names in offers],
                "log_probability": np.log([p[r] for p, r in zip(self.probabilities, self.rank, strict=True)]),
                "log_probabilities": [np.log(p) for p in self.probabilities],
                "reward": self.reward,
                "state": np.arange(1, len(offers) + 1),
                "context": pa.array(contexts).take(pa.array(self.offer)),
                "actions": pa.array(texts).take(pa.array(self.offer)),
            }
        )


def simulate_action_log(name: str, rounds: int, seed: int, batch: int = 50) -> ActionLog:
    """A log of the policy with this name and a floor of 0.1."""
    rng = np.random.default_rng([seed, rounds, *name.encode(), 1])
    chooser = policy(f"{name}:floor={FLOOR}", reward_range=(0, 1))
    rows = [
        np.array([FEATURES.encode({"device": device, **ARTICLES[each]}) for each in names])
        for device, names in OFFERS
    ]
    means = [np.array([mean_reward(device, each) for each in names]) for device, names in OFFERS]
    tally = LinearTally.empty(FEATURES.dimension, None)
    offer = rng.integers(len(OFFERS), size=rounds)
    probabilities: list[NDArray[np.float64]] = []
    rank, reward = np.empty(rounds, np.int64), np.empty(rounds)
    for first in range(0, rounds, batch):
        part = offer[first : first + batch].tolist()
        known = {each: chooser.probabilities(tally, rows[each]) for each in dict.fromkeys(part)}
        for place, each in enumerate(part, first):
            p = known[each]
            probabilities.append(p)
            rank[place] = min(int((rng.random() > p.cumsum()).sum()), p.size - 1)
            reward[place] = rng.random() < means[each][rank[place]]
        for place, each in enumerate(part, first):
            tally.add(rows[each][rank[place]], reward[place])
    return ActionLog(offer, probabilities, rank, reward)
