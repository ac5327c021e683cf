"""Histograms."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from maillard.figures.axes_frame import draw_frame
from maillard.figures.axis_scales import axis_limits, set_scale
from maillard.figures.drawing import new_figure, styled
from maillard.figures.style import COLOURS, PANEL

_MAX_LINEAR_RATIO = 50  # of the largest to the smallest count; above it, the axis is logarithmic


@styled
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
    figure, axes = new_figure(size)
    set_scale(axes, "x", xscale, *axis_limits(ends, xscale, margin=0.02))
    bottom = 0.7 if yscale == "log" else 0.0
    set_scale(axes, "y", yscale, bottom, 1.05 * float(positive.max(initial=1.0)))
    for left, right, height in zip(ends[:-1], ends[1:], heights, strict=True):
        if height > 0:
            corner, extent = (left, bottom), (right - left, height - bottom)
            axes.add_artist(Rectangle(corner, *extent, color=COLOURS[0], alpha=0.75, linewidth=0.6))
    marks = ends.tolist() if ends.size <= 12 else None
    draw_frame(figure, axes, title=title, xlabel=xlabel, ylabel=ylabel, note=note, xticks=marks)
    return figure
