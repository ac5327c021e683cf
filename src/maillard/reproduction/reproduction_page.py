"""The report as one page of HTML that needs nothing else: style and figures are in it, and no script.

The figures' colours become CSS variables, so that a dark screen gets figures in light ink.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from maillard.figures import COLOURS, GRID, INK, MUTED
from maillard.reproduction.report_content import VERDICTS, DataTable, ReproductionReport

__all__ = ["render"]

_INKS = {
    "--ink": INK,
    "--muted": MUTED,
    "--grid": GRID,
    **{f"--c{i}": colour for i, colour in enumerate(COLOURS)},
}
_WIDE = 500.0  # points; a figure beyond this gets a row for itself


def render(report: ReproductionReport, svgs: Mapping[str, str]) -> str:
    """The page of this report; `svgs` has the drawing of each panel, by the panel's name."""
    environment = Environment(
        loader=PackageLoader("maillard.reproduction", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, percent=_percent, slug=_slug)
    environment.globals.update(numeric=_numeric)
    panels = [panel for section in report.sections for panel in section.panels]
    return environment.get_template("reproduction_page.html").render(
        report=report,
        drawings={panel.name: _drawing(svgs[panel.name]) for panel in panels},
        wide={panel.name: _width(svgs[panel.name]) > _WIDE for panel in panels},
        claims={verdict: [row for row in report.claims if row.verdict == verdict] for verdict in VERDICTS},
        sections={section.id: section for section in report.sections},
        inks=_INKS,
    )


def _drawing(svg: str) -> Markup:
    """The SVG element with variables for colours; it is ours, and the only thing on the page not escaped."""
    names = {colour.lower(): name for name, colour in reversed(_INKS.items())}
    pattern = re.compile(f"({'|'.join(names)})(?![0-9a-f])", re.IGNORECASE)
    element = svg[svg.index("<svg") :]  # an XML declaration has no place inside HTML
    return Markup(pattern.sub(lambda match: f"var({names[match[0].lower()]})", element))


def _width(svg: str) -> float:
    """How wide an SVG is by its viewBox; matplotlib counts in points."""
    box = re.search(r'viewBox="\S+ \S+ (\S+) \S+"', svg)
    return float(box[1]) if box else 0.0


def _number(value: str | int | float | bool | None) -> str:
    """A table's cell as text: four digits of a measured number, all of an integer.

    >>> [_number(x) for x in (None, True, "ms+", 20_000, -0.5, 12.34567, 1234567.8, 0.1 + 0.02, 0.00001234)]
    ['–', '✓', 'ms+', '20,000', '−0.5', '12.35', '1,234,568', '0.12', '1.234×10⁻⁵']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if isinstance(value, str):
        return value
    text = _finite(value) if math.isfinite(value) else str(value).replace("inf", "∞").replace("nan", "NaN")
    return text.replace("-", "−")


def _finite(value: int | float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size and not 1e-4 <= size < 1e15:
        digits, power = f"{value:.3e}".split("e")
        return f"{digits}×10" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    decimals = max(0, 3 - math.floor(math.log10(size))) if size else 0
    short = f"{value:,.4g}" if size < 1000 else f"{value:,.0f}"
    # A number written with fewer digits, such as a parameter, stays as short as it was; a measured one keeps its zeros.
    return (
        short
        if math.isclose(float(short.replace(",", "")), value, rel_tol=1e-12)
        else f"{value:,.{decimals}f}"
    )


def _percent(share: float) -> str:
    """A share of one as a percentage with no digit lost.

    >>> _percent(0.99), _percent(0.99999)
    ('99%', '99.999%')
    """
    return f"{100 * share:.10g}%"


def _slug(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _numeric(table: DataTable) -> list[bool]:
    """Of each column, whether all that it holds is numbers, which are aligned on the right."""
    return [
        all(cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool)) for cell in column)
        for column in zip(*table.rows, strict=True)
    ] or [False] * len(table.columns)
