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
from maillard.simulation.engines.bound_sums import BOUND, NEXT_ROW, UNIT, change_bound, rounded_up
from maillard.simulation.engines.direct_engines import log_weight

N, S = 0, 1
# Places in `f` after the formulas of weights and means: whether bounds hold for several pulls, and the
# formulas of the potential and of its slope.
CONCENTRATES, POTENTIAL_FORMULA, SLOPE_FORMULA = 4, 5, 6
# Rows of the table, after those of the bounds and their sums (0 for the leader), of each arm: the mean; a
# potential and the mean that it is for; the log of the upper bound, which holds while the best mean is at
# least FLOOR and the arm's mean at most HIGHEST; the lower bound, which holds while the best mean is at most
# CEILING, the arm's mean at least LOWEST, and its pulls at most MOST_PULLS; and BAND, for how many pulls a
# lower bound is to hold. POWERS has 2^-b for b < EXPONENTS. STATE has single numbers at the positions below.
MEAN, POTENTIAL, POTENTIAL_AT, LOG_BOUND, FLOOR, HIGHEST = range(NEXT_ROW, NEXT_ROW + 6)
LOW, CEILING, LOWEST, MOST_PULLS, BAND, POWERS, STATE = range(NEXT_ROW + 6, NEXT_ROW + 13)
ROWS = 13
# LEADER_LOW, LEADER_HIGH: bounds on the leader's weight, until LAST_ROUND and LAST_PULLS; LOW is -1 if a
# weight is invalid. LIMIT: at least every other arm's mean and floor. WIDTH: how far a new floor is below the
# best mean. SCALE: subtracted from log weights. RIVALS: the sum of the bounds.
LEADER, LEADER_LOW, LEADER_HIGH, LAST_ROUND, LAST_PULLS, LIMIT, WIDTH, SCALE, RIVALS = range(9)
# TIED_ROUND: until when the bounds of arms above their floor are valid. ROUND_SPAN: their window of rounds,
# per t. INVALID: an arm whose weight is nan, infinite or above its bound, or -1. GROWS: 1 if the leader's
# weight depends on pulls or t. OVERFLOW: 1 if a bound is larger than the scale. REJECTIONS: of arms, since
# round COUNTED_FROM. LOW_ROUND: until when the lower bounds are valid. DROP: a typical difference between an
# arm's mean and a reward below it.
TIED_ROUND, ROUND_SPAN, INVALID, GROWS, OVERFLOW, REJECTIONS, COUNTED_FROM, LOW_ROUND, DROP = range(9, 18)
# Places of three numbers: a mean, the slope of the potential there, and its tangent's value at mean 0.
AT_BEST, AT_FLOOR, AT_CEILING = 18, 21, 24
POTENTIAL_ERROR = 1e-14  # of 1 and the terms of an estimate; their rounding errors are a tenth of this
ROUNDING_SLACK = 1e-9  # relative excess of a log weight over its bound at which the policy is rejected
LOG_2 = math.log(2.0)
PER_LOG = -1.0 / LOG_2  # from a log weight to a negative binary exponent
EXPONENTS = 31
SHORT_BAND = 4.0  # pulls; a lower bound for fewer does not pay
# A lower bound below the first part of the upper one makes the arm's band shorter, above the second longer.
LOOSE, TIGHT = 0.7, 0.8


def set_bound(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Compute the largest weight that an arm can have while the best mean is above its floor."""
    bound = new_bound(f, w, arm, t)
    w[STATE, RIVALS] += bound - w[BOUND, arm]
    change_bound(w, arms, arm, bound)


def new_bound(f: Any, w: Any, arm: int, t: int) -> float:
    """Return the bound for `set_bound`; the caller changes the sums."""
    floor = w[MEAN, int(w[STATE, LEADER])] - w[STATE, WIDTH]
    log, error = estimate(f, w, arm, floor, w[STATE, TIED_ROUND], t, AT_FLOOR)
    log += error
    w[FLOOR, arm], w[LOG_BOUND, arm] = floor, log
    w[HIGHEST, arm] = w[MEAN, arm] if f[CONCENTRATES] != 0 else -np.inf
    w[STATE, LIMIT] = max(w[STATE, LIMIT], w[MEAN, arm], floor)
    if not log <= 0.0:
        set_overflow(w, arm, log)
        return 1.0
    return 0.0 if log == -np.inf else rounded_up(exp_bounds(w, log)[1])


def exp_bounds(w: Any, x: float) -> tuple[float, float]:
    """Return a lower and an upper bound on exp(x) for x <= 0, which differ by less than 0.04% or 2^-31."""
    exponent = x * PER_LOG
    if not exponent < EXPONENTS:
        return 0.0, UNIT
    whole = int(exponent)
    y = (exponent - whole) * LOG_2
    square = y * y
    low = 1.0 - y + square * (0.5 - y * (1.0 / 6.0) + square * (1.0 / 24.0 - y * (1.0 / 120.0)))
    return low * w[POWERS, whole], (low + square * square * square * (1.0 / 720.0)) * w[POWERS, whole]


def set_low(f: Any, w: Any, arm: int, t: int) -> None:
    """Compute the least weight that an arm can have during several pulls, if that pays."""
    w[LOW, arm], w[LOWEST, arm], w[MOST_PULLS, arm] = 0.0, -np.inf, np.inf
    band = w[BAND, arm]
    if f[CONCENTRATES] == 0 or band < SHORT_BAND:
        w[BAND, arm] = 1.1 * band
        return
    pulls, ceiling = w[N, arm] + band, w[MEAN, int(w[STATE, LEADER])] + w[STATE, WIDTH]
    mean = w[MEAN, arm] - w[STATE, DROP] * band / pulls
    if not mean < ceiling:
        return
    if f[POTENTIAL_FORMULA] != 0:
        potential = call(f[POTENTIAL_FORMULA], f[0], mean, 0.0, 0.0, 0.0, 0.0)
        log, error = estimate_rival(f, w, pulls, mean, potential, ceiling, AT_CEILING)
        if not error < 1e-3:
            return
        log -= error
    else:
        log = call(f[2], f[0], pulls, mean, ceiling, w[STATE, LOW_ROUND], 0.0) - w[STATE, SCALE]
    low = exp_bounds(w, min(log, 0.0))[0]
    w[LOW, arm], w[CEILING, arm], w[LOWEST, arm], w[MOST_PULLS, arm] = low, ceiling, mean, pulls
    if low < LOOSE * w[BOUND, arm]:
        w[BAND, arm] = 0.7 * band
    elif low > TIGHT * w[BOUND, arm]:
        w[BAND, arm] = 1.4 * band


@rare
def renew_bounds(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Compute both bounds on an arm's weight."""
    f, w = borrowed(f), borrowed(w)
    set_bound(f, w, arms, arm, t)
    set_low(f, w, arm, t)


def exact_log_weight(f: Any, w: Any, arm: int, best: float, late: float, t: float) -> float:
    """Return an arm's log weight, relative to the scale."""
    return log_weight(f, w[N, arm], w[MEAN, arm], best, late, t) - w[STATE, SCALE]


def estimate(f: Any, w: Any, arm: int, best: float, late: float, t: float, place: int) -> tuple[float, float]:
    """Return an arm's log weight, relative to the scale, and a bound on its error: 0 without a potential."""
    mean = w[MEAN, arm]
    if f[POTENTIAL_FORMULA] != 0 and mean < best:
        if w[POTENTIAL_AT, arm] != mean:
            w[POTENTIAL, arm] = call(f[POTENTIAL_FORMULA], f[0], mean, 0.0, 0.0, 0.0, 0.0)
            w[POTENTIAL_AT, arm] = mean
        log, error = estimate_rival(f, w, w[N, arm], mean, w[POTENTIAL, arm], best, place)
        if error < 1e-3:
            return log, error
    return exact_log_weight(f, w, arm, best, late, t), 0.0


def estimate_rival(
    f: Any, w: Any, n: float, mean: float, potential: float, best: float, place: int
) -> tuple[float, float]:
    """Return the log weight of n pulls with this mean, relative to the scale, and a bound on its error."""
    if w[STATE, place] != best:
        set_tangent(f, w, best, place)
    at_zero, rise = w[STATE, place + 2], w[STATE, place + 1] * mean
    error = POTENTIAL_ERROR * n * (1.0 + abs(at_zero) + abs(rise) + abs(potential))
    return n * (at_zero + rise - potential) - w[STATE, SCALE], error


@rare
def set_tangent(f: Any, w: Any, mean: float, place: int) -> None:
    """Compute the tangent of the potential at a mean."""
    slope = call(f[SLOPE_FORMULA], f[0], mean, 0.0, 0.0, 0.0, 0.0)
    w[STATE, place], w[STATE, place + 1] = mean, slope
    w[STATE, place + 2] = call(f[POTENTIAL_FORMULA], f[0], mean, 0.0, 0.0, 0.0, 0.0) - slope * mean


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
    w[STATE, LAST_ROUND] = min(t + np.floor(rounds), w[STATE, TIED_ROUND], w[STATE, LOW_ROUND])
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
