"""Logs as CSV files: a .csv file with the rows, and a .csv.json file with the metadata.

Lists are JSON. In lists of log probabilities, null means -inf (an arm that could not be chosen) and "NaN"
means unknown. Numbers have enough digits to be read back exactly. Nothing is escaped for spreadsheets, which
interpret a unit named `=1+1` as a formula.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from maillard.decisions.files.file_formats import FileFormat, WriteResult
from maillard.decisions.files.metadata import Header, iso, read_header, read_iso, write_header
from maillard.decisions.files.output_files import atomic_file, check_export_path
from maillard.decisions.files.row_codec import APPLIED, COLUMNS, REWARDS, values_of
from maillard.decisions.files.table_logs import open_table, rename_columns
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.errors import InvalidValue


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write the rows and the metadata."""
    check_export_path(_metadata_path(path), log.source)
    rows = 0
    with atomic_file(path) as rows_file, atomic_file(_metadata_path(path)) as metadata_file:
        with rows_file.open("w", newline="", encoding="utf8") as file:
            out = csv.writer(file)
            out.writerow(COLUMNS)
            for rows, row in enumerate(log.rows(), 1):  # noqa: B007  # used after the loop
                values = zip(COLUMNS.values(), values_of(log, row), strict=True)
                out.writerow(["" if value is None else _WRITE[kind](value) for kind, value in values])
        metadata_file.write_text(write_header(log, rows=rows), encoding="utf8")
        path.unlink(missing_ok=True)  # never leave old rows next to new metadata
    return WriteResult(rows, 0)


def open_file(path: Path, experiment: str | None, columns: Mapping[str, str] | None = None) -> DecisionLog:
    """Open the log in a file; without a metadata file it is a foreign log."""
    metadata = _metadata_path(path)
    header = _read_metadata(metadata) if metadata.is_file() and not columns else None
    names = next(_lines(path), [])
    if len(set(names)) < len(names):
        raise InvalidValue(f"{path}: columns", names, "each column once")

    names = rename_columns(names, columns, str(path))

    def records() -> Iterator[Mapping[str, Any]]:
        return _records(path, names, None if header is None else header.rows)

    return open_table(records, names, header, str(path), experiment)


def _read_metadata(path: Path) -> Header:
    try:
        return read_header(path.read_bytes(), str(path))
    except OSError as error:
        raise InvalidValue("log", str(path), f"a readable file ({error.strerror})") from None


def _metadata_path(path: Path) -> Path:
    """Return the path of the metadata file."""
    return path.with_name(path.name + ".json")


def _lines(path: Path) -> Iterator[list[str]]:
    csv.field_size_limit(2**31 - 1)  # the default, 128 KiB, is too small for thousands of arms
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from csv.reader(file, strict=True)
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise InvalidValue("log", str(path), f"a CSV file in UTF-8 ({error})") from None


def _records(path: Path, names: Sequence[str], rows: int | None) -> Iterator[Mapping[str, Any]]:
    lines = _lines(path)
    next(lines, [])
    places = [(place, name, _READ[COLUMNS[name]]) for place, name in enumerate(names) if name in COLUMNS]
    count = 0
    for count, line in enumerate(lines, 1):
        if len(line) != len(names):
            raise InvalidValue(f"{path}, row {count}", len(line), f"{len(names)} cells")
        values: dict[str, Any] = {}
        for place, name, read in places:
            try:
                values[name] = read(line[place]) if line[place] else None
            except MALFORMED:
                allowed = f"a value of type {COLUMNS[name]}"
                raise InvalidValue(f"{path}, row {count}: {name}", line[place], allowed) from None
        yield values
    if rows is not None and count != rows:
        raise InvalidValue(f"{path}: rows", count, f"{rows}, the number in the metadata")


# Conversion of each column type to and from text.


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@lru_cache(maxsize=256)
def _write_names(names: tuple[str, ...]) -> str:
    return _json(names)


def _write_logs(logs: tuple[float, ...]) -> str:
    return _json([None if log == -math.inf else "NaN" if math.isnan(log) else log for log in logs])


def _read_logs(value: str) -> list[float]:
    logs = json.loads(value, parse_int=float)
    return [-math.inf if log is None else math.nan if log == "NaN" else log for log in logs]


def _write_structs(columns: Mapping[str, str]) -> Callable[[list[dict[str, Any]]], str]:
    times = [name for name, kind in columns.items() if kind == "time"]
    return lambda rows: _json([row | {name: iso(row[name]) for name in times} for row in rows])


def _read_structs(columns: Mapping[str, str]) -> Callable[[str], list[dict[str, Any]]]:
    def read(value: str) -> list[dict[str, Any]]:
        return [
            {name: _struct_value(row[name], kind) for name, kind in columns.items()}
            for row in json.loads(value)
        ]

    return read


def _struct_value(value: Any, kind: str) -> Any:
    if kind == "time":
        return read_iso(value, "time")
    return float(value) if kind == "float" and value is not None else value


_WRITE: dict[str, Callable[[Any], str]] = {
    "string": str,
    "integer": str,
    "float": repr,
    "boolean": lambda value: "true" if value else "false",
    "time": iso,
    "strings": _write_names,
    "floats": _write_logs,
    "rewards": _write_structs(REWARDS),
    "applied": _write_structs(APPLIED),
}
_READ: dict[str, Callable[[str], Any]] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": lambda value: {"true": True, "false": False}[value.lower()],
    "time": lambda value: read_iso(value, "time"),
    "strings": json.loads,
    "floats": _read_logs,
    "rewards": _read_structs(REWARDS),
    "applied": _read_structs(APPLIED),
}

FORMAT = FileFormat("csv", (".csv",), write, open_file, renames_columns=True)
