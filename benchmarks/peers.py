"""Measure the rounds per second of other libraries on the paper's problem with ten Bernoulli arms.

`python -m benchmarks.peers FILE` runs in a separate environment (`make peers`) and imports nothing from this
project. Each library is used as its documentation says: online, round by round, or with its own simulator if
it has one.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path

import numpy as np

MEANS = (0.1, *[0.05] * 9)
ARMS = list(range(len(MEANS)))
HORIZON = 20_000
TIME_LIMIT = 2.0  # seconds of one repetition, which then ends even before the horizon
REPETITIONS = 3

Player = tuple[Callable[[], int], Callable[[int, int], object]]  # choose an arm; update with arm and reward


def river_thompson() -> Player:
    """Thompson sampling with the prior Beta(1, 1)."""
    reward = import_module("river.proba").Beta()
    policy = import_module("river.bandit").ThompsonSampling(reward_obj=reward, seed=0)
    return lambda: policy.pull(ARMS), policy.update


def river_ucb() -> Player:
    """UCB1, which river calls UCB with delta=1."""
    policy = import_module("river.bandit").UCB(delta=1, seed=0)
    return lambda: policy.pull(ARMS), policy.update


def mabwiser(name: str, **options: float) -> Player:
    """A learning policy without context, updated after each round."""
    module = import_module("mabwiser.mab")
    policy = module.MAB(ARMS, getattr(module.LearningPolicy, name)(**options), seed=0)
    uniform = random.Random(1).random
    policy.fit(ARMS, [int(uniform() < mean) for mean in MEANS])  # it cannot predict before a first fit
    return policy.predict, lambda arm, reward: policy.partial_fit([arm], [reward])


def numpy_kl_ms() -> Player:
    """KL-MS as in typical research scripts: a Python loop over rounds, NumPy over the arms."""
    rng = np.random.default_rng(0)
    pulls, sums = np.zeros(len(MEANS)), np.zeros(len(MEANS))

    def choose() -> int:
        if pulls.min() == 0:
            return int(pulls.argmin())
        means = np.clip(sums / pulls, 1e-12, 1 - 1e-12)
        best = means.max()
        kl = means * np.log(means / best) + (1 - means) * np.log((1 - means) / (1 - best))
        weights = np.exp(-pulls * kl)
        return int(rng.choice(len(MEANS), p=weights / weights.sum()))

    def update(arm: int, reward: int) -> None:
        pulls[arm] += 1
        sums[arm] += reward

    return choose, update


def online(make: Callable[[], Player]) -> float:
    """Return the rounds per second of a policy, including the generation of rewards."""
    choose, update = make()
    uniform = random.Random(0).random
    started, played, taken = time.perf_counter(), 0, 0.0
    while played < HORIZON and taken < TIME_LIMIT:
        for _ in range(100):
            arm = choose()
            update(arm, int(uniform() < MEANS[arm]))
        played, taken = played + 100, time.perf_counter() - started
    return played / taken


def pymab(module: str, name: str) -> float:
    """Return the rounds per second of pymab's own experiment on its default backend."""
    package, trials = import_module("pymab"), 5
    experiment = package.Experiment(
        environment=package.BanditEnvironment(np.array(MEANS), package.BernoulliReward()),
        policies={name: getattr(import_module(f"pymab.policies.{module}"), name)(n_arms=len(MEANS))},
        config=package.ExperimentConfig(horizon=HORIZON, n_replicates=trials, seed=0),
    )
    started = time.perf_counter()
    experiment.run()
    return trials * HORIZON / (time.perf_counter() - started)


# The peer, maillard's policy with the same choice distribution, and the function that measures the peer.
PEERS: tuple[tuple[str, str, Callable[[], float]], ...] = (
    ("river ThompsonSampling", "ts-bernoulli", lambda: online(river_thompson)),
    ("river UCB", "ucb1", lambda: online(river_ucb)),
    ("mabwiser ThompsonSampling", "ts-bernoulli", lambda: online(lambda: mabwiser("ThompsonSampling"))),
    ("mabwiser UCB1", "ucb1", lambda: online(lambda: mabwiser("UCB1", alpha=1))),
    ("pymab Thompson", "ts-bernoulli", lambda: pymab("thompson_sampling", "BernoulliThompsonSamplingPolicy")),
    ("pymab UCB", "ucb1", lambda: pymab("ucb", "UCBPolicy")),
    ("numpy loop KL-MS", "kl-ms", lambda: online(numpy_kl_ms)),
)


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args().file
    rows: list[dict[str, str | float]] = []
    for name, like, speed in PEERS:
        version = metadata.version(name.split()[0])
        best = max(speed() for _ in range(REPETITIONS))
        rows.append({"name": name, "version": version, "like": like, "rounds_a_second": best})
        print(f"{name:28s} {version:8s} {best:12,.0f} rounds/s", flush=True)
    made = {"problem": "bernoulli-equal:arms=10", "horizon": HORIZON, "rows": rows}
    file.write_text(json.dumps(made, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
