"""Reward families with one parameter, the mean: their divergence and its inverse.

All functions are pure and elementwise. `divergence(a, b, sigma2)` is the KL divergence between the
distributions with means a and b. `upper(a, level, sigma2)` is the largest b with KL(a, b) <= level. Only the
Gaussian family uses sigma2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from maillard.policies.numerics.elementwise import branch, where

# Newton steps for the root of a convex function, from a start to the right of it. Ten steps reach float
# accuracy for levels above 1e-9, unless the result is 1 up to rounding.
_STEPS = 12
# Smaller means are treated as 0: no digit of a divergence changes, and 1 / mean cannot overflow.
_TINY = 1e-150
_ODD = tuple(1.0 / k for k in range(15, 1, -2))  # 1/15, ..., 1/5, 1/3: enough for |z| < 0.1


def residual(z: Any, ratio: Any) -> Any:
    """Return z - log(ratio) for ratio = 1 + z, without cancellation near z = 0."""
    return branch(np.abs(z) < 0.1, _near_residual, _far_residual, z, ratio)


def _near_residual(z: Any, ratio: Any) -> Any:
    """Return z - log1p(z) for |z| < 0.1 by a series.

    With r = z / (2 + z), log1p(z) = 2 artanh(r) and z - 2r = r z, so the result is r z - 2 r^3 (1/3 + r^2/5 +
    ...).
    """
    w = where(np.abs(z) < 0.1, z, 0.0)
    r = w / (2.0 + w)
    square = r * r
    series = 0.0 * r
    for coefficient in _ODD:
        series = series * square + coefficient
    return r * (w - 2.0 * square * series)


def _far_residual(z: Any, ratio: Any) -> Any:
    # z and ratio have independent rounding errors. log1p(z) is accurate for small z; near z = -1, log(ratio)
    # is.
    return z - branch(np.abs(z) < 0.5, _log1p_first, _log_second, z, ratio)


def _log1p_first(z: Any, ratio: Any) -> Any:
    return np.log1p(z)


def _log_second(z: Any, ratio: Any) -> Any:
    return np.log(ratio)


def gaussian_exponent(n: Any, gap: Any, sigma2: Any) -> Any:
    """Return N gap² / (2 σ²), the exponent of Maillard sampling. This order of factors avoids 0 * inf."""
    return n * gap * gap / (2.0 * sigma2)


def gaussian(a: Any, b: Any, sigma2: Any) -> Any:
    """Return (a - b)^2 / (2 sigma2)."""
    return gaussian_exponent(1.0, a - b, sigma2)


def gaussian_upper(a: Any, level: Any, sigma2: Any) -> Any:
    """Return a + sqrt(2 sigma2 level)."""
    return a + np.sqrt(2.0 * sigma2 * level)


def bernoulli(a: Any, b: Any, sigma2: Any) -> Any:
    """Return a ln(a/b) + (1-a) ln((1-a)/(1-b)), with 0 ln 0 = 0; inf where b = 1 > a."""
    d = b - a
    some, rest = where(a > _TINY, a, 1.0), where(a < 1.0, 1.0 - a, 1.0)
    ones = where(a > _TINY, a * residual(d / some, b / some), d)
    zeros = where(a < 1.0, (1.0 - a) * residual(-d / rest, (1.0 - b) / rest), -d)
    return where(d == 0.0, 0.0, ones + zeros)


def bernoulli_upper(a: Any, level: Any, sigma2: Any) -> Any:
    """Solve by Newton steps in w = -ln(1 - b); KL is convex in w with slope (b - a) / b."""
    inner = where((a > _TINY) & (a < 1.0), a, 0.5)
    entropy = -inner * np.log(inner) - (1.0 - inner) * np.log(1.0 - inner)
    w = (level + entropy) / (1.0 - inner)  # KL >= (1-a) w - entropy, so this is right of the root
    pinsker = inner + np.sqrt(0.5 * level)
    w = np.minimum(w, where(pinsker < 1.0, -np.log1p(-where(pinsker < 1.0, pinsker, 0.0)), w))
    b = -np.expm1(-w)
    for _ in range(_STEPS):
        slope = np.maximum((b - inner) / b, 1e-300)
        kl = bernoulli(inner, b, sigma2)
        # For b > 1 - 2^-53 the float b no longer determines w; KL is linear in w there.
        kl = where(w > 36.0, (1.0 - inner) * w - entropy, kl)
        w = np.maximum(w - np.maximum(kl - level, 0.0) / slope, -np.log1p(-inner))
        b = -np.expm1(-w)
    b = np.maximum(b, inner)
    return where(a >= 1.0, 1.0, where(a <= _TINY, -np.expm1(-level), b))


def poisson(a: Any, b: Any, sigma2: Any) -> Any:
    """Return b - a + a ln(a/b); b where a = 0."""
    some = where(a > _TINY, a, 1.0)
    return where(a > _TINY, some * residual((b - some) / some, b / some), b)


def poisson_upper(a: Any, level: Any, sigma2: Any) -> Any:
    """Solve by Newton steps in z = b/a - 1, from the root of the bound z^2 / (2 (1 + z)) <= z - log1p(z)."""
    some = where(a > _TINY, a, 1.0)
    relative_level = level / some
    z = relative_level + np.sqrt(relative_level * relative_level + 2.0 * relative_level)
    for _ in range(_STEPS):
        slope = np.maximum(z / (1.0 + z), 1e-300)
        z = np.maximum(z - np.maximum(residual(z, 1.0 + z) - relative_level, 0.0) / slope, 0.0)
    return where(a > _TINY, some * (1.0 + z), level)


def exponential(a: Any, b: Any, sigma2: Any) -> Any:
    """Return a/b - 1 - ln(a/b)."""
    return residual((a - b) / b, a / b)


def exponential_upper(a: Any, level: Any, sigma2: Any) -> Any:
    """Solve by Newton steps in v = ln(b/a); KL = exp(-v) - 1 + v is convex in v."""
    v = np.minimum(level + 1.0, where(level < 1.0 / 3.0, np.sqrt(3.0 * level), level + 1.0))
    for _ in range(_STEPS):
        slope = np.maximum(-np.expm1(-v), 1e-300)
        kl = residual(np.expm1(-v), np.exp(-v))
        v = np.maximum(v - np.maximum(kl - level, 0.0) / slope, 0.0)
    return a * np.exp(v)


class Family(NamedTuple):
    """A reward family: the KL divergence of two means, its upper inverse, and the range of rewards."""

    divergence: Callable[[Any, Any, Any], Any]
    upper: Callable[[Any, Any, Any], Any]
    support: tuple[float, float]
    requires_positive_rewards: bool = False


FAMILIES = {
    "gaussian": Family(gaussian, gaussian_upper, (-np.inf, np.inf)),
    "bernoulli": Family(bernoulli, bernoulli_upper, (0.0, 1.0)),
    "poisson": Family(poisson, poisson_upper, (0.0, np.inf)),
    "exponential": Family(exponential, exponential_upper, (0.0, np.inf), requires_positive_rewards=True),
}
