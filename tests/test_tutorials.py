"""Tutorials run from an empty folder, and their commands print what the pages show.

A page has programs (`python` blocks; the sentence before names the file) and commands (`console`
blocks). Numbers may differ in their digits, because other versions of NumPy sample other values. A line `...`
stands for any number of lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from maillard.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("[!i]*.md"))
_BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n\n```(?P<language>python|console)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"`([\w.-]+\.py)`")
_NUMBER = re.compile(r"\b[0-9a-f]{64}\b|(?<!\w)-?\d[\d,]*(\.\d+)?")


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_an_empty_folder(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for match in _BLOCK.finditer(page.read_text(encoding="utf8")):
        if match["language"] == "python":
            (name,) = _FILE.findall(match["before"])
            Path(name).write_text(match["text"], encoding="utf8")
            continue
        for command in commands(match["text"]):
            printed = run(command.words, capsys)
            assert agree(printed, command.shown), f"{shlex.join(command.words)} prints:\n{printed}"
            ran += 1
    assert ran


def test_another_output_does_not_agree() -> None:
    assert agree("blue  0.51 [0.4, 0.6]\nred 1,000\nend\n", "blue 0.52 [0.31, 0.7]\n...\nend\n")
    assert not agree("blue 0.51\n", "red 0.51\n")
    assert not agree("blue 0.51\nred 0.2\n", "blue 0.51\n")
