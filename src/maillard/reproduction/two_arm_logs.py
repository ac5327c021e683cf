"""Many small logs of two arms, side by side, and what inverse propensity scoring makes of them.

Both policies have exact probabilities here. What is logged may be something else: shares of a few draws, as one would log for Thompson
sampling without a formula.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from maillard.policies import policy
from maillard.problems import problem
from maillard.reproduction.claim_statistics import log_deviation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Booleans = NDArray[np.bool_]

__all__ = [
    "COUNT",
    "DRAWS",
    "FLOOR",
    "LONG",
    "PROBLEM",
    "ROUNDS",
    "Logs",
    "SampledPropensities",
    "counted",
    "draw_logs",
    "errors",
    "means",
    "never_drawn",
    "of",
    "scores",
]

PROBLEM = "bernoulli:0.6,0.4"
COUNT, ROUNDS = 2000, 500  # of logs whose estimates are averaged, and of each
LONG = (30, 100, 300, 1000, 3000)  # rounds after which the error of one log's estimate is asked for
FLOOR = 0.1
DRAWS = (8, 16, 32, 64)
_FEWER = 500  # logs for an error


class Logs(NamedTuple):
    """In each round of each log: rounds x logs."""

    probability: Floats
    "Of the worse arm."
    worse: Booleans
    "Whether that was drawn."
    reward: Floats


def _law(name: str) -> Any:
    """From pulls and sums of the worse and the better arm to the exact probability of the worse, elementwise."""
    made: Any = policy(name, sigma2=problem(PROBLEM).sigma2)
    if name == "ts":

        def thompson(n: Floats, s: Floats) -> Floats:
            mean, deviation = made.score(n, s)
            chance: Floats = special.ndtr((mean[0] - mean[1]) / np.hypot(*deviation))
            return chance

        return thompson

    def sampled(n: Floats, s: Floats) -> Floats:
        mean = s / n
        best = mean.max(axis=0)
        log = np.where(mean == best, made.leader(n, None), made.rival(n, mean, best, None))
        chance: Floats = special.expit(log[0] - log[1])
        return chance

    return sampled


def draw_logs(name: str, count: int, rounds: int, seed: int, floor: float = 0.0) -> Logs:
    """So many logs of a policy, "ms" or "ts", that pulls each arm once and then goes on for so many rounds."""
    rng = np.random.default_rng([seed, *name.encode(), rounds, round(1000 * floor)])
    truth, law = means()[:, np.newaxis], _law(name)
    n, s = np.ones((2, count)), (rng.random((2, count)) < truth).astype(np.float64)
    probability, reward = np.empty((rounds, count)), np.empty((rounds, count))
    worse = np.empty((rounds, count), np.bool_)
    for t in range(rounds):
        p = (1.0 - floor) * law(n, s) + floor / 2
        choice, chance = rng.random((2, count))
        drawn = choice < p
        y = chance < np.where(drawn, *truth)
        probability[t], worse[t], reward[t] = p, drawn, y
        for arm, mine in enumerate((drawn, ~drawn)):
            n[arm] += mine
            s[arm] += mine & y
    return Logs(probability, worse, reward)


def means() -> Floats:
    """Of the worse arm and the better."""
    return np.array(sorted(problem(PROBLEM).true_means))


def scores(logs: Logs, probability: Floats | None = None, *, better: bool = False) -> Floats:
    """What each round adds to the estimate of an arm's mean: reward / p where it was drawn, p as logged for the worse arm."""
    p = logs.probability if probability is None else probability
    drawn, p = (~logs.worse, 1.0 - p) if better else (logs.worse, p)
    return np.divide(logs.reward, p, out=np.zeros_like(p), where=drawn)


@functools.cache
def of(name: str, seed: int) -> Logs:
    """The logs whose estimates are averaged."""
    return draw_logs(name, COUNT, ROUNDS, seed)


@functools.cache
def errors(seed: int) -> dict[str, tuple[Floats, Floats]]:
    """By arm and policy: the deviation of one log's estimate after each number of rounds in `LONG`, and its standard error."""
    found = {}
    plain, floored = (draw_logs("ms", _FEWER, LONG[-1], seed, floor) for floor in (0.0, FLOOR))
    for who, logs, better in (
        ("better arm, MS", plain, True),
        ("worse arm, MS", plain, False),
        (f"worse arm, MS with a floor of {FLOOR:g}", floored, False),
    ):
        added = scores(logs, better=better).cumsum(axis=0)
        logarithms = [log_deviation(added[t - 1] / t) for t in LONG]
        deviations = np.exp([each.value for each in logarithms])
        found[who] = deviations, deviations * [each.error for each in logarithms]
    return found


class SampledPropensities(NamedTuple):
    """Estimates of the worse arm's mean on Thompson's logs, with what was logged for its probability."""

    draws: int
    "0: the exact one."
    estimates: Floats
    "Of each log."
    expected: float
    "What the mean of p / logged p should be: that of 1 - (1 - p)^draws."


@functools.cache
def counted(seed: int) -> tuple[SampledPropensities, ...]:
    """With exact probabilities; and with the share that an arm had in a few draws, of which the first was served.

    An arm that was drawn with probability p has 1 + Binomial(M - 1, p) of M draws, and the mean of p / that share is 1 - (1 - p)^M.
    """
    logs, rng = of("ts", seed), np.random.default_rng([seed, *DRAWS])
    found = [SampledPropensities(0, scores(logs).mean(axis=0), 1.0)]
    p = logs.probability[logs.worse]
    for draws in DRAWS:
        logged = np.ones_like(logs.probability)
        logged[logs.worse] = (1 + rng.binomial(draws - 1, p)) / draws
        expected = float((1.0 - (1.0 - logs.probability) ** draws).mean())
        found.append(SampledPropensities(draws, scores(logs, logged).mean(axis=0), expected))
    return tuple(found)


@functools.cache
def never_drawn(seed: int) -> dict[int, tuple[float, float]]:
    """With so many draws besides the one that was served: the share of the worse arm's rows that are logged as 0, and of logs with one."""
    logs, rng = of("ts", seed), np.random.default_rng([seed, 0, *DRAWS])
    found, p = {}, logs.probability[logs.worse]
    for draws in DRAWS:
        zero = np.zeros_like(logs.worse)
        zero[logs.worse] = rng.binomial(draws, p) == 0
        found[draws] = float(zero.sum() / p.size), float(zero.any(axis=0).mean())
    return found
