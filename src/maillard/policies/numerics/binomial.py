"""Binomial log probabilities without cancellation, also for real counts; for PHE, GIRO and Beta scores."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats
from maillard.policies.numerics.families import poisson

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def log_binomial(i: Floats, j: Floats, p: Floats, q: Floats) -> Floats:
    """Return ln((i+j)! / (i! j!) p^i q^j) for q = 1 - p.

    Loader's saddle-point expansion avoids the difference of large log-factorials.

    >>> half = np.array(0.5)
    >>> float(np.exp(log_binomial(np.array(2.0), np.array(1.0), half, half)).round(12))
    0.375
    """
    n = i + j
    inner = (i > 0.0) & (j > 0.0)
    # Harmless values where the formula does not apply, so that it emits no warnings there.
    one, two, both = np.where(inner, i, 1.0), np.where(inner, j, 1.0), np.where(inner, n, 2.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        saddle = (
            _stirling_error(both)
            - _stirling_error(one)
            - _stirling_error(two)
            + 0.5 * np.log(both / (2.0 * np.pi * one * two))
            - (poisson(one, both * p, 0.0) + poisson(two, both * q, 0.0))
        )
        edge = np.where(i > 0.0, i * np.log(p), 0.0) + np.where(j > 0.0, j * np.log(q), 0.0)
        edge = np.where((i > 0.0) & (p > 0.5), i * np.log1p(-q), edge)
        edge = np.where((j > 0.0) & (q > 0.5) & ~inner, j * np.log1p(-p), edge)
    log: Floats = np.where(inner, saddle, edge)
    return log


def _stirling_error(z: Floats) -> Floats:
    """Return ln z! minus Stirling's approximation, for z > 0."""
    from scipy.special import gammaln

    small = np.minimum(z, 16.0)
    exact = gammaln(small + 1.0) - (small + 0.5) * np.log(small) + small - _LOG_SQRT_2PI
    w = 1.0 / (z * z)
    series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / z
    error: Floats = np.where(z < 16.0, exact, series)
    return error
