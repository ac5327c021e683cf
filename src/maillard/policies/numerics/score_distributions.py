"""Families of continuous score distributions, with the functions that quadrature needs.

Each arm has two parameters, a and b. Densities must be log-concave. If `shifts` is true, the first parameter
is a location, and quadrature may move the origin so that narrow distributions are not lost to rounding.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np

from maillard.array_types import Bools, Floats
from maillard.policies.numerics.binomial import log_binomial

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
_SQRT_HALF = np.sqrt(0.5)
_FEW_TAILS = 2048
_MAX_EXPONENT = 700.0  # larger ones overflow


class ScoreDistribution:
    """A family of continuous distributions with log-concave densities."""

    shifts: ClassVar[bool] = True
    allowed: ClassVar[str] = "two finite numbers, the second > 0"
    has_simple_cdf: ClassVar[bool] = False  # whether `logs` takes hardly longer than a density
    has_slow_cdf: ClassVar[bool] = False  # whether `logs` takes much longer; then `deep_logs` is needed
    code: ClassVar[int] = -1  # identifies the family in compiled simulation; -1 if it is not available there

    def usable(self, a: Floats, b: Floats) -> Bools:
        """Return which pairs of parameters are valid."""
        return np.isfinite(a) & np.isfinite(b) & (b > 0.0)

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Return ln F(x) and ln(f(x) / F(x)), accurate in both tails."""
        raise NotImplementedError

    def log_kernel(self, x: Floats, a: Floats, b: Floats) -> Floats:
        """Return ln f(x) without the term `log_norm`."""
        log_cdf, ratio = self.logs(x, a, b)
        return log_cdf + ratio

    def log_norm(self, a: Floats, b: Floats) -> Floats:
        """Return the term of ln f that does not depend on x."""
        return np.zeros_like(a)

    def deep_logs(self, x: Floats, a: Floats, b: Floats, log_density: Floats) -> tuple[Floats, Floats]:
        """Return `logs` far below the peak."""
        raise NotImplementedError

    def slopes(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Return the first and the second derivative of ln f; by default approximately."""
        step = 1e-3 * self.spread(a, b)
        left, middle, right = (self.log_kernel(x + move, a, b) for move in (-step, 0.0, step))
        return (right - left) / (2.0 * step), (right - 2.0 * middle + left) / (step * step)

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Return two points: the probability below the first and above the second is less than 1e-30 each."""
        raise NotImplementedError

    def pair(self, a: Floats, b: Floats) -> Floats | None:
        """Return the log probability that each of two scores is the larger; None without a closed form."""
        return None

    def spread(self, a: Floats, b: Floats) -> Floats:
        """Return the scale of the distribution, such as its standard deviation."""
        return b

    def peak(self, a: Floats, b: Floats) -> Floats:
        """Return the mode."""
        return a


class _Gaussian(ScoreDistribution):
    """N(a, b²)."""

    code: ClassVar[int] = 0

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Compute both tails and the ratio from one scaled complementary error function and one logarithm.

        With y = (x - a) / (b √2) and e = erfcx(|y|), F is e/2 exp(-y²) below the mean, and 1 minus this
        above.
        """
        # Quadrature spends most of its time here, so arrays are reused.
        y = x - a
        y *= _SQRT_HALF / b
        square = y * y
        below = y < 0.0
        half = _scaled_tail(np.abs(y, out=y))
        half *= 0.5
        above = np.exp(-square)
        above *= half
        np.subtract(1.0, above, out=above)
        log = np.log(np.where(below, half, above), out=above)
        drop = np.where(below, square, 0.0)
        ratio = np.subtract(drop, square, out=square)
        ratio -= log
        ratio -= np.log(b) + _LOG_SQRT_2PI
        log -= drop
        return log, ratio

    def log_kernel(self, x: Floats, a: Floats, b: Floats) -> Floats:
        y = x - a
        y *= _SQRT_HALF / b
        y *= y
        log: Floats = np.negative(y, out=y)
        return log

    def log_norm(self, a: Floats, b: Floats) -> Floats:
        norm: Floats = -np.log(b) - _LOG_SQRT_2PI
        return norm

    def slopes(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        return (a - x) / (b * b), -1.0 / (b * b)

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        return a - 12.0 * b, a + 12.0 * b

    def pair(self, a: Floats, b: Floats) -> Floats:
        """Return the closed form: the difference of two Gaussian scores is Gaussian."""
        from scipy.special import log_ndtr

        log: Floats = log_ndtr((a - a[::-1]) / np.hypot(b[0], b[1]))
        return log


@functools.cache
def _tail_coefficients() -> list[float]:
    """Return the polynomial in t = (y - 4) / (y + 4) that is (1 + 2 y) erfcx(y), to 2e-15."""
    from scipy.special import erfcx

    fitted = np.polynomial.Chebyshev.interpolate(
        lambda t: (1.0 + 8.0 * (1.0 + t) / (1.0 - t)) * erfcx(4.0 * (1.0 + t) / (1.0 - t)), 22
    )
    return [float(each) for each in fitted.convert(kind=np.polynomial.Polynomial).coef[::-1]]


def _scaled_tail(y: Floats) -> Floats:
    """Return erfcx(y) for y >= 0; for large arrays by a polynomial, which takes a fifth of the time."""
    if y.size <= _FEW_TAILS:
        from scipy.special import erfcx

        tail: Floats = erfcx(y, out=y)
        return tail
    t = (y - 4.0) / (y + 4.0)
    first, *rest = _tail_coefficients()
    tail = np.full_like(t, first)
    for coefficient in rest:
        tail *= t
        tail += coefficient
    y *= 2.0
    y += 1.0
    tail /= y
    return tail


class _Gumbel(ScoreDistribution):
    """a + b Gumbel(0, 1)."""

    code: ClassVar[int] = 1
    has_simple_cdf: ClassVar[bool] = True

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        z = (x - a) / b
        return -np.exp(-z), -z - np.log(b)

    def slopes(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        rise = np.exp((a - x) / b)
        return (rise - 1.0) / b, -rise / (b * b)

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        return a - 4.4 * b, a + 72.0 * b


class _Beta(ScoreDistribution):
    """The log odds of Beta(a, b), a, b >= 1: the same order, and accurate near both 0 and 1."""

    shifts: ClassVar[bool] = False
    has_slow_cdf: ClassVar[bool] = True
    code: ClassVar[int] = 2
    allowed: ClassVar[str] = "two finite numbers >= 1"

    def usable(self, a: Floats, b: Floats) -> Bools:
        # Below 1 the density has a pole, which quadrature misses.
        return super().usable(a, b) & (a >= 1.0) & (b >= 1.0)

    def logs(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        from scipy.special import betainc, betaincc, expit

        p, q = expit(x), expit(-x)
        log_density = self.log_kernel(x, a, b) + self.log_norm(a, b)
        p, q, a, b = np.broadcast_arrays(p, q, a, b)
        log_cdf = np.empty(p.shape)
        for upper in (False, True):
            for near_one in (False, True):
                some = ((p * (a + b) > a) == upper) & ((p > 0.5) == near_one)
                i, j, y, z = a[some], b[some], p[some], q[some]
                if upper:
                    log_cdf[some] = np.log1p(-(betainc(j, i, z) if near_one else betaincc(i, j, y)))
                else:
                    log_cdf[some] = np.log(betaincc(j, i, z) if near_one else betainc(i, j, y))
        ratio = log_density - log_cdf
        deep = log_cdf < -640.0  # the probability underflows, its logarithm does not
        if deep.any():
            far = (each[deep] for each in np.broadcast_arrays(x, a, b, log_density))
            log_cdf[deep], ratio[deep] = self.deep_logs(*far)
        return log_cdf, ratio

    def log_kernel(self, x: Floats, a: Floats, b: Floats) -> Floats:
        """Return a v - (a+b) ln(1 + p expm1(v)) relative to the peak p = a / (a+b), for v = x - ln(a/b).

        If a is larger than b, the roles of both are exchanged: the terms must not be large.
        """
        n, least = a + b, np.minimum(a, b)
        v = x - np.log(a / b)
        v *= np.where(a > b, -1.0, 1.0)
        within = np.minimum(v, _MAX_EXPONENT)
        log = np.expm1(within)
        log *= least / n
        np.log1p(log, out=log)
        within -= v
        log -= within
        log *= -n
        v *= least
        log += v
        return log

    def log_norm(self, a: Floats, b: Floats) -> Floats:
        # The density of the log odds is p q times that of p.
        p, q = a / (a + b), b / (a + b)
        norm: Floats = np.log(a + b - 1.0) + log_binomial(a - 1.0, b - 1.0, p, q) + np.log(p) + np.log(q)
        return norm

    def deep_logs(self, x: Floats, a: Floats, b: Floats, log_density: Floats) -> tuple[Floats, Floats]:
        from scipy.special import expit

        ratio = np.log(a * _beta_fraction(expit(x), a, b))
        return log_density - ratio, ratio

    def slopes(self, x: Floats, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        from scipy.special import expit

        p, q = expit(x), expit(-x)
        return a * q - b * p, -(a + b) * p * q

    def ends(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        from scipy.special import betainccinv, betaincinv

        low = np.log(betaincinv(a, b, 1e-32)) - np.log(betainccinv(b, a, 1e-32))
        return low, np.log(betainccinv(a, b, 1e-32)) - np.log(betaincinv(b, a, 1e-32))

    def spread(self, a: Floats, b: Floats) -> Floats:
        spread: Floats = np.sqrt(1.0 / a + 1.0 / b)
        return spread

    def peak(self, a: Floats, b: Floats) -> Floats:
        peak: Floats = np.log(a / b)
        return peak


def _beta_fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    """Return the continued fraction C in F(x) = x^a (1-x)^b / (a B(a, b)) / C (DLMF 8.17.22, Lentz)."""
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
