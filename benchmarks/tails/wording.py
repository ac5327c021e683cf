"""What things are called on the page, and how numbers are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.tails import plan
from maillard.figures.text_layout import format_number as number
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.sections.panels import title_of

if TYPE_CHECKING:
    from benchmarks.tails.cells import Cell

__all__ = [
    "bold",
    "boosters",
    "change",
    "joined",
    "label",
    "listed",
    "nth",
    "number",
    "on_problems",
    "probability",
    "span",
    "table",
    "title_of",
]


def probability(cell: Cell) -> str:
    """Of linear regret; of what never happened, its upper bound."""
    return number(cell.share) if cell.linear else f"< {number(cell.linear_interval[1])}"


def change(before: float, after: float) -> str:
    """From one number to another."""
    return f"{number(before)} → {number(after)} ({after / before - 1:+.0%})"


def span(values: Sequence[float]) -> str:
    """The least and the largest of some numbers."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def boosters(places: Sequence[int]) -> str:
    """The smallest and the largest of the boosters at some places."""
    low, high = plan.BOOSTERS[min(places)], plan.BOOSTERS[max(places)]
    return str(low) if low == high else f"{low} to {high}"


def on_problems(count: int) -> str:
    """So many of the problems."""
    total = len(plan.PROBLEMS)
    return {0: f"none of {total} problems", total: f"all {total} problems"}.get(
        count, f"{count} of {total} problems"
    )


def nth(number: int) -> str:
    """Of a rank among the largest.

    >>> nth(1), nth(3), nth(11)
    ('largest', '3rd largest', '11th largest')
    """
    if number == 1:
        return "largest"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending} largest"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def joined(names: Sequence[str]) -> str:
    """Policies by their labels, three boosters and more in a row by the first and the last of them.

    >>> joined(["ms+:booster=1", "ms+:booster=2", "ms+:booster=4", "ms", "ts"])
    'MS+1 to MS+4, MS and TS'
    """
    kept = [name for name in plan.BOOSTED if name in names]
    others = [label(name) for name in names if name not in kept]
    first = plan.BOOSTED.index(kept[0]) if kept else 0
    if len(kept) > 2 and tuple(kept) == plan.BOOSTED[first : first + len(kept)]:
        return listed([f"{label(kept[0])} to {label(kept[-1])}", *others])
    return listed([*map(label, kept), *others])


def bold(text: str, wanted: bool) -> str:
    """A text, bold if wanted."""
    return f"**{text}**" if wanted else text


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
