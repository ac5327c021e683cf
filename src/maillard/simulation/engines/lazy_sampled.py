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
from maillard.simulation.engines.direct_engines import estimate

__all__ = ["ENGINE"]

# Rows of the table: pulls, sums, means, log bounds, trees of bounds and of means; and
# in X: what is accepted unseen, the lead's bound, the floor, its width, the scale of weights, until which round bounds hold, up to
# how many pulls the lead's lower bound does, wasted draws, an arm whose weight is unusable, the lead, for how much of t bounds hold.
N, S, MEAN, LOG, TREE, TOP, X = range(7)
LOW, HIGH, FLOOR, WIDTH, SCALE, ROUND, PULLS, WASTED, BAD, LEAD, SPAN = range(11)
WASTE = 0.4  # draws that may be wasted, for each arm, before bounds are made anew: what the renewal costs
SLACK = 1e-9  # rounding, beyond which a log weight above its bound refutes the policy's declaration


def begin(arms: int) -> Any:
    """Nothing observed, no lead."""
    w = np.zeros((7, 2 * leaves_for(arms)))
    w[TOP] = -np.inf
    w[X, BAD] = w[X, LEAD] = -1.0
    w[X, SPAN] = 1.0
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """An arm with exactly the policy's probability."""
    half = w.shape[1] // 2
    if w[X, LEAD] < 0.0 or t > w[X, ROUND]:
        w[X, SPAN] = min(2.0 * w[X, SPAN], 1.0)
        renew(f, w, arms, t)
    while w[X, BAD] < 0.0:
        lead = int(w[X, LEAD])
        u = rng.random() * (w[X, HIGH] + w[TREE, 1])
        if u < w[X, LOW]:
            return lead
        if u < w[X, HIGH]:
            if u < weight_leading(f, w, lead, t):
                return lead
        else:
            leaf, into = find_sum(w, TREE, half, u - w[X, HIGH])
            arm, bound = leaf - half, w[TREE, leaf]
            if bound > 0.0:  # rounding may lead past the last
                log = log_weight_of(f, w, arm, t)
                excess = log - w[LOG, arm]
                if not excess <= SLACK * (1.0 + abs(w[X, SCALE])):
                    w[X, BAD] = arm
                if into < bound * (1.0 + excess) or into < np.exp(
                    log
                ):  # 1 + x <= exp(x), so mostly the first tells
                    return arm
        w[X, WASTED] += 1.0
        if w[X, WASTED] > 4.0 + WASTE * arms:
            if w[MEAN, lead] < w[X, FLOOR] + 1.5 * w[X, WIDTH]:  # not the lead's rise: the band is too wide
                w[X, WIDTH] *= 0.6
            if w[X, HIGH] > 2.0 * weight_leading(
                f, w, lead, t
            ):  # it grows with t, and is bounded for too long
                w[X, SPAN] = max(0.5 * w[X, SPAN], 1e-6)
            renew(f, w, arms, t)
    return -1 - int(w[X, BAD])


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Take in a reward; t is the next round."""
    lead = int(w[X, LEAD])
    w[N, arm] += 1.0
    w[S, arm] += reward
    mean = estimate(f, w[N, arm], w[S, arm])
    w[MEAN, arm] = mean
    if lead < 0:
        return
    half = w.shape[1] // 2
    if arm == lead:
        if mean < w[TOP, 1]:
            set_max(w, TOP, half + arm, mean)
            follow(f, w, arms, arm, find_max(w, TOP, half) - half, t)
        elif mean < w[X, FLOOR]:
            fall(f, w, arms, t)
        elif w[N, arm] > w[X, PULLS]:
            welcome(f, w, t)
    elif mean > w[MEAN, lead]:
        set_max(w, TOP, half + lead, w[MEAN, lead])
        follow(f, w, arms, lead, arm, t)
    else:
        set_max(w, TOP, half + arm, mean)
        set_sum(w, TREE, half + arm, bound_of(f, w, arm, t))


@rare
def follow(f: Any, w: Any, arms: int, old: int, new: int, t: int) -> None:
    """Another arm leads."""
    half = w.shape[1] // 2
    w[X, LEAD] = new
    set_max(w, TOP, half + new, -np.inf)
    set_sum(w, TREE, half + new, 0.0)
    if w[MEAN, new] < w[X, FLOOR]:
        fall(f, w, arms, t)
    else:
        set_sum(w, TREE, half + old, bound_of(f, w, old, t))
        welcome(f, w, t)


@rare
def fall(f: Any, w: Any, arms: int, t: int) -> None:
    """The best mean fell below the floor: wider next time, unless that was already dear."""
    if w[X, WASTED] < 0.5 * WASTE * arms + 2.0:
        w[X, WIDTH] *= 1.5
    renew(f, w, arms, t)


@rare
def renew(f: Any, w: Any, arms: int, t: int) -> None:
    """All bounds anew, for a floor under the best mean of now."""
    half, lead, worst = w.shape[1] // 2, 0, 0
    for arm in range(1, arms):
        if w[MEAN, arm] > w[MEAN, lead]:
            lead = arm
        if w[MEAN, arm] < w[MEAN, worst]:
            worst = arm
    best = w[MEAN, lead]
    w[X, LEAD] = lead
    if w[X, WIDTH] == 0.0:
        w[X, WIDTH] = 0.1 * (best - w[MEAN, worst])
    w[X, FLOOR], w[X, ROUND], w[X, WASTED] = best - w[X, WIDTH], t + np.floor(w[X, SPAN] * t), 0.0
    w[X, SCALE] = call(f[1], f[0], w[N, lead], float(t), 0.0, 0.0, 0.0)
    for arm in range(arms):
        w[TREE, half + arm] = 0.0 if arm == lead else bound_of(f, w, arm, t)
        w[TOP, half + arm] = -np.inf if arm == lead else w[MEAN, arm]
    fill_sum(w, TREE, half)
    fill_max(w, TOP, half)
    welcome(f, w, t)


@rare
def welcome(f: Any, w: Any, t: int) -> None:
    """Bounds on the lead's own weight, for somewhat more pulls than it has."""
    lead = int(w[X, LEAD])
    n = w[N, lead]
    w[X, PULLS] = np.floor(n * 1.0625) + 1.0
    until = max(w[X, ROUND], float(t))  # a window that ends now is renewed before the next choice
    w[X, HIGH] = np.exp(call(f[1], f[0], n, until, 0.0, 0.0, 0.0) - w[X, SCALE])
    w[X, LOW] = np.exp(call(f[1], f[0], w[X, PULLS], float(t), 0.0, 0.0, 0.0) - w[X, SCALE])
    if not (w[X, LOW] <= w[X, HIGH] * (1.0 + SLACK) and w[X, HIGH] < np.inf):
        w[X, BAD] = lead


def bound_of(f: Any, w: Any, arm: int, t: int) -> float:
    """What an arm weighs at most while the best mean is above the floor."""
    if w[MEAN, arm] >= w[X, FLOOR]:
        log = call(f[1], f[0], w[N, arm], w[X, ROUND], 0.0, 0.0, 0.0)
    else:
        log = call(f[2], f[0], w[N, arm], w[MEAN, arm], w[X, FLOOR], float(t), 0.0)
    w[LOG, arm] = log - w[X, SCALE]
    bound = np.exp(w[LOG, arm])
    if not bound < np.inf:
        w[X, BAD] = arm
    return bound


def log_weight_of(f: Any, w: Any, arm: int, t: int) -> float:
    """The logarithm of what an arm weighs."""
    best = w[MEAN, int(w[X, LEAD])]
    if w[MEAN, arm] == best:
        log = call(f[1], f[0], w[N, arm], float(t), 0.0, 0.0, 0.0)
    else:
        log = call(f[2], f[0], w[N, arm], w[MEAN, arm], best, float(t), 0.0)
    return log - w[X, SCALE]


def weight_leading(f: Any, w: Any, arm: int, t: int) -> float:
    """What a leader weighs."""
    return np.exp(call(f[1], f[0], w[N, arm], float(t), 0.0, 0.0, 0.0) - w[X, SCALE])


ENGINE = (begin, choose, update)
