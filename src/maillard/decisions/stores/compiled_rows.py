"""Compiled loops that copy the rows of a SQLite statement into arrays, without an object for each value.

These functions call SQLite, and take pointers instead of arrays: they become machine code that needs neither
Python nor numba (see `machine_code`). The type and the length of every value are checked before it is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types

from maillard.decisions.stores.row_codes import (
    AT_ROW,
    BYTES,
    EMPTY,
    FAILED,
    FINISHED,
    ID,
    NAME,
    NO_ROOM,
    NO_WORDS,
    NOT_ASCII,
    NOTHING,
    ODD,
    REAL,
    ROWS,
    SYMBOL,
    TEXT,
    UUID,
    WHOLE,
    WORDS,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_I8, _F8 = types.int64, types.float64
_INTS, _FLOATS, _DATA = types.CPointer(_I8), types.CPointer(_F8), types.CPointer(types.uint8)
_step, _value, _type, _whole, _double, _blob, _bytes, _db_mutex, _enter, _leave = (
    types.ExternalFunction(SYMBOL.format(name), signature)
    for name, signature in {
        "step": types.int32(_I8),
        "column_value": _I8(_I8, types.int32),
        "value_type": types.int32(_I8),
        "value_int64": _I8(_I8),
        "value_double": _F8(_I8),
        "value_blob": _DATA(_I8),
        "value_bytes": types.int32(_I8),
        "db_mutex": _I8(_I8),
        "mutex_enter": types.void(_I8),
        "mutex_leave": types.void(_I8),
    }.items()
)
_ROW, _DONE = 100, 101  # results of sqlite3_step
_INTEGER, _FLOAT, _STRING, _BLOB, _NULL = range(1, 6)  # types of values


def _inlined(function: _Function) -> _Function:
    return cast("_Function", numba.njit(error_model="numpy")(function))


@_inlined
def _code_of(text: Any, size: int, names: Any, ends: Any, table: Any, state: Any, room: Any) -> Any:
    """Return the code of a name, which is added if it is new; -1 if there is no room for it.

    Name i is `names[ends[i] : ends[i + 1]]`. The hash table has i + 1. `room` has the sizes of `names`,
    `ends` and `table`, of which the last is a power of two.
    """
    mask = room[2] - 1
    hashed = np.uint64(14695981039346656037)
    for i in range(size):
        hashed = (hashed ^ np.uint64(text[i])) * np.uint64(1099511628211)
    place = np.int64((hashed ^ (hashed >> np.uint64(29))) & np.uint64(mask))
    while table[place]:
        code = table[place] - 1
        start = ends[code]
        if ends[code + 1] - start == size:
            same = True
            for i in range(size):
                if names[start + i] != text[i]:
                    same = False
                    break
            if same:
                return code
        place = (place + 1) & mask
    code = state[WORDS]
    start = ends[code]
    if start + size > room[0] or code + 2 > room[1] or 2 * (code + 1) > room[2]:
        return np.int64(-1)
    for i in range(size):
        names[start + i] = text[i]
    ends[code + 1] = start + size
    table[place] = code + 1
    state[WORDS] = code + 1
    return code


@_inlined
def _copy_hex(text: Any, first: int, data: Any, start: int, size: int) -> Any:
    """Copy some bytes that are written as digits; return 0 if all digits are valid. It has no branches."""
    odd = np.int64(0)
    for i in range(size):
        high, low = np.int64(text[first + 2 * i]), np.int64(text[first + 2 * i + 1])
        for letter in (high, low):
            is_digit = np.int64(letter >= 48) & np.int64(letter <= 57)
            odd |= 1 ^ (is_digit | (np.int64(letter >= 97) & np.int64(letter <= 102)))
        # The codes of a to f are 97 to 102, and those of digits are below 64.
        byte = 16 * ((high & 15) + 9 * (high >> 6)) + (low & 15) + 9 * (low >> 6)
        data[start + i] = np.uint8(byte & 255)
    return odd


@_inlined
def _copy_uuid(text: Any, data: Any, start: int) -> Any:
    """Copy the 16 bytes of an id; False if it does not have the form that `chain.id_text` writes."""
    if text[8] != 45 or text[13] != 45 or text[18] != 45 or text[23] != 45:
        return False
    odd = _copy_hex(text, 0, data, start, 4) | _copy_hex(text, 9, data, start + 4, 2)
    odd |= _copy_hex(text, 14, data, start + 6, 2) | _copy_hex(text, 19, data, start + 8, 2)
    return (odd | _copy_hex(text, 24, data, start + 10, 6)) == 0


@_inlined
def _distance(statement: int, columns: int) -> Any:
    """Return the distance in memory between the values of a row; 0 if it is not the same for all."""
    if columns < 2:
        return np.int64(0)
    first = _value(statement, np.int32(0))
    found = _value(statement, np.int32(1)) - first
    for column in range(2, columns):
        if _value(statement, np.int32(column)) != first + column * found:
            return np.int64(0)
    return found


@_inlined
def _copy_row(
    statement: int, distance: int, columns: int, capacity: int, width: int, plan: Any, limits: Any,
    cells: Any, reals: Any, data: Any, used: Any, names: Any, ends: Any, table: Any, room: Any, state: Any,
) -> int:  # fmt: skip
    """Copy the current row of a statement. `distance` is the one between its values, or 0."""
    row = state[ROWS]
    first_value = _value(statement, np.int32(0))
    for column in range(columns):
        kind, optional, slot = plan[5 * column], plan[5 * column + 1], plan[5 * column + 2]
        low, high = plan[5 * column + 3], plan[5 * column + 4]
        cell = column * capacity + row
        # SQLite keeps the values of a row in an array. To ask for each takes longer than to copy it.
        value = first_value + column * distance if distance else _value(statement, np.int32(column))
        found = _type(value)
        if found == _NULL:
            if not optional:
                return ODD
            if kind == REAL:
                reals[cell] = np.nan
            elif kind == NAME:
                cells[cell] = -1
            elif kind == ID or kind == UUID:
                for i in range(high):
                    data[slot * width + row * high + i] = np.uint8(0)
            elif kind != NOTHING:
                cells[cell] = -1 - used[slot]
            continue
        if kind == WHOLE:
            if found != _INTEGER:
                return ODD
            whole = _whole(value)
            if whole < low or whole > high:
                return ODD
            cells[cell] = whole
            continue
        if kind == REAL:
            if found != _FLOAT:
                return ODD
            real = _double(value)
            if not (limits[2 * column] <= real <= limits[2 * column + 1]):
                return ODD
            reals[cell] = real
            continue
        if found != (_BLOB if kind == BYTES else _STRING):
            return ODD
        size = int(_bytes(value))
        if kind == EMPTY:
            if size:
                return ODD
            continue
        text = _blob(value)  # in a database of UTF-8, this changes neither the value nor its length
        if kind == TEXT or kind == BYTES:
            start = used[slot]
            if start + size > width:
                return NO_ROOM
            bits = np.uint8(0)
            for i in range(size):
                data[slot * width + start + i] = text[i]
                bits |= text[i]
            if kind == TEXT and bits > 127:
                state[NOT_ASCII] = 1
            used[slot] = start + size
            cells[cell] = start + size
        elif kind == NAME:
            code = _code_of(text, size, names, ends, table, state, room)
            if code < 0:
                return NO_WORDS
            cells[cell] = code
        elif kind == ID or kind == UUID:
            if size != 36:
                return ODD
            if (row + 1) * high > width:
                return NO_ROOM
            start = slot * width + row * high
            if kind == UUID:
                if not _copy_uuid(text, data, start):
                    return ODD
                continue
            odd = False
            for i in range(36):
                data[start + i] = text[i]
                odd |= text[i] == 0 or text[i] > 127
            if odd:
                return ODD
        else:
            return ODD
    return FINISHED


def copy_rows(
    connection: int, statement: int, columns: int, capacity: int, slots: int, width: int, plan: Any,
    limits: Any, cells: Any, reals: Any, data: Any, used: Any, before: Any, names: Any, ends: Any, table: Any,
    room: Any, state: Any,
) -> int:  # fmt: skip
    """Copy rows until there are no more, or there is no room for another one, or one is odd.

    `plan` has for each column how it is copied, whether it may be NULL, its row in `data`, and the range of
    its integers or, as the last element, the bytes of its ids. `limits` has the range of its floats.
    Integers, floats and codes of names are in `cells`, and `reals` is the same memory as floats. For other
    columns, `cells` has where the value ends in `data`: -1 - end for NULL.
    """
    mutex = _db_mutex(connection)
    _enter(mutex)  # the lock is recursive, so the functions below do not wait for it
    result, distance = NO_ROOM, -1
    while state[ROWS] < capacity:
        if not state[AT_ROW]:
            found = _step(statement)
            if found != _ROW:
                result = FINISHED if found == _DONE else FAILED
                break
            state[AT_ROW] = 1
        if distance < 0:
            distance = max(_distance(statement, columns), 0)
        for slot in range(slots):
            before[slot] = used[slot]
        copied = _copy_row(
            statement, distance, columns, capacity, width, plan, limits, cells, reals, data, used, names,
            ends, table, room, state,
        )  # fmt: skip
        if copied != FINISHED:
            for slot in range(slots):
                used[slot] = before[slot]
            result = copied
            break
        state[AT_ROW] = 0
        state[ROWS] += 1
    _leave(mutex)
    return result


@_inlined
def _compare(one: Any, start: int, other: Any, begin: int, size: int) -> int:
    for i in range(size):
        if one[start + i] != other[begin + i]:
            return -1 if one[start + i] < other[begin + i] else 1
    return 0


def find_keys(size: int, wanted: Any, count: int, among: Any, others: int, places: Any) -> int:
    """Write where each wanted key is among others, which are sorted; -1 if it is not there.

    Returns 0 unless the others are sorted, each once.
    """
    for i in range(1, others):
        if _compare(among, (i - 1) * size, among, i * size, size) >= 0:
            return 0
    last = 0
    for i in range(count):
        low, high, found = 0, others, -1
        for place in range(last, min(last + 2, others)):  # usually, it is the last one or the next
            if _compare(among, place * size, wanted, i * size, size) == 0:
                found = place
                break
        while found < 0 and low < high:
            middle = (low + high) // 2
            order = _compare(among, middle * size, wanted, i * size, size)
            if order == 0:
                found = middle
            elif order < 0:
                low = middle + 1
            else:
                high = middle
        places[i] = found
        if found >= 0:
            last = found
    return 1


SIGNATURES = {
    copy_rows: _I8(*[_I8] * 6, _INTS, _FLOATS, _INTS, _FLOATS, _DATA, _INTS, _INTS, _DATA, *[_INTS] * 4),
    find_keys: _I8(_I8, _DATA, _I8, _DATA, _I8, _INTS),
}
