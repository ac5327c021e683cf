"""The contexts of decisions, as columns: what was known about the visitor when the arm was chosen.

A store has one JSON text per decision. A table has a column `context` of JSON texts or structs, or further
columns that the caller names. All of them become `Contexts`: one column per key, with the distinct values and
the position of each row's value among them. A value is text, a number, a flag, or None if it is missing or
was erased. Nothing is decoded before it is needed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Value = str | int | float | bool | None
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


class ContextColumn(NamedTuple):
    """The values of one key: the distinct values, and the position of each row's value among them."""

    values: tuple[Value, ...]
    codes: Integers

    def numbers(self) -> NDArray[np.float64] | None:
        """Return the values as numbers, NaN if missing; None if some row's value is not a number."""
        used = self.used
        found = [value if each else None for value, each in zip(self.values, used.tolist(), strict=True)]
        if any(isinstance(value, str | bool) for value in found):
            return None
        numbers = np.array([math.nan if value is None else value for value in found], np.float64)
        return numbers[self.codes]

    @property
    def used(self) -> NDArray[np.bool_]:
        """Whether some row has each of the values."""
        used: NDArray[np.bool_] = np.bincount(self.codes, minlength=len(self.values)) > 0
        return used


class Contexts:
    """The contexts of n decisions, by key.

    >>> contexts = Contexts.of_texts(['{"device": "phone"}', None, '{"device": "phone", "age": 36}'])
    >>> contexts.keys
    ('device', 'age')
    >>> contexts.column("device")
    ContextColumn(values=('phone', None), codes=array([0, 1, 0]))
    >>> contexts.column("age").numbers()
    array([nan, nan, 36.])
    """

    def __init__(  # noqa: PLR0917  # of which all but one are optional
        self,
        size: int,
        columns: Mapping[str, ContextColumn] | None = None,
        texts: ContextColumn | None = None,
        rows: NDArray[np.float64] | None = None,
        where: str = "context",
        known: NDArray[np.bool_] | None = None,
        row_keys: Sequence[str] = (),
    ) -> None:
        self.size, self._where, self._known = size, where, known
        self._row_keys = tuple(row_keys)
        self.rows = rows
        "The encoded feature rows, n x d, if the log has them."
        self._texts = texts
        self._columns = dict(columns or {})
        self._decoded: list[dict[str, Value]] | None = None
        self._found: dict[str, ContextColumn] = {}

    @classmethod
    def of_texts(
        cls, texts: Sequence[str | None], rows: NDArray[np.float64] | None = None, where: str = "context"
    ) -> Contexts:
        """Return the contexts in JSON texts, of which None is one that is missing or was erased."""
        place: dict[str | None, int] = {}
        codes = np.fromiter((place.setdefault(text, len(place)) for text in texts), np.int64, len(texts))
        return cls(len(texts), texts=ContextColumn(tuple(place), codes), rows=rows, where=where)

    @classmethod
    def of_rows(cls, rows: NDArray[np.float64], where: str = "context") -> Contexts:
        """Return contexts that are rows of numbers, as other programs have them: their keys are x0, x1, ...

        >>> Contexts.of_rows(np.array([[1.0, 0.5], [0.0, 0.5]])).column("x0").values
        (0.0, 1.0)
        """
        return cls(len(rows), rows=rows, where=where, row_keys=[f"x{i}" for i in range(rows.shape[1])])

    @classmethod
    def of_arrow(cls, column: Any, where: str) -> Contexts:
        """Return the contexts in an Arrow column of JSON texts or of structs."""
        import pyarrow as pa

        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        kind = column.type
        if pa.types.is_struct(kind):
            # `flatten` gives the nulls of the struct to each field.
            fields = zip((field.name for field in kind), column.flatten(), strict=True)
            columns = {name: column_of_arrow(each, f"{where}.{name}") for name, each in fields}
            return cls(len(column), columns, known=np.asarray(column.is_valid()))
        if pa.types.is_map(kind):
            pairs = column.to_pylist()
            return cls.of_texts(
                [None if each is None else _encode(dict(each)) for each in pairs], None, where
            )
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            return cls.of_rows(_matrix(column, where), where)
        return cls(len(column), texts=column_of_arrow(column, where), where=where)

    def __len__(self) -> int:
        return self.size

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that occur, in order of appearance."""
        decoded = self._decode()
        keys = (key for each in decoded for key in each)
        return tuple(dict.fromkeys([*self._columns, *self._row_keys, *keys]))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each decision has a context; False if it was erased."""
        if self._texts is not None:
            present = np.array([text is not None for text in self._texts.values], np.bool_)
            found: NDArray[np.bool_] = present[self._texts.codes]
            return found
        return np.ones(self.size, np.bool_) if self._known is None else self._known

    def column(self, key: str) -> ContextColumn:
        """Return the values of a key, None where it is missing."""
        found = self._columns.get(key) or self._found.get(key)
        if found is None:
            found = self._found[key] = self._from_rows(key) or self._from_texts(key)
        return found

    def _from_rows(self, key: str) -> ContextColumn | None:
        if self.rows is None or key not in self._row_keys:
            return None
        values, codes = np.unique(self.rows[:, self._row_keys.index(key)], return_inverse=True)
        return ContextColumn(tuple(values.tolist()), codes.astype(np.int64))

    def _from_texts(self, key: str) -> ContextColumn:
        if self._texts is None:
            return ContextColumn((None,), np.zeros(self.size, np.int64))
        made = column_of_values([each.get(key) for each in self._decode()])
        return ContextColumn(made.values, made.codes[self._texts.codes])

    def distinct(self, keys: Sequence[str] | None = None) -> tuple[list[dict[str, Value]], Integers]:
        """Return the distinct contexts as dictionaries without missing keys, and that of each row."""
        if keys is None and self._texts is not None:
            return self._decode(), self._texts.codes
        names = self.keys if keys is None else tuple(keys)
        columns = [self.column(name) for name in names]
        codes = combined_codes(columns, self.size)
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        made = [
            {
                name: value
                for name, each in zip(names, columns, strict=True)
                if (value := each.values[each.codes[row]]) is not None
            }
            for row in first.tolist()
        ]
        return made, codes.astype(np.int64)

    def filter(self, mask: NDArray[np.bool_]) -> Contexts:
        """Return the contexts of the rows for which the mask is true."""
        count = int(np.count_nonzero(mask))

        def chosen(column: ContextColumn) -> ContextColumn:
            return ContextColumn(column.values, column.codes[mask])

        made = Contexts(
            count,
            {name: chosen(each) for name, each in self._columns.items()},
            None if self._texts is None else chosen(self._texts),
            None if self.rows is None else self.rows[mask],
            self._where,
            None if self._known is None else self._known[mask],
            self._row_keys,
        )
        made._decoded = self._decoded
        return made

    def _decode(self) -> list[dict[str, Value]]:
        """Return the distinct texts as dictionaries; an error names the first that is not a JSON object."""
        if self._texts is None:
            return []
        if self._decoded is None:
            self._decoded = [_object(text, self._where) for text in self._texts.values]
        return self._decoded


def _object(text: Value, where: str) -> dict[str, Value]:
    try:
        value = {} if text is None else json.loads(text if isinstance(text, str) else "")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidValue(where, text, 'a JSON object, such as {"device": "phone"}, or null')
    return {key: plain_value(each) for key, each in value.items()}


def _matrix(column: Any, where: str) -> NDArray[np.float64]:
    """Return a column of lists of numbers, all of the same length, as a matrix."""
    try:
        matrix = np.array(column.to_pylist(), np.float64)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise InvalidValue(where, str(column.type), "lists of numbers, all of the same length")
    return matrix


def plain_value(value: Any) -> Value:
    """Return a value as text, number, flag or None; lists and objects become JSON text, NaN is missing."""
    if isinstance(value, dict | list):
        return _encode(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


def value_text(value: Value) -> str | None:
    """Return a value as text, as conditions and names of segments compare it; None if it is missing.

    >>> value_text(True), value_text(3.0), value_text("3"), value_text(None)
    ('true', '3', '3', None)
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return None if value is None else str(value)


def context_key(context: Mapping[str, Value]) -> str:
    """Return a text that is the same for equal contexts."""
    return _encode(dict(context))


def combined_codes(columns: Iterable[ContextColumn], size: int) -> Integers:
    """Return a number for each row that is the same for rows with the same values in all columns."""
    codes = np.zeros(size, np.int64)
    for values, own in columns:
        codes = codes * len(values) + own
        if size and int(codes.max()) > 2**31:  # keep the product of a few more columns below 2**63
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes


def column_of_values(values: Iterable[Value]) -> ContextColumn:
    """Return the values of all rows as a column."""
    # 1, 1.0 and True are equal in Python, but only the first two are the same value of a context.
    place: dict[tuple[bool, Value], int] = {}
    codes = [place.setdefault((isinstance(value, bool), value), len(place)) for value in values]
    return ContextColumn(tuple(value for _, value in place), np.array(codes, np.int64))


def column_of_arrow(column: Any, where: str) -> ContextColumn:
    """Return an Arrow column of text, numbers or flags as the column of a context."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_null(column.type):
        return ContextColumn((None,), np.zeros(len(column), np.int64))
    try:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        raise InvalidValue(where, str(column.type), "a column of text, numbers or flags") from None
    values = [*map(plain_value, encoded.dictionary.to_pylist()), None]
    codes = encoded.indices.cast(pa.int64()).fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
    return ContextColumn(tuple(values), codes.astype(np.int64))
