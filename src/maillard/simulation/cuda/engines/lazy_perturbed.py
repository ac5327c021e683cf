"""The lazy engine for the perturbed shape, as `maillard.simulation.engines.lazy_perturbed` has it, for Gaussian scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.cuda.engines.trial_memory import (
    ALL,
    COUNT,
    LEAD,
    LONG,
    PLACES,
    SUM,
    N,
    S,
    add_up,
    find,
    line_at,
    record_at,
    total_of,
)
from maillard.simulation.engines.random_numbers import exponential, normal, uniform
from maillard.simulation.engines.score_sampling import draw_above, hazard, level, lowest, usable

__all__ = ["ENGINE"]

# Of x; ALONE is the chance that no rival is above the threshold.
MIDDLE, SPREAD, THRESHOLD, ALONE, SCORE = range(3, 8)
STRETCH, HEIGHT, WORK, BAD = range(4)  # of w's header
A, B = 2, 3  # of a record: the middle and the spread of a score


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """No lead yet."""
    w[BAD], w[WORK], w[HEIGHT] = -1.0, 0.0, lowest(f[3])
    for arm in range(arms):
        at = record_at(arm)
        score_of(f, w, at, arm)
    at = record_at(0)
    x[LEAD], x[COUNT], x[SUM], x[MIDDLE], x[SPREAD] = 0.0, w[at + N], w[at + S], w[at + A], w[at + B]
    x[THRESHOLD], x[ALONE], x[SCORE] = 0.0, 0.0, 0.0


def glance(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Whether the lead alone is above the threshold."""
    x[SCORE] = x[MIDDLE] + x[SPREAD] * score
    return x[SCORE] > x[THRESHOLD] and uniform(rng) < x[ALONE]


def note(f: Any, x: Any) -> bool:
    """The lead's next score."""
    x[MIDDLE] = call(f[1], f[0], x[COUNT], x[SUM], 0.0, 0.0, 0.0)
    x[SPREAD] = call(f[2], f[0], x[COUNT], x[SUM], 0.0, 0.0, 0.0)
    return True


def consider(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """The arm with the largest score, where a glance did not tell."""
    lead, line, top, threshold = int(x[LEAD]), line_at(arms), x[SCORE], x[THRESHOLD]
    winner, stretch = lead, w[STRETCH]
    if top > threshold:  # then there is a point: the first one lies within
        position = -np.log1p(-uniform(rng) * (1.0 - x[ALONE]))
    else:
        winner, position = -1, exponential(rng)
    while position < stretch:
        w[WORK] += 1.0
        arm, into = find(w, arms, shift, position)
        length = w[(line + arm) & PLACES]
        if length > 0.0:  # rounding may lead past the last
            at = record_at(arm)
            score = draw_above(f[3], w[at + A], w[at + B], threshold, length, rng)
            if score > top or winner < 0:
                top, winner = score, arm
        # One point is enough: go on from the end of the stretch.
        position = max(position, position - into + length) + exponential(rng)
    if winner < 0:  # nobody is above: every score given that it is not
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


def adapt(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """An arm's next score; and whether the threshold is to be chosen anew."""
    lead = int(x[LEAD])
    if arm == lead:
        note(f, x)
    elif arm >= 0:
        score_of(f, w, record_at(arm), arm)
    if w[WORK] > 6.0 * arms:
        return ALL
    return arm + 1 if arm >= 0 and arm != lead else 0


def score_of(f: Any, w: Any, at: int, arm: int) -> None:
    """The parameters of an arm's score."""
    n, s = w[at + N], w[at + S]
    w[at + A] = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    w[at + B] = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    if not usable(f[3], w[at + A], w[at + B]):
        w[BAD] = arm


def renew(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """A rival's chance to exceed the threshold; or the lead, the threshold and all rivals' chances."""
    line, first, last, tries = line_at(arms), max(what - 1, 0), max(what, 0), 1
    if what == ALL:
        choose_lead(f, x, w, arms)
        first, last, tries, w[WORK] = 0, arms, 4, 0.0
        x[THRESHOLD] = level(f[3], x[MIDDLE], x[SPREAD], w[HEIGHT])
    lead, few = int(x[LEAD]), 0.6 * np.log(float(arms))
    while tries > 0:
        tries -= 1
        for arm in range(first, last):
            at = record_at(arm)
            above = hazard(f[3], w[at + A], w[at + B], x[THRESHOLD])
            w[(line + arm) & PLACES] = 0.0 if arm == lead else above
        if last > first:
            for block in range(first >> shift, ((last - 1) >> shift) + 1):
                add_up(w, arms, shift, block)
        above = total_of(w, arms, shift)
        w[STRETCH] = above
        if what != ALL:
            tries = 0
        elif above > few + 3.0 and w[HEIGHT] < 6.0:
            w[HEIGHT] += 1.0
        else:
            tries = 0
            if above < few and w[HEIGHT] > lowest(f[3]):
                w[HEIGHT] = max(w[HEIGHT] - 0.5, lowest(f[3]))
        if tries > 0:
            x[THRESHOLD] = level(f[3], x[MIDDLE], x[SPREAD], w[HEIGHT])
    x[ALONE] = np.exp(-w[STRETCH])
    return LONG if w[BAD] < 0.0 and usable(f[3], x[MIDDLE], x[SPREAD]) else 0


def choose_lead(f: Any, x: Any, w: Any, arms: int) -> None:
    """The lead is the arm whose score is most reliably high."""
    code, lead, most, new = f[3], int(x[LEAD]), -np.inf, 0
    old = record_at(lead)
    w[old + N], w[old + S], w[old + A], w[old + B] = x[COUNT], x[SUM], x[MIDDLE], x[SPREAD]
    for arm in range(arms):
        at = record_at(arm)
        low = level(code, w[at + A], w[at + B], lowest(code))
        if low > most:
            new, most = arm, low
    at = record_at(new)
    x[LEAD], x[COUNT], x[SUM], x[MIDDLE], x[SPREAD] = new, w[at + N], w[at + S], w[at + A], w[at + B]


ENGINE = (begin, glance, note, consider, adapt, renew)
