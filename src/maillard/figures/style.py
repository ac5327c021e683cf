"""The house look: colours, markers, dashes and sizes, in one place.

Every colour that a figure uses is one of these constants, exactly: a page that inlines a figure may replace each
by a variable of its own, and so has a dark mode. What series_styles lighter is the same colour with an opacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "COLOURS",
    "DASHES",
    "GRID",
    "INK",
    "LARGE",
    "MARKERS",
    "MUTED",
    "NORMAL",
    "PANEL",
    "RC",
    "SMALL",
    "Dash",
    "SeriesStyle",
    "series_styles",
]

INK = "#1f2328"  # text, and what must be seen
MUTED = "#656d76"  # axes, notes and references
GRID = "#d8dee4"

# Found by a search over sRGB: each has a contrast of at least 3 to white and to #14171a, and any two are told apart
# with normal vision, without red cones and without green cones (tests/test_figures.py checks both).
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

Dash = str | tuple[float, tuple[float, ...]]  # as matplotlib takes it

# As many as share no factor with the colours: a place that has another's colour has not its dash.
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
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that all machines draw alike
    "font.size": SMALL,
    "text.color": INK,
    "text.parse_math": False,
    "text.hinting": "none",  # letters as wide in a picture of any resolution as they were measured
    "path.simplify": False,  # the figures have few points, and dots are strokes too short to survive it
    "svg.hashsalt": "maillard",
    "svg.fonttype": "path",
    "figure.facecolor": "none",
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
    """How one name is drawn, in every panel alike."""

    colour: str
    marker: str
    dash: Dash


def series_styles(count: int, style_indices: Sequence[int] | None = None) -> list[SeriesStyle]:
    """The look of each of so many names, by their places in the palette.

    >>> [look.marker for look in series_styles(2, style_indices=(3, 0))]
    ['D', 'o']
    """
    return [
        SeriesStyle(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i in (range(count) if style_indices is None else style_indices)
    ]
