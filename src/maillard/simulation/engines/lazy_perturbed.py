"""The lazy engine for the perturbed shape: exact, and a round in which the leader wins costs two scores and a comparison.

Fix a threshold. A rival's score exceeds it with a chance that changes only when the rival is pulled. In each round draw the lead's score,
and find the rivals above the threshold. Which ones are, a Poisson process tells: give each rival a stretch of length
-ln P(not above) on a line; a rival is above if a point falls into its stretch. If there are any, only they matter, and the lead if it
is above: draw their scores given that they are, and compare. If there are none and the lead is above, it has won. If nobody is
above, draw every score given that it is not.

With a lead that is well known, the threshold lies where its score nearly always exceeds it and hardly any rival does. While many
arms may still be best, it lies higher, where a few do. Any lead and any threshold give the same law; they are
chosen anew when work that another choice might save has added up to what choosing costs.
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

__all__ = ["ENGINE"]

# Rows of the table: pulls, sums, parameters of scores, stretches; and in STATE: the threshold, how many deviations it is from the middle of the lead's law, work since it was set, an arm without a score, the lead.
N, S, A, B, HAZARD_TREE, STATE = range(6)
THRESHOLD, THRESHOLD_Z, WORK, INVALID, LEADER = range(5)


def begin(arms: int) -> Any:
    """Nothing observed, no lead."""
    w = np.zeros((6, 2 * leaves_for(arms)))
    w[STATE, INVALID] = w[STATE, LEADER] = -1.0
    return w


def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
    """The arm with the largest score. f: location, spread, the family's code."""
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
        if w[HAZARD_TREE, leaf] > 0.0:  # rounding may lead past the last
            score = sample_above(f[3], w[A, arm], w[B, arm], threshold, w[HAZARD_TREE, leaf], rng)
            if score > top or winner < 0:
                top, winner = score, arm
        # One point is enough: go on from the end of the stretch.
        position = max(position, position - into + w[HAZARD_TREE, leaf]) + rng.standard_exponential()
    return winner if winner >= 0 else choose_all_below(f, w, arms, top, rng)


@rare
def choose_all_below(f: Any, w: Any, arms: int, top: float, rng: Any) -> int:
    """The arm with the largest score where nobody's is above the threshold, and the lead's is this."""
    lead = winner = int(w[STATE, LEADER])
    w[STATE, WORK] += 0.5 * arms
    for arm in range(arms):
        if arm != lead:
            score = sample_below(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD], rng)
            if score > top:
                top, winner = score, arm
    return winner


def update(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
    """Take in a reward."""
    w[N, arm] += 1.0
    w[S, arm] += reward
    if w[STATE, LEADER] < 0.0:
        return
    set_score_parameters(f, w, arm)
    if arm != int(w[STATE, LEADER]):
        above = hazard(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD])
        set_sum(w, HAZARD_TREE, w.shape[1] // 2 + arm, above)


def set_score_parameters(f: Any, w: Any, arm: int) -> None:
    """The parameters of an arm's score."""
    n, s = w[N, arm], w[S, arm]
    w[A, arm] = call(f[1], f[0], n, s, 0.0, 0.0, 0.0)
    w[B, arm] = call(f[2], f[0], n, s, 0.0, 0.0, 0.0)
    if not are_valid_parameters(f[3], w[A, arm], w[B, arm]):
        w[STATE, INVALID] = arm


@rare
def reset_threshold(f: Any, w: Any, arms: int) -> None:
    """The lead is the arm whose score is most reliably high; the threshold is near it, every rival's chance to exceed that."""
    first, code, most = w[STATE, LEADER] < 0.0, f[3], -np.inf
    for arm in range(arms):
        if first:
            set_score_parameters(f, w, arm)
        low = point_at(code, w[A, arm], w[B, arm], lowest_z(code))
        if low > most:
            w[STATE, LEADER], most = arm, low
    lead = int(w[STATE, LEADER])
    # Where many arms may be best: fewer above, and nobody is above so often that drawing all of them costs more.
    few = 0.6 * np.log(arms)
    w[STATE, WORK], w[STATE, THRESHOLD_Z] = 0.0, lowest_z(code) if first else w[STATE, THRESHOLD_Z]
    for _ in range(4):
        w[STATE, THRESHOLD] = point_at(code, w[A, lead], w[B, lead], w[STATE, THRESHOLD_Z])
        fill_hazards(f, w, arms)
        above = w[HAZARD_TREE, 1]
        if above > few + 3.0 and w[STATE, THRESHOLD_Z] < 6.0:
            w[STATE, THRESHOLD_Z] += 1.0
        elif above < few and w[STATE, THRESHOLD_Z] > lowest_z(code):
            w[STATE, THRESHOLD_Z] = max(w[STATE, THRESHOLD_Z] - 0.5, lowest_z(code))
            return
        else:
            return


def fill_hazards(f: Any, w: Any, arms: int) -> None:
    """Every rival's stretch for the threshold."""
    half, lead = w.shape[1] // 2, int(w[STATE, LEADER])
    for arm in range(arms):
        above = 0.0
        if arm != lead:
            above = hazard(f[3], w[A, arm], w[B, arm], w[STATE, THRESHOLD])
        w[HAZARD_TREE, half + arm] = above
    fill_sum(w, HAZARD_TREE, half)


ENGINE = (begin, choose, update)
