"""Compiled loop that copies the rows of a SQLite statement into arrays, without an object for each value.

SQLite's functions are linked by name: numba caches machine code on disk, and their addresses differ between
processes. The type and the length of every value are checked before it is copied.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types

from maillard.decisions.stores.sqlite_library import addresses

_SIGNATURES = {
    "step": types.int32(types.int64),
    "column_value": types.int64(types.int64, types.int32),
    "value_type": types.int32(types.int64),
    "value_int64": types.int64(types.int64),
    "value_double": types.float64(types.int64),
    "value_blob": types.CPointer(types.uint8)(types.int64),
    "value_bytes": types.int32(types.int64),
    "db_mutex": types.int64(types.int64),
    "mutex_enter": types.void(types.int64),
    "mutex_leave": types.void(types.int64),
}
for _name, _address in addresses().items():
    # With a name of our own: another library may contain a copy of SQLite.
    llvm.add_symbol(f"maillard_{_name}", _address)
_step, _value, _type, _whole, _double, _blob, _bytes, _db_mutex, _enter, _leave = (
    types.ExternalFunction(f"maillard_sqlite3_{name}", signature) for name, signature in _SIGNATURES.items()
)

# How a column is copied.
WHOLE, REAL, TEXT, BYTES, NAME, ID, UUID, EMPTY, NOTHING = range(9)
FINISHED, NO_ROOM, NO_WORDS, ODD, FAILED = range(5)  # results
ROWS, AT_ROW, NOT_ASCII, WORDS = range(4)  # the elements of `state`
_ROW, _DONE = 100, 101  # results of sqlite3_step
_INTEGER, _FLOAT, _TEXT, _BLOB, _NULL = range(1, 6)  # types of values
_compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def _code_of(text: Any, words: Any, ends: Any, table: Any, state: Any) -> int:
    """Return the code of a text, which becomes a new word if it is none yet; -1 if there is no room for it.

    Word i is `words[ends[i] : ends[i + 1]]`. The hash table has i + 1.
    """
    mask = table.size - 1
    hashed = np.uint64(14695981039346656037)
    for i in range(text.size):
        hashed = (hashed ^ np.uint64(text[i])) * np.uint64(1099511628211)
    place = np.int64((hashed ^ (hashed >> np.uint64(29))) & np.uint64(mask))
    while table[place]:
        code = table[place] - 1
        start = ends[code]
        if ends[code + 1] - start == text.size:
            same = True
            for i in range(text.size):
                if words[start + i] != text[i]:
                    same = False
                    break
            if same:
                return code
        place = (place + 1) & mask
    code = state[WORDS]
    start = ends[code]
    if code + 2 > ends.size or 2 * (code + 1) > table.size or start + text.size > words.size:
        return -1
    for i in range(text.size):
        words[start + i] = text[i]
    ends[code + 1] = start + text.size
    table[place] = code + 1
    state[WORDS] = code + 1
    return code


@_compiled
def _copy_uuid(text: Any, data: Any) -> bool:
    """Copy the 16 bytes of an id; False if it does not have the form that `chain.id_text` writes."""
    place = 0
    for i in range(36):
        if i in (8, 13, 18, 23):  # noqa: PLR6201  # a tuple is compiled into comparisons
            if text[i] != 45:
                return False
            continue
        digit = text[i] - 48 if text[i] < 58 else text[i] - 87
        if text[i] < 48 or 57 < text[i] < 97 or text[i] > 102:
            return False
        if place % 2:
            data[place // 2] = data[place // 2] * 16 + digit
        else:
            data[place // 2] = digit
        place += 1
    return True


@_compiled
def _copy_row(  # noqa: PLR0911, PLR0912, PLR0917  # one function, so that it compiles into one
    statement: int, plan: Any, limits: Any, cells: Any, reals: Any, data: Any, used: Any,
    words: Any, ends: Any, table: Any, state: Any,
) -> int:  # fmt: skip
    """Copy the current row of a statement."""
    row = state[ROWS]
    for column in range(plan.shape[0]):
        kind, optional, slot, low, high = plan[column]
        value = _value(statement, column)
        found = _type(value)
        if found == _NULL:
            if not optional:
                return ODD
            if kind == REAL:
                reals[column, row] = np.nan
            elif kind == NAME:
                cells[column, row] = -1
            elif kind == ID or kind == UUID:  # noqa: PLR1714  # numba compiles this
                data[slot, row * high : (row + 1) * high] = 0
            elif kind != NOTHING:
                cells[column, row] = -1 - used[slot]
            continue
        if kind == WHOLE:
            if found != _INTEGER:
                return ODD
            whole = _whole(value)
            if whole < low or whole > high:
                return ODD
            cells[column, row] = whole
            continue
        if kind == REAL:
            if found != _FLOAT:
                return ODD
            real = _double(value)
            if not (limits[column, 0] <= real <= limits[column, 1]):
                return ODD
            reals[column, row] = real
            continue
        if found != (_BLOB if kind == BYTES else _TEXT):
            return ODD
        pointer = _blob(value)  # before the length, as SQLite requires
        size = _bytes(value)
        text = numba.carray(pointer, size)
        if kind == TEXT or kind == BYTES:  # noqa: PLR1714
            start = used[slot]
            if start + size > data.shape[1]:
                return NO_ROOM
            high_bits = np.uint8(0)
            for i in range(size):
                data[slot, start + i] = text[i]
                high_bits |= text[i]
            if kind == TEXT and high_bits > 127:
                state[NOT_ASCII] = 1
            used[slot] = start + size
            cells[column, row] = start + size
        elif kind == NAME:
            code = _code_of(text, words, ends, table, state)
            if code < 0:
                return NO_WORDS
            cells[column, row] = code
        elif kind == ID or kind == UUID:  # noqa: PLR1714
            if size != 36:
                return ODD
            if (row + 1) * high > data.shape[1]:
                return NO_ROOM
            if kind == UUID:
                if not _copy_uuid(text, data[slot, row * high :]):
                    return ODD
                continue
            odd = False
            for i in range(36):
                data[slot, row * high + i] = text[i]
                odd |= text[i] == 0 or text[i] > 127
            if odd:
                return ODD
        elif kind == NOTHING or size:
            return ODD
    return FINISHED


@_compiled
def copy_rows(  # noqa: PLR0917  # compiled functions take no keywords
    connection: int, statement: int, plan: Any, limits: Any, cells: Any, reals: Any, data: Any, used: Any,
    words: Any, ends: Any, table: Any, state: Any,
) -> int:  # fmt: skip
    """Copy rows until there are no more, or there is no room for another one, or one is odd.

    `plan` has for each column how it is copied, whether it may be NULL, its row in `data`, and the range of
    its integers or, as the last element, the bytes of its ids. `limits` has the range of its floats. Integers,
    floats and codes of names are in `cells`, and `reals` is the same memory as floats. For other columns,
    `cells` has where the value ends in `data`: -1 - end for NULL.
    """
    mutex = _db_mutex(connection)
    _enter(mutex)  # the lock is recursive, so the functions below do not wait for it
    result = NO_ROOM
    before = used.copy()
    while state[ROWS] < cells.shape[1]:
        if not state[AT_ROW]:
            found = _step(statement)
            if found != _ROW:
                result = FINISHED if found == _DONE else FAILED
                break
            state[AT_ROW] = 1
        before[:] = used
        copied = _copy_row(statement, plan, limits, cells, reals, data, used, words, ends, table, state)
        if copied != FINISHED:
            used[:] = before
            result = copied
            break
        state[AT_ROW] = 0
        state[ROWS] += 1
    _leave(mutex)
    return result


@_compiled
def fill_table(words: Any, ends: Any, table: Any, state: Any) -> None:
    """Enter all words into a new hash table."""
    count = state[WORDS]
    state[WORDS] = 0
    for code in range(count):
        _code_of(words[ends[code] : ends[code + 1]], words, ends, table, state)


@_compiled
def _compare(one: Any, other: Any) -> int:
    for i in range(one.size):
        if one[i] != other[i]:
            return -1 if one[i] < other[i] else 1
    return 0


@_compiled
def find_keys(wanted: Any, among: Any, places: Any) -> bool:
    """Write where each wanted key is among others, which are sorted; -1 if it is not there.

    Returns whether the others are sorted, each once.
    """
    for i in range(1, among.shape[0]):
        if _compare(among[i - 1], among[i]) >= 0:
            return False
    last = 0
    for i in range(wanted.shape[0]):
        low, high = 0, among.shape[0]
        for place in range(last, min(last + 2, high)):  # usually, it is the last one or the next
            if _compare(among[place], wanted[i]) == 0:
                low, high = place, place + 1
                break
        while low < high:
            middle = (low + high) // 2
            order = _compare(among[middle], wanted[i])
            if order == 0:
                low = middle
                break
            if order < 0:
                low = middle + 1
            else:
                high = middle
        places[i] = low if low < high else -1
        if low < high:
            last = low
    return True
