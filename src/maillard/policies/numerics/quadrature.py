"""The probability that each of many independent continuous scores is the largest.

P(a) = ∫ f_a(x) Π_{b≠a} F_b(x) dx = ∫ exp(ln f_a - ln F_a + Σ_b ln F_b) dx, so one table of ln F serves every arm.
Adaptive bisection with 16-point Gauss-Legendre panels, shared by all arms; one too unlikely for them
gets a window of its own, in log space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from maillard.policies.numerics.rare_arms import TOLERANCE, Table, log_integrals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.policies.base.policy import Floats
    from maillard.policies.numerics.score_distributions import ScoreDistribution

__all__ = ["win_log_probabilities"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_EPS = float(np.finfo(np.float64).eps)
RELATIVE = 1e-10  # of an arm's probability: how far a panel may be from its halves
SMALL = 1e-20  # arms below this get a window of their own
BEYOND = 4e-30  # at most this much of a law lies past its ends, where it is not looked at
MASS = 1e-12  # how far a panel's total may be from the mass of the largest score there
WIDEST = 4.0  # panels are at most this many spreads of a law that varies on them
PANELS = 4096
CELLS = 1 << 15  # of the table held at a time (a panel for every arm at least)
GROUP = 4096  # rare arms looked at together
STEPS = 1 << 24  # comparisons of a law with an interval, beyond which every interval is in doubt
RARE = 1 << 17  # evaluations spent on tabulating the largest score's law for rare arms


class _Arms(NamedTuple):
    """Distinct arms, and how many share each law; sorted so that the highest ends come first."""

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
    """Log probability that each arm's score is the largest, and a bound on the error of each.

    >>> from maillard.policies.numerics.score_distributions import GAUSSIAN
    >>> log, error = win_log_probabilities(GAUSSIAN, np.array([0.0, -1.0]), np.array([1.0, 1.0]))
    >>> np.exp(log).round(6), bool(error.max() < 1e-9)  # the second: P(N(0, 2) > 1)
    (array([0.76025, 0.23975]), True)
    """
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    law, place, count = np.unique(a + 1j * b, return_inverse=True, return_counts=True)
    if law.size == 1:
        return np.full(a.size, -np.log(a.size)), np.full(a.size, _EPS)
    arms, order = _arrange(noise, law.real, law.imag, count.astype(np.float64))
    with np.errstate(all="ignore"):  # logarithms of 0 are -inf, as meant
        value, doubt = _integrate(arms)
        log, error = np.log(value), (doubt + BEYOND) / np.maximum(value, SMALL)
    surplus = np.log(value @ arms.copies)
    rare = np.flatnonzero(value < SMALL)
    if rare.size:
        found, error[rare] = _rare(arms, rare)
        # The shared panels have shown that these are at most SMALL, however doubtful the rest.
        log[rare] = np.minimum(found, np.log(SMALL))
    log, error = np.minimum(log - surplus, 0.0), error + abs(surplus) + 8 * _EPS * (8.0 + np.abs(log))
    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    return log[back][place], error[back][place]


def _arrange(noise: ScoreDistribution, a: Floats, b: Floats, count: Floats) -> tuple[_Arms, NDArray[np.intp]]:
    low, high = noise.ends(a, b)
    if noise.shifts:
        # Narrow laws that matter lie near the highest lower end: coordinates from there keep
        # x - a exact where it must be.
        origin = a[np.argmax(low)]
        a = a - origin
        low, high = noise.ends(a, b)
    order = np.argsort(-high, kind="stable")
    columns = (a, b, count, low, high, noise.spread(a, b))
    return _Arms(noise, *(column[order] for column in columns)), order


def _integrate(arms: _Arms) -> tuple[Floats, Floats]:
    """Probabilities by adaptive quadrature, and a bound on the error of each."""
    bottom, top = arms.low.max(), arms.high[0]
    value, doubt = np.zeros(arms.a.size), np.zeros(arms.a.size)
    edges = np.linspace(bottom, top, 9)
    left, right = edges[:-1], edges[1:]
    whole = _panels(arms, left, right)
    mass = np.exp(_log_maximum_cdf(arms, edges))
    mass_left, mass_right = mass[:-1], mass[1:]
    seen = left.size
    while left.size:
        middle = 0.5 * (left + right)
        halves = _panels(arms, _weave(left, middle), _weave(middle, right))
        both = halves[:, ::2] + halves[:, 1::2]
        off = np.abs(both - whole)
        scale = np.maximum(value + both.sum(axis=1), SMALL)
        good = (off <= RELATIVE * scale[:, None]).all(axis=0)
        good &= np.abs(arms.copies @ both - (mass_right - mass_left)) <= MASS
        good &= ~_too_wide(arms, left, right) | (mass_right < 1e-40)
        seen += 2 * left.size
        if seen > PANELS:
            good[:] = True
        good |= (middle <= left) | (middle >= right)
        value += both[:, good].sum(axis=1)
        doubt += off[:, good].sum(axis=1)
        keep = ~good
        mass_middle = np.exp(_log_maximum_cdf(arms, middle[keep]))
        whole = halves[:, np.repeat(keep, 2)]
        left, middle, right = left[keep], middle[keep], right[keep]
        mass_left, mass_right = _weave(mass_left[keep], mass_middle), _weave(mass_middle, mass_right[keep])
        left, right = _weave(left, middle), _weave(middle, right)
    return value, doubt


def _weave(first: Floats, second: Floats) -> Floats:
    """The two in turn: what belongs to a panel's left half, then to its right half."""
    return np.stack([first, second], axis=1).ravel()


def _too_wide(arms: _Arms, left: Floats, right: Floats) -> NDArray[np.bool_]:
    """Which panels are wide beside a law that varies on them: its spike could go unseen."""
    near = arms.first(int(np.count_nonzero(arms.high > left.min())))
    varies = (near.low[:, None] < right) & (near.high[:, None] > left)
    wide: NDArray[np.bool_] = np.any(varies & (WIDEST * near.spread[:, None] < right - left), axis=0)
    return wide


def _hides_a_step(arms: _Arms, left: Floats, right: Floats) -> NDArray[np.bool_]:
    """Which intervals are wide beside a law whose ln F bends on them, from falling steeply to 0."""
    if arms.a.size * left.size > STEPS:
        return np.ones(left.size, np.bool_)
    peak = arms.noise.peak(arms.a, arms.b)
    bends = ((peak - 4.0 * arms.spread)[:, None] < right) & (arms.high[:, None] > left)
    hides: NDArray[np.bool_] = np.any(bends & (WIDEST * arms.spread[:, None] < right - left), axis=0)
    return hides


def _panels(arms: _Arms, left: Floats, right: Floats) -> Floats:
    """∫ over each panel, for each arm: one 16-point rule a panel."""
    result = np.zeros((arms.a.size, left.size))
    step = max(1, CELLS // (16 * arms.a.size))
    for start in range(0, left.size, step):
        some = slice(start, start + step)
        half = 0.5 * (right[some] - left[some])
        x = (0.5 * (left[some] + right[some])[:, None] + half[:, None] * _NODES).ravel()
        # Arms that end below these panels neither win nor matter here.
        near = arms.first(int(np.count_nonzero(arms.high > left[some].min())))
        ratio = np.empty((near.a.size, x.size))
        total = np.zeros(x.size)
        rows = max(1, CELLS // x.size)
        for first in range(0, near.a.size, rows):
            part = slice(first, min(first + rows, near.a.size))
            log_cdf, ratio[part] = near.noise.logs(x, near.a[part, None], near.b[part, None])
            total += near.copies[part] @ log_cdf
        ratio += total
        density = np.exp(ratio, out=ratio).reshape(near.a.size, half.size, 16)
        result[: near.a.size, some] = (density @ _WEIGHTS) * half
    return result


def _log_maximum_cdf(arms: _Arms, x: Floats) -> Floats:
    """Σ_b ln F_b(x): the log distribution function of the largest score."""
    return _log_maximum_cdf_and_slope(arms, x)[0]


def _log_maximum_cdf_and_slope(arms: _Arms, x: Floats) -> tuple[Floats, Floats]:
    total, slope = np.zeros(x.size), np.zeros(x.size)
    rows = max(1, CELLS // max(1, x.size))
    for first in range(0, arms.a.size, rows):
        part = slice(first, first + rows)
        log_cdf, ratio = arms.noise.logs(x, arms.a[part, None], arms.b[part, None])
        total += arms.copies[part] @ log_cdf
        slope += arms.copies[part] @ np.exp(ratio)
    return total, slope


def _rare(arms: _Arms, rare: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Log probabilities of arms that win by a coincidence: they are high and all others low."""
    noise, bottom, top = arms.noise, arms.low[rare].min(), arms.high[0]
    peak = noise.peak(arms.a[rare], arms.b[rare])
    # Above all ends only the arm's own density is left, and twice as far from its peak that
    # has fallen beyond counting.
    high = top + (top - peak)
    # Such an arm wins where the leaders are far below their means: look there at every scale.
    leader = int(np.argmax(arms.low))
    depths = arms.spread[leader] * np.exp2(np.arange(-2.0, 64.0))
    below = noise.peak(arms.a[leader], arms.b[leader]) - depths
    near = np.linspace(arms.low[leader], arms.high[leader], 13)
    grid = np.concatenate([below[below > bottom], near, np.linspace(bottom, top, 9), [high.max()]])
    log, error = np.empty(rare.size), np.empty(rare.size)
    with np.errstate(all="ignore"):
        points = max(grid.size + 64, RARE // arms.a.size)
        table = Table(
            lambda x: _log_maximum_cdf_and_slope(arms, x),
            lambda left, right: _hides_a_step(arms, left, right),
            grid,
            points,
        )
        for first in range(0, rare.size, GROUP):
            part = slice(first, first + GROUP)
            some = rare[part]
            a, b = arms.a[some, None], arms.b[some, None]
            log[part], error[part], core = log_integrals(
                lambda x, a=a, b=b: noise.logs(x, a, b)[1] + table(x),  # type: ignore[misc]
                arms.low[some],
                peak[part],
                high[part],
            )
            error[part] += 4.0 * (TOLERANCE + table.doubt[table.place(core)].max(axis=1))
    return log, error
