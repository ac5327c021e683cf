"""The tables of docs/explanation/coverage.md: coverage at a fixed number of rows, at any time, and widths."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.coverage.cell_simulation import DISTANT, Outcome
from benchmarks.coverage.cells import CONFIDENCE, FLOORS, HORIZONS, LOGGERS, MEANS, Cell
from benchmarks.coverage.methods import FIRST, METHODS, NAIVE, NORMAL, SEQUENCES, STABILISED, WEIGHTED

__all__ = [
    "BAND",
    "ENOUGH",
    "LEVEL",
    "anytime",
    "distant",
    "enough",
    "fixed",
    "p_value",
    "percent",
    "sides",
    "stabilised",
    "table",
    "tests",
    "widths",
]

BAND = (0.88, 0.92)  # acceptable coverage of a 90% interval
ENOUGH = 30  # effective pulls for the normal approximation, as in textbooks
BINS = (0, 15, ENOUGH, 100, 1000, np.inf)
LEVEL = 0.05  # joint level of all tests of sequences


def percent(fraction: float) -> str:
    """A fraction in percent with one digit, without the percent sign."""
    return f"{100 * fraction:.1f}"


def p_value(value: float) -> str:
    """A p-value."""
    return f"{value:.2g}" if value < 0.999 else "over 0.999"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _row(cell: Cell) -> list[str]:
    return [LOGGERS[cell.logger], ", ".join(f"{mean:g}" for mean in cell.means)]


def stabilised(outcomes: dict[Cell, Outcome]) -> list[tuple[Cell, int, int, str, float, float]]:
    """Cell, horizon, arm, method, coverage and effective pulls, of every stabilised interval."""
    return [
        (
            cell,
            horizon,
            arm,
            method,
            float(out.covered[number, arm, METHODS.index(method)]),
            float(out.pulls[number, arm, 1]),
        )
        for cell, out in outcomes.items()
        for number, horizon in enumerate(HORIZONS)
        for arm in range(len(cell.means))
        for method in STABILISED
    ]


def tests(outcomes: dict[Cell, Outcome]) -> list[tuple[str, float, float]]:
    """Method, fraction of runs that ever missed and its p-value, for every arm at the last horizon.

    The hypothesis is that a run misses with a probability of at most 10%.
    """
    rows = []
    for out in outcomes.values():
        for method in SEQUENCES:
            missed = 1 - out.covered[-1, :, METHODS.index(method)]
            for fraction in missed.tolist():
                value = float(stats.binom.sf(round(fraction * out.runs) - 1, out.runs, 1 - CONFIDENCE))
                rows.append((method, fraction, value))
    return rows


def _marked(fraction: float, judged: bool) -> str:
    text = percent(fraction)
    return f"**{text}**" if judged and not BAND[0] <= fraction <= BAND[1] else text


def fixed(outcomes: dict[Cell, Outcome], horizon: int, floor: str) -> str:
    """Coverage of every arm at a number of rows, of one floor."""
    number, methods = HORIZONS.index(horizon), (*NAIVE, *WEIGHTED)
    rows = []
    for cell, out in outcomes.items():
        if cell.floor == floor:
            arms = range(len(cell.means))
            coverages = [
                " / ".join(
                    _marked(out.covered[number, arm, METHODS.index(method)], method in STABILISED)
                    for arm in arms
                )
                for method in methods
            ]
            effective = " / ".join(f"{out.pulls[number, arm, 1]:,.0f}" for arm in arms)
            rows.append([*_row(cell), effective, *coverages])
    first = horizon == HORIZONS[0] and floor == next(iter(FLOORS))
    heading = "## At a fixed number of rows\n\n" if first else ""
    explained = (
        "Coverage in percent for the first, second and third arm. Effective pulls are (Σ √e_t)² / T, "
        "averaged over logs. Coverages of "
        "stabilised intervals outside 88 to 92% are bold.\n\n"
        if first
        else ""
    )
    return f"""
{heading}{explained}### T = {horizon:,}, floor {_floor(floor)}

{table(["policy", "means", "effective pulls", *methods], rows)}"""


def _floor(floor: str) -> str:
    return "5% / 3" if floor == "5%" else "t^-0.7 / 3"


def enough(outcomes: dict[Cell, Outcome]) -> str:
    """Coverage by effective pulls, and all that is outside the band."""
    methods = (*NAIVE, *WEIGHTED)
    rows = []
    for low, high in itertools.pairwise(BINS):
        found: dict[str, list[float]] = {method: [] for method in methods}
        for out in outcomes.values():
            for number, arm in np.argwhere((out.pulls[..., 1] >= low) & (out.pulls[..., 1] < high)):
                for method in methods:
                    found[method].append(float(out.covered[number, arm, METHODS.index(method)]))
        count = len(found[methods[0]])
        if count:
            between = f"{low:,} to {high:,.0f}" if high < np.inf else f"{low:,} or more"
            spans = [f"{percent(min(each))} to {percent(max(each))}" for each in found.values()]
            rows.append([between, str(count), *spans])
    decaying = [(horizon**0.65 / 0.65) ** 2 / horizon / 3 for horizon in HORIZONS]
    return f"""
### How many pulls are enough?

The range of the same coverages by the effective pulls of the arm. An arm that is chosen only because of a
floor of t^-0.7 / 3 has about {decaying[0]:.0f} of them after {HORIZONS[0]:,} rows and {decaying[1]:.0f}
after {HORIZONS[1]:,}: too few for any normal interval. A floor of 5% / 3 gives {HORIZONS[0] * 0.05 / 3:.0f}
and {HORIZONS[1] * 0.05 / 3:.0f}.

{table(["effective pulls", "arms", *methods], rows)}

The limit of {ENOUGH} effective pulls is the usual one in textbooks; it was chosen after some of these
numbers were known. The table shows all of them.

All coverages of stabilised intervals outside 88 to 92%. The last column is the coverage of a normal
interval for the mean of the same number of independent Gaussian rewards with estimated variance (Student's
distribution). Much of the shortfall occurs there as well, without any adaptation: it is due to few pulls.
The rest, up to {percent(_gap(outcomes))} points, is not explained here.

{_outside(outcomes)}"""


def _student_coverage(pulls: float) -> float:
    """The coverage of a normal interval for the mean of independent Gaussian rewards.

    The variance is estimated, so the mean has Student's distribution.
    """
    return 2 * float(stats.t.cdf(NORMAL, pulls - 1)) - 1


def _gap(outcomes: dict[Cell, Outcome]) -> float:
    gaps = [
        _student_coverage(row[5]) - row[4] for row in stabilised(outcomes) if not BAND[0] <= row[4] <= BAND[1]
    ]
    return max(gaps, default=0.0)


def _outside(outcomes: dict[Cell, Outcome]) -> str:
    """A table of the stabilised intervals whose coverage is outside the band."""
    head = ("policy", "means", "floor", "T", "arm", "method", "coverage", "effective pulls")
    rows = []
    for cell, horizon, arm, method, fraction, pulls in stabilised(outcomes):
        if not BAND[0] <= fraction <= BAND[1]:
            place = ("first", "second", "third")[arm]
            rows.append(
                [
                    *_row(cell),
                    _floor(cell.floor),
                    f"{horizon:,}",
                    place,
                    method,
                    percent(fraction),
                    f"{pulls:.0f}",
                    percent(_student_coverage(pulls)),
                ]
            )
    return table([*head, "independent rewards"], rows)


def distant(found: dict[str, Any]) -> str:
    """Coverage for longer logs."""
    coverages = np.array(found["distant"])
    runs = max(2, found["runs"] // 5)
    rows = [
        [
            f"{horizon:,}",
            *(
                " / ".join(percent(each) for each in coverages[number, :, kind])
                for kind in range(len(WEIGHTED))
            ),
        ]
        for number, horizon in enumerate(DISTANT)
    ]
    return f"""
Coverage improves slowly with longer logs: MS with the floor t^-0.7 / 3 on means (0.5, 1, 1.5), {runs:,}
logs of {DISTANT[-1]:,} rows (standard error {100 * np.sqrt(0.09 / runs):.1f} points), first / second /
third arm.

{table(["T", *WEIGHTED], rows)}"""


def sides(outcomes: dict[Cell, Outcome]) -> str:
    """Misses below and above for the arms that are not the best, averaged over policies and floors."""
    methods, rows = (*NAIVE, *WEIGHTED), []
    for means in MEANS[1:]:
        for number, horizon in enumerate(HORIZONS):
            chosen = [out for cell, out in outcomes.items() if cell.means == means]
            sides = [
                [np.mean([side[number, :-1, METHODS.index(method)] for side in each]) for method in methods]
                for each in ([out.low for out in chosen], [out.high for out in chosen])
            ]
            texts = [f"{percent(low)} / {percent(high)}" for low, high in zip(*sides, strict=True)]
            rows.append([", ".join(f"{mean:g}" for mean in means), f"{horizon:,}", *texts])
    return f"""
### On which side they miss

A policy stops choosing an arm when its rewards are low, and does not return to correct a bad start. So
sample means of arms that are not the best are too low, and so are their intervals. Percent of intervals
below / above the true value (ideally 5 / 5), for the two worse arms, averaged over policies and floors.

{table(["means", "T", *methods], rows)}"""


def anytime(outcomes: dict[Cell, Outcome]) -> str:
    """How often confidence sequences, and naive intervals checked after every row, never miss."""
    rows = []
    found = tests(outcomes)
    for cell, out in outcomes.items():
        texts = []
        for method in SEQUENCES:
            coverages = out.covered[-1, :, METHODS.index(method)]
            texts.append(" / ".join(percent(each) for each in coverages))
        checked = [
            " / ".join(percent(1 - each) for each in out.ever[-1, :, kind]) for kind in range(len(NAIVE))
        ]
        rows.append([*_row(cell), _floor(cell.floor), *texts, *checked])
    least = {method: min(row[2] for row in found if row[0] == method) for method in SEQUENCES}
    most = {method: max(row[1] for row in found if row[0] == method) for method in SEQUENCES}
    judged = [[method, percent(most[method]), p_value(least[method])] for method in SEQUENCES]
    return f"""
## At any time

You may check a confidence sequence after every row, and stop at any time for any reason. The interval after
n rows is the intersection of all intervals up to row n. So it contains the true value after
{HORIZONS[-1]:,} rows if and only if it did so after every earlier row, and one number answers both
questions. The table shows the percentage of logs in which it never excluded the true mean of the arm, up to
{HORIZONS[-1]:,} rows, and the same for naive intervals that are checked after every row from row {FIRST}
on.

{table(["policy", "means", "floor", *SEQUENCES, *(f"{each}, checked every row" for each in NAIVE)], rows)}

For each sequence, the largest fraction of logs in which it excluded the true value, and the smallest
p-value of the hypothesis that this happens with probability at most 10% (exact one-sided binomial tests;
with {len(found)} tests, a p-value below {LEVEL / len(found):.1g} would reject at level {LEVEL:g}).

{table(["sequence", "excluded the true value, %", "smallest p-value"], judged)}"""


def widths(outcomes: dict[Cell, Outcome]) -> str:
    """Mean widths."""
    tables = []
    for number, horizon in enumerate(HORIZONS):
        rows = []
        for cell, out in outcomes.items():
            texts = [
                " / ".join(f"{out.width[number, arm, METHODS.index(method)]:.2f}" for arm in (0, -1))
                for method in METHODS
            ]
            rows.append([*_row(cell), _floor(cell.floor), *texts])
        tables.append(
            f"### Width at T = {horizon:,}\n\n{table(['policy', 'means', 'floor', *METHODS], rows)}"
        )
    return "\n\n".join(
        [
            "## Width of the intervals\n\nMean width of the intervals of the first / third arm. The rewards "
            "of "
            "an arm span 2; the range given to the confidence "
            "sequences has a width of 3.",
            *tables,
        ]
    )
