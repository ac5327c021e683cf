"""Format numbers, policy names, lists and tables for docs/explanation/tails.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.tails import plan
from maillard.figures.text_layout import format_number
from maillard.reproduction.paper_experiments import label

if TYPE_CHECKING:
    from benchmarks.tails.cells import Cell


def format_linear_probability(cell: Cell) -> str:
    """Format the estimated probability of linear regret, or its upper bound if no trial was linear."""
    if cell.linear:
        return format_number(cell.linear_fraction)
    return f"< {format_number(cell.linear_interval[1])}"


def format_change(before: float, after: float) -> str:
    """Format a change from one number to another, with its percentage."""
    return f"{format_number(before)} → {format_number(after)} ({after / before - 1:+.0%})"


def format_range(values: Sequence[float]) -> str:
    """Format the smallest and the largest of the values."""
    low, high = format_number(min(values)), format_number(max(values))
    return low if low == high else f"{low} to {high}"


def format_boosters(indices: Sequence[int]) -> str:
    """Format the smallest and the largest of the boosters with these indices."""
    low, high = plan.BOOSTERS[min(indices)], plan.BOOSTERS[max(indices)]
    return str(low) if low == high else f"{low} to {high}"


def count_problems(count: int) -> str:
    """Format a number of problems, relative to all problems of the study."""
    total = len(plan.PROBLEMS)
    return {0: f"none of {total} problems", total: f"all {total} problems"}.get(
        count, f"{count} of {total} problems"
    )


def format_rank(rank: int) -> str:
    """Format a rank among the largest values.

    >>> format_rank(1), format_rank(3), format_rank(11)
    ('largest', '3rd largest', '11th largest')
    """
    if rank == 1:
        return "largest"
    ending = "th" if rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank:,}{ending} largest"


def join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def join_policies(specs: Sequence[str]) -> str:
    """Join the labels of policies; three or more consecutive boosters become a range.

    >>> join_policies(["ms+:booster=1", "ms+:booster=2", "ms+:booster=4", "ms", "ts"])
    'MS+1 to MS+4, MS and TS'
    """
    boosted = [spec for spec in plan.BOOSTED if spec in specs]
    others = [label(spec) for spec in specs if spec not in boosted]
    first = plan.BOOSTED.index(boosted[0]) if boosted else 0
    if len(boosted) > 2 and tuple(boosted) == plan.BOOSTED[first : first + len(boosted)]:
        return join_names([f"{label(boosted[0])} to {label(boosted[-1])}", *others])
    return join_names([*map(label, boosted), *others])


def bold_if(condition: bool, text: str) -> str:
    """Return the text, bold if the condition is true."""
    return f"**{text}**" if condition else text


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
