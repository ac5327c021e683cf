"""Progress of a long run on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_MIN_STEP = 0.05  # fraction of the work between lines
_MIN_INTERVAL = 5.0  # seconds between lines when a new task starts


@dataclass
class Progress:
    """Callbacks of a run: work done, and the current task."""

    advance: Callable[[float], None]  # with the units of work that were done
    say: Callable[[str], None]  # with the name of the current task


@contextlib.contextmanager
def progress(total: float, show: bool | None) -> Iterator[Progress]:
    """Show a bar if stderr is a terminal, otherwise lines; nothing if `show` is false."""
    if show is False or sys.stderr is None:  # a program without a console
        yield Progress(lambda _units: None, lambda _text: None)
    elif sys.stderr.isatty():
        with _bar(total) as shown:
            yield shown
    else:
        yield _lines(total)


@contextlib.contextmanager
def _bar(total: float) -> Iterator[Progress]:
    from rich import progress as bars
    from rich.console import Console
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        bars.BarColumn(24),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("about"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("left  {task.description}", table_column=rest),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as shown:
        task = shown.add_task("starting", total=total)
        yield Progress(
            lambda units: shown.advance(task, units), lambda text: shown.update(task, description=text)
        )


def _lines(total: float) -> Progress:
    started, done, now = time.perf_counter(), 0.0, ""
    shown_fraction, last = 0.0, -_MIN_INTERVAL

    def write_line() -> None:
        nonlocal shown_fraction, last
        shown_fraction, last = done / total, time.perf_counter() - started
        sys.stderr.write(f"{last:5.0f} s {shown_fraction:4.0%}  {now}\n")
        sys.stderr.flush()

    def advance(units: float) -> None:
        nonlocal done
        done += units
        if done / total >= shown_fraction + _MIN_STEP:
            write_line()

    def say(text: str) -> None:
        nonlocal now
        changed, now = text != now, text
        if changed and time.perf_counter() - started >= last + _MIN_INTERVAL:
            write_line()

    return Progress(advance, say)
