"""The direct engines: the obvious loop over all arms, in every round, for formulas that declare nothing a lazy engine could use."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.cuda.engines.memory import COUNT, LEAD, PLACES, SUM, N, S, line_at, record_at
from maillard.simulation.engines.direct import estimate
from maillard.simulation.engines.draws import uniform

__all__ = ["INDEXED", "SAMPLED"]

MEAN = 2  # of a record
LONG = 1 << 30


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """The first arm's numbers are in registers, as a lead's are."""
    x[LEAD], x[COUNT], x[SUM] = 0.0, w[record_at(0) + N], w[record_at(0) + S]


def glance(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """No arm is chosen at once."""
    return False


def note(f: Any, x: Any) -> bool:
    """Nothing to do."""
    return True


def adapt(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Nothing to renew."""
    return 0


def renew(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """It lasts."""
    return LONG


def find_means(f: Any, x: Any, w: Any, arms: int, sampled: bool) -> float:
    """Every arm's mean into its record; the best."""
    best = -np.inf
    w[record_at(0) + N], w[record_at(0) + S] = x[COUNT], x[SUM]
    for arm in range(arms):
        at = record_at(arm)
        n, s = w[at + N], w[at + S]
        w[at + MEAN] = estimate(f, n, s) if sampled else s / n
        best = max(best, w[at + MEAN])
    return best


def consider_sampled(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """An arm with probability proportional to exp(log weight)."""
    line, top, total = line_at(arms), -np.inf, 0.0
    best = find_means(f, x, w, arms, True)
    for arm in range(arms):
        at = record_at(arm)
        if w[at + MEAN] == best:
            log = call(f[1], f[0], w[at + N], float(t), 0.0, 0.0, 0.0)
        else:
            log = call(f[2], f[0], w[at + N], w[at + MEAN], best, float(t), 0.0)
        if not log < np.inf:
            return -2
        w[(line + arm) & PLACES] = log
        top = max(top, log)
    for arm in range(arms):
        weight = np.exp(w[(line + arm) & PLACES] - top)
        w[(line + arm) & PLACES] = weight
        total += weight
    u, last = uniform(rng) * total, 0
    for arm in range(arms):
        weight = w[(line + arm) & PLACES]
        if weight > 0.0 and u >= 0.0:
            last = arm
        u -= weight
    return last


def consider_indexed(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """An arm with the largest index, ties alike."""
    winner, top, ties = 0, -np.inf, 0.0
    best = find_means(f, x, w, arms, False)
    for arm in range(arms):
        at = record_at(arm)
        index = call(f[1], f[0], w[at + N], w[at + MEAN], best, float(t), float(arms))
        if np.isnan(index):
            return -2
        if index > top or ties == 0.0:
            winner, top, ties = arm, index, 1.0
        elif index == top:
            ties += 1.0
            if uniform(rng) * ties < 1.0:
                winner = arm
    return winner


SAMPLED = (begin, glance, note, consider_sampled, adapt, renew)
INDEXED = (begin, glance, note, consider_indexed, adapt, renew)
