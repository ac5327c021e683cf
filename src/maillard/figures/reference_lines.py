"""Reference lines: a bound, a published value, the level of another policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from maillard.figures.axis_scales import add_headroom
from maillard.figures.drawing import LINE_HEIGHT, axes_size, draw_line
from maillard.figures.labels import LegendEntry
from maillard.figures.style import MUTED, SMALL, Dash
from maillard.figures.text_layout import text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

_THIN = 1.1
_EDGE = 0.94  # a line that ends further right is named in the legend


@dataclass(frozen=True, eq=False)
class Reference:
    """A thin, labelled line through these points; two points with the same x give a vertical line."""

    label: str
    x: ArrayLike
    y: ArrayLike
    dash: Dash = "--"


@dataclass(frozen=True)
class InsideLabel:
    """A label at the top of the axes, next to the position (0 to 1) where its line ends."""

    name: str
    place: float


def draw_references(
    axes: Axes, references: Sequence[Reference]
) -> tuple[list[LegendEntry], list[InsideLabel]]:
    """Draw the lines; return legend entries for those that reach the right edge, else inside labels.

    The vertical axis is extended at the top so that no curve passes through the inside labels.
    """
    for reference in references:
        draw_line(axes, reference.x, reference.y, color=MUTED, linestyle=reference.dash, linewidth=_THIN)
    inside = [_inside_label(axes, reference) for reference in references]
    if rows := sum(label is not None for label in inside):
        height = axes_size(axes)[1] * 0.75  # an estimate: the margins are not known yet
        add_headroom(axes, min(0.5, (rows * LINE_HEIGHT + 4) / height))
    ends, labels = [], []
    for reference, label in zip(references, inside, strict=True):
        if label is None:
            place, height = _last_visible_point(axes, reference)
            ends.append(
                LegendEntry(reference.label, height, MUTED, reference.dash, place, ink=MUTED, thickness=_THIN)
            )
        else:
            labels.append(label)
    return ends, labels


def draw_inside_labels(axes: Axes, labels: Sequence[InsideLabel]) -> None:
    """Draw labels at the top of the axes, one below the other, each next to its line."""
    wide, high = axes_size(axes)
    ordered = sorted(labels, key=lambda label: label.place)
    for row, label in enumerate(ordered):
        # To the left of the line, above the rising curves, if there is enough space; otherwise to the right.
        left = label.place * wide - 4 >= text_width(label.name)
        x = label.place * wide + (-4 if left else 4)
        axes.text(
            x / wide, 1 - (row * LINE_HEIGHT + 1) / high, label.name, transform=axes.transAxes, color=MUTED,
            fontsize=SMALL, va="top", ha="right" if left else "left",
        )  # fmt: skip


def _inside_label(axes: Axes, reference: Reference) -> InsideLabel | None:
    place, _ = _last_visible_point(axes, reference)
    if not np.isfinite(place):
        return InsideLabel(f"{reference.label} ↑", 0.0)  # the whole line is above the axes
    return None if place > _EDGE else InsideLabel(reference.label, place)


def _last_visible_point(axes: Axes, reference: Reference) -> tuple[float, float]:
    """Return the last visible point of the line in axes coordinates; NaN if no part is visible."""
    across = axes.transData - axes.transAxes
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = across.transform(
            np.column_stack([np.asarray(reference.x, float), np.asarray(reference.y, float)])
        )
    fine = np.linspace(0, len(corners) - 1, 64 * len(corners))
    x, y = (np.interp(fine, np.arange(len(corners)), corners[:, k]) for k in (0, 1))
    seen = np.flatnonzero((x >= -0.001) & (x <= 1.001) & (y >= -0.001) & (y <= 1.001))
    return (float(x[seen[-1]]), float(y[seen[-1]])) if seen.size else (np.nan, np.nan)
