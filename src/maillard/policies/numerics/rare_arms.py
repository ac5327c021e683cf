"""Integrals of log-concave functions that may have a step at one end, for the scores of linear policies.

The integrand of a rare arm is its density, which falls, times the distribution function of the largest other
score, which rises. Each arm is integrated over an interval around the peak of its own integrand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from maillard.array_types import Floats, Indices

Integrand = Callable[[Floats], Floats]
# Panel edges between the outer end of the interval (0) and the peak (1). The integrand rises fastest near the
# outer end, and it may bend sharply near the peak, where the distribution of a narrow rival ends.
_EDGES = np.array([0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 15 / 16, 63 / 64, 255 / 256, 1023 / 1024, 1])
# For many arms at once, a coarser rule that may miss such a bend; _BEND is added to its error bound.
_MANY, _COARSE, _BEND = 256, np.array([0, 1 / 8, 3 / 8, 2 / 3, 1]), 1e-3
_EPS = float(np.finfo(np.float64).eps)
_DEPTH = 45.0  # the interval ends where the integrand has fallen by a factor exp(-45)
_POINTS = 9
_FRACTIONS = np.linspace(0.0, 1.0, _POINTS)


def log_integrals(
    integrand: Integrand, low: Floats, peak: Floats, high: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return ln ∫ exp(integrand) for each arm, an error estimate, and points where most of the mass lies.

    `integrand(x)` takes an array of shape (arms, points) and is concave in x. `peak` is a lower bound and
    `high` an upper bound on the location of its maximum; its mass outside `low` to `high` is negligible. The
    error estimate compares rules of two orders.
    """
    top = _zoom_to_peak(integrand, peak, high)
    floor = integrand(top[:, None]) - _DEPTH
    left = _zoom_to_end(integrand, top, low, floor)
    right = _zoom_to_end(integrand, top, high, floor)
    few = top.size <= _MANY
    edges, orders, bend = (_EDGES, (10, 16), 0.0) if few else (_COARSE, (6, 8), _BEND)
    rough, fine = (_rule(integrand, (left, top, right), edges, order) for order in orders)
    fractions = np.linspace(0.0, 0.6, 7)
    core = np.concatenate([top[:, None] + fractions * (end - top)[:, None] for end in (left, right)], axis=1)
    # If floats are too coarse to resolve the interval, use the height of the peak.
    lost = ~np.isfinite(fine)
    height = floor[:, 0] + _DEPTH
    rough, fine = np.where(lost, height * (1 - 1e-6), rough), np.where(lost, height, fine)
    return fine, bend + 4.0 * np.abs(fine - rough) + 64 * _EPS * np.abs(floor[:, 0]), core


def _zoom_to_peak(integrand: Integrand, low: Floats, high: Floats) -> Floats:
    """Return the maximum, by grids that become finer around their best point until values are close."""
    for _ in range(24):
        x = low[:, None] + (high - low)[:, None] * _FRACTIONS
        g = integrand(x)
        best = np.argmax(g, axis=1)
        before, after = np.maximum(best - 1, 0), np.minimum(best + 1, _POINTS - 1)
        low, high, peak = _pick(x, before), _pick(x, after), _pick(x, best)
        near = 0.001 if best.size <= _MANY else 0.1
        if (_pick(g, best) - np.minimum(_pick(g, before), _pick(g, after)) < near).all():
            break
    return peak


def _zoom_to_end(integrand: Integrand, top: Floats, outer: Floats, floor: Floats) -> Floats:
    """Return a point at or just outside the one where the integrand falls below the floor."""
    inner = top
    for _ in range(24):
        x = inner[:, None] + (outer - inner)[:, None] * _FRACTIONS
        above = np.logical_and.accumulate(integrand(x) > floor, axis=1)
        last = np.maximum(above.sum(axis=1) - 1, 0)
        inner, outer = _pick(x, last), _pick(x, np.minimum(last + 1, _POINTS - 1))
        if (np.abs(outer - inner) <= 0.2 * np.abs(outer - top)).all():
            break
    return outer


def _pick(x: Floats, column: Indices) -> Floats:
    picked: Floats = np.take_along_axis(x, column[:, None], axis=1)[:, 0]
    return picked


def _rule(integrand: Integrand, window: tuple[Floats, Floats, Floats], edges: Floats, order: int) -> Floats:
    """Return ln of the integral by Gauss-Legendre panels on both sides of the peak."""
    left, top, right = window
    nodes, weights = np.polynomial.legendre.leggauss(order)
    half = 0.5 * np.diff(edges)[:, None]
    fractions = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
    relative_weights = (half * weights).ravel()
    below, above = (top - left)[:, None], (right - top)[:, None]
    x = np.concatenate([left[:, None] + below * fractions, right[:, None] - above * fractions], axis=1)
    log = integrand(x)
    peak = log.max(axis=1, keepdims=True)
    total = np.exp(log - peak) * np.concatenate([below * relative_weights, above * relative_weights], axis=1)
    rule: Floats = peak[:, 0] + np.log(total.sum(axis=1))
    return rule
