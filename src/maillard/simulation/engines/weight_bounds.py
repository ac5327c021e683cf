"""Bounds on the weights of the leader and of the other arms, for the lazy engine of sampled policies.

An arm's bound is the largest weight that it can have while the best mean is above the arm's floor. It is a
formula's value, or if the policy has a potential, an estimate from the tangent of the potential at the floor.
The estimate costs a few multiplications, and the potential of the arm's mean is computed once per pull. A
bound on its rounding error decides when only the formula can tell.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard.simulation.compiling import borrowed, call, rare
from maillard.simulation.engines.arm_buckets import (
    BUCKET,
    LAST_BUCKET,
    LENGTH,
    NEXT_ROW,
    move_arm,
)
from maillard.simulation.engines.direct_engines import log_weight

N, S = 0, 1
# Rows of the table, after those of the buckets: of each arm the mean, its potential, the log bound, the bound
# (0 for the leader), and the floor; and STATE, single numbers at the following positions.
MEAN, POTENTIAL, LOG_BOUND, BOUND, FLOOR, STATE = range(NEXT_ROW, NEXT_ROW + 6)
ROWS = 6
# LEADER_LOW, LEADER_HIGH: bounds on the leader's weight, until LAST_ROUND and LAST_PULLS; LOW is -1 if a
# weight is invalid. LIMIT: at least every other arm's mean and floor. WIDTH: how far a new floor is below the
# best mean. SCALE: subtracted from log weights. RIVALS: the sum of the bounds.
LEADER, LEADER_LOW, LEADER_HIGH, LAST_ROUND, LAST_PULLS, LIMIT, WIDTH, SCALE, RIVALS = range(9)
# TIED_ROUND: until when the bounds of arms above their floor are valid. ROUND_SPAN: their window of rounds,
# per t. INVALID: an arm whose weight is nan, infinite or above its bound, or -1. GROWS: 1 if the leader's
# weight depends on pulls or t. OVERFLOW: 1 if a bound is larger than the scale. REJECTIONS: of arms, since
# round COUNTED_FROM.
TIED_ROUND, ROUND_SPAN, INVALID, GROWS, OVERFLOW, REJECTIONS, COUNTED_FROM = range(9, 16)
# Places of three numbers: a mean, the slope of the potential there, and its tangent's value at mean 0.
AT_BEST, AT_FLOOR = 16, 19
POTENTIAL_ERROR = 1e-14  # of 1 and the terms of an estimate; their rounding errors are a tenth of this
ROUNDING_SLACK = 1e-9  # relative excess of a log weight over its bound at which the policy is rejected
LOG_2 = math.log(2.0)
PER_LOG = -1.0 / LOG_2  # from a log weight to a negative binary exponent


def set_bound(f: Any, w: Any, arm: int, t: int) -> None:
    """Compute the largest weight that an arm can have while the best mean is above its floor."""
    floor = w[MEAN, int(w[STATE, LEADER])] - w[STATE, WIDTH]
    log, error = estimate(f, w, arm, floor, w[STATE, TIED_ROUND], t, AT_FLOOR)
    log += error
    w[FLOOR, arm], w[LOG_BOUND, arm] = floor, log
    w[STATE, LIMIT] = max(w[STATE, LIMIT], w[MEAN, arm], floor)
    exponent = log * PER_LOG
    if not exponent >= 0.0:
        exponent = 0.0
        set_overflow(w, arm, log)
    bucket = int(min(exponent, LAST_BUCKET))
    # The chord of the convex function 2^-x. In the last bucket, some arms have smaller bounds.
    bound = max(1.0 - 0.5 * (exponent - bucket), 0.5) * w[LENGTH, bucket]
    w[STATE, RIVALS] += bound - w[BOUND, arm]
    w[BOUND, arm] = bound
    if bucket != int(w[BUCKET, arm]):
        move_arm(w, arm, bucket)


@rare
def renew_bound(f: Any, w: Any, arm: int, t: int) -> None:
    """Do what `set_bound` does, where it need not be inlined."""
    set_bound(f, w, arm, t)


def exact_log_weight(f: Any, w: Any, arm: int, best: float, late: float, t: float) -> float:
    """Return an arm's log weight, relative to the scale."""
    return log_weight(f, w[N, arm], w[MEAN, arm], best, late, t) - w[STATE, SCALE]


def estimate(f: Any, w: Any, arm: int, best: float, late: float, t: float, place: int) -> tuple[float, float]:
    """Return an arm's log weight, relative to the scale, and a bound on its error: 0 without a potential."""
    if f[4] != 0 and w[MEAN, arm] < best:
        if w[STATE, place] != best:
            set_tangent(f, w, best, place)
        n, at_zero, rise = w[N, arm], w[STATE, place + 2], w[STATE, place + 1] * w[MEAN, arm]
        error = POTENTIAL_ERROR * n * (1.0 + abs(at_zero) + abs(rise) + abs(w[POTENTIAL, arm]))
        if error < 1e-3:
            return n * (at_zero + rise - w[POTENTIAL, arm]) - w[STATE, SCALE], error
    return exact_log_weight(f, w, arm, best, late, t), 0.0


@rare
def set_tangent(f: Any, w: Any, mean: float, place: int) -> None:
    """Compute the tangent of the potential at a mean."""
    slope = call(f[5], f[0], mean, 0.0, 0.0, 0.0, 0.0)
    w[STATE, place], w[STATE, place + 1] = mean, slope
    w[STATE, place + 2] = call(f[4], f[0], mean, 0.0, 0.0, 0.0, 0.0) - slope * mean


def set_potential(f: Any, w: Any, arm: int) -> None:
    """Compute the potential of an arm's mean."""
    if f[4] != 0:
        w[POTENTIAL, arm] = call(f[4], f[0], w[MEAN, arm], 0.0, 0.0, 0.0, 0.0)


@rare
def set_overflow(w: Any, arm: int, log: float) -> None:
    """Let the next window begin with a larger scale."""
    w[STATE, OVERFLOW], w[STATE, LAST_ROUND] = 1.0, -1.0
    if not log < np.inf:
        set_invalid(w, arm)


@rare
def set_invalid(w: Any, arm: int) -> None:
    """Let the next choice report an invalid weight."""
    w[STATE, INVALID], w[STATE, LEADER_LOW] = arm, -1.0


def leader_weight(f: Any, w: Any, n: float, t: float) -> float:
    """Return the exact weight of a leader with n pulls in round t."""
    return np.exp(call(f[1], f[0], n, float(t), 0.0, 0.0, 0.0) - w[STATE, SCALE])


@rare
def bound_leader_weight(f: Any, w: Any, t: int) -> None:
    """Compute a lower and an upper bound on the leader's weight, valid for some more rounds and pulls."""
    f, w = borrowed(f), borrowed(w)
    n = w[N, int(w[STATE, LEADER])]
    rounds, pulls = 0.5 * t, 0.125 * n
    if w[STATE, GROWS] > 0.0:
        # The width of the bounds is proportional to the window, and the number of windows to its inverse.
        rounds = min(rounds, 1.5 * np.sqrt(t))
        pulls = min(pulls, rounds)
    w[STATE, LAST_PULLS] = n + np.floor(pulls) + 1.0
    w[STATE, LAST_ROUND] = min(t + np.floor(rounds), w[STATE, TIED_ROUND])
    # A window that has ended is followed by another before the next choice.
    high = leader_weight(f, w, n, max(w[STATE, LAST_ROUND], float(t)))
    low = leader_weight(f, w, w[STATE, LAST_PULLS], t)
    if low < 0.98 * high:
        w[STATE, GROWS] = 1.0
    w[STATE, LEADER_HIGH], w[STATE, LEADER_LOW] = high, low
    if not (low <= high * (1.0 + ROUNDING_SLACK) and high < np.inf):
        set_invalid(w, int(w[STATE, LEADER]))
    if w[STATE, INVALID] >= 0.0:
        w[STATE, LEADER_LOW] = -1.0
    if w[STATE, OVERFLOW] > 0.0:
        w[STATE, LAST_ROUND] = -1.0
