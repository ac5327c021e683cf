"""The probability of sectors of the plane under a Gaussian distribution N(m, I).

With the angle measured from m, ρ = |m| and c = ρ cos(angle), the density of the direction is

    e^(-ρ²/2) / 2π + c Φ(c) e^(-(ρ² - c²)/2) / √(2π),

which falls from 0 to π. Integrals are computed relative to the largest value on the sector.
"""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats

# Panels whose widths double, from the end of the sector at which the density is largest.
_EDGES = np.concatenate([[0.0], np.exp2(np.arange(-112.0, 1.0) / 2.0)])
_RULES = tuple(np.polynomial.legendre.leggauss(order) for order in (12, 18))
_LOG_2PI = float(np.log(2.0 * np.pi))
_FAR = 30.0
# 1 - x M(x), where M is the Mills ratio, is the alternating series Σ (2k - 1)!! / x^2k from k = 1.
_SERIES = (-2027025.0, 135135.0, -10395.0, 945.0, -105.0, 15.0, -3.0, 1.0)


def sector_log_probabilities(start: Floats, width: Floats, rho: float) -> tuple[Floats, Floats]:
    """Return ln P of sectors that begin at an angle from -π to π, relative to m, and bounds on the errors.

    The sectors partition the plane; each is narrower than π.

    >>> width = np.array([2.0, 1.0, 2 * np.pi - 3])
    >>> log, _ = sector_log_probabilities(np.array([-1.0, 1.0, 2.0]), width, 0.0)
    >>> np.round(np.exp(log) * 2 * np.pi, 6).tolist()
    [2.0, 1.0, 3.283185]
    """
    end = start + width
    # By symmetry, all parts lie between 0 and π: those at negative angles, at positive ones, and beyond π.
    left_of = start < 0.0
    lows = np.stack(
        [np.where(left_of, np.maximum(-end, 0.0), 0.0), np.maximum(start, 0.0), 2.0 * np.pi - end]
    )
    inside = np.where(end > 0.0, -start, width)
    right = np.where(left_of, end, np.minimum(width, np.pi - start))
    widths = np.stack([np.where(left_of, inside, 0.0), right, end - np.pi])
    used = widths > 0.0
    log = np.full((2, *widths.shape), -np.inf)
    for i, (nodes, weights) in enumerate(_RULES):
        log[i][used] = _integrals(lows[used], widths[used], rho, nodes, weights)
    rough, fine = (np.logaddexp.reduce(each, axis=0) for each in log)
    total = np.logaddexp.reduce(fine)
    return np.minimum(fine - total, 0.0), np.abs(fine - rough) + abs(total) + 1e-14 * (1.0 + np.abs(fine))


def _integrals(low: Floats, width: Floats, rho: float, nodes: Floats, weights: Floats) -> Floats:
    half = 0.5 * np.diff(_EDGES)[:, None]
    fractions = (_EDGES[:-1, None] + half * (nodes + 1.0)).ravel()
    relative = (half * weights).ravel()
    value = log_density(low[:, None] + width[:, None] * fractions, rho)
    top = log_density(low, rho)
    total: Floats = np.sum(np.exp(value - top[:, None]) * relative, axis=1)
    integral: Floats = np.log(total) + top + np.log(width)
    return integral


def log_density(angle: Floats, rho: float) -> Floats:
    """Return the log density of the direction at an angle from 0 to π to m."""
    from scipy.special import erfcx, ndtr

    c = rho * np.cos(angle)
    ahead = np.maximum(c, 0.0)
    across = rho * np.sin(angle)
    near = np.log(ahead * ndtr(ahead) * np.sqrt(2.0 * np.pi) + np.exp(-0.5 * ahead * ahead)) - _LOG_2PI
    x = np.maximum(-c, 0.0)
    close = np.minimum(x, _FAR)
    mills = np.sqrt(np.pi / 2.0) * erfcx(close * np.sqrt(0.5))
    square = 1.0 / np.maximum(x, _FAR) ** 2
    series = np.zeros_like(x)
    for coefficient in _SERIES:
        series = series * square + coefficient
    behind = np.log(np.where(x > _FAR, series * square, 1.0 - close * mills)) - _LOG_2PI
    log: Floats = np.where(c > 0.0, near - 0.5 * across * across, behind - 0.5 * rho * rho)
    return log
