"""Text layout: width of text, line breaks and number formats."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from maillard.figures.style import SMALL
from maillard.short_reprs import printable

LINE_SPACING = 1.28  # the height of a line, relative to the font size
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = SMALL, weight: str = "normal") -> float:
    """Return the width of a text in points; for several lines, the width of the widest."""
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    return max(
        float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0])
        for line in text.split("\n")
    )


def wrap_text(text: str, max_width: float, size: float = SMALL, weight: str = "normal") -> str:
    r"""Break a text into lines of at most `max_width` points, after a space, a colon or a comma if possible.

    >>> wrap_text("boltzmann-gumbel:scale=1,horizon=20000", 120)
    'boltzmann-gumbel:\nscale=1,horizon=20000'
    """
    made = [""]
    for piece in re.findall(r"[^ :,]*(?:[ :,]+|$)", printable(text, "\n")):
        if made[-1] and text_width((made[-1] + piece).rstrip(), size, weight) > max_width:
            made.append("")
        made[-1] += piece
    return "\n".join(line.rstrip() for line in made)


def line_count(text: str) -> int:
    """Return the number of lines."""
    return text.count("\n") + 1 if text else 0


def text_height(text: str, size: float = SMALL) -> float:
    """Return the height of all lines in points."""
    return line_count(text) * LINE_SPACING * size


def format_number(value: float) -> str:
    """Format a number with three significant digits and a comma for thousands.

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
    """Format a tick label: no superfluous digits, and powers of ten for very large and very small numbers.

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
