"""Frontier charts: a trade-off between two quantities, such as mean regret and its standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from maillard.figures.axes_frame import draw_frame
from maillard.figures.axis_scales import axis_fractions, axis_limits, set_scale
from maillard.figures.drawing import LINE_HEIGHT, axes_size, draw_line, draw_text, new_figure
from maillard.figures.labels import Box, find_free_position
from maillard.figures.style import INK, PANEL, RC, SMALL, series_styles
from maillard.figures.text_layout import text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_DOT = 3.5  # half of the size of a marker, in points


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
    with mpl.rc_context(RC):
        figure, axes = new_figure(size)
        set_scale(axes, "x", xscale, *axis_limits(np.concatenate(across), xscale, margin=0.08))
        set_scale(axes, "y", yscale, *axis_limits(np.concatenate(up), yscale, margin=0.1))
        styles = series_styles(len(names), style_indices)
        for x, y, style in zip(across, up, styles, strict=True):
            draw_line(
                axes,
                x,
                y,
                color=style.colour,
                linestyle=style.dash,
                linewidth=1.3,
                marker=style.marker,
                markersize=5.5,
            )
        draw_frame(figure, axes, title=title, xlabel=xlabel, ylabel=ylabel, note=note)
        wide, high = axes_size(axes)
        spots = [
            np.column_stack([axis_fractions(axes.xaxis, x) * wide, axis_fractions(axes.yaxis, y) * high])
            for x, y in zip(across, up, strict=True)
        ]
        wanted = [
            _PointLabel(name, "bold", style.colour, spot[-1])
            for name, style, spot in zip(names, styles, spots, strict=True)
        ]
        wanted += [
            _PointLabel(text, "normal", INK, spot)
            for texts, path in zip(labels, spots, strict=True)
            for text, spot in zip(texts, path, strict=True)
            if text
        ]
        _draw_point_labels(axes, wanted, spots)
    return figure


@dataclass(frozen=True)
class _PointLabel:
    """A text to be drawn near a point."""

    text: str
    weight: str
    colour: str
    spot: Floats


def _draw_point_labels(axes: Axes, wanted: Sequence[_PointLabel], paths: Sequence[Floats]) -> None:
    """Draw each text at the nearest position that is free of markers and texts and, if possible, of paths."""
    wide, high = axes_size(axes)
    taken = _boxes_around(np.concatenate(paths), _DOT)
    crossed = _boxes_around(np.concatenate([_points_along(path) for path in paths]), 1.0)
    for want in wanted:
        size = (text_width(want.text, SMALL, want.weight) + 2, LINE_HEIGHT)
        anchor, inside = (float(want.spot[0]), float(want.spot[1])), (0.0, 0.0, wide, high)
        place = find_free_position(
            anchor, size, [*taken, *crossed], within=inside, reach=18.0
        ) or find_free_position(
            anchor, size, taken, within=inside, reach=60.0 if want.weight == "bold" else 12.0
        )
        if place is not None:
            taken.append(place)
            draw_text(
                axes,
                (place[0] + 1) / wide,
                (place[1] + LINE_HEIGHT / 2) / high,
                want.text,
                weight=want.weight,
                color=want.colour,
            )


def _points_along(path: Floats) -> Floats:
    """Return points on the path at small distances."""
    steps = np.hypot(*np.diff(path, axis=0).T)
    travelled = np.concatenate([[0.0], np.cumsum(steps)])
    fine = np.linspace(0, travelled[-1], int(travelled[-1] / 4) + 1)
    return np.column_stack([np.interp(fine, travelled, path[:, k]) for k in (0, 1)])


def _boxes_around(spots: Floats, half: float) -> list[Box]:
    return [(x - half, y - half, x + half, y + half) for x, y in spots.tolist()]
