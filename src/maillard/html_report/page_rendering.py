"""Rendering of the HTML reports.

A report is one file: style and figures are inline, and there is no script. Every value passes through
jinja2's escaping and `_printable`; only the figures, which this package draws, are inserted as markup. Figure
colours become CSS variables, so that figures follow the light or dark color scheme of the page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from maillard.errors import MaillardError
from maillard.figures import COLOURS, GRID, INK, MUTED
from maillard.html_fragments import number_text
from maillard.short_reprs import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_COLOUR_VARIABLES = {
    "--ink": INK,
    "--muted": MUTED,
    "--grid": GRID,
    **{f"--c{i}": colour for i, colour in enumerate(COLOURS)},
}
_VARIABLE_OF = {colour.lower(): name for name, colour in reversed(_COLOUR_VARIABLES.items())}
_COLOUR = re.compile(f"({'|'.join(_VARIABLE_OF)})(?![0-9a-f])", re.IGNORECASE)
_WIDE = 500.0  # points; a wider figure gets a row of its own


def page_environment(package: str) -> Environment:
    """The jinja2 environment for the templates of `package`, which extend `base.html`."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MaillardError(f"a page needs {error.name}: pip install 'maillard[evaluation]'") from None
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("maillard.html_report", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number_text, percent=_percent)
    environment.globals.update(right_aligned=_right_aligned, colour_variables=_COLOUR_VARIABLES)
    return environment


def render_page(package: str, template: str, **content: Any) -> str:
    """The HTML of a template of `package`."""
    return page_environment(package).get_template(template).render(**content)


def inline_figure(svg: str) -> Markup:
    """An SVG drawing as an element of a page, with CSS variables for its colours.

    This is the only content that is not escaped: pass only drawings of `maillard.figures`.
    """
    from markupsafe import Markup

    element = svg[svg.index("<svg") :]  # HTML does not allow an XML declaration here
    return Markup(_COLOUR.sub(lambda match: f"var({_VARIABLE_OF[match[0].lower()]})", element))


def is_wide(svg: str) -> bool:
    """Whether a drawing needs a row of its own, by the width of its viewBox."""
    box = re.search(r'viewBox="\S+ \S+ (\S+) \S+"', svg)
    return box is not None and float(box[1]) > _WIDE


def _printable(value: Any) -> Any:
    """Text with invisible characters as escape sequences, and other values as they are."""
    return printable(value, "\n") if type(value) is str else value


def _percent(fraction: float) -> str:
    """A fraction as a percentage without loss of digits.

    >>> _percent(0.99), _percent(0.99999)
    ('99%', '99.999%')
    """
    return f"{100 * fraction:.10g}%"


def _right_aligned(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], left: Sequence[int] | None = None
) -> list[bool]:
    """For each column, whether it is aligned on the right.

    `left` lists the numbers, from 1, of the columns that are aligned on the left. By default, columns with
    only numbers are aligned on the right.
    """
    if left is not None:
        return [number not in left for number in range(1, len(columns) + 1)]
    return [
        all(cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool)) for cell in column)
        for column in zip(*rows, strict=True)
    ] or [False] * len(columns)
