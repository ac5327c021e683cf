"""The file formats of logs. The table `FORMATS` is the only list of them.

A format is a module of this package with two functions: `write(log, path)` and
`open_file(path, experiment, columns)`. The modules are imported when they are used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from maillard.decisions.log_locations import redact
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from maillard.decisions.log import DecisionLog


class WriteResult(NamedTuple):
    """The numbers of decisions that were written to a file and that were left out."""

    rows: int
    left_out: int
    "Decisions without a reward, where the format cannot represent them."


class FileFormat(NamedTuple):
    """A file format: its name, which is the name of its module, and the endings that select it."""

    name: str
    endings: tuple[str, ...]
    renames_columns: bool = False
    "Whether `open` accepts column names."

    def write(self, log: DecisionLog, path: Path) -> WriteResult:
        """Write a log to a file."""
        result: WriteResult = importlib.import_module(f"{__package__}.{self.name}").write(log, path)
        return result

    def open(self, path: Path, experiment: str | None, columns: Mapping[str, str] | None) -> DecisionLog:
        """Open a file. `columns` are the caller's column names (see `read_log`)."""
        module = importlib.import_module(f"{__package__}.{self.name}")
        log: DecisionLog = module.open_file(path, experiment, columns)
        return log


_ALL = (
    FileFormat("parquet", (".parquet",), renames_columns=True),
    FileFormat("csv", (".csv",), renames_columns=True),
    FileFormat("obp", (".npz",)),
    FileFormat("dsjson", (".dsjson", ".jsonl", ".json")),
)
FORMATS = {each.name: each for each in _ALL}
ENDINGS = tuple(ending for each in _ALL for ending in each.endings)


def format_of(path: Path) -> FileFormat | None:
    """Return the format that a file's ending selects; None for other endings, such as .db."""
    return next((each for each in FORMATS.values() if path.suffix.lower() in each.endings), None)


def format_to_write(path: Path, name: str | None = None) -> FileFormat:
    """Return the named format, or the one that the file's ending selects."""
    if name is not None and name not in FORMATS:
        raise InvalidValue("format", name, "one of " + ", ".join(FORMATS))
    found = format_of(path) if name is None else FORMATS[name]
    if found is None:
        raise InvalidValue("file", redact(path), f"a name that ends in {', '.join(ENDINGS)}")
    return found
