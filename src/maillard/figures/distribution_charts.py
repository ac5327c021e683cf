"""Charts of the distribution of final regret over trials, and of its tail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from maillard.array_types import Floats
from maillard.figures.axes_frame import draw_frame
from maillard.figures.axis_scales import axis_limits, plottable_values, set_scale, tick_values
from maillard.figures.drawing import LINE_HEIGHT, draw_line, line_segments, new_figure, styled
from maillard.figures.labels import LegendEntry, draw_frame_with_legend
from maillard.figures.reference_lines import Reference, draw_references
from maillard.figures.style import INK, PANEL, series_styles

_DOTS = 1800  # per figure, over all names: more would make the file larger but not clearer


@styled
def distributions(
    names: Sequence[str],
    values: ArrayLike,
    *,
    label: str,
    title: str = "",
    style_indices: Sequence[int] | None = None,
    note: str = "box: quartiles, line: median, diamond: mean, dots: trials",
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draw the distribution of values for each name: trials as dots, quartiles as a box, median and mean.

    If there are many trials, dots are drawn at evenly spaced ranks, including the smallest and the largest.
    The axis is logarithmic if the largest value is far from the median; a zero is then shown at its left end.
    """
    table = np.sort(np.atleast_2d(np.asarray(values, float)), axis=1)
    count = len(names)
    figure, axes = new_figure((8.6, 1.2 + 0.5 * count) if size is None else size)
    marks = _set_horizontal_scale(axes, table)
    shown = np.unique(np.linspace(0, table.shape[1] - 1, max(2, _DOTS // count)).round().astype(np.int64))
    aside = np.random.default_rng(0).uniform(-0.3, 0.3, shown.size)
    for i, style in enumerate(series_styles(count, style_indices)):
        # Dots are one path of very short lines with round ends: much smaller in SVG than markers.
        x, y = table[i][shown], i + aside
        draw_line(
            axes, line_segments(x, x), line_segments(y, y + 1e-3),
            color=style.colour, alpha=0.6, linewidth=1.9, solid_capstyle="round", snap=False,
        )  # fmt: skip
        quarter, half, three = (float(v) for v in np.quantile(table[i], [0.25, 0.5, 0.75]))
        low, high = i - 0.34, i + 0.34
        corner, width = (quarter, low), three - quarter
        axes.add_artist(Rectangle(corner, width, 0.68, color=style.colour, alpha=0.2, linewidth=0))
        axes.add_artist(Rectangle(corner, width, 0.68, color=style.colour, fill=False, linewidth=1.0))
        draw_line(axes, [half] * 2, [low, high], color=style.colour, linewidth=2.0, solid_capstyle="butt")
    draw_line(axes, table.mean(axis=1), range(count), linestyle="", marker="D", color=INK, markersize=4.2)
    draw_frame(figure, axes, title=title, xlabel=label, note=note, rows=names, xticks=marks)
    return figure


@styled
def tails(
    names: Sequence[str],
    values: Sequence[ArrayLike] | Floats,
    *,
    label: str,
    title: str = "",
    mark: tuple[float, str] | None = None,
    style_indices: Sequence[int] | None = None,
    note: str = "",
    size: tuple[float, float] = PANEL,
) -> Figure:
    """Draw the fraction of trials with at least a given value, as steps, with logarithmic axes.

    `mark` is a value and its label, drawn as a vertical line. Names are ordered by their largest values.
    """
    rows = [np.sort(np.asarray(row, float)) for row in values]
    most = max(row.size for row in rows)
    figure, axes = new_figure(size)
    everything = np.sort(plottable_values(np.concatenate([*rows, [mark[0]] if mark else []]), "log"))
    # Without the smallest 1%: one tiny value would take half of a logarithmic axis.
    set_scale(axes, "x", "log", *axis_limits(everything[everything.size // 100 :], "log", margin=0.03))
    bottom = min(0.7 / most, 0.5)
    set_scale(axes, "y", "log", bottom, 1.0)
    styles = series_styles(len(names), style_indices)
    for row, style in zip(rows, styles, strict=True):
        x, share = _survival(row, axes.get_xlim()[0])
        draw_line(
            axes, x, share, color=style.colour, linestyle=style.dash, drawstyle="steps-pre", linewidth=1.6
        )
    marked = [Reference(mark[1], (mark[0], mark[0]), (bottom, 1.0))] if mark else []
    lines, inside = draw_references(axes, marked)
    step = LINE_HEIGHT / 72 / size[1]
    ends: list[LegendEntry] = []
    for i in sorted(range(len(rows)), key=lambda i: float(rows[i][-1]), reverse=True):
        ends.append(LegendEntry(names[i], 1 - step * len(ends), styles[i].colour, styles[i].dash))
    ylabel = "fraction of trials with at least this value"
    draw_frame_with_legend(
        figure, axes, [*ends, *lines], inside,
        leaders=False, title=title, xlabel=label, ylabel=ylabel, note=note,
    )  # fmt: skip
    return figure


def _set_horizontal_scale(axes: Axes, table: Floats) -> list[float] | None:
    """Set the horizontal scale; return its ticks if they are not the default ones."""
    spread = table.max() > 20 * max(float(np.median(table)), 1e-12) and table.min() >= 0
    if not spread:
        set_scale(axes, "x", "linear", *axis_limits(table, "linear", zero=True, margin=0.02))
        return None
    if table.min() > 0:
        set_scale(axes, "x", "log", *axis_limits(table, "log", margin=0.02))
        return None
    threshold = float(np.quantile(plottable_values(table, "log"), 0.02))
    high = float(table.max()) * 1.1
    set_scale(axes, "x", "symlog", -0.1 * threshold, high, threshold=threshold)
    return tick_values(0.0, high, "symlog", threshold=threshold)


def _survival(ordered: Floats, start: float) -> tuple[Floats, Floats]:
    """Return values and the fraction of trials that are at least as large, at no more than 300 points.

    >>> _survival(np.array([1.0, 2.0, 2.0, 4.0]), 0.5)
    (array([0.5, 1. , 2. , 4. ]), array([1.  , 1.  , 0.75, 0.25]))
    """
    count = ordered.size
    above = np.geomspace(1, count, 300).round().astype(np.int64)  # trials, evenly spaced on the axis
    values = np.unique(ordered[count - above])
    values = np.concatenate([[start], values[values > start]])
    return values, 1 - np.searchsorted(ordered, values, side="left") / count
