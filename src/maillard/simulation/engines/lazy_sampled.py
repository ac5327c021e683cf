"""The lazy engine for sampled policies: rejection sampling from upper bounds on the weights.

The algorithm keeps one arm with the best empirical mean apart, the leader. Every other arm has an upper bound
on its weight, computed for a best mean that is `WIDTH` lower than the current one, the arm's floor. Because a
monotone policy's weights do not rise with the best mean or with t, the bound stays valid while the best mean
is above the floor. An arm whose mean is above its floor may become the leader, so its bound is a leader's
weight.

To choose an arm, sample one in proportion to the bounds, evaluate its weight, accept it with probability
weight / bound, and otherwise sample again. The choice then has exactly the policy's distribution. Few arms
are found by walking along the line of bounds. Many are in buckets by the binary exponent of their bounds (see
`arm_buckets`): there, an arm is first accepted with probability bound / power of two, which needs no
evaluation. So sampling an arm and changing a bound take O(1). The leader is accepted without an evaluation up
to a lower bound of its weight.

`certain_rounds` says how likely a round is in which the leader is accepted without an evaluation, and for how
long that is so. The loop simulates such rounds many at once (see `leader_runs`), and asks
`choose_uncertain` for the arm of the first other one.

An arm gets a new bound when it is pulled, when the best mean falls below its floor, and when it is rejected
because its bound is much too high. A wide band needs fewer new bounds but rejects more samples; the engine
adapts `WIDTH` to balance the two. All arms get new bounds only if the scale of the weights changes. The width
affects the cost of a round, never the choice. Weights are relative to a scale, the largest of them at first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import borrowed, rare
from maillard.simulation.engines.arm_buckets import (
    BUCKET,
    BUCKETS,
    LENGTH,
    MASS,
    SIZE_PER_MASS,
    TOTAL,
    find_arm,
    make_table,
    remove_arm,
)
from maillard.simulation.engines.direct_engines import compared_mean, log_weight
from maillard.simulation.engines.weight_bounds import (
    AT_BEST,
    AT_FLOOR,
    BOUND,
    COUNTED_FROM,
    FLOOR,
    INVALID,
    LAST_PULLS,
    LAST_ROUND,
    LEADER,
    LEADER_HIGH,
    LEADER_LOW,
    LIMIT,
    LOG_2,
    LOG_BOUND,
    MEAN,
    OVERFLOW,
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
    renew_bound,
    set_bound,
    set_invalid,
    set_potential,
)

FEW_ARMS = 16  # at most so many arms are found one by one on the line of their bounds
MIN_CERTAIN = 0.8  # with a lower probability of certain rounds, runs do not pay
LEAST_WEIGHT = 1.0 / 16.0  # with less in all, the weights get a new scale


def begin(arms: int) -> Any:
    """Return the state before the first reward: no leader."""
    w = make_table(arms, ROWS)
    w[STATE, INVALID] = w[STATE, LEADER] = w[STATE, LAST_ROUND] = -1.0
    w[STATE, ROUND_SPAN] = 1.0
    w[STATE, AT_BEST] = w[STATE, AT_FLOOR] = np.nan
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with exactly the policy's probability."""
    if t > w[STATE, LAST_ROUND]:
        start_window(f, w, arms, t)
    u = rng.random() * (w[STATE, LEADER_HIGH] + line_length(w, arms))
    if u < w[STATE, LEADER_LOW]:
        return int(w[STATE, LEADER])
    return choose_at(f, w, arms, t, u, False, rng)


def line_length(w: Any, arms: int) -> float:
    """Return the length of the line of rivals: the sum of their bounds, or of the lengths in buckets."""
    return w[STATE, RIVALS] if arms <= FEW_ARMS else w[MASS, TOTAL]


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


def choose_uncertain(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm in an uncertain round, in the state that `certain_rounds` described."""
    low, high = w[STATE, LEADER_LOW], w[STATE, LEADER_HIGH]
    u = low + rng.random() * (high + w[STATE, RIVALS] - low)
    if u < high or arms <= FEW_ARMS:
        return choose_at(f, w, arms, t, u, False, rng)
    return choose_at(f, w, arms, t, high + rng.random() * w[MASS, TOTAL], True, rng)


@rare
def choose_at(f: Any, w: Any, arms: int, t: int, u: float, within: bool, rng: Any) -> int:
    """Choose an arm, from a first position on the line, or if `within` from the first in a bound."""
    f, w, rng = borrowed(f), borrowed(w), borrowed(rng)
    while w[STATE, LEADER_LOW] >= 0.0:
        lead = int(w[STATE, LEADER])
        if u < w[STATE, LEADER_LOW]:
            return lead
        if u < w[STATE, LEADER_HIGH]:
            if u < leader_weight(f, w, w[N, lead], t):
                return lead
            count_rejection(f, w, arms, t)
        else:
            if arms <= FEW_ARMS:
                arm, bucket, into = walk_to_arm(w, arms, u - w[STATE, LEADER_HIGH])
            else:
                arm, bucket, into = find_arm(w, u - w[STATE, LEADER_HIGH])
            if bucket < BUCKETS and into * w[LENGTH, bucket] < w[BOUND, arm]:
                within = False
                log, error = estimate(f, w, arm, w[MEAN, lead], t, t, AT_BEST)
                excess = log - w[LOG_BOUND, arm]
                if not excess <= ROUNDING_SLACK * (1.0 + abs(w[STATE, SCALE])):
                    set_invalid(w, arm)
                log += bucket * LOG_2  # relative to the arm's length
                if is_below_exp(into, log - error):
                    return arm
                if error > 0.0 and into < np.exp(log + error) and is_below_exact(f, w, arm, bucket, into, t):
                    return arm
                improve_bound(f, w, arms, arm, excess, t)
        if within:
            u = w[STATE, LEADER_HIGH] + rng.random() * w[MASS, TOTAL]
        else:
            u = rng.random() * (w[STATE, LEADER_HIGH] + line_length(w, arms))
    return -1 - int(w[STATE, INVALID])


def walk_to_arm(w: Any, arms: int, position: float) -> tuple[int, int, float]:
    """Return the arm at a position on the line of bounds, its bucket, and the position per its length.

    Rounding may lead past the last arm; then the bucket is BUCKETS.
    """
    arm = 0
    while arm < arms and position >= w[BOUND, arm]:
        position -= w[BOUND, arm]
        arm += 1
    if arm == arms:
        return 0, BUCKETS, 0.0
    bucket = int(w[BUCKET, arm])
    return arm, bucket, position * w[SIZE_PER_MASS, bucket]


def is_below_exp(x: float, y: float) -> bool:
    """Return whether x < exp(y); for y <= 0, two terms of the Taylor series mostly decide that."""
    low = 1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0)))
    if x < low:
        return True
    return x < low + y * y * y * y * (1.0 / 24.0) and x < np.exp(y)


@rare
def is_below_exact(f: Any, w: Any, arm: int, bucket: int, into: float, t: int) -> bool:
    """Return whether a position per length is below an arm's exact weight."""
    best = w[MEAN, int(w[STATE, LEADER])]
    return into < np.exp(exact_log_weight(f, w, arm, best, t, t) + bucket * LOG_2)


@rare
def improve_bound(f: Any, w: Any, arms: int, arm: int, excess: float, t: int) -> None:
    """Count the rejection of an arm, and compute its bound anew if it is much too high."""
    f, w = borrowed(f), borrowed(w)
    if excess < -0.1:
        renew_bound(f, w, arm, t)
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
    w[N, arm] += pulls
    w[S, arm] += total
    mean = compared_mean(f, w[N, arm], w[S, arm])
    w[MEAN, arm] = mean
    if arm == int(w[STATE, LEADER]):
        if mean < w[STATE, LIMIT]:
            lower_limit(f, w, arms, t)
        elif w[N, arm] > w[STATE, LAST_PULLS]:
            bound_leader_weight(f, w, t)
    elif w[STATE, LEADER] >= 0.0:
        update_rival(f, w, arm, t)


@rare
def update_rival(f: Any, w: Any, arm: int, t: int) -> None:
    """Compute the bound of an arm with a new mean, or make it the leader."""
    f, w = borrowed(f), borrowed(w)
    lead = int(w[STATE, LEADER])
    set_potential(f, w, arm)
    if w[MEAN, arm] > w[MEAN, lead]:
        change_leader(f, w, arm, t)
    else:
        set_bound(f, w, arm, t)


@rare
def change_leader(f: Any, w: Any, new: int, t: int) -> None:
    """Replace the leader by another arm."""
    f, w = borrowed(f), borrowed(w)
    old = int(w[STATE, LEADER])
    remove_arm(w, new)
    w[STATE, RIVALS] -= w[BOUND, new]
    w[BOUND, new] = 0.0
    w[STATE, LEADER] = new
    set_potential(f, w, old)
    renew_bound(f, w, old, t)
    bound_leader_weight(f, w, t)


@rare
def lower_limit(f: Any, w: Any, arms: int, t: int) -> None:
    """Find the leader and the limit anew after the leader's mean fell below it."""
    f, w = borrowed(f), borrowed(w)
    lead = int(w[STATE, LEADER])
    first, top, second, floor, worst = -1, -np.inf, -np.inf, -np.inf, np.inf
    for arm in range(arms):
        if arm != lead:
            mean = w[MEAN, arm]
            if mean > second:
                if mean > top:
                    first, top, second = arm, mean, top
                else:
                    second = mean
            worst = min(worst, mean)
            floor = max(floor, w[FLOOR, arm])
    if top > w[MEAN, lead]:
        change_leader(f, w, first, t)
        top = max(second, w[MEAN, lead])
        lead = first
    best = w[MEAN, lead]
    if floor > best:
        floor = lower_floors(f, w, arms, t, worst)
    w[STATE, LIMIT] = max(top, floor, best - w[STATE, WIDTH])  # the last is the floor of an old leader
    if w[N, lead] > w[STATE, LAST_PULLS]:
        bound_leader_weight(f, w, t)


@rare
def lower_floors(f: Any, w: Any, arms: int, t: int, worst: float) -> float:
    """Compute new bounds of arms whose floor is above the best mean, or nearly so; return the highest floor.

    Widen the band unless that costs too much.
    """
    f, w = borrowed(f), borrowed(w)
    lead = int(w[STATE, LEADER])
    best = w[MEAN, lead]
    if w[STATE, WIDTH] == 0.0:
        w[STATE, WIDTH] = 0.1 * max(best - worst, 0.0)
    elif w[STATE, REJECTIONS] < 0.5 * most_rejections(w, arms, t):
        w[STATE, WIDTH] *= 1.5
    w[STATE, REJECTIONS], w[STATE, COUNTED_FROM] = 0.0, t
    highest = best - 0.5 * w[STATE, WIDTH]
    floor = -np.inf
    for arm in range(arms):
        if arm != lead:
            if w[FLOOR, arm] > highest:
                set_bound(f, w, arm, t)
            floor = max(floor, w[FLOOR, arm])
    return floor


@rare
def start_window(f: Any, w: Any, arms: int, t: int) -> None:
    """Compute the bounds anew that are valid only for a window of rounds, or all after a change of scale."""
    f, w = borrowed(f), borrowed(w)
    lead = int(w[STATE, LEADER])
    if t > w[STATE, TIED_ROUND]:
        w[STATE, ROUND_SPAN] = min(2.0 * w[STATE, ROUND_SPAN], 1.0)
        w[STATE, TIED_ROUND] = t + np.floor(w[STATE, ROUND_SPAN] * t)
        total = 0.0  # anew, so that rounding errors do not accumulate
        for arm in range(arms if lead >= 0 else 0):
            if arm != lead and w[MEAN, arm] >= w[FLOOR, arm]:
                renew_bound(f, w, arm, t)
            total += w[BOUND, arm]
        w[STATE, RIVALS] = total
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
        set_potential(f, w, arm)
    # The largest weight is likely to grow again.
    w[STATE, SCALE] = scale + LOG_2 * w[STATE, OVERFLOW]
    w[STATE, OVERFLOW] = 0.0
    for arm in range(arms):
        if arm != lead:
            renew_bound(f, w, arm, t)


ENGINE = (begin, choose, update)
RUNS = (certain_rounds, choose_uncertain, add_rewards)
