"""The lazy engine for the sampled shape, as `maillard.simulation.engines.lazy_sampled` has it, for threads that share their instructions.

What a round needs in which the lead wins is in `x`, which the compiler keeps in registers; everything else is in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.cuda.engines.trial_memory import (
    ALL,
    COUNT,
    LEAD,
    PLACES,
    SUM,
    N,
    S,
    add_up,
    find,
    line_at,
    record_at,
    set_line,
    total_of,
)
from maillard.simulation.engines.direct_engines import estimate
from maillard.simulation.engines.random_numbers import uniform

__all__ = ["ENGINE"]

LOW, TOTAL, LEAST, DRAWN = range(3, 7)  # of x
HIGH, FLOOR, WIDTH, SCALE, ROUND, PULLS, WASTED, SPAN, TOP, BAD = range(10)  # of w's header
MEAN = 2  # of a record
FRESH = 1 << 20  # what to renew: ALL; or an arm's number plus 1, or 0, and the lead's own
WASTE = 0.4
SLACK = 1e-9


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """The first lead and bounds, when every arm has been pulled."""
    lead, best = 0, -np.inf
    for arm in range(arms):
        at = record_at(arm)
        mean = estimate(f, w[at + N], w[at + S])
        w[at + MEAN] = mean
        if mean > best:
            lead, best = arm, mean
    w[WIDTH], w[SPAN], w[BAD], w[ROUND], w[WASTED] = 0.0, 1.0, -1.0, 0.0, 0.0
    w[FLOOR], w[TOP], w[PULLS], w[HIGH], w[SCALE] = best, best, 0.0, 0.0, 0.0
    at = record_at(lead)
    x[LEAD], x[COUNT], x[SUM], x[LEAST], x[DRAWN] = lead, w[at + N], w[at + S], -np.inf, 0.0
    x[LOW] = x[TOTAL] = 0.0


def glance(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Whether one draw tells that the lead is chosen."""
    x[DRAWN] = uniform(rng) * x[TOTAL]
    return x[DRAWN] < x[LOW]


def note(f: Any, x: Any) -> bool:
    """Whether the lead's new mean leaves all as it is."""
    if f[3]:
        return estimate(f, x[COUNT], x[SUM]) >= x[LEAST]
    return x[SUM] >= x[LEAST] * x[COUNT]


def consider(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """The arm that the draw tells, or -1: draw again; or -2 where a weight is no number."""
    lead, u = int(x[LEAD]), x[DRAWN]
    mean = estimate(f, x[COUNT], x[SUM])
    arm, into, n, own = lead, u, x[COUNT], mean
    if u >= w[HIGH]:
        arm, into = find(w, arms, shift, u - w[HIGH])
        at = record_at(arm)
        n, own = w[at + N], w[at + MEAN]
    weight = np.exp(weigh(f, n, own, mean, t, t) - w[SCALE])
    if arm != lead:
        bound = w[(line_at(arms) + arm) & PLACES]
        if not weight <= bound * (1.0 + SLACK * (1.0 + abs(w[SCALE]))):
            return -2
        if bound == 0.0:
            into = np.inf  # rounding may lead past the last
    if into < weight:
        return arm
    w[WASTED] += 1.0
    return -1


def adapt(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Perhaps another lead, after an arm's numbers have changed; and what `renew` has to do then."""
    lead, other, new = int(x[LEAD]), -1, -1
    mean = estimate(f, x[COUNT], x[SUM])
    if arm >= 0 and arm != lead:
        at = record_at(arm)
        own = estimate(f, w[at + N], w[at + S])
        w[at + MEAN] = own
        other = arm
        if own > mean:
            new = arm
        else:
            w[TOP] = max(w[TOP], own)
    elif mean < w[TOP]:
        best = -np.inf
        for each in range(arms):
            own = w[record_at(each) + MEAN]
            if each != lead and own > best:
                best, new = own, each
        w[TOP] = best
        if not mean < best:
            new = -1
    if new >= 0:  # the lead's numbers go to memory, the new one's come from there
        at = record_at(lead)
        w[at + N], w[at + S], w[at + MEAN] = x[COUNT], x[SUM], mean
        w[TOP] = max(w[TOP], mean)
        at = record_at(new)
        x[LEAD], x[COUNT], x[SUM], mean = new, w[at + N], w[at + S], w[at + MEAN]
        other = lead
        set_line(w, arms, shift, new, 0.0)
    if mean < w[FLOOR]:  # wider next time, unless that was already dear
        if w[WASTED] < 0.5 * WASTE * arms + 2.0:
            w[WIDTH] *= 1.5
        return ALL
    if w[WASTED] > 4.0 + WASTE * arms:
        if mean < w[FLOOR] + 1.5 * w[WIDTH]:  # not the lead's rise: the band is too wide
            w[WIDTH] *= 0.6
        else:  # perhaps its weight grows with t, and is bounded for too long
            w[SPAN] = max(0.5 * w[SPAN], 1e-6)
        return ALL
    if t > w[ROUND]:
        w[SPAN] = min(2.0 * w[SPAN], 1.0)
        return ALL
    return other + 1 + (FRESH if new >= 0 or x[COUNT] > w[PULLS] else 0)


def renew(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """Bounds anew: of all arms, of one, of the lead. How many rounds they last at most; 0 where a weight is no number."""
    lead, mean = int(x[LEAD]), estimate(f, x[COUNT], x[SUM])
    line, first, last, item = line_at(arms), 0, arms, -3
    if what == ALL:
        if w[WIDTH] == 0.0:
            worst = mean
            for arm in range(arms):
                worst = min(worst, w[record_at(arm) + MEAN])
            w[WIDTH] = 0.1 * (mean - worst)
        w[FLOOR], w[ROUND], w[WASTED], w[SCALE] = mean - w[WIDTH], t + np.floor(w[SPAN] * t), 0.0, 0.0
    else:
        last = what & (FRESH - 1)
        first, item = max(last - 1, 0), -2 if what >= FRESH else 0
    if item < 0:
        w[PULLS] = np.floor(x[COUNT] * 1.0625) + 1.0
    while item < last - first:  # the lead's scale, upper and lower bound; then the arms'
        n, own, best, late, at = x[COUNT], mean, mean, float(t), 0
        if item == -2:
            late = w[ROUND]
        elif item == -1:
            n = w[PULLS]
        elif item >= 0:
            at = record_at(first + item)
            n, own, best, late = w[at + N], w[at + MEAN], w[FLOOR], w[ROUND]
        log = weigh(f, n, own, best, late, float(t)) - w[SCALE]
        bound = np.exp(log)
        if item == -3:
            w[SCALE] = log
        elif item == -2:
            w[HIGH] = bound
        elif item == -1:
            x[LOW] = bound
        elif first + item == lead:
            w[(line + lead) & PLACES] = 0.0
        else:
            w[(line + first + item) & PLACES] = bound
            if not bound < np.inf:
                w[BAD] = first + item
        item += 1
    if last > first:
        for block in range(first >> shift, ((last - 1) >> shift) + 1):
            add_up(w, arms, shift, block)
    x[TOTAL] = w[HIGH] + total_of(w, arms, shift)
    least = max(w[TOP], w[FLOOR])
    x[LEAST] = least + 1e-15 * abs(least)
    if w[BAD] >= 0.0 or not (x[LOW] <= w[HIGH] * (1.0 + SLACK) and w[HIGH] < np.inf):
        return 0
    return int(min(w[ROUND] - t, w[PULLS] - x[COUNT])) + 1


def weigh(f: Any, n: float, mean: float, best: float, late: float, t: float) -> float:
    """The log weight of an arm: in round `late` if it leads, else in round t."""
    if mean >= best:
        return call(f[1], f[0], n, float(late), 0.0, 0.0, 0.0)
    return call(f[2], f[0], n, mean, best, float(t), 0.0)


ENGINE = (begin, glance, note, consider, adapt, renew)
