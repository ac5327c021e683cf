"""The direct engines on a GPU: evaluate every arm in every round, for policies that declare no bounds."""

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
from maillard.simulation.engines.direct_engines import compared_mean, log_weight
from maillard.simulation.engines.random_numbers import uniform

MEAN = 2  # of a record
WINNER = 3  # of x


def begin(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """Keep the first arm's numbers in registers, as a leader's."""
    load_leader(x, w, 0)


def try_leader(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Return False: every choice evaluates all arms."""
    return False


def keeps_leader(f: Any, x: Any) -> bool:
    """Return True: there are no bounds."""
    return True


def update(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Return that there is nothing to rebuild."""
    return 0


def rebuild(f: Any, x: Any, w: Any, arms: int, shift: int, what: int, t: int) -> int:
    """Return that nothing expires."""
    return NO_EXPIRY


def compute_means(f: Any, x: Any, w: Any, arms: int) -> float:
    """Compute every arm's mean and return the best."""
    best = -np.inf
    save_leader(x, w)
    for arm in range(arms):
        at = record_at(arm)
        w[at + MEAN] = compared_mean(f, w[at + N], w[at + S])
        best = max(best, w[at + MEAN])
    return best


def choose_sampled(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """Choose an arm with probability proportional to exp(log weight)."""
    line, top, total = lengths_at(arms), -np.inf, 0.0
    best = compute_means(f, x, w, arms)
    for arm in range(arms):
        at = record_at(arm)
        log = log_weight(f, w[at + N], w[at + MEAN], best, t, t)
        if not log < np.inf:
            return -2
        w[(line + arm) & INDEX_MASK] = log
        top = max(top, log)
    for arm in range(arms):
        weight = np.exp(w[(line + arm) & INDEX_MASK] - top)
        w[(line + arm) & INDEX_MASK] = weight
        total += weight
    u, last = uniform(rng) * total, 0
    for arm in range(arms):
        weight = w[(line + arm) & INDEX_MASK]
        if weight > 0.0 and u >= 0.0:
            last = arm
        u -= weight
    return last


def begin_indexed(f: Any, x: Any, w: Any, arms: int, shift: int, t: int) -> None:
    """Copy the pulls and sums of all arms into two lines, which every round reads."""
    begin(f, x, w, arms, shift, t)
    for arm in range(arms):
        copy_tally(w, arms, arm)


def copy_tally(w: Any, arms: int, arm: int) -> None:
    """Copy an arm's pulls and sum from its record into the lines."""
    w[(lengths_at(arms) + arm) & INDEX_MASK] = w[record_at(arm) + N]
    w[(second_lengths_at(arms) + arm) & INDEX_MASK] = w[record_at(arm) + S]


def try_leader_indexed(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, score: float, rng: Any) -> bool:
    """Evaluate every index and return whether the leader's is the largest; break ties uniformly."""
    lead, line, second, best = int(x[LEADER]), lengths_at(arms), second_lengths_at(arms), np.nan
    if f[2]:
        best = x[SUM] / x[COUNT]
        for arm in range(arms):
            if arm != lead:
                best = max(best, w[(second + arm) & INDEX_MASK] / w[(line + arm) & INDEX_MASK])
    winner, top, ties = lead, -np.inf, 0.0
    for arm in range(arms):
        n, s = w[(line + arm) & INDEX_MASK], w[(second + arm) & INDEX_MASK]
        if arm == lead:
            n, s = x[COUNT], x[SUM]
        index = call(f[1], f[0], n, s / n, best, float(t), float(arms))
        if index > top or ties == 0.0:
            winner, top, ties = arm, index, 1.0
        elif index == top:
            ties += 1.0
            if uniform(rng) * ties < 1.0:
                winner = arm
        elif np.isnan(index):
            top = np.inf
            winner = -2
    x[WINNER] = winner if top == top else -2.0  # noqa: PLR0124  # nan is not
    return winner == lead and top == top  # noqa: PLR0124


def choose_indexed(f: Any, x: Any, w: Any, arms: int, shift: int, t: int, rng: Any) -> int:
    """Return the arm that `try_leader_indexed` found."""
    return int(x[WINNER])


def update_indexed(f: Any, x: Any, w: Any, arms: int, shift: int, arm: int, t: int) -> int:
    """Make the arm with the most pulls the leader."""
    lead = int(x[LEADER])
    if arm >= 0 and arm != lead:
        copy_tally(w, arms, arm)
        if w[record_at(arm) + N] > x[COUNT]:
            save_leader(x, w)
            copy_tally(w, arms, lead)
            load_leader(x, w, arm)
    return 0


SAMPLED = (begin, try_leader, keeps_leader, choose_sampled, update, rebuild)
INDEXED = (begin_indexed, try_leader_indexed, keeps_leader, choose_indexed, update_indexed, rebuild)
