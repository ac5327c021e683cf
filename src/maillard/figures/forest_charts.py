"""Forest plots: the estimates of several estimators with their intervals."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from maillard.figures.axes_frame import draw_frame_with_values
from maillard.figures.axis_scales import axis_fractions, axis_limits, set_scale
from maillard.figures.drawing import axes_size, draw_line, draw_text, line_segments, new_figure, styled
from maillard.figures.style import MUTED, PANEL, series_styles
from maillard.figures.text_layout import format_number

_GAP = 8.0  # points before the printed values
_MARKER = 6.0  # points
_ROW = 17.0  # height of a row in points


@styled
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
    styles = series_styles(len(names), style_indices or (0,) * len(names))
    figure, axes = new_figure((size[0], min(size[1], (len(names) + 4.5) * _ROW / 72)))
    ends = np.concatenate([middle, least, most, span or (), [] if reference is None else [reference]])
    set_scale(axes, "x", "linear", *axis_limits(ends, "linear", margin=0.04))
    texts = ["" if np.isnan(value) else format_number(float(value)) for value in middle]
    draw_frame_with_values(figure, axes, names, texts, gap=_GAP, title=title, xlabel=label, note=note)
    if reference is not None:
        draw_line(axes, [reference] * 2, axes.get_ylim(), color=MUTED, linewidth=1.1, linestyle="--")
    wide = axes_size(axes)[0]
    # Lines stop at the markers, so that they are not visible inside hollow ones.
    gap = (_MARKER + 1.3) / 2 / wide * (axes.get_xlim()[1] - axes.get_xlim()[0])
    for row, (name, text, style) in enumerate(zip(names, texts, styles, strict=True)):
        if not text:
            height = float(axis_fractions(axes.yaxis, [row])[0])
            draw_text(axes, _GAP / wide, height, missing, color=MUTED, style="italic")
            continue
        begins = np.array([least[row], max(middle[row] + gap, least[row])])
        stops = np.array([min(middle[row] - gap, most[row]), most[row]])
        shown = begins < stops
        line = line_segments(begins[shown], stops[shown])
        draw_line(
            axes, line, np.full(line.size, row), color=style.colour, linewidth=1.8, solid_capstyle="butt"
        )
        draw_line(
            axes, [middle[row]], [row],
            linestyle="", marker=style.marker, markersize=_MARKER, color=style.colour,
            markeredgewidth=1.3, fillstyle="none" if name in hollow else "full",
        )  # fmt: skip
    return figure
