"""The probability that each of many independent continuous scores is the largest.

P(a) = ∫ f_a(x) Π_{b≠a} F_b(x) dx = ∫ exp(ln f_a - ln F_a + Σ_b ln F_b) dx, so Σ_b ln F_b is computed once for
all arms. The integral is split into panels with a 16-point Gauss-Legendre rule each, and a panel is halved
until it agrees with its halves. All arms share the panels. Arms with a probability below 1e-20 are integrated
separately, in log space (`rare_arms`).
"""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats
from maillard.policies.numerics.distinct_arms import Arms
from maillard.policies.numerics.score_distributions import ScoreDistribution
from maillard.policies.numerics.shared_panels import integrate
from maillard.policies.numerics.window_integrals import log_window_integrals

_EPS = float(np.finfo(np.float64).eps)
RARE_PROBABILITY = 1e-20  # arms below this are integrated separately
LOG_RARE = float(np.log(RARE_PROBABILITY)) + 1e-9
TRUNCATED_MASS = 4e-30  # bound on the probability outside the ends of a distribution, which is ignored


def win_log_probabilities(noise: ScoreDistribution, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the log probability that each arm has the largest score, and a bound on the error of each.

    >>> from maillard.policies.numerics.score_distributions import GAUSSIAN
    >>> log, error = win_log_probabilities(GAUSSIAN, np.array([0.0, -1.0]), np.array([1.0, 1.0]))
    >>> np.exp(log).round(6), bool(error.max() < 1e-9)  # P(N(0, 2) > 1) for the second arm
    (array([0.76025, 0.23975]), True)
    """
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    distinct, place, count = np.unique(a + 1j * b, return_inverse=True, return_counts=True)
    if distinct.size == 1:
        return np.full(a.size, -np.log(a.size)), np.full(a.size, _EPS)
    arms, order = Arms.sorted(noise, distinct.real, distinct.imag, count.astype(np.float64))
    with np.errstate(all="ignore"):  # log(0) = -inf is intended
        value, error = integrate(arms, RARE_PROBABILITY)
        log, error = np.log(value), (error + TRUNCATED_MASS) / np.maximum(value, RARE_PROBABILITY)
    surplus = np.log(value @ arms.copies)
    rare = np.flatnonzero(value < RARE_PROBABILITY)
    if rare.size:
        found, error[rare] = log_window_integrals(arms, rare)
        # The shared panels have shown that these probabilities are at most RARE_PROBABILITY.
        log[rare] = np.minimum(found, np.log(RARE_PROBABILITY))
    log, error = np.minimum(log - surplus, 0.0), error + abs(surplus) + 8 * _EPS * (8.0 + np.abs(log))
    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    return log[back][place], error[back][place]
