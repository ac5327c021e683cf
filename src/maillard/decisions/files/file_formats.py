"""The registry of file formats for logs.

A format is a module of this package with a constant `FORMAT`. To add a format, add such a module.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from maillard.decisions.log_locations import redact
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from maillard.decisions.log import DecisionLog


class WriteResult(NamedTuple):
    """The number of decisions that were written to a file."""

    rows: int
    left_out: int
    "Decisions without a reward, where the format cannot represent them."


@dataclass(frozen=True)
class FileFormat:
    """A file format: its name, the endings that select it, and its functions to write and open files."""

    name: str
    endings: tuple[str, ...]
    write: Callable[[DecisionLog, Path], WriteResult]
    open: Callable[[Path, str | None, Mapping[str, str] | None], DecisionLog]
    "Takes the path, the experiment or None, and the caller's column names (see `read_log`)."
    renames_columns: bool = False
    "Whether `open` accepts column names."


@cache
def file_formats() -> dict[str, FileFormat]:
    """All formats by name."""
    package = __name__.rpartition(".")[0]
    paths = importlib.import_module(package).__path__
    modules = [
        importlib.import_module(f"{package}.{module.name}")
        for module in pkgutil.iter_modules(paths)
        if module.name != __name__.rpartition(".")[2]
    ]
    formats = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {each.name: each for each in formats}


def file_endings() -> tuple[str, ...]:
    """The file endings of all formats."""
    return tuple(ending for each in file_formats().values() for ending in each.endings)


def format_of(path: Path) -> FileFormat | None:
    """Return the format that a file's ending selects; None for other endings, such as .db."""
    for each in file_formats().values():
        if path.suffix.lower() in each.endings:
            return each
    return None


def format_to_write(path: Path, name: str | None = None) -> FileFormat:
    """Return the named format, or the one that the file's ending selects."""
    if name is not None:
        if name not in file_formats():
            raise InvalidValue("format", name, "one of " + ", ".join(file_formats()))
        return file_formats()[name]
    found = format_of(path)
    if found is None:
        raise InvalidValue("file", redact(path), f"a name that ends in {', '.join(file_endings())}")
    return found
