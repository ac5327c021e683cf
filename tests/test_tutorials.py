"""Tutorials run from an empty folder, and their commands print what the pages show.

A page has programs (`python` blocks; the sentence before names the file) and commands (`console`
blocks). Numbers may differ in their digits, because other versions of NumPy sample other values. A line `...`
stands for any number of lines. `docs/site/tutorial_pages.py` describes the parts of a page.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from docs.site.tutorial_pages import Command, Picture, Program, pages, steps
from maillard.policies import Policy
from tests.page_blocks import agree, run

_PNG = b"\x89PNG\r\n\x1a\n"


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
    for name, module in list(sys.modules.items()):  # another tutorial may have a file of the same name
        if str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def test_another_output_does_not_agree() -> None:
    assert agree("blue  0.51 [0.4, 0.6]\nred 1,000\nend\n", "blue 0.52 [0.31, 0.7]\n...\nend\n")
    assert not agree("blue 0.51\n", "red 0.51\n")
    assert not agree("blue 0.51\nred 0.2\n", "blue 0.51\n")
