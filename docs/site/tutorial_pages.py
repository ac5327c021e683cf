"""Reads the pages of docs/tutorials: their programs, the commands that run them, and their pictures.

A program is a `python` block, and the sentence before it names its file in backticks. A `console` block has
commands (`$ python FILE` and `$ maillard ...`) and their output. The picture `../pictures/tutorial-NAME.png`
shows the file NAME.png, which a program or a command before it has written.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TUTORIALS = Path(__file__).parents[1] / "tutorials"
PICTURES = TUTORIALS.parent / "pictures"
_BLOCK = re.compile(
    r"^```(?P<language>python|console)\n(?P<text>.*?)^```\n"
    r"|^!\[(?P<alt>[^]]*)\]\((?P<picture>[^)]*)\)\n",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"`([\w.-]+\.py)`")
_PICTURE = "../pictures/tutorial-"


class Prose(NamedTuple):
    """Text between the other steps, as Markdown."""

    text: str


class Program(NamedTuple):
    """A program that the reader saves as a file."""

    name: str
    text: str


class Command(NamedTuple):
    """A command that the reader runs, and the output that the page shows."""

    line: str
    shown: str

    @property
    def words(self) -> list[str]:
        """The command and its arguments."""
        return shlex.split(self.line)


class Picture(NamedTuple):
    """A picture that the program or command before it has written as `name`."""

    name: str
    alt: str

    @property
    def path(self) -> Path:
        """Where the site has it."""
        return PICTURES / f"tutorial-{self.name}"


Step = Prose | Program | Command | Picture


def pages() -> list[Path]:
    """The tutorials."""
    return sorted(path for path in TUTORIALS.glob("*.md") if path.name != "index.md")


def steps(text: str) -> Iterator[Step]:
    """The steps of a tutorial, in the order of the page."""
    end = 0
    for match in _BLOCK.finditer(text):
        before = text[end : match.start()].strip()
        end = match.end()
        if before:
            yield Prose(before)
        if match["language"] == "python":
            names = _FILE.findall(before.rpartition("\n")[2])
            if len(names) != 1:
                raise ValueError(
                    f"the sentence before a program must name one file in backticks: {before[-200:]!r}"
                )
            yield Program(names[0], match["text"])
        elif match["language"]:
            yield from commands(match["text"])
        else:
            if not match["picture"].startswith(_PICTURE):
                raise ValueError(
                    f"{match['picture']}: the name of a picture in a tutorial begins with {_PICTURE}"
                )
            yield Picture(match["picture"].removeprefix(_PICTURE), match["alt"])
    if rest := text[end:].strip():
        yield Prose(rest)


def commands(text: str) -> Iterator[Command]:
    """The commands in the text of a `console` block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.replace("\\\n", "").partition("\n")
        yield Command(line, shown)


def write_pictures(page: Path, folder: Path) -> None:
    """Run a tutorial in an empty folder, and copy the pictures that it writes to docs/pictures."""
    found = list(steps(page.read_text(encoding="utf8")))
    if not any(isinstance(step, Picture) for step in found):
        return
    for step in found:
        if isinstance(step, Program):
            (folder / step.name).write_text(step.text, encoding="utf8")
        elif isinstance(step, Command):
            program, *arguments = step.words
            start = [sys.executable, "-m", "maillard"] if program == "maillard" else [sys.executable]
            done = subprocess.run([*start, *arguments], cwd=folder, stdout=subprocess.DEVNULL, check=False)
            if program != "maillard":  # which fails where the page shows an error
                done.check_returncode()
        elif isinstance(step, Picture):
            shutil.copy(folder / step.name, step.path)
