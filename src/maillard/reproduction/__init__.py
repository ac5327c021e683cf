"""The paper, reproduced: its experiments as data, its claims with their verdicts, and a report to look at."""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from maillard.reproduction.claims import ledger
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.experiment_runner import key, run, work_of
from maillard.reproduction.output_folder import open_work
from maillard.reproduction.paper_experiments import PAPER, Settings, experiments, parts
from maillard.reproduction.progress import Progress, progress
from maillard.reproduction.report_content import ClaimResult, ReportSection, ReproductionReport
from maillard.reproduction.report_files import write_json, write_page, write_results
from maillard.reproduction.section_figures import DrawnSection, draw
from maillard.reproduction.sections import sections
from maillard.reproduction.thompson_probabilities import seconds
from maillard.simulation.plans import versions, workers_for

__all__ = ["Settings", "experiments", "reproduce"]


def reproduce(
    output: str | Path = "reproduction",
    settings: Settings | None = None,
    *,
    threads: int | None = None,
    show: bool | None = None,
    fork: bool = False,
) -> ReproductionReport:
    """Run the paper's evaluation and what goes beyond it, and leave a report in the folder `output`.

    The folder gets index.html, the figures as SVG and PNG, and the results as Parquet and JSON. An earlier report is replaced, once
    the new one is whole. A run that is interrupted goes on when the same is asked for again. `show` is whether progress is shown on stderr. `fork`
    draws in processes that are forked: for a program that does nothing else, since other threads might not survive it.
    """
    settings = settings or Settings()
    workers = workers_for(threads)
    started = time.perf_counter()
    listed = parts(settings)
    drawing = 0.1 * work_of(listed)
    with open_work(output) as work, progress(work_of(listed) + drawing, show) as told, _heard(told) as shown:
        results = run(settings, work.parts, workers, shown)
        simulated = time.perf_counter() - started
        shown.say("judging the claims")
        claims = ledger(results)
        work.clear_report()
        write_results(results, claims, work.report)
        shown.say("drawing")
        makers = sections(results)
        times = seconds(settings.seed)  # before the processes are forked, so that all know the same
        drawn: dict[int, DrawnSection] = {}
        for place, one in draw(makers, work.report / "figures", workers if fork else 1):
            drawn[place] = one
            shown.advance(drawing / len(makers))
        made = [drawn[place] for place in range(len(makers))]
        report = _report(results, claims, tuple(section for section, _ in made))
        write_page(report, dict(itertools.chain(*(texts.items() for _, texts in made))), work.report)
        vectors = [dict(zip(("arms", "how", "seconds"), row, strict=True)) for row in times]
        write_json({"seconds to simulate": simulated, "one vector": vectors}, work.report / "timings.json")
        work.publish([key(part) for part in listed])
    return report


@contextlib.contextmanager
def _heard(shown: Progress) -> Iterator[Progress]:
    """The same progress, at every step of which Ctrl-C is heard, even one that Python has dropped (as it does in a finaliser)."""
    if threading.current_thread() is not threading.main_thread():
        yield shown
        return
    pressed: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    def advance(units: float) -> None:
        if pressed:
            raise KeyboardInterrupt
        shown.advance(units)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield Progress(advance, shown.say)
    except BaseException:
        if pressed:  # whatever became of it on its way: closing a half-written archive is an error of its own
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _report(
    results: ExperimentResults, claims: tuple[ClaimResult, ...], made: tuple[ReportSection, ...]
) -> ReproductionReport:
    settings = results.settings
    counts = {word: sum(row.verdict == word for row in claims) for word in ("holds", "fails", "open")}
    rounds = work_of(list(results.parts))
    judged = [row for row in claims if row.verdict != "not run"]
    quotes = len({row.quote for row in judged})
    whole = "The whole evaluation" if not settings.only else "A part of the evaluation"
    lead = (
        f"{whole} of the paper by Bian and Jun (AISTATS 2022), run again; what it says that can be checked, with what became of it; and some "
        "experiments beyond it.",
        f"{len(judged)} tests of {quotes} quotations: {counts['holds']} hold, {counts['fails']} fail and {counts['open']} are open, at a confidence of 95% where chance has a part. "
        f"All numbers on this page come from the run that made it: {rounds / 1e6:,.0f} million rounds in {len(results.parts)} parts.",
    )
    facts = {
        "seed": str(settings.seed),
        "trials of the paper's experiments": f"{_size(results, 'trials'):,}",
        "rounds of the paper's experiments": f"{_size(results, 'horizon'):,}",
        "experiments": ", ".join(sorted(results.experiments())),
        **versions(),
    }
    return ReproductionReport("Maillard sampling, reproduced", lead, _warning(settings), made, claims, facts)


def _size(results: ExperimentResults, what: str) -> int:
    """What one of the paper's own experiments has here."""
    shares = [getattr(part, what) / getattr(experiments()[part.experiment], what) for part in results.parts]
    return math.ceil(PAPER[what] * min(shares, default=1.0) - 1e-9)


def _warning(settings: Settings) -> str | None:
    """What a reader must know of a run that is not the full one."""
    said = []
    if settings.quick or any(getattr(settings, name) not in (None, size) for name, size in PAPER.items()):
        said.append(
            "This run is not of the paper's size, so its verdicts are not about the paper's experiments."
        )
    if settings.only:
        said.append(f"Only a part was run: {', '.join(settings.only)}.")
    return " ".join(said) or None
