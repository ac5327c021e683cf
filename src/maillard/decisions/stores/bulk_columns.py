"""Columns of SQL tables as arrays, many rows at once.

The rules for each value are those of `sql_rows.check_row`. Here, a value that breaks one raises `OddRows`,
without saying which: then the caller reads the rows one by one, and gets the error with the value.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Bools
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.events import UPDATE_KINDS
from maillard.decisions.timestamps import END_OF_TIME

Arrays = dict[str, Any]
"The columns of some rows, by name: arrays. Texts and bytes are objects, and None stands for NULL."

_ID_LENGTH, _ID_BYTES = 36, 16
_DASHES = [8, 13, 18, 23]
_KIND_CODES = {kind: code for code, kind in enumerate(UPDATE_KINDS)}


class OddRows(Exception):
    """Rows that cannot be read in bulk: they must be read one by one, and may be damaged."""


def _whole(low: int, high: int) -> Callable[[Sequence[Any]], NDArray[Any]]:
    def convert(values: Sequence[Any]) -> NDArray[Any]:
        found = np.frombuffer(array("q", values), np.int64)  # a TypeError for anything but integers
        if found.size and not (low <= found.min() and found.max() <= high):
            raise OddRows("an integer is out of range")
        return found

    return convert


def _real(high: float) -> Callable[[Sequence[Any]], NDArray[Any]]:
    def convert(values: Sequence[Any]) -> NDArray[Any]:
        if not set(map(type, values)) <= {float}:
            raise OddRows("a value is no float")
        found = np.frombuffer(array("d", values), np.float64)
        if not (found <= high).all():
            raise OddRows("a float is out of range")
        return found

    return convert


def _finite(values: Sequence[Any]) -> NDArray[Any]:
    found = _real(sys.float_info.max)(values)
    if not np.isfinite(found).all():
        raise OddRows("a value is not finite")
    return found


def _finite_or_null(values: Sequence[Any]) -> NDArray[Any]:
    """Convert floats, with NaN for NULL."""
    if values.count(None) == len(values):
        return np.full(len(values), np.nan)
    if None not in values:
        return _finite(values)
    found = np.full(len(values), np.nan)
    present = [place for place, value in enumerate(values) if value is not None]
    found[present] = _finite([values[place] for place in present])
    return found


def _objects(cls: type, *, optional: bool = False) -> Callable[[Sequence[Any]], NDArray[Any]]:
    allowed = {cls, type(None)} if optional else {cls}

    def convert(values: Sequence[Any]) -> NDArray[Any]:
        if not (optional and values.count(None) == len(values)) and not set(map(type, values)) <= allowed:
            raise OddRows("a value has another type")
        found = np.empty(len(values), object)
        found[:] = values
        return found

    return convert


def _kinds(values: Sequence[Any]) -> NDArray[Any]:
    """Convert kinds of tally updates to indices in `UPDATE_KINDS`."""
    return _whole(0, len(UPDATE_KINDS))([_KIND_CODES.get(value) for value in values])


def bytes_of_ids(values: Sequence[Any]) -> NDArray[Any]:
    """Convert ids to their 16 bytes. Accept only the usual form, which `chain.id_text` writes."""
    if not set(map(type, values)) <= {str}:
        raise OddRows("an id is no text")
    text = "".join(values)
    if set(map(len, values)) - {_ID_LENGTH} or not text.isascii() or text != text.lower():
        raise OddRows("an id is no UUID")
    letters = np.frombuffer(text.encode(), "S1").reshape(len(values), _ID_LENGTH)
    digits = text.replace("-", "")
    try:
        data = bytes.fromhex(digits)
    except ValueError as error:
        raise OddRows("an id is no UUID") from error
    # `fromhex` skips white space
    if (letters[:, _DASHES] != b"-").any() or len(data) != _ID_BYTES * len(values):
        raise OddRows("an id is no UUID")
    return np.frombuffer(data, f"V{_ID_BYTES}")


def _uuids_or_null(values: Sequence[Any]) -> NDArray[Any]:
    """Convert ids to their 16 bytes, which are zeros for NULL."""
    found = np.zeros(len(values), f"V{_ID_BYTES}")
    present = [place for place, value in enumerate(values) if value is not None]
    if present:
        found[present] = bytes_of_ids([values[place] for place in present])
    return found


def _same(expected: object) -> Callable[[Sequence[Any]], NDArray[Any]]:
    def convert(values: Sequence[Any]) -> NDArray[Any]:
        if values.count(expected) != len(values):
            raise OddRows(f"a value is not {expected!r}")
        return np.zeros(0)

    return convert


WHOLE_RANGES = {
    "any whole": (-(2**63), 2**63 - 1),
    "whole": (0, 2**62),
    "time": (0, END_OF_TIME - 1),
    "truth": (0, 1),
}
"The lowest and the highest value of each type of integers."

_CONVERTERS: Mapping[str, Callable[[Sequence[Any]], NDArray[Any]]] = {
    "text": _objects(str),
    "name": _objects(str),
    "name?": _objects(str, optional=True),
    "text?": _objects(str, optional=True),
    "bytes": _objects(bytes),
    "bytes?": _objects(bytes, optional=True),
    **{kind: _whole(low, high) for kind, (low, high) in WHOLE_RANGES.items()},
    "real": _finite,
    "real?": _finite_or_null,
    "log": _real(LOG_PROBABILITY_TOLERANCE),
    "kind": _kinds,
    "uuid": bytes_of_ids,
    "uuid?": _uuids_or_null,
    "empty": _same(""),
    "null": _same(None),
}


def columns_of_rows(rows: Sequence[Sequence[Any]], types: Mapping[str, str]) -> Arrays:
    """Convert rows to columns with these names and types; raise OddRows if a value does not have its type.

    The columns of types "empty" and "null" are only checked: their arrays have no elements.

    >>> columns_of_rows([(1, "a"), (2, None)], {"number": "whole", "arm": "text?"})
    {'number': array([1, 2]), 'arm': array(['a', None], dtype=object)}
    """
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(types)
    try:
        found = zip(types.items(), columns, strict=True)
        return {name: _CONVERTERS[kind](values) for (name, kind), values in found}
    except (TypeError, OverflowError) as error:
        raise OddRows("a value has another type") from error


def id_texts(data: bytes) -> NDArray[np.bytes_]:
    """Return the texts of ids, given as 16 bytes each."""
    digits = np.frombuffer(data.hex().encode(), np.uint8).reshape(-1, 2 * _ID_BYTES)
    found = np.full((len(digits), _ID_LENGTH), ord("-"), np.uint8)
    found[:, [place for place in range(_ID_LENGTH) if place not in _DASHES]] = digits
    return found.view(f"S{_ID_LENGTH}").ravel()


def is_present(values: Any) -> Bools:
    """Return which values are not NULL."""
    if hasattr(values, "present"):
        return cast("Bools", values.present)
    found: Bools = np.not_equal(values, cast("Any", None))
    return found


def codes_of(values: Any, codes: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the code of each text; -1 for a text without a code."""
    if hasattr(values, "translated"):
        return cast("NDArray[np.int64]", values.translated(codes))
    get = codes.get
    return np.fromiter([get(value, -1) for value in values.tolist()], np.int64, values.size)
