"""Σ_b ln F_b, the log distribution function of the largest score: exact or interpolated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from maillard.array_types import Bools, Floats, Indices
from maillard.policies.numerics.distinct_arms import Arms

TOLERANCE = 1e-8  # of interpolated values
_BLOCK = 1 << 14  # values of ln F in memory
_LOWEST = -1e290  # used in place of log 0, so that differences are finite
_EPS = float(np.finfo(np.float64).eps)
_MIN_WIDTH = 1e-3  # of an interval, in units of the smallest scale of any distribution
_MAX_WIDTH = 4.0  # of an interval, in units of the scale of any distribution whose ln F bends there


class Curve(NamedTuple):
    """Values of a smooth concave function, with the first two derivatives."""

    value: Floats
    slope: Floats
    bend: Floats

    def __add__(self, other: Curve) -> Curve:  # type: ignore[override]  # of a tuple
        return Curve(self.value + other.value, self.slope + other.slope, self.bend + other.bend)

    def at(self, place: Indices) -> Curve:
        """Return the values at some places."""
        return Curve(self.value[place], self.slope[place], self.bend[place])


def own_curve(arms: Arms, which: Indices, x: Floats) -> Curve:
    """Return ln(f / F) of each of these arms at its own points, with derivatives; `x` has one row per arm."""
    points = x.reshape(which.size, -1)
    value = arms.logs(points, which)[1]
    slope, bend = arms.noise.slopes(points, arms.a[which, None], arms.b[which, None])
    rise = np.exp(value)
    found = value, slope - rise, bend - _second(rise, slope)
    return Curve(*(each.reshape(x.shape) for each in found))


def _second(rise: Floats, slope: Floats) -> Floats:
    """Return (f / F)', given f / F and (ln f)'."""
    return np.where(rise > 0.0, rise * (slope - rise), 0.0)


def sum_of_logs(arms: Arms, x: Floats) -> Curve:
    """Return Σ_b ln F_b at these points, with two derivatives."""
    order = np.argsort(x, axis=None)
    points = x.ravel()[order]
    total = np.zeros((3, points.size))
    first = 0
    while first < arms.a.size:
        # The arms are sorted by upper end, above which ln F is 0.
        start = int(np.searchsorted(points, arms.high[first]))
        part = np.arange(first, min(arms.a.size, first + max(1, _BLOCK // max(1, start))))
        first += part.size
        a, b, copies = arms.a[part, None], arms.b[part, None], arms.copies[part]
        log_cdf, rise = arms.logs(points[:start], part)
        rise = np.exp(rise, out=rise)
        total[0, :start] += copies @ log_cdf
        total[1, :start] += copies @ rise
        total[2, :start] += copies @ _second(rise, arms.noise.slopes(points[:start], a, b)[0])
    whole = np.empty_like(total)
    whole[:, order] = total
    value, slope, bend = whole.reshape(3, *x.shape)
    finite = value > _LOWEST
    return Curve(np.where(finite, value, _LOWEST), np.where(finite, slope, 0.0), np.where(finite, bend, 0.0))


class InterpolatedSum:
    """Σ_b ln F_b by polynomials of degree 5 from values and two derivatives at some points.

    The intervals with the largest errors are halved until all are small, or there are `most` points.
    """

    def __init__(self, arms: Arms, grid: Floats, most: int) -> None:
        self._arms = arms
        self.x = np.unique(grid)
        # Derivatives would be lost to rounding in narrower intervals.
        narrowest = _MIN_WIDTH * arms.spread.min()
        self.x = self.x[np.diff(self.x, prepend=-np.inf) > narrowest]
        self.curve = sum_of_logs(arms, self.x)
        while True:
            self._fit()
            middle = 0.5 * (self.x[:-1] + self.x[1:])
            # Very low values do not matter, so errors are compared relative to the value.
            scaled = self.error / (1.0 - self.curve.value[1:])
            worst = np.argsort(-scaled, kind="stable")[: max(0, most - self.x.size)]
            worst = worst[(scaled[worst] > TOLERANCE) & (np.diff(self.x)[worst] > 2.0 * narrowest)]
            worst = np.sort(worst)
            if not worst.size:
                break
            added = sum_of_logs(arms, middle[worst])
            self.x = np.insert(self.x, worst + 1, middle[worst])
            pairs = zip(self.curve, added, strict=True)
            self.curve = Curve(*(np.insert(old, worst + 1, new) for old, new in pairs))

    def _fit(self) -> None:
        """Store the polynomial of each interval in u from 0 to 1, and a bound on its error."""
        value, slope, bend = self.curve
        width, rise = np.diff(self.x), np.diff(value)
        start, end = slope[:-1] * width, slope[1:] * width
        curl, after = 0.5 * bend[:-1] * width * width, 0.5 * bend[1:] * width * width
        one, two, three = rise - start - curl, end - start - 2.0 * curl, after - curl
        self._rows = np.stack(
            [
                self.x[:-1], 1.0 / width, value[:-1], start, curl, 10.0 * one - 4.0 * two + three,
                -15.0 * one + 7.0 * two - 2.0 * three, 6.0 * one - 3.0 * two + three, rise,
            ],
            axis=1,
        )  # fmt: skip
        unusable = ~np.isfinite(self._rows).all(axis=1)
        self._rows[unusable, 3:8] = 0.0
        self._rows[unusable, 3] = rise[unusable]
        # The polynomial of degree 3 differs by this in the middle of the interval.
        unlike = np.abs(curl + after + start - end) / 32.0
        # The function is concave, so it lies between its chord and its tangents.
        left, right = start - rise, rise - end
        with np.errstate(all="ignore"):
            gap = np.where(left + right > 0.0, left * right / (left + right), 0.0)
        gap = np.where(np.isfinite(gap), gap, rise)
        self.error = np.where(self._may_bend() | unusable, gap, np.minimum(unlike, gap))
        self.error += 64 * _EPS * np.abs(value[1:])

    def _may_bend(self) -> Bools:
        """Return which intervals are much wider than a distribution whose ln F bends on them."""
        arms, size = self._arms, self.x.size
        # The bend of an arm covers a range of intervals. Arms of similar scale are counted together.
        level = np.floor(np.log2(arms.spread)).astype(np.int64)
        lowest = int(level.min())
        row, rows = (level - lowest) * (size + 1), int(level.max()) - lowest + 1
        start = np.searchsorted(self.x[1:], arms.peak - 4.0 * arms.spread, side="right")
        stop = np.maximum(start, np.searchsorted(self.x[:-1], arms.high, side="left"))
        change = np.bincount(row + start, minlength=rows * (size + 1)) - np.bincount(
            row + stop, minlength=rows * (size + 1)
        )
        covered = np.cumsum(change.reshape(rows, size + 1), axis=1)[:, : size - 1] > 0
        scale = np.exp2(np.arange(lowest, lowest + rows))[:, None]
        bends: Bools = np.any(covered & (_MAX_WIDTH * scale < np.diff(self.x)), axis=0)
        return bends

    def intervals(self, x: Floats) -> Indices:
        """Return the index of the interval that contains x."""
        return np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, self.x.size - 2)

    def __call__(self, x: Floats) -> Curve:
        rows = self._rows[self.intervals(x)]
        left, per, c0, c1, c2, c3, c4, c5, rise = np.moveaxis(rows, -1, 0)
        u = (x - left) * per
        climb = u * (c1 + u * (c2 + u * (c3 + u * (c4 + u * c5))))
        slope = c1 + u * (2.0 * c2 + u * (3.0 * c3 + u * (4.0 * c4 + u * 5.0 * c5)))
        bend = 2.0 * c2 + u * (6.0 * c3 + u * (12.0 * c4 + u * 20.0 * c5))
        # Bounds of an increasing concave function, also where the polynomial is not accurate.
        inside = np.clip(climb, np.clip(u, 0.0, 1.0) * rise, rise)
        return Curve(c0 + inside, np.maximum(slope * per, 0.0), np.minimum(bend * per * per, 0.0))
