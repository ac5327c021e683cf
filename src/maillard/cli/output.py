"""Printing of evaluation reports, comparisons and replays."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from maillard.cli.terminal import text_table
from maillard.errors import MaillardError
from maillard.evaluation.estimate_formatting import decimals_of
from maillard.evaluation.evaluation_report import Report, grouped, together_of
from maillard.evaluation.segments import segment_text, shown_estimate
from maillard.short_reprs import printable

if TYPE_CHECKING:
    from maillard.evaluation import Comparison, Estimate, LearnedRule, Segments
    from maillard.evaluation.evaluation_report import Estimates
    from maillard.evaluation.replays import Replay

_MAX_CURVE_LINES = 6


def print_reports(reports: Sequence[Report]) -> None:
    """Print reports, then the assumptions of their intervals."""
    console = Console(highlight=False)
    for each in reports:
        _print_title(console, f"{each.target} on {each.source}, experiment {each.experiment!r}")
        _print_weights(console, each)
        _print_estimates(console, each)
        console.print()
    _print_assumptions(console, [each for report in reports for each in report.values()])


def print_comparison(found: Comparison) -> None:
    """Print the weights of both targets, then the estimates of the difference."""
    console, first, second = Console(highlight=False), found.first, found.second
    where = f"on {first.source}, experiment {first.experiment!r}"
    _print_title(console, f"{first.target} minus {second.target} {where}")
    for each in (first, second):
        _print_weights(console, each, f"{each.target}: ")
    _print_estimates(console, found)
    console.print()
    _print_assumptions(console, found.values())


def print_segments(found: Sequence[Segments[Any]]) -> None:
    """Print the recommended estimate of each segment and of the whole log, then warnings and assumptions."""
    console = Console(highlight=False)
    for each in found:
        first = next(iter(each.values()))
        where = f"{first.target} by {', '.join(each.by)}"
        _print_title(console, where)
        _print_indented(console, f"{len(each)} segments. {each.validity}.")
        for note in each.notes:
            _print_indented(console, Text(printable(f"note: {note}"), "yellow"))
        console.print()
        table = text_table("segment", right=("rows", "value", "interval"), last="estimator")
        every: list[tuple[str, int | None, Any]] = [
            (segment_text(name), each.sizes[name], result) for name, result in each.items()
        ]
        for name, rows, result in [*every, ("(whole log)", sum(each.sizes.values()), each.whole)]:
            table.add_row(Text(printable(name)), f"{rows:,}", *_segment_cells(result))
        _print_indented(console, table)
        _print_segment_notes(console, [*every, ("(whole log)", None, each.whole)])
        console.print()
    _print_assumptions(
        console, [best for each in found for result in each.values() if (best := shown_estimate(result))]
    )


def _segment_cells(result: Any) -> tuple[Any, ...]:
    best = shown_estimate(result)
    if best is None:
        return Text("refused", "red"), "", ""
    digits = decimals_of([best])
    kind = f"{best.name}, {100 * result.confidence:.4g}%" + ("" if best is result.best else ", see below")
    return f"{best.value:,.{digits}f}", f"{best.lower:,.{digits}f} to {best.upper:,.{digits}f}", kind


def _print_segment_notes(console: Console, every: Sequence[tuple[str, int | None, Any]]) -> None:
    """Print why segments are refused, what is in doubt, and warnings, each once with its segments."""
    notes = Table.grid(padding=(0, 2, 0, 0))
    refused, doubts, left_out, warnings = [], [], [], []
    for name, _, result in every:
        best = shown_estimate(result)
        if best is not None and (left := _left_out(result)):
            left_out.append((name, left))
        if best is None:
            refused.append((name, next(iter(result.refusals.values()), "no estimate has an interval")))
        elif best is not result.best:
            doubts.append((name, best.caveat))
        warnings += [(name, each) for each in result.warnings]
    for word, style, pairs in (
        ("refused", "red", refused), ("but", "yellow", doubts), ("left out", "yellow", left_out),
        ("warning", "yellow", warnings),
    ):  # fmt: skip
        for names, why in grouped(pairs):
            notes.add_row(Text(word, style), Text(printable(f"{names}: {why}"), style))
    if notes.row_count:
        console.print()
        _print_indented(console, notes)


def _left_out(result: Report | Comparison) -> str:
    """How many decisions are not used, and why; "" if all are used."""
    reports = [result] if isinstance(result, Report) else [result.first, result.second]
    counts = {why: count for each in reports for why, count in each.diagnostics.left_out.items()}
    return ", ".join(f"{count:,} {why}" for why, count in counts.items())


def print_rule(found: LearnedRule) -> None:
    """Print a learned rule, its value and how much better it is than the best arm."""
    console = Console(highlight=False)
    title, *lines = found.description.splitlines()
    _print_title(console, title)
    for line in lines:
        _print_indented(console, printable(line.strip()))
    first, second = found.rows
    _print_indented(
        console, f"learned from {first:,} decisions, evaluated on {second:,} others; split {found.split}"
    )
    for each in found.report.warnings:
        _print_indented(console, Text(printable(f"warning: {each}"), "yellow"))
    console.print()
    table = text_table("", right=("value", "interval"), last="estimator")
    table.add_row("the rule", *_segment_cells(found.report))
    if found.comparison is not None:
        table.add_row(f"minus arm:{printable(found.best_arm)}", *_segment_cells(found.comparison))
    _print_indented(console, table)
    if lines:
        console.print()
        console.print(Text(f"--target {shlex.quote(printable(found.rule))}"), soft_wrap=True)
    results: list[Any] = [found.report, *([] if found.comparison is None else [found.comparison])]
    _print_segment_notes(console, [(each.target, None, each) for each in results])
    console.print()
    _print_assumptions(console, [best for each in results if (best := shown_estimate(each))])


def _print_title(console: Console, text: str) -> None:
    console.print(Text(printable(text), "bold"), soft_wrap=True)


def _print_indented(console: Console, text: Text | str | Table) -> None:
    console.print(Padding.indent(text, 2))


def _print_weights(console: Console, report: Report, before: str = "") -> None:
    d = report.diagnostics
    line = f"{before}{d.rows:,} rows"
    if d.rows:
        line += f", effective size {d.effective_sample_size:,.1f}; "
        line += f"weights: mean {d.mean_weight:.4g}, maximum {d.max_weight:.4g}"
    _print_indented(console, Text(printable(line)))
    if left := _left_out(report):
        _print_indented(console, Text(f"left out: {left}", "yellow"))
    if report.population:
        _print_indented(console, Text(printable(f"about {report.population}")))
    for each in report.warnings:
        _print_indented(console, Text(printable(f"warning: {each}"), "yellow"))


def _print_estimates(console: Console, answers: Estimates) -> None:
    estimates, best = answers.estimates, answers.best
    for line in together_of(answers):
        _print_indented(console, Text(line.strip()))
    table = text_table("estimator", right=("value", f"{100 * answers.confidence:.4g}% interval"), last="kind")
    digits = decimals_of(estimates.values())
    for each in estimates.values():
        if each.value is None:
            table.add_row(each.name, Text("refused", "red"), "", "")
            continue
        ends = "" if each.lower is None else f"{each.lower:,.{digits}f} to {each.upper:,.{digits}f}"
        kind = each.interval + (f", level {each.level:g}" if each.level is not None else "")
        name = f"{each.name} *" if each is best else each.name
        table.add_row(name, f"{each.value:,.{digits}f}", ends, kind, style="bold" if each is best else None)
    console.print()
    _print_indented(console, table)
    if best is not None:
        console.print()
        _print_indented(console, Text(f"* read this one first. {answers.why_best}"))
    elif answers.answered:
        console.print()
        _print_indented(console, Text(answers.why_best, "yellow"))
    notes = Table.grid(padding=(0, 2, 0, 0))
    for word, style, field in (("refused", "red", "refusal"), ("but", "yellow", "caveat")):
        for names, why in grouped((each.name, getattr(each, field) or "") for each in estimates.values()):
            notes.add_row(Text(word, style), Text(f"{names}: {printable(why)}", style))
    if notes.row_count:
        console.print()
        _print_indented(console, notes)


def _print_assumptions(console: Console, estimates: Iterable[Estimate]) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", max_width=20)
    grid.add_column(style="dim")
    for names, text in grouped((each.name, each.assumes) for each in estimates):
        grid.add_row(names, Text(text))
    if grid.row_count:
        console.print(Text("Assumptions of the intervals", "dim"))
        _print_indented(console, grid)


def print_replays(found: Sequence[Replay]) -> None:
    """Print each learning curve at a few rounds, then the assumptions of all curves."""
    console = Console(highlight=False)
    for each in found:
        _print_curve(console, each)
    grid = Table.grid(padding=(0, 1, 0, 0))
    for text in dict.fromkeys(text for each in found for text in each.assumes):
        grid.add_row(Text("-", "dim"), Text(printable(text), "dim"))
    console.print(Text("Assumptions of the curves", "dim"))
    _print_indented(console, grid)


def _print_curve(console: Console, found: Replay) -> None:
    _print_title(console, f"{found.policy} on {found.source if found.logs == 1 else f'{found.logs} logs'}")
    left = ", ".join(f"{count:,} {why}" for why, count in found.left_out.items() if count)
    times = f"{found.replays:,} replays" + f" on each of {found.parts} parts" * (found.parts > found.logs)
    line = f"{found.method}, {times}; {found.rows:,} rows, of which {found.accepted:,.4g} are used at a time"
    _print_indented(console, Text(line + (f"; left out: {left}" if left else "")))
    interval = f"{100 * found.confidence:.4g}% interval"
    table = text_table("round", right=("mean reward", interval, "replays that got there"))
    for place in np.unique(np.linspace(0, found.rounds.size - 1, _MAX_CURVE_LINES).astype(int)):
        mean = found.mean[place]
        middle = f"{found.least[place]:.4f} to {found.most[place]:.4f}" if math.isnan(mean) else f"{mean:.4f}"
        ends = f"{found.lower[place]:.4f} to {found.upper[place]:.4f}"
        table.add_row(f"{found.rounds[place]:,}", middle, ends, f"{found.reached[place]:.0%}")
    table.add_row("as logged", f"{found.logged_mean:.4f}", "", "", style="dim")
    console.print()
    _print_indented(console, table)
    console.print()


def draw_curves(found: Sequence[Replay]) -> Any:
    """Draw the learning curves in one figure."""
    from maillard import figures

    first = found[0]
    if len(found) == 1:
        return first.plot()
    series = []
    for each in found:
        if not np.array_equal(each.rounds, first.rounds):
            raise MaillardError("--figure: these curves have different rounds; give all the same --horizon")
        if each.bounded:
            series.append((f"{each.policy}, at least", each.least, each.lower, each.least))
            series.append((f"{each.policy}, at most", each.most, each.most, each.upper))
        else:
            series.append((each.policy, each.mean, each.lower, each.upper))
    names, middle, low, high = map(list, zip(*series, strict=True))
    logged = figures.Reference("as logged", first.rounds, np.full(first.rounds.size, first.logged_mean))
    return figures.curves(
        first.rounds, names, middle, low, high,
        label="mean reward per round", title=f"Learning curves of other policies: {first.method}",
        references=[logged],
    )  # fmt: skip
