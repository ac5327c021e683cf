"""The common style of figures: colours, markers, dashes and sizes.

Figures use exactly these colours; lighter shades are the same colours with opacity. A page that embeds a
figure can therefore replace each colour by a CSS variable, for example for dark mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

INK = "#1f2328"  # text and important marks
MUTED = "#656d76"  # axes, notes and reference lines
GRID = "#d8dee4"

# Found by a search over sRGB. Each has a contrast of at least 3 to white and to #14171a. Any two can be
# distinguished with normal vision, protanopia and deuteranopia. tests/figures/test_figures.py checks both.
COLOURS = (
    "#4e5acc",
    "#de6006",
    "#009c54",
    "#9c4296",
    "#3c90fc",
    "#b43c12",
    "#30a2a2",
    "#f06084",
    "#78605a",
    "#9072c6",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")

Dash = str | tuple[float, tuple[float, ...]]  # in matplotlib's format

# The number has no common factor with the number of colours, so two series with equal colours have different
# dashes.
DASHES: tuple[Dash, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1.2, 1.4)),
    (0, (6, 1.6, 1.2, 1.6)),
    (0, (7, 1.5)),
    (0, (6, 1.6, 1.2, 1.6, 1.2, 1.6)),
    (0, (2.6, 1.4)),
)

PANEL = (4.4, 3.4)  # inches; shown 360 pixels wide, a point is 1.1 pixels
SMALL, NORMAL, LARGE = 9.0, 9.5, 11.0  # points

RC: Any = {
    "font.family": "DejaVu Sans",  # included in matplotlib, so figures are the same on all machines
    "font.size": SMALL,
    "text.color": INK,
    "text.parse_math": False,
    "text.hinting": "none",  # makes the width of text independent of the resolution
    "path.simplify": False,  # simplification would remove the very short lines that draw dots
    "svg.hashsalt": "maillard",
    "svg.fonttype": "path",
    "figure.facecolor": "white",  # in notebooks, also those with a dark theme; `svg` leaves it out
    "savefig.facecolor": "auto",
    "axes.facecolor": "none",
    "lines.linewidth": 1.8,
    "lines.markersize": 5.0,
    "lines.markeredgewidth": 0.0,
    "patch.edgecolor": MUTED,
    "hatch.color": INK,
    "hatch.linewidth": 0.9,
}


@dataclass(frozen=True)
class SeriesStyle:
    """The colour, marker and dash of one series, the same in every panel."""

    colour: str
    marker: str
    dash: Dash


def series_styles(count: int, style_indices: Sequence[int] | None = None) -> list[SeriesStyle]:
    """Return the styles of `count` series, or those at the given indices of the palette.

    >>> [style.marker for style in series_styles(2, style_indices=(3, 0))]
    ['D', 'o']
    """
    return [
        SeriesStyle(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i in (range(count) if style_indices is None else style_indices)
    ]
