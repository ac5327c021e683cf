"""Reference lines: a bound, a published value, the level of another policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from maillard.figures.axis_scales import add_headroom
from maillard.figures.drawing import LINE_HEIGHT, axes_size, draw_line
from maillard.figures.labels import InsideLabel, LegendEntry
from maillard.figures.style import MUTED, Dash

_THIN = 1.1
_EDGE = 0.94  # a line that ends further right is named in the legend


@dataclass(frozen=True, eq=False)
class Reference:
    """A thin, labelled line through these points; two points with the same x give a vertical line."""

    label: str
    x: ArrayLike
    y: ArrayLike
    dash: Dash = "--"


def draw_references(
    axes: Axes, references: Sequence[Reference]
) -> tuple[list[LegendEntry], list[InsideLabel]]:
    """Draw the lines; return legend entries for those that reach the right edge, else inside labels.

    The vertical axis is extended at the top so that no curve passes through the inside labels.
    """
    at_edge, inside = [], []
    for reference in references:
        draw_line(axes, reference.x, reference.y, color=MUTED, linestyle=reference.dash, linewidth=_THIN)
        place, _ = _last_visible_point(axes, reference)
        if place > _EDGE:
            at_edge.append(reference)
        elif np.isfinite(place):
            inside.append((place, reference.label))
        else:
            inside.append((0.0, f"{reference.label} ↑"))  # the whole line is above the axes
    if inside:
        height = axes_size(axes)[1] * 0.75  # an estimate: the margins are not known yet
        add_headroom(axes, min(0.5, (len(inside) * LINE_HEIGHT + 4) / height))
    entries = []
    for reference in at_edge:
        place, height = _last_visible_point(axes, reference)
        entries.append(
            LegendEntry(reference.label, height, MUTED, reference.dash, place, ink=MUTED, thickness=_THIN)
        )
    return entries, inside


def _last_visible_point(axes: Axes, reference: Reference) -> tuple[float, float]:
    """Return the last visible point of the line in axes coordinates; NaN if no part is visible."""
    across = axes.transData - axes.transAxes
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = across.transform(np.column_stack([reference.x, reference.y]).astype(float))
    fine = np.linspace(0, len(corners) - 1, 64 * len(corners))
    x, y = (np.interp(fine, np.arange(len(corners)), corners[:, k]) for k in (0, 1))
    seen = np.flatnonzero((x >= -0.001) & (x <= 1.001) & (y >= -0.001) & (y <= 1.001))
    return (float(x[seen[-1]]), float(y[seen[-1]])) if seen.size else (np.nan, np.nan)
