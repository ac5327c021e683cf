"""Thresholds for Beta scores, and the probabilities that the score of each arm exceeds them.

The engine of levels (`leveled_perturbed`) says how they are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import borrowed, rare
from maillard.simulation.engines.level_vectors import (
    LANES,
    LEVELS,
    copy_short,
    double_at,
    set_limits,
    set_terms,
    store_double,
    sum_tails,
)
from maillard.simulation.engines.random_words import COUNT, STATE_SIZE
from maillard.simulation.engines.score_envelopes import log_norm
from maillard.simulation.engines.score_sampling import beta_hazard

# Rows of the table: per arm the pulls, sums and parameters of its score, and STATE, single numbers at the
# following positions. The parts of PARTS follow from row PARTS on, in one piece.
N, S, A, B, STATE, PARTS = range(6)
# NEXT: the next random number. CHANGED: the arm whose limits changed last; its entries in filters are older.
# INVALID: an arm whose score parameters are invalid, or -1. WORK: done in rare cases since the thresholds
# were placed.
STARTED, NEXT, CHANGED, INVALID, WORK, PATIENCE, SINCE = range(7)
NUMBERS = 4 * COUNT
SPARE = LANES // 4  # doubles that a reader of vectors may read after the last number
# Where the parts begin, in doubles: random words and the state of their generators; of each threshold x, at
# first x and 1 - x, then their logarithms, (1 - x) / x, and 1 / x and 1 / (1 - x); two filters, which have of
# every arm one of its limits; of each arm, the limits of its levels, the probabilities that its score exceeds
# each x (tails), and x^a (1 - x)^b / B(a, b) (terms).
WORDS = 0
GENERATORS = COUNT + SPARE
THRESHOLDS = GENERATORS + STATE_SIZE
LOGS = THRESHOLDS + 2 * LEVELS
ODDS = LOGS + 2 * LEVELS
INVERSES = ODDS + LEVELS
FILTER = INVERSES + 2 * LEVELS
FILTERED = 3  # levels that the filter leaves out; the low filter leaves out level 0
LEAST = 1e-12  # between the thresholds and 0 or 1
# The sums of hazards that the thresholds should have. That of the lowest is far above the others: the sums
# fall as the scores concentrate, until the thresholds are placed anew.
LOWEST_HAZARD, LOW_HAZARD, HAZARD_SCALE = 26.0, 10.0, 3.0
# The thresholds are placed anew after this much work, to which is added some for each round.
PATIENCE_PER_ARM, FIRST_PATIENCE = 0.5, 50.0
WORK_PER_ROUND, WORK_PER_ROUND_AND_ARM = 0.04, 0.0004


def rounded_up(arms: int) -> int:
    """Return the number of places for arms: whole vectors."""
    return LANES * ((arms + LANES - 1) // LANES)


def low_filter_at(arms: int) -> int:
    """Return where the low filter begins."""
    return FILTER + rounded_up(arms) // 4


def limits_at(arms: int) -> int:
    """Return where the limits of all arms begin."""
    return FILTER + 2 * (rounded_up(arms) // 4)


def tails_at(arms: int) -> int:
    """Return where the probabilities of all arms begin."""
    return limits_at(arms) + LEVELS * rounded_up(arms) // 4


def terms_at(arms: int) -> int:
    """Return where the terms of all arms begin."""
    return tails_at(arms) + LEVELS * rounded_up(arms)


def parts_of(w: Any) -> Any:
    """Return all parts in one piece."""
    return w.reshape(w.size)[PARTS * w.shape[1] :]


@rare
def place_thresholds(w: Any, arms: int, t: int) -> None:
    """Place the thresholds where the sums of hazards are about as wanted, and compute all limits."""
    parts, hazards, wanted = parts_of(w), np.empty(LEVELS), wanted_hazard(LEVELS - 1)
    low, high = parts[THRESHOLDS], parts[THRESHOLDS + LEVELS - 1]
    sum_hazards(parts, arms, hazards)
    for _ in range(60):
        first, last = 0, LEVELS - 1
        while first < LEVELS - 1 and hazards[first + 1] >= LOWEST_HAZARD:
            first += 1
        while last > 0 and hazards[last - 1] <= wanted:
            last -= 1
        step = (high - low) / (LEVELS - 1)
        if hazards[0] < 0.2 * LOWEST_HAZARD and low > LEAST:
            low = max(low - (high - low), LEAST)
        elif hazards[LEVELS - 1] > 4.0 * wanted and high < 1.0 - LEAST:
            high = min(high + (high - low), 1.0 - LEAST)
        elif last - first < 5:
            low, high = max(low + (first - 0.5) * step, LEAST), min(low + (last + 0.5) * step, 1.0 - LEAST)
        else:
            break
        step = (high - low) / (LEVELS - 1)
        for level in range(LEVELS):
            set_threshold(parts, level, low + level * step)
        set_all_tails(w, arms)
        sum_hazards(parts, arms, hazards)
    for _ in range(4):
        interpolate(parts, hazards)
        set_all_tails(w, arms)
        sum_hazards(parts, arms, hazards)
        if largest_ratio(hazards) < 2.0:
            break
    w[STATE, WORK], w[STATE, PATIENCE], w[STATE, SINCE] = 0.0, FIRST_PATIENCE + PATIENCE_PER_ARM * arms, t


def is_out_of_patience(w: Any, arms: int, t: int) -> bool:
    """Return whether rare cases took so much work that new thresholds pay."""
    per_round = WORK_PER_ROUND + WORK_PER_ROUND_AND_ARM * arms
    return w[STATE, WORK] > w[STATE, PATIENCE] + per_round * (t - w[STATE, SINCE])


def wanted_hazard(level: int) -> float:
    """Return the sum of hazards that a threshold should have, so that few arms share the highest level."""
    if level == 0:
        return LOWEST_HAZARD
    share = (LEVELS - level) / (LEVELS - 1)
    return -HAZARD_SCALE * np.log1p(share * np.expm1(-LOW_HAZARD / HAZARD_SCALE))


def largest_ratio(hazards: Any) -> float:
    """Return the largest ratio between a sum of hazards and what it should be, or its inverse."""
    most = 1.0
    for level in range(LEVELS):
        ratio = max(hazards[level], 1e-12) / wanted_hazard(level)
        most = max(most, ratio, 1.0 / ratio)
    return most


def sum_hazards(parts: Any, arms: int, hazards: Any) -> None:
    """Compute the sum of the arms' hazards at each threshold."""
    first = tails_at(arms)
    for level in range(LEVELS):
        hazards[level] = 1.0
    for arm in range(arms):
        tails = parts[first + LEVELS * arm : first + LEVELS * (arm + 1)]
        for level in range(LEVELS):
            hazards[level] *= 1.0 - tails[level]
    for level in range(LEVELS):
        hazards[level] = -np.log(max(hazards[level], 1e-300))


def interpolate(parts: Any, hazards: Any) -> None:
    """Move the thresholds x to where the sums of hazards are as wanted.

    The logarithm of the sum is nearly linear in ln(1 - x) between two thresholds.
    """
    old, after = parts[LOGS + LEVELS : LOGS + 2 * LEVELS].copy(), 1
    for level in range(LEVELS):
        wanted = np.log(wanted_hazard(level))
        while after < LEVELS - 1 and hazards[after] > wanted_hazard(level):
            after += 1
        one, other = np.log(max(hazards[after - 1], 1e-12)), np.log(max(hazards[after], 1e-12))
        share = min(max((one - wanted) / max(one - other, 1e-9), -1.5), 2.0) + 1e-4 * level
        x = -np.expm1(old[after - 1] + share * (old[after] - old[after - 1]))
        set_threshold(parts, level, min(max(x, LEAST * (level + 1)), 1.0 - LEAST * (LEVELS - level)))


def set_threshold(parts: Any, level: int, x: float) -> None:
    """Set a threshold, its complement, and their logarithms and ratio."""
    parts[THRESHOLDS + level], parts[THRESHOLDS + LEVELS + level] = x, 1.0 - x
    parts[LOGS + level], parts[LOGS + LEVELS + level] = np.log(x), np.log1p(-x)
    parts[ODDS + level] = (1.0 - x) / x
    parts[INVERSES + level], parts[INVERSES + LEVELS + level] = 1.0 / x, 1.0 / (1.0 - x)


@rare
def set_all_tails(w: Any, arms: int) -> None:
    """Compute the probabilities, terms and limits of all arms from their parameters."""
    for arm in range(arms):
        set_tails(w, arms, arm)


@rare
def set_tails(w: Any, arms: int, arm: int) -> None:
    """Compute the probabilities, the terms and the limits of an arm."""
    w = borrowed(w)
    a, b, parts = w[A, arm], w[B, arm], w[PARTS].ctypes.data
    tails, terms = parts + 8 * (tails_at(arms) + LEVELS * arm), parts + 8 * (terms_at(arms) + LEVELS * arm)
    set_terms(terms, parts + 8 * LOGS, log_norm(a, b), a, b)
    if a == np.floor(a):
        sum_tails(tails, terms, parts + 8 * INVERSES, parts + 8 * ODDS, a, b)
    for level in range(LEVELS):
        x = double_at(parts + 8 * (THRESHOLDS + level))
        if double_at(terms + 8 * level) == 0.0:
            store_double(tails + 8 * level, 1.0 if x < a / (a + b) else 0.0)
        elif a != np.floor(a):
            store_double(tails + 8 * level, -np.expm1(-beta_hazard(a, b, x)))
    set_limits(tails, parts + 8 * limits_at(arms) + 2 * LEVELS * arm)
    set_filters(parts, arms, arm)


def set_filters(parts: int, arms: int, arm: int) -> None:
    """Copy limits of an arm to the filters; `parts` is an address."""
    limits = parts + 8 * limits_at(arms) + 2 * LEVELS * arm
    copy_short(parts + 8 * FILTER + 2 * arm, limits + 2 * FILTERED)
    copy_short(parts + 8 * low_filter_at(arms) + 2 * arm, limits)
