"""Names beside what they name: moved apart where they would overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.figures.canvas import LINE, level, points, sheet, stroke
from maillard.figures.frame import Room
from maillard.figures.lettering import broken, lines, width
from maillard.figures.style import INK, Dash

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Box", "End", "apart", "column_room", "free_place", "write_column"]

_LEADER, _SAMPLE, _GAP = 6.0, 22.0, 4.0  # points: from the curve, a piece of its line, to its name
_SHARE = 0.34  # of the sheet: a longer name is broken

Box = tuple[float, float, float, float]  # left, bottom, right, top
_AROUND = ((1, 0), (0.7, 0.7), (0, 1), (-0.7, 0.7), (-1, 0), (-0.7, -0.7), (0, -1), (0.7, -0.7))


@dataclass(frozen=True)
class End:
    """A name for the column at the right: at which height of the axes (0 to 1), and with which piece of line."""

    name: str
    height: float
    colour: str
    dash: Dash
    place: float = 1.0  # how far to the right the curve itself goes
    marker: str = ""
    ink: str = INK
    thickness: float = 1.8


def apart(centres: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Centres of labels of these heights, in the same order, moved as little as can be so that none overlap.

    All stay between low and high where they fit. This is isotonic regression: labels that touch move as a block,
    to the mean of where its members want to be.

    >>> apart([5.0, 5.0, 20.0], [4.0, 4.0, 4.0], 0.0, 30.0)
    [3.0, 7.0, 20.0]
    """
    order = np.argsort(centres, kind="stable")
    ends = np.cumsum([heights[i] for i in order])
    middles = ends - np.array([heights[i] for i in order]) / 2  # of each label, in a stack of all
    blocks: list[tuple[float, int]] = []  # the mean wish of a block, and how many it holds
    for i, middle in zip(order, middles, strict=True):
        wish, count = float(centres[i] - middle), 1
        while blocks and blocks[-1][0] > wish:
            before, size = blocks.pop()
            wish, count = (before * size + wish * count) / (size + count), size + count
        blocks.append((wish, count))
    starts = np.clip(
        np.repeat([b[0] for b in blocks], [b[1] for b in blocks]), low, max(low, high - ends[-1])
    )
    placed = np.empty(len(order))
    placed[order] = starts + middles
    return [float(v) for v in placed]


def column_room(axes: Axes, names: Sequence[str]) -> Room:
    """What a column of these names at the right of the axes needs."""
    texts = _broken(axes, names)
    return Room(
        right=_LEADER + _SAMPLE + _GAP + max(width(text) for text in texts),
        height=sum(lines(text) for text in texts) * LINE,
    )


def write_column(axes: Axes, ends: Sequence[End], *, leaders: bool = True) -> None:
    """Names in a column at the right of the axes, each with a piece of its line, led from where its curve ends."""
    wide, high = points(axes)
    texts = _broken(axes, [end.name for end in ends])
    heights = [lines(text) * LINE for text in texts]
    for end, text, y in zip(
        ends, texts, apart([end.height * high for end in ends], heights, 0.0, high), strict=True
    ):
        start, stop = 1 + _LEADER / wide, 1 + (_LEADER + _SAMPLE) / wide
        if leaders:
            stroke(
                axes,
                [end.place, start],
                [end.height, y / high],
                color=end.colour,
                linewidth=0.7,
                alpha=0.7,
                beside=True,
            )
        style: dict[str, Any] = {
            "color": end.colour,
            "linestyle": end.dash,
            "linewidth": end.thickness,
            "beside": True,
        }
        stroke(
            axes, [start, (start + stop) / 2, stop], [y / high] * 3, marker=end.marker, markevery=[1], **style
        )
        level(axes, stop + _GAP / wide, y / high, text, color=end.ink)


def _broken(axes: Axes, names: Sequence[str]) -> list[str]:
    return [broken(name, _SHARE * sheet(axes)[0]) for name in names]


def free_place(
    anchor: tuple[float, float], size: tuple[float, float], taken: Sequence[Box], *, within: Box, reach: float
) -> Box | None:
    """The nearest box of this size around a point that keeps clear of all that is taken; None where none is."""
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
