"""Regret of Personalizer's Rank calls with the default features, without crosses, and with declared features.

    python -m benchmarks.personalizer            # the table of docs/how-to/personalizer.md: 15 minutes
    python -m benchmarks.personalizer devices    # only the first problem

Visitors of the first problem have one of two devices, and each device prefers another of three actions. Those
of the second have six features and eight actions with three features each; the mean reward depends on pairs.
Rewards are 0 and 1. The bandits get the calls as the service does, without HTTP.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from maillard import Bandit, Features, Reward, hashed
from maillard import wire_schema as wire
from maillard.service.personalizer.experiment import DEFAULT_POLICY, default_features
from maillard.service.personalizer.rank_calls import rank_request


class Visit(NamedTuple):
    """The features of a visitor and of the actions, and the mean reward of each action."""

    context: list[dict[str, Any]]
    actions: dict[str, dict[str, Any]]
    means: dict[str, float]


_DEVICES = {
    "phone": {"news": 0.6, "sport": 0.4, "film": 0.2},
    "desktop": {"news": 0.2, "sport": 0.4, "film": 0.6},
}
_TOPICS = ["news", "sport", "film", "music"]


def two_devices(rng: random.Random) -> Visit:
    """Two devices with opposite preferences."""
    device = rng.choice(list(_DEVICES))
    return Visit([{"device": device}], {name: {"topic": name} for name in _DEVICES[device]}, _DEVICES[device])


def six_features(rng: random.Random) -> Visit:
    """Six features of visitors, of which two matter, each together with the topic of the action."""
    user: dict[str, Any] = {
        "device": rng.choice(["phone", "desktop"]), "age": rng.randrange(18, 90),
        "country": rng.choice("abcdefgh"), "hour": rng.randrange(24),
        "weekend": rng.random() < 0.3, "visits": rng.randrange(100),
    }  # fmt: skip
    actions, means = {}, {}
    for number in range(8):
        topic, name = _TOPICS[number % 4], f"a{number}"
        actions[name] = {"topic": topic, "length": 10 * (number + 1), "fresh": number % 3 == 0}
        means[name] = 0.2 + 0.01 * number
        means[name] += 0.4 * (topic == "news" and user["age"] > 45)
        means[name] += 0.3 * (topic == "film" and user["device"] == "desktop")
        means[name] += 0.3 * (topic == "music" and user["age"] < 30)
    return Visit([{"user": user}], actions, means)


PROBLEMS: dict[str, tuple[Callable[[random.Random], Visit], int, int]] = {
    "devices": (two_devices, 1000, 8),
    "features": (six_features, 3000, 3),
}
"For each problem its visits, the number of them, and the number of runs."

_NO_CROSSES = Features({}, rest=hashed(64, numbers="bins"))
_DECLARED = Features(
    {"user.age": (18, 90), "user.device": ["phone", "desktop"], "action.topic": _TOPICS},
    crosses=[("user.age", "action.topic"), ("user.device", "action.topic")],
    rest=hashed(32, numbers="bins"),
)


def with_features(features: Features) -> Callable[[Callable[[random.Random], Visit], int, int], list[float]]:
    """A bandit with the service's default policy, as a function that returns its losses."""

    def losses(visits: Callable[[random.Random], Visit], rounds: int, seed: int) -> list[float]:
        rng, lost = random.Random(seed), []
        reward = Reward(low=-1, high=1)
        bandit = Bandit([], DEFAULT_POLICY, features=features, model="shared", reward=reward, seed=seed)
        for number in range(rounds):
            context, actions, means = visits(rng)
            listed = [wire.RankableAction(id=name, features=[each]) for name, each in actions.items()]
            call = wire.RankRequest(actions=listed, context_features=context)
            (row,) = bandit.session.decide(rank_request(call, f"event-{number}"))
            bandit.reward(row, float(rng.random() < means[row.arm]))
            lost.append(max(means.values()) - means[row.arm])
        return lost

    return losses


def without_context(policy: str) -> Callable[[Callable[[random.Random], Visit], int, int], list[float]]:
    """A bandit that ignores all features, as a function that returns its losses."""

    def losses(visits: Callable[[random.Random], Visit], rounds: int, seed: int) -> list[float]:
        rng, lost = random.Random(seed), []
        arms = list(visits(random.Random(0)).means)
        bandit = Bandit(arms, policy, reward=Reward(low=0, high=1), seed=seed)
        for _ in range(rounds):
            means = visits(rng).means
            row = bandit.choose()
            bandit.reward(row, float(rng.random() < means[row.arm]))
            lost.append(max(means.values()) - means[row.arm])
        return lost

    return losses


CHOOSERS = {
    "default features": with_features(default_features()),
    "without rest_crosses": with_features(_NO_CROSSES),
    "kl-ms+:floor=0.1, without context": without_context("kl-ms+:floor=0.1"),
    "declared features and crosses": with_features(_DECLARED),
    "uniform": without_context("uniform"),
}


def main() -> None:
    """Print regret and the loss per visitor in the last quarter, with the standard error over the runs."""
    for problem in sys.argv[1:] or PROBLEMS:
        visits, rounds, runs = PROBLEMS[problem]
        for name, losses in CHOOSERS.items():
            if problem == "devices" and name.startswith("declared"):
                continue  # its features are those of the other problem
            lost = np.array([losses(visits, rounds, seed) for seed in range(runs)])
            regret, late = lost.sum(axis=1), lost[:, -rounds // 4 :].mean()
            error = regret.std(ddof=1) / np.sqrt(runs)
            print(
                f"{problem:9} {name:34} regret {regret.mean():6.1f} +- {error:4.1f}, last quarter {late:.3f}"
            )


if __name__ == "__main__":
    main()
