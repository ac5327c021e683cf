"""Fragments of HTML for notebooks: titles, tables and lists without scripts, colours or other files.

Colours and fonts are inherited from the notebook, so that fragments fit into light and dark themes. All text
is escaped, except `Html`, which only this module and the makers of formulas create.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from html import escape

from maillard.short_reprs import printable

_NUMBER = re.compile(r"|–|[-−+<]?[\d.,]+(×10\S+)?%?( ± [\d.,]+%?)?")
_MUTED = "opacity:.7"
_BAR_WIDTH = 8.0  # em


class Html(str):
    """Text that is HTML already. Every other text is escaped."""

    __slots__ = ()


def fragment(title: object, *parts: str, facts: str = "") -> str:
    """Return the HTML of an object: its title, a line with facts, and the other parts."""
    line = f' <span style="{_MUTED}">{html(facts)}</span>' if facts else ""
    # The classes keep MathJax from reading `$` in names as a formula.
    return (
        '<div class="maillard mathjax_ignore tex2jax_ignore">'
        f'<div style="margin:.3em 0"><strong>{html(title)}</strong>{line}</div>{"".join(parts)}</div>'
    )


def html(value: object) -> Html:
    """Return a value as HTML: numbers with four significant digits, text escaped.

    >>> html("<b>"), html(0.123456), html(None)
    ('&lt;b&gt;', '0.1235', '–')
    """
    if isinstance(value, Html):
        return value
    text = number_text(value) if value is None or isinstance(value, int | float | str) else str(value)
    return Html(escape(printable(text, "\n")))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    marked: Collection[int] = (),
    caption: str = "",
) -> Html:
    """Return a table. Columns of numbers are aligned on the right; `marked` rows are bold.

    Without columns, the first cell of each row is its header.
    """
    cells = [[html(value) for value in row] for row in rows]
    right = [all(_NUMBER.fullmatch(cell) for cell in column) for column in zip(*cells, strict=True)]
    right = right or [False] * len(columns)
    head = "".join(_cell("th", name, to_right) for name, to_right in zip(columns, right, strict=False))
    lines = [f"<thead><tr>{head}</tr></thead>"] if columns else []
    lines.append("<tbody>")
    for place, row in enumerate(cells):
        weight = ' style="font-weight:bold"' if place in marked else ""
        texts = [
            _cell("td" if columns or number else "th", cell, to_right)
            for number, (cell, to_right) in enumerate(zip(row, right, strict=True))
        ]
        lines.append(f"<tr{weight}>{''.join(texts)}</tr>")
    title = f'<caption style="text-align:left">{html(caption)}</caption>' if caption else ""
    return Html(f'<table style="margin:.3em 0">{title}{"".join(lines)}</tbody></table>')


def _cell(tag: str, value: object, to_right: bool) -> str:
    side = "right" if to_right else "left"
    return f'<{tag} style="text-align:{side};vertical-align:top;padding:.2em .6em">{html(value)}</{tag}>'


def more_rows(count: int, what: str) -> Html:
    """Return a line that says how many rows a table leaves out; nothing if it has all."""
    return Html(f'<div style="{_MUTED}">... and {count:,} more {escape(what)}</div>' if count > 0 else "")


def items(texts: Iterable[object], *, title: str = "") -> Html:
    """Return a list of texts with a title; nothing if there are none."""
    lines = "".join(f"<li>{html(text)}</li>" for text in texts)
    if not lines:
        return Html("")
    return Html(f'<div style="margin:.3em 0">{html(title)}<ul style="margin:.2em 0">{lines}</ul></div>')


def details(title: str, *parts: str) -> Html:
    """Return parts that a reader unfolds."""
    inside = "".join(parts)
    return Html(f"<details><summary>{html(title)}</summary>{inside}</details>" if inside else "")


def code(text: object) -> Html:
    """Return text in the font of code."""
    return Html(f"<code>{html(text)}</code>")


def bar(fraction: float) -> Html:
    """Return a bar whose length is a fraction, from 0 to 1, of the width of its cell."""
    length = _BAR_WIDTH * (min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0)
    return Html(
        f'<span style="display:inline-block;width:{_BAR_WIDTH:g}em;text-align:left">'
        f'<span style="display:inline-block;width:{length:.2f}em;height:.7em;background:currentColor;'
        'opacity:.45"></span></span>'
    )


def percent(probability: float) -> str:
    """Return a probability as text: with one decimal, and with more if it is near 0 or 1.

    >>> [percent(p) for p in (0.5, 0.1234, 0.0001, 1e-12, 0.9999, 1.0)]
    ['50%', '12.3%', '0.01%', '1e-10%', '99.99%', '100%']
    """
    shown = f"{100 * probability:.1f}".removesuffix(".0")
    if probability in (0.0, 1.0) or 0.001 <= probability <= 0.999:
        return f"{shown}%"
    return f"{100 * probability:.2g}%" if probability < 0.5 else f"{100 * probability:.10g}%"


def number_text(value: str | int | float | bool | None) -> str:
    """A value as text: integers in full, other numbers with four significant digits.

    >>> values = (None, True, "ms+", 20_000, -0.5, 12.34567, 1234567.8, 0.1 + 0.02, 0.00001234)
    >>> [number_text(value) for value in values]
    ['–', '✓', 'ms+', '20,000', '−0.5', '12.35', '1,234,568', '0.12', '1.234×10⁻⁵']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return str(value).replace("inf", "∞").replace("nan", "–").replace("-", "−")
    return _finite(value).replace("-", "−")


def _finite(value: int | float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size and not 1e-4 <= size < 1e15:
        digits, power = f"{value:.3e}".split("e")
        return f"{digits}×10" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    short = f"{value:,.4g}" if size < 1000 else f"{value:,.0f}"
    # A number that has fewer digits, such as a parameter, stays short; a measured number keeps its trailing
    # zeros.
    if math.isclose(float(short.replace(",", "")), value, rel_tol=1e-12):
        return short
    decimals = max(0, 3 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}"
