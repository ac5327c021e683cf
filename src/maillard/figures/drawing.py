"""Drawing primitives: an empty figure with axes, lines and text."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from maillard.array_types import Floats
from maillard.figures.style import INK, RC, SMALL
from maillard.figures.text_layout import LINE_SPACING

LINE_HEIGHT = LINE_SPACING * SMALL  # of small text, in points
_PIXELS = 90  # of a notebook, per inch
_SHARPNESS = 2  # dots per pixel, for screens with a high resolution

styled = mpl.rc_context(RC)  # decorates functions that draw in the common style


class NotebookFigure(Figure):
    """A figure that a notebook shows as a picture. pyplot does not know it."""

    @styled
    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=_SHARPNESS * _PIXELS, metadata={"Software": None})
        wide, high = self.get_size_inches()
        return buffer.getvalue(), {"width": round(_PIXELS * wide), "height": round(_PIXELS * high)}


def new_figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Create an empty figure of this size in inches, with axes."""
    figure = NotebookFigure(figsize=size)
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set_axis_off()
    return figure, axes


def axes_size(axes: Axes) -> tuple[float, float]:
    """Return the width and height of the axes in points."""
    (left, bottom), (right, top) = axes.get_position().get_points()
    wide, high = figure_size(axes)
    return wide * float(right - left), high * float(top - bottom)


def figure_size(axes: Axes) -> tuple[float, float]:
    """Return the width and height of the whole figure in points."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # `new_figure` made them together
    wide, high = figure.get_size_inches()
    return float(wide) * 72, float(high) * 72


def draw_line(
    axes: Axes, x: ArrayLike, y: ArrayLike, *, axes_coordinates: bool = False, **style: Any
) -> None:
    """Draw a line or markers. With `axes_coordinates`, 0 to 1 span the axes, and the line is not clipped."""
    if axes_coordinates:
        style |= {"transform": axes.transAxes, "clip_on": False}
    axes.add_artist(Line2D(np.asarray(x, float), np.asarray(y, float), **style))


def line_segments(begins: ArrayLike, ends: ArrayLike) -> Floats:
    """Return coordinates of separate line segments as a single path with breaks (NaN)."""
    first, last = np.atleast_1d(np.asarray(begins, float)), np.atleast_1d(np.asarray(ends, float))
    first, last = np.broadcast_arrays(first, last)
    return np.column_stack([first, last, np.full(first.size, np.nan)]).ravel()


def draw_text(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Draw small text at a position in axes coordinates, vertically centred on its digits and capitals."""
    if "\n" in text:
        style |= {"va": "center"}
    else:
        y -= 0.365 * SMALL / axes_size(axes)[1]
    look: dict[str, Any] = {"color": INK, "fontsize": SMALL, "linespacing": 1.1} | style
    axes.text(x, y, text, transform=axes.transAxes, **look)
