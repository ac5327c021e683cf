"""Measure choices with an immediate reward, one after the other, next to other libraries.

`python -m benchmarks.one_by_one --peers FILE`, where `benchmarks.peers` has written FILE. The problems and
the loop are those of `benchmarks.peers`. A round of ours also logs the decision in memory, with all its
probabilities; the other libraries log nothing. All speeds are per second of CPU time, which other programs on
the machine affect less.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import ARMS, FEATURES, HORIZON, MEANS, REPETITIONS, TIME_LIMIT
from maillard import Bandit, Features, Reward

NAMES = [f"arm-{arm}" for arm in ARMS]
BEST = "kl-ms+"  # the default policy for clicks: its probabilities have a closed form
BEST_WITH_CONTEXTS = "lin-ms"

Round = Callable[[int], None]
Problem = Callable[[str], Round]


def clicks(policy: str) -> Round:
    """A round of the first problem: ten Bernoulli arms."""
    bandit = Bandit(NAMES, policy, reward=Reward(low=0, high=1))
    uniform, rates = random.Random(0).random, dict(zip(NAMES, MEANS, strict=True))

    def play(_number: int) -> None:
        decision = bandit.choose()
        bandit.reward(decision, float(uniform() < rates[decision.arm]))

    return play


def contexts(policy: str) -> Round:
    """A round of the second problem: ten arms with their own coefficients of ten features."""
    keys = [f"x{i}" for i in range(FEATURES)]
    features = Features(dict.fromkeys(keys, (-1, 1)), intercept=False)
    bandit = Bandit(NAMES, policy, features=features, reward=Reward(low=-8, high=8))
    rng = np.random.default_rng(0)
    coefficients = rng.normal(size=(len(NAMES), FEATURES)) / np.sqrt(FEATURES)
    given = rng.uniform(-1, 1, (HORIZON, FEATURES))
    rewards = np.clip(given @ coefficients.T + rng.normal(0, 0.5, (HORIZON, 1)), -8, 8)
    rows = [dict(zip(keys, row, strict=True)) for row in given.tolist()]
    place = {name: index for index, name in enumerate(NAMES)}

    def play(number: int) -> None:
        decision = bandit.choose(context=rows[number])
        bandit.reward(decision, float(rewards[number, place[decision.arm]]))

    return play


def speed(make: Problem, policy: str) -> float:
    """Return the rounds per second of CPU time, the best of some repetitions."""
    speeds = []
    for _ in range(REPETITIONS):
        play = make(policy)
        started, played, taken = time.process_time(), 0, 0.0
        while played < HORIZON and taken < TIME_LIMIT:
            for number in range(played, played + 100):
                play(number)
            played, taken = played + 100, time.process_time() - started
        speeds.append(played / taken)
    return max(speeds)


def compare(rows: list[dict[str, Any]], make: Problem, best: str) -> None:
    """Print the speed of each peer, and ours with the same policy and with the one that we recommend."""
    print(f"{'rounds per second':30s}{'peer':>10s}{'maillard':>10s}")
    ours = {name: speed(make, name) for name in [*dict.fromkeys(row["like"] for row in rows), best]}
    for row in rows:
        mine = ours[row["like"]]
        print(f"{row['name']:30s}{row['rounds_a_second']:10,.0f}{mine:10,.0f}  {row['like']}", flush=True)
    print(f"{'':40s}{ours[best]:10,.0f}  {best}", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, metavar="FILE", required=True, help="speeds of other libraries")
    made = json.loads(parser.parse_args().peers.read_text(encoding="utf8"))
    compare(made["rows"], clicks, BEST)
    compare(made["contexts"]["rows"], contexts, BEST_WITH_CONTEXTS)


if __name__ == "__main__":
    main()
