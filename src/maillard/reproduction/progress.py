"""How a long run shows where it is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Progress", "progress"]

_STEP = 0.05  # a line for every so much of the work


@dataclass
class Progress:
    """What a run tells: how much of its work is done, and what it is at."""

    advance: Callable[[float], None]  # so many units of work were done
    say: Callable[[str], None]  # this is being done now


@contextlib.contextmanager
def progress(total: float, show: bool | None) -> Iterator[Progress]:
    """A bar on a terminal's stderr, lines on any other, nothing if told so."""
    if show is False:
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

    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("about"),
        TimeRemainingColumn(),
        TextColumn("left: {task.description}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("starting", total=total)
        yield Progress(
            lambda units: shown.advance(task, units), lambda text: shown.update(task, description=text)
        )


def _lines(total: float) -> Progress:
    started, done, told, now = time.perf_counter(), 0.0, 0.0, ""

    def tell() -> None:
        sys.stderr.write(f"{time.perf_counter() - started:5.0f} s {done / total:4.0%}  {now}\n")
        sys.stderr.flush()

    def advance(units: float) -> None:
        nonlocal done, told
        done += units
        if done / total >= told + _STEP:
            told = done / total
            tell()

    def say(text: str) -> None:
        nonlocal now
        now = text
        if not done:
            tell()

    return Progress(advance, say)
