"""Text before it is drawn: how wide it will be, where it breaks, how a number is written."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from maillard.figures.style import SMALL

__all__ = ["LINE_SPACING", "format_number", "format_tick", "line_count", "text_width", "wrap_text"]

LINE_SPACING = 1.28  # the height of a line, in sizes of its letters
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = SMALL, weight: str = "normal") -> float:
    """The width of a text in points; of several lines, that of the widest."""
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    return max(
        float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0])
        for line in text.split("\n")
    )


def wrap_text(text: str, room: float, size: float = SMALL, weight: str = "normal") -> str:
    r"""The text in lines no wider than `room`, broken after a space, a colon or a comma where there is one.

    >>> wrap_text("boltzmann-gumbel:scale=1,horizon=20000", 120)
    'boltzmann-gumbel:\nscale=1,horizon=20000'
    """
    made = [""]
    for piece in re.findall(r"[^ :,]*(?:[ :,]+|$)", text):
        if made[-1] and text_width((made[-1] + piece).rstrip(), size, weight) > room:
            made.append("")
        made[-1] += piece
    return "\n".join(line.rstrip() for line in made)


def line_count(text: str) -> int:
    """How many lines a text has."""
    return text.count("\n") + 1 if text else 0


def format_number(value: float) -> str:
    """Three significant digits, thousands with a comma.

    >>> [format_number(v) for v in (24.06, 12345.6, 0.5, 0, 7.0)]
    ['24.1', '12,300', '0.500', '0', '7.00']
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else f"{value}"
    rounded = float(f"{value:.2e}")
    exponent = math.floor(math.log10(abs(rounded)))
    if not -4 <= exponent <= 8:
        return _scientific(f"{rounded:.2e}")
    return f"{rounded:,.{max(0, 2 - exponent)}f}"


def format_tick(value: float) -> str:
    """A number beside an axis: no more digits than it has, powers of ten raised where they are far from one.

    >>> [format_tick(v) for v in (0.0, 0.25, 20000.0, 1e6, 2e-5)]
    ['0', '0.25', '20,000', '10⁶', '2×10⁻⁵']
    """
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{float(f'{value:.6g}'):,.10g}"
    return _scientific(f"{value:.3g}" if "e" in f"{value:.3g}" else f"{value:.2e}")


def _scientific(text: str) -> str:
    digits, exponent = text.split("e")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    power = f"10{str(int(exponent)).translate(_RAISED)}"
    return power if digits == "1" else f"{digits}×{power}"
