"""The lazy engine for sampled policies: rejection sampling from upper bounds on the weights.

The algorithm keeps one arm with the best empirical mean apart, the leader. Every other arm has an upper bound
on its weight, computed for a best mean that is `WIDTH` lower than the current one, the arm's floor. Because a
monotone policy's weights do not rise with the best mean or with t, the bound stays valid while the best mean
is above the floor. An arm whose mean is above its floor may become the leader, so its bound is a leader's
weight.

To choose an arm, sample one in proportion to the bounds (see `bound_sums`), evaluate its weight, accept it
with probability weight / bound, and otherwise sample again. The choice then has exactly the policy's
distribution. The leader is accepted without an evaluation up to a lower bound of its weight.

If the policy declares `concentrates`, an upper bound also stays valid while the arm's mean is not above that
for which it was computed. And the other arms have lower bounds, too, up to which they are accepted without an
evaluation. These are computed for a best mean that is `WIDTH` higher, and for the pulls and the mean that the
arm has after `BAND` low rewards. So most rounds neither evaluate a formula nor change a bound.

`certain_rounds` says how likely a round is in which the leader is accepted without an evaluation, and for how
long that is so. The loop simulates such rounds many at once (see `leader_runs`), and asks
`choose_uncertain` for the arm of the first other one.

An arm gets new bounds when its mean or pulls leave their range (without `concentrates`: when it is pulled),
when the best mean falls below its floor, and when it is rejected because its bound is much too high. A wide
band needs fewer new bounds but rejects more samples; the engine adapts `WIDTH` to balance the two. All arms
get new bounds only if the scale of the weights changes. The widths affect the cost of a round, never the
choice. Weights are relative to a scale, the largest of them at first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import borrowed, rare
from maillard.simulation.engines.bound_sums import BOUND, add_up, change_bound, find_arm, make_table
from maillard.simulation.engines.direct_engines import compared_mean, log_weight
from maillard.simulation.engines.weight_bounds import (
    AT_BEST,
    AT_CEILING,
    AT_FLOOR,
    BAND,
    CEILING,
    COUNTED_FROM,
    DROP,
    EXPONENTS,
    FLOOR,
    HIGHEST,
    INVALID,
    LAST_PULLS,
    LAST_ROUND,
    LEADER,
    LEADER_HIGH,
    LEADER_LOW,
    LIMIT,
    LOG_2,
    LOG_BOUND,
    LOW,
    LOW_ROUND,
    LOWEST,
    MEAN,
    MOST_PULLS,
    OVERFLOW,
    POTENTIAL_AT,
    POWERS,
    REJECTIONS,
    RIVALS,
    ROUND_SPAN,
    ROUNDING_SLACK,
    ROWS,
    SCALE,
    STATE,
    TIED_ROUND,
    WIDTH,
    N,
    S,
    bound_leader_weight,
    estimate,
    exact_log_weight,
    leader_weight,
    new_bound,
    renew_bounds,
    set_bound,
    set_invalid,
    set_low,
)
from maillard.simulation.vector_operations import LENGTH, largest

FIRST_BAND = 8.0  # pulls for which lower bounds hold at first
MIN_CERTAIN = 0.8  # with a lower probability of certain rounds, runs do not pay
SMALL_BOUND = 2.0**-16  # smaller bounds may be much above the exponential
LEAST_WEIGHT = 1.0 / 16.0  # with less in all, the weights get a new scale


def begin(arms: int) -> Any:
    """Return the state before the first reward: no leader."""
    w = make_table(arms, ROWS)
    w[STATE, INVALID] = w[STATE, LEADER] = w[STATE, LAST_ROUND] = -1.0
    w[STATE, ROUND_SPAN] = 1.0
    for arm in range(arms, LENGTH * ((arms + LENGTH - 1) // LENGTH)):  # these are never the largest
        w[MEAN, arm] = w[FLOOR, arm] = -np.inf
    w[STATE, AT_BEST] = w[STATE, AT_FLOOR] = w[STATE, AT_CEILING] = w[STATE, LOW_ROUND] = np.nan
    for arm in range(arms):
        w[BAND, arm], w[POTENTIAL_AT, arm] = FIRST_BAND, np.nan
    power = 1.0
    for exponent in range(EXPONENTS):
        w[POWERS, exponent] = power
        power *= 0.5
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with exactly the policy's probability."""
    if t > w[STATE, LAST_ROUND]:
        start_window(f, w, arms, t)
    u = rng.random() * (w[STATE, LEADER_HIGH] + w[STATE, RIVALS])
    return choose_at(f, w, arms, t, u, rng)


def certain_rounds(f: Any, w: Any, arms: int, t: int) -> tuple[int, float, float, float]:
    """Return the leader, the probability that a round is uncertain, for how many rounds, and the limit.

    These hold for that number of rounds, if the leader's mean stays at or above the limit in all of them.
    There are none if a weight is invalid, if uncertain rounds are likely, or if the policy compares other
    numbers than means.
    """
    if t > w[STATE, LAST_ROUND]:
        start_window(f, w, arms, t)
    low, total = w[STATE, LEADER_LOW], w[STATE, LEADER_HIGH] + w[STATE, RIVALS]
    if low < MIN_CERTAIN * total or f[3] != 0:
        return 0, 1.0, 0.0, 0.0
    lead = int(w[STATE, LEADER])
    rounds = min(w[STATE, LAST_ROUND] - t, w[STATE, LAST_PULLS] - w[N, lead]) + 1.0
    return lead, (total - low) / total, rounds, w[STATE, LIMIT]


@rare
def choose_uncertain(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm in an uncertain round, in the state that `certain_rounds` described."""
    f, w, rng = borrowed(f), borrowed(w), borrowed(rng)
    low, high = w[STATE, LEADER_LOW], w[STATE, LEADER_HIGH]
    u = low + rng.random() * (high + w[STATE, RIVALS] - low)
    return choose_at(f, w, arms, t, u, rng)


def choose_at(f: Any, w: Any, arms: int, t: int, u: float, rng: Any) -> int:
    """Choose an arm, from a first position on the line of the leader's and the rivals' bounds."""
    while True:
        if u < w[STATE, LEADER_LOW]:
            return int(w[STATE, LEADER])
        position = u - w[STATE, LEADER_HIGH]
        if position < 0.0:
            if is_leader_accepted(f, w, arms, u, t):
                return int(w[STATE, LEADER])
        elif position < w[STATE, RIVALS]:  # rounding may lead past the last arm
            arm, within = find_arm(w, arms, position)
            if within < w[LOW, arm] and w[MEAN, int(w[STATE, LEADER])] <= w[CEILING, arm]:
                return arm
            if is_accepted(f, w, arms, arm, within, t):
                return arm
        if w[STATE, LEADER_LOW] < 0.0:
            return -1 - int(w[STATE, INVALID])
        u = rng.random() * (w[STATE, LEADER_HIGH] + w[STATE, RIVALS])


@rare
def is_leader_accepted(f: Any, w: Any, arms: int, u: float, t: int) -> bool:
    """Return whether a number is below the leader's exact weight; count a rejection."""
    f, w = borrowed(f), borrowed(w)
    if w[STATE, LEADER_LOW] >= 0.0:
        if u < leader_weight(f, w, w[N, int(w[STATE, LEADER])], t):
            return True
        count_rejection(f, w, arms, t)
    return False


@rare
def is_accepted(f: Any, w: Any, arms: int, arm: int, position: float, t: int) -> bool:
    """Return whether a position in an arm's bound is below its exact weight; improve its bounds otherwise."""
    f, w = borrowed(f), borrowed(w)
    if w[STATE, LEADER_LOW] < 0.0:
        return False
    best = w[MEAN, int(w[STATE, LEADER])]
    log, error = estimate(f, w, arm, best, t, t, AT_BEST)
    excess = log - w[LOG_BOUND, arm]
    if not excess <= ROUNDING_SLACK * (1.0 + abs(w[STATE, SCALE])):
        set_invalid(w, arm)
        return False
    # Three terms of the Taylor series mostly decide. A bound is at most 0.1% above the exponential.
    y, bound = log - w[LOG_BOUND, arm], w[BOUND, arm]
    low = bound * (1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0))))
    if (bound > SMALL_BOUND and position < 0.999 * low - error) or (
        position < low + bound * (y * y * y * y * (1.0 / 24.0) + 2.0 * error)
        and position < np.exp(exact_log_weight(f, w, arm, best, t, t))
    ):
        if best > w[CEILING, arm]:
            w[LOWEST, arm] = np.inf  # new bounds after the next reward
        return True
    improve_bound(f, w, arms, arm, excess, t)
    return False


@rare
def improve_bound(f: Any, w: Any, arms: int, arm: int, excess: float, t: int) -> None:
    """Count the rejection of an arm, and compute its bound anew if it is much too high."""
    f, w = borrowed(f), borrowed(w)
    if excess < -0.25:
        renew_bounds(f, w, arms, arm, t)
        if w[STATE, OVERFLOW] > 0.0:
            start_window(f, w, arms, t)
    count_rejection(f, w, arms, t)


@rare
def count_rejection(f: Any, w: Any, arms: int, t: int) -> None:
    """Count a rejection of a good bound. After too many, make the band narrower and the window shorter."""
    f, w = borrowed(f), borrowed(w)
    w[STATE, REJECTIONS] += 1.0
    if w[STATE, REJECTIONS] <= most_rejections(w, arms, t):
        return
    w[STATE, REJECTIONS], w[STATE, COUNTED_FROM] = 0.0, t
    w[STATE, WIDTH] *= 0.6
    if w[STATE, LEADER_HIGH] > 2.0 * leader_weight(f, w, w[N, int(w[STATE, LEADER])], t):
        w[STATE, ROUND_SPAN] = max(0.25 * w[STATE, ROUND_SPAN], 1e-6)  # the next window doubles it
        w[STATE, TIED_ROUND] = -1.0
    start_window(f, w, arms, t)


def most_rejections(w: Any, arms: int, t: int) -> float:
    """Return after how many rejections a narrower band pays: new bounds and shorter runs cost time, too."""
    return 4.0 + 0.1 * arms + 0.02 * (t - w[STATE, COUNTED_FROM])


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward; t is the next round."""
    add_rewards(f, w, arms, arm, 1.0, reward, t)


def add_rewards(f: Any, w: Any, arms: int, arm: int, pulls: float, total: float, t: int) -> None:
    """Apply several rewards of an arm; t is the next round."""
    n, s = w[N, arm] + pulls, w[S, arm] + total
    w[N, arm], w[S, arm] = n, s
    mean = compared_mean(f, n, s)
    before = w[MEAN, arm]
    w[MEAN, arm] = mean
    if arm == int(w[STATE, LEADER]):
        if mean < w[STATE, LIMIT]:
            lower_limit(f, w, arms, t)
        elif n > w[STATE, LAST_PULLS]:
            bound_leader_weight(f, w, t)
    elif w[STATE, LEADER] >= 0.0 and (
        mean > min(w[HIGHEST, arm], w[STATE, LIMIT]) or mean < w[LOWEST, arm] or n > w[MOST_PULLS, arm]
    ):
        update_rival(f, w, arms, arm, before, t)


@rare
def update_rival(f: Any, w: Any, arms: int, arm: int, before: float, t: int) -> None:
    """Compute the bounds of an arm with a new mean, or make it the leader."""
    f, w = borrowed(f), borrowed(w)
    drop = (before - w[MEAN, arm]) * w[N, arm]
    if w[STATE, DROP] == 0.0:
        w[STATE, DROP] = max(drop, 0.0)
    if drop > 0.0:
        w[STATE, DROP] += 0.1 * (drop - w[STATE, DROP])
    if w[MEAN, arm] > w[MEAN, int(w[STATE, LEADER])]:
        change_leader(f, w, arms, arm, t)
    else:
        set_bound(f, w, arms, arm, t)
        set_low(f, w, arm, t)


@rare
def change_leader(f: Any, w: Any, arms: int, new: int, t: int) -> None:
    """Replace the leader by another arm."""
    f, w = borrowed(f), borrowed(w)
    old = int(w[STATE, LEADER])
    w[STATE, RIVALS] -= w[BOUND, new]
    change_bound(w, arms, new, 0.0)
    w[STATE, LEADER] = new
    renew_bounds(f, w, arms, old, t)
    bound_leader_weight(f, w, t)


@rare
def lower_limit(f: Any, w: Any, arms: int, t: int) -> None:
    """Find the leader and the limit anew after the leader's mean fell below it."""
    f, w = borrowed(f), borrowed(w)
    lead = int(w[STATE, LEADER])
    best = w[MEAN, lead]
    top = largest_of_others(w, MEAN, arms, lead)
    if top > best:
        lead = 0
        while w[MEAN, lead] != top:
            lead += 1
        change_leader(f, w, arms, lead, t)
        best = top
        top = largest_of_others(w, MEAN, arms, lead)
    floor = largest_of_others(w, FLOOR, arms, lead)
    if floor > best:
        floor = lower_floors(f, w, arms, t)
    w[STATE, LIMIT] = max(top, floor, best - w[STATE, WIDTH])  # the last is the floor of an old leader
    if w[N, lead] > w[STATE, LAST_PULLS]:
        bound_leader_weight(f, w, t)


def largest_of_others(w: Any, row: int, arms: int, but: int) -> float:
    """Return the largest number of a row, leaving out an arm."""
    own = w[row, but]
    w[row, but] = -np.inf
    most = largest(w, row, arms)
    w[row, but] = own
    return most


@rare
def lower_floors(f: Any, w: Any, arms: int, t: int) -> float:
    """Compute new bounds of arms whose floor is above the best mean, or nearly so; return the highest floor.

    Widen the band unless that costs too much.
    """
    f, w = borrowed(f), borrowed(w)
    lead = int(w[STATE, LEADER])
    best = w[MEAN, lead]
    if w[STATE, WIDTH] == 0.0:
        worst = best
        for arm in range(arms):
            worst = min(worst, w[MEAN, arm])
        w[STATE, WIDTH] = 0.1 * (best - worst)
    elif w[STATE, REJECTIONS] < 0.5 * most_rejections(w, arms, t):
        w[STATE, WIDTH] *= 1.5
    w[STATE, REJECTIONS], w[STATE, COUNTED_FROM] = 0.0, t
    highest = best - 0.5 * w[STATE, WIDTH]
    for arm in range(arms):
        if arm != lead and w[FLOOR, arm] > highest:
            w[BOUND, arm] = new_bound(f, w, arm, t)
    w[STATE, RIVALS] = add_up(w, arms)
    return largest_of_others(w, FLOOR, arms, lead)


@rare
def start_window(f: Any, w: Any, arms: int, t: int) -> None:
    """Compute the bounds anew that are valid only for a window of rounds, or all after a change of scale."""
    f, w = borrowed(f), borrowed(w)
    lead = int(w[STATE, LEADER])
    if not t <= w[STATE, LOW_ROUND]:
        w[STATE, LOW_ROUND] = 2.0 * t
        for arm in range(arms):
            w[LOW, arm], w[LOWEST, arm] = 0.0, np.inf  # new bounds after the next reward
    if t > w[STATE, TIED_ROUND]:
        w[STATE, ROUND_SPAN] = min(2.0 * w[STATE, ROUND_SPAN], 1.0)
        w[STATE, TIED_ROUND] = t + np.floor(w[STATE, ROUND_SPAN] * t)
        for arm in range(arms if lead >= 0 else 0):
            if arm != lead and max(w[MEAN, arm], w[HIGHEST, arm]) >= w[FLOOR, arm]:
                renew_bounds(f, w, arms, arm, t)
    if lead < 0 or w[STATE, OVERFLOW] > 0.0 or w[STATE, LEADER_HIGH] + w[STATE, RIVALS] < LEAST_WEIGHT:
        set_scale(f, w, arms, t)
    bound_leader_weight(f, w, t)


@rare
def set_scale(f: Any, w: Any, arms: int, t: int) -> None:
    """Compute all bounds relative to the largest of them."""
    if w[STATE, LEADER] < 0.0:
        lead, worst = 0, 0
        for arm in range(1, arms):
            if w[MEAN, arm] > w[MEAN, lead]:
                lead = arm
            if w[MEAN, arm] < w[MEAN, worst]:
                worst = arm
        w[STATE, LEADER], w[STATE, WIDTH] = lead, 0.1 * (w[MEAN, lead] - w[MEAN, worst])
        w[STATE, LIMIT] = -np.inf
    lead = int(w[STATE, LEADER])
    floor, scale = w[MEAN, lead] - w[STATE, WIDTH], -np.inf
    for arm in range(arms):
        log = log_weight(f, w[N, arm], w[MEAN, arm], floor, w[STATE, TIED_ROUND], t)
        scale = max(scale, log)
    # The largest weight is likely to grow again.
    w[STATE, SCALE] = scale + LOG_2 * w[STATE, OVERFLOW]
    w[STATE, OVERFLOW] = 0.0
    for arm in range(arms):
        if arm != lead:
            renew_bounds(f, w, arms, arm, t)


ENGINE = (begin, choose, update)
RUNS = (certain_rounds, choose_uncertain, add_rewards)
