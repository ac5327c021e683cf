"""Scores of perturbed policies: sampling, sampling from the upper tail, and the hazard of a threshold.

The distributions are those of `maillard.policies.numerics.score_distributions`, by code: Gaussian N(a, b²),
Gumbel a + b G, Beta(a, b).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard.policies.numerics import score_distributions as scores
from maillard.policies.numerics.families import poisson
from maillard.simulation.compiling import rare
from maillard.simulation.engines.random_numbers import exponential, normal, uniform

GAUSSIAN, GUMBEL, BETA = scores.GAUSSIAN.code, scores.GUMBEL.code, scores.BETA.code
MIN_PROBABILITY = 1e-320
MAX_HAZARD = 64.0  # probability e^-64, far below the resolution of 53 bits


def are_valid_parameters(code: int, a: float, b: float) -> bool:
    """Return whether a and b are parameters of the distribution."""
    least = 1.0 if code == BETA else 0.0
    return np.isfinite(a) and np.isfinite(b) and b > 0.0 and b >= least and (code != BETA or a >= least)


def sample_score(code: int, a: float, b: float, rng: Any) -> float:
    """Sample a score."""
    if code == GAUSSIAN:
        return a + b * normal(rng)
    if code == GUMBEL:
        return a - b * np.log(exponential(rng))
    return sample_beta(a, b, rng)


def sample_beta(a: float, b: float, rng: Any) -> float:
    """Sample Beta(a, b), a, b >= 1, as a ratio of gamma variables."""
    x = sample_gamma(a, rng)
    return x / (x + sample_gamma(b, rng))


@rare
def sample_gamma(shape: float, rng: Any) -> float:
    """Sample a gamma variable of shape >= 1 by rejection of a cubed normal one (Marsaglia and Tsang 2000)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        x = normal(rng)
        v = 1.0 + c * x
        if v > 0.0:
            u, v = uniform(rng), v * v * v
            if u < 1.0 - 0.0331 * x * x * x * x or np.log(u) < 0.5 * x * x + d * (1.0 - v + np.log(v)):
                return d * v


@rare
def point_at(code: int, a: float, b: float, z: float) -> float:
    """Return the location plus z times the scale: (a, b), or for Beta its mean and sd, kept inside (0, 1)."""
    if code != BETA:
        return a + z * b
    mean = a / (a + b)
    point = mean + z * np.sqrt(mean * (1.0 - mean) / (a + b + 1.0))
    return min(max(point, 0.1 * mean), 1.0 - 0.1 * (1.0 - mean))


def lowest_z(code: int) -> float:
    """Return the z that all but one in twenty thousand scores exceed."""
    return -2.3 if code == GUMBEL else -4.0


@rare
def hazard(code: int, a: float, b: float, threshold: float) -> float:
    """Return -ln P(score <= threshold), at most MAX_HAZARD.

    A longer interval on the line would make the others vanish by rounding.
    """
    z = (threshold - a) / b
    if code == GAUSSIAN and z > 0.0:
        above = -np.log1p(-0.5 * math.erfc(z * math.sqrt(0.5)))
    elif code == GAUSSIAN:
        above = -np.log(max(0.5 * math.erfc(-z * math.sqrt(0.5)), MIN_PROBABILITY))
    elif code == GUMBEL:
        above = np.exp(min(-z, 700.0))
    else:
        above = beta_hazard(a, b, threshold)
    return min(above, MAX_HAZARD)


@rare
def sample_above(code: int, a: float, b: float, threshold: float, above: float, rng: Any) -> float:
    """Sample a score given that it exceeds the threshold; `above` is its hazard."""
    if code == GAUSSIAN:
        return a + b * sample_normal_above((threshold - a) / b, rng)
    if code == GUMBEL:  # -ln F(score) is exponential; here truncated at its value for the threshold
        return a - b * np.log(-np.log1p(uniform(rng) * np.expm1(-above)))
    return sample_beta_above(a, b, threshold, above, rng)


def sample_below(code: int, a: float, b: float, threshold: float, rng: Any) -> float:
    """Sample a score given that it does not exceed the threshold, by rejection: few exceed it."""
    score = sample_score(code, a, b, rng)
    while score > threshold:
        score = sample_score(code, a, b, rng)
    return score


def sample_normal_above(z: float, rng: Any) -> float:
    """Sample a standard normal above z: by rejection, or from an exponential envelope (Robert 1995)."""
    if z < 0.5:
        x = normal(rng)
        while x <= z:
            x = normal(rng)
        return x
    rate = 0.5 * (z + np.sqrt(z * z + 4.0))
    while True:
        x = z + exponential(rng) / rate
        if 2.0 * exponential(rng) > (x - rate) * (x - rate):
            return x


@rare
def sample_beta_above(a: float, b: float, threshold: float, above: float, rng: Any) -> float:
    """Sample Beta(a, b), a, b >= 1, above a threshold: by rejection, or under a log-density tangent."""
    slope = (b - 1.0) / (1.0 - threshold) - (a - 1.0) / threshold
    if above > 0.4 or slope <= 0.0:
        x = sample_beta(a, b, rng)
        while x <= threshold:
            x = sample_beta(a, b, rng)
        return x
    within = -np.expm1(-slope * (1.0 - threshold))
    while True:
        step = -np.log1p(-uniform(rng) * within) / slope
        x = threshold + step
        if x >= 1.0:
            continue
        log = (a - 1.0) * np.log1p(step / threshold) + (b - 1.0) * np.log1p(-step / (1.0 - threshold))
        if exponential(rng) > -(log + slope * step):
            return x


@rare
def beta_hazard(a: float, b: float, x: float) -> float:
    """Return -ln of the regularised incomplete Beta function, by its continued fraction."""
    y = 1.0 - x
    log = np.log(x) + np.log1p(-x) + np.log(a + b - 1.0) + log_binomial_probability(a - 1.0, b - 1.0, x)
    if x * (a + b + 2.0) < a + 1.0:
        return min(max(-(log - np.log(a * beta_fraction(x, a, b))), 0.0), 740.0)
    return -np.log1p(-min(np.exp(log - np.log(b * beta_fraction(y, b, a))), 1.0 - 1e-16))


def beta_fraction(x: float, a: float, b: float) -> float:
    """C in F(x) = x^a (1-x)^b / (a B(a, b)) / C, by Lentz's method (DLMF 8.17.22)."""
    value, c, d = 1.0, 1.0, 0.0
    for k in range(1, 20000):
        m = k // 2
        if k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d)
        c = 1.0 + term / c
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def log_binomial_probability(i: float, j: float, p: float) -> float:
    """ln of (i+j)! / (i! j!) p^i (1-p)^j for real i, j >= 0, by Loader's saddle-point form."""
    if i == 0.0:
        return j * np.log1p(-p)
    if j == 0.0:
        return i * np.log(p)
    n = i + j
    distance = poisson(i, n * p, 0.0) + poisson(j, n * (1.0 - p), 0.0)
    errors = stirling_error(n) - stirling_error(i) - stirling_error(j)
    return errors + 0.5 * np.log(n / (2.0 * np.pi * i * j)) - distance + 0.0


def stirling_error(z: float) -> float:
    """ln z! minus Stirling's formula for it, z > 0."""
    if z < 16.0:
        return math.lgamma(z + 1.0) - (z + 0.5) * np.log(z) + z - 0.5 * np.log(2.0 * np.pi)
    w = 1.0 / (z * z)
    return (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / z
