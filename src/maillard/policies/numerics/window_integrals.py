"""Integrals for arms whose probability is too small for shared panels, each over its own window.

Such an arm has the largest score only if its own score is high and all other scores are low. The integrand
exp(h), with h = ln f_a - ln F_a + Σ_b ln F_b, is log-concave. Newton steps find its peak and the window
outside of which it is negligible. For few arms, the window is divided into panels that are narrow compared
with the scale on which any ln F bends. For many arms, Σ_b ln F_b is interpolated, and a window has few
panels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from maillard.array_types import Floats, Indices
from maillard.policies.numerics.distinct_arms import Arms
from maillard.policies.numerics.rival_sums import Curve, InterpolatedSum, own_curve, sum_of_logs
from maillard.policies.numerics.shared_panels import LAST_TERMS, NODES, WEIGHTS, last_terms_error

_FEW = 1 << 10  # up to this product of rare arms and arms, sums are evaluated at every node
_DEPTH = 30.0  # a window ends where the integrand has fallen by a factor exp(-30)
_SLACK = 12.0  # or at most by a further factor exp(-12)
_PEAK_ACCURACY = 1e-3  # of h at its peak
_STEPS = 60  # of Newton's method
_WIDTH = 1.5  # of a panel, in units of the scale of any distribution that bends there
_PARTS = 6  # of a window, at least
_MOST_PANELS = 256
_EVALUATIONS = 1 << 17  # of ln F for interpolation, but at least _ADDED points
_ADDED = 64
_BLOCK = 4096  # rare arms that are integrated together
_FAR = -300.0  # with many rare arms, integrals of exp(h) with smaller h everywhere are approximated
_ROUGH = 0.01  # error bound for them, relative to the logarithm
# Panel edges between the outer end of a window (0) and the peak (1), where the integrand may bend sharply.
_GRADED, _COARSE = np.array([0, 1 / 4, 1 / 2, 3 / 4, 15 / 16, 63 / 64, 1]), np.array([0.0, 1.0])
_MANY = 256  # with more rare arms than this, panels are coarse
_BEND = 1e-3  # error bound for a bend that a window with few panels may miss
_EPS = float(np.finfo(np.float64).eps)


def log_window_integrals(arms: Arms, rare: Indices) -> tuple[Floats, Floats]:
    """Return the log probability of each rare arm, and a bound on its error."""
    grid = _grid(arms, rare)
    few = rare.size * arms.a.size <= _FEW
    most = grid.size if few else max(grid.size + _ADDED, _EVALUATIONS // arms.a.size)
    with np.errstate(all="ignore"):
        table = InterpolatedSum(arms, grid, most)
        step = rare.size if few else _BLOCK
        solve = _few_integrals if few else _many_integrals
        parts = [solve(arms, rare[i : i + step], table) for i in range(0, rare.size, step)]
    return np.concatenate([log for log, _ in parts]), np.concatenate([error for _, error in parts])


def _grid(arms: Arms, rare: Indices) -> Floats:
    """Return points at every scale below the score of the leader, and up to the end of every integrand."""
    bottom, top = arms.low[rare].min(), arms.high[0]
    leader = int(np.argmax(arms.low))
    depths = arms.spread[leader] * np.exp2(np.arange(-2.0, 64.0))
    below = arms.peak[leader] - depths
    near = np.linspace(arms.low[leader], arms.high[leader], 13)
    # Above all arms only the arm's own density matters; twice as far from its peak, it is negligible.
    end = top + (top - arms.peak[rare].min())
    return np.concatenate([below[below > bottom], near, np.linspace(bottom, top, 9), [end]])


def _few_integrals(arms: Arms, rare: Indices, table: InterpolatedSum) -> tuple[Floats, Floats]:
    """Integrate with exact values over narrow panels."""

    def curve(x: Floats) -> Curve:
        return own_curve(arms, rare, x) + sum_of_logs(arms, x)

    top, peak = _peak(curve, *_bracket(arms, rare, table))
    edges = _fine_edges(arms, rare, _end(curve, top, peak, -1.0), _end(curve, top, peak, 1.0))
    log, last = _integrate(edges, peak.value, lambda x: arms.logs(x, rare)[1] + sum_of_logs(arms, x).value)
    reached = (arms.low[:, None] < top) & (arms.high[:, None] > top)
    narrowest = np.where(reached, arms.spread[:, None], np.inf).min(axis=0)
    error = last_terms_error(last, 1.0) + _rounding(arms, rare, top, narrowest)
    return _with_peaks(log, error, peak.value)


def _many_integrals(arms: Arms, rare: Indices, table: InterpolatedSum) -> tuple[Floats, Floats]:
    """Integrate with interpolated values over two panels, or approximate the integral by Laplace's method."""

    def curve_of(which: Indices) -> Callable[[Floats], Curve]:
        return lambda x: own_curve(arms, which, x) + table(x)

    top, peak = _peak(curve_of(rare), *_bracket(arms, rare, table))
    log, error = peak.value + 0.5 * np.log(-2.0 * np.pi / peak.bend), _ROUGH * np.abs(peak.value)
    left, right = top, top
    many = rare.size > _MANY
    near = np.flatnonzero(peak.value > _FAR) if many else np.arange(rare.size)
    if near.size:
        some, middle, height = rare[near], top[near], peak.at(near)
        ends = [_end(curve_of(some), middle, height, sign) for sign in (-1.0, 1.0)]
        inner = _COARSE if many else _GRADED
        sides = [(end + (middle - end) * inner[:, None]).T for end in ends]
        edges = np.concatenate([sides[0], sides[1][:, -2::-1]], axis=1)
        log[near], last = _integrate(edges, height.value, lambda x: arms.logs(x, some)[1] + table(x).value)
        error[near] = last_terms_error(last, 1.0) + (_BEND if many else 0.0)
        left, right = top.copy(), top.copy()
        left[near], right[near] = ends
    log, error = _with_peaks(log, error + _rounding(arms, rare, top, np.inf), peak.value)
    around = np.linspace(left, right, 17, axis=1)
    around = np.where(np.isfinite(around), around, top[:, None])
    return log, error + 4.0 * table.error[table.intervals(around)].max(axis=1)


def _integrate(
    edges: Floats, height: Floats, log_integrand: Callable[[Floats], Floats]
) -> tuple[Floats, Floats]:
    """Return ln of the integrals over all panels, and the size of the last terms relative to them."""
    half = 0.5 * np.diff(edges, axis=1)
    x = 0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None] + half[:, :, None] * NODES
    h = log_integrand(x.reshape(height.size, -1)).reshape(x.shape)
    integrand = np.exp(h - height[:, None, None]) * half[:, :, None]
    whole = (integrand @ WEIGHTS).sum(axis=1)
    return height + np.log(whole), np.abs(integrand @ LAST_TERMS).sum(axis=(1, 2)) / whole


def _rounding(arms: Arms, rare: Indices, top: Floats, narrowest: Floats | float) -> Floats:
    """Return a bound on the effect of the rounding of coordinates, where densities are steep."""
    slope = arms.noise.slopes(top, arms.a[rare], arms.b[rare])[0]
    steepest = np.abs(slope) + 1.0 / np.minimum(arms.spread[rare], narrowest)
    moved: Floats = 8 * _EPS * (np.abs(top) + np.abs(arms.peak[rare])) * steepest
    return moved


def _with_peaks(log: Floats, error: Floats, height: Floats) -> tuple[Floats, Floats]:
    """Use the height of the peak where floats are too coarse to resolve the window."""
    lost = ~(np.isfinite(log) & np.isfinite(error))
    error = np.where(lost, 1e-6 * np.abs(height), error) + 64 * _EPS * np.abs(height)
    return np.where(lost, height, log), error


def _bracket(arms: Arms, rare: Indices, table: InterpolatedSum) -> tuple[Floats, Floats]:
    """Return points of the table on either side of the peak of each integrand, by bisection.

    The derivative of h is that of ln f_a + Σ_b ln F_b, less f_a / F_a, which is at most 1 / spread here.
    """
    a, b, own = arms.a[rare], arms.b[rare], arms.peak[rare]
    ends = []
    for less in (1.0 / arms.spread[rare], 0.0):
        low, high = np.zeros(rare.size, np.int64), np.full(rare.size, table.x.size - 1)
        for _ in range(int(table.x.size).bit_length()):
            middle = (low + high) // 2
            slope = arms.noise.slopes(table.x[middle], a, b)[0] + table.curve.slope[middle] - less
            low, high = np.where(slope > 0.0, middle, low), np.where(slope > 0.0, high, middle)
        ends.append((low, high))
    (low, _), (_, high) = ends
    return np.maximum(table.x[low], own), table.x[high]


def _peak(curve: Callable[[Floats], Curve], low: Floats, high: Floats) -> tuple[Floats, Curve]:
    """Return the maximum of each integrand, by Newton steps within a bracket."""
    x = 0.5 * (low + high)
    for _ in range(_STEPS):
        now = curve(x)
        rising = now.slope > 0.0
        low, high = np.where(rising, x, low), np.where(rising, high, x)
        step = -now.slope / now.bend
        after = x + step
        after = np.where((after > low) & (after < high), after, 0.5 * (low + high))
        done = (np.abs(now.slope * step) < _PEAK_ACCURACY) | (after <= low) | (after >= high)
        if done.all():
            break
        x = np.where(done, x, after)
    return x, now


def _end(curve: Callable[[Floats], Curve], top: Floats, peak: Curve, sign: float) -> Floats:
    """Return a point on one side where the integrand is negligible.

    A tangent of a concave function lies above it. So a Newton step from inside the window ends outside, and
    one from outside stays outside. Where the function falls much faster than its tangents, halving is faster.
    """
    floor = peak.value - _DEPTH
    inner, outer = top, np.full_like(top, sign * np.inf)
    x = top + sign * np.sqrt(-2.0 * _DEPTH / peak.bend)
    for _ in range(_STEPS):
        now = curve(x)
        inside, done = now.value > floor, (now.value <= floor) & (now.value >= floor - _SLACK)
        inner, outer = np.where(inside, x, inner), np.where(inside, outer, x)
        step, middle = x + (floor - now.value) / now.slope, 0.5 * (inner + outer)
        further = np.where(sign * (step - outer) < 0.0, step, middle)
        nearer = np.where(sign * (middle - step) < 0.0, middle, step)
        after = np.where(inside, further, np.where(np.isfinite(step), nearer, middle))
        done |= ~(np.abs(after - x) > 1e-3 * np.abs(x - top))
        if done.all():
            break
        x = np.where(done, x, after)
    return np.where(np.isfinite(outer), outer, x)


def _fine_edges(arms: Arms, rare: Indices, left: Floats, right: Floats) -> Floats:
    """Return the edges of narrow panels of each window; the last ones may be empty."""
    near = arms.rows(slice(0, max(1, int(np.count_nonzero(arms.high > left.min())))))
    most = (right - left) / _PARTS
    x, edges = left, [left]
    while (x < right).any() and len(edges) < _MOST_PANELS:
        scale = _scales(near, x, np.arange(near.a.size)[:, None])
        below = x < near.peak[:, None]
        scale = np.where(below, scale, np.maximum(scale, near.spread[:, None]))
        scale = np.where(x < near.high[:, None], scale, np.inf)
        own = np.maximum(_scales(arms, x, rare), arms.spread[rare])
        x = np.minimum(right, x + np.minimum(most, _WIDTH * np.minimum(scale.min(axis=0), own)))
        edges.append(x)
    edges.append(right)
    return np.stack(edges, axis=1)


def _scales(arms: Arms, x: Floats, which: Indices) -> Floats:
    """Return the scale on which ln f bends at x."""
    scale: Floats = 1.0 / np.sqrt(-arms.noise.slopes(x, arms.a[which], arms.b[which])[1])
    return scale
