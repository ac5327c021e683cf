"""The lazy engine for indexed policies: a heap of upper bounds on the indices.

The algorithm keeps the arm with the most pulls apart, the leader. A tree of maxima holds an upper bound on
the index of every other arm. If the leader's exact index is above all bounds, it is chosen after one
evaluation. Otherwise the engine evaluates the arm with the largest bound, again and again, until the largest
exact index is above all remaining bounds. Ties are broken uniformly among exact indices.

An index of a monotone policy moves in one direction as t grows, and does not rise with the best mean. So the
larger of its values at the two ends of a window of rounds bounds it within the window, and its value for a
lower best mean (a floor) bounds it while the best mean stays above. Each arm has its own window and floor:
the further its index lies below the largest one, the wider they are. Their width affects the cost of a round,
never the choice. Arms with equal pulls and means have equal indices forever, so they share one leaf as a
group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare
from maillard.simulation.engines.arm_trees import fill_max, find_max, leaves_for, set_max

# Rows of the table: pulls, sums and means; trees of the maxima of the bounds, of minus the last round of each
# bound (so that the root expires first), of the floors, and of the other arms' means; slopes of the index in
# t and in the best mean; the evaluated arms, their indices and old bounds; groups of identical arms (size,
# next and last arm); and STATE: an arm with an invalid index (or -1), the leader, the best mean, the largest
# index of the last round.
N, S, MEAN, BOUND, EXPIRY, MEAN_FLOOR, MEAN_TREE, ROUND_SLOPE, MEAN_SLOPE = range(9)
EVALUATED, INDEX, OLD_BOUND, GROUP_SIZE, NEXT_IN_GROUP, LAST_IN_GROUP, STATE = range(9, 16)
INVALID, LEADER, BEST_MEAN, WINNING_INDEX = range(4)
GAP_FRACTION = 0.25  # of the gap to the largest index: more causes evaluations, less expires too soon


def begin(arms: int) -> Any:
    """Return the state before the first reward: no leader."""
    w = np.zeros((16, 2 * leaves_for(arms)))
    w[BOUND] = w[EXPIRY] = w[MEAN_FLOOR] = w[MEAN_TREE] = -np.inf
    w[ROUND_SLOPE] = w[MEAN_SLOPE] = np.nan
    w[GROUP_SIZE], w[NEXT_IN_GROUP] = 1.0, -1.0
    for leaf in range(w.shape[1]):
        w[LAST_IN_GROUP, leaf] = leaf
    w[STATE, INVALID] = w[STATE, LEADER] = -1.0
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose an arm with the largest index. f: index, whether it uses the best mean, whether it uses t."""
    half = w.shape[1] // 2
    if w[STATE, LEADER] < 0.0:
        initialize_bounds(f, w, arms, t)
    lead = int(w[STATE, LEADER])
    top = index_of(f, w, arms, lead, t)
    while -w[EXPIRY, 1] <= t:
        leaf = find_max(w, EXPIRY, half)
        # In its last round, a rising bound equals the index.
        index = w[BOUND, leaf] if -w[EXPIRY, 1] == t and not f[2] else index_of(f, w, arms, leaf - half, t)
        set_bound(f, w, arms, leaf - half, index, top, t)
    winner = lead if top > w[BOUND, 1] else find_winner(f, w, arms, lead, top, t, rng)
    return winner if w[STATE, INVALID] < 0.0 else -1 - int(w[STATE, INVALID])


def find_winner(f: Any, w: Any, arms: int, lead: int, top: float, t: int, rng: Any) -> int:
    """Evaluate the arms whose bounds reach the largest index, until none is left; break ties at random."""
    half, evaluated, leading = w.shape[1] // 2, 0, top
    while w[BOUND, 1] >= top and w[BOUND, 1] > -np.inf and w[STATE, INVALID] < 0.0:
        leaf = find_max(w, BOUND, half)
        arm = leaf - half
        twin = find_identical_arm(w, arm, evaluated)
        if twin >= 0:
            merge_into_group(w, twin, arm)
            continue
        index = index_of(f, w, arms, arm, t)
        w[EVALUATED, evaluated], w[INDEX, evaluated], w[OLD_BOUND, evaluated] = arm, index, w[BOUND, leaf]
        evaluated += 1
        set_max(w, BOUND, leaf, -np.inf)
        top = max(top, index)
    w[STATE, WINNING_INDEX] = top
    winner, ties = lead, 1.0 if leading == top else 0.0
    for i in range(evaluated):
        arm = int(w[EVALUATED, i])
        if w[INDEX, i] == top:
            ties += w[GROUP_SIZE, arm]
            if ties == w[GROUP_SIZE, arm] or rng.random() * ties < w[GROUP_SIZE, arm]:
                winner = arm
        if w[INDEX, i] == top or w[OLD_BOUND, i] == w[INDEX, i]:  # the bound was not too high
            set_max(w, BOUND, half + arm, w[OLD_BOUND, i])
        else:
            set_bound(f, w, arms, arm, w[INDEX, i], top, t)
    if top == -np.inf:
        return int(rng.random() * arms)  # all arms, including those in groups
    if w[GROUP_SIZE, winner] > 1.0:
        winner = split_from_group(w, winner, int(rng.random() * w[GROUP_SIZE, winner]))
    if w[N, winner] > w[N, lead]:
        w[STATE, LEADER] = winner
        for tree in (BOUND, EXPIRY, MEAN_FLOOR, MEAN_TREE):
            set_max(w, tree, half + winner, -np.inf)
        set_max(w, MEAN_TREE, half + lead, w[MEAN, lead])
        set_bound(f, w, arms, lead, index_of(f, w, arms, lead, t), top, t)
    return winner


def find_identical_arm(w: Any, arm: int, evaluated: int) -> int:
    """Return a recently evaluated arm with the same pulls and mean, hence always the same index; or -1."""
    for i in range(max(evaluated - 4, 0), evaluated):
        other = int(w[EVALUATED, i])
        if w[N, other] == w[N, arm] and w[MEAN, other] == w[MEAN, arm]:
            return other
    return -1


@rare
def merge_into_group(w: Any, first: int, arm: int) -> None:
    """Let one leaf represent two groups of identical arms; rewards of 0 and 1 make hundreds of them."""
    half = w.shape[1] // 2
    w[NEXT_IN_GROUP, int(w[LAST_IN_GROUP, first])] = arm
    w[LAST_IN_GROUP, first] = w[LAST_IN_GROUP, arm]
    w[GROUP_SIZE, first] += w[GROUP_SIZE, arm]
    w[GROUP_SIZE, arm] = 1.0  # only the first arm of a group has a larger size
    for tree in (BOUND, EXPIRY, MEAN_FLOOR, MEAN_TREE):
        set_max(w, tree, half + arm, -np.inf)


@rare
def split_from_group(w: Any, first: int, position: int) -> int:
    """Take the arm at a position out of its group, with a leaf of its own."""
    half, before, arm = w.shape[1] // 2, first, first
    for _ in range(position):
        before, arm = arm, int(w[NEXT_IN_GROUP, arm])
    other = int(w[NEXT_IN_GROUP, first]) if arm == first else arm  # which gets a leaf
    for tree in (BOUND, EXPIRY, MEAN_FLOOR, MEAN_TREE):
        set_max(w, tree, half + other, w[tree, half + first])
    w[ROUND_SLOPE, other], w[MEAN_SLOPE, other] = w[ROUND_SLOPE, first], w[MEAN_SLOPE, first]
    if arm == first:
        w[GROUP_SIZE, other], w[LAST_IN_GROUP, other] = w[GROUP_SIZE, first] - 1.0, w[LAST_IN_GROUP, first]
    else:
        w[GROUP_SIZE, first] -= 1.0
        w[NEXT_IN_GROUP, before] = w[NEXT_IN_GROUP, arm]
        if int(w[LAST_IN_GROUP, first]) == arm:
            w[LAST_IN_GROUP, first] = before
    w[GROUP_SIZE, arm], w[LAST_IN_GROUP, arm], w[NEXT_IN_GROUP, arm] = 1.0, arm, -1.0
    return arm


@rare
def split_unchosen_arm(w: Any, arms: int, arm: int) -> None:
    """Take an arm that this engine did not choose (mixed-in probabilities did) out of its group, if any."""
    for first in range(arms):
        if w[GROUP_SIZE, first] > 1.0 and w[N, first] == w[N, arm] and w[MEAN, first] == w[MEAN, arm]:
            each = first
            for position in range(int(w[GROUP_SIZE, first])):
                if each == arm:
                    split_from_group(w, first, position)
                    return
                each = int(w[NEXT_IN_GROUP, each])


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward; t is the next round."""
    lead = int(w[STATE, LEADER])
    if lead >= 0 and arm != lead and (w[GROUP_SIZE, arm] > 1.0 or w[BOUND, w.shape[1] // 2 + arm] == -np.inf):
        split_unchosen_arm(w, arms, arm)
    w[N, arm] += 1.0
    w[S, arm] += reward
    w[MEAN, arm] = w[S, arm] / w[N, arm]
    if lead < 0:
        return
    half = w.shape[1] // 2
    if f[2]:
        if arm != lead:
            set_max(w, MEAN_TREE, half + arm, w[MEAN, arm])
        w[STATE, BEST_MEAN] = max(w[MEAN, lead], w[MEAN_TREE, 1])
        while w[MEAN_FLOOR, 1] > w[STATE, BEST_MEAN]:
            fallen = find_max(w, MEAN_FLOOR, half) - half
            set_bound(f, w, arms, fallen, index_of(f, w, arms, fallen, t), w[STATE, WINNING_INDEX], t)
    if arm != lead:
        if f[2] or not w[ROUND_SLOPE, arm] > 0.0:
            set_bound(f, w, arms, arm, index_of(f, w, arms, arm, t), w[STATE, WINNING_INDEX], t)
        else:  # a rising index keeps rising: its value somewhat later is a bound
            later = t + 1 + t // 16
            set_max(w, BOUND, half + arm, index_of(f, w, arms, arm, later))
            set_max(w, EXPIRY, half + arm, -float(later))


@rare
def initialize_bounds(f: Any, w: Any, arms: int, t: int) -> None:
    """Compute the first bounds."""
    half = w.shape[1] // 2
    w[STATE, LEADER] = 0.0
    for arm in range(1, arms):
        w[MEAN_TREE, half + arm] = w[MEAN, arm]
    fill_max(w, MEAN_TREE, half)
    w[STATE, BEST_MEAN] = max(w[MEAN, 0], w[MEAN_TREE, 1])
    w[STATE, WINNING_INDEX] = -np.inf
    for arm in range(arms):
        w[INDEX, arm] = index_of(f, w, arms, arm, t)
        w[STATE, WINNING_INDEX] = max(w[STATE, WINNING_INDEX], w[INDEX, arm])
    for arm in range(1, arms):
        set_bound(f, w, arms, arm, w[INDEX, arm], w[STATE, WINNING_INDEX], t)


def index_of(f: Any, w: Any, arms: int, arm: int, t: int) -> float:
    """Return the exact index of an arm."""
    index = call(f[1], f[0], w[N, arm], w[MEAN, arm], w[STATE, BEST_MEAN], float(t), float(arms))
    if np.isnan(index):
        w[STATE, INVALID] = arm
    return index


@rare
def set_bound(f: Any, w: Any, arms: int, arm: int, index: float, top: float, t: int) -> None:
    """Set a bound on an arm's index that uses up a fraction of the gap to the largest index.

    The bound is valid up to a later round, and down to a lower best mean; the gap decides how far.
    """
    half = w.shape[1] // 2
    mean, best, bound = w[MEAN, arm], w[STATE, BEST_MEAN], index
    slack = max(GAP_FRACTION * (top - index), 0.0)
    if f[2]:
        lower = best - (slack / w[MEAN_SLOPE, arm] if w[MEAN_SLOPE, arm] > 0.0 else 0.1 * (best - mean))
        if lower > mean:
            set_max(w, MEAN_FLOOR, half + arm, lower)
        else:
            lower = mean  # the best mean cannot be lower
            set_max(w, MEAN_FLOOR, half + arm, -np.inf)
        if lower < best:
            bound = call(f[1], f[0], w[N, arm], mean, lower, float(t), float(arms))
            w[MEAN_SLOPE, arm] = (bound - index) / (best - lower)
        best = lower
    if f[3]:
        ahead = rounds_ahead(w[ROUND_SLOPE, arm], slack, t)
        end = call(f[1], f[0], w[N, arm], mean, best, t + ahead, float(arms))
        w[ROUND_SLOPE, arm] = (end - bound) / ahead
        # A falling index keeps falling: the bound never expires.
        set_max(w, EXPIRY, half + arm, -np.inf if end < bound else -(t + ahead))
        bound = max(bound, end)
    set_max(w, BOUND, half + arm, bound)


def rounds_ahead(slope: float, slack: float, t: int) -> float:
    """Return for how many rounds to bound an index that may rise by `slack`; an unknown slope is nan."""
    if slope > 0.0 and slack != 0.0:
        return min(max(np.floor(slack / slope), 8.0), float(t))
    return float(t) if slope == 0.0 else 1.0 + np.floor(t / 32.0)


ENGINE = (begin, choose, update)
