"""Measure how long policies take to compute probabilities, compared with a floor measured in the same run.

The floor is the minimal work in NumPy: a quotient, a maximum, an exponential and a sum over K arms.
Quadrature is compared with the usual approximation: sample the scores of all arms many times
and count the winners. Linear policies are compared with the quadratic forms of all arms, from given inverses.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
import timeit
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from maillard import Bandit, LinearTally, Reward, Tally, explore, policy

CLOSED = (
    "ms",
    "ms+",
    "ms-practical",
    "kl-ms",
    "boltzmann",
    "ucb1",
    "aoucb",
    "moss",
    "imed",
    "ocucb-n",
    "adaucb",
    "kl-ucb",
)
QUADRATURE = ("ts", "ts-sg", "boltzmann-gumbel", "ts-bernoulli", "phe", "giro")
LIMITS = {
    ("ms+", 10): 30e-6,
    ("ms+", 1000): 100e-6,
    ("ts", 1000): 15e-3,
    ("ts-bernoulli", 10): 5e-3,
    ("phe", 10): 50e-3,
    ("giro", 10): 50e-3,
}
AFTER_REWARD = ("ms+", "kl-ms", "ucb1", "ts", "ts-bernoulli", "phe")
AFTER_REWARD_LIMIT = 2e-3  # with 20 warm arms
LINEAR = (
    "lin-ms",
    "lin-med",
    "lin-rand-ucb",
    "igw",
    "lin-epsilon-greedy",
    "lin-boltzmann:eta=4",
    "lin-ucb",
    "lin-imed",
    "lin-ts",
)
LINEAR_LIMITS = {("cached", 10): 60e-6, ("changed", 10): 200e-6, ("new", 100): 20e-3}  # except for quadrature
IMPORT_LIMIT = 0.2
SAMPLES = 20_000


def seconds(function: Callable[[], object]) -> float:
    """Return the best CPU time of several repetitions, each long enough to measure."""
    timer = timeit.Timer(function, timer=time.process_time)
    number, _ = timer.autorange()
    return min(timer.repeat(repeat=5, number=max(1, number // 4))) / max(1, number // 4)


def tally_of(k: int, rng: np.random.Generator, *, thousandfold: bool) -> Tally:
    """Return a random tally: with similar scales of the arms, or with scales that differ a thousandfold."""
    pulls = np.exp(rng.uniform(0, np.log(1e6 if thousandfold else 1e3), k)).astype(np.int64)
    return Tally(pulls, np.rint(pulls * rng.random(k)))


def floor(tally: Tally) -> Callable[[], object]:
    """Return a function that does the minimal work."""
    pulls, sums = tally.pulls.astype(np.float64), tally.sums

    def run() -> object:
        means = sums / pulls
        weights = np.exp(means - means.max())
        return weights / weights.sum()

    return run


def simulated(tally: Tally) -> Callable[[], object]:
    """Return a function that estimates Thompson probabilities by counting winners."""
    rng = np.random.default_rng(0)
    means, scales = tally.means, np.sqrt(0.25 / tally.pulls)

    def run() -> object:
        counts = np.zeros(len(tally))
        for _ in range(10):
            scores = rng.normal(means, scales, (SAMPLES // 10, len(tally)))
            counts += np.bincount(scores.argmax(axis=1), minlength=len(tally))
        return counts / SAMPLES

    return run


def linear_timings(name: str, features: int, arms: int, *, shared: bool) -> dict[str, float]:
    """Return seconds per call: for an unchanged state, after one reward, and with a new policy."""
    rng = np.random.default_rng(0)
    rows = LinearTally.to_grid(rng.uniform(-1, 1, (10 * arms, features)))
    tally = LinearTally.empty(features, None if shared else arms)
    for i, row in enumerate(rows):
        tally.add(row, float(rng.random()), arm=None if shared else i % arms)
    made = policy(name, reward_range=(0, 1))
    x = rows[:arms] if shared else rows[0]

    def changed() -> float:
        tally.add(rows[1], 0.5, arm=None if shared else 1)
        start = time.perf_counter()
        made.probabilities(tally, x)
        return time.perf_counter() - start

    def new() -> float:
        fresh = policy(name, reward_range=(0, 1))
        start = time.perf_counter()
        fresh.probabilities(tally, x)
        return time.perf_counter() - start

    made.probabilities(tally, x)
    return {
        "cached": seconds(lambda: made.probabilities(tally, x)),
        "changed": min(changed() for _ in range(50)),
        "new": min(new() for _ in range(20)),
    }


def quadratic_forms(features: int, arms: int) -> Callable[[], object]:
    """Return a function that computes x' A_a x for every arm, the work that no linear policy can avoid."""
    rng = np.random.default_rng(0)
    matrices, x = rng.normal(size=(arms, features, features)), rng.normal(size=features)
    return lambda: (matrices @ x) @ x


def after_reward(name: str, warm: int) -> float:
    """Return the CPU time of a decision of 1,000 arms after a reward; only `warm` of them have rewards."""
    rng = np.random.default_rng(0)
    with warnings.catch_warnings(action="ignore"):  # advice on the policy
        bandit = Bandit([f"arm {i}" for i in range(1000)], name, reward=Reward(low=0, high=1), seed=0)
    for decision in bandit.choose(size=warm):
        bandit.reward(decision.id, float(rng.random()))
    decision, best = bandit.choose(), np.inf
    for _ in range(20):
        bandit.reward(decision.id, float(rng.random()))
        start = time.process_time()
        decision = bandit.choose()
        best = min(best, time.process_time() - start)
    return best


def import_seconds() -> float:
    """Return the time of `import maillard` in a new process, without the start of Python."""

    def best(code: str) -> float:
        command = [sys.executable, "-c", code]
        return min(timeit.repeat(lambda: subprocess.run(command, check=True), number=1, repeat=7))

    return best("import maillard") - best("pass")


def main() -> None:
    """Print the table and write it as JSON."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, float | int | str]] = []

    def report(
        name: str, k: int, taken: float, reference: float, what: str, *, limit: float | None = None
    ) -> None:
        limit = LIMITS.get((name, k), limit)
        rows.append({"name": name, "arms": k, "seconds": taken, "ratio": taken / reference, "beside": what})
        note = (
            "" if limit is None else f"  limit {limit * 1e6:,.0f} us: {'met' if taken <= limit else 'MISSED'}"
        )
        print(
            f"{name:34s} {k:9,d} {taken * 1e6:14,.1f} us {taken / reference:10.2f} x {what}{note}", flush=True
        )

    print(f"{'policy':34s} {'arms':>9s} {'per call':>17s} {'ratio':>12s}")
    for k in (10, 1000, 1_000_000):
        tally = tally_of(k, rng, thousandfold=False)
        base = seconds(floor(tally))
        for name in CLOSED:
            made = policy(name, sigma2=0.25, horizon=10**6)
            report(name, k, seconds(lambda made=made, tally=tally: made.probabilities(tally)), base, "floor")  # type: ignore[misc]
    for k in (2, 10, 100, 1000):
        tally = tally_of(k, rng, thousandfold=True)
        base = seconds(simulated(tally))
        for name in QUADRATURE:
            made = policy(name, sigma2=0.25)
            taken = seconds(lambda made=made, tally=tally: made.probabilities(tally))  # type: ignore[misc]
            report(name, k, taken, base, f"{SAMPLES} samples")
    base = seconds(floor(tally))
    for name, warm in itertools.product(AFTER_REWARD, (20, 200)):
        limit = AFTER_REWARD_LIMIT if warm == 20 else None
        report(
            f"{name} after a reward, {warm} warm", 1000, after_reward(name, warm), base, "floor", limit=limit
        )
    for features, k in ((10, 10), (50, 100)):
        base = seconds(quadratic_forms(features, k))
        for name, shared in itertools.product(LINEAR, (False, True)):
            limits = {} if (shared and k == 10) or name == "lin-ts" else LINEAR_LIMITS
            for when, taken in linear_timings(name, features, k, shared=shared).items():
                called = f"{name} {'shared ' if shared else ''}{when}"
                what = f"quadratic forms, d = {features}"
                report(called, k, taken, base, what, limit=limits.get((when, k)))
    values, counts = rng.normal(size=(4096, 18)), rng.integers(0, 1000, (4096, 18))

    def softmax() -> object:
        weights = np.exp(values - values.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    report(
        "explore 4096 x 18",
        18,
        seconds(lambda: explore(values, counts, sigma2=0.25)),
        seconds(softmax),
        "softmax",
    )
    taken = import_seconds()
    command = [sys.executable, "-c", "import numpy"]
    numpy_alone = min(timeit.repeat(lambda: subprocess.run(command, check=True), number=1, repeat=7))
    verdict = "met" if taken <= IMPORT_LIMIT else "MISSED"
    print(
        f"import maillard {taken * 1e3:.0f} ms, without the start of Python; "
        f"limit {IMPORT_LIMIT * 1e3:.0f} ms: {verdict}"
    )
    rows.append(
        {
            "name": "import",
            "arms": 0,
            "seconds": taken,
            "ratio": taken / numpy_alone,
            "beside": "python -c 'import numpy'",
        }
    )
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
