"""Logs of live decisions with random rewards, for the tests of jobs."""

from __future__ import annotations

import random
from pathlib import Path

from maillard import Bandit, Reward

UNIT_RANGE = Reward(low=0, high=1)
MEANS = {"red": 0.2, "green": 0.35, "blue": 0.5}


def fill(
    where: Path | str,
    policy: str,
    decisions: int = 600,
    reward: Reward = UNIT_RANGE,
    means=MEANS,
    batch=20,
    experiment="home",
) -> str:
    """A log of live decisions with Bernoulli rewards of these means."""
    rng = random.Random(1)
    with Bandit(list(means), policy, reward=reward, log=where, experiment=experiment) as bandit:
        for _ in range(decisions // batch):
            rows = [
                {"decision": each.id, "value": float(rng.random() < means[each.arm])}
                for each in bandit.choose(size=batch)
            ]
            bandit.rewards(rows)
    return str(where)
