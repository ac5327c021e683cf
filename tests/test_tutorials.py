"""Tutorials run from an empty folder, and their commands print what the pages show.

A page has programs (`python` blocks; the sentence before names the file) and commands (`console`
blocks). Numbers may differ in their digits, because other versions of NumPy sample other values. A line `...`
stands for any number of lines. `docs/site/tutorial_pages.py` describes the parts of a page.
"""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner

from docs.site.tutorial_pages import Command, Picture, Program, pages, steps
from maillard.cli import main
from maillard.policies import Policy

_NUMBER = re.compile(r"\b[0-9a-f]{64}\b|(?<!\w)-?\d[\d,]*(\.\d+)?")
_FAILURE = re.compile(r"^(Error: .*|broken)$", re.MULTILINE)
_PNG = b"\x89PNG\r\n\x1a\n"


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
    result = CliRunner(env={"COLUMNS": "100"}).invoke(main, arguments, catch_exceptions=False)
    assert bool(result.exit_code) == bool(_FAILURE.search(result.output)), result.output
    return str(result.output)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_tutorial_runs_from_an_empty_folder(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # programs may import each other
    monkeypatch.setattr(Policy, "registry", dict(Policy.registry))  # a program may add a policy
    ran = 0
    for step in steps(page.read_text(encoding="utf8")):
        if isinstance(step, Program):
            Path(step.name).write_text(step.text, encoding="utf8")
        elif isinstance(step, Command):
            printed = run(step.words, monkeypatch, capsys)
            assert agree(printed, step.shown), f"{step.line} prints:\n{printed}"
            ran += 1
        elif isinstance(step, Picture):
            assert Path(step.name).read_bytes().startswith(_PNG)
            assert step.path.exists(), "run `make docs`"
    assert ran


def test_another_output_does_not_agree() -> None:
    assert agree("blue  0.51 [0.4, 0.6]\nred 1,000\nend\n", "blue 0.52 [0.31, 0.7]\n...\nend\n")
    assert not agree("blue 0.51\n", "red 0.51\n")
    assert not agree("blue 0.51\nred 0.2\n", "blue 0.51\n")
