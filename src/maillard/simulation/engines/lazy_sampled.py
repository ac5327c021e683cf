"""The lazy engine for sampled policies: rejection sampling from upper bounds on the weights.

The algorithm keeps one arm with the best empirical mean apart, the leader. A sum tree holds an upper bound on
the weight of every other arm. A bound is computed for a best mean that is `WIDTH` lower than the current one
(the floor). Because a monotone policy's weights do not rise with the best mean or with t, the bound stays
valid while the best mean is above the floor. An arm whose mean is above the floor may become the leader, so
its bound is a leader's weight.

To choose an arm, sample one in proportion to the bounds, evaluate its exact weight, accept it with
probability weight / bound, and otherwise sample again. The choice then has exactly the policy's distribution.
The leader is accepted without an evaluation up to a lower bound of its weight, so that a round in which the
leader wins costs O(1).

`certain_rounds` says how likely a round is in which the leader is accepted without an evaluation, and for how
long that is so. The loop simulates such rounds many at once (see `leader_runs`), and asks
`choose_uncertain` for the arm of the first other one.

The engine rebuilds all bounds when the best mean falls below the floor, when too many samples were rejected,
or when their window of rounds ends (usually after t has doubled). A wide band needs fewer rebuilds but
rejects more samples; the engine adapts `WIDTH` to balance the two. The width affects the cost of a round,
never the choice. Weights are relative to the leader's weight at the last rebuild, so that their scale does
not matter.
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
from maillard.simulation.engines.direct_engines import compared_mean, log_weight

# Rows of the table: per arm the pulls, sums, means and log bounds; a sum tree of the bounds; a tree of the
# maxima of the other arms' means; and STATE, single numbers at the following positions.
N, S, MEAN, LOG_BOUND, BOUND_TREE, MEAN_TREE, STATE = range(7)
# LEADER_LOW, LEADER_HIGH: bounds on the leader's weight. FLOOR, WIDTH: the lowest best mean for which bounds
# are valid, and its distance from the best mean at the last rebuild. SCALE: subtracted from log weights.
# LAST_ROUND, LAST_PULLS: how long the bounds and the leader's lower bound are valid. REJECTIONS: since the
# last rebuild. INVALID: an arm whose weight is nan, infinite or above its bound, or -1. ROUND_SPAN: window of
# rounds, per t.
LEADER_LOW, LEADER_HIGH, FLOOR, WIDTH, SCALE = range(5)
LAST_ROUND, LAST_PULLS, REJECTIONS, INVALID, LEADER, ROUND_SPAN = range(5, 11)
MAX_REJECTIONS_PER_ARM = 0.4  # before a rebuild, which costs about as much
ROUNDING_SLACK = 1e-9  # relative excess of a log weight over its bound at which the policy is rejected


def begin(arms: int) -> Any:
    """Return the state before the first reward: no leader."""
    w = np.zeros((7, 2 * leaves_for(arms)))
    w[MEAN_TREE] = -np.inf
    w[STATE, INVALID] = w[STATE, LEADER] = -1.0
    w[STATE, ROUND_SPAN] = 1.0
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with exactly the policy's probability."""
    if w[STATE, LEADER] < 0.0 or t > w[STATE, LAST_ROUND]:
        start_window(f, w, arms, t)
    u = rng.random() * (w[STATE, LEADER_HIGH] + w[BOUND_TREE, 1])
    if u < w[STATE, LEADER_LOW] and w[STATE, INVALID] < 0.0:
        return int(w[STATE, LEADER])
    return choose_at(f, w, arms, t, u, rng)


@rare
def start_window(f: Any, w: Any, arms: int, t: int) -> None:
    """Rebuild the bounds for a new window of rounds."""
    w[STATE, ROUND_SPAN] = min(2.0 * w[STATE, ROUND_SPAN], 1.0)
    rebuild_bounds(f, w, arms, t)


def certain_rounds(f: Any, w: Any, arms: int, t: int) -> tuple[int, float, float, float]:
    """Return the leader, the probability that a round is uncertain, for how many rounds, and the limit.

    These hold for that number of rounds, if the leader's mean stays at or above the limit in all of them.
    There are none if a weight is invalid, or if the policy compares other numbers than means.
    """
    if w[STATE, LEADER] < 0.0 or t > w[STATE, LAST_ROUND]:
        start_window(f, w, arms, t)
    if w[STATE, INVALID] >= 0.0 or f[3] != 0:
        return 0, 1.0, 0.0, 0.0
    lead, total = int(w[STATE, LEADER]), w[STATE, LEADER_HIGH] + w[BOUND_TREE, 1]
    rounds = min(w[STATE, LAST_ROUND] - t, w[STATE, LAST_PULLS] - w[N, lead]) + 1.0
    return lead, (total - w[STATE, LEADER_LOW]) / total, rounds, max(w[STATE, FLOOR], w[MEAN_TREE, 1])


def choose_uncertain(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm in an uncertain round, in the state that `certain_rounds` described."""
    low, total = w[STATE, LEADER_LOW], w[STATE, LEADER_HIGH] + w[BOUND_TREE, 1]
    return choose_at(f, w, arms, t, low + rng.random() * (total - low), rng)


@rare
def choose_at(f: Any, w: Any, arms: int, t: int, u: float, rng: Any) -> int:
    """Choose an arm, from a first position on the line of bounds."""
    half = w.shape[1] // 2
    while w[STATE, INVALID] < 0.0:
        lead = int(w[STATE, LEADER])
        if u < w[STATE, LEADER_LOW]:
            return lead
        if u < w[STATE, LEADER_HIGH]:
            if u < leader_weight(f, w, w[N, lead], t):
                return lead
        else:
            leaf, into = find_sum(w, BOUND_TREE, half, u - w[STATE, LEADER_HIGH])
            arm, bound = leaf - half, w[BOUND_TREE, leaf]
            if bound > 0.0:  # rounding may lead past the last arm
                log = log_weight(f, w[N, arm], w[MEAN, arm], w[MEAN, lead], t, t) - w[STATE, SCALE]
                excess = log - w[LOG_BOUND, arm]
                if not excess <= ROUNDING_SLACK * (1.0 + abs(w[STATE, SCALE])):
                    w[STATE, INVALID] = arm
                # 1 + x <= exp(x): mostly the first comparison suffices.
                if into < bound * (1.0 + excess) or into < np.exp(log):
                    return arm
        w[STATE, REJECTIONS] += 1.0
        if w[STATE, REJECTIONS] > 4.0 + MAX_REJECTIONS_PER_ARM * arms:
            # The leader has not risen: the band is too wide.
            if w[MEAN, lead] < w[STATE, FLOOR] + 1.5 * w[STATE, WIDTH]:
                w[STATE, WIDTH] *= 0.6
            # Its weight grows with t: shorten the window.
            if w[STATE, LEADER_HIGH] > 2.0 * leader_weight(f, w, w[N, lead], t):
                w[STATE, ROUND_SPAN] = max(0.5 * w[STATE, ROUND_SPAN], 1e-6)
            rebuild_bounds(f, w, arms, t)
        u = rng.random() * (w[STATE, LEADER_HIGH] + w[BOUND_TREE, 1])
    return -1 - int(w[STATE, INVALID])


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward; t is the next round."""
    add_rewards(f, w, arms, arm, 1.0, reward, t)


def add_rewards(f: Any, w: Any, arms: int, arm: int, pulls: float, total: float, t: int) -> None:
    """Apply several rewards of an arm; t is the next round."""
    lead = int(w[STATE, LEADER])
    w[N, arm] += pulls
    w[S, arm] += total
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
    """Replace the leader by another arm."""
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
    """Rebuild the bounds after the best mean fell below the floor.

    Widen the band unless that costs too much.
    """
    if w[STATE, REJECTIONS] < 0.5 * MAX_REJECTIONS_PER_ARM * arms + 2.0:
        w[STATE, WIDTH] *= 1.5
    rebuild_bounds(f, w, arms, t)


@rare
def rebuild_bounds(f: Any, w: Any, arms: int, t: int) -> None:
    """Recompute all bounds for a floor below the current best mean."""
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
    w[STATE, FLOOR], w[STATE, REJECTIONS] = best - w[STATE, WIDTH], 0.0
    w[STATE, LAST_ROUND] = t + np.floor(w[STATE, ROUND_SPAN] * t)
    w[STATE, SCALE] = call(f[1], f[0], w[N, lead], float(t), 0.0, 0.0, 0.0)
    for arm in range(arms):
        w[BOUND_TREE, half + arm] = 0.0 if arm == lead else upper_bound(f, w, arm, t)
        w[MEAN_TREE, half + arm] = -np.inf if arm == lead else w[MEAN, arm]
    fill_sum(w, BOUND_TREE, half)
    fill_max(w, MEAN_TREE, half)
    bound_leader_weight(f, w, t)


@rare
def bound_leader_weight(f: Any, w: Any, t: int) -> None:
    """Compute a lower and an upper bound on the leader's weight, valid for 6% more pulls than it has."""
    lead = int(w[STATE, LEADER])
    n = w[N, lead]
    w[STATE, LAST_PULLS] = np.floor(n * 1.0625) + 1.0
    until = max(w[STATE, LAST_ROUND], float(t))  # a window that ends now is rebuilt before the next choice
    high = leader_weight(f, w, n, until)
    low = leader_weight(f, w, w[STATE, LAST_PULLS], t)
    w[STATE, LEADER_HIGH], w[STATE, LEADER_LOW] = high, low
    if not (low <= high * (1.0 + ROUNDING_SLACK) and high < np.inf):
        w[STATE, INVALID] = lead


def upper_bound(f: Any, w: Any, arm: int, t: int) -> float:
    """Return the largest weight that an arm can have while the best mean is above the floor."""
    log = log_weight(f, w[N, arm], w[MEAN, arm], w[STATE, FLOOR], w[STATE, LAST_ROUND], t)
    w[LOG_BOUND, arm] = log - w[STATE, SCALE]
    bound = np.exp(w[LOG_BOUND, arm])
    if not bound < np.inf:
        w[STATE, INVALID] = arm
    return bound


def leader_weight(f: Any, w: Any, n: float, t: float) -> float:
    """Return the exact weight of a leader with n pulls in round t."""
    return np.exp(call(f[1], f[0], n, float(t), 0.0, 0.0, 0.0) - w[STATE, SCALE])


ENGINE = (begin, choose, update)
RUNS = (certain_rounds, choose_uncertain, add_rewards)
