"""Figures as files, and as text for a page: the same figure gives the same bytes."""

from __future__ import annotations

import re
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from maillard.figures.style import RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["save", "standalone", "svg"]

_METADATA = ("Creator", "Date", "Format", "Type")
# What matplotlib writes that a page does not need: the prolog, its metadata, comments, and a style for all elements,
# which would apply to the whole page.
_SURPLUS = re.compile(
    r"^.*?(?=<svg)|<metadata>.*?</metadata>\s*|<!--.*?-->\s*|<defs>\s*<style.*?</defs>\s*", re.DOTALL
)
_GROUP = re.compile(r'<g id="[^"]*">')  # nothing refers to a group
_NAME = re.compile(r'(\bid="|href="#|url\(#)')
_DIGITS = re.compile(r"(\.\d\d)\d+(?=[\s\"])")  # hundredths of a point are enough


def svg(figure: Figure, *, prefix: str = "", title: str = "", description: str = "") -> str:
    """The figure as an <svg> element for a page: no background, no prolog, `prefix` before every id.

    `title` says in a few words what it is and `description` what it shows, for those who do not see it.
    """
    buffer = StringIO()
    with mpl.rc_context(RC):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(_METADATA))
    text = _GROUP.sub("<g>", _SURPLUS.sub("", buffer.getvalue()))
    text = _DIGITS.sub(r"\1", _NAME.sub(rf"\1{prefix}", text))
    said = f' aria-label="{escape(title)}"' if title else ""
    more = f"\n <desc>{escape(description)}</desc>" if description else ""
    opening = r'<svg role="img" stroke-linejoin="round" stroke-linecap="butt"'
    head, body = text.split(">", 1)
    return f"{head.replace('<svg', opening, 1)}{said}>{more}{body}".rstrip() + "\n"


def standalone(text: str) -> str:
    """The text of `svg` as a file of its own, on white."""
    head, body = text.split(">", 1)
    return f'{head}>\n <rect width="100%" height="100%" fill="#ffffff"/>{body}'


def save(figure: Figure, path: str | Path, *, dpi: float = 160) -> None:
    """Write a figure as .svg or .png, on white, or as whatever else matplotlib writes."""
    path = Path(path)
    if path.suffix == ".svg":
        path.write_text(standalone(svg(figure)), encoding="utf8")
        return
    # Less compression than usual: about a tenth faster, and a twentieth larger.
    options: dict[str, Any] = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}}
    with mpl.rc_context(RC):
        figure.savefig(path, dpi=dpi, facecolor="white", **(options if path.suffix == ".png" else {}))
