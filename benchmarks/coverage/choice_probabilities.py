"""The exact choice probabilities of Gaussian Thompson sampling over three arms, in compiled code.

With scores θ_a ~ N(m_a, s_a²), arm a is chosen if θ_a - θ_b > 0 and θ_a - θ_c > 0. This is a probability of
two correlated normal variables,

    P(a) = Φ₂(h, k; r),   h = (m_a - m_b) / √(s_a² + s_b²),   k = (m_a - m_c) / √(s_a² + s_c²),
    r = s_a² / √((s_a² + s_b²)(s_a² + s_c²)),

    Φ₂(h, k; r) = Φ(h) Φ(k) + 1/2π ∫_0^{arcsin r} exp(-(h² + k² - 2 h k sin θ) / (2 cos² θ)) dθ

(Drezner and Wesolowsky 1990). The three r are cosines of the angles of one triangle, none of them obtuse. So
the two largest angles are at least 45 degrees and their r at most √½, where twelve Gauss-Legendre nodes give
full precision. The third arm, the one with the fewest pulls, has the remaining probability.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard.simulation.compiling import call
from maillard.simulation.engines.direct_engines import LOG, PROBABILITY, N, S

__all__ = ["both_below", "win"]

_FOUND = np.polynomial.legendre.leggauss(12)
NODES = tuple(_FOUND[0].tolist())
WEIGHTS = tuple(_FOUND[1].tolist())
FAR = 8.5  # beyond it a normal variable has less than 1e-17
ROOT = math.sqrt(0.5)
PI = math.pi


def below(x: float) -> float:
    """Φ(x)."""
    return 0.5 * math.erfc(-x * ROOT)


def both_below(h: float, k: float, r: float) -> float:
    """Φ₂(h, k; r) for 0 <= r <= √½, to about 1e-15."""
    if h < -FAR or k < -FAR:
        return 0.0
    if h > FAR:
        return below(k)
    if k > FAR:
        return below(h)
    half = 0.5 * math.asin(r)
    square, product, total = 0.5 * (h * h + k * k), h * k, 0.0
    for i in range(12):
        sine = math.sin(half * (1.0 + NODES[i]))
        total += WEIGHTS[i] * math.exp((product * sine - square) / (1.0 - sine * sine))
    return below(h) * below(k) + half * total / (2.0 * PI)


def win(f: Any, w: Any, arms: int, t: int) -> int:  # noqa: ARG001  # the signature of all choice functions
    """The probabilities of at most three arms; an arm without rewards has 1/K.

    `f` contains the parameters, location and spread of the policy's score.
    """
    warm = 0
    for arm in range(arms):
        if w[N, arm] > 0:
            w[PROBABILITY, warm] = arm  # for now, the indices of the arms with rewards
            warm += 1
    if warm == 3:
        win_three(f, w)
    elif warm == 2:
        win_two(f, w, int(w[PROBABILITY, 0]), int(w[PROBABILITY, 1]), arms)
    else:
        for arm in range(arms):
            w[PROBABILITY, arm] = 1.0 / arms
    for arm in range(arms):
        w[LOG, arm] = np.log(w[PROBABILITY, arm])
    return 0


def win_two(f: Any, w: Any, one: int, other: int, arms: int) -> None:
    """Two arms with rewards; arms without rewards have 1/K each, and these two have the rest."""
    total_probability = 2.0 / arms
    h = location(f, w, one) - location(f, w, other)
    h /= math.sqrt(variance(f, w, one) + variance(f, w, other))
    for arm in range(arms):
        w[PROBABILITY, arm] = 1.0 / arms
    w[PROBABILITY, one], w[PROBABILITY, other] = total_probability * below(h), total_probability * below(-h)


def win_three(f: Any, w: Any) -> None:
    """Three arms with rewards."""
    # The widest score has the smallest angle.
    a, b, c = 0, 1, 2
    if w[N, b] < w[N, a]:
        a, b = b, a
    if w[N, c] < w[N, a]:
        a, c = c, a
    gap_ab = location(f, w, a) - location(f, w, b)
    gap_ac = location(f, w, a) - location(f, w, c)
    va, vb, vc = variance(f, w, a), variance(f, w, b), variance(f, w, c)
    ab, ac, bc = math.sqrt(va + vb), math.sqrt(va + vc), math.sqrt(vb + vc)
    h = (gap_ac - gap_ab) / bc
    w[PROBABILITY, b] = both_below(-gap_ab / ab, h, vb / (ab * bc))
    w[PROBABILITY, c] = both_below(-gap_ac / ac, -h, vc / (ac * bc))
    w[PROBABILITY, a] = max(0.0, 1.0 - w[PROBABILITY, b] - w[PROBABILITY, c])


def location(f: Any, w: Any, arm: int) -> float:
    """The mean of an arm's score."""
    return call(f[1], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)


def variance(f: Any, w: Any, arm: int) -> float:
    """The variance of an arm's score."""
    spread = call(f[2], f[0], w[N, arm], w[S, arm], 0.0, 0.0, 0.0)
    return spread * spread
