"""Histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.patches import Rectangle

from maillard.figures.axes_frame import draw_frame
from maillard.figures.axis_scales import axis_limits, set_scale
from maillard.figures.drawing import new_figure
from maillard.figures.style import COLOURS, PANEL, RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

_MAX_LINEAR_RATIO = 50  # of the largest to the smallest count; above it, the axis is logarithmic


def histogram(
    edges: ArrayLike,
    counts: ArrayLike,
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    xscale: str = "linear",
    note: str = "",
    size: tuple[float, float] = PANEL,
) -> Figure:
    """Draw a histogram from edges and counts.

    If the counts differ by a large factor, their axis is logarithmic so that small counts stay visible.
    """
    ends, heights = np.asarray(edges, float), np.asarray(counts, float)
    positive = heights[heights > 0]
    yscale = "log" if positive.size and positive.max() > _MAX_LINEAR_RATIO * positive.min() else "linear"
    with mpl.rc_context(RC):
        figure, axes = new_figure(size)
        set_scale(axes, "x", xscale, *axis_limits(ends, xscale, margin=0.02))
        bottom = 0.7 if yscale == "log" else 0.0
        set_scale(axes, "y", yscale, bottom, 1.05 * float(positive.max(initial=1.0)))
        for left, right, height in zip(ends[:-1], ends[1:], heights, strict=True):
            if height > 0:
                shape = Rectangle(
                    (left, bottom), right - left, height - bottom,
                    facecolor=COLOURS[0], edgecolor=COLOURS[0], alpha=0.75, linewidth=0.6,
                )  # fmt: skip
                axes.add_artist(shape)
        marks = ends.tolist() if ends.size <= 12 else None
        draw_frame(figure, axes, title=title, xlabel=xlabel, ylabel=ylabel, note=note, xticks=marks)
    return figure
