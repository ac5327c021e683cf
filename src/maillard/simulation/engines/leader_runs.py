"""Several rounds at once, in all of which the leader wins: they cost about as much as one.

As long as the leader's mean stays above a limit, a lazy engine knows a probability with which the leader
wins a round, whatever else is sampled. Then the number of rounds before the first uncertain one is geometric,
and the sum of that many normal rewards is normal.

The leader's mean may fall below the limit during these rounds, also if it is above it at the end. The sums
after each round are values of a Brownian motion, and the probability that a Brownian motion between two known
values reaches a line is known. If it does not reach the line, no sum was below the limit. If it does, the
rounds are sampled one by one: by the reflection principle, a path that reaches the line is one to the
reflected end, reflected from the first time at the line on. So the result has exactly the distribution of
rounds that are simulated one by one.

With rewards 0 and 1, no bridge is needed: the leader's mean cannot fall below the limit in so few rounds that
it would not with failures alone. The sum of that many rewards is binomial.

Rewards of other distributions are sampled one by one, until the mean falls below the limit (`trial_loop`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import rare
from maillard.simulation.engines.random_numbers import exponential, normal, uniform
from maillard.simulation.sampler_calls import call_sampler

# Rounds of a run, divided by the squared distance to the limit in standard deviations of a reward: a path
# this long reaches the limit with a probability of at most 2 P(Z > sqrt(18)), about 1 in 45,000.
MAX_ROUNDS = 1.0 / 18.0
FEW = 40.0  # for so many rounds, counting successes one by one is faster than a binomial generator
BELOW_ONE = 1.0 - 1e-9  # so that rounding errors do not count
CERTAIN = 40.0  # exp(-40) is far below the steps of a uniform number


def rounds_before(uncertain: float, rng: Any) -> float:
    """Sample the number of rounds before the first uncertain one, from the probability of those."""
    if uncertain <= 0.0:
        return np.inf
    return np.floor(exponential(rng) / -np.log1p(-uncertain))


def longest_run(above: float, deviation: float) -> float:
    """Return for how many rounds the leader's sum, this far above its limit, hardly ever falls below it."""
    return np.floor(MAX_ROUNDS * (above / deviation) ** 2)


def sample_run(
    above: float, limit: float, mean: float, deviation: float, rounds: float, number: float, rng: Any
) -> tuple[float, float]:
    """Sample a number of rounds that the leader wins, and stop after the first with a mean below the limit.

    `above`: the leader's sum minus the limit times its pulls. `number`: a standard normal number, given
    because a GPU generates them in pairs. Returns the number of rounds, and the sum of their rewards. In the
    last round the mean may be below the limit; the caller checks that.
    """
    gained = rounds * mean + deviation * np.sqrt(rounds) * number
    if rounds > 1.0:
        end = above + gained - limit * rounds
        exponent = 2.0 * above * end / (rounds * deviation * deviation)
        if exponent < CERTAIN and (end < 0.0 or uniform(rng) < np.exp(-exponent)):
            done, end = sample_crossing(above / deviation, end / deviation, rounds, rng)
            return done, end * deviation - above + limit * done
    return rounds, gained


def longest_safe_run(above: float, limit: float) -> float:
    """Return for how many failures the leader's sum, this far above its limit, does not fall below it."""
    return np.floor(above / limit * BELOW_ONE) if limit > 0.0 else np.inf


@rare
def count_successes(mean: float, rounds: float, binomial: int, numbers: Any, rng: Any) -> float:
    """Sample the sum of a number of rewards 0 or 1.

    `binomial`: the address of a sampler of binomial numbers. `numbers`: memory for its arguments.
    """
    if rounds > FEW:
        numbers[0], numbers[1] = rounds, mean
        return call_sampler(binomial, rng, numbers.ctypes.data)
    count = 0
    for _ in range(int(rounds)):
        count += int(uniform(rng) < mean)
    return float(count)


@rare
def sample_crossing(begin: float, end: float, rounds: float, rng: Any) -> tuple[float, float]:
    """Sample a path of unit variance per round that reaches 0, from begin to end.

    Returns the first round in which it is below 0, or the last, and its value there.
    """
    reached = end < 0.0
    at, target, sign, done = begin, -abs(end), 1.0, 1.0
    while done < rounds:
        left = rounds - done
        after = at + (target - at) / (left + 1.0) + np.sqrt(left / (left + 1.0)) * normal(rng)
        if not reached and (after < 0.0 or uniform(rng) < np.exp(-2.0 * at * after)):
            reached, sign = True, -1.0
        at = after
        if sign * at < 0.0:
            return done, sign * at
        done += 1.0
    return rounds, end
