"""Drawing the report's pictures, in several processes where that is safe."""

from __future__ import annotations

import dataclasses
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from maillard import figures
from maillard.reproduction.report_content import ReportSection

__all__ = ["DrawnSection", "draw"]

_DPI = 140

DrawnSection = tuple[
    ReportSection, dict[str, str]
]  # a section without its figures, and the text of each, as SVG

# What the processes that are forked below find when they start: results are too large to be sent to them.
_makers: Sequence[Callable[[], ReportSection]] = ()
_folder = Path()


def draw(
    makers: Sequence[Callable[[], ReportSection]], folder: Path, workers: int
) -> Iterator[tuple[int, DrawnSection]]:
    """Make every section and write its pictures as SVG and PNG; which one, and what was drawn, as each is done.

    With several workers the process is forked: only for a program that has no other threads then.
    """
    global _makers, _folder  # see above
    _makers, _folder = makers, folder
    if (
        workers == 1 or sys.platform != "linux"
    ):  # elsewhere even a program of one thread may not survive a fork
        yield from map(_draw, range(len(makers)))
        return
    with multiprocessing.get_context("fork").Pool(workers, _leave_interrupts) as pool:
        yield from pool.imap_unordered(_draw, range(len(makers)))


def _draw(place: int) -> tuple[int, DrawnSection]:
    section, texts = _makers[place](), {}
    for panel in section.panels:
        text = figures.svg(panel.figure, prefix=f"{panel.name}-", title=panel.title, description=panel.alt)
        (_folder / f"{panel.name}.svg").write_text(figures.standalone(text), encoding="utf8")
        figures.save(panel.figure, _folder / f"{panel.name}.png", dpi=_DPI)
        texts[panel.name] = text
    panels = tuple(dataclasses.replace(panel, figure=None) for panel in section.panels)
    return place, (dataclasses.replace(section, panels=panels), texts)


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that waits for these: it ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
