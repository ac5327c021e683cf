"""The off-policy experiment of LinMED's paper (Balagopalan and Jun 2025): two arms with shared coefficients.

Many logs are simulated together, and inverse propensity scoring estimates the value of choosing uniformly.
The probabilities are exact. For Thompson sampling, the logged ones may also be estimates: the fraction of
some draws that chose the arm, and half a draw if none did, as in the authors' program.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from scipy import special

from maillard.array_types import Floats
from maillard.linear_tally import LinearTally
from maillard.policies import LinearMinimumEmpiricalDivergence, LinearThompson, policy

ROWS = LinearTally.to_grid([[0.6, 0.8], [1.0, 0.0]])
THETA = np.array([1.0, 0.0])
DEVIATION = 0.1  # of the noise
RIDGE = DEVIATION**2  # the variance of the noise over the squared norm of the coefficients
ROUNDS, LOGS = 1000, 2000
DRAWS = (100, 1000, 10_000, 100_000)
LINMED = "lin-med:emp=0.5,opt=0.5"  # LinMED-50
# The authors' Thompson sampling has the variance of LinMED's theory, about 37 times that of the noise. Their
# program multiplies the deviation by the squared width instead, which gives about 14 times the variance.
THOMPSON = ("lin-ts:draws=joint,scale=14", "lin-ts:draws=joint,scale=37")


class LinearLogs(NamedTuple):
    """Simulated logs, as arrays of rounds x logs."""

    probability: Floats  # of the chosen arm
    reward: Floats


def true_value() -> float:
    """The mean reward of a uniform choice."""
    return float((ROWS @ THETA).mean())


def second_arm_probability(spec: str, gram: Floats, products: Floats) -> Floats:
    """The exact probability of the second arm for many states of a shared model: G and b, one per row."""
    made = policy(spec, sigma2=DEVIATION**2, ridge=RIDGE, centre=0.0)
    assert isinstance(made, LinearMinimumEmpiricalDivergence | LinearThompson)
    a, b, c = made.ridge + gram[:, 0, 0], gram[:, 0, 1], made.ridge + gram[:, 1, 1]
    determinant = a * c - b * b
    x, y = products.T
    theta = np.stack([c * x - b * y, a * y - b * x]) / determinant
    step = ROWS[1] - ROWS[0]
    width2 = (c * step[0] ** 2 - 2.0 * b * step[0] * step[1] + a * step[1] ** 2) / determinant
    ahead: Floats = step @ theta  # the estimate of the second arm minus that of the first
    if isinstance(made, LinearThompson):
        return np.asarray(special.ndtr(ahead / np.sqrt(made.scale * made.sigma2 * width2)))
    growth = np.log(determinant) - 2.0 * np.log(made.ridge) - 2.0 * np.log(made.delta)
    beta = (np.sqrt(made.sigma2 * growth) + np.sqrt(made.ridge)) ** 2
    falls = np.exp(-(ahead**2) / (beta * width2))
    # The rows have length 1. The design is uniform on both, unless the scaled row of the rival adds nothing.
    both = falls * (1.0 - (ROWS[0] @ ROWS[1]) ** 2) > 1e-12
    rest = (1.0 - made.emp - made.opt) / 2
    rival = falls * (np.where(both, made.opt / 2, 0.0) + rest)
    leader = np.where(both, made.opt / 2, made.opt) + made.emp + rest
    share = rival / (rival + leader)
    return np.where(ahead == 0.0, 0.5, np.where(ahead > 0.0, 1.0 - share, share))


def simulate_logs(spec: str, logs: int, rounds: int, seed: int) -> LinearLogs:
    """Simulate logs of a policy, each from the empty state."""
    rng = np.random.default_rng([seed, rounds, *spec.encode()])
    gram, products = np.zeros((logs, 2, 2)), np.zeros((logs, 2))
    probability, reward = np.empty((rounds, logs)), np.empty((rounds, logs))
    for t in range(rounds):
        p = second_arm_probability(spec, gram, products)
        second = rng.random(logs) < p
        rows = ROWS[second.astype(np.int64)]
        reward[t] = rows @ THETA + DEVIATION * rng.standard_normal(logs)
        probability[t] = np.where(second, p, 1.0 - p)
        gram += rows[:, :, None] * rows[:, None, :]
        products += reward[t][:, None] * rows
    return LinearLogs(probability, reward)


def estimates(logs: LinearLogs, draws: int, seed: int) -> Floats:
    """The estimate of each log, with exact probabilities or, if `draws` is not 0, with estimated ones."""
    p = logs.probability
    if draws:
        counts = np.random.default_rng([seed, draws]).binomial(draws, p)
        p = np.maximum(counts, 0.5) / draws
    return np.asarray((logs.reward / p).mean(axis=0) / len(ROWS))


@functools.cache
def all_estimates(seed: int) -> dict[tuple[str, int], Floats]:
    """The estimates of all logs by policy and number of draws, 0 for exact probabilities."""
    found = {}
    for spec in (LINMED, *THOMPSON):
        logs = simulate_logs(spec, LOGS, ROUNDS, seed)
        for draws in (0, *(DRAWS if spec != LINMED else ())):
            found[spec, draws] = estimates(logs, draws, seed)
    return found
