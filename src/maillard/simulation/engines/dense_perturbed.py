"""The dense engine for Gaussian scores: it samples all of them, in vectors, while many arms may win.

The normal numbers come in blocks (see `normal_blocks`), in single precision, and one pass over all arms finds
the two largest scores. If the difference exceeds a bound on their errors, the first one wins. Otherwise, the
scores near the largest one are computed again in double precision, from the exact normal numbers.

A round costs the same whether or not an arm is likely to win. If the same arm wins nearly always, the lazy
engine (`lazy_perturbed`) is faster and takes over, until many arms compete again. Both engines sample from
the same distribution, so the engine affects the cost of a round, never the choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare
from maillard.simulation.engines.largest_scores import LOWEST, MOST_ARMS, WIDTH, two_largest_scores
from maillard.simulation.engines.lazy_perturbed import (
    INVALID,
    ROUND,
    ROWS,
    STATE,
    SURE,
    WORK,
    A,
    B,
    N,
    S,
    make_table,
    table_width,
)
from maillard.simulation.engines.lazy_perturbed import PATIENCE as LAZY_PATIENCE
from maillard.simulation.engines.lazy_perturbed import choose as choose_lazily
from maillard.simulation.engines.lazy_perturbed import update as update_lazily
from maillard.simulation.engines.normal_blocks import (
    CAREFUL,
    ERROR,
    GENERATORS,
    NUMBERS,
    SIZE,
    exact_number,
    fill_block,
)
from maillard.simulation.engines.random_words import seed_generators
from maillard.simulation.engines.score_sampling import GAUSSIAN, are_valid_parameters

# Rows after those of the lazy engine: single numbers at the following positions, and from BLOCK on the block.
DENSE = ROWS
BLOCK = DENSE + 1
# STARTED: 1 after the first choice. IS_LAZY: 1 while the lazy engine runs. NEXT: the next number of the
# block. CLOSE: scores that differ by more are in the right order. APART, LOCATION, SPREAD: the arm whose
# parameters changed last; those in the table are older. LARGEST: at least every spread. SINCE, SWITCHES:
# the round in which the engine began to count, and how often another arm than the last one was pulled
# since; PATIENCE: for how many rounds. SAMPLED: the round counter of the lazy engine at that time.
STARTED, IS_LAZY, NEXT, CLOSE, APART, LOCATION, SPREAD, LARGEST = range(8)
SINCE, SWITCHES, PATIENCE, SAMPLED = range(8, 12)
ROUNDING = 2.0**-40  # of a score, by the arm in its last bits
FARTHEST = 1e299  # locations that are farther from 0 may be below LOWEST


def begin(arms: int) -> Any:
    """Return the state before the first reward."""
    width = table_width(arms)
    w = make_table(arms, BLOCK + (SIZE + width - 1) // width)
    for row in range(DENSE, w.shape[0]):
        for place in range(width):
            w[row, place] = 0.0
    w[DENSE, NEXT], w[DENSE, APART], w[DENSE, LOCATION] = NUMBERS, arms, LOWEST
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose the arm with the largest score. f: location, spread, code of the score distribution."""
    if w[DENSE, IS_LAZY] > 0.0 and w[STATE, WORK] <= w[STATE, LAZY_PATIENCE]:
        return choose_lazily(f, w, arms, t, rng)
    if w[DENSE, NEXT] + arms > NUMBERS:
        begin_block(f, w, arms, t, rng)
        if w[DENSE, IS_LAZY] > 0.0:
            return choose_lazily(f, w, arms, t, rng)
    place = int(w[DENSE, NEXT])
    w[DENSE, NEXT] = place + arms
    best, second = two_largest_scores(
        w[A].ctypes.data,
        w[B].ctypes.data,
        w[BLOCK].ctypes.data + 4 * place,
        rounded_up(arms),
        int(w[DENSE, APART]),
        w[DENSE, LOCATION],
        w[DENSE, SPREAD],
    )
    if best - second > w[DENSE, CLOSE] + ROUNDING * abs(best):
        return int(np.float64(best).view(np.int64)) & (MOST_ARMS - 1)
    return choose_close(w, arms, place)


def rounded_up(arms: int) -> int:
    """Return the number of arms, rounded up to whole vectors."""
    return (arms + WIDTH - 1) // WIDTH * WIDTH


@rare
def choose_close(w: Any, arms: int, place: int) -> int:
    """Choose the arm with the largest score in double precision."""
    if w[STATE, INVALID] >= 0.0:
        return -1 - int(w[STATE, INVALID])
    put_back(w, arms)
    block = block_of(w)
    numbers, limit = block[: NUMBERS // 2].view(np.float32), LOWEST
    for arm in range(arms):
        score = w[A, arm] + w[B, arm] * float(numbers[place + arm])
        if score > limit and exact_number(block, place + arm)[1]:
            limit = score
    limit -= 2.0 * ERROR * w[DENSE, LARGEST] + ROUNDING * abs(limit)
    top, winner = -np.inf, 0
    for arm in range(arms):
        number, is_near = exact_number(block, place + arm)
        if not is_near or w[A, arm] + w[B, arm] * float(numbers[place + arm]) >= limit:
            score = w[A, arm] + w[B, arm] * number
            if score > top:
                top, winner = score, arm
    return winner


def block_of(w: Any) -> Any:
    """Return the block of normal numbers in the table."""
    return w.reshape(w.size)[BLOCK * w.shape[1] :]


@rare
def begin_block(f: Any, w: Any, arms: int, t: int, rng: Any) -> None:
    """Fill the block, unless the lazy engine runs or now takes over."""
    if w[DENSE, STARTED] == 0.0:
        start(f, w, arms, t, rng)
    if w[DENSE, IS_LAZY] > 0.0:
        if not many_compete(w, arms, t):
            return
        w[DENSE, IS_LAZY] = 0.0
        w[DENSE, PATIENCE] *= 2.0
        count_anew(w, arms, t)
    elif t - w[DENSE, SINCE] >= w[DENSE, PATIENCE]:
        if w[DENSE, SWITCHES] < few_switches(arms) * (t - w[DENSE, SINCE]):
            put_back(w, arms)
            w[DENSE, IS_LAZY], w[DENSE, NEXT] = 1.0, NUMBERS
            w[STATE, WORK] = np.inf
            w[DENSE, SINCE], w[DENSE, SAMPLED] = t, w[STATE, ROUND]
            return
        count_anew(w, arms, t)
    lowest = fill_block(block_of(w))
    w[DENSE, NEXT] = 0.0
    careful = lowest < CAREFUL or w[STATE, INVALID] >= 0.0
    w[DENSE, CLOSE] = np.inf if careful else 2.0 * ERROR * w[DENSE, LARGEST]


def few_switches(arms: int) -> float:
    """Return with how many switches per round the lazy engine may be faster."""
    return 0.01 + (arms / 300.0) ** 2


@rare
def many_compete(w: Any, arms: int, t: int) -> bool:
    """Return whether so many arms compete that the dense engine is faster; the lazy one is about to reset."""
    work, rounds = w[STATE, WORK], t - w[DENSE, SINCE]
    sampled = w[STATE, ROUND] - w[DENSE, SAMPLED]
    w[DENSE, SINCE], w[DENSE, SAMPLED] = t, w[STATE, ROUND]
    # Nanoseconds, measured on one machine; ratios between machines hardly differ.
    lazy, dense = 20.0 * rounds + 50.0 * sampled + 40.0 * work, (27.0 + 0.45 * arms) * rounds
    return work < np.inf and lazy > 1.1 * dense


@rare
def start(f: Any, w: Any, arms: int, t: int, rng: Any) -> None:
    """Compute the parameters of all scores, and seed the generators of the block."""
    w[DENSE, STARTED] = 1.0
    for arm in range(w.shape[1]):
        w[A, arm], w[B, arm] = LOWEST, 0.0
    for arm in range(arms):
        w[A, arm] = call(f[1], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
        w[B, arm] = call(f[2], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
        if not are_valid_parameters(GAUSSIAN, w[A, arm], w[B, arm]):
            w[STATE, INVALID] = arm
    seed_generators(block_of(w)[GENERATORS:SIZE], rng)
    w[DENSE, PATIENCE] = 100.0 + arms
    count_anew(w, arms, t)


@rare
def count_anew(w: Any, arms: int, t: int) -> None:
    """Begin to count switches; compute the largest spread."""
    put_back(w, arms)
    w[DENSE, SINCE], w[DENSE, SWITCHES], w[DENSE, LARGEST] = t, 0.0, 0.0
    for arm in range(arms):
        w[DENSE, LARGEST] = max(w[DENSE, LARGEST], bounded(w[A, arm], w[B, arm]))


def bounded(location: float, spread: float) -> float:
    """Return the spread, or inf if a score may be below LOWEST: then all are compared in double precision."""
    return spread if abs(location) < FARTHEST and 100.0 * spread < FARTHEST else np.inf


def put_back(w: Any, arms: int) -> None:
    """Store the parameters of the arm that is kept apart, and keep a place without an arm apart."""
    apart = int(w[DENSE, APART])
    w[A, apart], w[B, apart] = w[DENSE, LOCATION], w[DENSE, SPREAD]
    w[DENSE, APART], w[DENSE, LOCATION], w[DENSE, SPREAD] = arms, LOWEST, 0.0


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward."""
    if w[DENSE, IS_LAZY] > 0.0:
        update_lazily(f, w, arms, arm, reward, t)
        return
    apart = int(w[DENSE, APART])
    # Stored before everything else, so that the vectors of the next round need not wait for it.
    w[A, apart], w[B, apart], w[A, arm] = w[DENSE, LOCATION], w[DENSE, SPREAD], LOWEST
    w[N, arm] += 1.0
    w[S, arm] += reward
    n, s = w[N, arm], w[S, arm]
    location = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    spread = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    w[DENSE, APART], w[DENSE, LOCATION], w[DENSE, SPREAD] = arm, location, spread
    w[DENSE, SWITCHES] += 1.0 if arm != apart else 0.0
    if not (0.0 < spread <= w[DENSE, LARGEST] and abs(location) < FARTHEST):
        widen(w, arm, location, spread)


@rare
def widen(w: Any, arm: int, location: float, spread: float) -> None:
    """Adapt the bound on errors to a spread, or let the next choice report invalid parameters."""
    w[DENSE, LARGEST] = max(w[DENSE, LARGEST], bounded(location, spread))
    w[DENSE, CLOSE] = max(w[DENSE, CLOSE], 2.0 * ERROR * w[DENSE, LARGEST])
    if not are_valid_parameters(GAUSSIAN, location, spread):
        w[STATE, INVALID], w[STATE, SURE], w[DENSE, CLOSE] = arm, -1.0, np.inf


ENGINE = (begin, choose, update)
