"""The encoding of data frames, column by column, through Arrow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.array_types import Bools, Floats, Indices, Ints
from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.feature_grid import STEPS
from maillard.features.feature_types import FeatureType, Number, plain

if TYPE_CHECKING:
    from maillard.features.encoding import Features

Counts = Counter[tuple[str, str]]


def encode_frame(features: Features, frame: Any, counts: Counts) -> Floats:
    """Encode the rows of a data frame or table, with the same bits as `Features.encode` of each row."""
    table = _to_table(frame)
    names = table.column_names
    if len(set(names)) < len(names):
        raise InvalidValue("frame: columns", names, "each column once")
    if features.rest is None:
        for name in names:
            if name not in features.types:
                raise UnknownName("frame: column", name, features.inputs)
    rows, everywhere = np.zeros((table.num_rows, features.dimension)), np.arange(table.num_rows)
    rows[:, 0] = features.intercept
    found = Counter[tuple[str, str]]()
    entries: list[tuple[Ints, Ints]] = []
    for name, type_, start, *_ in features._plan:
        column = _Column(name, table.column(name) if name in names else None, table.num_rows)
        entry = _encode_column(column, type_, found)
        entries.append(entry)
        rows[everywhere, start + entry[0]] = entry[1] / STEPS
    for one, two, width, start in features._crosses:
        (i, x), (j, y) = entries[one], entries[two]
        # Adding 0 turns -0.0 into 0.0.
        rows[everywhere, start + i * width + j] = np.rint(x * y / STEPS) / STEPS + 0.0
    if features.rest is not None:
        for name in names:
            if name not in features.types:
                _encode_rest(features, _Column(name, table.column(name), table.num_rows), rows)
    counts.update(found)
    return rows


class _Column:
    """A column as values without repetition, and the position of each row's value among them."""

    def __init__(self, name: str, column: Any, length: int) -> None:
        self.name, self.length, self._column = name, length, column

    def numbers(self) -> tuple[Floats, Bools] | None:
        """The column as floats, and where they are missing; None if it is not a column of numbers."""
        import pyarrow as pa

        column = self._column
        if column is None or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            return None
        missing = column.is_null().to_numpy()
        values = column.fill_null(0).to_numpy().astype(np.float64)
        return values, missing | np.isnan(values)

    def distinct(self) -> tuple[list[Any], Indices]:
        """The distinct values, of which the last is None, and the position of each row's value."""
        import pyarrow as pa

        if self._column is None or pa.types.is_null(self._column.type):
            return [None], np.zeros(self.length, np.intp)
        encoded = self._column
        try:
            encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
            encoded = encoded.combine_chunks()  # also unifies the dictionaries of the chunks
        except pa.ArrowNotImplementedError:
            allowed = "a column of text, numbers or flags"
            raise InvalidValue(f"frame: {self.name}", str(self._column.type), allowed) from None
        values = encoded.dictionary.to_pylist()
        # The type of the indices may have no room for one value more.
        places = encoded.indices.cast("int64").fill_null(len(values)).to_numpy(zero_copy_only=False)
        return [*map(plain, values), None], places.astype(np.intp)

    def located(self, error: InvalidValue, bad: Bools) -> InvalidValue:
        """The error, with the first of the rows that have it."""
        return error.with_location(f"frame: row {int(np.argmax(bad))}")


def _encode_column(column: _Column, type_: FeatureType, counts: Counts) -> tuple[Ints, Ints]:
    """The column that is not 0, and its number in grid units, for each row."""
    if isinstance(type_, Number) and (numbers := column.numbers()) is not None:
        units = _encode_numbers(column, type_, *numbers, counts)
        return np.zeros_like(units), units
    distinct, places = column.distinct()
    used = np.bincount(places, minlength=len(distinct))
    encoded = np.zeros((len(distinct), 2), np.int64)
    for place in np.flatnonzero(used).tolist():
        value = distinct[place]
        try:
            given = type_.default_for(column.name) if value is None else value
            encoded[place] = type_.encode(column.name, given)
        except InvalidValue as error:
            raise column.located(error, places == place) from None
        if remark := type_.remark(value):
            counts[column.name, remark] += int(used[place])
    return encoded[places, 0], encoded[places, 1]


def _encode_numbers(column: _Column, type_: Number, values: Floats, missing: Bools, counts: Counts) -> Ints:
    if missing.any():
        try:
            values = np.where(missing, float(type_.default_for(column.name)), values)
        except InvalidValue as error:
            raise column.located(error, missing) from None
        counts[column.name, "default"] += int(np.count_nonzero(missing))
    infinite = np.isinf(values)
    if infinite.any():
        value = float(values[np.argmax(infinite)])
        raise column.located(InvalidValue(column.name, value, "a finite number"), infinite)
    units, clipped = type_.encode_all(values)
    if clipped:
        counts[column.name, "clipped"] += clipped
    return units


def _encode_rest(features: Features, column: _Column, rows: Floats) -> None:
    distinct, places = column.distinct()
    for place in np.unique(places).tolist():
        try:
            bucket = features.rest_column(column.name, distinct[place])
        except InvalidValue as error:
            raise column.located(error, places == place) from None
        if bucket is not None:
            rows[places == place, bucket] = 1.0


def _to_table(frame: Any) -> Any:
    """The frame as an Arrow table whose columns have known types."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MaillardError("encode_frame needs pyarrow: pip install 'maillard[decisions]'") from None
    library = type(frame).__module__.partition(".")[0]
    try:
        if library == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        if library == "polars":
            return _collected(frame).to_arrow()
        return pa.table(frame)
    except InvalidValue:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        allowed = f"a pandas or polars data frame or an Arrow table ({error})"
        raise InvalidValue("frame", type(frame).__name__, allowed) from None


def _collected(frame: Any) -> Any:
    """Collect a polars LazyFrame."""
    if not hasattr(frame, "collect"):
        return frame
    try:
        return frame.collect()
    except Exception as error:  # noqa: BLE001  # a lazy query may fail in any way
        raise InvalidValue("frame", "LazyFrame", f"a lazy frame that can be collected ({error})") from None
