"""Line charts: regret over rounds, and regret against a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike

from maillard.array_types import Floats
from maillard.figures.axis_scales import axis_fractions, axis_limits, plottable_values, set_scale
from maillard.figures.drawing import draw_line, line_segments, new_figure, styled
from maillard.figures.labels import LegendEntry, draw_frame_with_legend
from maillard.figures.reference_lines import Reference, draw_references
from maillard.figures.style import PANEL, SeriesStyle, series_styles


@styled
def curves(
    rounds: ArrayLike,
    names: Sequence[str],
    middle: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    label: str,
    title: str = "",
    references: Sequence[Reference] = (),
    yscale: str = "linear",
    top: float | None = None,
    style_indices: Sequence[int] | None = None,
    note: str = "",
    size: tuple[float, float] = (8.6, 4.8),
) -> Figure:
    """Draw a curve with a band for each name over rounds, on a logarithmic axis.

    The vertical axis ends at the highest band, or at `top`. References that are higher leave the axes and are
    labelled at that point; a logarithmic axis includes all of them.
    """
    x, (centre, least, most) = np.asarray(rounds, float), _as_rows(middle, low, high)
    figure, axes = new_figure(size)
    set_scale(axes, "x", "log", *axis_limits(x, "log"))
    _set_vertical_limits(axes, yscale, [centre, most], references, top)
    styles = series_styles(len(names), style_indices)
    for i, look in enumerate(styles):
        bottom = np.maximum(least[i], axes.get_ylim()[0])
        highest = np.maximum(most[i], bottom)
        axes.fill_between(x, bottom, highest, color=look.colour, alpha=0.13, linewidth=0)
        draw_line(axes, x, centre[i], color=look.colour, linestyle=look.dash)
    lines, inside = draw_references(axes, references)
    ends = [*_legend_entries(axes, names, x, centre, styles, markers=False), *lines]
    draw_frame_with_legend(figure, axes, ends, inside, title=title, xlabel="round", ylabel=label, note=note)
    return figure


@styled
def sweep(
    x: ArrayLike,
    names: Sequence[str],
    middle: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    xlabel: str,
    label: str,
    title: str = "",
    xscale: str = "log",
    yscale: str = "linear",
    ticks: Sequence[float] | None = None,
    references: Sequence[Reference] = (),
    top: float | None = None,
    style_indices: Sequence[int] | None = None,
    note: str = "",
    size: tuple[float, float] = PANEL,
) -> Figure:
    """Draw a line with markers for each name against a parameter, with error bars from low to high.

    If the parameter has few values, ticks are at these values. A logarithmic axis shows a zero at its left
    end. If there are error bars, lines are shifted slightly so that the bars do not overlap.
    """
    values, (centre, least, most) = np.asarray(x, float), _as_rows(middle, low, high)
    figure, axes = new_figure(size)
    positive = float(plottable_values(values, "log").min())
    xscale = "symlog" if xscale == "log" and values.min() <= 0 else xscale
    begin, end = axis_limits(values, xscale, margin=0.04)
    set_scale(axes, "x", xscale, begin if values.min() else -0.3 * positive, end, threshold=positive)
    _set_vertical_limits(axes, yscale, [centre, least, most], references, top)
    styles = series_styles(len(names), style_indices)
    barred = bool((most > least).any())
    for i, look in enumerate(styles):
        aside = barred * (i - (len(names) - 1) / 2) * min(2.5, 9 / len(names)) / 72
        moved = axes.transData + ScaledTranslation(aside, 0, figure.dpi_scale_trans)
        style: dict[str, Any] = {"color": look.colour, "transform": moved}
        error_bars = line_segments(np.maximum(least[i], axes.get_ylim()[0]), most[i])
        draw_line(axes, line_segments(values, values), error_bars, linewidth=1.3, alpha=0.5, **style)
        draw_line(axes, values, centre[i], linestyle=look.dash, linewidth=1.5, marker=look.marker, **style)
    lines, inside = draw_references(axes, references)
    ends = [*_legend_entries(axes, names, values, centre, styles, markers=True), *lines]
    if ticks is None and values.size <= 9:
        ticks = sorted(set(values.tolist()))
    draw_frame_with_legend(
        figure, axes, ends, inside, title=title, xlabel=xlabel, ylabel=label, note=note, xticks=ticks
    )
    return figure


def _as_rows(*given: ArrayLike) -> list[Floats]:
    """Return arrays with one row per name."""
    return [np.atleast_2d(np.asarray(values, float)) for values in given]


def _set_vertical_limits(
    axes: Axes, scale: str, shown: Sequence[Floats], references: Sequence[Reference], top: float | None
) -> None:
    """Set the vertical limits: from zero (on a logarithmic axis, the smallest value) to the largest value."""
    lines = [reference.y for reference in references if scale == "log"]
    values = np.concatenate([plottable_values(row, scale) for row in (*shown, *lines)])
    low, high = axis_limits(values, scale, zero=True, margin=0.04)
    set_scale(axes, "y", scale, low, high if top is None else top)


def _legend_entries(
    axes: Axes,
    names: Sequence[str],
    x: Floats,
    middle: Floats,
    styles: Sequence[SeriesStyle],
    *,
    markers: bool,
) -> list[LegendEntry]:
    """Return a legend entry for each line, at its last value that the axes can show."""
    entries = []
    for name, row, look in zip(names, middle, styles, strict=True):
        place, height = 1.0, 0.0  # of a series without a line
        shown = np.flatnonzero(np.isfinite(row) & ((row > 0) | (axes.get_yscale() != "log")))
        if shown.size:
            place = float(axis_fractions(axes.xaxis, x[shown[-1:]])[0])
            height = float(axis_fractions(axes.yaxis, row[shown[-1:]])[0])
        above = height > 1  # it has left the axes; such entries are at the top, in their order
        entries.append(
            LegendEntry(
                f"{name} ↑" if above else name,
                1 + 1e-9 * height if above else max(height, 0.0),
                look.colour,
                look.dash,
                place,
                look.marker if markers else "",
            )
        )
    return entries
