"""Legends and labels next to the data, placed so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.figures.axes_frame import ReservedSpace
from maillard.figures.drawing import LINE_HEIGHT, axes_size, draw_line, draw_text, figure_size
from maillard.figures.style import INK, Dash
from maillard.figures.text_layout import line_count, text_width, wrap_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEADER, _SAMPLE, _GAP = (
    6.0,
    22.0,
    4.0,
)  # points: line from the curve, sample of its style, gap before its name
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


def legend_space(axes: Axes, names: Sequence[str]) -> ReservedSpace:
    """Return the space that a legend with these names needs."""
    texts = _wrap_names(axes, names)
    return ReservedSpace(
        right=_LEADER + _SAMPLE + _GAP + max(text_width(text) for text in texts),
        height=sum(line_count(text) for text in texts) * LINE_HEIGHT,
    )


def draw_legend(axes: Axes, ends: Sequence[LegendEntry], *, leaders: bool = True) -> None:
    """Draw the legend at the right of the axes; thin lines connect entries with the ends of their curves."""
    wide, high = axes_size(axes)
    texts = _wrap_names(axes, [end.name for end in ends])
    heights = [line_count(text) * LINE_HEIGHT for text in texts]
    for end, text, y in zip(
        ends, texts, spread_labels([end.height * high for end in ends], heights, 0.0, high), strict=True
    ):
        start, stop = 1 + _LEADER / wide, 1 + (_LEADER + _SAMPLE) / wide
        if leaders:
            draw_line(
                axes,
                [end.place, start],
                [end.height, y / high],
                color=end.colour,
                linewidth=0.7,
                alpha=0.7,
                axes_coordinates=True,
            )
        style: dict[str, Any] = {
            "color": end.colour,
            "linestyle": end.dash,
            "linewidth": end.thickness,
            "axes_coordinates": True,
        }
        draw_line(
            axes, [start, (start + stop) / 2, stop], [y / high] * 3, marker=end.marker, markevery=[1], **style
        )
        draw_text(axes, stop + _GAP / wide, y / high, text, color=end.ink)


def _wrap_names(axes: Axes, names: Sequence[str]) -> list[str]:
    return [wrap_text(name, _SHARE * figure_size(axes)[0]) for name in names]


def find_free_position(
    anchor: tuple[float, float], size: tuple[float, float], taken: Sequence[Box], *, within: Box, reach: float
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
