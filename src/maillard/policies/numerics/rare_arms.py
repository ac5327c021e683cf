"""Probabilities too small for the shared panels: each such arm gets a window of its own.

Where an unlikely arm wins, its own density falls and the distribution function of the other scores' maximum rises;
the product is log-concave, with one peak that may lie anywhere between the arm and the leaders. That function is
common to all arms: it is tabulated once, and what each arm adds is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.policies.base.policy import Floats

__all__ = ["Table", "log_integrals"]

# Panels of a half window, as fractions from its outer end. An integrand rises fastest there, and may bend
# sharply near its peak too, where a narrow rival's law ends.
_EDGES = np.array([0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 15 / 16, 63 / 64, 255 / 256, 1023 / 1024, 1])
# For many arms at once a coarser rule, which may miss such a bend and says so.
_MANY, _COARSE, _BEND = 256, np.array([0, 1 / 8, 3 / 8, 2 / 3, 1]), 1e-3
_EPS = float(np.finfo(np.float64).eps)
_LOWEST = -1e290  # stands for log 0, so that differences stay numbers
_DEPTH = 45.0  # a window ends where the integrand has fallen by exp(-45)
_POINTS = 9
_FRACTIONS = np.linspace(0.0, 1.0, _POINTS)
TOLERANCE = 1e-8


class Table:
    """A smooth increasing function known by values and slopes, interpolated by cubics.

    Cubics reproduce quadratics, and far below a Gaussian score's mean ln F is one but for a logarithm. Intervals
    are halved, the worst first, until the middle is met or there are `points` of them; one that `too_wide` says may
    hide a step counts as unmet.
    """

    def __init__(
        self,
        function: Callable[[Floats], tuple[Floats, Floats]],
        too_wide: Callable[[Floats, Floats], NDArray[np.bool_]],
        grid: Floats,
        points: int,
    ) -> None:
        self.x = np.unique(grid)
        self.value, self.slope = self._clip(*function(self.x))
        self._fit()
        # How far the cubic may be off: by all that the function rises, until its middle is tried.
        self.doubt = np.diff(self.value)
        while True:
            middle = 0.5 * (self.x[:-1] + self.x[1:])
            room = max(0, points - self.x.size)
            # Where the function is very low nothing happens: what counts is the relative doubt.
            worst = np.argsort(-self.doubt / (1.0 - self.value[1:]), kind="stable")[:room]
            worst = worst[(self.doubt[worst] > 0) & (middle[worst] > self.x[worst])]
            worst = np.sort(worst[middle[worst] < self.x[worst + 1]])
            if not worst.size:
                break
            x = middle[worst]
            value, slope = self._clip(*function(x))
            miss = np.abs(self(x) - value)
            doubt = np.where(miss <= TOLERANCE + 64 * _EPS * np.abs(value), 0.0, miss)
            # A step much narrower than the interval may hide between the points that were tried.
            unseen = too_wide(self.x[worst], self.x[worst + 1])
            before, after = value - self.value[worst], self.value[worst + 1] - value
            self.doubt[worst] = np.where(unseen, after, doubt)
            self.doubt = np.insert(self.doubt, worst, np.where(unseen, before, doubt))
            self.x = np.insert(self.x, worst + 1, x)
            self.value = np.insert(self.value, worst + 1, value)
            self.slope = np.insert(self.slope, worst + 1, slope)
            self._fit()

    @staticmethod
    def _clip(value: Floats, slope: Floats) -> tuple[Floats, Floats]:
        return np.maximum(value, _LOWEST), np.where(value > _LOWEST, np.nan_to_num(slope), 0.0)

    def place(self, x: Floats) -> NDArray[np.intp]:
        """The interval that holds x."""
        return np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, self.x.size - 2)

    def __call__(self, x: Floats) -> Floats:
        j = self.place(x)
        left, width, value, rise, start, end = self._cubics[j].transpose(-1, *range(x.ndim))
        u = (x - left) / width
        v = 1.0 - u
        climb = u * (rise + v * (v * start - u * end))
        # The function rises: on an interval too wide for its cubic, that much is still known.
        interpolated: Floats = value + np.clip(climb, 0.0, rise)
        return interpolated

    def _fit(self) -> None:
        """Each interval's left end, width, value, rise, and its end slopes' excess over the chord's."""
        width, rise = np.diff(self.x), np.diff(self.value)
        start, end = self.slope[:-1] * width - rise, self.slope[1:] * width - rise
        self._cubics = np.stack([self.x[:-1], width, self.value[:-1], rise, start, end], axis=1)


def log_integrals(
    integrand: Callable[[Floats], Floats], low: Floats, peak: Floats, high: Floats
) -> tuple[Floats, Floats, Floats]:
    """ln ∫ exp(integrand) for each arm, how far two rules differ, and where the mass lies.

    `integrand(x)` takes a row of points for each arm. It is log-concave; its peak lies between
    `peak` and `high`, all of it that matters between `low` and `high`.
    """
    top = _zoom_to_peak(integrand, peak, high)
    floor = integrand(top[:, None]) - _DEPTH
    left = _zoom_to_end(integrand, top, low, floor)
    right = _zoom_to_end(integrand, top, high, floor)
    few = top.size <= _MANY
    edges, orders, bend = (_EDGES, (10, 16), 0.0) if few else (_COARSE, (6, 8), _BEND)
    rough, fine = (_rule(integrand, (left, top, right), edges, order) for order in orders)
    shares = np.linspace(0.0, 0.6, 7)
    core = np.concatenate([top[:, None] + shares * (end - top)[:, None] for end in (left, right)], axis=1)
    # Where floats are too coarse for the window itself, the height of the peak is what is left.
    lost = ~np.isfinite(fine)
    height = floor[:, 0] + _DEPTH
    rough, fine = np.where(lost, height * (1 - 1e-6), rough), np.where(lost, height, fine)
    return fine, bend + 4.0 * np.abs(fine - rough) + 64 * _EPS * np.abs(floor[:, 0]), core


def _zoom_to_peak(integrand: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Points between the ends, then between the neighbours of the best, until these are near it."""
    for _ in range(24):
        x = low[:, None] + (high - low)[:, None] * _FRACTIONS
        g = integrand(x)
        best = np.argmax(g, axis=1)
        before, after = np.maximum(best - 1, 0), np.minimum(best + 1, _POINTS - 1)
        low, high, peak = _pick(x, before), _pick(x, after), _pick(x, best)
        near = 0.001 if best.size <= _MANY else 0.1
        if (_pick(g, best) - np.minimum(_pick(g, before), _pick(g, after)) < near).all():
            break
    return peak


def _zoom_to_end(integrand: Callable[[Floats], Floats], top: Floats, outer: Floats, floor: Floats) -> Floats:
    """A point at or just outside where the integrand, falling from top to outer, meets the floor."""
    inner = top
    for _ in range(24):
        x = inner[:, None] + (outer - inner)[:, None] * _FRACTIONS
        above = np.logical_and.accumulate(integrand(x) > floor, axis=1)
        last = np.maximum(above.sum(axis=1) - 1, 0)
        inner, outer = _pick(x, last), _pick(x, np.minimum(last + 1, _POINTS - 1))
        if (np.abs(outer - inner) <= 0.2 * np.abs(outer - top)).all():
            break
    return outer


def _pick(x: Floats, column: NDArray[np.intp]) -> Floats:
    picked: Floats = np.take_along_axis(x, column[:, None], axis=1)[:, 0]
    return picked


def _rule(
    integrand: Callable[[Floats], Floats],
    window: tuple[Floats, Floats, Floats],
    edges: Floats,
    order: int,
) -> Floats:
    """ln of the integral, by Gauss-Legendre panels on either side of the peak."""
    left, top, right = window
    nodes, weights = np.polynomial.legendre.leggauss(order)
    half = 0.5 * np.diff(edges)[:, None]
    fractions = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
    shares = (half * weights).ravel()
    below, above = (top - left)[:, None], (right - top)[:, None]
    x = np.concatenate([left[:, None] + below * fractions, right[:, None] - above * fractions], axis=1)
    log = integrand(x)
    peak = log.max(axis=1, keepdims=True)
    total = np.exp(log - peak) * np.concatenate([below * shares, above * shares], axis=1)
    rule: Floats = peak[:, 0] + np.log(total.sum(axis=1))
    return rule
