"""The functions of the SQLite library that Python's sqlite3 module uses, for compiled code.

It must be the same library: two copies of SQLite in a process drop each other's file locks. In a build of
Python that hides the functions, there is none.
"""

from __future__ import annotations

import ctypes
import sqlite3
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

from maillard.decisions.stores.bulk_columns import OddRows

_TRANSIENT = c_void_p(-1)  # SQLite copies the text
_ENTRY_POINT = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
_CALLED_BY_COMPILED_CODE = (
    "sqlite3_step", "sqlite3_column_value", "sqlite3_value_type", "sqlite3_value_int64",
    "sqlite3_value_double", "sqlite3_value_blob", "sqlite3_value_bytes", "sqlite3_db_mutex",
    "sqlite3_mutex_enter", "sqlite3_mutex_leave",
)  # fmt: skip
_SIGNATURES: dict[str, list[Any]] = {
    "sqlite3_prepare_v2": [c_void_p, c_char_p, c_int, POINTER(c_void_p), c_void_p],
    "sqlite3_bind_int64": [c_void_p, c_int, c_int64],
    "sqlite3_bind_text": [c_void_p, c_int, c_char_p, c_int, c_void_p],
    "sqlite3_finalize": [c_void_p],
    "sqlite3_auto_extension": [_ENTRY_POINT],
    "sqlite3_cancel_auto_extension": [_ENTRY_POINT],
}


@cache
def library() -> ctypes.CDLL | None:
    """The library; None if it cannot be called."""
    try:
        import _sqlite3

        found = ctypes.CDLL(_sqlite3.__file__)
        for name, arguments in _SIGNATURES.items():
            getattr(found, name).argtypes = arguments
        for name in _CALLED_BY_COMPILED_CODE:
            getattr(found, name)
    except (ImportError, OSError, AttributeError, TypeError):
        return None
    supported = sys.implementation.name == "cpython" and ctypes.sizeof(c_void_p) == ctypes.sizeof(c_int64)
    return found if supported and _handles_are_known(found) else None


def addresses() -> dict[str, int]:
    """The addresses of the functions that compiled code calls."""
    found = library()
    assert found is not None
    return {name: ctypes.cast(getattr(found, name), c_void_p).value or 0 for name in _CALLED_BY_COMPILED_CODE}


def handle_of(connection: sqlite3.Connection) -> int:
    """The `sqlite3 *` of an open connection: the first field of the object. See `_handles_are_known`."""
    return c_void_p.from_address(id(connection) + object.__basicsize__).value or 0


def _handles_are_known(found: ctypes.CDLL) -> bool:
    """Whether `handle_of` returns the handle of a new connection that SQLite passes to its extensions."""
    opened: list[int] = []
    thread = threading.get_ident()

    def note(handle: int, *_: object) -> int:
        if threading.get_ident() == thread:  # connections of other threads may be opened meanwhile
            opened.append(handle)
        return 0

    entry = _ENTRY_POINT(note)
    if found.sqlite3_auto_extension(entry):
        return False
    try:
        connection = sqlite3.connect(":memory:")
    finally:
        found.sqlite3_cancel_auto_extension(entry)
    try:
        return type(connection) is sqlite3.Connection and opened == [handle_of(connection)]
    finally:
        connection.close()


class Statement:
    """A prepared statement with its parameters, for compiled code. It ends with the block."""

    def __init__(self, connection: sqlite3.Connection, sql: str, parameters: Any) -> None:
        found = library()
        if found is None or type(connection) is not sqlite3.Connection:
            raise OddRows("the library cannot be called")
        self._library, self.connection = found, handle_of(connection)
        if not self.connection:
            raise OddRows("the connection is closed")
        statement = c_void_p()
        code = found.sqlite3_prepare_v2(self.connection, sql.encode(), -1, byref(statement), None)
        self.address = statement.value or 0
        try:
            for place, value in enumerate(parameters, 1):
                code = code or self._bind(place, value)
        except BaseException:
            self.close()
            raise
        if code or not self.address:
            self.close()
            raise OddRows(f"SQLite cannot run the statement (error {code})")

    def _bind(self, place: int, value: int | str) -> int:
        if isinstance(value, int):
            return int(self._library.sqlite3_bind_int64(self.address, place, value))
        data = value.encode()
        return int(self._library.sqlite3_bind_text(self.address, place, data, len(data), _TRANSIENT))

    def close(self) -> None:
        """End the statement."""
        self._library.sqlite3_finalize(self.address)
        self.address = 0

    def __enter__(self) -> Statement:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
