"""The engine of levels, for Beta scores of few arms: it compares scores with the same few thresholds.

The thresholds divide the scores into levels. An arm's limits are the probabilities that its score exceeds
each of the thresholds, times 2^16. A round samples one random number of 16 bits per arm and counts, in
vectors, how many of its limits it does not exceed: unless it equals one, that is the level of the arm's
score. If one arm has the highest level, it wins, and no score is computed. Otherwise the scores of the arms
on that level are sampled between its thresholds. If a number equals a limit, further bits decide.

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
    LEVELS,
    RANK_BITS,
    double_at,
    next_within,
    short_at,
    step_tails,
    two_highest_levels,
)
from maillard.simulation.engines.random_words import COUNT, generate_words, seed_generators
from maillard.simulation.engines.score_envelopes import log_norm
from maillard.simulation.engines.score_levels import (
    APART,
    GENERATORS,
    INVALID,
    KEPT,
    LIMITS,
    LOGS,
    LOST,
    NEXT,
    NUMBERS,
    PARTS,
    PATIENCE,
    SINCE,
    STARTED,
    STATE,
    THRESHOLDS,
    UNIT,
    WORDS,
    WORK,
    A,
    B,
    N,
    S,
    parts_of,
    place_thresholds,
    put_back,
    rounded_up,
    set_all_tails,
    set_limits,
    set_tails,
    set_threshold,
    store_apart,
    tails_at,
    terms_at,
)
from maillard.simulation.engines.score_sampling import BETA, are_valid_parameters, sample_beta_above


def begin(arms: int) -> Any:
    """Return the state before the first reward."""
    places = rounded_up(arms)
    width = max(places, 64)
    w = aligned_table(PARTS + (terms_at(arms) + LEVELS * places + width - 1) // width, width)
    for row in range(w.shape[0]):
        for place in range(width):
            w[row, place] = 0.0
    w[STATE, INVALID], w[STATE, APART], w[STATE, NEXT] = -1.0, arms, NUMBERS
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose the arm with the largest score. f: location, spread, code of the score distribution."""
    if w[STATE, NEXT] + arms > NUMBERS:
        begin_block(f, w, arms, t, rng)
    place = int(w[STATE, NEXT])
    w[STATE, NEXT] = place + arms
    parts, apart = w[PARTS].ctypes.data, int(w[STATE, APART])
    numbers, limits, kept = parts + 2 * place, parts + 8 * LIMITS, parts + 8 * KEPT
    best, second, slack = two_highest_levels(limits, numbers, rounded_up(arms), arms, apart, kept)
    if slack > 0 and best >> RANK_BITS > second >> RANK_BITS:
        return best & (2**RANK_BITS - 1)
    return choose_close(w, arms, t, place, best >> RANK_BITS, rng)


@rare
def choose_close(w: Any, arms: int, t: int, place: int, level: int, rng: Any) -> int:
    """Choose an arm if several have the same level, or if a number equals a limit."""
    if w[STATE, INVALID] >= 0.0:
        return -1 - int(w[STATE, INVALID])
    put_back(w, arms)
    parts, winner, top = w[PARTS].ctypes.data, -1, -1.0
    w[STATE, WORK] += 1.0 if level > 0 else 1.0 * arms
    if level > 0:
        numbers, limits = parts + 2 * place, parts + 8 * LIMITS + 2 * (level - 1) * rounded_up(arms)
        arm = next_within(numbers, limits, 0, arms)
        while arm < arms and winner < arms:
            if short_at(numbers + 2 * arm) == short_at(limits + 2 * arm):
                winner = arms
            else:
                score = sample_at_level(w, arms, arm, level, rng)
                if score > top:
                    top, winner = score, arm
            arm = next_within(numbers, limits, arm + 1, arms)
    if winner < 0 or winner == arms:
        winner = choose_exactly(w, arms, place, rng)
    if w[STATE, WORK] > w[STATE, PATIENCE] + 0.06 * (t - w[STATE, SINCE]):
        place_thresholds(w, arms, t)
    return winner


@rare
def choose_exactly(w: Any, arms: int, place: int, rng: Any) -> int:
    """Choose an arm by the levels that all numbers, continued by further bits, have exactly."""
    parts = w[PARTS].ctypes.data
    highest, winner, top = -1, -1, -1.0
    for arm in range(arms):
        u, level = (short_at(parts + 2 * (place + arm)) + rng.random()) / UNIT, 0
        tails = parts + 8 * (tails_at(arms) + LEVELS * arm)
        while level < LEVELS and u < double_at(tails + 8 * level):
            level += 1
        if level >= highest:
            score = sample_at_level(w, arms, arm, level, rng)
            if level > highest or score > top:
                highest, winner, top = level, arm, score
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
    return sample_beta_between(a, b, low, double_at(thresholds + 8 * level), rng)


def sample_beta_between(a: float, b: float, low: float, high: float, rng: Any) -> float:
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
            w[STATE, STARTED], w[STATE, APART] = 1.0, arms
            place_thresholds(w, arms, t)
    words = parts[WORDS : WORDS + COUNT]
    generate_words(parts[GENERATORS:THRESHOLDS].view(np.uint64), words.view(np.uint64))
    w[STATE, NEXT] = 0.0


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward."""
    if w[STATE, STARTED] > 0.0:
        store_apart(w, arms)
    w[N, arm] += 1.0
    w[S, arm] += reward
    if w[STATE, STARTED] == 0.0:
        return
    n, s = w[N, arm], w[S, arm]
    a = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    b = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    old_a, old_b = w[A, arm], w[B, arm]
    w[A, arm], w[B, arm], w[STATE, APART] = a, b, arm
    success = a == old_a + 1.0 and b == old_b
    if success or (a == old_a and b == old_b + 1.0):
        parts = w[PARTS].ctypes.data
        share = 1.0 / (old_a if success else -old_b)
        terms = parts + 8 * (terms_at(arms) + LEVELS * arm)
        step_tails(
            parts + 8 * (tails_at(arms) + LEVELS * arm),
            terms,
            parts + 8 * (THRESHOLDS if success else THRESHOLDS + LEVELS),
            share,
            abs(share) * (old_a + old_b),
            parts + 8 * KEPT,
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
        set_limits(parts_of(w), arms, arm)
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
    limits = parts_of(w)[KEPT : tails_at(arms)].view(np.uint16)
    for place in range(limits.size):
        limits[place] = 0


ENGINE = (begin, choose, update)
