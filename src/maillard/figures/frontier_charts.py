"""Frontier charts: a trade-off between two quantities, such as mean regret and its standard deviation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from maillard.array_types import Floats
from maillard.figures.axes_frame import draw_frame
from maillard.figures.axis_scales import axis_fractions, axis_limits, set_scale
from maillard.figures.drawing import LINE_HEIGHT, axes_size, draw_line, draw_text, new_figure, styled
from maillard.figures.labels import Box, find_free_position
from maillard.figures.style import INK, PANEL, SMALL, series_styles
from maillard.figures.text_layout import text_width

_DOT = 3.5  # half of the size of a marker, in points


@styled
def frontier(
    names: Sequence[str],
    means: Sequence[ArrayLike],
    deviations: Sequence[ArrayLike],
    labels: Sequence[Sequence[str]],
    *,
    title: str = "",
    xlabel: str = "mean regret",
    ylabel: str = "standard deviation of regret",
    xscale: str = "linear",
    yscale: str = "linear",
    style_indices: Sequence[int] | None = None,
    note: str = "",
    size: tuple[float, float] = PANEL,
) -> Figure:
    """Draw a path of points (mean, deviation) for each name; the series may have different lengths.

    `labels` has a text for each point, or an empty string. A label without a free position is left out. The
    name is drawn next to the last point of its path, in bold and in the same colour.
    """
    across = [np.atleast_1d(np.asarray(row, float)) for row in means]
    up = [np.atleast_1d(np.asarray(row, float)) for row in deviations]
    figure, axes = new_figure(size)
    set_scale(axes, "x", xscale, *axis_limits(np.concatenate(across), xscale, margin=0.08))
    set_scale(axes, "y", yscale, *axis_limits(np.concatenate(up), yscale, margin=0.1))
    styles = series_styles(len(names), style_indices)
    for x, y, style in zip(across, up, styles, strict=True):
        draw_line(
            axes, x, y, color=style.colour, linestyle=style.dash, linewidth=1.3, marker=style.marker,
            markersize=5.5,
        )  # fmt: skip
    draw_frame(figure, axes, title=title, xlabel=xlabel, ylabel=ylabel, note=note)
    wide, high = axes_size(axes)
    paths = [
        np.column_stack([axis_fractions(axes.xaxis, x) * wide, axis_fractions(axes.yaxis, y) * high])
        for x, y in zip(across, up, strict=True)
    ]
    taken = _boxes_around(np.concatenate(paths), _DOT)
    crossed = _boxes_around(np.concatenate([_points_along(path) for path in paths]), 1.0)

    def write(text: str, point: Floats, colour: str, weight: str, reach: float) -> None:
        """Draw a text at the nearest position without markers and texts and, if possible, without paths."""
        extent = (text_width(text, SMALL, weight) + 2, LINE_HEIGHT)
        for avoided, distance in (([*taken, *crossed], 18.0), (taken, reach)):
            box = find_free_position(point, extent, avoided, within=(0.0, 0.0, wide, high), reach=distance)
            if box is not None:
                taken.append(box)
                x, y = (box[0] + 1) / wide, (box[1] + LINE_HEIGHT / 2) / high
                draw_text(axes, x, y, text, weight=weight, color=colour)
                return

    for name, style, path in zip(names, styles, paths, strict=True):
        write(name, path[-1], style.colour, "bold", 60.0)
    for texts, path in zip(labels, paths, strict=True):
        for text, point in zip(texts, path, strict=True):
            if text:
                write(text, point, INK, "normal", 12.0)
    return figure


def _points_along(path: Floats) -> Floats:
    """Return points on the path at small distances."""
    steps = np.hypot(*np.diff(path, axis=0).T)
    travelled = np.concatenate([[0.0], np.cumsum(steps)])
    fine = np.linspace(0, travelled[-1], int(travelled[-1] / 4) + 1)
    return np.column_stack([np.interp(fine, travelled, path[:, k]) for k in (0, 1)])


def _boxes_around(spots: Floats, half: float) -> list[Box]:
    return [(x - half, y - half, x + half, y + half) for x, y in spots.tolist()]
