"""Forest plots: the estimates of several estimators with their intervals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from maillard.figures.axes_frame import ReservedSpace, draw_frame
from maillard.figures.axis_scales import axis_fractions, axis_limits, set_scale
from maillard.figures.drawing import axes_size, draw_line, draw_text, line_segments, new_figure
from maillard.figures.style import MUTED, PANEL, RC, series_styles
from maillard.figures.text_layout import format_number, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

_GAP = 8.0  # points before the printed values
_MARKER = 6.0  # points
_ROW = 17.0  # height of a row in points


def forest(
    names: Sequence[str],
    values: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    label: str,
    title: str = "",
    style_indices: Sequence[int] | None = None,
    hollow: Collection[str] = (),
    missing: str = "refused",
    reference: float | None = None,
    span: tuple[float, float] | None = None,
    note: str = "",
    size: tuple[float, float] = PANEL,
) -> Figure:
    """Draw a row for each name: a marker at its value, a line over its interval, and the value as a number.

    If a value is NaN, the row shows the text `missing`; ends that are NaN are not drawn. Names in `hollow`
    have hollow markers. `reference` adds a vertical line, for example at 0 for differences or at the true
    value. The axis includes at least `span`, so that figures can be compared. All rows have the same style
    unless `style_indices` are given.
    """
    middle, least, most = (np.asarray(each, float) for each in (values, low, high))
    rows = np.arange(len(names))
    with mpl.rc_context(RC):
        figure, axes = new_figure((size[0], min(size[1], (len(names) + 4.5) * _ROW / 72)))
        ends = np.concatenate([middle, least, most, span or (), [] if reference is None else [reference]])
        set_scale(axes, "x", "linear", *axis_limits(ends, "linear", margin=0.04))
        axes.set_ylim(len(names) - 0.4, -0.6)
        texts = ["" if np.isnan(value) else format_number(float(value)) for value in middle]
        widest = max((text_width(text) for text in texts), default=0.0)
        draw_frame(
            figure,
            axes,
            title=title,
            xlabel=label,
            note=note,
            rows=names,
            reserved=ReservedSpace(right=_GAP + widest),
        )
        if reference is not None:
            draw_line(
                axes, [reference, reference], axes.get_ylim(), color=MUTED, linewidth=1.1, linestyle="--"
            )
        for style, row, name, text in zip(
            series_styles(len(names), style_indices or (0,) * len(names)), rows, names, texts, strict=True
        ):
            height = float(axis_fractions(axes.yaxis, [row])[0])
            if not text:
                draw_text(axes, _GAP / axes_size(axes)[0], height, missing, color=MUTED, style="italic")
                continue
            # The line stops at the marker, so that it is not visible inside a hollow marker.
            gap = (_MARKER + 1.3) / 2 / axes_size(axes)[0] * (axes.get_xlim()[1] - axes.get_xlim()[0])
            begins = [least[row], max(middle[row] + gap, least[row])]
            stops = [min(middle[row] - gap, most[row]), most[row]]
            shown = [begin < stop for begin, stop in zip(begins, stops, strict=True)]
            line = line_segments(np.array(begins)[shown], np.array(stops)[shown])
            draw_line(
                axes, line, np.full(line.size, row), color=style.colour, linewidth=1.8, solid_capstyle="butt"
            )
            draw_line(
                axes, [middle[row]], [row],
                linestyle="", marker=style.marker, markersize=_MARKER, color=style.colour,
                markeredgewidth=1.3, fillstyle="none" if name in hollow else "full",
            )  # fmt: skip
            draw_text(axes, 1 + (_GAP + widest) / axes_size(axes)[0], height, text, ha="right")
    return figure
