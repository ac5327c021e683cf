"""The reproduction of the paper: its experiments as data, its claims with verdicts, and an HTML report."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from maillard.reproduction.claims import judge_claims
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.experiment_runner import part_file_name, run, total_rounds
from maillard.reproduction.output_folder import open_working_folder
from maillard.reproduction.paper_experiments import PAPER, ReproductionSettings, experiments, parts
from maillard.reproduction.progress import Progress, progress
from maillard.reproduction.report_content import ClaimResult, ReportSection, ReproductionReport
from maillard.reproduction.report_files import write_json, write_page, write_results
from maillard.reproduction.section_figures import draw
from maillard.reproduction.sections import sections
from maillard.reproduction.thompson_probabilities import seconds
from maillard.simulation.plans import versions, workers_for

__all__ = ["ReproductionSettings", "experiments", "reproduce"]


def reproduce(
    output: str | Path = "reproduction",
    settings: ReproductionSettings | None = None,
    *,
    threads: int | None = None,
    show: bool | None = None,
    fork: bool = False,
) -> ReproductionReport:
    """Run the experiments of the paper and some beyond it, and write a report to the folder `output`.

    The folder contains index.html, the figures as SVG and PNG, and the results as Parquet and JSON. An
    earlier report is replaced when the new one is complete. An interrupted run continues when the same call
    is repeated. `show` turns progress on stderr on or off. `fork` draws the figures in forked processes; use
    it only in a program without other threads.
    """
    settings = settings or ReproductionSettings()
    workers = workers_for(threads)
    started = time.perf_counter()
    all_parts = parts(settings)
    drawing = 0.1 * total_rounds(all_parts)
    with (
        open_working_folder(output) as work,
        progress(total_rounds(all_parts) + drawing, show) as bar,
        _interruptible(bar) as shown,
    ):
        results = run(settings, work.parts, workers, shown)
        simulated = time.perf_counter() - started
        shown.say("judging the claims")
        claims = judge_claims(results)
        work.clear_report()
        write_results(results, claims, work.report)
        shown.say("drawing")
        section_makers = sections(results)
        times = seconds(settings.seed)  # measured once, before the processes are forked
        made: list[ReportSection] = []
        svgs: dict[str, str] = {}
        for section, texts in draw(section_makers, work.report / "figures", workers if fork else 1):
            made.append(section)
            svgs |= texts
            shown.advance(drawing / len(section_makers))
        report = _report(results, claims, tuple(made))
        write_page(report, svgs, work.report)
        vectors = [dict(zip(("arms", "how", "seconds"), row, strict=True)) for row in times]
        write_json({"seconds to simulate": simulated, "one vector": vectors}, work.report / "timings.json")
        work.publish([part_file_name(part) for part in all_parts])
    return report


@contextlib.contextmanager
def _interruptible(shown: Progress) -> Iterator[Progress]:
    """Progress that raises KeyboardInterrupt after Ctrl-C, even if a finaliser swallowed the signal."""
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
        if pressed:  # replaces secondary errors, such as that of closing a half-written archive
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _report(
    results: ExperimentResults, claims: tuple[ClaimResult, ...], made: tuple[ReportSection, ...]
) -> ReproductionReport:
    settings = results.settings
    counts = {word: sum(row.verdict == word for row in claims) for word in ("holds", "fails", "open")}
    rounds = total_rounds(list(results.parts))
    judged = [row for row in claims if row.verdict != "not run"]
    quotes = len({row.quote for row in judged})
    scope = "The whole evaluation" if not settings.only else "A part of the evaluation"
    lead = (
        f"{scope} of the paper by Bian and Jun (AISTATS 2022), run again: a test of every statement in the "
        "paper that can be tested, and some experiments beyond it.",
        f"{len(judged)} tests of {quotes} quotations: {counts['holds']} hold, {counts['fails']} fail and "
        f"{counts['open']} are open. The confidence is 95%, except for statements that are computed rather "
        f"than estimated. All numbers on this page are from one run: {rounds / 1e6:,.0f} million rounds in "
        f"{len(results.parts)} parts.",
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
    """The trials or the horizon of the paper's own experiments in this run."""
    shares = [getattr(part, what) / getattr(experiments()[part.experiment], what) for part in results.parts]
    return math.ceil(PAPER[what] * min(shares, default=1.0) - 1e-9)


def _warning(settings: ReproductionSettings) -> str | None:
    """A note for the reader if this is not the full run."""
    notes = []
    if settings.quick or any(getattr(settings, name) not in (None, size) for name, size in PAPER.items()):
        notes.append(
            "This run is not of the size of the paper's experiments, so its verdicts do not apply to them."
        )
    if settings.only:
        notes.append(f"Only these experiments were run: {', '.join(settings.only)}.")
    return " ".join(notes) or None
