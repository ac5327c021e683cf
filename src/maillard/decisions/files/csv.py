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

from maillard.decisions.files.file_formats import WriteResult
from maillard.decisions.files.metadata import FROM_JSON, TO_JSON, iso, read_header, read_iso, write_header
from maillard.decisions.files.output_files import atomic_file, check_export_path
from maillard.decisions.files.row_codec import (
    APPLIED,
    COLUMNS,
    CONTEXT,
    REWARDS,
    convert_values,
    fields_of,
    values_of,
)
from maillard.decisions.files.table_logs import (
    Table,
    context_columns,
    number_column,
    open_table,
    rename_columns,
)
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.errors import InvalidValue


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write the rows and the metadata."""
    check_export_path(_metadata_path(path), log.source)
    rows, writers = 0, [_CONVERSIONS[kind][0] for kind in COLUMNS.values()]
    with atomic_file(path) as rows_file, atomic_file(_metadata_path(path)) as metadata_file:
        with rows_file.open("w", newline="", encoding="utf8") as file:
            out = csv.writer(file)
            out.writerow(COLUMNS)
            for rows, row in enumerate(log.rows(), 1):  # noqa: B007  # used after the loop
                values = zip(writers, values_of(log, row), strict=True)
                out.writerow(["" if value is None else to_text(value) for to_text, value in values])
        metadata_file.write_text(write_header(log, rows=rows), encoding="utf8")
        path.unlink(missing_ok=True)  # never leave old rows next to new metadata
    return WriteResult(rows, 0)


def open_file(path: Path, experiment: str | None, columns: Mapping[str, str] | None = None) -> DecisionLog:
    """Open the log in a file; without a metadata file it is a foreign log."""
    metadata, header = _metadata_path(path), None
    if metadata.is_file() and not any(isinstance(each, str) for each in (columns or {}).values()):
        try:
            header = read_header(metadata.read_bytes(), str(metadata))
        except OSError as error:
            raise InvalidValue("log", str(metadata), f"a readable file ({error.strerror})") from None
    lines = _lines(path)
    titles = next(lines, [])
    _check_separator(titles, str(path))
    names, first = rename_columns(titles, columns, str(path)), next(lines, [])
    number = number_column([name for name, cell in zip(names, first, strict=False) if cell.isdecimal()])
    count = None if header is None else header.rows
    context = context_columns(names, columns, str(path))
    keys = (CONTEXT,) if CONTEXT in names else context

    def records() -> Iterator[Mapping[str, Any]]:
        return _records(path, names, count, number, keys if header is None else ())

    return open_table(Table(str(path), names, records, number=number, context=context), header, experiment)


def _check_separator(header: Sequence[str], source: str) -> None:
    """Raise an error if the columns seem to be separated by something other than commas."""
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            allowed = f"commas between the columns; this file seems to have {name}, so convert it first"
            raise InvalidValue(f"{source}: header", header[0], allowed)


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


def _records(
    path: Path, names: Sequence[str], rows: int | None, number: str | None, context: Sequence[str] = ()
) -> Iterator[Mapping[str, Any]]:
    lines = _lines(path)
    next(lines, [])
    known = [(place, name) for place, name in enumerate(names) if name in COLUMNS or name == number]
    places = [(place, name, _CONVERSIONS[COLUMNS.get(name, "string")][1]) for place, name in known]
    keys = [(names.index(name), name) for name in context]
    count = 0
    for count, line in enumerate(lines, 1):
        if len(line) != len(names):
            raise InvalidValue(f"{path}, row {count}", len(line), f"{len(names)} cells")
        values: dict[str, Any] = {}
        for place, name, read in places:
            try:
                values[name] = read(line[place]) if line[place] else None
            except MALFORMED:
                kind = COLUMNS[name]
                allowed = _ALLOWED.get(kind, f"a value of type {kind}")
                raise InvalidValue(f"{path}, row {count}: {name}", line[place], allowed) from None
        if context == (CONTEXT,):
            values[CONTEXT] = line[keys[0][0]] or None
        elif keys:
            values[CONTEXT] = _json({name: _cell(line[place]) for place, name in keys})
        yield values
    if rows is not None and count != rows:
        raise InvalidValue(f"{path}: rows", count, f"{rows}, the number in the metadata")


def _cell(text: str) -> str | float | bool | None:
    """Return a cell of a column without a declared type: a number, a flag, text, or None if it is empty."""
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text or None
    return number if math.isfinite(number) else text


# Conversion of each column type to and from text.


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _write_logs(logs: tuple[float, ...]) -> str:
    return _json([None if log == -math.inf else "NaN" if math.isnan(log) else log for log in logs])


def _read_logs(value: str) -> list[float]:
    logs = json.loads(value, parse_int=float)
    return [-math.inf if log is None else math.nan if log == "NaN" else log for log in logs]


def _write_structs(types: Mapping[str, str]) -> Callable[[list[dict[str, Any]]], str]:
    fields = fields_of(TO_JSON, types)
    return lambda rows: _json([convert_values(fields, row) for row in rows])


def _read_structs(types: Mapping[str, str]) -> Callable[[str], list[dict[str, Any]]]:
    fields = fields_of(FROM_JSON, types)
    return lambda value: [convert_values(fields, row) for row in json.loads(value)]


_TRUTH = {"true": True, "false": False}
_ALLOWED = {
    "strings": 'a list of names, such as ["red", "blue"]',
    "floats": "a list of log probabilities, one for each eligible arm, such as [-0.22, -1.61]",
    "float": "a number",
    "integer": "a whole number",
    "time": "a time such as 2026-03-01 12:00:00 (UTC) or 2026-03-01T12:00:00+01:00",
}
_CONVERSIONS: dict[str, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    **dict.fromkeys(("string", "text", "encoded"), (str, str)),
    "version": (str, int),
    "integer": (str, int),
    "float": (repr, float),
    "boolean": (_json, lambda value: _TRUTH[value.lower()]),
    "time": (iso, lambda value: read_iso(value, "time")),
    "strings": (lru_cache(maxsize=256)(_json), json.loads),
    "floats": (_write_logs, _read_logs),
    "rewards": (_write_structs(REWARDS), _read_structs(REWARDS)),
    "applied": (_write_structs(APPLIED), _read_structs(APPLIED)),
}
