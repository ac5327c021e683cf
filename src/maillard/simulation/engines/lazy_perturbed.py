"""The lazy engine for perturbed policies (Thompson sampling): it samples only scores that may win.

The algorithm fixes a threshold. An arm whose score probably exceeds it is *certain*: its score is sampled in
every round. Every other arm has an envelope, an upper bound mass * rate * exp(-rate y) on the density of its
score at y above the threshold. The envelopes are a Poisson process: points fall at a common rate, each on one
arm and at one height. Only the highest point of an arm is its candidate; it is the arm's score with
probability density / envelope, and otherwise the score does not exceed the threshold. The engine goes
through the candidates from the top down and stops at the first score that is higher than all certain ones.
So a round evaluates one or two densities and no distribution function, however many arms may be best.

If no score is above the threshold, all scores are sampled from their distributions below it. If exactly one
arm is certain, and its score is almost certainly above the threshold (it is *sure*), then it wins without
being sampled whenever there are no candidates: one random number and a comparison.

Arms whose envelopes have about the same rate form a class with one common rate. Within a class the hazards,
upper bounds on -ln P(score <= threshold), lie in buckets (see `hazard_buckets`), so that most rewards change
nothing there. Every threshold, class and bucket gives the same distribution of the choice. They are chosen
anew when the work that another threshold might save adds up to the cost of doing so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare
from maillard.simulation.engines import hazard_buckets as buckets
from maillard.simulation.engines.hazard_buckets import (
    BUCKETS,
    CLASSES,
    COUNTS,
    LIST,
    LISTS,
    TOTALS,
    WEIGHTS,
    UNWEIGHTED,
    bucket_for,
    clear,
    move,
    pick,
)
from maillard.simulation.engines.random_numbers import exponential, uniform
from maillard.simulation.engines.score_envelopes import (
    density_scale,
    log_density,
    log_norm,
    low_point,
    low_tail_mass,
    next_log_norm,
    tail_mass,
    tail_rate,
    tail_rate_at,
)
from maillard.simulation.engines.score_sampling import BETA, GAUSSIAN, GUMBEL, are_valid_parameters, sample_below, sample_score

# Rows of the table: pulls, sums, the two parameters of the scores, the constant of their density, the class
# of each arm, the rate of each class, the round in which an arm was last a candidate, and STATE; then the
# buckets.
N, S, A, B, NORM, CLASS, RATES, CANDIDATE, STATE, FIRST = range(10)
# STATE: the threshold, the total hazard, the work since the last reset, an arm whose score parameters are
# invalid (or -1), the sure arm (or -1), and the number of the round.
THRESHOLD, TOTAL, WORK, INVALID, SURE, ROUND, TYPICAL_RATE, STARTED, HIGH, PATIENCE = range(10)
SURE_HAZARD = 2.0**-12
SURE_MASS = -math.expm1(-SURE_HAZARD)
MAX_MASS = 0.6  # mass (1 + mass) >= -ln(1 - mass) up to here


def begin(arms: int) -> Any:
    """Return the state before the first reward: no threshold."""
    w = np.empty((FIRST + buckets.HEIGHT, max(arms, BUCKETS)))
    w[:FIRST] = 0.0
    w[STATE, INVALID] = w[STATE, SURE] = -1.0
    w[STATE, WORK] = np.inf
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
    """Choose the arm with the largest score, if the first point on the line of all hazards is known."""
    if w[STATE, INVALID] >= 0.0:
        return -1 - int(w[STATE, INVALID])
    code, threshold = f[3], w[STATE, THRESHOLD]
    top, winner, sure, runner = threshold, -1, int(w[STATE, SURE]), -1
    below = -np.inf
    work = 0.5
    if sure >= 0:
        score = np.inf
        if position < SURE_HAZARD:
            score = sample_low(code, w[A, sure], w[B, sure], w[NORM, sure], threshold, rng)
            position = exponential(rng)
        else:
            position -= SURE_HAZARD
        if score > threshold:
            if position >= w[STATE, TOTAL]:
                return sure
            score = sample_score(code, w[A, sure], w[B, sure], rng)
            while score <= threshold:
                score = sample_score(code, w[A, sure], w[B, sure], rng)
            top, winner = score, sure
        else:
            below, runner = score, sure
    else:
        certain = int(w[FIRST + COUNTS + CLASSES, 0])
        work = 0.5 + 0.25 * certain
        for place in range(certain):
            arm = int(w[FIRST + LISTS + UNWEIGHTED, place])
            score = sample_score(code, w[A, arm], w[B, arm], rng)
            if score > top:
                top, winner = score, arm
            elif score > below:
                below, runner = score, arm
    w[STATE, ROUND] += 1.0
    for row in range(CLASSES):
        total = w[FIRST + TOTALS, row]
        if position >= total:
            position -= total
            continue
        rate = w[RATES, row]
        while position < total:
            part = position / total
            x = threshold - np.log(part) / rate
            if x <= top:
                break
            work += 1.0
            arm, into, weight = pick(w, FIRST, row, uniform(rng) * total)
            if arm >= 0 and w[CANDIDATE, arm] != w[STATE, ROUND]:
                w[CANDIDATE, arm] = w[STATE, ROUND]
                a, b = w[A, arm], w[B, arm]
                # The density of the highest point of the arm has a factor exp(-weight part).
                log = log_density(code, a, b, w[NORM, arm], x) + weight * part
                if into * rate * part * density_scale(code, b) < np.exp(log):
                    top, winner = x, arm
                    break
            position += exponential(rng)
        position = exponential(rng)
    w[STATE, WORK] += work
    return winner if winner >= 0 else choose_all_below(f, w, arms, below, runner, rng)


@rare
def choose_all_below(f: Any, w: Any, arms: int, top: float, winner: int, rng: Any) -> int:
    """Choose the arm with the largest score when none is above the threshold; `top` of the certain ones."""
    w[STATE, WORK] += 0.5 * arms
    for arm in range(arms):
        if int(w[FIRST + LIST, arm]) != UNWEIGHTED:
            score = sample_below(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD], rng)
            if score > top:
                top, winner = score, arm
    return winner


@rare
def sample_low(code: int, a: float, b: float, norm: float, threshold: float, rng: Any) -> float:
    """Sample the score of a sure arm that is a candidate for a low score; inf stands for a high one."""
    rate, step = -tail_rate_at(code, a, b, threshold), exponential(rng)
    x = threshold - step / rate
    low = uniform(rng) * SURE_MASS * rate * density_scale(code, b) < np.exp(
        log_density(code, a, b, norm, x) + step
    )
    return x if low else np.inf


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
    old = int(w[FIRST + LIST, arm])
    hazard = bounded_hazard(f[3], w, arm)
    if old == UNWEIGHTED:
        if hazard < np.inf:
            move_to(w, arm, hazard)
        find_sure(f, w)
    else:
        weight = w[FIRST + WEIGHTS, old % BUCKETS]
        if not 0.5 * weight < hazard <= weight:
            move_to(w, arm, hazard)
            if hazard == np.inf:
                find_sure(f, w)


def bounded_hazard(code: int, w: Any, arm: int) -> float:
    """Return an upper bound on -ln P(score <= threshold) by the envelope; inf for a certain arm."""
    a, b, threshold = w[A, arm], w[B, arm], w[STATE, THRESHOLD]
    middle = a / (a + b) if code == BETA else a
    if middle >= threshold:
        return np.inf
    mass = tail_mass(code, a, b, w[NORM, arm], threshold, w[RATES, int(w[CLASS, arm])])
    if not mass <= MAX_MASS:
        set_class(code, w, arm)
        mass = tail_mass(code, a, b, w[NORM, arm], threshold, w[RATES, int(w[CLASS, arm])])
    return mass * (1.0 + mass) if mass <= MAX_MASS else np.inf


def move_to(w: Any, arm: int, hazard: float) -> None:
    """Move an arm to the bucket of its hazard, if it is in another."""
    to, old = UNWEIGHTED, int(w[FIRST + LIST, arm])
    if old >= 0 and old != UNWEIGHTED:
        bucket = old % BUCKETS
        w[STATE, TOTAL] -= w[FIRST + WEIGHTS, bucket]
    else:
        bucket = 0
    if hazard < np.inf:
        bucket, weight = bucket_for(hazard, bucket, w[FIRST + WEIGHTS, bucket])
        to = int(w[CLASS, arm]) * BUCKETS + bucket
        w[STATE, TOTAL] += weight
    if to != old:
        move(w, FIRST, arm, to)


def find_sure(f: Any, w: Any) -> None:
    """Look whether exactly one arm is certain and it is sure."""
    w[STATE, SURE] = -1.0
    if w[FIRST + COUNTS + CLASSES, 0] == 1.0:
        arm = int(w[FIRST + LISTS + UNWEIGHTED, 0])
        if is_sure(f[3], w[A, arm], w[B, arm], w[NORM, arm], w[STATE, THRESHOLD]):
            w[STATE, SURE] = arm


def is_sure(code: int, a: float, b: float, norm: float, threshold: float) -> bool:
    """Return whether the tangent at the threshold shows that P(score <= threshold) <= SURE_MASS."""
    if code == GAUSSIAN:
        return a - threshold >= 3.6 * b
    if code == GUMBEL:
        return a - threshold >= 2.2 * b
    return low_tail_mass(code, a, b, norm, threshold) <= SURE_MASS


@rare
def reset_threshold(f: Any, w: Any, arms: int) -> None:
    """Choose the threshold: near the lowest scores of the best arm, or so high that few are above it."""
    code, most, lead = f[3], -np.inf, 0
    for arm in range(arms):
        if w[STATE, STARTED] == 0.0:
            w[A, arm] = call(f[1], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
            w[B, arm] = call(f[2], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
            if not are_valid_parameters(code, w[A, arm], w[B, arm]):
                w[STATE, INVALID] = arm
        if w[STATE, INVALID] >= 0.0:
            return
        if code == BETA:
            w[NORM, arm] = log_norm(w[A, arm], w[B, arm])
        low = low_point(code, w[A, arm], w[B, arm])
        if low > most:
            most, lead = low, arm
    a, b = w[A, lead], w[B, lead]
    deviation = np.sqrt(a * b / (a + b + 1.0)) / (a + b) if code == BETA else b
    if w[STATE, STARTED] == 0.0:
        w[STATE, THRESHOLD], w[STATE, TYPICAL_RATE] = most, 2.0 / deviation
    w[STATE, STARTED], w[STATE, WORK] = 1.0, 0.0
    few, before = 1.0 + 3.0 * np.log(arms), w[STATE, THRESHOLD]
    for step in range(8):
        w[STATE, THRESHOLD] = max(w[STATE, THRESHOLD], most)
        slope = fill_buckets(f, w, arms, lead, few)
        above = w[STATE, TOTAL] + 3.0 * max(w[FIRST + COUNTS + CLASSES, 0] - 1.0, 0.0)
        if step == 7 or (above < 1.5 * few and (above > 0.67 * few or w[STATE, THRESHOLD] == most)):
            break
        old = w[STATE, THRESHOLD]
        new = old + max(np.log(max(above, 0.01) / few), -1.0) / slope
        if code == BETA:
            new = min(max(new, 0.5 * old), 1.0 - 0.5 * (1.0 - old))
        w[STATE, THRESHOLD] = new
    # Wait longer, if this changed little.
    patience, least = w[STATE, PATIENCE], 6.0 * arms + 20.0
    same = abs(w[STATE, THRESHOLD] - before) * w[STATE, TYPICAL_RATE] < 0.3
    w[STATE, PATIENCE] = min(max(patience * (2.0 if same else 0.5), least), 32.0 * least)
    find_sure(f, w)


def fill_buckets(f: Any, w: Any, arms: int, lead: int, few: float) -> float:
    """Put every arm into the bucket of its hazard; return how steeply the total falls with the threshold."""
    code, threshold, typical = f[3], w[STATE, THRESHOLD], w[STATE, TYPICAL_RATE]
    for row in range(CLASSES):
        w[RATES, row] = typical * math.ldexp(1.0, row - CLASSES // 2)
    clear(w, FIRST, arms)
    w[STATE, TOTAL] = 0.0
    # Where the highest score is expected.
    x = threshold + (np.log(few) + 0.1) / typical
    if code == BETA:
        x = min(x, 0.5 + 0.5 * threshold)
    w[STATE, HIGH] = x
    total = slopes = 0.0
    for arm in range(arms):
        set_class(code, w, arm)
        hazard = bounded_hazard(code, w, arm)
        move_to(w, arm, hazard)
        if hazard < np.inf:
            total += hazard
            slopes += hazard * w[RATES, int(w[CLASS, arm])]
    if total > 1e-6:
        w[STATE, TYPICAL_RATE] = slopes / total
    return w[STATE, TYPICAL_RATE]


@rare
def set_class(code: int, w: Any, arm: int) -> None:
    """Choose the class whose rate is best for the highest scores."""
    rate = tail_rate(code, w[A, arm], w[B, arm], w[STATE, HIGH])
    ratio = rate / w[RATES, CLASSES // 2] if rate > 0.0 else 0.001
    row = math.frexp(ratio * (1.0 if code == GUMBEL or (code == BETA and w[A, arm] < 4.0) else 1.4))[1] - 1 + CLASSES // 2
    w[CLASS, arm] = min(max(row, 0), CLASSES - 1)


ENGINE = (begin, choose, update)
