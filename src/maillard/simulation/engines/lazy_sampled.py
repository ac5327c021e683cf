"""The lazy engine for sampled policies: rejection sampling from upper bounds on the weights.

The algorithm keeps one arm with the best empirical mean apart, the leader. Every other arm has an upper bound
on its weight, computed for a best mean that is `WIDTH` lower than the current one, the arm's floor. Because a
monotone policy's weights do not rise with the best mean or with t, the bound stays valid while the best mean
is above the floor. An arm whose mean is above its floor may become the leader, so its bound is a leader's
weight.

To choose an arm, sample one in proportion to the bounds (see `bound_sums`), evaluate its weight, accept it
with probability weight / bound, and otherwise sample again. The choice then has exactly the policy's
distribution. Each arm also has a lower bound on its weight, up to which it is accepted at once. That of a
rival is computed after each of its pulls, for a best mean that is `WIDTH` higher than the current one: an
evaluation that no branch waits for, unlike that of a sampled arm.

If the policy declares `concentrates`, an upper bound also stays valid while the arm's mean is not above that
for which it was computed. So most rounds do not change an upper bound.

`certain_rounds` says how likely a round is in which the leader is accepted without an evaluation, and for how
long that is so. The loop simulates such rounds many at once (see `leader_runs`), and asks
`choose_uncertain` for the arm of the first other one.

An arm gets a new upper bound when its mean rises (without `concentrates`: when it is pulled), when the best
mean falls below its floor, and when it is rejected because its bound is much too high. A wide
band needs fewer new bounds but rejects more samples; the engine adapts `WIDTH` to balance the two. All arms
get new bounds only if the scale of the weights changes. The widths affect the cost of a round, never the
choice. Weights are relative to a scale, the largest of them at first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import borrowed, rare
from maillard.simulation.engines.bound_sums import (
    BOUND,
    add_up,
    change_bound,
    find_arm,
    make_table,
    vector_start,
    whole_nodes,
)
from maillard.simulation.engines.direct_engines import compared_mean, log_weight
from maillard.simulation.engines.weight_bounds import (
    AT_BEST,
    AT_CEILING,
    AT_FLOOR,
    BEST,
    BOOST,
    CEILING,
    COLUMNS,
    COUNTED_FROM,
    CURVATURE,
    EXPONENTS,
    FLOORS,
    HIGHEST,
    INVALID,
    LAST_PULLS,
    LAST_ROUND,
    LEADER,
    LEADER_HIGH,
    LEADER_LOW,
    LIMIT,
    LOG_2,
    LOW,
    LOW_ROUND,
    MEAN,
    MEANS,
    OVERFLOW,
    POWERS,
    REJECTIONS,
    RIVALS,
    ROUND_SPAN,
    SCALE,
    SQUARED_GAP,
    SUMS,
    TIED_ROUND,
    WIDTH,
    N,
    S,
    bound_leader_weight,
    check_estimate,
    estimate,
    exact_log_weight,
    is_below,
    leader_weight,
    new_bound,
    renew_bounds,
    set_invalid,
    set_low,
    set_potential,
    weight_range,
)
from maillard.simulation.vector_operations import largest, number_at, set_number

MIN_CERTAIN = 0.8  # with a lower probability of certain rounds, runs do not pay
LOOSE = 0.85  # an arm that is rejected with less than this part of its bound gets new bounds
LEAST_WEIGHT = 1.0 / 16.0  # with less in all, the weights get a new scale


def begin(arms: int) -> Any:
    """Return the state before the first reward: no leader."""
    w = make_table(arms, SUMS, COLUMNS)
    w[INVALID] = w[LEADER] = w[LAST_ROUND] = -1.0
    w[ROUND_SPAN] = 1.0
    for arm in range(arms, whole_nodes(arms)):  # these are never the largest
        set_number(w, vector_start(arms, MEANS) + arm, -np.inf)
        set_number(w, vector_start(arms, FLOORS) + arm, -np.inf)
    w[0, AT_BEST] = w[0, AT_FLOOR] = w[0, AT_CEILING] = w[LOW_ROUND] = np.nan
    power = 1.0
    for exponent in range(EXPONENTS):
        set_number(w, vector_start(arms, POWERS) + exponent, power)
        power *= 0.5
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with exactly the policy's probability."""
    if t > w[LAST_ROUND]:
        start_window(f, w, arms, t)
    u = rng.random() * (w[LEADER_HIGH] + w[RIVALS])
    return choose_at(f, w, arms, t, u, rng)


def certain_rounds(f: Any, w: Any, arms: int, t: int) -> tuple[int, float, float, float]:
    """Return the leader, the probability that a round is uncertain, for how many rounds, and the limit.

    These hold for that number of rounds, if the leader's mean stays at or above the limit in all of them.
    There are none if a weight is invalid, if uncertain rounds are likely, or if the policy compares other
    numbers than means.
    """
    if t > w[LAST_ROUND]:
        start_window(f, w, arms, t)
    low, total = w[LEADER_LOW], w[LEADER_HIGH] + w[RIVALS]
    if low < MIN_CERTAIN * total or f[3] != 0:
        return 0, 1.0, 0.0, 0.0
    lead = int(w[LEADER])
    rounds = min(w[LAST_ROUND] - t, w[LAST_PULLS] - w[N, lead]) + 1.0
    return lead, (total - low) / total, rounds, w[LIMIT]


@rare
def choose_uncertain(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm in an uncertain round, in the state that `certain_rounds` described."""
    f, w, rng = borrowed(f), borrowed(w), borrowed(rng)
    low, high = w[LEADER_LOW], w[LEADER_HIGH]
    u = low + rng.random() * (high + w[RIVALS] - low)
    return choose_at(f, w, arms, t, u, rng)


def choose_at(f: Any, w: Any, arms: int, t: int, u: float, rng: Any) -> int:
    """Choose an arm, from a first position on the line of the leader's and the rivals' bounds."""
    while True:
        if u < w[LEADER_LOW]:
            return int(w[LEADER])
        position = u - w[LEADER_HIGH]
        if position < 0.0:
            if is_leader_accepted(f, w, arms, u, t):
                return int(w[LEADER])
        elif position < w[RIVALS]:  # rounding may lead past the last arm
            arm, within = find_arm(w, arms, vector_start(arms, SUMS), position)
            if within < w[LOW, arm] and w[BEST] <= w[CEILING, arm]:
                return arm
            if is_accepted(f, w, arms, arm, within, t):
                return arm
        if w[LEADER_LOW] < 0.0:
            return -1 - int(w[INVALID])
        u = rng.random() * (w[LEADER_HIGH] + w[RIVALS])


@rare
def is_leader_accepted(f: Any, w: Any, arms: int, u: float, t: int) -> bool:
    """Return whether a number is below the leader's exact weight; count a rejection."""
    f, w = borrowed(f), borrowed(w)
    if w[LEADER_LOW] >= 0.0:
        if u < leader_weight(f, w, w[N, int(w[LEADER])], t):
            return True
        count_rejection(f, w, arms, t)
    return False


@rare
def is_accepted(f: Any, w: Any, arms: int, arm: int, position: float, t: int) -> bool:
    """Return whether a position in an arm's bound is below its exact weight; improve its bounds otherwise."""
    f, w = borrowed(f), borrowed(w)
    if w[LEADER_LOW] < 0.0:
        return False
    best, bound = w[BEST], w[BOUND, arm]
    log, factor, error = estimate(f, w, arms, arm, best, t, t, AT_BEST)
    low, high = weight_range(w, arms, log, factor, error)
    if low <= position < high or not (log <= 0.0 and high <= bound):
        low = np.exp(exact_log_weight(f, w, arm, best, t, t))
        if not is_below(w, low, bound):
            set_invalid(w, arm)
            return False
    if position < low:
        return True
    improve_bound(f, w, arms, arm, high, t)
    return False


@rare
def improve_bound(f: Any, w: Any, arms: int, arm: int, weight: float, t: int) -> None:
    """Count the rejection of an arm, and compute its bounds anew if the upper one is much too high."""
    f, w = borrowed(f), borrowed(w)
    if weight < LOOSE * w[BOUND, arm]:
        renew_bounds(f, w, arms, arm, t)
        if w[OVERFLOW] > 0.0:
            start_window(f, w, arms, t)
    count_rejection(f, w, arms, t)


@rare
def count_rejection(f: Any, w: Any, arms: int, t: int) -> None:
    """Count a rejection of a good bound. After too many, make the band narrower and the window shorter."""
    f, w = borrowed(f), borrowed(w)
    w[REJECTIONS] += 1.0
    if w[REJECTIONS] <= most_rejections(w, arms, t):
        return
    w[REJECTIONS], w[COUNTED_FROM] = 0.0, t
    w[WIDTH] *= 0.6
    if w[LEADER_HIGH] > 2.0 * leader_weight(f, w, w[N, int(w[LEADER])], t):
        w[ROUND_SPAN] = max(0.25 * w[ROUND_SPAN], 1e-6)  # the next window doubles it
        w[TIED_ROUND] = -1.0
    start_window(f, w, arms, t)


def most_rejections(w: Any, arms: int, t: int) -> float:
    """Return after how many rejections a narrower band pays: new bounds and shorter runs cost time, too."""
    return 4.0 + 0.1 * arms + 0.02 * (t - w[COUNTED_FROM])


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward; t is the next round."""
    add_rewards(f, w, arms, arm, 1.0, reward, t)


def add_rewards(f: Any, w: Any, arms: int, arm: int, pulls: float, total: float, t: int) -> None:
    """Apply several rewards of an arm; t is the next round."""
    n, s = w[N, arm] + pulls, w[S, arm] + total
    w[N, arm], w[S, arm] = n, s
    mean = compared_mean(f, n, s)
    w[MEAN, arm] = mean
    set_number(w, vector_start(arms, MEANS) + arm, mean)
    if arm == int(w[LEADER]):
        w[BEST] = mean
        if mean < w[LIMIT]:
            lower_limit(f, w, arms, t)
        elif n > w[LAST_PULLS]:
            bound_leader_weight(f, w, t)
    elif w[LEADER] >= 0.0:
        update_rival(f, w, arms, arm, t)


@rare
def update_rival(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Compute the lower bound of an arm with a new mean, and its upper bound if that no longer holds."""
    f, w = borrowed(f), borrowed(w)
    mean = w[MEAN, arm]
    set_potential(f, w, arms, arm)
    if mean <= min(w[HIGHEST, arm], w[LIMIT]):
        set_low(f, w, arms, arm, t)
    elif mean > w[BEST]:
        change_leader(f, w, arms, arm, t)
    else:
        renew_bounds(f, w, arms, arm, t)


@rare
def change_leader(f: Any, w: Any, arms: int, new: int, t: int) -> None:
    """Replace the leader by another arm."""
    f, w = borrowed(f), borrowed(w)
    old = int(w[LEADER])
    w[RIVALS] -= w[BOUND, new]
    change_bound(w, arms, vector_start(arms, SUMS), new, 0.0)
    w[LEADER], w[BEST] = new, w[MEAN, new]
    set_potential(f, w, arms, old)
    renew_bounds(f, w, arms, old, t)
    bound_leader_weight(f, w, t)


@rare
def lower_limit(f: Any, w: Any, arms: int, t: int) -> None:
    """Find the leader and the limit anew after the leader's mean fell below it."""
    f, w = borrowed(f), borrowed(w)
    lead = int(w[LEADER])
    best = w[BEST]
    top = largest_of_others(w, MEANS, arms, lead)
    if top > best:
        lead = 0
        while w[MEAN, lead] != top:
            lead += 1
        change_leader(f, w, arms, lead, t)
        best = top
        top = largest_of_others(w, MEANS, arms, lead)
    floor = largest_of_others(w, FLOORS, arms, lead)
    if floor > best:
        floor = lower_floors(f, w, arms, t)
    w[LIMIT] = max(top, floor, best - w[WIDTH])  # the last is the floor of an old leader
    if w[N, lead] > w[LAST_PULLS]:
        bound_leader_weight(f, w, t)


def largest_of_others(w: Any, vector: int, arms: int, but: int) -> float:
    """Return the largest number of a vector, leaving out an arm."""
    start = vector_start(arms, vector)
    own = number_at(w, start + but)
    set_number(w, start + but, -np.inf)
    most = largest(w, start, arms)
    set_number(w, start + but, own)
    return most


@rare
def lower_floors(f: Any, w: Any, arms: int, t: int) -> float:
    """Compute new bounds of arms whose floor is above the best mean, or nearly so; return the highest floor.

    Widen the band unless that costs too much.
    """
    f, w = borrowed(f), borrowed(w)
    lead, best = int(w[LEADER]), w[BEST]
    if w[WIDTH] == 0.0:
        worst = best
        for arm in range(arms):
            worst = min(worst, w[MEAN, arm])
        w[WIDTH] = 0.1 * (best - worst)
    elif w[REJECTIONS] < 0.5 * most_rejections(w, arms, t):
        w[WIDTH] *= 1.5
    w[REJECTIONS], w[COUNTED_FROM] = 0.0, t
    highest = best - 0.5 * w[WIDTH]
    for arm in range(arms):
        if arm != lead and number_at(w, vector_start(arms, FLOORS) + arm) > highest:
            w[BOUND, arm] = new_bound(f, w, arms, arm, t)
    w[RIVALS] = add_up(w, arms, vector_start(arms, SUMS))
    return largest_of_others(w, FLOORS, arms, lead)


@rare
def start_window(f: Any, w: Any, arms: int, t: int) -> None:
    """Compute the bounds anew that are valid only for a window of rounds, or all after a change of scale."""
    f, w = borrowed(f), borrowed(w)
    lead = int(w[LEADER])
    if not t <= w[LOW_ROUND]:
        w[LOW_ROUND] = 2.0 * t
        for arm in range(arms):
            w[LOW, arm] = 0.0  # until the next reward
    if t > w[TIED_ROUND]:
        w[ROUND_SPAN] = min(2.0 * w[ROUND_SPAN], 1.0)
        w[TIED_ROUND] = t + np.floor(w[ROUND_SPAN] * t)
        for arm in range(arms if lead >= 0 else 0):
            floor = number_at(w, vector_start(arms, FLOORS) + arm)
            if arm != lead and max(w[MEAN, arm], w[HIGHEST, arm]) >= floor:
                renew_bounds(f, w, arms, arm, t)
    if lead < 0 or w[OVERFLOW] > 0.0 or w[LEADER_HIGH] + w[RIVALS] < LEAST_WEIGHT:
        set_scale(f, w, arms, t)
    bound_leader_weight(f, w, t)


@rare
def set_scale(f: Any, w: Any, arms: int, t: int) -> None:
    """Compute all bounds relative to the largest of them."""
    if w[LEADER] < 0.0:
        lead, worst = 0, 0
        for arm in range(1, arms):
            if w[MEAN, arm] > w[MEAN, lead]:
                lead = arm
            if w[MEAN, arm] < w[MEAN, worst]:
                worst = arm
        w[LEADER], w[WIDTH] = lead, 0.1 * (w[MEAN, lead] - w[MEAN, worst])
        w[BEST], w[LIMIT] = w[MEAN, lead], -np.inf
        numbers = f[SQUARED_GAP : SQUARED_GAP + 2].view(np.float64)
        w[CURVATURE], w[BOOST] = numbers[0], numbers[1]
        for arm in range(arms):
            set_potential(f, w, arms, arm)
    lead = int(w[LEADER])
    floor, scale = w[BEST] - w[WIDTH], -np.inf
    for arm in range(arms):
        log = log_weight(f, w[N, arm], w[MEAN, arm], floor, w[TIED_ROUND], t)
        scale = max(scale, log)
    # The largest weight is likely to grow again.
    w[SCALE] = scale + LOG_2 * w[OVERFLOW]
    w[OVERFLOW] = 0.0
    for arm in range(arms):
        if arm != lead:
            renew_bounds(f, w, arms, arm, t)
            check_estimate(f, w, arms, arm, t)


ENGINE = (begin, choose, update)
RUNS = (certain_rounds, choose_uncertain, add_rewards)
