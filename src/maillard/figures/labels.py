"""Legends and labels next to the data, placed so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from maillard.array_types import Floats
from maillard.figures.axes_frame import draw_frame
from maillard.figures.drawing import LINE_HEIGHT, axes_size, draw_line, draw_text, figure_size
from maillard.figures.style import INK, MUTED, SMALL, Dash
from maillard.figures.text_layout import text_height, text_width, wrap_text

_LEADER = 6.0  # points from the axes to the sample of a line
_SAMPLE = 22.0  # the length of the sample
_GAP = 4.0  # points before the name
_SHARE = 0.34  # of the figure width: longer names are wrapped

Box = tuple[float, float, float, float]  # left, bottom, right, top
_AROUND = ((1, 0), (0.7, 0.7), (0, 1), (-0.7, 0.7), (-1, 0), (-0.7, -0.7), (0, -1), (0.7, -0.7))


@dataclass(frozen=True)
class LegendEntry:
    """An entry of the legend at the right: the height of the end of its curve (0 to 1) and its line style."""

    name: str
    height: float
    colour: str
    dash: Dash
    place: float = 1.0  # where the curve ends, from 0 (left) to 1 (right)
    marker: str = ""
    ink: str = INK
    thickness: float = 1.8


# A label at the top of the axes: the position (0 to 1) where its line ends, and its text.
InsideLabel = tuple[float, str]


def spread_labels(centres: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Move labels vertically as little as possible so that none overlap, and return their new centres.

    The order is kept, and all labels stay between low and high if they fit. This is isotonic regression:
    labels that touch form a block, which moves to the mean of the desired positions of its members.

    >>> spread_labels([5.0, 5.0, 20.0], [4.0, 4.0, 4.0], 0.0, 30.0)
    [3.0, 7.0, 20.0]
    """
    order = np.argsort(centres, kind="stable")
    ends = np.cumsum([heights[i] for i in order])
    middles = ends - np.array([heights[i] for i in order]) / 2  # of each label in a stack of all labels
    blocks: list[tuple[float, int]] = []  # the mean desired position of a block, and its number of labels
    for i, middle in zip(order, middles, strict=True):
        desired, count = float(centres[i] - middle), 1
        while blocks and blocks[-1][0] > desired:
            before, size = blocks.pop()
            desired, count = (before * size + desired * count) / (size + count), size + count
        blocks.append((desired, count))
    starts = np.clip(
        np.repeat([b[0] for b in blocks], [b[1] for b in blocks]), low, max(low, high - ends[-1])
    )
    placed = np.empty(len(order))
    placed[order] = starts + middles
    return [float(v) for v in placed]


def draw_frame_with_legend(
    figure: Figure,
    axes: Axes,
    entries: Sequence[LegendEntry],
    inside: Sequence[InsideLabel] = (),
    *,
    leaders: bool = True,
    **frame: Any,
) -> None:
    """Draw a frame, a legend at the right of the axes, and labels inside the axes.

    Leaders are thin lines from the entries to the ends of their curves.
    """
    texts = [wrap_text(entry.name, _SHARE * figure_size(axes)[0]) for entry in entries]
    heights = [text_height(text) for text in texts]
    space = _LEADER + _SAMPLE + _GAP + max(text_width(text) for text in texts)
    draw_frame(figure, axes, right=space, height=sum(heights), **frame)
    wide, high = axes_size(axes)
    start, stop = 1 + _LEADER / wide, 1 + (_LEADER + _SAMPLE) / wide
    centres = spread_labels([entry.height * high for entry in entries], heights, 0.0, high)
    for entry, text, centre in zip(entries, texts, centres, strict=True):
        y = centre / high
        style: dict[str, Any] = {"color": entry.colour, "axes_coordinates": True}
        if leaders:
            draw_line(axes, [entry.place, start], [entry.height, y], linewidth=0.7, alpha=0.7, **style)
        style |= {"linestyle": entry.dash, "linewidth": entry.thickness}
        middle = (start + stop) / 2
        draw_line(axes, [start, middle, stop], [y] * 3, marker=entry.marker, markevery=[1], **style)
        draw_text(axes, stop + _GAP / wide, y, text, color=entry.ink)
    for row, (place, name) in enumerate(sorted(inside, key=itemgetter(0))):
        # To the left of the line, above the rising curves, if there is enough space; otherwise to the right.
        left = place * wide - 4 >= text_width(name)
        axes.text(
            place + (-4 if left else 4) / wide, 1 - (row * LINE_HEIGHT + 1) / high, name,
            transform=axes.transAxes, color=MUTED, fontsize=SMALL, va="top", ha="right" if left else "left",
        )  # fmt: skip


def find_free_position(
    anchor: tuple[float, float] | Floats,
    size: tuple[float, float],
    taken: Sequence[Box],
    *,
    within: Box,
    reach: float,
) -> Box | None:
    """Return the nearest box of this size around a point that overlaps no taken box; None without one."""
    (x, y), (wide, high) = anchor, size
    for distance in np.arange(5.0, reach, 4.0):
        for right, up in _AROUND:
            left = float(x + right * distance + (np.sign(right) - 1) * wide / 2)
            bottom = float(y + up * distance + (np.sign(up) - 1) * high / 2)
            box = (left, bottom, left + wide, bottom + high)
            inside = left >= within[0] and bottom >= within[1] and box[2] <= within[2] and box[3] <= within[3]
            if inside and not any(_overlap(box, other) for other in taken):
                return box
    return None


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
