"""Output for terminals: tables, progress lines, and text without control characters."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

VERDICT_STYLES = {
    "consistent": "bold green",
    "broken": "bold red",
    "not enough data": "bold yellow",
    "cannot be audited": "bold yellow",
}


def text_table(*left: str, right: tuple[str, ...] = (), last: str | None = None) -> Table:
    """Make a table without borders. Columns of `left` and `right` do not wrap; `last` may."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    if last is not None:
        table.add_column(last)
    return table


@contextlib.contextmanager
def progress(initial: str, template: str) -> Iterator[Callable[..., None] | None]:
    """Yield a callback that shows its arguments, formatted, on stderr; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with Console(stderr=True).status(initial) as status:
        yield lambda *counts: status.update(template.format(*counts))


def row_progress(verb: str) -> contextlib.AbstractContextManager[Callable[[int], None] | None]:
    """Return `progress` for the number of rows."""
    return progress("opening", f"{{:,}} decisions {verb}")
