"""Integrals for arms whose probability is too small for shared panels, each over its own window.

Such an arm has the largest score only if its own score is high and all other scores are low. The integrand
exp(h), with h = ln f_a - ln F_a + Σ_b ln F_b, is log-concave. Newton steps find its peak and the window
outside of which it is negligible. For few arms, the window is divided into panels that are narrow compared
with the scale on which any ln F bends. For many arms, Σ_b ln F_b is interpolated, and a window has few panels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from maillard.array_types import Floats, Indices
from maillard.policies.numerics.distinct_arms import Arms
from maillard.policies.numerics.rival_sums import Curve, InterpolatedSum, own_curve, sum_of_logs
from maillard.policies.numerics.shared_panels import BEYOND_LAST, LAST_TERMS, NODES, WEIGHTS

_FEW = 1 << 10  # up to this product of rare arms and arms, sums are evaluated at every node
_DEPTH = 30.0  # a window ends where the integrand has fallen by a factor exp(-30)
_SLACK = 12.0  # or at most by a further factor exp(-12)
_PEAK_ACCURACY = 1e-3  # of h at its peak
_STEPS = 60  # of Newton's method
_WIDTH = 1.5  # of a panel, in units of the scale of any distribution that bends there
_PARTS = 6  # of a window, at least
_MOST_PANELS = 256
_UPPER_END = 8.0  # scales above its peak, ln F of a rival is 0 up to rounding
_EVALUATIONS = 1 << 17  # of ln F for interpolation, but at least _ADDED points
_ADDED = 64
_BLOCK = 4096  # rare arms that are integrated together
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
        parts = [_integrals(arms, rare[i : i + step], table, few) for i in range(0, rare.size, step)]
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


def _integrals(
    arms: Arms, rare: Indices, table: InterpolatedSum, few: bool
) -> tuple[Floats, Floats]:
    def total(x: Floats) -> Curve:
        return sum_of_logs(arms, x) if few else table(x)

    def curve(x: Floats) -> Curve:
        return Curve(*(own + rest for own, rest in zip(own_curve(arms, rare, x), total(x), strict=True)))

    top, peak = _peak(curve, *_bracket(arms, rare, table))
    left, right = (_end(curve, top, peak, sign) for sign in (-1.0, 1.0))
    edges = _fine_edges(arms, rare, left, right) if few else np.stack([left, top, right], axis=1)
    half = 0.5 * np.diff(edges, axis=1)
    x = 0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None] + half[:, :, None] * NODES
    points = x.reshape(rare.size, -1)
    h = (arms.logs(points, rare)[1] + total(points).value).reshape(x.shape)
    height = peak.value
    integrand = np.exp(h - height[:, None, None]) * half[:, :, None]
    whole = (integrand @ WEIGHTS).sum(axis=1)
    last = 2.0 * np.abs(integrand @ LAST_TERMS).sum(axis=(1, 2))
    log, error = height + np.log(whole), last / whole
    if few:
        error *= BEYOND_LAST
    else:
        error += _BEND
    error += 64 * _EPS * np.abs(height)
    # If floats are too coarse to resolve the window, use the height of the peak.
    lost = ~(np.isfinite(log) & np.isfinite(error))
    log, error = np.where(lost, height, log), np.where(lost, 1e-6 * np.abs(height), error)
    if not few:
        around = np.linspace(left, right, 9, axis=1)
        error += table.error[table.intervals(np.where(np.isfinite(around), around, top[:, None]))].max(axis=1)
    return log, error


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
    one from outside stays outside.
    """
    floor = peak.value - _DEPTH
    x = top + sign * np.sqrt(-2.0 * _DEPTH / peak.bend)
    for _ in range(_STEPS):
        now = curve(x)
        done = (now.value <= floor) & (now.value >= floor - _SLACK)
        after = x + (floor - now.value) / now.slope
        done |= ~(np.abs(after - x) > 1e-3 * np.abs(x - top))
        if done.all():
            break
        x = np.where(done, x, after)
    return x


def _fine_edges(arms: Arms, rare: Indices, left: Floats, right: Floats) -> Floats:
    """Return the edges of narrow panels of each window; the last ones may be empty."""
    near = arms.rows(slice(0, max(1, int(np.count_nonzero(arms.high > left.min())))))
    peak, spread = near.peak[:, None], near.spread[:, None]
    own_peak, own_spread = arms.peak[rare], arms.spread[rare]
    most = (right - left) / _PARTS
    x, edges = left, [left]
    while (x < right).any() and len(edges) < _MOST_PANELS:
        z = (x - peak) / spread
        scale = spread * np.where(z < 0.0, 1.0 - 0.25 * z, np.where(z < _UPPER_END, 1.0, np.inf))
        own = own_spread + 0.25 * np.abs(x - own_peak)
        x = np.minimum(right, x + np.minimum(most, _WIDTH * np.minimum(scale.min(axis=0), own)))
        edges.append(x)
    edges.append(right)
    return np.stack(edges, axis=1)
