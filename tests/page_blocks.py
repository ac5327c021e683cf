"""The blocks of a documentation page: its programs, its commands, and what they print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from maillard.cli import main

_NUMBER = re.compile(r"\b[0-9a-f]{64}\b|(?<!\w)-?\d[\d,]*(\.\d+)?(e[+-]\d+)?")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    before: str  # the line of prose before it


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order. A block inside another one belongs to its text."""
    found: list[Block] = []
    fence, start, before = "", 0, ""
    lines = page.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        marks = re.match(r" *(`{3,})", line)
        if not fence and marks:
            fence, start, language = marks[1], number, line.strip().strip("`")
        elif fence and line.strip() == fence:
            found.append(Block(language, dedent("".join(lines[start : number - 1])), start, before))
            fence = ""
        elif not fence and line.strip():
            before = line.strip()
    assert not fence, f"line {start}: this block has no end"
    return found


class Command(NamedTuple):
    """A command of a page, and the output that the page shows."""

    words: list[str]
    shown: str


def commands(text: str) -> Iterator[Command]:
    """The commands in the text of a `console` block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.replace("\\\n", "").partition("\n")
        yield Command(shlex.split(line), shown)


def masked(text: str) -> list[str]:
    """The lines of an output without its digits, and without the white space that depends on them."""
    return [" ".join(_NUMBER.sub("#", line).split()) for line in text.strip().splitlines()]


def agree(printed: str, shown: str) -> bool:
    """Whether an output is what a page shows."""
    escaped = [re.sub(r"([\[*?])", r"[\1]", line) for line in masked(shown)]
    return fnmatchcase("\n".join(masked(printed)), "\n".join(escaped).replace("...", "*"))


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process; return what it prints."""
    capsys.readouterr()
    if words[0] == "python":
        source = Path(words[1]).read_text(encoding="utf8")
        exec(compile(source, words[1], "exec", dont_inherit=True), {"__name__": "__main__"})
        return capsys.readouterr().out
    assert words[0] == "maillard"
    result = CliRunner(env={"COLUMNS": "100"}).invoke(main, words[1:], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
