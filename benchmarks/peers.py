"""Measure the rounds per CPU second of other libraries: on ten Bernoulli arms, and on a linear problem.

`python -m benchmarks.peers FILE` runs in a separate environment (`make peers`) and imports nothing from this
project. Each library is used as its documentation says: online, round by round, or with its own simulator if
it has one. The first problem is the paper's. In the second, each round has a context of ten features, and
each of ten arms has its own coefficients; FILE has these peers under "contexts".
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
from numpy.typing import NDArray

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
    started, played, taken = time.process_time(), 0, 0.0
    while played < HORIZON and taken < TIME_LIMIT:
        for _ in range(100):
            arm = choose()
            update(arm, int(uniform() < MEANS[arm]))
        played, taken = played + 100, time.process_time() - started
    return played / taken


def pymab(module: str, name: str) -> float:
    """Return the rounds per second of pymab's own experiment on its default backend."""
    package, trials = import_module("pymab"), 5
    experiment = package.Experiment(
        environment=package.BanditEnvironment(np.array(MEANS), package.BernoulliReward()),
        policies={name: getattr(import_module(f"pymab.policies.{module}"), name)(n_arms=len(MEANS))},
        config=package.ExperimentConfig(horizon=HORIZON, n_replicates=trials, seed=0),
    )
    started = time.process_time()
    experiment.run()
    return trials * HORIZON / (time.process_time() - started)


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


FEATURES = 10

# Choose an arm for a context; update with arm, context and reward.
ContextualPlayer = tuple[
    Callable[[NDArray[np.float64]], int], Callable[[int, NDArray[np.float64], float], object]
]


def river_lin_ucb() -> ContextualPlayer:
    """LinUCB with one model per arm; contexts are mappings, as everywhere in river."""
    policy = import_module("river.bandit").LinUCBDisjoint(seed=0)
    names = [f"x{i}" for i in range(FEATURES)]

    def mapping(x: NDArray[np.float64]) -> dict[str, float]:
        return dict(zip(names, x.tolist(), strict=True))

    return (
        lambda x: policy.pull(ARMS, context=mapping(x)),
        lambda arm, x, reward: policy.update(arm, mapping(x), reward),
    )


def mabwiser_linear(name: str, **options: float) -> ContextualPlayer:
    """A linear learning policy, updated after each round."""
    module = import_module("mabwiser.mab")
    policy = module.MAB(ARMS, getattr(module.LearningPolicy, name)(**options), seed=0)
    rng = np.random.default_rng(1)
    first = rng.uniform(-1, 1, (len(ARMS), FEATURES))
    policy.fit(ARMS, rng.random(len(ARMS)), first)  # it cannot predict before a first fit
    return (
        lambda x: policy.predict(x[np.newaxis]),
        lambda arm, x, reward: policy.partial_fit([arm], [reward], x[np.newaxis]),
    )


def vowpal_wabbit_squarecb(*, by_action: bool) -> ContextualPlayer:
    """SquareCB: an example is one line of text, or, as usual for actions with features, one per action."""
    kind = "--cb_explore_adf -q xa" if by_action else f"--cb_explore {len(ARMS)}"
    workspace = import_module("vowpalwabbit").Workspace(f"{kind} --squarecb --quiet")
    names = [f"x{i}" for i in range(FEATURES)]
    actions = [f"|a arm{arm}" for arm in ARMS]
    generator = random.Random(0)
    shown: tuple[str, list[float]] = ("", [])

    def choose(x: NDArray[np.float64]) -> int:
        nonlocal shown
        text = "|x " + " ".join([f"{n}:{value:.6g}" for n, value in zip(names, x.tolist(), strict=True)])
        shown = text, workspace.predict([f"shared {text}", *actions] if by_action else text)
        return generator.choices(ARMS, shown[1])[0]

    def update(arm: int, _x: NDArray[np.float64], reward: float) -> None:
        text, probabilities = shown
        outcome = f"{-reward:.6g}:{probabilities[arm]:.6g}"
        if by_action:
            labelled = f"0:{outcome} {actions[arm]}"
            workspace.learn([f"shared {text}", *actions[:arm], labelled, *actions[arm + 1 :]])
        else:
            workspace.learn(f"{arm + 1}:{outcome} {text}")

    return choose, update


def numpy_lin_med() -> ContextualPlayer:
    """LinMED for disjoint models as in typical research scripts: inverses are updated by rank one."""
    rng = np.random.default_rng(0)
    k, ridge, sigma2, delta, emp = len(ARMS), 1.0, 0.25, 0.01, 0.9
    inverse = np.stack([np.eye(FEATURES) / ridge] * k)
    products, theta = np.zeros((k, FEATURES)), np.zeros((k, FEATURES))
    log_det = 0.0

    def choose(x: NDArray[np.float64]) -> int:
        mu = theta @ x
        s2 = (inverse @ x) @ x
        best = int(mu.argmax())
        beta = (np.sqrt(sigma2 * (log_det - 2 * np.log(delta))) + np.sqrt(ridge * k)) ** 2
        weights = np.exp(-((mu[best] - mu) ** 2) / (beta * (s2 + s2[best]))) * (1 - emp) / k
        weights[best] = emp + (1 - emp) / k
        return int(rng.choice(k, p=weights / weights.sum()))

    def update(arm: int, x: NDArray[np.float64], reward: float) -> None:
        nonlocal log_det
        y = inverse[arm] @ x
        growth = 1.0 + x @ y
        log_det += np.log(growth)
        inverse[arm] -= np.outer(y, y) / growth
        products[arm] += reward * x
        theta[arm] = inverse[arm] @ products[arm]

    return choose, update


def contextual(make: Callable[[], ContextualPlayer]) -> float:
    """Return the rounds per second of a policy on the linear problem; contexts and noise are given."""
    choose, update = make()
    rng = np.random.default_rng(0)
    coefficients = rng.normal(size=(len(ARMS), FEATURES)) / np.sqrt(FEATURES)
    contexts = rng.uniform(-1, 1, (HORIZON, FEATURES))
    rewards = contexts @ coefficients.T + rng.normal(0, 0.5, (HORIZON, 1))
    started, played, taken = time.process_time(), 0, 0.0
    while played < HORIZON and taken < TIME_LIMIT:
        for t in range(played, played + 100):
            arm = choose(contexts[t])
            update(arm, contexts[t], float(rewards[t, arm]))
        played, taken = played + 100, time.process_time() - started
    return played / taken


CONTEXTUAL_PEERS: tuple[tuple[str, str, Callable[[], float]], ...] = (
    ("river LinUCBDisjoint", "lin-ucb", lambda: contextual(river_lin_ucb)),
    ("mabwiser LinTS", "lin-ts", lambda: contextual(lambda: mabwiser_linear("LinTS", alpha=1))),
    ("mabwiser LinUCB", "lin-ucb", lambda: contextual(lambda: mabwiser_linear("LinUCB", alpha=1))),
    (
        "vowpalwabbit SquareCB",
        "igw",
        lambda: contextual(lambda: vowpal_wabbit_squarecb(by_action=False)),
    ),
    (
        "vowpalwabbit SquareCB, ADF",
        "igw",
        lambda: contextual(lambda: vowpal_wabbit_squarecb(by_action=True)),
    ),
    ("numpy loop LinMED", "lin-med", lambda: contextual(numpy_lin_med)),
)


def measure(peers: tuple[tuple[str, str, Callable[[], float]], ...]) -> list[dict[str, str | float]]:
    """Return a row for each peer, and print it."""
    rows: list[dict[str, str | float]] = []
    for name, like, speed in peers:
        version = metadata.version(name.split()[0])
        best = max(speed() for _ in range(REPETITIONS))
        rows.append({"name": name, "version": version, "like": like, "rounds_a_second": best})
        print(f"{name:28s} {version:8s} {best:12,.0f} rounds/s", flush=True)
    return rows


def main() -> None:
    """Print the tables and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args().file
    with import_module("threadpoolctl").threadpool_limits(1):  # a small product on two threads is slower
        made = {"problem": "bernoulli-equal:arms=10", "horizon": HORIZON, "rows": measure(PEERS)}
        print(f"{len(ARMS)} arms with their own coefficients, {FEATURES} features")
        rows = measure(CONTEXTUAL_PEERS)
    contexts = {"arms": len(ARMS), "features": FEATURES, "horizon": HORIZON, "rows": rows}
    file.write_text(json.dumps(made | {"contexts": contexts}, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
