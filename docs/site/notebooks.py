"""Makes a notebook of each tutorial. The page is the only source; the notebook makes its own output.

A program becomes a code cell at the place where the page runs it. If another program imports it, or if it
runs with arguments or several times, a cell writes its file instead, and `%run` runs it. Links to other pages
of the site become text, because a notebook is used without the site.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.site.tutorial_pages import Command, Picture, Program, Prose, Step, pages, steps

_LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?:)[^)]*\)")
_LEAD_IN = re.compile(r"\s*Save (?:this|it) as `[\w.-]+`:$")
_INTRODUCTION = """\
This notebook is a tutorial of maillard's documentation. Run its cells from top to bottom, in an environment
that has maillard and Jupyter. The first cell makes an empty folder for the files of the tutorial."""
_SETUP = """\
import os
import sys
import tempfile

os.chdir(tempfile.mkdtemp(prefix="maillard-"))
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # for `!maillard`
os.environ |= {"COLUMNS": "100", "TTY_COMPATIBLE": "0"}  # its output: the width, and no animations
print("files are written to", os.getcwd())"""


def write(folder: Path) -> None:
    """Write the notebooks of all tutorials into a folder, and nothing else."""
    folder.mkdir(exist_ok=True)
    made = {f"{page.stem}.ipynb": notebook(page.read_text(encoding="utf8")) for page in pages()}
    for old in folder.iterdir():
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf8")


def notebook(page: str) -> str:
    """The notebook of a page, as JSON."""
    title, _, rest = page.partition("\n")
    cells = [
        _markdown(f"{title}\n\n{_INTRODUCTION}"),
        _code(_SETUP),
        *_cells(list(steps(rest))),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same page gives the same file
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}


def _cells(found: list[Step]) -> Iterator[dict[str, Any]]:
    programs = {step.name: step.text for step in found if isinstance(step, Program)}
    inline = _inline(found, programs)
    for step, following in zip(found, [*found[1:], None], strict=True):
        if isinstance(step, Prose):
            text = _LINK.sub(r"\1", step.text)
            if isinstance(following, Program) and following.name in inline:
                text = _LEAD_IN.sub("", text)
            for part in re.split(r"^(?=## )", text, flags=re.MULTILINE):
                if part.strip():
                    yield _markdown(part.strip())
        elif isinstance(step, Program) and step.name not in inline:
            yield _code(f"%%writefile {step.name}\n{step.text.rstrip()}")
        elif isinstance(step, Command):
            yield _code(_command(step, programs, inline))
        elif isinstance(step, Picture):
            yield _code(f"from IPython.display import Image\n\nImage({step.name!r}, alt={step.alt!r})")


def _inline(found: list[Step], programs: dict[str, str]) -> set[str]:
    """The programs whose text is a code cell: they run once, without arguments, and none imports them."""
    runs = Counter(
        name for step in found if isinstance(step, Command) for name in step.words[1:] if name in programs
    )
    alone = {step.words[1] for step in found if isinstance(step, Command) and len(step.words) == 2}
    every = "".join(programs.values())
    imported = {
        name for name in programs if re.search(rf"^\s*(from|import) {name[:-3]}\b", every, re.MULTILINE)
    }
    return {name for name in programs if runs[name] == 1 and name in alone - imported}


def _command(step: Command, programs: dict[str, str], inline: set[str]) -> str:
    program, *arguments = step.words
    if program == "python" and arguments[0] in inline:
        return programs[arguments[0]].rstrip()
    # IPython would replace {names} and $names.
    line = step.line.replace("{", "{{").replace("}", "}}").replace("$", "$$")
    return f"%run{line.removeprefix('python')}" if program == "python" else f"!{line}"
