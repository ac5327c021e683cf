"""Packages that only some methods need: what is raised if one is missing, and what is made with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maillard.errors import MaillardError

if TYPE_CHECKING:
    from pandas import DataFrame

# With tables of the positions of subscripts and the sizes of brackets. One of them is on most machines.
_FONTS = "Latin Modern Math,STIX Two Math,Cambria Math,DejaVu Math TeX Gyre,math"


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Decorate a method that imports a package of this extra: say how to install it if it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]  # of a client alone, it is maillard itself
        raise MaillardError(f"{package} is not installed: pip install 'maillard[{extra}]'") from None


@needs_extra("notebook")
def data_frame(columns: Mapping[str, Any]) -> DataFrame:
    """Return a pandas data frame with these columns, in this order, and the index 0, 1, 2, ..."""
    import pandas as pd

    return pd.DataFrame(dict(columns))


def mathml(latex: str) -> str:
    """Return the formula as MathML, which browsers display without scripts; "" if it cannot be made.

    That is the case without the package latex2mathml, and for LaTeX that is not valid.
    """
    try:
        from latex2mathml.converter import convert
    except ModuleNotFoundError:
        return ""
    try:
        made = str(convert(latex))
    except Exception:  # noqa: BLE001  # a formula of the user; the plain text is shown instead
        return ""
    # Browsers ignore `columnalign`. Full-size fractions are easier to read.
    made = made.replace("<mtd", '<mtd style="text-align:left"')
    return made.replace("<math ", f'<math displaystyle="true" style="font-family:{_FONTS}" ', 1)
