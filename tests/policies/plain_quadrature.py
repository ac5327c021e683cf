"""Quadrature with special functions, without shared densities, tables or interpolation: slow and simple.

The integral of each arm is computed on its own, over panels that are halved until the halves agree with
the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from maillard.policies.numerics.score_distributions import ScoreDistribution

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def win_log_probabilities(
    noise: ScoreDistribution, a: np.ndarray, b: np.ndarray, *, refine: bool = True
) -> np.ndarray:
    """Return the log probability that each arm has the largest score; without `refine`, of poor accuracy."""
    low, high = noise.ends(a, b)
    top = float(high.max())
    with np.errstate(all="ignore"):
        logs = [_log_integral(noise, a, b, arm, float(low[arm]), top, refine) for arm in range(a.size)]
    return np.asarray(logs, np.float64)


def _log_integral(
    noise: ScoreDistribution, a: np.ndarray, b: np.ndarray, arm: int, low: float, top: float, refine: bool
) -> float:
    peak = float(noise.peak(a, b)[arm])
    start, end = low, top + (top - peak)

    def h(x: np.ndarray) -> np.ndarray:
        log_cdf, ratio = noise.logs(x, a[:, None], b[:, None])
        total: np.ndarray = log_cdf.sum(axis=0) + ratio[arm]
        return total

    for _ in range(40):  # a grid that becomes finer around its highest point
        x = np.linspace(start, end, 401)
        values = np.nan_to_num(h(x), nan=-np.inf)
        best = int(np.argmax(values))
        near = np.flatnonzero(values > values[best] - 60.0)
        if near.size > 100:
            break
        start, end = x[max(near[0] - 1, 0)], x[min(near[-1] + 1, 400)]
    first, last = x[max(near[0] - 1, 0)], x[min(near[-1] + 1, 400)]
    height = float(values[best])
    edges = np.linspace(first, last, 33 if refine else 3)

    def panel(left: float, right: float) -> float:
        half = 0.5 * (right - left)
        return float(np.exp(h(0.5 * (left + right) + half * _NODES) - height) @ _WEIGHTS * half)

    whole = [panel(left, right) for left, right in itertools.pairwise(edges)]
    if not refine:
        return height + float(np.log(sum(whole)))
    total = sum(
        _adaptive(panel, left, right, value, 1e-13 * sum(whole), 30)
        for left, right, value in zip(edges[:-1], edges[1:], whole, strict=True)
    )
    return height + float(np.log(total))


def _adaptive(
    panel: Callable[[float, float], float],
    left: float,
    right: float,
    whole: float,
    allowed: float,
    depth: int,
) -> float:
    middle = 0.5 * (left + right)
    halves = panel(left, middle), panel(middle, right)
    if depth == 0 or abs(sum(halves) - whole) <= allowed:
        return sum(halves)
    return _adaptive(panel, left, middle, halves[0], allowed, depth - 1) + _adaptive(
        panel, middle, right, halves[1], allowed, depth - 1
    )
