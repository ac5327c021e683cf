"""How a long run shows where it is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Progress", "progress"]

_STEP = 0.05  # a line for every so much of the work
_SPELL = 5.0  # and for something new after so many seconds without one


@dataclass
class Progress:
    """What a run tells: how much of its work is done, and what it is at."""

    advance: Callable[[float], None]  # so many units of work were done
    say: Callable[[str], None]  # this is being done now


@contextlib.contextmanager
def progress(total: float, show: bool | None) -> Iterator[Progress]:
    """A bar on a terminal's stderr, lines on any other, nothing if told so."""
    if show is False or sys.stderr is None:  # which it is where a program has none
        yield Progress(lambda _units: None, lambda _text: None)
    elif sys.stderr.isatty():
        with _bar(total) as shown:
            yield shown
    else:
        yield _lines(total)


@contextlib.contextmanager
def _bar(total: float) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar
    from rich.table import Column

    columns = (
        BarColumn(24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("about"),
        TimeRemainingColumn(),
        TextColumn(
            "left  {task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        ),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True, expand=True) as shown:
        task = shown.add_task("starting", total=total)
        yield Progress(
            lambda units: shown.advance(task, units), lambda text: shown.update(task, description=text)
        )


def _lines(total: float) -> Progress:
    started, done, now = time.perf_counter(), 0.0, ""
    told, last = 0.0, -_SPELL

    def tell() -> None:
        nonlocal told, last
        told, last = done / total, time.perf_counter() - started
        sys.stderr.write(f"{last:5.0f} s {told:4.0%}  {now}\n")
        sys.stderr.flush()

    def advance(units: float) -> None:
        nonlocal done
        done += units
        if done / total >= told + _STEP:
            tell()

    def say(text: str) -> None:
        nonlocal now
        changed, now = text != now, text
        if changed and time.perf_counter() - started >= last + _SPELL:
            tell()

    return Progress(advance, say)
