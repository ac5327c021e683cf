"""Envelopes of the upper tails of scores, so that a score can be sampled by its density alone.

The distributions are those of `score_sampling`. With y = score - threshold, the density of every score above
the threshold is at most exp(height - rate y). The rate may be chosen freely, and the height follows from the
logarithm of the density, which is concave: its tangent with slope -rate lies above it.
"""

from __future__ import annotations

import math

import numpy as np

from maillard.simulation.compiling import rare
from maillard.simulation.engines.score_sampling import BETA, GAUSSIAN, GUMBEL, stirling_error

SQRT_2PI = math.sqrt(2.0 * math.pi)


def tangent(code: int, a: float, b: float, norm: float, threshold: float, rate: float) -> float:
    """Return the height of a line above the logarithm of the density; inf if there is none.

    The line is height - rate y, for y >= 0. `log_density` defines the density. `norm` is the logarithm of the
    constant of a Beta density (see `log_norm`).
    """
    if code == GAUSSIAN:
        z, v = (threshold - a) / b, rate * b
        return 0.5 * v * v - v * z if v > z else -0.5 * z * z
    if code == GUMBEL:  # exp(-z) exp(-exp(-z)) <= exp(-z)
        return (a - threshold) / b if rate * b <= 1.0 else np.inf
    # The line touches the logarithm of the density where a quadratic polynomial is zero.
    i, j = a - 1.0, b - 1.0
    linear = rate - (i + j)
    x = max((linear + np.sqrt(linear * linear + 4.0 * rate * i)) / (2.0 * rate), threshold)
    if j == 0.0:
        return norm + rate * (1.0 - threshold)
    return norm + i * np.log(x) + j * np.log(1.0 - x) + rate * (x - threshold) if x < 1.0 else np.inf


def best_rate(code: int, a: float, b: float, x: float) -> float:
    """Return the best rate for scores near x: minus the slope of the logarithm of the density there."""
    if code == GAUSSIAN:
        return (x - a) / (b * b)
    if code == GUMBEL:
        return 1.0 / b
    return b / (1.0 - x) - (a - 1.0) / x  # b instead of b - 1, for uniform scores


def log_density(code: int, a: float, b: float, norm: float, x: float) -> float:
    """Return the logarithm of the density at x, without a term that `density_scale` has."""
    if code == BETA:
        return norm + (a - 1.0) * np.log(x) + (b - 1.0) * np.log(1.0 - x) if 0.0 < x < 1.0 else -np.inf
    z = (x - a) / b
    return -0.5 * z * z if code == GAUSSIAN else -z - np.exp(-z)


def density_scale(code: int, b: float) -> float:
    """Return what exp(log_density) has to be divided by."""
    if code == BETA:
        return 1.0
    return b * SQRT_2PI if code == GAUSSIAN else b


def next_log_norm(norm: float, a: float, b: float, old_a: float, old_b: float) -> float:
    """Return `log_norm` of a and b from that of other parameters; quickly, if one of them has grown by 1."""
    if a == old_a + 1.0 and b == old_b:
        return norm + np.log((old_a + b) / old_a)
    if b == old_b + 1.0 and a == old_a:
        return norm + np.log((a + old_b) / old_b)
    return log_norm(a, b)


@rare
def log_norm(a: float, b: float) -> float:
    """Return the logarithm of the constant of the density of Beta(a, b), 1 / B(a, b), for a, b >= 1."""
    i, j = a - 1.0, b - 1.0
    n = i + j
    if i == 0.0 or j == 0.0:
        return np.log(n + 1.0)
    errors = stirling_error(n) - stirling_error(i) - stirling_error(j)
    logs = 0.5 * np.log(n / (2.0 * np.pi * i * j)) - i * np.log(i / n) - j * np.log(j / n)
    return np.log(n + 1.0) + errors + logs


@rare
def low_point(code: int, a: float, b: float) -> float:
    """Return a point that all but about one in twenty thousand scores exceed."""
    if code == GAUSSIAN:
        return a - 4.0 * b
    if code == GUMBEL:
        return a - 2.3 * b
    # The arcsine of the root of a Beta score is nearly normal.
    angle = np.arcsin(np.sqrt(a / (a + b))) - 2.0 / np.sqrt(a + b)
    return max(np.sin(max(angle, 0.0)) ** 2, 0.01 * a / (a + b))


def is_sure(code: int, a: float, b: float, norm: float, threshold: float, probability: float) -> bool:
    """Return whether the tangent at the threshold bounds P(score <= threshold) by a probability."""
    rate = -slope_at(code, a, b, threshold)
    if not rate > 0.0:
        return False
    return np.exp(log_density(code, a, b, norm, threshold)) <= probability * rate * density_scale(code, b)


def slope_at(code: int, a: float, b: float, x: float) -> float:
    """Return minus the slope of the logarithm of the density at x."""
    if code == GAUSSIAN:
        return (x - a) / (b * b)
    return (1.0 - np.exp((a - x) / b)) / b if code == GUMBEL else (b - 1.0) / (1.0 - x) - (a - 1.0) / x
