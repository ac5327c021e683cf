"""The lazy engine for the indexed shape, as `maillard.simulation.engines.indexed` has it, for indices that do not use the best mean.

Every arm but the lead, the one with the most pulls, has a bound on its index and a round until which it holds. If the lead's exact index
is above all bounds, it is pulled; otherwise the others are evaluated, the largest bound first, until the largest exact index is
above all bounds that are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.cuda.engines.memory import (
    COUNT,
    LEAD,
    LONG,
    PLACES,
    SUM,
    N,
    S,
    find_max,
    line_at,
    max_of,
    record_at,
    second_at,
    set_two,
)
from maillard.simulation.engines.draws import uniform

__all__ = ["ENGINE"]

BOUND = 3  # of x: the largest bound
# Of w's header: an arm without an index, the last winner's index, the first arm without a bound.
BAD, LAST, CHAIN = range(3)
RISE, LINK = 2, 3  # of a record: how fast the index rises with t, and the next arm without a bound
SHARE = 0.25  # of its distance to the last winner's index that a bound may take: more misleads, less ends too soon
NOBODY = -1.0
FOREVER = 1e15
# The line has the bounds; the second line minus the rounds in which they end, so that the largest ends next.


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """No bounds yet: every arm but the lead is in the chain."""
    w[BAD], w[LAST], w[CHAIN] = NOBODY, -np.inf, NOBODY
    for arm in range(arms):
        w[(line_at(arms) + arm) & PLACES], w[(second_at(arms) + arm) & PLACES] = -np.inf, -np.inf
        w[record_at(arm) + RISE] = np.nan
        if arm > 0:
            free(w, arm)
    for block in range(((arms - 1) >> shift) + 1):
        w[(line_at(arms) + arms + block) & PLACES] = -np.inf
        w[(second_at(arms) + arms + block) & PLACES] = -np.inf
    at = record_at(0)
    x[LEAD], x[COUNT], x[SUM], x[BOUND] = 0.0, w[at + N], w[at + S], np.inf


def free(w: Any, arm: int) -> None:
    """Put an arm into the chain of those without a bound."""
    w[record_at(arm) + LINK] = w[CHAIN]
    w[CHAIN] = arm


def lose(w: Any, arms: int, shift: int, arm: int) -> None:
    """An arm loses its bound."""
    set_two(w, arms, shift, arm, -np.inf, -np.inf)
    free(w, arm)


def glance(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Whether the lead's index is above all bounds."""
    return index_of(f, x[COUNT], x[SUM], t, arms) > x[BOUND]


def note(f: Any, x: Any) -> bool:
    """The lead's own numbers bound nothing."""
    return True


def consider(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """An arm with the largest index, ties alike; or -2 where an index is no number.

    Arms with the same pulls and sum, of which rewards 0 and 1 make hundreds, have the same index: one of them is evaluated.
    """
    lead, line, others = int(x[LEAD]), line_at(arms), 0.0
    n, s, top = x[COUNT], x[SUM], index_of(f, x[COUNT], x[SUM], t, arms)
    winner, leading = lead, top
    while True:
        arm, most, like, twin = -1, -np.inf, 0.0, lead
        for block in range(((arms - 1) >> shift) + 1):
            if w[(line + arms + block) & PLACES] >= top:
                for each in range(block << shift, min((block + 1) << shift, arms)):
                    bound, at = w[(line + each) & PLACES], record_at(each)
                    if bound >= top and bound > -np.inf:
                        if w[at + N] == n and w[at + S] == s:
                            like += 1.0
                            if uniform(rng) * like < 1.0:
                                twin = each
                        elif bound > most:
                            arm, most = each, bound
        if arm < 0:
            break
        at = record_at(arm)
        index = index_of(f, w[at + N], w[at + S], t, arms)
        if not index <= np.inf:
            return -2
        if index > top:
            n, s, top, others = w[at + N], w[at + S], index, 0.0
        else:
            lose(w, arms, shift, arm)
            if index == top:  # another index that happens to be as large
                others += 1.0
                if uniform(rng) * others < 1.0:
                    winner = arm
    w[LAST] = top
    if not top <= np.inf:
        return -2
    if leading == top:
        others += 1.0
        if uniform(rng) * others < 1.0:
            winner = lead
    return twin if uniform(rng) * (like + others) < like else winner


def adapt(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Perhaps another lead; and the arms whose bounds have ended lose them."""
    lead, second = int(x[LEAD]), second_at(arms)
    if arm >= 0 and arm != lead:
        at = record_at(arm)
        if w[(second + arm) & PLACES] > -np.inf:  # it was not considered: a share that is mixed in chose it
            lose(w, arms, shift, arm)
        if w[at + N] > x[COUNT]:  # it is in the chain, where renew passes over it
            old = record_at(lead)
            w[old + N], w[old + S] = x[COUNT], x[SUM]
            x[LEAD], x[COUNT], x[SUM] = arm, w[at + N], w[at + S]
            free(w, lead)
    while -max_of(w, arms, shift, second) < t:
        lose(w, arms, shift, find_max(w, arms, shift, second)[0])
    return 0


def renew(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """A bound for every arm that has none, for as many rounds as take it a share of the way to the top."""
    lead, line, second = x[LEAD], line_at(arms), second_at(arms)
    while w[CHAIN] >= 0.0:
        arm = int(w[CHAIN])
        at = record_at(arm)
        w[CHAIN] = w[at + LINK]
        if arm != lead:
            bound, ends, w[at + RISE] = window(f, w[at + N], w[at + S], w[at + RISE], w[LAST], t, arms)
            set_two(w, arms, shift, arm, bound, -ends)
            if not bound <= np.inf:
                w[BAD] = arm
    x[BOUND] = max_of(w, arms, shift, line)
    return 0 if w[BAD] >= 0.0 else int(min(-max_of(w, arms, shift, second) - t, float(LONG))) + 1


def window(
    f: Any, n: float, s: float, rise: float, top: float, t: int, arms: int
) -> tuple[float, float, float]:
    """A bound on an arm's index, until when it holds, and how fast the index rises: as far as takes it a share of the way to the top."""
    ahead, index, end, step = float(t), 0.0, 0.0, 0
    while step < 2:  # now and at the end of the window, in one place of the code
        index, end = end, index_of(f, n, s, t + ahead * step, arms)
        if step == 0:
            room = max(SHARE * (top - end), 0.0)
            if f[3] == 0:
                index, ahead, step = end, FOREVER, 1
            elif rise > 0.0:
                ahead = min(
                    max(np.floor(room / rise), 1.0 + np.floor(t / 32.0) if room == 0.0 else 8.0), ahead
                )
            elif rise != 0.0:
                ahead = 1.0 + np.floor(t / 32.0)
        step += 1
    # An index that is no number now is an error; one that will be none is looked at again.
    if not (index <= np.inf and end <= np.inf):
        return index, float(t), np.nan
    # Once falling, always falling.
    return max(index, end), FOREVER if end < index else t + ahead, (end - index) / ahead


def index_of(f: Any, n: float, s: float, t: float, arms: int) -> float:
    """An arm's exact index."""
    return call(f[1], f[0], n, s / n, np.nan, float(t), float(arms))


ENGINE = (begin, glance, note, consider, adapt, renew)
