"""How each type of linear policy chooses an arm, given mu and s2 of all arms.

A function `choose(f, g, w, arms, t, rng, x, inverse, growth)` returns an arm, or -1 - arm if a formula
returns an invalid number. `f` has the address of the policy's parameters, then those of its formulas; `g` its
numbers and `w` the table of scores (see `ridge_models`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.policies.numerics.linear_scores import TIE
from maillard.simulation.compiling import call, call_for_arms, rare, reassociating
from maillard.simulation.engines.ridge_models import (
    BOUND,
    COST_UNIT,
    GAP,
    INDEX_TOLERANCE,
    MU,
    S2,
    SCORE,
    TOLERANCE,
    dot,
)


def choose_sampled(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose an arm with probability proportional to exp(log weight)."""
    compute_gaps(g, w, arms)
    gap, s2, out = w[GAP].ctypes.data, w[S2].ctypes.data, w[SCORE].ctypes.data
    call_for_arms(f[2], f[0], gap, s2, s2, float(t), arms, out)
    valid = 0
    for arm in range(arms):
        if w[GAP, arm] == 0.0:
            w[SCORE, arm] = call(f[1], f[0], w[S2, arm], float(t), 0.0, 0.0, 0.0)
    for arm in range(arms):
        valid += w[SCORE, arm] < np.inf
    if valid < arms:
        return first_invalid(w, arms)
    return sample_by_log_weight(w, arms, largest(w, SCORE, arms), rng)


@rare
def first_invalid(w: Any, arms: int) -> int:
    """Return -1 - arm for the first arm whose score is not a number below infinity."""
    for arm in range(arms):
        if not w[SCORE, arm] < np.inf:
            return -1 - arm
    return -1


def choose_softmax(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose an arm with probability proportional to exp(log weight), which depends on the gap only."""
    best = largest(w, MU, arms)
    for arm in range(arms):
        w[SCORE, arm] = call(f[1], f[0], best - w[MU, arm], 0.0, 0.0, 0.0, 0.0)
        if not w[SCORE, arm] < np.inf:
            return -1 - arm
    return sample_by_log_weight(w, arms, largest(w, SCORE, arms), rng)


def choose_indexed(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose an arm with the largest index."""
    compute_gaps(g, w, arms)
    mu, s2, gap, out = w[MU].ctypes.data, w[S2].ctypes.data, w[GAP].ctypes.data, w[SCORE].ctypes.data
    call_for_arms(f[1], f[0], mu, s2, gap, float(t), arms, out)
    for arm in range(arms):
        if np.isnan(w[SCORE, arm]):
            return -1 - arm
    return choose_largest(w, SCORE, arms, g[INDEX_TOLERANCE], rng)


def choose_greedy(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose an arm with the largest estimate."""
    return choose_largest(w, MU, arms, g[TOLERANCE], rng)


def choose_perturbed(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Sample a score for each arm; choose the largest."""
    for arm in range(arms):
        deviation = call(f[1], f[0], w[S2, arm], 0.0, 0.0, 0.0, 0.0)
        if not deviation >= 0.0:
            return -1 - arm
        w[SCORE, arm] = w[MU, arm] + deviation * rng.standard_normal()
    return choose_largest(w, SCORE, arms, 0.0, rng)


def choose_joint(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Sample the coefficients of a shared model; choose the arm with the largest mean."""
    deviation = call(f[1], f[0], 1.0, 0.0, 0.0, 0.0, 0.0)
    if not deviation >= 0.0:
        return -1
    offset = sample_normal_vector(inverse[0], x.shape[1], rng)
    for arm in range(arms):
        w[SCORE, arm] = w[MU, arm] + deviation * dot(x[arm], offset)
    return choose_largest(w, SCORE, arms, g[TOLERANCE], rng)


def choose_widths(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose the arm with the largest upper confidence bound of one random width."""
    z = abs(rng.standard_normal())
    for arm in range(arms):
        w[SCORE, arm] = w[MU, arm] + z * call(f[1], f[0], w[S2, arm], 0.0, 0.0, 0.0, 0.0)
        if np.isnan(w[SCORE, arm]):
            return -1 - arm
    return choose_largest(w, SCORE, arms, g[TOLERANCE], rng)


def choose_gaps(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose a rival with a probability that depends on its gap, otherwise a leader."""
    least = np.inf
    for arm in range(arms):
        w[SCORE, arm] = -call(f[1], f[0], w[MU, arm], 0.0, 0.0, 0.0, 0.0)
        least = min(least, -w[SCORE, arm])
    gamma = call(f[2], f[0], float(t), 0.0, 0.0, 0.0, 0.0)
    unit = g[COST_UNIT] if g[COST_UNIT] > 0.0 else least
    u = rng.random()
    for arm in range(arms):
        gap = -w[SCORE, arm] - least
        if gap > TIE and unit > 0.0:
            p = call(f[3], f[0], gap, unit, float(arms), gamma, 0.0)
            if not p >= 0.0:
                return -1 - arm
            u -= p
            if u < 0.0:
                return arm
    return choose_largest(w, SCORE, arms, TIE, rng)


def choose_divergence(
    f: Any, g: Any, w: Any, arms: int, t: int, rng: Any, x: Any, inverse: Any, growth: float
) -> int:
    """Choose an arm by its divergence from the leaders; the design of a disjoint model is uniform."""
    best, leaders, widest = largest(w, MU, arms), 0, 0.0
    for arm in range(arms):
        if w[MU, arm] >= best - g[TOLERANCE]:
            leaders += 1
            widest = max(widest, w[S2, arm])
    beta, total = call(f[1], f[0], growth, float(arms), 0.0, 0.0, 0.0), 0.0
    for arm in range(arms):
        gap, lead, exponent = best - w[MU, arm], 1.0 / leaders, 0.0
        if gap > g[TOLERANCE]:
            lead, exponent = 0.0, call(f[2], f[0], gap, beta * (w[S2, arm] + widest), 0.0, 0.0, 0.0)
        share = call(f[3], f[0], 1.0 / arms, lead, float(arms), 0.0, 0.0)
        w[SCORE, arm] = share * np.exp(exponent)
        if not w[SCORE, arm] < np.inf:
            return -1 - arm
        total += w[SCORE, arm]
    return sample_by_weight(w, SCORE, arms, total, rng)


def compute_gaps(g: Any, w: Any, arms: int) -> None:
    """Compute the gap of every arm: 0 for leaders."""
    best = largest(w, MU, arms)
    for arm in range(arms):
        gap = best - w[MU, arm]
        w[GAP, arm] = gap if gap > g[TOLERANCE] else 0.0


def largest(w: Any, row: int, arms: int) -> float:
    """Return the largest number of a row of the table, four at a time: each waits for the one before."""
    a, b, c, d = -np.inf, -np.inf, -np.inf, -np.inf
    whole = arms - arms % 4
    for arm in range(0, whole, 4):
        a, b = max(a, w[row, arm]), max(b, w[row, arm + 1])
        c, d = max(c, w[row, arm + 2]), max(d, w[row, arm + 3])
    for arm in range(whole, arms):
        a = max(a, w[row, arm])
    return max(a, b, c, d)


@reassociating
def sum_of(w: Any, row: int, arms: int) -> float:
    """Return the sum of a row of the table."""
    total = 0.0
    for arm in range(arms):
        total += w[row, arm]
    return total


def choose_largest(w: Any, row: int, arms: int, tolerance: float, rng: Any) -> int:
    """Return the arm with the largest number of a row, one of them at random if they tie."""
    edge = largest(w, row, arms) - tolerance
    ties, winner = 0, 0
    for arm in range(arms):
        if w[row, arm] >= edge:
            ties += 1
            if ties == 1 or rng.random() * ties < 1.0:
                winner = arm
    return winner


def sample_by_log_weight(w: Any, arms: int, top: float, rng: Any) -> int:
    """Sample an arm with probability proportional to exp(score); `top` is the largest score.

    An exponential takes longer than the rest of an arm's round. So the arm is sampled from upper bounds of
    the weights, 1 / (1 + y + ... + y^4 / 24) for exp(-y), and accepted with probability weight / bound.
    """
    if not top > -np.inf:
        return -1
    for arm in range(arms):
        y = top - w[SCORE, arm]
        w[BOUND, arm] = 1.0 / (1.0 + y * (1.0 + y * (1.0 / 2.0 + y * (1.0 / 6.0 + y * (1.0 / 24.0)))))
    total = sum_of(w, BOUND, arms)
    while True:
        arm = sample_by_weight(w, BOUND, arms, total, rng)
        y = top - w[SCORE, arm]
        if y == 0.0 or rng.random() * w[BOUND, arm] < np.exp(-y):
            return arm


def sample_by_weight(w: Any, row: int, arms: int, total: float, rng: Any) -> int:
    """Sample an arm with probability proportional to the numbers in a row, which add up to `total`."""
    u = rng.random() * total
    for arm in range(arms):
        u -= w[row, arm]
        if u < 0.0:
            return arm
    last = arms - 1  # rounding left a little: the last possible arm
    while last > 0 and not w[row, last] > 0.0:
        last -= 1
    return last


@rare
def sample_normal_vector(inverse: Any, d: int, rng: Any) -> Any:
    """Sample from N(0, A) by the Cholesky factor of A."""
    lower, out = np.zeros((d, d)), np.zeros(d)
    for j in range(d):
        pivot = inverse[j, j]
        for k in range(j):
            pivot -= lower[j, k] * lower[j, k]
        lower[j, j] = np.sqrt(max(pivot, 0.0))
        z = rng.standard_normal()
        out[j] += lower[j, j] * z
        for i in range(j + 1, d):
            total = inverse[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = total / lower[j, j] if lower[j, j] > 0.0 else 0.0
            out[i] += lower[i, j] * z
    return out


CHOICES = {
    "linear-sampled": choose_sampled,
    "linear-softmax": choose_softmax,
    "linear-indexed": choose_indexed,
    "linear-greedy": choose_greedy,
    "linear-perturbed": choose_perturbed,
    "linear-joint": choose_joint,
    "linear-widths": choose_widths,
    "linear-gaps": choose_gaps,
    "linear-divergence": choose_divergence,
}
