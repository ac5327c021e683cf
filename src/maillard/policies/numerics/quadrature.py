"""The probability that each of many independent continuous scores is the largest.

P(a) = ∫ f_a(x) Π_{b≠a} F_b(x) dx = ∫ exp(ln f_a - ln F_a + Σ_b ln F_b) dx, so Σ_b ln F_b is computed once for
all arms. The integral is split into panels with a 16-point Gauss-Legendre rule each, and a panel is halved
until it agrees with its halves. All arms share the panels. Arms with a probability below 1e-20 are integrated
separately, in log space (`rare_arms`).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from maillard.array_types import Bools, Floats, Indices
from maillard.policies.numerics.rare_arms import TOLERANCE, InterpolationTable, log_integrals
from maillard.policies.numerics.score_distributions import ScoreDistribution

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_EPS = float(np.finfo(np.float64).eps)
PANEL_TOLERANCE = 1e-10  # allowed difference between a panel and its halves, relative to an arm's probability
RARE_PROBABILITY = 1e-20  # arms below this are integrated separately
TRUNCATED_MASS = 4e-30  # bound on the probability outside the ends of a distribution, which is ignored
MASS_TOLERANCE = 1e-12  # allowed difference between a panel's total and the mass of the largest score there
MAX_PANEL_WIDTH = 4.0  # in units of the scale of any distribution that varies on the panel
MAX_PANELS = 4096
BLOCK_SIZE = 1 << 15  # values of ln F in memory at a time (at least one panel for every arm)
RARE_BLOCK = 4096  # rare arms that are integrated together
MAX_COMPARISONS = 1 << 24  # of a distribution with an interval; above it, every interval counts as unresolved
RARE_EVALUATIONS = 1 << 17  # evaluations for the table of the largest score's distribution


class _Arms(NamedTuple):
    """Distinct score distributions and their numbers of copies, sorted by upper end, highest first."""

    noise: ScoreDistribution
    a: Floats
    b: Floats
    copies: Floats
    low: Floats
    high: Floats
    spread: Floats

    def first(self, k: int) -> _Arms:
        return _Arms(self.noise, *(column[:k] for column in self[1:]))


def win_log_probabilities(noise: ScoreDistribution, a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the log probability that each arm has the largest score, and a bound on the error of each.

    >>> from maillard.policies.numerics.score_distributions import GAUSSIAN
    >>> log, error = win_log_probabilities(GAUSSIAN, np.array([0.0, -1.0]), np.array([1.0, 1.0]))
    >>> np.exp(log).round(6), bool(error.max() < 1e-9)  # P(N(0, 2) > 1) for the second arm
    (array([0.76025, 0.23975]), True)
    """
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    distinct, place, count = np.unique(a + 1j * b, return_inverse=True, return_counts=True)
    if distinct.size == 1:
        return np.full(a.size, -np.log(a.size)), np.full(a.size, _EPS)
    arms, order = _arrange(noise, distinct.real, distinct.imag, count.astype(np.float64))
    with np.errstate(all="ignore"):  # log(0) = -inf is intended
        value, error = _integrate(arms)
        log, error = np.log(value), (error + TRUNCATED_MASS) / np.maximum(value, RARE_PROBABILITY)
    surplus = np.log(value @ arms.copies)
    rare = np.flatnonzero(value < RARE_PROBABILITY)
    if rare.size:
        found, error[rare] = _rare(arms, rare)
        # The shared panels have shown that these probabilities are at most RARE_PROBABILITY.
        log[rare] = np.minimum(found, np.log(RARE_PROBABILITY))
    log, error = np.minimum(log - surplus, 0.0), error + abs(surplus) + 8 * _EPS * (8.0 + np.abs(log))
    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    return log[back][place], error[back][place]


def _arrange(noise: ScoreDistribution, a: Floats, b: Floats, count: Floats) -> tuple[_Arms, Indices]:
    low, high = noise.ends(a, b)
    if noise.shifts:
        # The narrow distributions that matter are near the highest lower end. With the origin there, x - a is
        # exact.
        origin = a[np.argmax(low)]
        a = a - origin
        low, high = noise.ends(a, b)
    order = np.argsort(-high, kind="stable")
    columns = (a, b, count, low, high, noise.spread(a, b))
    return _Arms(noise, *(column[order] for column in columns)), order


def _integrate(arms: _Arms) -> tuple[Floats, Floats]:
    """Return probabilities by adaptive quadrature, and a bound on the error of each."""
    bottom, top = arms.low.max(), arms.high[0]
    value, error = np.zeros(arms.a.size), np.zeros(arms.a.size)
    edges = np.linspace(bottom, top, 9)
    left, right = edges[:-1], edges[1:]
    whole = _panels(arms, left, right)
    mass = np.exp(_log_maximum_cdf(arms, edges))
    mass_left, mass_right = mass[:-1], mass[1:]
    seen = left.size
    while left.size:
        middle = 0.5 * (left + right)
        halves = _panels(arms, _interleave(left, middle), _interleave(middle, right))
        both = halves[:, ::2] + halves[:, 1::2]
        off = np.abs(both - whole)
        scale = np.maximum(value + both.sum(axis=1), RARE_PROBABILITY)
        good = (off <= PANEL_TOLERANCE * scale[:, None]).all(axis=0)
        good &= np.abs(arms.copies @ both - (mass_right - mass_left)) <= MASS_TOLERANCE
        good &= ~_too_wide(arms, left, right) | (mass_right < 1e-40)
        seen += 2 * left.size
        if seen > MAX_PANELS:
            good[:] = True
        good |= (middle <= left) | (middle >= right)
        value += both[:, good].sum(axis=1)
        error += off[:, good].sum(axis=1)
        keep = ~good
        mass_middle = np.exp(_log_maximum_cdf(arms, middle[keep]))
        whole = halves[:, np.repeat(keep, 2)]
        left, middle, right = left[keep], middle[keep], right[keep]
        mass_left = _interleave(mass_left[keep], mass_middle)
        mass_right = _interleave(mass_middle, mass_right[keep])
        left, right = _interleave(left, middle), _interleave(middle, right)
    return value, error


def _interleave(first: Floats, second: Floats) -> Floats:
    """Return first[0], second[0], first[1], second[1], ..."""
    return np.stack([first, second], axis=1).ravel()


def _too_wide(arms: _Arms, left: Floats, right: Floats) -> Bools:
    """Return which panels are much wider than a distribution that varies on them, and could miss its peak."""
    near = arms.first(int(np.count_nonzero(arms.high > left.min())))
    varies = (near.low[:, None] < right) & (near.high[:, None] > left)
    wide: Bools = np.any(varies & (MAX_PANEL_WIDTH * near.spread[:, None] < right - left), axis=0)
    return wide


def _may_miss_bend(arms: _Arms, left: Floats, right: Floats) -> Bools:
    """Return which intervals are much wider than a distribution whose ln F bends on them."""
    if arms.a.size * left.size > MAX_COMPARISONS:
        return np.ones(left.size, np.bool_)
    peak = arms.noise.peak(arms.a, arms.b)
    bends = ((peak - 4.0 * arms.spread)[:, None] < right) & (arms.high[:, None] > left)
    hides: Bools = np.any(bends & (MAX_PANEL_WIDTH * arms.spread[:, None] < right - left), axis=0)
    return hides


def _panels(arms: _Arms, left: Floats, right: Floats) -> Floats:
    """Return the integral over each panel for each arm, by a 16-point rule."""
    result = np.zeros((arms.a.size, left.size))
    step = max(1, BLOCK_SIZE // (16 * arms.a.size))
    for start in range(0, left.size, step):
        some = slice(start, start + step)
        half = 0.5 * (right[some] - left[some])
        x = (0.5 * (left[some] + right[some])[:, None] + half[:, None] * _NODES).ravel()
        # Arms whose scores lie below these panels have density 0 and F = 1 here.
        near = arms.first(int(np.count_nonzero(arms.high > left[some].min())))
        ratio = np.empty((near.a.size, x.size))
        total = np.zeros(x.size)
        rows = max(1, BLOCK_SIZE // x.size)
        for first in range(0, near.a.size, rows):
            part = slice(first, min(first + rows, near.a.size))
            log_cdf, ratio[part] = near.noise.logs(x, near.a[part, None], near.b[part, None])
            total += near.copies[part] @ log_cdf
        ratio += total
        density = np.exp(ratio, out=ratio).reshape(near.a.size, half.size, 16)
        result[: near.a.size, some] = (density @ _WEIGHTS) * half
    return result


def _log_maximum_cdf(arms: _Arms, x: Floats) -> Floats:
    """Return Σ_b ln F_b(x), the log distribution function of the largest score."""
    return _log_maximum_cdf_and_slope(arms, x)[0]


def _log_maximum_cdf_and_slope(arms: _Arms, x: Floats) -> tuple[Floats, Floats]:
    total, slope = np.zeros(x.size), np.zeros(x.size)
    rows = max(1, BLOCK_SIZE // max(1, x.size))
    for first in range(0, arms.a.size, rows):
        part = slice(first, first + rows)
        log_cdf, ratio = arms.noise.logs(x, arms.a[part, None], arms.b[part, None])
        total += arms.copies[part] @ log_cdf
        slope += arms.copies[part] @ np.exp(ratio)
    return total, slope


def _rare(arms: _Arms, rare: Indices) -> tuple[Floats, Floats]:
    """Return log probabilities of rare arms, and bounds on their errors.

    Such an arm has the largest score only if its own score is high and all other scores are low.
    """
    noise, bottom, top = arms.noise, arms.low[rare].min(), arms.high[0]
    peak = noise.peak(arms.a[rare], arms.b[rare])
    # Above the ends of all other arms only the arm's own density matters; twice as far from its peak, it is
    # negligible.
    high = top + (top - peak)
    # A rare arm is largest where the leaders are far below their means: place grid points there at every
    # scale.
    leader = int(np.argmax(arms.low))
    depths = arms.spread[leader] * np.exp2(np.arange(-2.0, 64.0))
    below = noise.peak(arms.a[leader], arms.b[leader]) - depths
    near = np.linspace(arms.low[leader], arms.high[leader], 13)
    grid = np.concatenate([below[below > bottom], near, np.linspace(bottom, top, 9), [high.max()]])
    log, error = np.empty(rare.size), np.empty(rare.size)
    with np.errstate(all="ignore"):
        points = max(grid.size + 64, RARE_EVALUATIONS // arms.a.size)
        function, too_wide = partial(_log_maximum_cdf_and_slope, arms), partial(_may_miss_bend, arms)
        table = InterpolationTable(function, too_wide, grid, points)
        for first in range(0, rare.size, RARE_BLOCK):
            part = slice(first, first + RARE_BLOCK)
            some = rare[part]
            a, b = arms.a[some, None], arms.b[some, None]
            log[part], error[part], core = log_integrals(
                lambda x, a=a, b=b: noise.logs(x, a, b)[1] + table(x),  # type: ignore[misc]
                arms.low[some],
                peak[part],
                high[part],
            )
            error[part] += 4.0 * (TOLERANCE + table.error[table.interval_index(core)].max(axis=1))
    return log, error
