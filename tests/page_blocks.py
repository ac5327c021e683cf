"""The blocks of a documentation page: its programs, its commands, and what they print."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from maillard.cli import main
from maillard.policies import Policy

_FAILURE = re.compile(r"^(Error: .*|broken)$", re.MULTILINE)
_NUMBER = re.compile(r"\b[0-9a-f]{64}\b|(?<!\w)-?\d[\d,]*(\.\d+)?(e[+-]\d+)?")


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order. A block inside another one belongs to its text.

    A block of other libraries, `python peers`, and its output are left out: tests/peers runs it. A block
    `python both` runs here and there.
    """
    found: list[Block] = []
    fence, start = "", 0
    lines = page.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        marks = re.match(r" *(`{3,})", line)
        if not fence and marks:
            fence, start, language = marks[1], number, line.strip().strip("`")
        elif fence and line.strip() == fence:
            found.append(Block(language, dedent("".join(lines[start : number - 1])), start))
            fence = ""
    assert not fence, f"line {start}: this block has no end"
    theirs = [block.language == "python peers" for block in found]
    output = [block.language == "text" and of for block, of in zip(found, [False, *theirs], strict=False)]
    return [
        block._replace(language=block.language.removesuffix(" both"))
        for block, *left_out in zip(found, theirs, output, strict=True)
        if not any(left_out)
    ]


def masked(text: str) -> list[str]:
    """The lines of an output without its digits, and without the white space that depends on them."""
    return [" ".join(_NUMBER.sub("#", line).split()) for line in text.strip().splitlines()]


def agree(printed: str, shown: str) -> bool:
    """Whether an output is what a page shows."""
    escaped = [re.sub(r"([\[*?])", r"[\1]", line) for line in masked(shown)]
    return fnmatchcase("\n".join(masked(printed)), "\n".join(escaped).replace("...", "*"))


def run(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process; return what it prints. A command may fail only if it says so."""
    capsys.readouterr()
    program, *arguments = words
    if program == "python":
        source = Path(arguments[0]).read_text(encoding="utf8")
        monkeypatch.setattr(sys, "argv", arguments)
        exec(compile(source, arguments[0], "exec", dont_inherit=True), {"__name__": "__main__"})
        return capsys.readouterr().out
    assert program == "maillard"
    with monkeypatch.context() as patch:
        patch.setattr(Policy, "registry", dict(Policy.registry))  # `--load` is for this command only
        result = CliRunner(env={"COLUMNS": "100"}).invoke(main, arguments, catch_exceptions=False)
    assert bool(result.exit_code) == bool(_FAILURE.search(result.output)), result.output
    return str(result.output)
