"""The lazy engine for sampled policies on a GPU, as `maillard.simulation.engines.lazy_sampled`.

The numbers of a round that the leader wins are in `x`, which the compiler keeps in registers. All others are
in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.cuda.engines.trial_memory import (
    COUNT,
    INDEX_MASK,
    LEADER,
    REBUILD_ALL,
    SUM,
    N,
    S,
    find_arm,
    lengths_at,
    load_leader,
    record_at,
    save_leader,
    set_length,
    total_length,
    update_block_sums,
)
from maillard.simulation.engines.direct_engines import compared_mean, log_weight
from maillard.simulation.engines.random_numbers import uniform

LEADER_LOW, TOTAL, MIN_LEADER_MEAN, POSITION = range(3, 7)  # of x
LEADER_HIGH, FLOOR, WIDTH, SCALE, LAST_ROUND = range(5)  # of w's header
LAST_PULLS, REJECTIONS, ROUND_SPAN, MAX_RIVAL_MEAN, INVALID = range(5, 10)
MEAN = 2  # of a record
REBUILD_LEADER = 1 << 20  # added to an arm's number plus 1 (or to 0): rebuild the leader's bounds too
# Before a rebuild, whose cost is proportional to the arms. Measured on an H200 with 2, 10 and 100 arms.
MAX_REJECTIONS, MAX_REJECTIONS_PER_ARM = 12.0, 0.2
ROUNDING_SLACK = 1e-9
PULLS_AHEAD = 1.5  # the leader's lower bound is valid for this many times its pulls


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """Set the first leader, after every arm has been pulled."""
    lead, best = 0, -np.inf
    for arm in range(arms):
        at = record_at(arm)
        mean = compared_mean(f, w[at + N], w[at + S])
        w[at + MEAN] = mean
        if mean > best:
            lead, best = arm, mean
    w[WIDTH], w[ROUND_SPAN], w[INVALID], w[LAST_ROUND], w[REJECTIONS] = 0.0, 1.0, -1.0, 0.0, 0.0
    w[FLOOR], w[MAX_RIVAL_MEAN], w[LAST_PULLS], w[LEADER_HIGH], w[SCALE] = best, best, 0.0, 0.0, 0.0
    load_leader(x, w, lead)
    x[MIN_LEADER_MEAN] = -np.inf
    x[POSITION] = x[LEADER_LOW] = x[TOTAL] = 0.0


def try_leader(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Return whether one random number already accepts the leader."""
    x[POSITION] = uniform(rng) * x[TOTAL]
    return x[POSITION] < x[LEADER_LOW]


def keeps_leader(f: Any, x: Any) -> bool:
    """Return whether the leader's new reward leaves all bounds valid."""
    if f[3]:
        return compared_mean(f, x[COUNT], x[SUM]) >= x[MIN_LEADER_MEAN]
    return x[SUM] >= x[MIN_LEADER_MEAN] * x[COUNT]


def choose_arm(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """Return the sampled arm, -1 to sample again, or -2 if a weight is invalid."""
    lead, u = int(x[LEADER]), x[POSITION]
    mean = compared_mean(f, x[COUNT], x[SUM])
    arm, into, n, own = lead, u, x[COUNT], mean
    if u >= w[LEADER_HIGH]:
        arm, into = find_arm(w, arms, shift, u - w[LEADER_HIGH])
        at = record_at(arm)
        n, own = w[at + N], w[at + MEAN]
    weight = np.exp(log_weight(f, n, own, mean, t, t) - w[SCALE])
    if arm != lead:
        bound = w[(lengths_at(arms) + arm) & INDEX_MASK]
        if not weight <= bound * (1.0 + ROUNDING_SLACK * (1.0 + abs(w[SCALE]))):
            return -2
        if bound == 0.0:
            into = np.inf  # rounding may lead past the last arm
    if into < weight:
        return arm
    w[REJECTIONS] += 1.0
    return -1


def update(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Change the leader if necessary, after an arm's reward; return what to rebuild."""
    lead, other, new = int(x[LEADER]), -1, -1
    mean = compared_mean(f, x[COUNT], x[SUM])
    if arm >= 0 and arm != lead:
        at = record_at(arm)
        own = compared_mean(f, w[at + N], w[at + S])
        w[at + MEAN] = own
        other = arm
        if own > mean:
            new = arm
        else:
            w[MAX_RIVAL_MEAN] = max(w[MAX_RIVAL_MEAN], own)
    elif mean < w[MAX_RIVAL_MEAN]:
        best = -np.inf
        for each in range(arms):
            own = w[record_at(each) + MEAN]
            if each != lead and own > best:
                best, new = own, each
        w[MAX_RIVAL_MEAN] = best
        if not mean < best:
            new = -1
    if new >= 0:  # write the old leader back, read the new one
        save_leader(x, w)
        w[record_at(lead) + MEAN] = mean
        w[MAX_RIVAL_MEAN] = max(w[MAX_RIVAL_MEAN], mean)
        load_leader(x, w, new)
        mean, other = w[record_at(new) + MEAN], lead
        set_length(w, arms, shift, new, 0.0)
    most = MAX_REJECTIONS + MAX_REJECTIONS_PER_ARM * arms
    if mean < w[FLOOR]:  # widen the band, unless it costs too much
        if w[REJECTIONS] < 0.5 * most:
            w[WIDTH] *= 1.5
        return REBUILD_ALL
    if w[REJECTIONS] > most:
        if mean < w[FLOOR] + 1.5 * w[WIDTH]:  # the leader has not risen: the band is too wide
            w[WIDTH] *= 0.6
        else:  # the leader's weight may grow with t: shorten the window
            w[ROUND_SPAN] = max(0.5 * w[ROUND_SPAN], 1e-6)
        return REBUILD_ALL
    if t > w[LAST_ROUND]:
        w[ROUND_SPAN] = min(2.0 * w[ROUND_SPAN], 1.0)
        return REBUILD_ALL
    return other + 1 + (REBUILD_LEADER if new >= 0 or x[COUNT] > w[LAST_PULLS] else 0)


def rebuild(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """Recompute the bounds of all arms, one arm or the leader; return their number of rounds, or 0."""
    lead, mean = int(x[LEADER]), compared_mean(f, x[COUNT], x[SUM])
    line, first, last, item = lengths_at(arms), 0, arms, -3
    if what == REBUILD_ALL:
        if w[WIDTH] == 0.0:
            worst = mean
            for arm in range(arms):
                worst = min(worst, w[record_at(arm) + MEAN])
            w[WIDTH] = 0.1 * (mean - worst)
        w[FLOOR], w[LAST_ROUND] = mean - w[WIDTH], t + np.floor(w[ROUND_SPAN] * t)
        w[REJECTIONS] = w[SCALE] = 0.0
    else:
        last = what & (REBUILD_LEADER - 1)
        first, item = max(last - 1, 0), -2 if what >= REBUILD_LEADER else 0
    if item < 0:
        w[LAST_PULLS] = np.floor(x[COUNT] * PULLS_AHEAD) + 1.0
    while item < last - first:  # the leader's scale, upper and lower bound; then the arms
        n, own, best, late, at = x[COUNT], mean, mean, float(t), 0
        if item == -2:
            late = w[LAST_ROUND]
        elif item == -1:
            n = w[LAST_PULLS]
        elif item >= 0:
            at = record_at(first + item)
            n, own, best, late = w[at + N], w[at + MEAN], w[FLOOR], w[LAST_ROUND]
        log = log_weight(f, n, own, best, late, float(t)) - w[SCALE]
        bound = np.exp(log)
        if item == -3:
            w[SCALE] = log
        elif item == -2:
            w[LEADER_HIGH] = bound
        elif item == -1:
            x[LEADER_LOW] = bound
        elif first + item == lead:
            w[(line + lead) & INDEX_MASK] = 0.0
        else:
            w[(line + first + item) & INDEX_MASK] = bound
            if not bound < np.inf:
                w[INVALID] = first + item
        item += 1
    update_block_sums(w, arms, shift, first, last)
    x[TOTAL] = w[LEADER_HIGH] + total_length(w, arms, shift)
    least = max(w[MAX_RIVAL_MEAN], w[FLOOR])
    x[MIN_LEADER_MEAN] = least + 1e-15 * abs(least)
    if w[INVALID] >= 0.0 or not (
        x[LEADER_LOW] <= w[LEADER_HIGH] * (1.0 + ROUNDING_SLACK) and w[LEADER_HIGH] < np.inf
    ):
        return 0
    return int(min(w[LAST_ROUND] - t, w[LAST_PULLS] - x[COUNT])) + 1


def uncertain_probability(x: Any) -> float:
    """Return the probability that one random number does not accept the leader."""
    return (x[TOTAL] - x[LEADER_LOW]) / x[TOTAL]


def limit_of(x: Any) -> float:
    """Return the smallest mean of the leader that leaves all bounds valid."""
    return x[MIN_LEADER_MEAN]


def begin_uncertain(x: Any, rng: Any) -> None:
    """Sample the first position on the line of bounds in a round in which it does not accept the leader."""
    x[POSITION] = x[LEADER_LOW] + uniform(rng) * (x[TOTAL] - x[LEADER_LOW])


ENGINE = (begin, try_leader, keeps_leader, choose_arm, update, rebuild)
RUNS = (uncertain_probability, limit_of, begin_uncertain)
