"""The lazy engine for Gaussian scores on a GPU, as `maillard.simulation.engines.lazy_perturbed`."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.cuda.engines.trial_memory import (
    COUNT,
    INDEX_MASK,
    LEADER,
    NO_EXPIRY,
    REBUILD_ALL,
    SUM,
    N,
    S,
    find_arm,
    lengths_at,
    load_leader,
    record_at,
    save_leader,
    total_length,
    update_block_sums,
)
from maillard.simulation.engines.random_numbers import exponential, normal, uniform
from maillard.simulation.engines.score_sampling import (
    are_valid_parameters,
    hazard,
    lowest_z,
    point_at,
    sample_above,
)

# Of x; NO_RIVAL_PROBABILITY is the probability that no rival is above the threshold.
MIDDLE, SPREAD, THRESHOLD, NO_RIVAL_PROBABILITY, SCORE = range(3, 8)
TOTAL_HAZARD, THRESHOLD_Z, WORK, INVALID = range(4)  # of w's header
A, B = 2, 3  # of a record: the middle and the spread of a score


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """Set the first leader."""
    w[INVALID], w[WORK], w[THRESHOLD_Z] = -1.0, 0.0, lowest_z(f[3])
    for arm in range(arms):
        set_score_parameters(f, w, arm)
    read_leader(x, w, 0)
    x[THRESHOLD], x[NO_RIVAL_PROBABILITY], x[SCORE] = 0.0, 0.0, 0.0


def try_leader(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Return whether only the leader is above the threshold."""
    x[SCORE] = x[MIDDLE] + x[SPREAD] * score
    return x[SCORE] > x[THRESHOLD] and uniform(rng) < x[NO_RIVAL_PROBABILITY]


def keeps_leader(f: Any, x: Any) -> bool:
    """Compute the parameters of the leader's next score."""
    x[MIDDLE] = call(f[1], f[0], x[COUNT], x[SUM], 0.0, 0.0, 0.0)
    x[SPREAD] = call(f[2], f[0], x[COUNT], x[SUM], 0.0, 0.0, 0.0)
    return True


def choose_arm(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """Return the arm with the largest score."""
    lead, line, top, threshold = int(x[LEADER]), lengths_at(arms), x[SCORE], x[THRESHOLD]
    winner, total_hazard = lead, w[TOTAL_HAZARD]
    if top > threshold:  # then some rival is above: the first point is on the line
        position = -np.log1p(-uniform(rng) * (1.0 - x[NO_RIVAL_PROBABILITY]))
    else:
        winner, position = -1, exponential(rng)
    while position < total_hazard:
        w[WORK] += 1.0
        arm, into = find_arm(w, arms, shift, position)
        length = w[(line + arm) & INDEX_MASK]
        if length > 0.0:  # rounding may lead past the last arm
            at = record_at(arm)
            score = sample_above(f[3], w[at + A], w[at + B], threshold, length, rng)
            if score > top or winner < 0:
                top, winner = score, arm
        # One point is enough: continue after the interval.
        position = max(position, position - into + length) + exponential(rng)
    if winner < 0:  # no score is above: sample each given that
        winner = lead
        w[WORK] += 0.5 * arms
        for arm in range(arms):
            if arm != lead:
                at = record_at(arm)
                score = w[at + A] + w[at + B] * normal(rng)
                while score > threshold:
                    score = w[at + A] + w[at + B] * normal(rng)
                if score > top:
                    top, winner = score, arm
    return winner


def update(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Compute the parameters of an arm's next score; return what to rebuild."""
    lead = int(x[LEADER])
    if arm == lead:
        keeps_leader(f, x)
    elif arm >= 0:
        set_score_parameters(f, w, arm)
    if w[WORK] > 6.0 * arms:
        return REBUILD_ALL
    return arm + 1 if arm >= 0 and arm != lead else 0


def set_score_parameters(f: Any, w: Any, arm: int) -> None:
    """Compute the parameters of an arm's score."""
    at = record_at(arm)
    n, s = w[at + N], w[at + S]
    w[at + A] = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    w[at + B] = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    if not are_valid_parameters(f[3], w[at + A], w[at + B]):
        w[INVALID] = arm


def rebuild(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """Compute a rival's hazard; or choose the leader and the threshold, and compute all hazards."""
    line, first, last, tries = lengths_at(arms), max(what - 1, 0), max(what, 0), 1
    if what == REBUILD_ALL:
        choose_leader(f, x, w, arms)
        first, last, tries, w[WORK] = 0, arms, 4, 0.0
        x[THRESHOLD] = point_at(f[3], x[MIDDLE], x[SPREAD], w[THRESHOLD_Z])
    lead, few = int(x[LEADER]), 0.6 * np.log(float(arms))
    while tries > 0:
        tries -= 1
        for arm in range(first, last):
            at = record_at(arm)
            above = hazard(f[3], w[at + A], w[at + B], x[THRESHOLD])
            w[(line + arm) & INDEX_MASK] = 0.0 if arm == lead else above
        update_block_sums(w, arms, shift, first, last)
        above = total_length(w, arms, shift)
        w[TOTAL_HAZARD] = above
        if what != REBUILD_ALL:
            tries = 0
        elif above > few + 3.0 and w[THRESHOLD_Z] < 6.0:
            w[THRESHOLD_Z] += 1.0
        else:
            tries = 0
            if above < few:
                w[THRESHOLD_Z] = max(w[THRESHOLD_Z] - 0.5, lowest_z(f[3]))
        if tries > 0:
            x[THRESHOLD] = point_at(f[3], x[MIDDLE], x[SPREAD], w[THRESHOLD_Z])
    x[NO_RIVAL_PROBABILITY] = np.exp(-w[TOTAL_HAZARD])
    return NO_EXPIRY if w[INVALID] < 0.0 and are_valid_parameters(f[3], x[MIDDLE], x[SPREAD]) else 0


def choose_leader(f: Any, x: Any, w: Any, arms: int) -> None:
    """Choose the arm whose score is most reliably high as the leader."""
    code, old, most, new = f[3], record_at(int(x[LEADER])), -np.inf, 0
    save_leader(x, w)
    w[old + A], w[old + B] = x[MIDDLE], x[SPREAD]
    for arm in range(arms):
        at = record_at(arm)
        low = point_at(code, w[at + A], w[at + B], lowest_z(code))
        if low > most:
            new, most = arm, low
    read_leader(x, w, new)


def read_leader(x: Any, w: Any, arm: int) -> None:
    """Make an arm the leader, with the parameters of its score."""
    load_leader(x, w, arm)
    x[MIDDLE], x[SPREAD] = w[record_at(arm) + A], w[record_at(arm) + B]


ENGINE = (begin, try_leader, keeps_leader, choose_arm, update, rebuild)
