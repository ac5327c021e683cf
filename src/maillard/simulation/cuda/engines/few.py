"""The lazy engine for the indexed shape where arms are few: bounds as `indexed` has them, in a line without blocks.

To read a dozen bounds costs less than to keep the maxima of their blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.cuda.engines.indexed import BOUND, FOREVER, glance, index_of, note, window
from maillard.simulation.cuda.engines.memory import COUNT, LEAD, LONG, PLACES, SUM, N, S, line_at, record_at
from maillard.simulation.engines.draws import uniform

__all__ = ["ENGINE"]

BAD, LAST = range(2)  # of w's header: an arm without an index, and the last winner's index
# Of a record: a bound holds up to round DUE, which is a half; a whole number says that it is that round's index.
DUE, RISE = 2, 3


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """No bounds yet."""
    w[BAD], w[LAST] = -1.0, -np.inf
    for arm in range(arms):
        w[record_at(arm) + DUE], w[record_at(arm) + RISE] = -1.0, np.nan
    at = record_at(0)
    x[LEAD], x[COUNT], x[SUM], x[BOUND] = 0.0, w[at + N], w[at + S], np.inf


def consider(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """An arm with the largest index, ties alike; or -2 where an index is no number."""
    lead, line, ties = int(x[LEAD]), line_at(arms), 1.0
    winner, top = lead, index_of(f, x[COUNT], x[SUM], t, arms)
    while True:
        arm, most = -1, -np.inf
        for each in range(arms):
            due, bound = w[record_at(each) + DUE], w[(line + each) & PLACES]
            if due < t:
                bound = np.inf
            if each != lead and due != t and bound >= top and (bound > most or arm < 0):
                arm, most = each, bound
        if arm < 0:
            break
        at = record_at(arm)
        index = index_of(f, w[at + N], w[at + S], t, arms)
        w[at + DUE], w[(line + arm) & PLACES] = t, index
        if not index <= np.inf:
            return -2
        if index > top:
            winner, top, ties = arm, index, 1.0
        elif index == top:
            ties += 1.0
            if uniform(rng) * ties < 1.0:
                winner = arm
    w[LAST] = top
    return winner if top <= np.inf else -2


def adapt(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Perhaps another lead; an arm whose numbers have changed has no bound."""
    lead = int(x[LEAD])
    if arm >= 0 and arm != lead:
        at, old = record_at(arm), record_at(lead)
        w[at + DUE] = -1.0
        if w[at + N] > x[COUNT]:
            w[old + N], w[old + S], w[old + DUE] = x[COUNT], x[SUM], -1.0
            x[LEAD], x[COUNT], x[SUM] = arm, w[at + N], w[at + S]
    return 0


def renew(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """A bound for every arm that has none."""
    lead, line, arm = int(x[LEAD]), line_at(arms), 0
    while True:
        while arm < arms and (arm == lead or w[record_at(arm) + DUE] >= t):
            arm += 1
        if arm >= arms:
            break
        at = record_at(arm)
        bound, ends, w[at + RISE] = window(f, w[at + N], w[at + S], w[at + RISE], w[LAST], t, arms)
        w[(line + arm) & PLACES], w[at + DUE] = bound, ends + 0.5
        if not bound <= np.inf:
            w[BAD] = arm
    most, first = -np.inf, FOREVER
    for each in range(arms):
        if each != lead:
            most = max(most, w[(line + each) & PLACES])
            first = min(first, w[record_at(each) + DUE])
    x[BOUND] = most
    return 0 if w[BAD] >= 0.0 else int(min(first - t, float(LONG))) + 1


ENGINE = (begin, glance, note, consider, adapt, renew)
