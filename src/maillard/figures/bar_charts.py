"""Bar charts: plain numbers, or mean regret with its standard deviation as in the paper."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from numpy.typing import ArrayLike

from maillard.array_types import Floats
from maillard.figures.axes_frame import draw_frame_with_values
from maillard.figures.axis_scales import set_scale
from maillard.figures.drawing import draw_line, line_segments, new_figure, styled
from maillard.figures.style import INK, MUTED, PANEL, series_styles
from maillard.figures.text_layout import format_number

_THICK = 0.36  # half of the thickness of a bar, in rows
_ROWS = 7  # with fewer bars than this, bars are not thicker
_GAP = 9.0  # points before the printed values


@styled
def bars(
    names: Sequence[str],
    means: ArrayLike,
    deviations: ArrayLike | None = None,
    *,
    values: Sequence[str] | None = None,
    label: str,
    title: str = "",
    shaded: Collection[str] = (),
    hatched: Collection[str] = (),
    emphasised: Collection[str] = (),
    limit: float | None = None,
    style_indices: Sequence[int] | None = None,
    note: str = "",
    size: tuple[float, float] = PANEL,
) -> Figure:
    """Draw a bar for each name, with its mean and standard deviation, and print both numbers at the right.

    Without `deviations` there are only the means, and `values` are the texts to print in place of numbers.
    Names in `shaded` have grey bars, names in `hatched` hatched bars, names in `emphasised` are bold. A bar
    that is longer than `limit` has a gap and a pointed end; a longer deviation ends in an arrow. The default
    limit prevents that a few very long bars make all others too short. All bars have the same colour unless
    `style_indices` are given.
    """
    mean = np.asarray(means, float)
    deviation = np.zeros(mean.size) if deviations is None else np.asarray(deviations, float)
    end = _axis_end(mean + deviation) if limit is None else limit
    styles = series_styles(len(names), style_indices or (0,) * len(names))
    figure, axes = new_figure(size)
    set_scale(axes, "x", "linear", min(0.0, float(mean.min())), end)
    thick = _THICK * min(1.0, len(names) / _ROWS)
    for i, name in enumerate(names):
        colour, opacity = (MUTED, 0.42) if name in shaded else (styles[i].colour, 0.85)
        for part in _bar_corners(i, float(mean[i]), end, thick):
            axes.add_artist(Polygon(part, linewidth=0, color=colour, alpha=opacity))
            if name in hatched:
                lines = Polygon(part, fill=False, hatch="/////", linewidth=0, edgecolor=INK, alpha=0.75)
                axes.add_artist(lines)
    _draw_deviations(axes, mean, deviation, end, cap=thick * 0.45)
    texts = [format_number(float(each)) for each in mean] if values is None else values
    if deviations is not None:
        texts = [f"{text} ± {format_number(s)}" for text, s in zip(texts, deviation, strict=True)]
    draw_frame_with_values(
        figure, axes, names, texts, gap=_GAP, bold=emphasised, title=title, xlabel=label, note=note
    )
    return figure


def _axis_end(reach: Floats) -> float:
    """Return the end of the axis: the longest bar with its deviation, without outliers."""
    usual = 2.5 * float(np.quantile(reach, 0.75, method="lower"))
    if not 0 < usual < reach.max():
        return float(reach.max()) * 1.02 or 1.0
    return 1.3 * float(reach[reach <= usual].max())


def _bar_corners(row: int, mean: float, end: float, thick: float) -> list[list[tuple[float, float]]]:
    """Return the corners of a bar; of two parts, with a slanted gap and a pointed end, if it is too long."""
    low, high = row - thick, row + thick
    if mean <= end:
        return [[(0, low), (mean, low), (mean, high), (0, high)]]
    slant, start, stop, tip = (fraction * end for fraction in (0.025, 0.88, 0.91, 0.965))
    return [
        [(0, low), (start + slant, low), (start - slant, high), (0, high)],
        [(stop + slant, low), (tip, low), (end, row), (tip, high), (stop - slant, high)],
    ]


def _draw_deviations(axes: Axes, mean: Floats, deviation: Floats, end: float, *, cap: float) -> None:
    """Draw one standard deviation on each side, with caps; no cap at zero, and an arrow beyond the end."""
    rows = np.arange(mean.size)
    shown = (mean <= end) & (deviation > 0)
    low, high = np.maximum(mean - deviation, np.minimum(mean, 0.0)), np.minimum(mean + deviation, end)
    cut = shown & (mean + deviation > end)
    capped_low, capped_high = shown & (mean - deviation >= 0), shown & ~cut
    caps = np.concatenate([low[capped_low], high[capped_high]])
    at = np.concatenate([rows[capped_low], rows[capped_high]])
    draw_line(
        axes,
        np.concatenate([line_segments(low[shown], high[shown]), line_segments(caps, caps)]),
        np.concatenate([line_segments(rows[shown], rows[shown]), line_segments(at - cap, at + cap)]),
        color=INK, linewidth=1.0, solid_capstyle="butt",
    )  # fmt: skip
    draw_line(axes, high[cut], rows[cut], linestyle="", marker=">", color=INK, markersize=4.5, clip_on=False)
