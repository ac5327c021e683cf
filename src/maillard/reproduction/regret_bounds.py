"""Regret bounds of MS and MS+ with all constants, and the slopes of the lower bounds.

Sections 1, 5 and 6 of docs/explanation/paper-notes.md derive the bounds. For an arm with gap Δ, let A =
2σ²/Δ² and y = T/A. For every c > 0, with h = 2A(1 + 1/c)² (which is g/4 in section 1) and u = ⌈A(1+c)² ℓ⌉,
both proofs end with

    E N ≤ early(u) + F1 + 2h + B (1 + C ln(1 + ln₊(T/u))) F3(h)

    MS, ms-practical (C = 0)   ℓ = ln₊(y)                   early(u) = 1 + u       F1 = A/B
    MS+                        ℓ = ln₊(y(1 + ln(1 + y)))    early(u) = max(1, u)   F1 = max(1, 2D) A/B

In the *summed* form, F3 is Σ_{k,q≥1} e^{-(q+½)k/(4h)} / (1 + D k q²/(8h)), with D = 0 for MS. In the *closed*
form, F3 is the estimate of this sum in the proofs: 4h(3 + ln(4h + ½)) for D = 0, and (40/D + 8)h for MS+. For
each arm and horizon, the bound is minimised over c. Regret is ΣΔ E N.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maillard.array_types import Floats
from maillard.policies.numerics.families import FAMILIES
from maillard.problems import Gaussian, Problem

Function = Callable[[Floats], Floats]

# Grids of ln c for the minimisation. The best c is near 1 for MS and of order (B/(Dℓ))^¼ for MS+. The fine
# grid is centred at the minimum on the coarse one. With parabolic interpolation, the relative error is below
# 3e-6.
_COARSE = np.linspace(np.log(0.05), np.log(500.0), 18)[:, None, None]
_FINE = np.linspace(-0.2, 0.2, 5)[:, None, None]
_POINTS = 6  # quadrature points for a sum between two powers of 2: relative error 2e-9
_OCTAVES = (-5, 19)  # h from 2^-5 to 2^19; beyond that, 2h alone exceeds a million pulls
_NODES = 24  # points per octave in the table of F3: its chords are too high by at most 1e-4 for h >= 1


class RegretBound(NamedTuple):
    """Bounds on regret at each horizon.

    An arm is pulled at most T times. `capped` and `summed` limit each E N to T; `closed` does not, so that it
    shows how far a vacuous bound is from a useful one. None of them uses that the pulls of all arms add up to
    T, so each may exceed `most`, the regret of always pulling the worst arm.
    """

    closed: Floats  # the closed form, as the proof gives it
    capped: Floats  # the closed form, with each E N at most T
    summed: Floats  # the summed form, with each E N at most T
    most: Floats  # T times the largest gap

    @property
    def vacuous(self) -> NDArray[np.bool_]:
        """Where the capped closed form is not below `most`.

        The uncapped form would be misleading: one arm with a gap near 0 could raise the sum above `most`,
        although its T pulls cost almost nothing and the bounds of the other arms are useful.
        """
        return self.capped >= self.most


class _Proof(NamedTuple):
    """The quantities in which the bounds of MS and MS+ differ, with the names of the module docstring."""

    level: Function  # ℓ as a function of y
    early: Function  # bound on the pulls while N is small, as a function of u
    first: float  # F1 / A
    booster: float
    c: float
    closed: Function  # F3 as a function of h, estimated
    summed: Function  # the same, summed


def maillard_sampling(gaps: ArrayLike, sigma2: float, horizons: ArrayLike) -> RegretBound:
    """The regret bound of MS: section 1 of docs/explanation/paper-notes.md with B = 1.

    >>> bound = maillard_sampling([0, 0.5], 0.25, [20_000])
    >>> float(bound.closed[0].round()), float(bound.summed[0].round())
    (212.0, 153.0)
    """
    return practical(gaps, sigma2, horizons, booster=1.0)


def practical(gaps: ArrayLike, sigma2: float, horizons: ArrayLike, *, booster: float) -> RegretBound:
    """The regret bound of `ms-practical`, MS+ with C = D = 0: section 1 of paper-notes.md."""
    proof = _Proof(
        level=lambda y: np.log(np.maximum(1.0, y)),
        early=lambda u: 1.0 + u,
        first=1.0 / booster,
        booster=booster,
        c=0.0,
        closed=lambda h: 4.0 * h * (3.0 + np.log(4.0 * h + 0.5)),
        summed=lambda h: _interpolated(h, 0.0),
    )
    return _regret(gaps, sigma2, horizons, proof)


def maillard_sampling_plus(
    gaps: ArrayLike, sigma2: float, horizons: ArrayLike, *, booster: float, c: float, d: float
) -> RegretBound:
    """The regret bound of MS+ with d > 0: section 6 of docs/explanation/paper-notes.md."""
    proof = _Proof(
        level=lambda y: np.log(np.maximum(1.0, y * (1.0 + np.log1p(y)))),
        early=lambda u: np.maximum(1.0, u),
        first=max(1.0, 2.0 * d) / booster,
        booster=booster,
        c=c,
        closed=lambda h: (40.0 / d + 8.0) * h,
        summed=lambda h: _interpolated(h, d),
    )
    return _regret(gaps, sigma2, horizons, proof)


def lai_robbins(problem: Problem) -> float:
    """The asymptotic lower bound of Lai and Robbins on regret per unit of ln T: ΣΔ/KL over suboptimal arms.

    Rewards must be from a family with one parameter: Gaussian with known variances, Bernoulli, Poisson or
    exponential.

    >>> from maillard.problems import Bernoulli
    >>> round(lai_robbins(Bernoulli([0.1, 0.05])), 2)
    2.99
    """
    means, gaps = problem.true_means, problem.gaps
    variance = np.broadcast_to(problem.variance if isinstance(problem, Gaussian) else np.nan, means.shape)
    worse = gaps > 0
    # KL is infinite if the best arm always pays 1: then regret need not grow.
    with np.errstate(divide="ignore"):
        kl = FAMILIES[problem.name].divergence(means[worse], means.max(), variance[worse])
    return float((gaps[worse] / kl).sum())


def sub_gaussian_slope(gaps: ArrayLike, sigma2: float) -> float:
    """The slope of regret in ln T by the theorems of MS and MS+, for σ²-sub-Gaussian rewards: Σ2σ²/Δ."""
    gaps = np.asarray(gaps, np.float64)
    return float((2.0 * sigma2 / gaps[gaps > 0]).sum())


def _regret(gaps: ArrayLike, sigma2: float, horizons: ArrayLike, proof: _Proof) -> RegretBound:
    gaps, horizons = np.asarray(gaps, np.float64), np.asarray(horizons, np.float64)
    gap, arms = np.unique(gaps[gaps > 0], return_counts=True)
    a = (2.0 * sigma2 / gap**2)[:, None]
    closed = _pulls(a, horizons, proof, proof.closed)
    # The table of sums is finite and interpolated from above, so the closed form may be the smaller bound.
    summed = _pulls(a, horizons, proof, lambda h: np.minimum(proof.closed(h), proof.summed(h)))
    cost = gap * arms
    return RegretBound(
        closed=cost @ closed,
        capped=cost @ np.minimum(closed, horizons),
        summed=cost @ np.minimum(summed, horizons),
        most=horizons * gaps.max(),
    )


def _pulls(a: Floats, horizons: Floats, proof: _Proof, third: Function) -> Floats:
    """The bound on E N, minimised over c, for each A (a column) and each horizon."""
    base = a * proof.level(horizons / a)

    def total(u: Floats, c: Floats) -> Floats:
        h = 2.0 * a * (1.0 + 1.0 / c) ** 2
        early = proof.early(u)
        boost = np.array(proof.booster)
        if proof.c:
            boost = boost * (1.0 + proof.c * np.log1p(np.log(np.maximum(1.0, horizons / early))))
        return early + (proof.first * a + 2.0 * h + boost * third(h))

    # If u is not rounded up, the bound is convex in c: u and h are convex, F3 is increasing and convex in h
    # (see `_table`), and the boost is decreasing and convex while u < T/e. So a grid finds the minimum if it
    # is below T/e. Otherwise the value may not be the minimum, but it is still a valid bound.
    log_c = _COARSE
    for window in (0.0, _FINE):
        log_c = log_c + window
        c = np.exp(log_c)
        log_c = _vertex(log_c, total(base * (1.0 + c) ** 2, c))
    # The best integer u is one of the two neighbours of this minimum, and the best c is the largest with this
    # u: infinite if ℓ is 0.
    low = np.floor(base * (1.0 + np.exp(log_c)) ** 2)
    least = np.full(base.shape, np.inf)
    for u in (low, low + 1.0):
        c = np.where(base > 0, np.sqrt(u / np.where(base > 0, base, 1.0)) - 1.0, np.inf)
        fits = c > 0
        least = np.where(fits, np.minimum(least, total(u, np.where(fits, c, 1.0))), least)
    return least


def _vertex(x: Floats, values: Floats) -> Floats:
    """The minimum of the parabola through the least value and its neighbours, for evenly spaced x."""
    at = np.clip(values.argmin(axis=0), 1, len(x) - 2)
    left, middle, right = (np.take_along_axis(values, (at + i)[None], axis=0)[0] for i in (-1, 0, 1))
    bend = left - 2.0 * middle + right
    steps = 0.5 * (left - right) / np.where(bend > 0, bend, np.inf)
    return np.asarray(x[0] + (x[1] - x[0]) * (at + np.clip(steps, -1.0, 1.0)))


def _interpolated(h: Floats, d: float) -> Floats:
    """An upper bound on the summed F3, by interpolation; infinite beyond the end of the table."""
    return np.interp(h, *_table(d), right=np.inf)


@functools.lru_cache(maxsize=16)
def _table(d: float) -> tuple[Floats, Floats]:
    """A grid of h, and the values of F3 on it.

    F3 is increasing and convex, so linear interpolation gives an upper bound, and so does the first value for
    smaller h. Proof of convexity: each term is a completely monotone function of k/h, that is, a mixture of
    e^{-sk/h} over s > 0. Its sum over k is a mixture of 1/(e^{s/h} - 1). The derivative of this in h is
    (x/sinh x)²/s with x = s/(2h), which increases with h.
    """
    first, last = _OCTAVES
    h = 2.0 ** (np.arange(first * _NODES, last * _NODES + 1) / _NODES)
    return h, np.array([_double_sum(value, d) for value in h.tolist()])


def _double_sum(h: float, d: float) -> float:
    """Σ_{k,q≥1} e^{-(q+½)k/(4h)} / (1 + D k q²/(8h))."""
    exponents, inflations, weights = _pairs()
    many = np.searchsorted(exponents, 180.0 * h)  # the other terms are below e^-45
    terms = np.exp(exponents[:many] / (-4.0 * h)) / (1.0 + inflations[:many] * (d / (8.0 * h)))
    return float((weights[:many] * terms).sum())


@functools.cache
def _pairs() -> tuple[Floats, Floats, Floats]:
    """(q+½)k, kq² and the weight of every pair of points of the sum rule, sorted by the first."""
    points, weights = _sum_rule()
    k, q = points, points[:, None]
    exponents = ((q + 0.5) * k).ravel()
    order = np.argsort(exponents)
    return exponents[order], (k * q * q).ravel()[order], np.outer(weights, weights).ravel()[order]


def _sum_rule() -> tuple[Floats, Floats]:
    """Points x and weights w with Σ w f(x) = Σ_{n≥1} f(n), for functions f that are smooth on each octave.

    Between two powers of 2, this is the Gauss rule for the sum over the integers. It is exact for polynomials
    of degree below 2 _POINTS. It is computed from the recurrence of the discrete Chebyshev polynomials (Golub
    and Welsch 1969).
    """
    points, weights = [], []
    for octave in range(_OCTAVES[1] + 8):
        n = 2**octave
        j = np.arange(1.0, min(n, _POINTS))
        beside = np.sqrt(j**2 * (n**2 - j**2) / (4.0 * (4.0 * j**2 - 1.0)))
        x, vectors = np.linalg.eigh(np.diag(beside, 1) + np.diag(beside, -1))
        points.append(n + (n - 1) / 2.0 + x)
        weights.append(n * vectors[0] ** 2)
    return np.concatenate(points), np.concatenate(weights)
