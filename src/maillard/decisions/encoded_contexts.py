"""What a distribution was computed from, in binary form: feature rows, or a segment.

The first byte says what follows. A segment is a JSON list in UTF-8. Feature rows are whole multiples of
2**-16; the next bytes are the numbers of rows and of columns. One row is for all arms (disjoint models);
otherwise there is one row for each eligible arm (shared models). Numbers are 32-bit integers. If most of them
are 0, only the positions and values of the others are stored. Long data is compressed with zlib.

The reward of a decision is applied with the row of its chosen arm. That row, as text, is part of the event.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.decisions.decision import Decision
from maillard.errors import InvalidValue
from maillard.feature_grid import STEPS

_SPARSE, _COMPRESSED, _EACH_ARM, _SEGMENT = 1, 2, 4, 8
_HEADER = struct.Struct("<BHH")
_NUMBER, _PLACE = np.dtype("<i4"), np.dtype("<u2")
_MAX_COUNT = 2**16 - 1  # of rows, and of columns
_MIN_COMPRESSED = 256  # bytes
_FEW = 256  # numbers
_ALLOWED = "encoded feature rows, or a segment"

Encoded = Ints | tuple[str, ...]
"""Grid units, of shape (columns,) for all arms or (arms, columns); or a segment."""


def encode(content: Encoded) -> bytes:
    """Return feature rows, or a segment, in binary form.

    >>> decode(encode(np.array([65536, 0, -32768]))).tolist(), decode(encode(("phone", "de")))
    ([65536, 0, -32768], ('phone', 'de'))
    """
    if isinstance(content, tuple):
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return bytes([_SEGMENT]) + text.encode()
    *several, columns = content.shape
    count = several[0] if several else 1
    if max(count, columns) > _MAX_COUNT:
        raise InvalidValue("features", content.shape, f"at most {_MAX_COUNT} arms, and as many columns")
    flat, kind = content.reshape(-1), _EACH_ARM if several else 0
    data, zeros = _numbers(flat)
    if flat.size <= _MAX_COUNT and 6 * (flat.size - zeros) < len(data):
        (places,) = flat.nonzero()
        kind, data = kind | _SPARSE, places.astype(_PLACE).tobytes() + _numbers(flat[places])[0]
    if len(data) >= _MIN_COMPRESSED and len(packed := zlib.compress(data, 1)) < len(data):
        kind, data = kind | _COMPRESSED, packed
    return _HEADER.pack(kind, count, columns) + data


def _numbers(units: Ints) -> tuple[bytes, int]:
    """Return numbers in binary form, and how many of them are 0. For few, this needs fewer NumPy calls."""
    if units.size > _FEW:
        return units.astype(_NUMBER).tobytes(), units.size - int(np.count_nonzero(units))
    numbers = units.tolist()
    return struct.pack(f"<{len(numbers)}i", *numbers), numbers.count(0)


def decode(data: bytes) -> Encoded:
    """Return the feature rows or the segment; InvalidValue if these bytes are neither."""
    try:
        found = _read_segment(data[1:].decode()) if data[0] == _SEGMENT else _read_rows(data)
    except (ValueError, IndexError, struct.error, zlib.error, RecursionError):
        found = None
    if found is None:
        raise InvalidValue("encoded", data, _ALLOWED)
    return found


def _read_rows(data: bytes) -> Ints | None:
    """Return the feature rows; None if a number has no meaning."""
    kind, count, columns = _HEADER.unpack_from(data)
    body, size = data[_HEADER.size :], count * columns
    if kind & _COMPRESSED:
        body = zlib.decompressobj().decompress(body, 4 * size + 1)
    each_arm = bool(kind & _EACH_ARM)
    if kind & ~(_SPARSE | _COMPRESSED | _EACH_ARM) or not size or (count > 1 and not each_arm):
        return None
    if kind & _SPARSE:
        entries = len(body) // 6
        units = np.zeros(size, np.int64)
        units[np.frombuffer(body, "<u2", entries)] = np.frombuffer(body[2 * entries :], "<i4")
    else:
        units = np.frombuffer(body, "<i4").astype(np.int64)
    if units.size != size or np.abs(units).max() > STEPS:
        return None
    return units.reshape(count, columns) if each_arm else units


def _read_segment(text: str) -> tuple[str, ...]:
    values: Any = json.loads(text)
    if not isinstance(values, list) or not values or not all(isinstance(each, str) for each in values):
        raise ValueError
    return tuple(values)


def read_row(text: str) -> Encoded:
    """Return the row or the segment of an event; InvalidValue if the text is neither."""
    try:
        if text.startswith("["):
            return _read_segment(text)
        found = decode(base64.b64decode(text, validate=True))
    except (ValueError, RecursionError):
        raise InvalidValue("row", text, _ALLOWED) from None
    if isinstance(found, tuple) or found.ndim != 1:
        raise InvalidValue("row", text, "one encoded feature row")
    return found


def encoded_text(encoded: bytes | None) -> str | None:
    """The encoded form as text, for files: a JSON list for a segment, base64 for feature rows."""
    return row_of_reward(encoded)


def read_encoded_text(text: str) -> bytes:
    """The encoded form with this text; InvalidValue if it cannot be decoded."""
    try:
        if text.startswith("["):
            return encode(_read_segment(text))
        encoded = base64.b64decode(text, validate=True)
    except (ValueError, RecursionError):
        raise InvalidValue("encoded", text, _ALLOWED) from None
    decode(encoded)
    return encoded


def rows_for_all_arms(encoded: Sequence[bytes | None]) -> Floats | None:
    """The feature rows of many decisions as a matrix; None if some have one for each arm, or a segment.

    Rows are shorter if features were appended later. The rest of them is 0, and so are missing rows.
    """
    place: dict[bytes | None, int] = {}
    codes = [place.setdefault(each, len(place)) for each in encoded]
    rows = [np.zeros(0, np.int64) if each is None else decode(each) for each in place]
    if any(isinstance(row, tuple) or row.ndim != 1 for row in rows):
        return None
    table = np.zeros((len(rows), max(len(row) for row in rows)))
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    matrix: Floats = table[codes] / STEPS
    return matrix


def has_row_of_each_arm(encoded: bytes) -> bool:
    """Whether there is a row for each eligible arm, so that the arm's position tells its row."""
    return encoded[0] & (_EACH_ARM | _SEGMENT) == _EACH_ARM


def row_of_reward(encoded: bytes | None) -> str | None:
    """The row that the reward of a decision is applied with, if all arms have the same."""
    if encoded is None:
        return None
    return encoded[1:].decode() if encoded[0] == _SEGMENT else base64.b64encode(encoded).decode()


def row_of_chosen_arm(decision: Decision) -> str | None:
    """The row that the reward of a decision is applied with."""
    encoded = decision.encoded
    if encoded is None or not has_row_of_each_arm(encoded):
        return row_of_reward(encoded)
    rows = decode(encoded)
    assert not isinstance(rows, tuple)  # it is no segment
    place = decision.eligible.index(decision.arm)
    if len(rows) != len(decision.eligible):
        raise InvalidValue("encoded", len(rows), f"a row for each of {len(decision.eligible)} eligible arms")
    return base64.b64encode(encode(rows[place])).decode()


def same_rows(one: bytes | None, other: bytes | None) -> bool:
    """Whether both are the same rows or segment. Other versions of zlib may compress in another way."""
    if one == other or one is None or other is None:
        return one == other
    return _equal(decode(one), decode(other))


def same_row(one: str | None, other: str | None) -> bool:
    """Whether the texts of two events are the same row or segment."""
    if one == other or one is None or other is None:
        return one == other
    return _equal(read_row(one), read_row(other))


def _equal(one: Encoded, other: Encoded) -> bool:
    if isinstance(one, tuple) or isinstance(other, tuple):
        return type(one) is type(other) and one == other
    return np.array_equal(one, other)
