"""Bounds on the weights of the leader and of the other arms, for the lazy engine of sampled policies.

An arm's upper bound is the largest weight that it can have while the best mean is above the arm's floor. Its
lower bound is the least weight that it can have until its next pull, while the best mean is below its
ceiling. If the policy declares `squared_gap` or has a potential, weights are estimated with a few
multiplications: from the gap, or from the tangent of the potential at the best mean. A bound on the rounding
error decides when only the formula can tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from maillard.simulation.compiling import borrowed, call, rare
from maillard.simulation.engines.bound_sums import BOUND, FIELDS, UNIT, change_bound, rounded_up, vector_start
from maillard.simulation.engines.direct_engines import log_weight
from maillard.simulation.vector_operations import number_at, set_number

N, S = 0, 1
# Places in `f` after the formulas of weights and means: whether bounds hold for several pulls, the bits of
# the two numbers of `squared_gap`, and the formulas of the potential and of its slope.
CONCENTRATES, SQUARED_GAP, POTENTIAL_FORMULA, SLOPE_FORMULA = 4, 5, 7, 8
# Rows of the table, after pulls, sums of rewards and upper bounds (0 for the leader): the mean; HIGHEST, the
# mean up to which the upper bound holds; the lower bound; and CEILING, the best mean up to which it holds.
MEAN, HIGHEST, LOW, CEILING = range(BOUND + 1, BOUND + 5)
# Vectors: the means once more; FLOORS, the best means down to which the upper bounds hold; the potentials of
# the means; POWERS, which is 2^-b at place b < EXPONENTS. After them come the sums.
MEANS, FLOORS, POTENTIALS, POWERS, SUMS = range(5)


def last_columns(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Return the row and column of single numbers in the last columns of the table."""
    return ((place % FIELDS, -1 - place // FIELDS) for place in range(first, first + count))


# BEST: the leader's mean. LEADER_LOW, LEADER_HIGH: bounds on its weight, until LAST_ROUND and LAST_PULLS; LOW
# is -1 if a weight is invalid. RIVALS: the sum of the bounds. LIMIT: at least every other arm's mean and
# floor. WIDTH: how far a new floor is below the best mean, and a new ceiling above. SCALE: subtracted from
# log weights. CURVATURE, BOOST: the numbers of `squared_gap`.
LEADER, BEST, LEADER_LOW, LEADER_HIGH, RIVALS, LAST_ROUND, LIMIT, WIDTH = last_columns(0, 8)
SCALE, CURVATURE, BOOST, LAST_PULLS, REJECTIONS, COUNTED_FROM, INVALID, OVERFLOW = last_columns(8, 8)
# REJECTIONS: of arms, since round COUNTED_FROM. INVALID: an arm whose weight is nan, infinite or above its
# bound, or -1. OVERFLOW: 1 if a bound is larger than the scale. TIED_ROUND: until when the bounds of arms
# above their floor are valid. ROUND_SPAN: their window of rounds, per t. LOW_ROUND: until when the lower
# bounds are valid. GROWS: 1 if the leader's weight depends on pulls or t.
TIED_ROUND, ROUND_SPAN, LOW_ROUND, GROWS = last_columns(16, 4)
# Columns of three numbers: a mean, the slope of the potential there, and its tangent's value at mean 0.
AT_BEST, AT_FLOOR, AT_CEILING = -4, -5, -6
COLUMNS = 6
POTENTIAL_ERROR = 1e-14  # of 1 and the terms of an estimate; their rounding errors are a tenth of this
MOST_EXPONENT = 1000.0  # weights with a larger exponent are not estimated
ROUNDING_SLACK = 1e-9  # relative excess of a weight over its bound at which the policy is rejected
LOG_2 = math.log(2.0)
PER_LOG = -1.0 / LOG_2  # from a log weight to a negative binary exponent
EXPONENTS = 31


@rare
def renew_bounds(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Compute both bounds on an arm's weight."""
    f, w = borrowed(f), borrowed(w)
    bound = new_bound(f, w, arms, arm, t)
    w[RIVALS] += bound - w[BOUND, arm]
    change_bound(w, arms, vector_start(arms, SUMS), arm, bound)
    set_low(f, w, arms, arm, t)


def new_bound(f: Any, w: Any, arms: int, arm: int, t: int) -> float:
    """Return the largest weight that an arm can have while the best mean is above a new floor.

    The caller changes the sums.
    """
    floor = w[BEST] - w[WIDTH]
    log, factor, error = estimate(f, w, arms, arm, floor, w[TIED_ROUND], t, AT_FLOOR)
    set_number(w, vector_start(arms, FLOORS) + arm, floor)
    w[HIGHEST, arm] = w[MEAN, arm] if f[CONCENTRATES] != 0 else -np.inf
    w[LIMIT] = max(w[LIMIT], w[MEAN, arm], floor)
    if log == -np.inf:
        return 0.0
    bound = rounded_up(weight_range(w, arms, log, factor, error)[1])
    if not (log <= 0.0 and bound <= 1.0):
        set_overflow(w, arm, log)
        return 1.0
    return bound


def set_low(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Compute the least weight that an arm can have while the best mean is at most a new ceiling."""
    ceiling, low = w[BEST] + w[WIDTH], 0.0
    if w[MEAN, arm] < ceiling:
        late = max(w[LOW_ROUND], float(t))  # after LOW_ROUND, the next choice begins with new bounds
        log, factor, error = estimate(f, w, arms, arm, ceiling, t, late, AT_CEILING)
        low = min(weight_range(w, arms, log, factor, error)[0], 1.0)
        if not is_below(w, low, w[BOUND, arm]):
            low = 0.0  # the ceiling is above all rewards, or `is_accepted` will report a false declaration
    w[LOW, arm], w[CEILING, arm] = low, ceiling


def is_below(w: Any, weight: float, bound: float) -> bool:
    """Return whether a weight is at most its bound, up to rounding errors."""
    return weight <= bound * (1.0 + ROUNDING_SLACK * (1.0 + abs(w[SCALE])))


def weight_range(w: Any, arms: int, log: float, factor: float, error: float) -> tuple[float, float]:
    """Return a lower and an upper bound on the weight that `estimate` estimated; at most those for log 0."""
    low, high = exp_bounds(w, vector_start(arms, POWERS), min(log, 0.0))
    return low * factor * (1.0 - error), high * factor * (1.0 + 2.0 * error)


def exp_bounds(w: Any, powers: int, x: float) -> tuple[float, float]:
    """Return a lower and an upper bound on exp(x) for x <= 0, which differ by less than 0.04% or 2^-31."""
    exponent = x * PER_LOG
    if not exponent < EXPONENTS:
        return 0.0, UNIT
    whole = int(exponent)
    y, power = (exponent - whole) * LOG_2, number_at(w, powers + whole)
    square = y * y
    low = 1.0 - y + square * (0.5 - y * (1.0 / 6.0) + square * (1.0 / 24.0 - y * (1.0 / 120.0)))
    return low * power, (low + square * square * square * (1.0 / 720.0)) * power


def exact_log_weight(f: Any, w: Any, arm: int, best: float, late: float, t: float) -> float:
    """Return an arm's log weight, relative to the scale."""
    return log_weight(f, w[N, arm], w[MEAN, arm], best, late, t) - w[SCALE]


def estimate(
    f: Any, w: Any, arms: int, arm: int, best: float, late: float, t: float, column: int
) -> tuple[float, float, float]:
    """Return log and factor, where exp(log) * factor is an arm's weight, and a bound on the relative error.

    Without an estimate, the log is exact, the factor 1 and the error 0. The column has the tangent.
    """
    n, mean = w[N, arm], w[MEAN, arm]
    if mean < best:
        x, error = np.inf, np.inf
        if w[CURVATURE] > 0.0:
            gap = best - mean
            x, error = w[CURVATURE] * n * gap * gap, MOST_EXPONENT * POTENTIAL_ERROR
        elif f[POTENTIAL_FORMULA] != 0:
            if w[0, column] != best:
                set_tangent(f, w, best, column)
            potential = number_at(w, vector_start(arms, POTENTIALS) + arm)
            at_zero, rise = w[2, column], w[1, column] * mean
            x = n * (potential - at_zero - rise)
            error = POTENTIAL_ERROR * n * (1.0 + abs(at_zero) + abs(rise) + abs(potential))
        if x < MOST_EXPONENT and error < 1e-3:
            return -x - w[SCALE], 1.0 + w[BOOST] * x, error
    return exact_log_weight(f, w, arm, best, late, t), 1.0, 0.0


@rare
def check_estimate(f: Any, w: Any, arms: int, arm: int, t: int) -> None:
    """Stop if an arm's weight is not what `squared_gap` or the potential says, beyond rounding."""
    f, w = borrowed(f), borrowed(w)
    log, factor, error = estimate(f, w, arms, arm, w[BEST], t, t, AT_BEST)
    exact = exact_log_weight(f, w, arm, w[BEST], t, t)
    if abs(log + np.log(factor) - exact) > 2.0 * error + ROUNDING_SLACK * (1.0 + abs(exact) + abs(w[SCALE])):
        set_invalid(w, arm)


@rare
def set_tangent(f: Any, w: Any, mean: float, column: int) -> None:
    """Compute the tangent of the potential at a mean."""
    slope = call(f[SLOPE_FORMULA], f[0], mean, 0.0, 0.0, 0.0, 0.0)
    w[0, column], w[1, column] = mean, slope
    w[2, column] = call(f[POTENTIAL_FORMULA], f[0], mean, 0.0, 0.0, 0.0, 0.0) - slope * mean


def set_potential(f: Any, w: Any, arms: int, arm: int) -> None:
    """Compute the potential of an arm's mean, if the policy has one."""
    if f[POTENTIAL_FORMULA] != 0:
        potential = call(f[POTENTIAL_FORMULA], f[0], w[MEAN, arm], 0.0, 0.0, 0.0, 0.0)
        set_number(w, vector_start(arms, POTENTIALS) + arm, potential)


@rare
def set_overflow(w: Any, arm: int, log: float) -> None:
    """Let the next window begin with a larger scale."""
    w[OVERFLOW], w[LAST_ROUND] = 1.0, -1.0
    if not log < np.inf:
        set_invalid(w, arm)


@rare
def set_invalid(w: Any, arm: int) -> None:
    """Let the next choice report an invalid weight."""
    w[INVALID], w[LEADER_LOW] = arm, -1.0


def leader_weight(f: Any, w: Any, n: float, t: float) -> float:
    """Return the exact weight of a leader with n pulls in round t."""
    return np.exp(call(f[1], f[0], n, float(t), 0.0, 0.0, 0.0) - w[SCALE])


@rare
def bound_leader_weight(f: Any, w: Any, t: int) -> None:
    """Compute a lower and an upper bound on the leader's weight, valid for some more rounds and pulls."""
    f, w = borrowed(f), borrowed(w)
    n = w[N, int(w[LEADER])]
    rounds, pulls = 0.5 * t, 0.125 * n
    if w[GROWS] > 0.0:
        # The width of the bounds is proportional to the window, and the number of windows to its inverse.
        rounds = min(rounds, 1.5 * np.sqrt(t))
        pulls = min(pulls, rounds)
    w[LAST_PULLS] = n + np.floor(pulls) + 1.0
    w[LAST_ROUND] = min(t + np.floor(rounds), w[TIED_ROUND], w[LOW_ROUND])
    # A window that has ended is followed by another before the next choice.
    high = leader_weight(f, w, n, max(w[LAST_ROUND], float(t)))
    low = leader_weight(f, w, w[LAST_PULLS], t)
    if low < 0.98 * high:
        w[GROWS] = 1.0
    w[LEADER_HIGH], w[LEADER_LOW] = high, low
    if not (low <= high * (1.0 + ROUNDING_SLACK) and high < np.inf):
        set_invalid(w, int(w[LEADER]))
    if w[INVALID] >= 0.0:
        w[LEADER_LOW] = -1.0
    if w[OVERFLOW] > 0.0:
        w[LAST_ROUND] = -1.0
