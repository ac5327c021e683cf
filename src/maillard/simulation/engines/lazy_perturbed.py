"""The lazy engine for perturbed policies (Thompson sampling): it samples only scores that may win.

The algorithm fixes a threshold. An arm whose score is likely to exceed it is *certain*: its score is sampled
in every round. Every other arm has an envelope, an upper bound exp(height - rate y) on the density of its
score at y above the threshold. A Poisson process of points stands for the envelopes: each point falls on an
arm and at a height y. The highest point of an arm is its candidate: it is the arm's score with probability
density / (density of the highest point), and otherwise the score does not exceed the threshold. The engine
goes through the points from the top down and stops at the first score, or below the best certain one. So a
round evaluates a few densities and no distribution function, also while many arms may still be best.

If no score is above the threshold, all are sampled from their distributions below it. If exactly one arm is
certain and its score is almost certainly above the threshold, it is *sure*: it wins without being sampled
whenever there is no point, at the cost of one random number and a comparison.

Arms whose envelopes have about the same rate form a class with one common rate, so that the heights of its
points can be sampled in order. Within a class the arms lie in buckets (see `hazard_buckets`), and most
rewards leave an arm in its bucket. Every threshold, class and bucket gives the same distribution of the
choice; they are chosen anew when the work since the last time exceeds the cost of doing so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare
from maillard.simulation.engines.aligned_tables import aligned_table
from maillard.simulation.engines.hazard_buckets import (
    BUCKETS,
    CLASSES,
    COUNTS,
    HEIGHT,
    LIST,
    LISTS,
    TOTALS,
    UNWEIGHTED,
    WEIGHTS,
    begin_buckets,
    bucket_for,
    clear_buckets,
    find_arm,
    move_arm,
)
from maillard.simulation.engines.random_numbers import exponential, uniform
from maillard.simulation.engines.score_envelopes import (
    best_rate,
    density_scale,
    is_sure,
    log_density,
    log_norm,
    low_point,
    next_log_norm,
    slope_at,
    tangent,
)
from maillard.simulation.engines.score_sampling import (
    BETA,
    GAUSSIAN,
    are_valid_parameters,
    sample_below,
    sample_score,
)

# Rows of the table: per arm the pulls, sums, the two parameters of its score and the constant of their
# density (NORM), the height and mass of its envelope, the class and its rate, the greatest mass that its
# bucket allows (0: certain), and the last round in which it was a candidate; the rate of each class; and
# STATE, single numbers at the following positions. The buckets begin at row FIRST.
N, S, A, B, NORM, TANGENT, MASS, CLASS, RATE, CAPACITY, CANDIDATE, RATES, STATE, FIRST = range(14)
ROWS = FIRST + HEIGHT
# TOTAL: the hazard of all arms that are not certain. WORK, PATIENCE: done since the last reset, and how much
# to do before the next. INVALID: an arm whose score parameters are invalid, or -1. SURE: the sure arm, or -1.
# STARTED: 1 after the first reset. TYPICAL_RATE: that of the arms which are often candidates. WINNING: where
# the highest score is expected. FIRST_CLASS, LAST_CLASS: those in use. TARGET, BALANCE: see `choose_target`.
THRESHOLD, TOTAL, WORK, PATIENCE, INVALID, SURE, ROUND, STARTED = range(8)
TYPICAL_RATE, WINNING, FIRST_CLASS, LAST_CLASS, BALANCE, TARGET = range(8, 14)
SURE_HAZARD = 2.0**-12
SURE_PROBABILITY = -math.expm1(-SURE_HAZARD)
SURE_Z = 3.6  # of a Gaussian score: the density at z divided by z is less than SURE_PROBABILITY
SURE_GUMBEL_Z = 2.2  # likewise
MAX_MASS = 0.36  # the highest point of an arm has a density only for masses below 1/e


def begin(arms: int) -> Any:
    """Return the state before the first reward: no threshold."""
    return make_table(arms, ROWS)


def table_width(arms: int) -> int:
    """Return the length of a row: whole vectors, with a place for no arm."""
    return max(8 * (arms // 8 + 1), BUCKETS)


def make_table(arms: int, rows: int) -> Any:
    """Return a table with the state before the first reward, and more rows after it."""
    w = aligned_table(rows, table_width(arms))
    for row in range(FIRST):
        for arm in range(w.shape[1]):
            w[row, arm] = 0.0
    w[STATE, INVALID] = w[STATE, SURE] = -1.0
    w[STATE, WORK] = np.inf
    begin_buckets(w, FIRST)
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose the arm with the largest score. f: location, spread, code of the score distribution."""
    if w[STATE, WORK] > w[STATE, PATIENCE]:
        reset_threshold(f, w, arms)
    position = exponential(rng)
    if w[STATE, SURE] >= 0.0 and position > w[STATE, TOTAL] + SURE_HAZARD:
        return int(w[STATE, SURE])
    return choose_sampled(f, w, arms, position, rng)


@rare
def choose_sampled(f: Any, w: Any, arms: int, position: float, rng: Any) -> int:
    """Choose the arm with the largest score; `position` is the first point on the line of all hazards."""
    if w[STATE, INVALID] >= 0.0:
        return -1 - int(w[STATE, INVALID])
    code, threshold, sure = f[3], w[STATE, THRESHOLD], int(w[STATE, SURE])
    top, winner, below, runner = threshold, -1, -np.inf, -1  # the best scores above and below the threshold
    if sure >= 0:
        low = position < SURE_HAZARD
        position = exponential(rng) if low else position - SURE_HAZARD
        if low:
            below = sample_low(code, w[A, sure], w[B, sure], w[NORM, sure], threshold, rng)
            low = below > -np.inf
        if low:
            runner = sure
        elif position >= w[STATE, TOTAL]:
            return sure
        else:
            winner = sure
            while top <= threshold:
                top = sample_score(code, w[A, sure], w[B, sure], rng)
    else:
        certain = int(w[FIRST + COUNTS + CLASSES, 0])
        work = (0.6 if code == BETA else 0.25) * certain
        w[STATE, WORK] += work
        w[STATE, BALANCE] -= work
        for place in range(certain):
            arm = int(w[FIRST + LISTS + UNWEIGHTED, place])
            score = sample_score(code, w[A, arm], w[B, arm], rng)
            if score > top:
                top, winner = score, arm
            elif winner < 0 and score > below:
                below, runner = score, arm
    candidate = find_candidate(code, w, position, top, rng)
    winner = candidate if candidate >= 0 else winner
    return winner if winner >= 0 else choose_all_below(f, w, arms, below, runner, rng)


def find_candidate(code: int, w: Any, position: float, top: float, rng: Any) -> int:
    """Return the arm with the highest score above `top` among those that are not certain, or -1."""
    winner, work = -1, 0.5
    w[STATE, ROUND] += 1.0
    for row in range(int(w[STATE, FIRST_CLASS]), int(w[STATE, LAST_CLASS]) + 1):
        total = w[FIRST + TOTALS, row]
        if position >= total:
            position -= total
            continue
        step = 1.0 / w[RATES, row]
        while position < total:
            # The points of a class are at heights -step ln(part): the first one is the highest.
            part = position / total
            log_part = np.log(part)
            x = w[STATE, THRESHOLD] - step * log_part
            if x <= top:
                break
            work += 1.0
            arm, into, weight = find_arm(w, FIRST, row, uniform(rng) * total)
            if arm >= 0 and w[CANDIDATE, arm] != w[STATE, ROUND]:
                w[CANDIDATE, arm] = w[STATE, ROUND]
                # The height of an arm's highest point has the density weight exp(-weight part) rate part.
                log = log_density(code, w[A, arm], w[B, arm], w[NORM, arm], x) - w[TANGENT, arm] - log_part
                if is_below_exp(into / w[MASS, arm], log + weight * part):
                    top, winner = x, arm
                    break
            position += exponential(rng)
        position = exponential(rng)
    w[STATE, WORK] += work
    return winner


def is_below_exp(u: float, x: float) -> bool:
    """Return whether u < exp(x), mostly by Taylor polynomials: fewer calls of exp."""
    low = 1.0 + x * (1.0 + x * (0.5 + x * (1.0 / 6.0)))
    return u <= low or (not (x < 0.0 and u >= low + x * x * x * x / 24.0) and u < np.exp(x))


@rare
def choose_all_below(f: Any, w: Any, arms: int, top: float, winner: int, rng: Any) -> int:
    """Choose the arm with the largest score when none is above the threshold; `top` of the certain ones."""
    work = (0.8 if f[3] == BETA else 0.2) * arms
    w[STATE, WORK] += work
    w[STATE, BALANCE] += work
    for arm in range(arms):
        if int(w[FIRST + LIST, arm]) != UNWEIGHTED:
            score = sample_below(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD], rng)
            if score > top:
                top, winner = score, arm
    return winner


@rare
def sample_low(code: int, a: float, b: float, norm: float, threshold: float, rng: Any) -> float:
    """Sample the score of a sure arm that is a candidate for a low score; -inf stands for a high score."""
    rate, step = -slope_at(code, a, b, threshold), exponential(rng)
    x = threshold - step / rate
    density = np.exp(log_density(code, a, b, norm, x)) / density_scale(code, b)
    return x if uniform(rng) * SURE_PROBABILITY * rate * np.exp(-step) < density else -np.inf


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward."""
    w[N, arm] += 1.0
    w[S, arm] += reward
    if w[STATE, STARTED] == 0.0:
        return
    n, s = w[N, arm], w[S, arm]
    a = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    b = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    if f[3] == BETA:
        w[NORM, arm] = next_log_norm(w[NORM, arm], a, b, w[A, arm], w[B, arm])
    w[A, arm], w[B, arm] = a, b
    if not are_valid_parameters(f[3], a, b):
        w[STATE, INVALID], w[STATE, SURE] = arm, -1.0
        return
    capacity, rate = w[CAPACITY, arm], w[RATE, arm]
    mass = fit_envelope(f[3], w, arm)
    if not 0.45 * capacity < mass <= capacity or rate != w[RATE, arm]:
        place_arm(w, arm, mass)
    if capacity == 0.0 or mass > MAX_MASS:
        find_sure(f[3], w)


def fit_envelope(code: int, w: Any, arm: int) -> float:
    """Compute the envelope of an arm; return its mass, or inf for a certain arm."""
    a, b, threshold = w[A, arm], w[B, arm], w[STATE, THRESHOLD]
    middle = a / (a + b) if code == BETA else a
    if middle >= threshold:
        return np.inf
    compute_envelope(code, w, arm)
    if not w[MASS, arm] <= MAX_MASS:
        choose_class(code, w, arm)
        compute_envelope(code, w, arm)
    return w[MASS, arm] if w[MASS, arm] <= MAX_MASS else np.inf


def compute_envelope(code: int, w: Any, arm: int) -> None:
    """Compute the height and the mass of an arm's envelope with the rate of its class."""
    a, b, rate = w[A, arm], w[B, arm], w[RATE, arm]
    height = tangent(code, a, b, w[NORM, arm], w[STATE, THRESHOLD], rate)
    w[TANGENT, arm] = height
    w[MASS, arm] = np.exp(min(height, 700.0)) / (rate * density_scale(code, b))


@rare
def choose_class(code: int, w: Any, arm: int) -> None:
    """Choose the class whose rate is best for the highest scores."""
    rate = best_rate(code, w[A, arm], w[B, arm], w[STATE, WINNING])
    ratio = rate / w[RATES, CLASSES // 2] if rate > 0.0 else 0.001
    # Round to the nearest rate; down, if an envelope with a higher rate is much larger.
    if code == GAUSSIAN or (code == BETA and w[A, arm] >= 4.0):
        ratio *= math.sqrt(2.0)
    row = min(max(math.frexp(ratio)[1] - 1 + CLASSES // 2, 0), CLASSES - 1)
    w[CLASS, arm], w[RATE, arm] = row, w[RATES, row]
    w[STATE, FIRST_CLASS] = min(w[STATE, FIRST_CLASS], float(row))
    w[STATE, LAST_CLASS] = max(w[STATE, LAST_CLASS], float(row))


@rare
def place_arm(w: Any, arm: int, mass: float) -> None:
    """Put an arm into the first bucket that allows the mass of its envelope, or make it certain."""
    to, old = UNWEIGHTED, int(w[FIRST + LIST, arm])
    if old >= 0 and old != UNWEIGHTED:
        w[STATE, TOTAL] -= w[FIRST + WEIGHTS, old % BUCKETS]
    w[CAPACITY, arm] = 0.0
    if mass <= MAX_MASS:
        bucket = bucket_for(mass)
        while allowed_mass(w, bucket) < mass:
            bucket -= 1
        to = int(w[CLASS, arm]) * BUCKETS + bucket
        w[CAPACITY, arm] = allowed_mass(w, bucket)
        w[STATE, TOTAL] += w[FIRST + WEIGHTS, bucket]
    if to != old:
        move_arm(w, FIRST, arm, to)


def allowed_mass(w: Any, bucket: int) -> float:
    """Return the greatest mass for which the density of an arm's highest point exceeds the envelope."""
    weight = w[FIRST + WEIGHTS, bucket]
    return weight * np.exp(-weight)


def find_sure(code: int, w: Any) -> None:
    """Look whether exactly one arm is certain, and whether it is sure."""
    w[STATE, SURE] = -1.0
    if w[FIRST + COUNTS + CLASSES, 0] == 1.0:
        arm = int(w[FIRST + LISTS + UNWEIGHTED, 0])
        a, b, threshold = w[A, arm], w[B, arm], w[STATE, THRESHOLD]
        if code != BETA:
            sure = a - threshold >= (SURE_Z if code == GAUSSIAN else SURE_GUMBEL_Z) * b
        else:
            sure = is_sure(code, a, b, w[NORM, arm], threshold, SURE_PROBABILITY)
        w[STATE, SURE] = arm if sure else -1.0


@rare
def reset_threshold(f: Any, w: Any, arms: int) -> None:
    """Choose a threshold near the lowest scores of the best arm, or higher, so that few arms are above it."""
    lowest = prepare_scores(f, w, arms)
    if w[STATE, INVALID] >= 0.0:
        return
    code, before = f[3], w[STATE, THRESHOLD]
    few = choose_target(w, arms)
    for step in range(8):
        w[STATE, THRESHOLD] = max(w[STATE, THRESHOLD], lowest)
        fill_buckets(code, w, arms, few)
        above = w[STATE, TOTAL] + 1.5 * max(w[FIRST + COUNTS + CLASSES, 0] - 1.0, 0.0)
        if step == 7 or (above < 1.6 * few and (above > 0.6 * few or w[STATE, THRESHOLD] == lowest)):
            break
        # The hazard is nearly exponential in the threshold.
        old = w[STATE, THRESHOLD]
        new = old + max(np.log(max(above, 0.01) / few), -1.0) / w[STATE, TYPICAL_RATE]
        if code == BETA:
            new = min(max(new, 0.5 * old), 0.5 + 0.5 * old)
        w[STATE, THRESHOLD] = new
    # Wait longer before the next reset, if this one changed little.
    same = abs(w[STATE, THRESHOLD] - before) * w[STATE, TYPICAL_RATE] < 0.3
    least = 5.0 * arms + 30.0
    w[STATE, PATIENCE] = min(max(w[STATE, PATIENCE] * (2.0 if same else 0.5), least), 2.0 * least)
    w[STATE, WORK] = 0.0
    find_sure(code, w)


def choose_target(w: Any, arms: int) -> float:
    """Return the hazard that the threshold should have.

    A high threshold leads to rounds without a score above it, a low one to many certain arms. The target
    balances the work that both cause.
    """
    if w[STATE, TARGET] == 0.0:
        w[STATE, TARGET] = 1.0 + 2.2 * np.log(arms)
    elif w[STATE, BALANCE] > 0.0:
        w[STATE, TARGET] = min(1.2 * w[STATE, TARGET], 1.0 + 6.0 * np.log(arms))
    elif w[STATE, BALANCE] < 0.0:
        w[STATE, TARGET] = max(w[STATE, TARGET] / 1.2, 1.0 + np.log(arms))
    w[STATE, BALANCE] = 0.0
    return w[STATE, TARGET]


def prepare_scores(f: Any, w: Any, arms: int) -> float:
    """Compute the score parameters, if this is the first reset; return the lowest useful threshold."""
    code, most, lead = f[3], -np.inf, 0
    for arm in range(arms):
        if w[STATE, STARTED] == 0.0:
            w[A, arm] = call(f[1], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
            w[B, arm] = call(f[2], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
        if not are_valid_parameters(code, w[A, arm], w[B, arm]):
            w[STATE, INVALID] = arm
            return 0.0
        if code == BETA:  # anew, so that rounding errors do not accumulate
            w[NORM, arm] = log_norm(w[A, arm], w[B, arm])
        low = low_point(code, w[A, arm], w[B, arm])
        if low > most:
            most, lead = low, arm
    if w[STATE, STARTED] == 0.0:
        a, b = w[A, lead], w[B, lead]
        deviation = np.sqrt(a * b / (a + b + 1.0)) / (a + b) if code == BETA else b
        w[STATE, THRESHOLD], w[STATE, TYPICAL_RATE], w[STATE, STARTED] = most, 2.0 / deviation, 1.0
    return most


def fill_buckets(code: int, w: Any, arms: int, few: float) -> None:
    """Choose the rates of the classes, and put every arm into a class and a bucket."""
    threshold, typical = w[STATE, THRESHOLD], w[STATE, TYPICAL_RATE]
    # Gumbel scores need a rate below their own: the rates of most arms should share a class.
    middle = 0.7 * typical if code not in (GAUSSIAN, BETA) else typical
    for row in range(CLASSES):
        w[RATES, row] = middle * math.ldexp(1.0, row - CLASSES // 2)
    clear_buckets(w, FIRST, arms)
    w[STATE, TOTAL], w[STATE, FIRST_CLASS], w[STATE, LAST_CLASS] = 0.0, CLASSES, -1.0
    winning = threshold + np.log(few) / typical
    w[STATE, WINNING] = min(winning, 0.5 + 0.5 * threshold) if code == BETA else winning
    total = rates = 0.0
    for arm in range(arms):
        choose_class(code, w, arm)
        mass = fit_envelope(code, w, arm)
        place_arm(w, arm, mass)
        if mass <= MAX_MASS:
            total += mass
            rates += mass * best_rate(code, w[A, arm], w[B, arm], w[STATE, WINNING])
    if total > 1e-6:
        w[STATE, TYPICAL_RATE] = rates / total


ENGINE = (begin, choose, update)
