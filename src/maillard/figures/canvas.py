"""The sheet that every figure is drawn on, one pair of axes on it, and what is drawn with: strokes and text."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from maillard.figures.lettering import LEADING
from maillard.figures.style import INK, SMALL

__all__ = ["LINE", "canvas", "level", "pieces", "points", "sheet", "stroke"]

LINE = LEADING * SMALL  # the height of a line of small text, in points


def canvas(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """An empty figure of this size in inches, and its axes."""
    figure = Figure(figsize=size)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set_axis_off()
    return figure, axes


def points(axes: Axes) -> tuple[float, float]:
    """The width and height of the axes in points."""
    (left, bottom), (right, top) = axes.get_position().get_points()
    wide, high = sheet(axes)
    return wide * float(right - left), high * float(top - bottom)


def sheet(axes: Axes) -> tuple[float, float]:
    """The width and height of the whole figure in points."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # `canvas` made them together
    wide, high = figure.get_size_inches()
    return float(wide) * 72, float(high) * 72


def stroke(axes: Axes, x: ArrayLike, y: ArrayLike, *, beside: bool = False, **style: Any) -> None:
    """A line, or markers; with `beside`, its places are parts of the axes, and it may leave them."""
    if beside:
        style |= {"transform": axes.transAxes, "clip_on": False}
    axes.add_artist(Line2D(np.asarray(x, float), np.asarray(y, float), **style))


def pieces(begins: ArrayLike, ends: ArrayLike) -> NDArray[np.float64]:
    """Coordinates of separate strokes, as one line with breaks: one path, however many there are."""
    first, last = np.atleast_1d(np.asarray(begins, float)), np.atleast_1d(np.asarray(ends, float))
    first, last = np.broadcast_arrays(first, last)
    return np.column_stack([first, last, np.full(first.size, np.nan)]).ravel()


def level(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Small text at a place in parts of the axes, digits and capitals centred on its height."""
    if "\n" in text:
        style |= {"va": "center"}
    else:
        y -= 0.365 * SMALL / points(axes)[1]
    look: dict[str, Any] = {"color": INK, "fontsize": SMALL, "linespacing": 1.1} | style
    axes.text(x, y, text, transform=axes.transAxes, **look)
