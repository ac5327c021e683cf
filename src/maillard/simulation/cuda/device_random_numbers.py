"""Random numbers on a GPU: one xoroshiro128++ stream per trial (Blackman and Vigna 2021).

Philox4x32-10 (Salmon et al. 2011), keyed by the seed and the policy, turns the trial's number into the
initial state.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard.simulation.compiling import rare

# All constants have the generator's type: with Python integers, compiled code would switch to floats.
_11, _15, _17, _21, _28, _32, _36, _47, _49 = (
    np.uint64(each) for each in (11, 15, 17, 21, 28, 32, 36, 47, 49)
)
_ONE, _LOW = np.uint64(1), np.uint64(0xFFFFFFFF)
_M0, _M1, _W0, _W1 = (np.uint64(each) for each in (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85))
_UNIT = 2.0**-53


def bits(rng: Any) -> Any:
    """Return 64 random bits and advance the state."""
    a, b = rng[0], rng[1]
    total, c = a + b, a ^ b
    rng[0] = ((a << _49) | (a >> _15)) ^ c ^ (c << _21)
    rng[1] = (c << _28) | (c >> _36)
    return ((total << _17) | (total >> _47)) + a


def uniform(rng: Any) -> float:
    """Uniform on [0, 1), in steps of 2^-53."""
    return float(bits(rng) >> _11) * _UNIT


def above_zero(rng: Any) -> float:
    """Sample uniformly on (0, 1]."""
    return float((bits(rng) >> _11) + _ONE) * _UNIT


def exponential(rng: Any) -> float:
    """Exponential of mean 1."""
    return -math.log(above_zero(rng))


def normal(rng: Any) -> float:
    """Standard normal."""
    return normals(rng)[0]


def normals(rng: Any) -> tuple[float, float]:
    """Sample two standard normals by Box and Muller's transform, which has no branches."""
    radius = math.sqrt(-2.0 * math.log(above_zero(rng)))
    sine, cosine = sincospi(2.0 * uniform(rng))
    return radius * cosine, radius * sine


def sincospi(x: float) -> tuple[float, float]:
    """Return the sine and the cosine of pi x; a GPU has its own function."""
    return math.sin(math.pi * x), math.cos(math.pi * x)


@rare
def seed_stream(rng: Any, key: Any, trial: Any) -> None:
    """Set the initial state of a trial: Philox4x32-10 of its number, keyed by the experiment."""
    a, b, c, d = trial & _LOW, trial >> _32, key[1] & _LOW, key[1] >> _32
    low, high = key[0] & _LOW, key[0] >> _32
    for _ in range(10):
        first, second = a * _M0, c * _M1
        a, b, c, d = (second >> _32) ^ b ^ low, second & _LOW, (first >> _32) ^ d ^ high, first & _LOW
        low, high = (low + _W0) & _LOW, (high + _W1) & _LOW
    rng[0], rng[1] = a | (b << _32), c | (d << _32)
