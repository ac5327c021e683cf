"""The reference of the command line, from the declarations of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from maillard.cli import main


def page() -> str:
    """The text of the page."""
    lines = [
        "# Command line",
        "",
        "`maillard COMMAND --help` prints the same. Every command ends with status 0 if it succeeds,",
        "and with status 2 and one line that states the problem if an argument or a log is invalid.",
        "",
        *_options(click.Context(main, info_name="maillard")),
    ]
    for name in sorted(main.commands):
        lines += _command(main.commands[name], f"maillard {name}", level=2)
    return "\n".join(lines) + "\n"


def _command(command: click.Command, path: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield from (f"{'#' * level} {path}", "", "```text", usage, "```", "")
    yield from _paragraphs(command.help or "")
    yield from _options(context)
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _command(command.commands[name], f"{path} {name}", level + 1)


def _paragraphs(text: str) -> Iterator[str]:
    """A help text. click keeps the lines of paragraphs that begin with a backspace, and so do we."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield from ("```text", *lines[1:], "```", "")
        else:
            yield from (_markdown(" ".join(lines)), "")


def _options(context: click.Context) -> Iterator[str]:
    """A definition list of the options."""
    for parameter in context.command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (f"`{record[0]}`", f": {_markdown(record[1])}", "")


def _markdown(text: str) -> str:
    """Plain text as Markdown: what it contains outside of code means itself."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_<>\[\]{}$])", r"\\\1", part) for part in parts
    )
