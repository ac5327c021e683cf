"""Estimates of an arm that the policy gave up, from logs without a floor.

They are unbiased, but their error does not shrink with the length of the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.coverage.methods import DECAY, NORMAL
from benchmarks.coverage.parallel import Work, gather
from maillard import policy, simulate_log
from maillard.evaluation.sequential import aipw
from maillard.policies import WithFloor
from maillard.problems import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.simulation.simulated_logs import Log

    Floats = NDArray[np.float64]

__all__ = [
    "ESTIMATORS",
    "FLOORS",
    "Errors",
    "coverage_by_floor",
    "errors",
    "ips_deviation",
    "z_score",
]

MEANS, ARM = (0.6, 0.4), 1
HORIZONS = (200, 2000, 20_000)
ESTIMATORS = ("IPS", "SNIPS", "AIPW", "AIPW, √e", "AIPW, e", "sample mean")
FLOORS = (0.0, 0.02, 0.05, 0.1)
BLOCK = 20  # runs at a time
# Rows with smaller propensities are left out of the test of unbiasedness: they would dominate its variance.
LEAST = 0.01
WORST, NOISY = 0, (0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Errors:
    """Errors of estimates of the worse arm's mean: horizon x estimator x run."""

    values: Floats

    @property
    def root_mean_square(self) -> Floats:
        """The root mean square error: horizon x estimator."""
        found: Floats = np.sqrt((self.values**2).mean(axis=2))
        return found

    def quantile(self, level: float) -> Floats:
        """A quantile of the absolute error: horizon x estimator."""
        found: Floats = np.quantile(np.abs(self.values), level, axis=2)
        return found


def _logs(spec: str, horizon: int, seed: int, block: int) -> list[Log]:
    problem = "bernoulli:" + ",".join(map(str, MEANS))
    return simulate_log(spec, problem, horizon, seed * 1_000_003 + block, runs=BLOCK, threads=1)


def _columns(log: Log, arm: int, end: int | None = None) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Arms, rewards, weights and propensities of one target arm up to a round, without the forced rounds."""
    assert log.log_probabilities is not None
    rows = slice(log.forced, end)
    arms, rewards = log.arms[rows], log.rewards[rows]
    probability = np.exp(log.log_probabilities[rows, arm])
    weight = np.divide(1.0, probability, out=np.zeros_like(probability), where=arms == arm)
    return arms, rewards, weight, probability


def _estimates(log: Log, horizon: int) -> list[float]:
    arms, rewards, weight, probability = _columns(log, ARM, horizon)
    target_probabilities, target_row = np.eye(1, len(MEANS), ARM), np.zeros(arms.size, np.int64)
    columns = (arms, rewards, weight, probability, target_row, target_probabilities)
    found = aipw.estimate(columns, float(arms.size), DECAY)[:, 0]
    total, mine = weight.sum(), rewards[arms == ARM]
    return [
        float((weight * rewards).mean()),
        float((weight * rewards).sum() / total) if total else 0.0,
        *found[:3].tolist(),
        float(mine.mean()) if mine.size else 0.0,
    ]


def errors(runs: int, seed: int, work: Work) -> Errors:
    """Errors of the estimates of the worse arm at each horizon, for MS on two Bernoulli arms."""

    def block(number: int) -> list[list[list[float]]]:
        logs = _logs("ms", HORIZONS[-1], seed, number)
        return [[_estimates(log, horizon) for horizon in HORIZONS] for log in logs]

    made = gather(work, block, -(-runs // BLOCK), "errors without a floor", BLOCK * HORIZONS[-1] / 2)
    table = np.array([each for part in made for each in part])[:runs]
    return Errors(table.transpose(1, 2, 0) - MEANS[ARM])


def ips_deviation(runs: int, seed: int, work: Work, *, horizon: int = 200, late: bool = False) -> Floats:
    """For each run, the mean of w_t r_t - μ of the worse arm over the rows with p_t >= LEAST.

    Its expectation is 0 if IPS is unbiased. p_t is known before the choice, so leaving out rows by p_t does
    not change the expectation. With these rows, a few of them would dominate the variance, and a z-score
    would mean little. `late` uses the probability after the update of the row, as if it were computed when
    the reward arrives. The test must detect this mistake.
    """

    def one(log: Log) -> float:
        arms, rewards, weight, probability = _columns(log, ARM)
        if late:
            arms, rewards, probability = arms[:-1], rewards[:-1], probability[1:]
            weight = np.where(arms == ARM, 1.0 / probability, 0.0)
        included = probability >= LEAST
        return float(np.where(included, weight * rewards - MEANS[ARM], 0.0).mean())

    made = gather(
        work,
        lambda number: [one(log) for log in _logs("ms", horizon, seed, number)],
        -(-runs // BLOCK),
        "unbiasedness without a floor",
        BLOCK * horizon / 2,
    )
    return np.array([each for part in made for each in part])[:runs]


def z_score(values: Floats) -> float:
    """The z-score of the mean of independent runs against 0."""
    return float(values.mean() / values.std(ddof=1) * math.sqrt(values.size))


def coverage_by_floor(runs: int, seed: int, work: Work, *, horizon: int = 5000) -> Floats:
    """Coverage of 90% intervals of the worst arm, by floor and weighting of AIPW.

    The logs are of MS on Gaussian arms with means 0.5, 1 and 1.5 and σ = 1.
    """
    problem, k = Gaussian(NOISY, variance=1.0), len(NOISY)

    def block(number: int) -> Floats:
        floor, place = divmod(number, -(-runs // BLOCK))
        inner = policy("ms", sigma2=1.0)
        made = WithFloor(inner, FLOORS[floor]) if FLOORS[floor] else inner
        seeded = seed * 1_000_003 + place
        covered = np.zeros((BLOCK, 4))
        for run, log in enumerate(simulate_log(made, problem, horizon, seeded, runs=BLOCK, threads=1)):
            arms, rewards, weight, probability = _columns(log, WORST)
            target_row = np.zeros(arms.size, np.int64)
            found = aipw.estimate(
                (arms, rewards, weight, probability, target_row, np.eye(1, k, WORST)), float(arms.size), 0.7
            )
            covered[run] = np.abs(found[:, 0] - NOISY[WORST]) <= NORMAL * found[:, 1]
        return covered

    blocks = -(-runs // BLOCK)
    made = gather(work, block, len(FLOORS) * blocks, "coverage by floor", BLOCK * horizon / 3)
    table = np.array(made).reshape(len(FLOORS), blocks * BLOCK, 4)[:, :runs]
    coverage: Floats = table.mean(axis=1)
    return coverage
