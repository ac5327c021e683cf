"""The lazy engine for perturbed policies (Thompson sampling): it samples only scores above a threshold.

The algorithm fixes a threshold. The probability that a rival's score exceeds it changes only when the rival
is pulled. In each round, sample the leader's score and the set of rivals above the threshold. A Poisson
process of rate 1 gives that set: on a line, each rival owns an interval of length -ln P(score <= threshold),
its hazard, and the rival is above the threshold if a point falls into its interval. If some rivals are above,
only they and the leader, if it is above, can win: sample their scores from the truncated tails and compare.
If none is above and the leader is, the leader wins: two random numbers and a comparison. If no score is
above, sample every score from its distribution below the threshold.

When the leader is well known, the threshold lies where the leader's score nearly always exceeds it and few
rivals do. While many arms may still be best, it lies higher. Every leader and threshold give the same
distribution of the choice; the engine resets them when the work that another threshold might save adds up to
the cost of a reset.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.compiling import call, rare
from maillard.simulation.engines.arm_trees import fill_sum, find_sum, leaves_for, set_sum
from maillard.simulation.engines.score_sampling import (
    are_valid_parameters,
    hazard,
    lowest_z,
    point_at,
    sample_above,
    sample_below,
    sample_score,
)

# Rows of the table: pulls, sums, the two parameters of the scores, a sum tree of the hazards; and STATE: the
# threshold, its distance from the middle of the leader's score in deviations, the work since the last reset,
# an arm whose score parameters are invalid (or -1), and the leader.
N, S, A, B, HAZARD_TREE, STATE = range(6)
THRESHOLD, THRESHOLD_Z, WORK, INVALID, LEADER = range(5)


def begin(arms: int) -> Any:
    """Return the state before the first reward: no leader."""
    w = np.zeros((6, 2 * leaves_for(arms)))
    w[STATE, INVALID] = w[STATE, LEADER] = -1.0
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """Choose the arm with the largest score. f: location, spread, code of the score distribution."""
    half = w.shape[1] // 2
    if w[STATE, LEADER] < 0.0 or w[STATE, WORK] > 6.0 * arms:
        reset_threshold(f, w, arms)
    if w[STATE, INVALID] >= 0.0:
        return -1 - int(w[STATE, INVALID])
    lead, threshold = int(w[STATE, LEADER]), w[STATE, THRESHOLD]
    top, winner = sample_score(f[3], w[A, lead], w[B, lead], rng), lead
    if top <= threshold:
        winner = -1
    position = rng.standard_exponential()
    while position < w[HAZARD_TREE, 1]:
        w[STATE, WORK] += 1.0
        leaf, into = find_sum(w, HAZARD_TREE, half, position)
        arm = leaf - half
        if w[HAZARD_TREE, leaf] > 0.0:  # rounding may lead past the last arm
            score = sample_above(f[3], w[A, arm], w[B, arm], threshold, w[HAZARD_TREE, leaf], rng)
            if score > top or winner < 0:
                top, winner = score, arm
        # One point is enough: continue after the interval.
        position = max(position, position - into + w[HAZARD_TREE, leaf]) + rng.standard_exponential()
    return winner if winner >= 0 else choose_all_below(f, w, arms, top, rng)


@rare
def choose_all_below(f: Any, w: Any, arms: int, top: float, rng: Any) -> int:
    """Choose the arm with the largest score when no score is above the threshold; `top` is the leader's."""
    lead = winner = int(w[STATE, LEADER])
    w[STATE, WORK] += 0.5 * arms
    for arm in range(arms):
        if arm != lead:
            score = sample_below(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD], rng)
            if score > top:
                top, winner = score, arm
    return winner


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Apply a reward."""
    w[N, arm] += 1.0
    w[S, arm] += reward
    if w[STATE, LEADER] < 0.0:
        return
    set_score_parameters(f, w, arm)
    if arm != int(w[STATE, LEADER]):
        above = hazard(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD])
        set_sum(w, HAZARD_TREE, w.shape[1] // 2 + arm, above)


def set_score_parameters(f: Any, w: Any, arm: int) -> None:
    """Compute the parameters of an arm's score."""
    n, s = w[N, arm], w[S, arm]
    w[A, arm] = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    w[B, arm] = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    if not are_valid_parameters(f[3], w[A, arm], w[B, arm]):
        w[STATE, INVALID] = arm


@rare
def reset_threshold(f: Any, w: Any, arms: int) -> None:
    """Choose the leader, whose score is most reliably high, and a threshold near its scores."""
    first, code, most = w[STATE, LEADER] < 0.0, f[3], -np.inf
    for arm in range(arms):
        if first:
            set_score_parameters(f, w, arm)
        low = point_at(code, w[A, arm], w[B, arm], lowest_z(code))
        if low > most:
            w[STATE, LEADER], most = arm, low
    lead = int(w[STATE, LEADER])
    # While many arms may be best, a threshold with a few rivals above it is cheaper than one with none.
    few = 0.6 * np.log(arms)
    w[STATE, WORK], w[STATE, THRESHOLD_Z] = 0.0, lowest_z(code) if first else w[STATE, THRESHOLD_Z]
    for _ in range(4):
        w[STATE, THRESHOLD] = point_at(code, w[A, lead], w[B, lead], w[STATE, THRESHOLD_Z])
        fill_hazards(f, w, arms)
        above = w[HAZARD_TREE, 1]
        if not (above > few + 3.0 and w[STATE, THRESHOLD_Z] < 6.0):
            if above < few:
                w[STATE, THRESHOLD_Z] = max(w[STATE, THRESHOLD_Z] - 0.5, lowest_z(code))
            return
        w[STATE, THRESHOLD_Z] += 1.0


def fill_hazards(f: Any, w: Any, arms: int) -> None:
    """Compute every rival's hazard for the threshold."""
    half, lead = w.shape[1] // 2, int(w[STATE, LEADER])
    for arm in range(arms):
        above = 0.0 if arm == lead else hazard(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD])
        w[HAZARD_TREE, half + arm] = above
    fill_sum(w, HAZARD_TREE, half)


ENGINE = (begin, choose, update)
