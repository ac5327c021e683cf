"""Drawing of the figures of the report, in several processes if that is safe."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from maillard import figures
from maillard.reproduction.report_content import ReportSection

_DPI = 140

DrawnSection = tuple[ReportSection, dict[str, str]]  # a section without its figures, and each figure as SVG

# Forked processes inherit these; the results are too large to send.
_makers: Sequence[Callable[[], ReportSection]] = ()
_folder = Path()


def draw(makers: Sequence[Callable[[], ReportSection]], folder: Path, workers: int) -> Iterator[DrawnSection]:
    """Make every section, write its figures as SVG and PNG, and yield its content, in order.

    With several workers the process is forked, which is safe only in a program without other threads.
    """
    global _makers, _folder  # for the forked processes
    _makers, _folder = makers, folder
    if workers == 1 or sys.platform != "linux":  # elsewhere forking is not safe even with one thread
        yield from map(_draw, range(len(makers)))
        return
    gc.freeze()  # a collection in a forked process would copy the memory of all results and compiled code
    try:
        with multiprocessing.get_context("fork").Pool(workers, _ignore_interrupts) as pool:
            yield from pool.imap(_draw, range(len(makers)))
    finally:
        gc.unfreeze()


def _draw(place: int) -> DrawnSection:
    section, texts = _makers[place](), {}
    for panel in section.panels:
        text = figures.svg(panel.figure, prefix=f"{panel.name}-", title=panel.title, description=panel.alt)
        (_folder / f"{panel.name}.svg").write_text(figures.standalone(text), encoding="utf8")
        figures.save(panel.figure, _folder / f"{panel.name}.png", dpi=_DPI)
        texts[panel.name] = text
    panels = tuple(dataclasses.replace(panel, figure=None) for panel in section.panels)
    return dataclasses.replace(section, panels=panels), texts


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C: the parent process handles it and terminates the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
