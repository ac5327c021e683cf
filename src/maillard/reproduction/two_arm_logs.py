"""Many small logs of two arms, simulated together, and their evaluation by inverse propensity scoring.

The probabilities of both policies are exact. The logged ones may be estimates: the fraction of a few samples
in which the arm was chosen, as one would log for Thompson sampling without a formula.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from maillard.array_types import Bools, Floats
from maillard.policies import policy
from maillard.problems import problem
from maillard.reproduction.claim_statistics import log_deviation

PROBLEM = "bernoulli:0.6,0.4"
COUNT, ROUNDS = 2000, 500  # number of logs whose estimates are averaged; rounds of each
ERROR_ROUNDS = (30, 100, 300, 1000, 3000)  # rounds at which the error of a single estimate is reported
FLOOR = 0.1
SAMPLES = (8, 16, 32, 64)
_ERROR_LOGS = 500  # number of logs for these errors


class Logs(NamedTuple):
    """Simulated logs, as arrays of rounds x logs."""

    probability: Floats  # of the worse arm
    worse: Bools  # whether the worse arm was chosen
    reward: Floats


def _worse_probability(name: str, made: Any, n: Floats, s: Floats) -> Floats:
    """The exact probability of the worse arm, from the pulls and sums of both arms."""
    p_worse: Floats
    if name == "ts":
        mean, deviation = made.score(n, s)
        p_worse = special.ndtr((mean[0] - mean[1]) / np.hypot(*deviation))
    else:
        mean = s / n
        best = mean.max(axis=0)
        log = np.where(mean == best, made.leader(n, None), made.rival(n, mean, best, None))
        p_worse = special.expit(log[0] - log[1])
    return p_worse


def simulate_logs(name: str, count: int, rounds: int, seed: int, floor: float = 0.0) -> Logs:
    """Simulate `count` logs of "ms" or "ts": each arm is pulled once, then `rounds` rounds are logged."""
    rng = np.random.default_rng([seed, *name.encode(), rounds, round(1000 * floor)])
    truth, made = true_means()[:, np.newaxis], policy(name, sigma2=problem(PROBLEM).sigma2)
    n, s = np.ones((2, count)), (rng.random((2, count)) < truth).astype(np.float64)
    probability, reward = np.empty((rounds, count)), np.empty((rounds, count))
    worse = np.empty((rounds, count), np.bool_)
    for t in range(rounds):
        p = (1.0 - floor) * _worse_probability(name, made, n, s) + floor / 2
        choice, outcome = rng.random((2, count))
        chosen = choice < p
        y = outcome < np.where(chosen, *truth)
        probability[t], worse[t], reward[t] = p, chosen, y
        for arm, pulled in enumerate((chosen, ~chosen)):
            n[arm] += pulled
            s[arm] += pulled & y
    return Logs(probability, worse, reward)


def true_means() -> Floats:
    """The true means of the worse and of the better arm."""
    return np.array(sorted(problem(PROBLEM).true_means))


def ips_scores(logs: Logs, probability: Floats | None = None, *, better: bool = False) -> Floats:
    """The inverse propensity scores of an arm: reward / p in the rounds that chose it, otherwise 0.

    `probability` is the probability of the worse arm that was logged; by default the exact one.
    """
    p = logs.probability if probability is None else probability
    chosen, p = (~logs.worse, 1.0 - p) if better else (logs.worse, p)
    return np.divide(logs.reward, p, out=np.zeros_like(p), where=chosen)


@functools.cache
def averaged_logs(name: str, seed: int) -> Logs:
    """The logs whose estimates are averaged."""
    return simulate_logs(name, COUNT, ROUNDS, seed)


@functools.cache
def single_errors(seed: int) -> dict[str, tuple[Floats, Floats]]:
    """The standard deviation of a single estimate, and its standard error, by arm and policy.

    The arrays have one value for each of `ERROR_ROUNDS`.
    """
    found = {}
    rounds = ERROR_ROUNDS[-1]
    plain, floored = (simulate_logs("ms", _ERROR_LOGS, rounds, seed, floor) for floor in (0.0, FLOOR))
    for who, logs, better in (
        ("better arm, MS", plain, True),
        ("worse arm, MS", plain, False),
        (f"worse arm, MS with a floor of {FLOOR:g}", floored, False),
    ):
        added = ips_scores(logs, better=better).cumsum(axis=0)
        logarithms = [log_deviation(added[t - 1] / t) for t in ERROR_ROUNDS]
        deviations = np.exp([each.value for each in logarithms])
        found[who] = deviations, deviations * [each.error for each in logarithms]
    return found


class SampledPropensities(NamedTuple):
    """Estimates of the worse arm's mean on logs of Thompson sampling, for one type of logged probability."""

    draws: int  # the number of samples; 0 for the exact probability
    estimates: Floats  # one for each log
    expected: float  # the expectation of p / logged p, averaged over rows: the mean of 1 - (1 - p)^draws


@functools.cache
def sampled_propensities(seed: int) -> tuple[SampledPropensities, ...]:
    """Estimates with exact probabilities, and with fractions of samples of which one was served.

    A served arm of probability p is chosen in 1 + Binomial(M - 1, p) of M samples. The mean of p / fraction
    is 1 - (1 - p)^M.
    """
    logs, rng = averaged_logs("ts", seed), np.random.default_rng([seed, *SAMPLES])
    found = [SampledPropensities(0, ips_scores(logs).mean(axis=0), 1.0)]
    p = logs.probability[logs.worse]
    for draws in SAMPLES:
        logged = np.ones_like(logs.probability)
        logged[logs.worse] = (1 + rng.binomial(draws - 1, p)) / draws
        expected = float((1.0 - (1.0 - logs.probability) ** draws).mean())
        found.append(SampledPropensities(draws, ips_scores(logs, logged).mean(axis=0), expected))
    return tuple(found)


@functools.cache
def zero_fractions(seed: int) -> dict[int, tuple[float, float]]:
    """The fraction of rows of the worse arm that are logged as 0, and of logs with such a row.

    The keys are numbers of samples. The served choice is not one of the samples.
    """
    logs, rng = averaged_logs("ts", seed), np.random.default_rng([seed, 0, *SAMPLES])
    found, p = {}, logs.probability[logs.worse]
    for draws in SAMPLES:
        zero = np.zeros_like(logs.worse)
        zero[logs.worse] = rng.binomial(draws, p) == 0
        found[draws] = float(zero.sum() / p.size), float(zero.any(axis=0).mean())
    return found
