"""Columns of SQLite tables as arrays, without a Python object for each value.

SQLite joins the values of a column into one text (`group_concat`), in one step without the interpreter lock.
Parsing the text takes a fraction of the time that making objects takes. Floats are fetched as objects,
because SQLite's texts of floats are not exact.

The tables must be STRICT, so that the types of the values are known. Values are checked as in `bulk_columns`:
`OddRows` means that the rows must be read one by one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.decisions.events import UPDATE_KINDS
from maillard.decisions.stores.bulk_columns import WHOLE_RANGES, Arrays, OddRows, columns_of_rows
from maillard.decisions.stores.schema import MIGRATIONS

_NUL = "char(0)"  # no name contains it
_ID_SIZE = 36
_FLOATS = {"real", "real?", "log"}
_ONLY_CHECKED = {"empty", "null", "bytes?"}
_ALL_NULL = {"real?": np.nan, "text?": None}
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
    connection: sqlite3.Connection,
    types: Mapping[str, str],
    source: str,
    parameters: Sequence[Any],
    order: str,
) -> Arrays:
    """Return columns of the rows that a query finds. `source` follows FROM.

    Names may be expressions. The types are those of `bulk_columns`, and "id" for ids, as bytes. Columns of
    type "bytes" are joined: one array of all bytes. Those of types "empty", "null" and "bytes?" are only
    checked. The rows are in the order in which SQLite reads them, which should be `order`: the caller must
    check that.
    """

    def fetch(terms: Iterable[str]) -> Any:
        sql = f"SELECT {', '.join(terms)} FROM {source}"
        (found,) = connection.execute(sql, parameters).fetchall()
        return found

    n, *found = fetch(["count(*)", *(_term(name, kind) for name, kind in types.items())])
    if n == 0:
        kept = {name: kind for name, kind in types.items() if kind not in _ONLY_CHECKED}
        return {name: np.zeros(0, _DTYPES.get(kind, np.int64)) for name, kind in kept.items()}
    packed = dict(zip(types, found, strict=True))
    columns: Arrays = {}
    # Of these, the query has counted the values that are not NULL. Often, there are none.
    floats = {name: kind for name, kind in types.items() if kind in _FLOATS and packed[name]}
    if floats:
        sql = f"SELECT {', '.join(floats)} FROM {source} ORDER BY {order}"
        columns = columns_of_rows(connection.execute(sql, parameters).fetchall(), floats)
    texts = [name for name, kind in types.items() if kind == "text?" and packed[name]]
    if texts:
        terms = [f"group_concat(coalesce({name}, ''), {_NUL})" for name in texts]
        found = fetch([*terms, *(f"coalesce(sum({name} = ''), 0)" for name in texts)])
        if any(found[len(texts) :]):
            raise OddRows("a text is empty")
        columns |= {name: _texts(each, n, optional=True) for name, each in zip(texts, found, strict=False)}
    for name, kind in types.items():
        if name not in columns and (values := _unpacked(packed[name], kind, n)) is not None:
            columns[name] = values
    if any(each.size != n for name, each in columns.items() if types[name] != "bytes"):
        raise OddRows("a value is NULL")
    return columns


def _term(name: str, kind: str) -> str:
    """Return what a query returns of a column; whole numbers are separated by commas."""
    return _TERMS.get(kind, "group_concat({0})").format(name)


_TERMS = {
    "id": f"group_concat({{0}}, {_NUL})",
    "text": f"group_concat({{0}}, {_NUL})",
    "name": f"group_concat({{0}}, {_NUL})",
    "kind": f"group_concat({{0}}, {_NUL})",
    "text?": "count({0})",
    "bytes": "CAST(group_concat({0}, '') AS BLOB)",
    "bytes?": "0",
    "empty": "sum({0} <> '') + sum({0} IS NULL)",
    "null": "count({0})",
    **dict.fromkeys(_FLOATS, "count({0})"),
}
_DTYPES: Mapping[str, Any] = {
    "id": f"S{_ID_SIZE}", "text": object, "name": object, "text?": object, "bytes": np.uint8,
    **dict.fromkeys(_FLOATS, np.float64),
}  # fmt: skip


def _unpacked(packed: Any, kind: str, n: int) -> NDArray[Any] | None:
    """Return the n values of a column; None if the column is only checked."""
    if kind in _ONLY_CHECKED:
        if packed != 0:
            raise OddRows("a column that should be empty is not")
        return None
    if kind in _ALL_NULL:
        return np.full(n, _ALL_NULL[kind])
    if packed is None or kind in _FLOATS:
        raise OddRows("a value is NULL")
    if kind in WHOLE_RANGES:
        return _whole(packed, n, *WHOLE_RANGES[kind])
    return _UNPACK[kind](packed, n)


def _whole(packed: str, n: int, low: int, high: int) -> NDArray[Any]:
    found = np.fromstring(packed, np.int64, sep=",")
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


def _texts(packed: str, n: int, *, optional: bool = False) -> NDArray[Any]:
    values: list[Any] = packed.split("\0")
    if len(values) != n:
        raise OddRows("a text contains NUL, or is NULL")
    if optional:
        values = [each or None for each in values]
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


_UNPACK: Mapping[str, Callable[[Any, int], NDArray[Any]]] = {
    "id": _ids,
    "text": _texts,
    "name": _texts,
    "kind": _kinds,
    "bytes": lambda packed, _: np.frombuffer(packed, np.uint8),
}
