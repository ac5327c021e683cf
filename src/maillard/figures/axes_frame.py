"""The frame around the data: margins, ticks, grid, title and labels.

Margins are computed from the widths of the labels, and the axes are drawn as a few lines and texts.
Matplotlib's own layout draws a figure twice to avoid overlaps, and creates five objects per tick, which takes
50% more calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from maillard.figures.axis_scales import axis_fractions, select_non_overlapping, tick_values
from maillard.figures.drawing import LINE_HEIGHT, axes_size, draw_line, draw_text, figure_size, line_segments
from maillard.figures.style import GRID, INK, LARGE, MUTED, NORMAL, SMALL
from maillard.figures.text_layout import format_tick, line_count, text_height, text_width, wrap_text

_EDGE = 6.0  # points between text and the edge of the figure
_TICK = 3.0  # the length of a tick, in points


@dataclass(frozen=True)
class _Mark:
    """A label of an axis: its position (0 to 1) and its text."""

    place: float
    text: str
    weight: str = "normal"


def draw_frame(
    figure: Figure,
    axes: Axes,
    *,
    title: str,
    xlabel: str,
    ylabel: str = "",
    note: str = "",
    right: float = 0.0,
    height: float = 0.0,
    xticks: Sequence[float] | None = None,
    rows: Sequence[str] | None = None,
    bold: Collection[str] = (),
) -> None:
    """Set the margins; draw ticks, title, axis labels and a note. `rows` are names instead of vertical ticks.

    The label of the vertical axis is horizontal and above the axis, which is easier to read and saves width.
    `right` is the width in points that stays free at the right, and `height` the minimum height of the axes.
    If the figure is too low for that or for its names, its height is increased.
    """
    wide, high = figure_size(axes)
    usable = wide - 2 * _EDGE
    heading, note = wrap_text(title, usable, LARGE, "bold"), wrap_text(note, usable)
    xlabel, ylabel = wrap_text(xlabel, usable, NORMAL), wrap_text(ylabel, usable, NORMAL)
    top = _EDGE + text_height(heading, LARGE) + text_height(ylabel, NORMAL) + (8 if ylabel else 5)
    bottom = _TICK + 4 + LINE_HEIGHT + text_height(xlabel, NORMAL) + text_height(note) + _EDGE

    if rows is None:
        up = _tick_marks(axes.yaxis, None)
    else:
        axes.set_ylim(len(rows) - 0.4, -0.6)
        up = _row_marks(axes.yaxis, rows, bold, 0.42 * wide)
        height = max(height, 1.04 * LINE_HEIGHT * len(up) * _row_spacing(up))
    if (needed := top + bottom + height) > high:
        high = needed
        figure.set_size_inches(wide / 72, high / 72)
    across = _tick_marks(axes.xaxis, xticks)
    left = _EDGE + max((text_width(mark.text, SMALL, mark.weight) for mark in up), default=0.0) + _TICK + 4
    overhangs = [text_width(mark.text) / 2 - (1 - mark.place) * 0.4 * wide for mark in across]
    right = _EDGE + max(right, *overhangs, 0.0)
    span, rise = wide - left - right, high - top - bottom
    axes.set_position((left / wide, bottom / high, span / wide, rise / high))

    across = _drop_overlapping(across, [text_width(mark.text) for mark in across], span, 5.0)
    up = up if rows is not None else _drop_overlapping(up, [LINE_HEIGHT] * len(up), rise, 2.0)
    _draw_axes(axes, across, up, named=rows is not None)

    def write(x: float, y: float, text: str, size: float, colour: str, **style: Any) -> None:
        if text:
            figure.text(x / wide, y / high, text, fontsize=size, color=colour, linespacing=1.1, **style)

    write(_EDGE, high - _EDGE, heading, LARGE, INK, va="top", weight="bold")
    write(_EDGE, high - top + 6, ylabel, NORMAL, MUTED, va="bottom")
    half = text_width(xlabel, NORMAL) / 2 + _EDGE
    middle = min(max(left + span / 2, half), wide - half)
    write(middle, bottom - _TICK - 4 - LINE_HEIGHT, xlabel, NORMAL, MUTED, va="top", ha="center")
    write(_EDGE, _EDGE + text_height(note), note, SMALL, MUTED, va="top")


def draw_frame_with_values(
    figure: Figure,
    axes: Axes,
    names: Sequence[str],
    values: Sequence[str],
    *,
    gap: float,
    bold: Collection[str] = (),
    **frame: Any,
) -> None:
    """Draw a frame with a row for each name, and the text of its value at the right, after a gap."""
    weights = ["bold" if name in bold else "normal" for name in names]
    right = gap + max(text_width(text, SMALL, weight) for text, weight in zip(values, weights, strict=True))
    draw_frame(figure, axes, rows=names, bold=bold, right=right, **frame)
    places = axis_fractions(axes.yaxis, np.arange(len(names)))
    for place, text, weight in zip(places, values, weights, strict=True):
        draw_text(axes, 1 + right / axes_size(axes)[0], float(place), text, ha="right", weight=weight)


def _tick_marks(axis: Axis, wanted: Sequence[float] | None) -> list[_Mark]:
    low, high = (float(v) for v in axis.get_view_interval())
    values = tick_values(low, high, axis.get_scale()) if wanted is None else wanted
    marks = zip(axis_fractions(axis, values), values, strict=True)
    return [_Mark(float(place), format_tick(value)) for place, value in marks if -1e-6 <= place <= 1 + 1e-6]


def _row_marks(axis: Axis, names: Sequence[str], bold: Collection[str], max_width: float) -> list[_Mark]:
    marks = []
    for place, name in zip(axis_fractions(axis, np.arange(len(names))), names, strict=True):
        weight = "bold" if name in bold else "normal"
        marks.append(_Mark(float(place), wrap_text(name, max_width, SMALL, weight), weight))
    return marks


def _row_spacing(marks: Sequence[_Mark]) -> float:
    """Return the distance between rows, in lines, at which no names overlap."""
    heights = [line_count(mark.text) for mark in marks]
    return max((sum(two) / 2 for two in pairwise(heights)), default=float(max(heights)))


def _drop_overlapping(
    marks: Sequence[_Mark], lengths: Sequence[float], span: float, gap: float
) -> list[_Mark]:
    return [marks[i] for i in select_non_overlapping([mark.place * span for mark in marks], lengths, gap)]


def _draw_axes(axes: Axes, across: Sequence[_Mark], up: Sequence[_Mark], *, named: bool) -> None:
    """Draw the grid, both axes with ticks, and their labels; an axis of names has neither grid nor ticks."""
    wide, high = axes_size(axes)
    x, y = [mark.place for mark in across], [] if named else [mark.place for mark in up]
    draw_line(
        axes,
        line_segments(x + [0.0] * len(y), x + [1.0] * len(y)),
        line_segments([0.0] * len(x) + y, [1.0] * len(x) + y),
        color=GRID, linewidth=0.7, zorder=0.5, axes_coordinates=True,
    )  # fmt: skip
    draw_line(
        axes,
        [0.0, 0.0, 1.0, np.nan, *line_segments(x, x), *line_segments([0.0] * len(y), -_TICK / wide)],
        [1.0, 0.0, 0.0, np.nan, *line_segments([0.0] * len(x), -_TICK / high), *line_segments(y, y)],
        color=MUTED, linewidth=0.8, axes_coordinates=True,
    )  # fmt: skip
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": SMALL, "color": INK, "linespacing": 1.1}
    for mark in across:
        axes.text(mark.place, -(_TICK + 3) / high, mark.text, ha="center", va="top", **style)
    for mark in up:
        draw_text(axes, -(_TICK + 4) / wide, mark.place, mark.text, ha="right", weight=mark.weight)
