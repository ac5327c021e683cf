"""Continuous score families: what quadrature needs to know of each.

A family has two parameters an arm. `logs(x, a, b)` are ln F and ln(f / F), elementwise and accurate in both tails; `ends`
are points beyond which less than 1e-30 of the mass lies; `spread` is the width on which the law varies; `peak` is
its mode. Densities are log-concave. `shifts` says that the first parameter is a location, so that coordinates may
be taken relative to any point without rounding away narrow laws; `most` bounds the scores from above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from maillard.policies.numerics.binomial import log_binomial

if TYPE_CHECKING:
    from maillard.policies.shapes.policy import Floats

__all__ = ["BETA", "GAUSSIAN", "GUMBEL", "Noise"]

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
_SQRT_HALF = np.sqrt(0.5)


class Noise:
    """A family of continuous, log-concave score laws."""

    shifts: ClassVar[bool] = True
    most: ClassVar[float] = np.inf

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """ln F(x) and ln(f(x) / F(x))."""
        raise NotImplementedError

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Where the law's lower and upper tails hold less than 1e-30."""
        raise NotImplementedError

    def pair(self, a: Floats, b: Floats) -> Floats | None:
        """The log probability that each of two scores is the larger, where that has a closed form."""
        return None

    def spread(self, a: Floats, b: Floats) -> Floats:
        """The width on which the law varies."""
        return b

    def peak(self, a: Floats, b: Floats) -> Floats:
        """The mode."""
        return a


class _Gaussian(Noise):
    """N(a, b²)."""

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """One scaled complementary error function and one logarithm serve both tails and the ratio.

        With y = (x - a) / (b √2) and e = erfcx(|y|), F is e/2 exp(-y²) below the mean and 1 - that above.
        """
        from scipy.special import erfcx

        y = (x - a) * (_SQRT_HALF / b)
        square = y * y
        half = 0.5 * erfcx(np.abs(y))
        below = y < 0.0
        log = np.log(np.where(below, half, 1.0 - half * np.exp(-square)))
        drop = np.where(below, square, 0.0)
        return log - drop, (drop - square) - log - (np.log(b) + _LOG_SQRT_2PI)

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        return a - 12.0 * b, a + 12.0 * b

    def pair(self, a: Floats, b: Floats) -> Floats:
        """The difference of two Gaussian scores is Gaussian."""
        from scipy.special import log_ndtr

        log: Floats = log_ndtr((a - a[::-1]) / np.hypot(b[0], b[1]))
        return log


class _Gumbel(Noise):
    """a + b Gumbel(0, 1)."""

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        z = (x - a) / b
        return -np.exp(-z), -z - np.log(b)

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        return a - 4.4 * b, a + 72.0 * b


class _Beta(Noise):
    """Beta(a, b) with a, b >= 1."""

    shifts: ClassVar[bool] = False
    most: ClassVar[float] = 1.0

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        from scipy.special import betainc, betaincc

        log_density = np.log(a + b - 1.0) + log_binomial(a - 1.0, b - 1.0, x)
        x, a, b = np.broadcast_arrays(x, a, b)
        log_cdf = np.empty(x.shape)
        above = x * (a + b) > a
        log_cdf[above] = np.log1p(-betaincc(a[above], b[above], x[above]))
        log_cdf[~above] = np.log(betainc(a[~above], b[~above], x[~above]))
        ratio = log_density - log_cdf
        deep = (log_cdf < -640.0) & (x > 0.0)  # past the range of a probability, not of its log
        if deep.any():
            x, a, b = x[deep], a[deep], b[deep]
            ratio[deep] = np.log(a * _beta_fraction(x, a, b) / (x * (1.0 - x)))
            log_cdf[deep] = log_density[deep] - ratio[deep]
        return log_cdf, ratio

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        from scipy.special import betainccinv, betaincinv

        return betaincinv(a, b, 1e-32), betainccinv(a, b, 1e-32)

    def spread(self, a: Floats, b: Floats) -> Floats:
        total = a + b
        spread: Floats = np.sqrt(a * b / (total + 1.0)) / total
        return spread

    def peak(self, a: Floats, b: Floats) -> Floats:
        flat = a + b <= 2.0
        peak: Floats = np.where(flat, 0.5, (a - 1.0) / np.where(flat, 1.0, a + b - 2.0))
        return peak


def _beta_fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    """The continued fraction C in F(x) = x^a (1-x)^b / (a B(a, b) C), by Lentz's method (DLMF 8.17.22)."""
    value, c, d = np.ones_like(x), np.ones_like(x), np.zeros_like(x)
    for k in range(1, 2000):
        m = k // 2
        if k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d)
        c = 1.0 + term / c
        value = value * (c * d)
        if (np.abs(c * d - 1.0) < 1e-15).all():
            break
    return value


GAUSSIAN = _Gaussian()
GUMBEL = _Gumbel()
BETA = _Beta()
