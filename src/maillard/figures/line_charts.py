"""Line charts: regret over rounds, and regret against a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.transforms import ScaledTranslation

from maillard.figures.axes_frame import draw_frame
from maillard.figures.axis_scales import axis_fractions, axis_limits, plottable_values, set_scale
from maillard.figures.drawing import draw_line, line_segments, new_figure
from maillard.figures.labels import LegendEntry, draw_legend, legend_space
from maillard.figures.reference_lines import Reference, draw_inside_labels, draw_references
from maillard.figures.style import PANEL, RC, SeriesStyle, series_styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]


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
    with mpl.rc_context(RC):
        figure, axes = new_figure(size)
        set_scale(axes, "x", "log", *axis_limits(x, "log"))
        _set_vertical_limits(axes, yscale, [centre, most], references=references, top=top)
        styles = series_styles(len(names), style_indices)
        for i, look in enumerate(styles):
            bottom = np.maximum(least[i], axes.get_ylim()[0])
            axes.fill_between(
                x, bottom, np.maximum(most[i], bottom), color=look.colour, alpha=0.13, linewidth=0
            )
            draw_line(axes, x, centre[i], color=look.colour, linestyle=look.dash)
        lines, inside = draw_references(axes, references)
        ends = [*_legend_entries(axes, names, x, centre, styles, markers=False), *lines]
        reserved = legend_space(axes, [end.name for end in ends])
        draw_frame(figure, axes, title=title, xlabel="round", ylabel=label, note=note, reserved=reserved)
        draw_legend(axes, ends)
        draw_inside_labels(axes, inside)
    return figure


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
    with mpl.rc_context(RC):
        figure, axes = new_figure(size)
        positive = float(plottable_values(values, "log").min())
        xscale = "symlog" if xscale == "log" and values.min() <= 0 else xscale
        begin, end = axis_limits(values, xscale, margin=0.04)
        set_scale(axes, "x", xscale, begin if values.min() else -0.3 * positive, end, threshold=positive)
        _set_vertical_limits(axes, yscale, [centre, least, most], references=references, top=top)
        styles = series_styles(len(names), style_indices)
        barred = bool((np.array(most) > np.array(least)).any())
        for i, look in enumerate(styles):
            aside = barred * (i - (len(names) - 1) / 2) * min(2.5, 9 / len(names)) / 72
            moved = axes.transData + ScaledTranslation(aside, 0, figure.dpi_scale_trans)
            bottom = np.maximum(least[i], axes.get_ylim()[0])
            style: dict[str, Any] = {"color": look.colour, "transform": moved}
            draw_line(
                axes,
                line_segments(values, values),
                line_segments(bottom, most[i]),
                linewidth=1.3,
                alpha=0.5,
                **style,
            )
            draw_line(
                axes, values, centre[i], linestyle=look.dash, linewidth=1.5, marker=look.marker, **style
            )
        lines, inside = draw_references(axes, references)
        ends = [*_legend_entries(axes, names, values, centre, styles, markers=True), *lines]
        reserved = legend_space(axes, [end.name for end in ends])
        shown = ticks if ticks is not None or values.size > 9 else sorted(set(values.tolist()))
        draw_frame(
            figure, axes, title=title, xlabel=xlabel, ylabel=label, note=note, reserved=reserved, xticks=shown
        )
        draw_legend(axes, ends)
        draw_inside_labels(axes, inside)
    return figure


def _as_rows(*given: ArrayLike) -> list[Floats]:
    """Return arrays with one row per name."""
    return [np.atleast_2d(np.asarray(values, float)) for values in given]


def _set_vertical_limits(
    axes: Axes,
    scale: str,
    shown: Sequence[Floats],
    *,
    references: Sequence[Reference],
    top: float | None,
) -> None:
    """Set the vertical limits: from zero (on a logarithmic axis, the smallest value) to the largest value."""
    beside = [np.asarray(reference.y, float) for reference in references if scale == "log"]
    low, high = axis_limits(
        np.concatenate([plottable_values(row, scale) for row in [*shown, *beside]]),
        scale,
        zero=True,
        margin=0.04,
    )
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
    shown = np.isfinite(middle) & ((middle > 0) | (axes.get_yscale() != "log"))
    lasts = [int(np.flatnonzero(row)[-1]) if row.any() else 0 for row in shown]
    some = shown.any(axis=1)  # a series without a line still has an entry
    places = np.where(some, axis_fractions(axes.xaxis, x[lasts]), 1.0)
    heights = np.where(
        some, axis_fractions(axes.yaxis, np.where(some, middle[np.arange(some.size), lasts], 1.0)), 0.0
    )
    return [
        LegendEntry(
            name if height <= 1 else f"{name} ↑",  # it has left the axes
            max(float(height), 0.0)
            if height <= 1
            else 1 + 1e-9 * float(height),  # at the top, in their order
            look.colour,
            look.dash,
            float(place),
            look.marker if markers else "",
        )
        for name, place, height, look in zip(names, places, heights, styles, strict=True)
    ]
