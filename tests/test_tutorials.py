"""Tutorials run from an empty folder, and their commands print what the pages show.

A page has programs (`python` blocks; the sentence before names the file) and commands (`console`
blocks). Numbers may differ in their digits, because other versions of NumPy sample other values. A line `...`
stands for any number of lines.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.page_blocks import agree, blocks, commands, run

PAGES = sorted((Path(__file__).parent.parent / "docs" / "tutorials").glob("[!i]*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_an_empty_folder(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for block in blocks(page.read_text(encoding="utf8")):
        if block.language == "python":
            (name,) = re.findall(r"`([\w.-]+\.py)`", block.before)
            Path(name).write_text(block.text, encoding="utf8")
        elif block.language == "console":
            for command in commands(block.text):
                printed = run(command.words, capsys)
                assert agree(printed, command.shown), f"{shlex.join(command.words)} prints:\n{printed}"
                ran += 1
    assert ran


def test_another_output_does_not_agree() -> None:
    assert agree("blue  0.51 [0.4, 0.6]\nred 1,000\nend\n", "blue 0.52 [0.31, 0.7]\n...\nend\n")
    assert not agree("blue 0.51\n", "red 0.51\n")
    assert not agree("blue 0.51\nred 0.2\n", "blue 0.51\n")
