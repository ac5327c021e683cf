"""Thresholds for Beta scores, and the probabilities that the score of each arm exceeds them.

The engine of levels (`leveled_perturbed`) says how they are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import rare
from maillard.simulation.engines.level_vectors import LANES, LEVELS, store_limits
from maillard.simulation.engines.random_words import COUNT, STATE_SIZE
from maillard.simulation.engines.score_envelopes import log_norm
from maillard.simulation.engines.score_sampling import beta_hazard

# Rows of the table: per arm the pulls, sums and parameters of its score, and STATE, single numbers at the
# following positions. The parts of PARTS follow from row PARTS on, in one piece.
N, S, A, B, STATE, PARTS = range(6)
# NEXT: the next random number. APART: the arm whose limits changed last; those in the table are older.
# INVALID: an arm whose score parameters are invalid, or -1. WORK: done in rare cases since the thresholds
# were placed.
STARTED, NEXT, APART, INVALID, WORK, PATIENCE, SINCE = range(7)
NUMBERS = 4 * COUNT
SPARE = LANES // 4  # doubles that a reader of vectors may read after the last number
# Where the parts begin, in doubles: random words and the state of their generators; of each threshold x,
# x and 1 - x, their logarithms, (1 - x) / x, and a place for a sum; the limits of the arm that is apart; of
# each level, the limits of all arms; of each arm, the probabilities that its score exceeds each x (tails),
# and x^a (1 - x)^b / B(a, b) (terms).
WORDS = 0
GENERATORS = COUNT + SPARE
THRESHOLDS = GENERATORS + STATE_SIZE
LOGS = THRESHOLDS + 2 * LEVELS
ODDS = LOGS + 2 * LEVELS
TERM = ODDS + LEVELS
KEPT = TERM + LEVELS
LIMITS = KEPT + 8
UNIT = 65536.0  # of limits
LOST = -600.0  # the logarithm below which a term counts as 0
LEAST = 1e-12  # between the thresholds and 0 or 1
LOWEST_HAZARD = 13.0  # P(no score exceeds the lowest threshold) is exp(-13)


def rounded_up(arms: int) -> int:
    """Return the number of places for arms: whole vectors, with one for no arm."""
    return LANES * (arms // LANES + 1)


def tails_at(arms: int) -> int:
    """Return where the probabilities of all arms begin."""
    return LIMITS + LEVELS * rounded_up(arms) // 4


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
    w[STATE, WORK], w[STATE, PATIENCE], w[STATE, SINCE] = 0.0, 100.0 + 8.0 * arms, t


def wanted_hazard(level: int) -> float:
    """Return the sum of hazards that a threshold should have, so that few arms share the highest level."""
    return -2.0 * np.log1p((level - LEVELS) / LEVELS * -np.expm1(-0.5 * LOWEST_HAZARD))


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


@rare
def set_all_tails(w: Any, arms: int) -> None:
    """Compute the probabilities, terms and limits of all arms from their parameters."""
    parts = parts_of(w)
    for arm in range(arms):
        set_tails(w, arms, arm)
        w[STATE, APART] = arm
        set_limits(parts, arms, arm)
        store_apart(w, arms)
    w[STATE, APART] = arms
    for level in range(LEVELS):
        parts[KEPT : KEPT + 8].view(np.uint16)[level] = 0


@rare
def set_tails(w: Any, arms: int, arm: int) -> None:
    """Compute the probabilities and the terms of an arm.

    If a is whole, the probability that a score exceeds x is that of fewer than a successes in a + b - 1
    trials.
    """
    parts, a, b = parts_of(w), w[A, arm], w[B, arm]
    first, last = tails_at(arms) + LEVELS * arm, terms_at(arms) + LEVELS * arm
    tails, terms = parts[first : first + LEVELS], parts[last : last + LEVELS]
    norm, whole = log_norm(a, b), a == np.floor(a)
    for level in range(LEVELS):
        log = norm + a * parts[LOGS + level] + b * parts[LOGS + LEVELS + level]
        terms[level] = np.exp(log) if log >= LOST else 0.0
        x = parts[THRESHOLDS + level]
        if not whole and log >= LOST:
            tails[level] = -np.expm1(-beta_hazard(a, b, x))
    if whole:
        set_binomial_tails(parts, a, b, tails, terms)
    for level in range(LEVELS):
        if terms[level] == 0.0:
            tails[level] = 1.0 if parts[THRESHOLDS + level] < a / (a + b) else 0.0


def set_binomial_tails(parts: Any, a: float, b: float, tails: Any, terms: Any) -> None:
    """Compute the probabilities of fewer than a successes in a + b - 1 trials, from a - 1 on down."""
    term, odds = parts[TERM : TERM + LEVELS], parts[ODDS : ODDS + LEVELS]
    for level in range(LEVELS):
        term[level] = tails[level] = terms[level] / (parts[THRESHOLDS + level] * b)
    j, trials, share = a - 1.0, a + b, 1.0
    while j > 0.0 and share > 1e-16:
        stop = max(j - 8.0, 0.0)
        while j > stop:
            ratio = j / (trials - j)
            for level in range(LEVELS):
                term[level] *= ratio * odds[level]
                tails[level] += term[level]
            j -= 1.0
        share = 0.0
        for level in range(LEVELS):
            share = max(share, term[level] / tails[level]) if tails[level] > 0.0 else share
    for level in range(LEVELS):
        tails[level] = min(tails[level], 1.0)


def set_limits(parts: Any, arms: int, arm: int) -> None:
    """Compute the limits of the arm that is apart."""
    first = tails_at(arms) + LEVELS * arm
    tails, kept = parts[first : first + LEVELS], parts[KEPT : KEPT + 8].view(np.uint16)
    for level in range(LEVELS):
        kept[level] = np.uint16(np.int32(min(max(tails[level] * UNIT, 0.0), UNIT - 1.0)))


def put_back(w: Any, arms: int) -> None:
    """Store the limits of the arm that is apart with those of the others."""
    store_apart(w, arms)
    w[STATE, APART] = arms


def store_apart(w: Any, arms: int) -> None:
    """Store the limits of the arm that is apart, or those of no arm, with those of the others."""
    parts = w[PARTS].ctypes.data
    store_limits(parts + 8 * LIMITS, rounded_up(arms), int(w[STATE, APART]), parts + 8 * KEPT)
