"""The one loop that runs every policy on every problem.

`build` closes it over the three functions of an engine: `begin(arms)` makes its state, a table w of numbers; `choose(f, w, arms, t, rng)`
returns an arm (or -1 - arm where a formula gives no usable number); `update(f, w, arms, arm, reward, t)` takes in an observed reward, t
being the next round. The first two rows of every table are the observed pulls and sums of each arm. `f` holds the address
of the policy's parameters, then those of its formulas. One table, and not a row of arrays by name, because
passing those on would cost more in reference counts than a round costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from maillard.problems import codes
from maillard.simulation.compiling import borrowed, compile_function, rare
from maillard.simulation.engines.reward_sampling import sample_reward

__all__ = ["SIGNATURE", "STOPPED", "TRIALS_PER_CALL", "build", "compile_loop"]

NO_DELAY, FIXED, BATCHED, GEOMETRIC = codes.NO_DELAY, codes.FIXED, codes.BATCHED, codes.GEOMETRIC
N, S = 0, 1  # rows of every engine's table
STOPPED = -1
TRIALS_PER_CALL = 8  # trials of one call: threads that came back for every trial would wait for each other
STOP_CHECK_INTERVAL = 1 << 16  # arms times rounds between two looks at whether somebody wants the run to stop

_F8, _I8 = types.float64, types.int64
_NUMBERS, _PLACES, _TABLE = types.Array(_F8, 1, "C"), types.Array(_I8, 1, "C"), types.Array(_F8, 2, "C")
SIGNATURE = _I8(
    _PLACES,  # f: the addresses of parameters and formulas
    _I8,  # kind of rewards
    _I8,  # sampler: the address of a user's own
    _NUMBERS,  # first parameter of each arm
    _NUMBERS,  # second
    _TABLE,  # values of a finite support
    _TABLE,  # where each value's probability ends
    _NUMBERS,  # true means
    _I8,  # kind of delay
    _F8,  # delay
    _NUMBERS,  # churn: rate, and the Beta law of new means; or nothing
    _NUMBERS,  # shares mixed in: where each arm's ends, or nothing
    _NUMBERS,  # shares mixed in over those, times t^-decay: where each arm's ends, or nothing
    _F8,  # decay
    _I8,  # forced: that many rounds pull one arm after the other
    _NUMBERS,  # goal: threshold and precision, or nothing
    _PLACES,  # checkpoints, the last of which is the horizon
    _TABLE,  # out: regret (or loss) at each, trial by trial
    types.Array(_I8, 2, "C"),  # out: pulls of each arm, trial by trial
    _NUMBERS,  # out: observed pulls
    _NUMBERS,  # out: observed sums
    _PLACES,  # out: how often each arm is drawn from the final state
    _I8,  # that many draws from it
    _PLACES,  # stop: somebody sets it to 1
    _I8,  # how many trials
    types.UniTuple(types.npy_rng, TRIALS_PER_CALL),  # their random numbers
)


def compile_loop(begin: Any, choose: Any, update: Any, *, nonstationary: bool) -> Any:
    """The loop, compiled with the functions of one engine; `nonstationary` adds delays and arms that come and go."""
    return compile_function(build, (begin, choose, update, nonstationary), SIGNATURE)


def build(begin: Any, choose: Any, update: Any, nonstationary: bool, fingerprint: int) -> Any:
    """The loop over the functions of one engine."""

    def run(  # type: ignore[no-untyped-def]
        f, kind, sampler, first, second, values, ends, truth, lateness, delay, churn, shares, fading, decay,
        forced, goal, checkpoints, all_regret, all_pulls, observed_pulls, observed_sums, drawn, draws, stop, trials,
        rngs,
    ):  # fmt: skip
        arms, horizon = first.size, checkpoints[-1]
        f, shares, first, second = borrowed(f), borrowed(shares), borrowed(first), borrowed(second)
        values, ends, fading = borrowed(values), borrowed(ends), borrowed(fading)
        for trial in range(trials):
            table = begin(arms)
            w, rng = borrowed(table), borrowed(rngs[trial])
            regret, pulls = borrowed(all_regret[trial]), borrowed(all_pulls[trial])
            observed, lost, place, pause = fingerprint * 0, 0.0, 0, 1
            queue = make_queue(lateness, min(delay, float(horizon)))
            since = np.zeros(arms, np.int64)
            if nonstationary:
                sample_new_means(first, truth, churn, rng)
            for t in range(1, horizon + 1):
                if t <= forced:
                    arm = t - 1
                else:
                    arm = choose_arm(choose, f, w, arms, shares, fading, decay, observed + 1, rng)
                    if arm < 0:
                        drawn[0] = -1 - arm
                        observed_pulls[:], observed_sums[:] = table[N, :arms], table[S, :arms]
                        return t
                pulls[arm] += 1
                reward = sample_reward(kind, sampler, first, second, values, ends, arm, rng)
                if not nonstationary or lateness == NO_DELAY:
                    observed += 1
                    update(f, w, arms, arm, reward, observed + 1)
                elif nonstationary:
                    observed = queue_reward(
                        update, f, w, arms, queue, since, arm, reward, t, observed, lateness, delay, rng
                    )
                if nonstationary:
                    lost += replace_arm(w, first, truth, since, churn, arm, t, rng)
                if t == pause:
                    if stop[0]:
                        return STOPPED
                    if t == checkpoints[place]:
                        if goal.size:
                            regret[place] = threshold_loss(w, truth, goal)
                        else:
                            regret[place] = lost if churn.size else regret_from_pulls(pulls, truth)
                        place += 1
                    if place < checkpoints.size:
                        pause = min(checkpoints[place], t + 1 + STOP_CHECK_INTERVAL // arms)
            observed_pulls[:], observed_sums[:] = table[N, :arms], table[S, :arms]
            for _ in range(draws if trial == trials - 1 else 0):
                drawn[choose_arm(choose, f, w, arms, shares, fading, decay, observed + 1, rng)] += 1
            w[N, 0] = table[N, 0]  # so that the table, which w borrows, lives until here
        return 0

    return run


def choose_arm(
    choose: Any, f: Any, w: Any, arms: int, shares: Any, fading: Any, decay: float, t: int, rng: Any
) -> int:
    """An arm by its share of this round, or else by its constant share, or else by the policy."""
    if fading.size:
        u = rng.random() * float(t) ** decay
        if u < fading[-1]:
            arm = 0
            while u >= fading[arm]:
                arm += 1
            return arm
    if shares.size:
        u = rng.random()
        if u < shares[-1]:
            arm = 0
            while u >= shares[arm]:
                arm += 1
            return arm
    return choose(f, w, arms, t, rng)


@rare
def make_queue(lateness: int, delay: float) -> Any:
    """Room for the rewards that wait, one a column: arm, reward, round. The first column says where they begin, and how many."""
    size = int(delay) + 1
    if (
        lateness == GEOMETRIC
    ):  # how many wait is a sum of independent bits, of mean and variance at most `delay`
        size = int(delay + 40.0 * np.sqrt(delay)) + 1000
    return np.zeros((3, 1 + size))


@rare
def queue_reward(
    update: Any, f: Any, w: Any, arms: int, queue: Any, since: Any, arm: int, reward: float, t: int, observed: int,
    lateness: int, delay: float, rng: Any,
) -> int:  # fmt: skip
    """Put a reward into the queue, take out those that are due, and return how many were ever observed."""
    size, head, waiting = queue.shape[1] - 1, int(queue[0, 0]), int(queue[1, 0])
    last = 1 + (head + waiting) % size
    queue[0, last], queue[1, last], queue[2, last] = arm, reward, t
    waiting += 1
    for _ in range(count_due(lateness, delay, waiting, t, rng)):
        first = 1 + head
        taken = first
        if lateness == GEOMETRIC:  # memoryless: any of them may be next, and the first takes its place
            taken = 1 + (head + int(rng.random() * waiting)) % size
        which, value, when = int(queue[0, taken]), queue[1, taken], queue[2, taken]
        queue[:, taken] = queue[:, first]
        head = (head + 1) % size
        waiting -= 1
        if when > since[which]:  # else the arm has been replaced meanwhile
            observed += 1
            update(f, w, arms, which, value, observed + 1)
    queue[0, 0], queue[1, 0] = head, waiting
    return observed


@rare
def count_due(lateness: int, delay: float, waiting: int, t: int, rng: Any) -> int:
    """How many waiting rewards are observed at the end of round t."""
    if lateness == FIXED:
        return 1 if waiting > delay else 0
    if lateness == BATCHED:
        return waiting if t % int(delay) == 0 else 0
    return rng.binomial(waiting, 1.0 / (1.0 + delay))


@rare
def regret_from_pulls(pulls: Any, truth: Any) -> float:
    """What the pulls so far have lost against the best arm."""
    best, lost = truth.max(), 0.0
    for arm in range(truth.size):
        lost += pulls[arm] * (best - truth[arm])
    return lost


@rare
def threshold_loss(w: Any, truth: Any, goal: Any) -> float:
    """1 if an arm clearly on one side of the threshold has its mean on the other, else 0."""
    threshold, precision = goal[0], goal[1]
    for arm in range(truth.size):
        above = w[N, arm] > 0 and w[S, arm] / w[N, arm] >= threshold
        if (truth[arm] >= threshold + precision and not above) or (
            truth[arm] < threshold - precision and above
        ):
            return 1.0
    return 0.0


@rare
def sample_new_means(first: Any, truth: Any, churn: Any, rng: Any) -> None:
    """New means for all arms, where arms come and go."""
    for arm in range(truth.size if churn.size else 0):
        truth[arm] = first[arm] = rng.beta(churn[1], churn[2])


@rare
def replace_arm(w: Any, first: Any, truth: Any, since: Any, churn: Any, arm: int, t: int, rng: Any) -> float:
    """What this round lost against the best arm of now; and perhaps an arm retires, and a new one takes its place."""
    if not churn.size:
        return 0.0
    lost = truth.max() - truth[arm]
    if rng.random() < churn[0]:
        gone = int(rng.random() * truth.size)
        truth[gone] = first[gone] = rng.beta(churn[1], churn[2])
        w[N, gone], w[S, gone], since[gone] = 0.0, 0.0, t
    return lost
