"""The loop that runs every policy on every problem.

`build` closes it over the three functions of an engine. `begin(arms)` returns the engine's state, a table `w`
of numbers. `choose(f, w, arms, t, rng)` returns an arm, or -1 - arm if a formula returns an invalid number.
`update(f, w, arms, arm, reward, t)` applies an observed reward; t is the next round. The first two rows of
every table are the observed pulls and sums of each arm. An engine may have three more functions, with which
the loop simulates many rounds at once (see `leader_runs` and `lazy_sampled`).

`f` holds the address of the policy's parameters, then those of its formulas. The state is one table instead
of several arrays, because passing arrays costs reference counting in every call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from maillard.problems.codes import BATCHED, BERNOULLI, FIXED, GAUSSIAN, GEOMETRIC, NO_DELAY
from maillard.simulation.compiling import NUMBERS, PLACES, TABLE, borrowed, rare
from maillard.simulation.engines import direct_engines
from maillard.simulation.engines.leader_runs import (
    count_successes,
    longest_run,
    longest_safe_run,
    rounds_before,
    sample_run,
)
from maillard.simulation.engines.random_numbers import normal
from maillard.simulation.engines.reward_sampling import sample_reward
from maillard.simulation.sampler_calls import call_sampler, generator_of

N, S = 0, 1  # rows of every engine's table
STOPPED = -1
MIN_RUN = 4.0  # a run of fewer rounds does not pay
TRIALS_PER_CALL = 8  # threads that returned to Python after every trial would wait for the GIL
STOP_CHECK_INTERVAL = 1 << 16  # arms times rounds between two checks of `stop`

_F8, _I8 = types.float64, types.int64
POLICY = (
    PLACES,  # f: the addresses of parameters and formulas
    NUMBERS,  # constant probabilities mixed in, cumulative; or empty
    NUMBERS,  # probabilities mixed in over those, times t^-decay, cumulative; or empty
    _F8,  # decay
    _I8,  # forced: initial rounds that pull the arms in order
)
PROBLEM = (
    _I8,  # code of the reward distribution
    _I8,  # sampler: the address of a user's own, or of a rare distribution
    NUMBERS,  # first parameter of each arm
    NUMBERS,  # second
    TABLE,  # values of a finite support
    TABLE,  # where each value's probability ends
    NUMBERS,  # true means
    _I8,  # code of the delay
    _F8,  # delay
    NUMBERS,  # churn: rate and Beta parameters of new means; or empty
    _I8,  # the address of a sampler of binomial numbers, for geometric delays and runs of rewards 0 and 1
    NUMBERS,  # memory for its two arguments
    _I8,  # the address of a sampler of Beta numbers, for churn
)
SIGNATURE = _I8(
    *POLICY,
    *PROBLEM,
    NUMBERS,  # goal: threshold and precision; or empty
    PLACES,  # checkpoints, the last of which is the horizon
    TABLE,  # out: regret (or loss) at each, trial by trial
    types.Array(_I8, 2, "C"),  # out: pulls of each arm, trial by trial
    NUMBERS,  # out: observed pulls
    NUMBERS,  # out: observed sums
    PLACES,  # out: how often each arm is chosen from the final state
    _I8,  # number of choices from the final state
    PLACES,  # stop: 1 asks the loop to end
    _I8,  # number of trials
    types.Array(_I8, 2, "C"),  # their random numbers: see `generator_words`
)


def no_certain_rounds(f: Any, w: Any, arms: int, t: int) -> tuple[int, float, float, float]:
    """Return that there are none: for engines that choose in every round."""
    return 0, 1.0, 0.0, 0.0


def no_choice(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Stand for `choose_uncertain` of engines without certain rounds."""
    return 0


def no_rewards(f: Any, w: Any, arms: int, arm: int, pulls: float, total: float, t: int) -> None:
    """Stand for `add_rewards` of engines without certain rounds."""


NO_RUNS = (no_certain_rounds, no_choice, no_rewards)


def build(
    begin: Any, choose: Any, update: Any, certain_rounds: Any, choose_uncertain: Any, add_rewards: Any,
    fingerprint: int,
) -> Any:  # fmt: skip
    """Return the loop around the functions of one engine."""
    has_runs = certain_rounds is not no_certain_rounds
    nonstationary = begin is direct_engines.begin  # the lazy engines know no delays and no replaced arms

    def run(  # type: ignore[no-untyped-def]
        f, constant, decaying, decay, forced, code, sampler, first, second, values, ends, true_means,
        delay_code, delay, churn, binomial, numbers, beta, goal, checkpoints, all_regret, all_pulls,
        observed_pulls, observed_sums, choices, choice_count, stop, trials, rngs,
    ):  # fmt: skip
        arms, horizon = first.size, checkpoints[-1]
        f, constant, first, second = borrowed(f), borrowed(constant), borrowed(first), borrowed(second)
        values, ends, decaying = borrowed(values), borrowed(ends), borrowed(decaying)
        for trial in range(trials):
            table = begin(arms)
            w, rng = borrowed(table), generator_of(rngs, trial)
            regret, pulls = borrowed(all_regret[trial]), borrowed(all_pulls[trial])
            observed, lost, place, next_check = fingerprint * 0, 0.0, 0, 1
            mixed = constant[-1] if constant.size else 0.0
            may_run = has_runs and decaying.size == 0 and goal.size == 0
            # Whether the next round is uncertain, and with which probability if nothing is mixed in.
            uncertain, rivals = False, 0.0
            if nonstationary:
                queue = make_queue(delay_code, min(delay, float(horizon)))
                since = np.zeros(arms, np.int64)
                sample_new_means(first, true_means, churn, beta, rng)
            t = 0
            while t < horizon:
                t += 1
                if may_run and t > forced and not uncertain:
                    lead, rivals, rounds, limit = certain_rounds(f, w, arms, t)
                    most, above = rounds, 0.0
                    if rounds >= MIN_RUN:  # else the limit is not needed
                        above = w[S, lead] - limit * w[N, lead]
                        safe = float(STOP_CHECK_INTERVAL)
                        if code == GAUSSIAN:
                            safe = longest_run(above, second[lead])
                        elif code == BERNOULLI:
                            safe = longest_safe_run(above, limit)
                        most = min(rounds, safe, float(horizon - t + 1))
                    if most >= MIN_RUN:
                        before = rounds_before(rivals + mixed * (1.0 - rivals), rng)
                        uncertain = before < most
                        if before > 0.0:
                            run = min(before, most)
                            if code == GAUSSIAN:
                                number = normal(rng)
                                done, total = sample_run(
                                    above, limit, first[lead], second[lead], run, number, rng
                                )
                            elif code == BERNOULLI:
                                done = run
                                total = count_successes(first[lead], run, binomial, numbers, rng)
                            else:
                                done, total = sample_rewards(
                                    code, sampler, first, second, values, ends, lead, above, limit, run, rng
                                )
                                if np.isnan(total):  # the user's sampler failed
                                    return t + int(done) - 1
                            place = record_run(regret, pulls, checkpoints, place, true_means, lead, t, done)
                            t += int(done) - 1
                            observed = t
                            add_rewards(f, w, arms, lead, done, total, t + 1)
                            # Below the limit, the next round is like any other.
                            uncertain = uncertain and done == run and w[S, lead] / w[N, lead] >= limit
                            if t >= next_check:
                                if stop[0]:
                                    return STOPPED
                                next_check = t + 1
                            continue
                if t <= forced:
                    arm = t - 1
                elif has_runs and uncertain:
                    uncertain = False
                    position = rng.random() * (mixed + (1.0 - mixed) * rivals)
                    arm = arm_at(constant, position) if position < mixed else -1
                    if arm < 0:
                        arm = choose_uncertain(f, w, arms, t, rng)
                else:
                    arm = choose_arm(choose, f, w, arms, constant, decaying, decay, observed + 1, rng)
                if arm < 0:
                    choices[0] = -1 - arm
                    copy_tally(table, arms, observed_pulls, observed_sums)
                    return t
                pulls[arm] += 1
                reward = sample_reward(code, sampler, first, second, values, ends, arm, rng)
                if np.isnan(reward):  # the user's sampler failed
                    return t
                if not nonstationary or delay_code == NO_DELAY:
                    observed += 1
                    update(f, w, arms, arm, reward, observed + 1)
                elif nonstationary:
                    observed = queue_reward(
                        update, f, w, arms, queue, since, arm, reward, t, observed, delay_code, delay,
                        binomial, numbers, rng,
                    )  # fmt: skip
                if nonstationary:
                    lost += replace_arm(w, first, true_means, since, churn, beta, arm, t, rng)
                if t == next_check:
                    if stop[0]:
                        return STOPPED
                    if t == checkpoints[place]:
                        if goal.size:
                            regret[place] = threshold_loss(w, true_means, goal)
                        else:
                            regret[place] = lost if churn.size else regret_from_pulls(pulls, true_means)
                        place += 1
                    if place < checkpoints.size:
                        next_check = min(checkpoints[place], t + 1 + STOP_CHECK_INTERVAL // arms)
            copy_tally(table, arms, observed_pulls, observed_sums)
            for _ in range(choice_count if trial == trials - 1 else 0):
                choices[choose_arm(choose, f, w, arms, constant, decaying, decay, observed + 1, rng)] += 1
            table[N, 0] = w[N, 0]  # keeps the table, which w borrows, alive until here
        return 0

    return run


@rare
def sample_rewards(
    code: int, sampler: int, first: Any, second: Any, values: Any, ends: Any, lead: int, above: float,
    limit: float, rounds: float, rng: Any,
) -> tuple[float, float]:  # fmt: skip
    """Sample rewards of the leader for a number of rounds; stop after the first with a mean below the limit.

    See `leader_runs`; these rewards are sampled one by one. Returns the number of rounds and the sum. The
    first round is certain, even if `above` is below 0 by rounding.
    """
    first, second, values, ends = borrowed(first), borrowed(second), borrowed(values), borrowed(ends)
    done, total = 1.0, sample_reward(code, sampler, first, second, values, ends, lead, rng)
    while done < rounds and above + total >= limit * done:  # not if a reward is NaN
        total += sample_reward(code, sampler, first, second, values, ends, lead, rng)
        done += 1.0
    return done, total


@rare
def copy_tally(table: Any, arms: int, observed_pulls: Any, observed_sums: Any) -> None:
    """Copy the pulls and sums of a table; numba compiles an assignment of slices for seconds."""
    for arm in range(arms):
        observed_pulls[arm], observed_sums[arm] = table[N, arm], table[S, arm]


@rare
def record_run(
    regret: Any, pulls: Any, checkpoints: Any, place: int, true_means: Any, arm: int, t: int, rounds: float
) -> int:
    """Count a run of an arm that begins in round t; record the regret of the checkpoints in it."""
    before = pulls[arm] + 1 - t
    while place < checkpoints.size and checkpoints[place] < t + rounds:
        pulls[arm] = before + checkpoints[place]
        regret[place] = regret_from_pulls(pulls, true_means)
        place += 1
    pulls[arm] = before + t - 1 + int(rounds)
    return place


def choose_arm(
    choose: Any, f: Any, w: Any, arms: int, constant: Any, decaying: Any, decay: float, t: int, rng: Any
) -> int:
    """Choose an arm from the decaying probabilities, else from the constant ones, else by the policy."""
    arm = sample_mixed_in(constant, decaying, decay, t, rng)
    return arm if arm >= 0 else choose(f, w, arms, t, rng)


def sample_mixed_in(constant: Any, decaying: Any, decay: float, t: int, rng: Any) -> int:
    """Sample an arm from the decaying probabilities, else from the constant ones; else return -1."""
    if decaying.size:
        arm = arm_at(decaying, rng.random() * float(t) ** decay)
        if arm >= 0:
            return arm
    if constant.size:
        return arm_at(constant, rng.random())
    return -1


def arm_at(cumulative: Any, position: float) -> int:
    """Return the arm at a position on the line of cumulative probabilities, or -1 beyond its end."""
    if position >= cumulative[-1]:
        return -1
    arm = 0
    while position >= cumulative[arm]:
        arm += 1
    return arm


@rare
def make_queue(delay_code: int, delay: float) -> Any:
    """Return the queue of delayed rewards, one per column: arm, reward, round.

    The first column has the position of the oldest reward and the number of waiting ones.
    """
    size = int(delay) + 1
    if delay_code == GEOMETRIC:
        # How many wait is a sum of independent bits, of mean and variance at most `delay`.
        size = int(delay + 40.0 * np.sqrt(delay)) + 1000
    return np.zeros((3, 1 + size))


@rare
def queue_reward(
    update: Any, f: Any, w: Any, arms: int, queue: Any, since: Any, arm: int, reward: float, t: int,
    observed: int, delay_code: int, delay: float, binomial: int, numbers: Any, rng: Any,
) -> int:  # fmt: skip
    """Queue a reward, apply those that are due, and return how many rewards were observed so far."""
    size, head, waiting = queue.shape[1] - 1, int(queue[0, 0]), int(queue[1, 0])
    last = 1 + (head + waiting) % size
    queue[0, last], queue[1, last], queue[2, last] = arm, reward, t
    waiting += 1
    for _ in range(count_due(delay_code, delay, waiting, t, binomial, numbers, rng)):
        first = 1 + head
        taken = first
        if delay_code == GEOMETRIC:  # memoryless: any of them may be next, and the first takes its place
            taken = 1 + (head + int(rng.random() * waiting)) % size
        which, value, when = int(queue[0, taken]), queue[1, taken], queue[2, taken]
        for row in range(3):
            queue[row, taken] = queue[row, first]
        head = (head + 1) % size
        waiting -= 1
        if when > since[which]:  # else the arm has been replaced meanwhile
            observed += 1
            update(f, w, arms, which, value, observed + 1)
    queue[0, 0], queue[1, 0] = head, waiting
    return observed


@rare
def count_due(
    delay_code: int, delay: float, waiting: int, t: int, binomial: int, numbers: Any, rng: Any
) -> int:
    """Return how many waiting rewards are observed at the end of round t."""
    if delay_code == FIXED:
        return 1 if waiting > delay else 0
    if delay_code == BATCHED:
        return waiting if t % int(delay) == 0 else 0
    numbers[0], numbers[1] = waiting, 1.0 / (1.0 + delay)
    return int(call_sampler(binomial, rng, numbers.ctypes.data))


@rare
def regret_from_pulls(pulls: Any, true_means: Any) -> float:
    """Return the regret of the pulls so far against the best arm."""
    best, lost = largest(true_means), 0.0
    for arm in range(true_means.size):
        lost += pulls[arm] * (best - true_means[arm])
    return lost


@rare
def largest(numbers: Any) -> float:
    """Return the largest number; numba compiles `numbers.max()` ten times longer."""
    most = numbers[0]
    for place in range(1, numbers.size):
        most = max(most, numbers[place])
    return most


@rare
def threshold_loss(w: Any, true_means: Any, goal: Any) -> float:
    """Return 1 if an arm clearly on one side of the threshold has its empirical mean on the other, else 0."""
    threshold, precision = goal[0], goal[1]
    for arm in range(true_means.size):
        above = w[N, arm] > 0 and w[S, arm] / w[N, arm] >= threshold
        if (true_means[arm] >= threshold + precision and not above) or (
            true_means[arm] < threshold - precision and above
        ):
            return 1.0
    return 0.0


@rare
def sample_new_means(first: Any, true_means: Any, churn: Any, beta: int, rng: Any) -> None:
    """Sample new means for all arms, if arms are replaced during a trial."""
    for arm in range(true_means.size if churn.size else 0):
        true_means[arm] = first[arm] = call_sampler(beta, rng, churn[1:].ctypes.data)


@rare
def replace_arm(
    w: Any, first: Any, true_means: Any, since: Any, churn: Any, beta: int, arm: int, t: int, rng: Any
) -> float:
    """Return this round's regret against the current best arm; with a small probability, replace an arm."""
    if not churn.size:
        return 0.0
    lost = largest(true_means) - true_means[arm]
    if rng.random() < churn[0]:
        gone = int(rng.random() * true_means.size)
        true_means[gone] = first[gone] = call_sampler(beta, rng, churn[1:].ctypes.data)
        w[N, gone], w[S, gone], since[gone] = 0.0, 0.0, t
    return lost
