"""Rewards from pandas, polars, Arrow or mappings. No library is imported to recognize its data frames."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from maillard.errors import InvalidValue, UnknownName

_REQUIRED = ("decision", "value")
_REWARD_COLUMNS = (*_REQUIRED, "at", "event")
_TABLE_CLASSES = {"pandas": "DataFrame", "polars": "DataFrame LazyFrame", "pyarrow": "Table RecordBatch"}


def library_of(table: object) -> str | None:
    """Return the library of a data frame or table: "pandas", "polars", "pyarrow" or None."""
    for cls in type(table).__mro__:
        library = cls.__module__.partition(".")[0]
        if cls.__name__ in _TABLE_CLASSES.get(library, "").split():
            return library
    return None


def records_of(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield rewards from a data frame, a table or an iterable of mappings.

    Each has `decision`, `value` and optionally `at` and `event`. Missing values (None, NaN, NaT) of `at`
    and `event` are omitted.

    >>> list(records_of([{"decision": "a", "value": 1, "at": float("nan")}]))
    [{'decision': 'a', 'value': 1}]
    """
    for place, row in enumerate(_mappings(rows)):
        if not isinstance(row, Mapping):
            raise InvalidValue(f"rows[{place}]", row, "a mapping with decision and value")
        for name in row:
            if name not in _REWARD_COLUMNS:
                raise UnknownName(f"rows[{place}]: column", str(name), _REWARD_COLUMNS)
        values = {name: _plain(value) for name, value in row.items()}
        yield {name: value for name, value in values.items() if value is not None or name in _REQUIRED}


def _mappings(rows: Any) -> Iterable[Any]:
    match library_of(rows):
        case "pandas":
            if not rows.columns.is_unique:
                raise InvalidValue("rows: columns", list(rows.columns), "each column once")
            return rows.to_dict("records")  # type: ignore[no-any-return]
        case "polars":
            frame = rows.collect() if type(rows).__name__ == "LazyFrame" else rows
            return frame.iter_rows(named=True)  # type: ignore[no-any-return]
        case "pyarrow":
            batches = [rows] if type(rows).__name__ == "RecordBatch" else rows.to_batches()
            return (row for batch in batches for row in batch.to_pylist())
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidValue("rows", rows, "a data frame, table or list of mappings with decision and value")
    return rows


def _plain(value: Any) -> Any:
    """Convert a value to a plain Python object; None if it is missing."""
    np = sys.modules.get("numpy")  # without it, there are no values of its types
    if np is not None and isinstance(value, np.datetime64):
        return None if np.isnat(value) else value.astype("datetime64[us]").item()
    if np is not None and isinstance(value, np.generic):
        value = value.item()
    is_nan = isinstance(value, float) and math.isnan(value)
    if value is None or is_nan or type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, datetime) and type(value) is not datetime and hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)  # drops nanoseconds: the log stores microseconds
    return value
