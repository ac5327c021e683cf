"""The lazy engine for the sampled shape: exact, and a round in which the leader wins costs O(1).

Every arm but one, the lead (an arm with the best mean), has in a sum tree an upper bound on its weight. A bound is made for a best mean
that lies `width` lower than it was, so it holds while the best mean stays above that floor; an arm whose mean is above
the floor, which may come to lead, has a leader's weight as its bound. To choose, draw from the bounds, accept with weight over bound,
else draw again. The lead itself is accepted unseen as far as a lower bound of its weight reaches.

Bounds are made anew when the best mean falls below the floor, when too many draws were wasted, or when their window of
rounds ends, mostly a doubling of t.
The width balances the first two: it changes what a round costs, never what is chosen. All weights are relative to the lead's own
at the last renewal, so that no policy's scale matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare
from maillard.simulation.engines.arm_trees import (
    fill_max,
    fill_sum,
    find_max,
    find_sum,
    leaves_for,
    set_max,
    set_sum,
)
from maillard.simulation.engines.direct_engines import compared_mean

__all__ = ["ENGINE"]

# Rows of the table: pulls, sums, means, log bounds, trees of bounds and of means; and
# in STATE: what is accepted unseen, the lead's bound, the floor, its width, the scale of weights, until which round bounds hold, up to
# how many pulls the lead's lower bound does, wasted draws, an arm whose weight is unusable, the lead, for how much of t bounds hold.
N, S, MEAN, LOG_BOUND, BOUND_TREE, MEAN_TREE, STATE = range(7)
(
    LEADER_LOW,
    LEADER_HIGH,
    FLOOR,
    WIDTH,
    SCALE,
    LAST_ROUND,
    LAST_PULLS,
    REJECTIONS,
    INVALID,
    LEADER,
    ROUND_SPAN,
) = range(11)
MAX_REJECTIONS_PER_ARM = (
    0.4  # draws that may be wasted, for each arm, before bounds are made anew: what the renewal costs
)
ROUNDING_SLACK = 1e-9  # rounding, beyond which a log weight above its bound refutes the policy's declaration


def begin(arms: int) -> Any:
    """Nothing observed, no lead."""
    w = np.zeros((7, 2 * leaves_for(arms)))
    w[MEAN_TREE] = -np.inf
    w[STATE, INVALID] = w[STATE, LEADER] = -1.0
    w[STATE, ROUND_SPAN] = 1.0
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """An arm with exactly the policy's probability."""
    half = w.shape[1] // 2
    if w[STATE, LEADER] < 0.0 or t > w[STATE, LAST_ROUND]:
        w[STATE, ROUND_SPAN] = min(2.0 * w[STATE, ROUND_SPAN], 1.0)
        rebuild_bounds(f, w, arms, t)
    while w[STATE, INVALID] < 0.0:
        lead = int(w[STATE, LEADER])
        u = rng.random() * (w[STATE, LEADER_HIGH] + w[BOUND_TREE, 1])
        if u < w[STATE, LEADER_LOW]:
            return lead
        if u < w[STATE, LEADER_HIGH]:
            if u < leader_weight(f, w, lead, t):
                return lead
        else:
            leaf, into = find_sum(w, BOUND_TREE, half, u - w[STATE, LEADER_HIGH])
            arm, bound = leaf - half, w[BOUND_TREE, leaf]
            if bound > 0.0:  # rounding may lead past the last
                log = log_weight(f, w, arm, t)
                excess = log - w[LOG_BOUND, arm]
                if not excess <= ROUNDING_SLACK * (1.0 + abs(w[STATE, SCALE])):
                    w[STATE, INVALID] = arm
                if into < bound * (1.0 + excess) or into < np.exp(
                    log
                ):  # 1 + x <= exp(x), so mostly the first tells
                    return arm
        w[STATE, REJECTIONS] += 1.0
        if w[STATE, REJECTIONS] > 4.0 + MAX_REJECTIONS_PER_ARM * arms:
            if (
                w[MEAN, lead] < w[STATE, FLOOR] + 1.5 * w[STATE, WIDTH]
            ):  # not the lead's rise: the band is too wide
                w[STATE, WIDTH] *= 0.6
            if w[STATE, LEADER_HIGH] > 2.0 * leader_weight(
                f, w, lead, t
            ):  # it grows with t, and is bounded for too long
                w[STATE, ROUND_SPAN] = max(0.5 * w[STATE, ROUND_SPAN], 1e-6)
            rebuild_bounds(f, w, arms, t)
    return -1 - int(w[STATE, INVALID])


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Take in a reward; t is the next round."""
    lead = int(w[STATE, LEADER])
    w[N, arm] += 1.0
    w[S, arm] += reward
    mean = compared_mean(f, w[N, arm], w[S, arm])
    w[MEAN, arm] = mean
    if lead < 0:
        return
    half = w.shape[1] // 2
    if arm == lead:
        if mean < w[MEAN_TREE, 1]:
            set_max(w, MEAN_TREE, half + arm, mean)
            change_leader(f, w, arms, arm, find_max(w, MEAN_TREE, half) - half, t)
        elif mean < w[STATE, FLOOR]:
            rebuild_below_floor(f, w, arms, t)
        elif w[N, arm] > w[STATE, LAST_PULLS]:
            bound_leader_weight(f, w, t)
    elif mean > w[MEAN, lead]:
        set_max(w, MEAN_TREE, half + lead, w[MEAN, lead])
        change_leader(f, w, arms, lead, arm, t)
    else:
        set_max(w, MEAN_TREE, half + arm, mean)
        set_sum(w, BOUND_TREE, half + arm, upper_bound(f, w, arm, t))


@rare
def change_leader(f: Any, w: Any, arms: int, old: int, new: int, t: int) -> None:
    """Another arm leads."""
    half = w.shape[1] // 2
    w[STATE, LEADER] = new
    set_max(w, MEAN_TREE, half + new, -np.inf)
    set_sum(w, BOUND_TREE, half + new, 0.0)
    if w[MEAN, new] < w[STATE, FLOOR]:
        rebuild_below_floor(f, w, arms, t)
    else:
        set_sum(w, BOUND_TREE, half + old, upper_bound(f, w, old, t))
        bound_leader_weight(f, w, t)


@rare
def rebuild_below_floor(f: Any, w: Any, arms: int, t: int) -> None:
    """The best mean fell below the floor: wider next time, unless that was already dear."""
    if w[STATE, REJECTIONS] < 0.5 * MAX_REJECTIONS_PER_ARM * arms + 2.0:
        w[STATE, WIDTH] *= 1.5
    rebuild_bounds(f, w, arms, t)


@rare
def rebuild_bounds(f: Any, w: Any, arms: int, t: int) -> None:
    """All bounds anew, for a floor under the best mean of now."""
    half, lead, worst = w.shape[1] // 2, 0, 0
    for arm in range(1, arms):
        if w[MEAN, arm] > w[MEAN, lead]:
            lead = arm
        if w[MEAN, arm] < w[MEAN, worst]:
            worst = arm
    best = w[MEAN, lead]
    w[STATE, LEADER] = lead
    if w[STATE, WIDTH] == 0.0:
        w[STATE, WIDTH] = 0.1 * (best - w[MEAN, worst])
    w[STATE, FLOOR], w[STATE, LAST_ROUND], w[STATE, REJECTIONS] = (
        best - w[STATE, WIDTH],
        t + np.floor(w[STATE, ROUND_SPAN] * t),
        0.0,
    )
    w[STATE, SCALE] = call(f[1], f[0], w[N, lead], float(t), 0.0, 0.0, 0.0)
    for arm in range(arms):
        w[BOUND_TREE, half + arm] = 0.0 if arm == lead else upper_bound(f, w, arm, t)
        w[MEAN_TREE, half + arm] = -np.inf if arm == lead else w[MEAN, arm]
    fill_sum(w, BOUND_TREE, half)
    fill_max(w, MEAN_TREE, half)
    bound_leader_weight(f, w, t)


@rare
def bound_leader_weight(f: Any, w: Any, t: int) -> None:
    """Bounds on the lead's own weight, for somewhat more pulls than it has."""
    lead = int(w[STATE, LEADER])
    n = w[N, lead]
    w[STATE, LAST_PULLS] = np.floor(n * 1.0625) + 1.0
    until = max(w[STATE, LAST_ROUND], float(t))  # a window that ends now is renewed before the next choice
    w[STATE, LEADER_HIGH] = np.exp(call(f[1], f[0], n, until, 0.0, 0.0, 0.0) - w[STATE, SCALE])
    w[STATE, LEADER_LOW] = np.exp(
        call(f[1], f[0], w[STATE, LAST_PULLS], float(t), 0.0, 0.0, 0.0) - w[STATE, SCALE]
    )
    if not (
        w[STATE, LEADER_LOW] <= w[STATE, LEADER_HIGH] * (1.0 + ROUNDING_SLACK)
        and w[STATE, LEADER_HIGH] < np.inf
    ):
        w[STATE, INVALID] = lead


def upper_bound(f: Any, w: Any, arm: int, t: int) -> float:
    """What an arm weighs at most while the best mean is above the floor."""
    if w[MEAN, arm] >= w[STATE, FLOOR]:
        log = call(f[1], f[0], w[N, arm], w[STATE, LAST_ROUND], 0.0, 0.0, 0.0)
    else:
        log = call(f[2], f[0], w[N, arm], w[MEAN, arm], w[STATE, FLOOR], float(t), 0.0)
    w[LOG_BOUND, arm] = log - w[STATE, SCALE]
    bound = np.exp(w[LOG_BOUND, arm])
    if not bound < np.inf:
        w[STATE, INVALID] = arm
    return bound


def log_weight(f: Any, w: Any, arm: int, t: int) -> float:
    """The logarithm of what an arm weighs."""
    best = w[MEAN, int(w[STATE, LEADER])]
    if w[MEAN, arm] == best:
        log = call(f[1], f[0], w[N, arm], float(t), 0.0, 0.0, 0.0)
    else:
        log = call(f[2], f[0], w[N, arm], w[MEAN, arm], best, float(t), 0.0)
    return log - w[STATE, SCALE]


def leader_weight(f: Any, w: Any, arm: int, t: int) -> float:
    """What a leader weighs."""
    return np.exp(call(f[1], f[0], w[N, arm], float(t), 0.0, 0.0, 0.0) - w[STATE, SCALE])


ENGINE = (begin, choose, update)
