"""Columns of SQLite tables as arrays, without a Python object for each value.

SQLite joins the values of a column into one text (`group_concat`), in one step that holds no interpreter lock.
Parsing the text takes a fraction of the time that a row of objects takes. Floats are fetched as objects: SQLite's
texts of floats are not exact.

The tables must be STRICT, so that the types of the values are known. Values are checked as in `bulk_columns`:
`OddRows` means that the rows must be read one by one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.decisions.events import UPDATE_KINDS
from maillard.decisions.stores.bulk_columns import WHOLE_RANGES, Arrays, OddRows, columns_of_rows
from maillard.decisions.stores.schema import MIGRATIONS

_NUL = "char(0)"  # no name contains it
_ID_SIZE = 36
_FLOATS = {"real", "real?", "log"}
_TABLES = ("decisions", "rewards", "events", "vectors", "arm_lists")


def check_tables(connection: sqlite3.Connection) -> None:
    """Raise OddRows unless the tables are STRICT and have the current version."""
    if connection.execute("PRAGMA user_version").fetchall() != [(len(MIGRATIONS),)]:
        raise OddRows("the tables have another version")
    if connection.execute("PRAGMA encoding").fetchall() != [("UTF-8",)]:
        raise OddRows("the texts have another encoding")
    found = connection.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND strict = 1")
    if not {name for (name,) in found.fetchall()}.issuperset(_TABLES):
        raise OddRows("the tables are not STRICT")


def packed_columns(
    connection: sqlite3.Connection, types: Mapping[str, str], source: str, parameters: Sequence[Any]
) -> Arrays:
    """Return columns of the rows that a query finds. `source` follows FROM, and includes the order.

    The types are those of `bulk_columns`, and "id": ids as bytes. The columns of types "empty", "null" and
    "bytes?" are checked, but not returned.
    """
    rows = f"(SELECT {', '.join(types)} FROM {source})"
    terms = {name: _TERMS.get(kind, "group_concat({0})").format(name) for name, kind in types.items()}
    sql = f"SELECT count(*), {', '.join(terms.values())} FROM {rows}"
    ((n, *found),) = connection.execute(sql, parameters).fetchall()
    packed = dict(zip(types, found, strict=True))
    if n == 0:
        return {name: np.zeros(0, _DTYPES.get(kind, np.int64)) for name, kind in types.items()}
    # A column of floats that are all NULL need not be read.
    floats = {name: kind for name, kind in types.items() if kind in _FLOATS and packed[name]}
    columns: Arrays = {}
    if floats:
        sql = f"SELECT {', '.join(floats)} FROM {source}"
        columns = columns_of_rows(connection.execute(sql, parameters).fetchall(), floats)
    for name, kind in types.items():
        if kind == "real?" and name not in floats:
            columns[name] = np.full(n, np.nan)
        elif kind not in _FLOATS:
            values = _unpacked(packed[name], kind, n)
            if values is not None:
                columns[name] = values
    if any(each.size != n for each in columns.values()):
        raise OddRows("a value is NULL")
    return columns


# What a query returns of each column; whole numbers are separated by commas.
_TERMS = {
    "id": f"group_concat({{0}}, {_NUL})",
    "text": f"group_concat({{0}}, {_NUL})",
    "kind": f"group_concat({{0}}, {_NUL})",
    "text?": f"group_concat(coalesce({{0}}, ''), {_NUL}) || {_NUL} || coalesce(sum({{0}} = ''), 0)",
    "bytes?": "0",
    "empty": "sum({0} <> '') + sum({0} IS NULL)",
    "null": "count({0})",
    **dict.fromkeys(_FLOATS, "count({0})"),
}
_DTYPES: Mapping[str, Any] = {
    "id": f"S{_ID_SIZE}", "text": object, "text?": object, **dict.fromkeys(_FLOATS, np.float64)
}  # fmt: skip


def _unpacked(packed: Any, kind: str, n: int) -> NDArray[Any] | None:
    """Return the n values of a column; None if the column is only checked."""
    if kind in ("empty", "null", "bytes?"):
        if packed != 0:
            raise OddRows("a column that should be empty is not")
        return None
    if not isinstance(packed, str):
        if packed is None or n > 1:
            raise OddRows("a value is NULL")
        packed = str(packed)
    if kind == "id":
        return _ids(packed, n)
    if kind in ("text", "text?"):
        return _texts(packed, kind, n)
    if kind == "kind":
        return _kinds(packed, n)
    found = np.fromstring(packed, np.int64, sep=",")
    low, high = WHOLE_RANGES[kind]
    if found.size != n or not (low <= found.min() and found.max() <= high):
        raise OddRows("an integer is missing or out of range")
    return found


def _ids(packed: str, n: int) -> NDArray[Any]:
    raw = np.frombuffer((packed + "\0").encode(), np.uint8)
    if raw.size != n * (_ID_SIZE + 1):
        raise OddRows("an id has another length")
    table = raw.reshape(n, _ID_SIZE + 1)
    if table[:, -1].any() or not table[:, :-1].all():
        raise OddRows("an id has another length")
    return np.ascontiguousarray(table[:, :-1]).view(f"S{_ID_SIZE}").ravel()


def _texts(packed: str, kind: str, n: int) -> NDArray[Any]:
    values: list[Any] = packed.split("\0")
    if kind == "text?" and values.pop() != "0":
        raise OddRows("a text is empty")
    if len(values) != n:
        raise OddRows("a text contains NUL, or is NULL")
    if kind == "text?":
        values = [None] * n if len(packed) == n + 1 else [each or None for each in values]
    found = np.empty(n, object)
    found[:] = values
    return found


def _kinds(packed: str, n: int) -> NDArray[Any]:
    for code, kind in enumerate(UPDATE_KINDS):
        if packed == "\0".join([kind] * n):
            return np.full(n, code)
    codes = {kind: code for code, kind in enumerate(UPDATE_KINDS)}
    try:
        return np.array([codes[each] for each in packed.split("\0")], np.int64)
    except KeyError:
        raise OddRows("an update has another kind") from None


def packed_bytes(
    connection: sqlite3.Connection, column: str, source: str, parameters: Sequence[Any]
) -> tuple[bytes, NDArray[np.int64]]:
    """Return the values of a column of bytes, one after the other, and their lengths."""
    joined = f"CAST(group_concat({column}, '') AS BLOB), group_concat(length({column}))"
    sql = f"SELECT {joined} FROM (SELECT {column} FROM {source})"
    ((content, lengths),) = connection.execute(sql, parameters).fetchall()
    found = np.fromstring(str(lengths or ""), np.int64, sep=",")
    if len(content or b"") != found.sum():
        raise OddRows("the values of a column have other lengths")
    return content or b"", found
