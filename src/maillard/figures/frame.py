"""What surrounds the data: margins, ticks, grid, title and labels.

The margins are computed from the widths of the labels, and the axes are drawn here as a few strokes and texts. Matplotlib's
own layout draws a figure, sees what overlaps, and draws it again, and its axes have five objects for each tick: with
them, a panel takes half as many calls again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from maillard.figures.canvas import LINE, level, pieces, points, sheet, stroke
from maillard.figures.lettering import LEADING, broken, lines, tick, width
from maillard.figures.scales import fractions, thinned, ticks
from maillard.figures.style import GRID, INK, LARGE, MUTED, NORMAL, SMALL

__all__ = ["Room", "furnish"]

_EDGE = 6.0  # points between text and the edge of the sheet
_TICK = 3.0  # the length of a tick, in points


@dataclass(frozen=True)
class Room:
    """What is beside the axes needs, in points."""

    right: float = 0.0  # width
    height: float = 0.0  # of the axes, at least


@dataclass(frozen=True)
class _Mark:
    """A label of an axis: where along it (0 to 1), and what it says."""

    place: float
    text: str
    weight: str = "normal"


def furnish(
    figure: Figure,
    axes: Axes,
    *,
    title: str,
    xlabel: str,
    ylabel: str = "",
    note: str = "",
    room: Room | None = None,
    xticks: Sequence[float] | None = None,
    rows: Sequence[str] | None = None,
    bold: Collection[str] = (),
) -> None:
    """Margins, ticks, title, labels of the axes and a note below; `rows` are names instead of vertical ticks.

    The label of the vertical axis lies on top of it, where it can be read without turning the head, and takes
    no width from a panel on a telephone. A figure that is too low for its names is made higher.
    """
    wide, high = sheet(axes)
    room = room or Room()
    usable = wide - 2 * _EDGE
    heading, note = broken(title, usable, LARGE, "bold"), broken(note, usable)
    xlabel, ylabel = broken(xlabel, usable, NORMAL), broken(ylabel, usable, NORMAL)
    top = _EDGE + lines(heading) * LEADING * LARGE + lines(ylabel) * LEADING * NORMAL + (8 if ylabel else 5)
    bottom = _TICK + 4 + LINE + lines(xlabel) * LEADING * NORMAL + lines(note) * LINE + _EDGE

    up = _ticks(axes, "y", None) if rows is None else _rows(axes, rows, bold, 0.42 * wide)
    crowd = 0.0 if rows is None else 1.04 * LINE * len(up) * _tallest(up)
    if (needed := top + bottom + max(room.height, crowd)) > high:
        high = needed
        figure.set_size_inches(wide / 72, high / 72)
    across = _ticks(axes, "x", xticks)
    left = _EDGE + max((width(mark.text, SMALL, mark.weight) for mark in up), default=0.0) + _TICK + 4
    overhang = max((width(mark.text) / 2 - (1 - mark.place) * 0.4 * wide for mark in across), default=0.0)
    right = _EDGE + max(room.right, overhang)
    span, rise = wide - left - right, high - top - bottom
    axes.set_position((left / wide, bottom / high, span / wide, rise / high))

    across = _spaced(across, [width(mark.text) for mark in across], span, 5.0)
    up = up if rows is not None else _spaced(up, [LINE] * len(up), rise, 2.0)
    _draw_axes(axes, across, up, named=rows is not None)

    def write(x: float, y: float, text: str, size: float, colour: str, **style: Any) -> None:
        if text:
            figure.text(x / wide, y / high, text, fontsize=size, color=colour, linespacing=1.1, **style)

    write(_EDGE, high - _EDGE, heading, LARGE, INK, va="top", weight="bold")
    write(_EDGE, high - top + 6, ylabel, NORMAL, MUTED, va="bottom")
    half = width(xlabel, NORMAL) / 2 + _EDGE
    write(
        min(max(left + span / 2, half), wide - half),
        bottom - _TICK - 4 - LINE,
        xlabel,
        NORMAL,
        MUTED,
        va="top",
        ha="center",
    )
    write(_EDGE, _EDGE + lines(note) * LINE, note, SMALL, MUTED, va="top")


def _ticks(axes: Axes, which: str, wanted: Sequence[float] | None) -> list[_Mark]:
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = (float(v) for v in axis.get_view_interval())
    values = ticks(low, high, axis.get_scale()) if wanted is None else wanted
    marks = zip(fractions(axis, values), values, strict=True)
    return [_Mark(float(place), tick(value)) for place, value in marks if -1e-6 <= place <= 1 + 1e-6]


def _rows(axes: Axes, names: Sequence[str], bold: Collection[str], room: float) -> list[_Mark]:
    weights = ["bold" if name in bold else "normal" for name in names]
    places = fractions(axes.yaxis, np.arange(len(names)))
    return [
        _Mark(float(place), broken(name, room, SMALL, weight), weight)
        for place, name, weight in zip(places, names, weights, strict=True)
    ]


def _tallest(marks: Sequence[_Mark]) -> float:
    """How many lines apart rows must be, so that no name touches the next."""
    heights = [lines(mark.text) for mark in marks]
    return max((sum(two) / 2 for two in pairwise(heights)), default=float(max(heights)))


def _spaced(marks: Sequence[_Mark], lengths: Sequence[float], span: float, gap: float) -> list[_Mark]:
    return [marks[i] for i in thinned([mark.place * span for mark in marks], lengths, gap)]


def _draw_axes(axes: Axes, across: Sequence[_Mark], up: Sequence[_Mark], *, named: bool) -> None:
    """The grid, the two axes with their ticks, and their labels; the axis of names has neither grid nor ticks."""
    wide, high = points(axes)
    x, y = [mark.place for mark in across], [] if named else [mark.place for mark in up]
    grid: dict[str, Any] = {"color": GRID, "linewidth": 0.7, "zorder": 0.5, "beside": True}
    stroke(
        axes,
        pieces(x + [0.0] * len(y), x + [1.0] * len(y)),
        pieces([0.0] * len(x) + y, [1.0] * len(x) + y),
        **grid,
    )
    stroke(
        axes,
        [0.0, 0.0, 1.0, np.nan, *pieces(x, x), *pieces([0.0] * len(y), [-_TICK / wide] * len(y))],
        [1.0, 0.0, 0.0, np.nan, *pieces([0.0] * len(x), [-_TICK / high] * len(x)), *pieces(y, y)],
        color=MUTED, linewidth=0.8, beside=True,
    )  # fmt: skip
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": SMALL, "color": INK, "linespacing": 1.1}
    for mark in across:
        axes.text(mark.place, -(_TICK + 3) / high, mark.text, ha="center", va="top", **style)
    for mark in up:
        level(axes, -(_TICK + 4) / wide, mark.place, mark.text, ha="right", weight=mark.weight)
