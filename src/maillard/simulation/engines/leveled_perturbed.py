"""The engine of levels, for Beta scores: it compares scores with the same few thresholds.

The thresholds divide the scores into levels. An arm's limits are the probabilities that its score exceeds
each of the thresholds, times 2^16. A round samples one random number of 16 bits per arm. How many of the
arm's limits it does not exceed is the level of the arm's score, unless it equals one of them. A filter
compares all numbers, in vectors, with one limit of each arm; only the few arms that pass need their level. If
one arm has the highest level, it wins, and no score is computed. Otherwise the scores of the arms on that
level are sampled between its thresholds. If a number equals a limit, further bits decide.

A reward of 0 or 1 changes all limits of its arm by the recurrence of the incomplete Beta function, with a few
multiplications for each threshold. From time to time the engine places the thresholds anew, so that about
as many scores as wanted exceed each of them. They affect the cost of a round, never the choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare
from maillard.simulation.engines.aligned_tables import aligned_table
from maillard.simulation.engines.level_vectors import (
    LANES,
    LEVELS,
    LOST,
    double_at,
    lanes_within,
    level_of,
    lowest_lane,
    other_lanes,
    short_at,
    step_tails,
)
from maillard.simulation.engines.random_words import COUNT, generate_words, seed_generators
from maillard.simulation.engines.score_envelopes import log_norm
from maillard.simulation.engines.score_levels import (
    CHANGED,
    FILTER,
    FILTERED,
    GENERATORS,
    INVALID,
    INVERSES,
    LOGS,
    NEXT,
    NUMBERS,
    PARTS,
    STARTED,
    STATE,
    THRESHOLDS,
    WORDS,
    WORK,
    A,
    B,
    N,
    S,
    is_out_of_patience,
    limits_at,
    low_filter_at,
    parts_of,
    place_thresholds,
    rounded_up,
    set_all_tails,
    set_filters,
    set_tails,
    set_threshold,
    tails_at,
    terms_at,
)
from maillard.simulation.engines.score_sampling import BETA, are_valid_parameters, sample_beta_above

RANK_BITS = 10
UNIT = 65536.0  # of limits and numbers
WIDTH = 2 * LEVELS  # bytes of an arm's limits
TOLERANCE = 1e-9  # far above the rounding errors of densities


def begin(arms: int) -> Any:
    """Return the state before the first reward."""
    width = rounded_up(arms)
    w = aligned_table(PARTS + (terms_at(arms) + LEVELS * width + width - 1) // width, width)
    for row in range(w.shape[0]):
        for place in range(width):
            w[row, place] = 0.0
    w[STATE, INVALID], w[STATE, NEXT] = -1.0, NUMBERS
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose the arm with the largest score. f: location, spread, code of the score distribution."""
    if w[STATE, NEXT] + arms > NUMBERS:
        begin_block(f, w, arms, t, rng)
    place, changed = int(w[STATE, NEXT]), int(w[STATE, CHANGED])
    w[STATE, NEXT] = place + arms
    parts = w[PARTS].ctypes.data
    numbers, limits, passing = parts + 2 * place, parts + 8 * limits_at(arms), parts + 8 * FILTER
    # The level of an arm, and then the arm.
    first, second = level_of(numbers + 2 * changed, limits + WIDTH * changed) << RANK_BITS | changed, 0
    for start in range(0, arms, LANES):
        lanes = lanes_within(numbers + 2 * start, passing + 2 * start)
        while lanes != 0:
            arm = start + lowest_lane(lanes)
            lanes = other_lanes(lanes)
            if arm >= arms:
                break
            found = level_of(numbers + 2 * arm, limits + WIDTH * arm) << RANK_BITS | arm
            found = found if arm != changed else 0
            second = max(second, min(first, found))
            first = max(first, found)
    level, arm = first >> RANK_BITS, first & (2**RANK_BITS - 1)
    if level > FILTERED and level > second >> RANK_BITS and is_certain(numbers, limits, arm, level):
        return arm
    return choose_close(w, arms, t, place, level, rng)


def is_certain(numbers: int, limits: int, arm: int, level: int) -> bool:
    """Return whether the number of an arm is below the limit of its level."""
    return short_at(numbers + 2 * arm) < short_at(limits + WIDTH * arm + 2 * level - 2)


@rare
def choose_close(w: Any, arms: int, t: int, place: int, level: int, rng: Any) -> int:
    """Choose an arm if several have the same level, if all are low, or if a number equals a limit."""
    if w[STATE, INVALID] >= 0.0:
        return -1 - int(w[STATE, INVALID])
    parts = w[PARTS].ctypes.data
    numbers, limits, passing = parts + 2 * place, parts + 8 * limits_at(arms), parts + 8 * FILTER
    set_filters(parts, arms, int(w[STATE, CHANGED]))
    if level <= FILTERED:
        passing = parts + 8 * low_filter_at(arms)
        level = highest_level(numbers, limits, passing, arms)
    winner, top = -1, -1.0
    for start in range(0, arms if level > 0 else 0, LANES):
        lanes = lanes_within(numbers + 2 * start, passing + 2 * start)
        while lanes != 0 and winner < arms:
            arm = start + lowest_lane(lanes)
            lanes = other_lanes(lanes)
            if arm >= arms or level_of(numbers + 2 * arm, limits + WIDTH * arm) < level:
                continue
            if not is_certain(numbers, limits, arm, level):
                winner = arms
            elif winner < 0:
                winner = arm
            else:
                top = sample_at_level(w, arms, winner, level, rng) if top < 0.0 else top
                score = sample_at_level(w, arms, arm, level, rng)
                if score > top:
                    top, winner = score, arm
    if winner < 0 or winner == arms:
        winner = choose_exactly(w, arms, place, rng)
    w[STATE, WORK] += 1.0 if level > 0 else 1.0 * arms
    if is_out_of_patience(w, arms, t):
        place_thresholds(w, arms, t)
    return winner


@rare
def highest_level(numbers: int, limits: int, passing: int, arms: int) -> int:
    """Return the highest level of the arms that pass a filter, or 0."""
    level = 0
    for start in range(0, arms, LANES):
        lanes = lanes_within(numbers + 2 * start, passing + 2 * start)
        while lanes != 0:
            arm = start + lowest_lane(lanes)
            lanes = other_lanes(lanes)
            if arm < arms:
                level = max(level, level_of(numbers + 2 * arm, limits + WIDTH * arm))
    return level


@rare
def choose_exactly(w: Any, arms: int, place: int, rng: Any) -> int:
    """Choose an arm by the levels that all numbers, continued by further bits, have exactly."""
    parts, levels, highest = w[PARTS].ctypes.data, np.empty(arms), 0.0
    for arm in range(arms):
        number, limits = parts + 2 * (place + arm), parts + 8 * limits_at(arms) + WIDTH * arm
        level = level_of(number, limits)
        if level > 0 and short_at(number) == short_at(limits + 2 * level - 2):
            u = (short_at(number) + rng.random()) / UNIT
            tails = parts + 8 * (tails_at(arms) + LEVELS * arm)
            while level > 0 and u >= double_at(tails + 8 * level - 8):
                level -= 1
        levels[arm] = level
        highest = max(highest, levels[arm])
    winner, top = -1, -1.0
    for arm in range(arms):
        if levels[arm] == highest:
            score = sample_at_level(w, arms, arm, int(highest), rng)
            if score > top:
                winner, top = arm, score
    return winner


@rare
def sample_at_level(w: Any, arms: int, arm: int, level: int, rng: Any) -> float:
    """Sample the score of an arm, given its level."""
    a, b, parts = w[A, arm], w[B, arm], w[PARTS].ctypes.data
    thresholds, tails = parts + 8 * THRESHOLDS, parts + 8 * (tails_at(arms) + LEVELS * arm)
    if level == 0:
        # 1 - score has the parameters b, a.
        return 1.0 - sample_beta_above(
            b, a, 1.0 - double_at(thresholds), -np.log(max(double_at(tails), 0.0)), rng
        )
    low = double_at(thresholds + 8 * (level - 1))
    if level == LEVELS:
        above = min(double_at(tails + 8 * (level - 1)), 1.0 - 1e-16)
        return sample_beta_above(a, b, low, -np.log1p(-above), rng)
    return sample_beta_between(
        a,
        b,
        low,
        double_at(thresholds + 8 * level),
        parts + 8 * (INVERSES + level),
        parts + 8 * (terms_at(arms) + LEVELS * arm + level),
        rng,
    )


def sample_beta_between(
    a: float, b: float, low: float, high: float, inverses: int, terms: int, rng: Any
) -> float:
    """Sample Beta(a, b), a, b >= 1, between two thresholds.

    The logarithm of the density is concave, and on the interval at most e above its chord. So the density is
    at least a harmonic mean of those at both ends, and at most an arithmetic mean times exp(e). Points are
    sampled in proportion to the arithmetic mean, and mostly accepted without a logarithm.

    `inverses`, `terms`: the addresses of the numbers of `high`; those of `low` are before them.
    """
    i, j, width = a - 1.0, b - 1.0, high - low
    per_low, per_rest = double_at(inverses - 8), double_at(inverses + 8 * LEVELS)
    at_low = double_at(terms - 8) * per_low * double_at(inverses + 8 * (LEVELS - 1))
    at_high = double_at(terms) * double_at(inverses) * per_rest
    e = 0.125 * width * width * (i * per_low * per_low + j * per_rest * per_rest)
    if not (e < 1.0 and min(at_low, at_high) > 0.0):
        return sample_beta_under_peak(a, b, low, high, rng)
    most, least = (1.0 + TOLERANCE) * (1.0 + e + e * e), (1.0 - TOLERANCE) * at_low * at_high
    while True:
        u, v = rng.random(), rng.random()
        root = np.sqrt((1.0 - u) * at_low * at_low + u * at_high * at_high)
        z = u * (at_low + at_high) / (at_low + root)
        height = v * most * ((1.0 - z) * at_low + z * at_high)
        x = low + z * width
        if height * ((1.0 - z) * at_high + z * at_low) < least:
            return x
        if height < at_low * np.exp(i * np.log(x / low) + j * np.log((1.0 - x) / (1.0 - low))):
            return x


def sample_beta_under_peak(a: float, b: float, low: float, high: float, rng: Any) -> float:
    """Sample Beta(a, b), a, b >= 1, between two points: uniform numbers, accepted by their density."""
    i, j = a - 1.0, b - 1.0
    mode = i / (i + j) if i + j > 0.0 else low
    peak = min(max(mode, low), high)
    while True:
        x = low + (high - low) * rng.random()
        # An exponential number is compared with minus the logarithm of density / largest density.
        log = (i * np.log(x / peak) if i > 0.0 else 0.0) + (
            j * np.log((1.0 - x) / (1.0 - peak)) if j > 0.0 else 0.0
        )
        if rng.standard_exponential() > -log:
            return x


@rare
def begin_block(f: Any, w: Any, arms: int, t: int, rng: Any) -> None:
    """Generate new random numbers; before the first ones, compute the parameters and limits of all arms."""
    parts = parts_of(w)
    if w[STATE, STARTED] == 0.0:
        seed_generators(parts[GENERATORS:THRESHOLDS], rng)
        for arm in range(arms):
            w[A, arm] = call(f[1], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
            w[B, arm] = call(f[2], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
            if not are_valid_parameters(BETA, w[A, arm], w[B, arm]):
                report_invalid(w, arms, arm)
        if w[STATE, INVALID] < 0.0:
            for level in range(LEVELS):
                set_threshold(parts, level, (level + 1.0) / (LEVELS + 1.0))
            set_all_tails(w, arms)
            w[STATE, STARTED] = 1.0
            place_thresholds(w, arms, t)
    words = parts[WORDS : WORDS + COUNT]
    generate_words(parts[GENERATORS:THRESHOLDS].view(np.uint64), words.view(np.uint64))
    w[STATE, NEXT] = 0.0


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward."""
    w[N, arm] += 1.0
    w[S, arm] += reward
    if w[STATE, STARTED] == 0.0:
        return
    parts = w[PARTS].ctypes.data
    set_filters(parts, arms, int(w[STATE, CHANGED]))
    n, s = w[N, arm], w[S, arm]
    a = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    b = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    old_a, old_b = w[A, arm], w[B, arm]
    w[A, arm], w[B, arm], w[STATE, CHANGED] = a, b, arm
    success = a == old_a + 1.0 and b == old_b
    if success or (a == old_a and b == old_b + 1.0):
        share = 1.0 / (old_a if success else -old_b)
        terms = parts + 8 * (terms_at(arms) + LEVELS * arm)
        step_tails(
            parts + 8 * (tails_at(arms) + LEVELS * arm),
            terms,
            parts + 8 * (THRESHOLDS if success else THRESHOLDS + LEVELS),
            share,
            abs(share) * (old_a + old_b),
            parts + 8 * limits_at(arms) + WIDTH * arm,
        )
        pulls = int(n)  # whose last bits cost less than a remainder
        if pulls & 31 == 0 and (pulls & 8191 == 0 or has_regained_term(parts, terms, a, b)):
            renew_limits(w, arms, arm)
    else:
        renew_limits(w, arms, arm)


@rare
def renew_limits(w: Any, arms: int, arm: int) -> None:
    """Compute the limits of an arm from its parameters."""
    if are_valid_parameters(BETA, w[A, arm], w[B, arm]):
        set_tails(w, arms, arm)
    else:
        report_invalid(w, arms, arm)


@rare
def has_regained_term(parts: int, terms: int, a: float, b: float) -> bool:
    """Return whether a term is 0 since it was very small, but no longer should be."""
    norm, largest = log_norm(a, b), -np.inf
    for level in range(LEVELS):
        if double_at(terms + 8 * level) == 0.0:
            logs = parts + 8 * (LOGS + level)
            largest = max(largest, norm + a * double_at(logs) + b * double_at(logs + 8 * LEVELS))
    return largest > LOST


@rare
def report_invalid(w: Any, arms: int, arm: int) -> None:
    """Let the next choice report the parameters of an arm: without limits, no arm wins by its level alone."""
    w[STATE, INVALID] = arm
    parts = parts_of(w)
    for place in range(FILTER, tails_at(arms)):
        parts[place] = 0.0


ENGINE = (begin, choose, update)
