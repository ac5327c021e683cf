"""Scales, limits and ticks of axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from maillard.array_types import Floats


def plottable_values(values: ArrayLike, scale: str = "linear") -> Floats:
    """Return the values that an axis of this scale can show, as a flat array; [1] if there are none."""
    row = np.asarray(values, float).ravel()
    row = row[np.isfinite(row) & ((row > 0) | (scale != "log"))]
    return row if row.size else np.ones(1)


def axis_limits(
    values: ArrayLike, scale: str, *, margin: float = 0.0, zero: bool = False
) -> tuple[float, float]:
    """Return limits that include all values, with a margin on each side. The interval is never empty.

    With `zero`, a linear axis starts at zero unless a value is negative.

    >>> axis_limits([1.0, 100.0], "log"), axis_limits([3.0], "linear", zero=True)
    ((1.0, 100.0), (0.0, 3.0))
    >>> axis_limits([0.0], "linear", zero=True)
    (0.0, 1.0)
    """
    shown = plottable_values(values, scale)
    low, high = float(shown.min()), float(shown.max())
    if scale == "log":
        low, high = (low, high) if high > low * 1.001 else (low / 2, high * 2)
        factor = (high / low) ** margin
        return low / factor, high * factor
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if not high > low:
        low, high = (0.0, 1.0) if high == 0 else (low - abs(low) / 2, high + abs(high) / 2)
    room = margin * (high - low)
    return low - room * (low != 0 or not zero), high + room


def axis_fractions(axis: Axis, values: ArrayLike) -> Floats:
    """Return the positions of values on an axis, from 0 at its start to 1 at its end."""
    transform = axis.get_transform()
    ends = transform.transform(np.asarray(axis.get_view_interval()))
    return np.asarray((transform.transform(np.asarray(values, float)) - ends[0]) / (ends[1] - ends[0]))


def add_headroom(axes: Axes, fraction: float) -> None:
    """Raise the top of the vertical axis so that this fraction of its height stays free."""
    low, high = axes.get_ylim()
    forward = axes.yaxis.get_transform()
    ends = forward.transform(np.array([low, high]))
    top = ends[0] + (ends[1] - ends[0]) / (1 - fraction)
    axes.set_ylim(low, float(forward.inverted().transform(np.array([top]))[0]))


def set_scale(axes: Axes, axis: str, scale: str, low: float, high: float, *, threshold: float = 1.0) -> None:
    """Set the scale and limits of the "x" or "y" axis. Below `threshold`, a "symlog" scale is linear."""
    options: dict[str, dict[str, Any]] = {
        "symlog": {"linthresh": threshold, "linscale": 0.3},
        "log": {"nonpositive": "mask"},
    }
    getattr(axes, f"set_{axis}scale")(scale, **options.get(scale, {}))
    getattr(axes, f"set_{axis}lim")(low, high)
    getattr(axes, f"{axis}axis").set_minor_locator(NullLocator())


def tick_values(
    low: float, high: float, scale: str, *, count: int = 5, threshold: float = 1.0
) -> list[float]:
    """Return about `count` round numbers from low to high.

    >>> tick_values(0, 52, "linear"), tick_values(1, 20000, "log"), tick_values(3, 40, "log")
    ([0.0, 10.0, 20.0, 30.0, 40.0, 50.0], [1.0, 10.0, 100.0, 1000.0, 10000.0], [3.0, 5.0, 10.0, 20.0, 30.0])
    """
    if scale == "linear":
        steps = MaxNLocator(nbins=count + 1, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        return [float(v) + 0.0 for v in steps if low - 1e-9 * (high - low) <= v <= high + 1e-9 * (high - low)]
    least = max(low, threshold) if scale == "symlog" else low
    exponents = range(int(np.floor(np.log10(least))), int(np.ceil(np.log10(high))) + 1)
    for mantissas in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5)):
        shown = [float(f"{m}e{e}") for e in exponents for m in mantissas]
        shown = [v for v in shown if least * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
        if len(shown) > 3:
            break
    if len(shown) < 3:  # less than about a factor of two: as on a linear axis
        return tick_values(low, high, "linear", count=count)
    shown = shown[:: -(-len(shown) // (count + 3))]
    return [0.0, *shown] if scale == "symlog" and low <= 0 else shown


def select_non_overlapping(positions: Sequence[float], lengths: Sequence[float], gap: float) -> list[int]:
    """Return the indices of labels to keep (all, every second, every third, ...) so that none overlap."""
    order = np.argsort(positions)
    for stride in range(1, len(order) + 1):
        kept = order[::stride]
        ends = [(positions[i] - lengths[i] / 2, positions[i] + lengths[i] / 2) for i in kept]
        if all(b[0] - a[1] >= gap for a, b in pairwise(ends)):
            return [int(i) for i in kept]
    return []
