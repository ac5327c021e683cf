"""The command `policies`: the comparison table of all policies, and the description of one."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maillard.cli.terminal import text_table
from maillard.policies import LinearPolicy, Policy, names, policy_class
from maillard.policies.table import columns_of, table_row

# Short column headers, for terminals with 80 columns.
_HEADERS = (
    "policy", "sub-\nUCB", "asympt.\noptimal", "minimax\nratio", "any-\ntime", "closed\nform", "source",
)  # fmt: skip
_CONTEXT_HEADERS = ("policy", "regret", "probabilities", "source")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json"]),
    default="table",
    help="Output format.",
)
def policies(name: str | None, form: str) -> None:
    """Compare all policies in a table, or describe the policy NAME.

    The columns are those of Table 1 in the paper. ✓: proved. ✗: false. ✗*: no result is reported, but it
    might be true. Blank: nothing is reported. A second table has the policies that use a context.

    \b
    maillard policies
    maillard policies ms+
    maillard policies --format json
    """  # noqa: D301  # click requires this character
    chosen = [policy_class(name)] if name else [policy_class(each) for each in names()]
    if form == "json":
        click.echo(json.dumps([describe(cls) for cls in chosen], indent=2, ensure_ascii=False))
    elif form == "markdown":
        click.echo(markdown_table(chosen))
    elif name:
        _print_description(chosen[0])
    else:
        _print_table(chosen)


def describe(cls: type[Policy]) -> dict[str, Any]:
    """Return the description of a policy as data for JSON."""
    return {
        "name": cls.name,
        "class": cls.__name__,
        "summary": _summary(cls),
        "formula": cls.formula,
        "probabilities": cls.probability_kind,
        "parameters": [
            {"name": name, "default": default, "meaning": parameter.meaning, "allowed": parameter.allowed}
            for name, parameter, default in cls.parameters()
        ],
        "reference": cls.reference,
        "guarantees": dataclasses.asdict(cls.guarantees),
    }


def markdown_table(chosen: list[type[Policy]]) -> str:
    """Return the comparison table in Markdown: one table, or two if some policies use a context."""
    tables = []
    for part in _parts(chosen):
        columns = columns_of(part[0])
        rows = [list(columns), ["---"] * len(columns), *(table_row(cls) for cls in part)]
        tables.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(tables)


def _parts(chosen: list[type[Policy]]) -> list[list[type[Policy]]]:
    """Return the policies without a context and those with one; a part without policies is left out."""
    parts = [[cls for cls in chosen if cls.uses_context == context] for context in (False, True)]
    return [part for part in parts if part]


def _print_table(chosen: list[type[Policy]]) -> None:
    console = Console()
    for part in _parts(chosen):
        rows = [table_row(cls) for cls in part]
        if part[0].uses_context:
            console.print("\nWith a context (maillard policies NAME prints the rule):\n", style="dim")
            _print_rows(console, _CONTEXT_HEADERS, [[row[0], *row[2:]] for row in rows])
        else:
            _print_rows(console, _HEADERS, rows)
    console.print(
        "\n✓ proved  ✗ false  ✗* might be true  blank: not reported  † with a condition\n"
        "maillard policies NAME describes one policy.",
        style="dim",
    )


def _print_rows(console: Console, headers: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    left = console.width
    for place, header in enumerate(headers[:-1]):
        width = max(len(text) for text in (*header.split("\n"), *(row[place] for row in rows)))
        table.add_column(header, justify="center" if place else "left", no_wrap=True, width=width)
        left -= width + 1
    # On a narrow terminal, only the column of sources is shortened.
    table.add_column(headers[-1], no_wrap=True, overflow="ellipsis", width=max(left, 6))
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell[:1], "")) for cell in row))
    console.print(table)


def _print_description(cls: type[Policy]) -> None:
    console = Console(highlight=False)
    console.print(Text.assemble((cls.name, "bold"), f"  {cls.__name__}"))
    console.print(Text(_summary(cls)))
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_row("formula", Text(cls.formula))
    inherited = cls.probability_kind == "inherited"
    facts.add_row("probabilities", "those of its policy" if inherited else cls.probability_kind)
    low, high = cls.support
    if low > -float("inf"):
        facts.add_row("rewards", f"from {low:g} to {high:g}")
    kept = slice(2, 3) if cls.uses_context else slice(1, -1)  # the rule and the probabilities are above
    for column, cell in list(zip(columns_of(cls), table_row(cls), strict=True))[kept]:
        facts.add_row(column, Text(cell or "not reported", style=_STYLES.get(cell[:1], "")))
    if cls.guarantees.note:
        facts.add_row("note", Text(cls.guarantees.note))
    facts.add_row("reference", Text(cls.reference))
    facts.add_row("source", Text(cls.guarantees.source))
    console.print(facts)
    if cls.parameters():
        console.print()
        table = text_table("parameter")
        for column in ("default", "allowed", "meaning"):
            table.add_column(column)
        for name, parameter, default in cls.parameters():
            shown = "" if default is None else str(default)
            table.add_row(name, shown, Text(parameter.allowed), Text(parameter.meaning))
        console.print(table)
    console.print(Text(f"\nexample: maillard.policy({_example(cls)})", style="dim"))


def _example(cls: type[Policy]) -> str:
    needed = [f"{name}=..." for name, _, default in cls.parameters() if default is None]
    if issubclass(cls, LinearPolicy):  # the reward range implies most of what is missing
        required = {name for name, parameter, _ in cls.parameters() if not parameter.optional}
        own = required - {"centre", "sigma2"}
        needed = [each for each in needed if each.removesuffix("=...") in own] + ["reward_range=(0, 1)"]
    return ", ".join([repr(cls.name), *needed])


def _summary(cls: type[Policy]) -> str:
    paragraphs = (cls.__doc__ or "").split("\n\n")
    return " ".join(paragraphs[0].split())


_STYLES = {"✓": "green", "✗": "red"}
