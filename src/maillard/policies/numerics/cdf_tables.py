"""Distribution functions that take long to evaluate, as tables of polynomials."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats, Indices
from maillard.policies.numerics.score_distributions import ScoreDistribution

_PANELS = 96  # between the ends of a distribution
_ORDER = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)


def _integral_matrix() -> Floats:
    """Return the coefficients of t^k of the integral from -1 to t, from the values at the nodes."""
    legendre = np.polynomial.legendre
    values = legendre.legvander(_NODES, _ORDER - 1) * _WEIGHTS[:, None] * (np.arange(_ORDER) + 0.5)
    powers = [legendre.leg2poly(legendre.legint(unit, lbnd=-1)) for unit in np.eye(_ORDER)]
    integrals: Floats = values @ np.array([np.pad(each, (0, _ORDER + 1 - each.size)) for each in powers])
    return integrals


_INTEGRALS = _integral_matrix()


class CdfTable:
    """The distribution functions of several scores, integrated once from their densities."""

    def __init__(
        self, noise: ScoreDistribution, a: Floats, b: Floats, *, low: Floats, high: Floats, log_norm: Floats
    ) -> None:
        self._noise = noise
        # A distribution function may grow by large factors near its lower end, so panels are narrower there.
        edges = low[:, None] + (high - low)[:, None] * (np.arange(_PANELS + 1) / _PANELS) ** 2
        half = 0.5 * np.diff(edges, axis=1)
        self._columns = np.stack([a, b, log_norm, low, 1.0 / (high - low)], axis=1)[:, :, None]
        x = edges[:, :-1, None] + half[:, :, None] * (_NODES + 1.0)
        log_density = noise.log_kernel(x.reshape(a.size, -1), a[:, None], b[:, None]) + log_norm[:, None]
        density = np.exp(log_density).reshape(x.shape)
        each = (density @ _WEIGHTS) * half
        at_low = noise.log_kernel(low, a, b) + log_norm
        below = np.exp(noise.deep_logs(low, a, b, at_low)[0])
        self._powers = (density @ _INTEGRALS) * half[:, :, None]
        self._powers[:, :, 0] += np.cumsum(each, axis=1) - each + below[:, None]

    def logs(self, x: Floats, rows: Indices) -> tuple[Floats, Floats]:
        """Return ln F(x) and ln(f(x) / F(x)); `x` has one row per distribution, or one for all."""
        a, b, log_norm, low, per_range = np.moveaxis(self._columns[rows], 1, 0)
        place = (x - low) * per_range
        root = _PANELS * np.sqrt(np.clip(place, 0.0, 1.0))
        panel = np.minimum(root.astype(np.int64), _PANELS - 1)
        # Between squares of whole numbers, whose difference is 2 panel + 1.
        t = 2.0 * (root - panel) * (root + panel) / (2 * panel + 1) - 1.0
        powers = np.moveaxis(self._powers[rows[:, None], panel], -1, 0)
        cdf = powers[-1] * t
        for power in powers[-2:0:-1]:
            cdf += power
            cdf *= t
        cdf += powers[0]
        log_density = self._noise.log_kernel(x, a, b) + log_norm
        log_cdf = np.where(place >= 1.0, 0.0, np.minimum(np.log(cdf), 0.0))
        ratio = log_density - log_cdf
        below = place < 0.0
        if below.any():
            far = (np.broadcast_to(each, below.shape)[below] for each in (x, a, b, log_density))
            log_cdf[below], ratio[below] = self._noise.deep_logs(*far)
        return log_cdf, ratio
