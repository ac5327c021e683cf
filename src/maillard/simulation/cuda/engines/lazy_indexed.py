"""The lazy engine for indexed policies on a GPU, for indices that do not use the best mean.

As in `maillard.simulation.engines.lazy_indexed`, every arm but the leader, the arm with the most pulls, has a
bound on its index and a last round for it. If the leader's exact index is above all bounds, it is chosen.
Otherwise the arm with the largest bound is evaluated, then those whose bounds reach the largest index so far.
The threads sweep over all bounds in step and evaluate in step what each has found; that costs less than a
separate search by each thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.cuda.engines.trial_memory import (
    COUNT,
    INDEX_MASK,
    LEADER,
    NO_EXPIRY,
    SUM,
    N,
    S,
    lengths_at,
    load_leader,
    record_at,
    save_leader,
    second_lengths_at,
)
from maillard.simulation.cuda.warps import lowest_place
from maillard.simulation.engines.lazy_indexed import rounds_ahead
from maillard.simulation.engines.random_numbers import uniform

# Positions in x: the largest bound, its arm, and the leader's index at the last check.
MAX_BOUND, MAX_BOUND_ARM, LEADER_INDEX = range(3, 6)
# Positions in the header of w: an arm with an invalid index, the last winner's index, the first arm that
# needs a bound, and the next round in which a bound expires.
INVALID, WINNING_INDEX, FIRST_EXPIRED, NEXT_EXPIRY = range(4)
# Of a record: how fast the index rises with t, and the next arm that needs a bound.
ROUND_SLOPE, NEXT_EXPIRED = 2, 3
GAP_FRACTION = 0.125  # of the gap to the largest index: more causes evaluations, less expires too soon
NO_ARM, NOT_EXPIRED = -1.0, -2.0
NEVER, LOWEST = 1e15, -1.7976931348623157e308
ARMS_PER_SWEEP = 60  # one bit per arm to evaluate
# The line has the bounds; the second line the rounds in which they end.


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """Begin without bounds: every arm but the leader needs one."""
    w[INVALID], w[WINNING_INDEX], w[FIRST_EXPIRED], w[NEXT_EXPIRY] = NO_ARM, -np.inf, NO_ARM, NEVER
    for arm in range(arms):
        w[(lengths_at(arms) + arm) & INDEX_MASK] = -np.inf
        w[(second_lengths_at(arms) + arm) & INDEX_MASK] = NEVER
        w[record_at(arm) + ROUND_SLOPE], w[record_at(arm) + NEXT_EXPIRED] = np.nan, NOT_EXPIRED
        if arm > 0:
            mark_expired(w, arm)
    load_leader(x, w, 0)
    x[MAX_BOUND] = np.inf


def mark_expired(w: Any, arm: int) -> None:
    """Add an arm to the list of those that need a bound; until then it keeps the old one."""
    at = record_at(arm)
    if w[at + NEXT_EXPIRED] == NOT_EXPIRED:
        w[at + NEXT_EXPIRED] = w[FIRST_EXPIRED]
        w[FIRST_EXPIRED] = arm


def try_leader(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Return whether the leader's index is above all bounds."""
    x[LEADER_INDEX] = index_of(f, x[COUNT], x[SUM], t, arms)
    return x[LEADER_INDEX] > x[MAX_BOUND]


def keeps_leader(f: Any, x: Any) -> bool:
    """Return True: the leader's numbers enter no bound."""
    return True


def choose_arm(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """Return an arm with the largest index, breaking ties uniformly; or -2 if an index is invalid.

    Rewards of 0 and 1 make hundreds of arms with equal pulls and sums, hence equal indices: only one is
    evaluated.
    """
    line, lead, first = lengths_at(arms), int(x[LEADER]), int(x[MAX_BOUND_ARM])
    n, s, top, winner, ties = x[COUNT], x[SUM], x[LEADER_INDEX], lead, 1.0
    for since in range(-ARMS_PER_SWEEP, arms, ARMS_PER_SWEEP):
        start, bits = since, 0
        if since >= 0:
            level = max(top, LOWEST)
            for i in range(min(ARMS_PER_SWEEP, arms - since)):
                if w[(line + since + i) & INDEX_MASK] >= level:
                    bits |= 1 << i
            if since <= first < since + ARMS_PER_SWEEP:
                bits &= ~(1 << (first - since))
        elif x[MAX_BOUND] > -np.inf:  # first the arm with the largest bound
            start, bits = first, 1
        while bits != 0:
            arm = start + lowest_place(bits)
            bits &= bits - 1
            at = record_at(arm)
            index = top
            if not (w[at + N] == n and w[at + S] == s):
                index = index_of(f, w[at + N], w[at + S], t, arms)
            if index > top:
                if winner != lead:
                    mark_expired(w, winner)
                n, s, top, winner, ties = w[at + N], w[at + S], index, arm, 1.0
            elif index == top:
                ties += 1.0
                if uniform(rng) * ties < 1.0:
                    winner = arm
            elif index < top:
                mark_expired(w, arm)
            else:
                return -2
    w[WINNING_INDEX] = top
    return winner if top <= np.inf else -2


def update(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Change the leader if necessary, and list the arms whose bounds have expired."""
    lead, second = int(x[LEADER]), second_lengths_at(arms)
    if arm >= 0 and arm != lead:
        mark_expired(w, arm)
        if w[record_at(arm) + N] > x[COUNT]:
            save_leader(x, w)
            load_leader(x, w, arm)
            mark_expired(w, lead)
    if w[NEXT_EXPIRY] < t:
        soonest = NEVER
        for each in range(arms):
            end = w[(second + each) & INDEX_MASK]
            if end < t:
                mark_expired(w, each)
            else:
                soonest = min(soonest, end)
        w[NEXT_EXPIRY] = soonest
    return 0


def rebuild(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """Compute a bound for every listed arm that uses up a fraction of its gap to the largest index."""
    line, second, soonest = lengths_at(arms), second_lengths_at(arms), w[NEXT_EXPIRY]
    while w[FIRST_EXPIRED] >= 0.0:
        arm = int(w[FIRST_EXPIRED])
        at = record_at(arm)
        w[FIRST_EXPIRED], w[at + NEXT_EXPIRED] = w[at + NEXT_EXPIRED], NOT_EXPIRED
        bound, end = -np.inf, NEVER
        if arm != x[LEADER]:
            bound, end, w[at + ROUND_SLOPE] = bound_index(
                f, w[at + N], w[at + S], w[at + ROUND_SLOPE], w[WINNING_INDEX], t, arms
            )
            if not bound <= np.inf:
                w[INVALID] = arm
        w[(line + arm) & INDEX_MASK], w[(second + arm) & INDEX_MASK] = bound, end
        soonest = min(soonest, end)
    w[NEXT_EXPIRY] = soonest
    most, place = -np.inf, 0
    for each in range(arms):
        bound = w[(line + each) & INDEX_MASK]
        if bound > most:
            most, place = bound, each
    x[MAX_BOUND], x[MAX_BOUND_ARM] = most, place
    return 0 if w[INVALID] >= 0.0 else int(min(soonest - t, float(NO_EXPIRY))) + 1


def bound_index(
    f: Any, n: float, s: float, rise: float, top: float, t: int, arms: int
) -> tuple[float, float, float]:
    """Return a bound on an arm's index, its last round, and the slope of the index in t."""
    ahead, index, end, step = float(t), 0.0, 0.0, 0
    while step < 2:  # now and at the end of the window; one call site keeps the kernel small
        index, end = end, index_of(f, n, s, t + ahead * step, arms)
        if step == 0:
            if f[3] == 0:
                index, ahead, step = end, NEVER, 1
            else:
                ahead = rounds_ahead(rise, max(GAP_FRACTION * (top - end), 0.0), t)
        step += 1
    # An invalid index now is an error; one that will be invalid is checked again later.
    if not (index <= np.inf and end <= np.inf):
        return index, float(t), np.nan
    # A falling index keeps falling.
    return max(index, end), NEVER if end < index else t + ahead, (end - index) / ahead


def index_of(f: Any, n: float, s: float, t: float, arms: int) -> float:
    """Return the exact index of an arm."""
    return call(f[1], f[0], n, s / n, np.nan, float(t), float(arms))


ENGINE = (begin, try_leader, keeps_leader, choose_arm, update, rebuild)
