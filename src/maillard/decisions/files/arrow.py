"""Logs as Arrow tables, pandas data frames and polars data frames."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from maillard.decisions.columns import MAX_BATCH_ROWS, MAX_BATCH_VALUES
from maillard.decisions.files.column_batches import column_batches
from maillard.decisions.files.metadata import read_header, write_header
from maillard.decisions.files.row_codec import APPLIED, COLUMNS, LATER_COLUMNS, REWARDS, values_of
from maillard.decisions.files.table_logs import (
    Table,
    context_columns,
    number_column,
    open_table,
    rename_columns,
)
from maillard.decisions.frames import library_of
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.bulk_columns import OddRows
from maillard.decisions.stores.contract import Row
from maillard.errors import InvalidValue, MaillardError

METADATA_KEY = "maillard"

Fields: TypeAlias = Mapping[str, Sequence[str]]  # of columns of structs, those fields that are needed
NO_FIELDS: Fields = MappingProxyType({})
_T = TypeVar("_T")


def pyarrow() -> Any:
    """Import pyarrow, or raise an error that tells how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        reason = "Parquet files and data frames need pyarrow"
        raise MaillardError(f"{reason}: pip install 'maillard[decisions]'") from None
    return pyarrow


@cache
def column_types(*, plain: bool = False) -> dict[str, Any]:
    """Return the Arrow type of each column. Times are integers if `plain`, else timestamps."""
    pa = pyarrow()
    types = {
        **dict.fromkeys(("string", "text", "encoded"), pa.string()),
        "version": pa.int64(),
        "integer": pa.int64(),
        "float": pa.float64(),
        "boolean": pa.bool_(),
        "time": pa.int64() if plain else pa.timestamp("us", tz="UTC"),
        "strings": pa.list_(pa.string()),
        "floats": pa.list_(pa.float64()),
    }
    for name, fields in (("rewards", REWARDS), ("applied", APPLIED)):
        types[name] = pa.list_(pa.struct([(field, types[kind]) for field, kind in fields.items()]))
    return {name: types[kind] for name, kind in COLUMNS.items()}


def cast(batch: Any, name: str, source: str) -> Any:
    """Return a column, cast to its plain type."""
    pa, column, exact = pyarrow(), batch.column(name), column_types()[name]
    try:
        # Via microseconds, because times may have any unit and time zone.
        return column.cast(exact).cast(column_types(plain=True)[name])
    except (pa.ArrowException, ValueError) as error:
        allowed = f"values of type {exact} ({error})"
        raise InvalidValue(f"{source}: {name}", str(column.type), allowed) from None


def has_texts(column: Any) -> bool:
    """Whether a column has texts, and not only nulls."""
    types, kind = pyarrow().types, column.type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind)) and column.null_count < len(column)


def schema() -> Any:
    """Return the Arrow schema of the table."""
    pa = pyarrow()
    return pa.schema(list((column_types() | {"policy": pa.dictionary(pa.int32(), pa.string())}).items()))


def plain_batches(log: DecisionLog, rows: Iterable[Row] | None = None) -> Generator[Any, None, None]:
    """Yield the table, or that of these rows of the log, in batches of bounded size, made from rows."""
    pa, columns = pyarrow(), schema()
    buffer: list[tuple[Any, ...]] = []
    size = 0

    def batch() -> Any:
        pairs = zip(zip(*buffer, strict=True), columns, strict=True)
        return pa.record_batch([pa.array(each, type=field.type) for each, field in pairs], schema=columns)

    for row in log.rows() if rows is None else rows:
        buffer.append(values_of(log, row))
        size += len(row.decision.eligible)
        if len(buffer) >= MAX_BATCH_ROWS or size >= MAX_BATCH_VALUES:
            yield batch()
            buffer, size = [], 0
    if buffer:
        yield batch()


def each_batch(log: DecisionLog, use: Callable[[Iterable[Any]], _T]) -> _T:
    """Return what `use` makes of the batches of the table. It is called a second time if the log is odd."""
    try:
        return use(column_batches(log, schema()))
    except OddRows:
        return use(plain_batches(log))


def to_table(log: DecisionLog) -> Any:
    """Return the log as an Arrow table with its metadata."""
    table = each_batch(log, lambda batches: pyarrow().Table.from_batches(batches, schema=schema()))
    return table.replace_schema_metadata({METADATA_KEY: write_header(log)})


def to_pandas(log: DecisionLog) -> Any:
    """Return the log as a pandas data frame, with its metadata in `attrs`."""
    _import("pandas")
    frame = to_table(log).to_pandas()
    frame.attrs[METADATA_KEY] = write_header(log)
    return frame


def to_polars(log: DecisionLog) -> Any:
    """Return the log as a polars data frame, without metadata."""
    return _import("polars").from_arrow(to_table(log))


def _import(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError:
        raise MaillardError(f"{library} is not installed: pip install {library}") from None


def open_frame(frame: Any, experiment: str | None, columns: Mapping[str, str] | None = None) -> DecisionLog:
    """Open the log in a data frame or table."""
    pa, library, header = pyarrow(), library_of(frame), None
    source = f"{library} table"
    try:
        if library == "pandas":
            header = frame.attrs.get(METADATA_KEY)
            numbered = frame.index.name is None and frame.index.dtype.kind in "iu"
            table = pa.Table.from_pandas(frame, preserve_index=numbered)
        elif library == "polars":
            table = _collected(frame).to_arrow()
        else:
            table = pa.Table.from_batches([frame]) if type(frame).__name__ == "RecordBatch" else frame
        ours = rename_columns(table.column_names, columns, source)
        if ours != table.column_names:
            table = table.rename_columns(ours)  # this drops the metadata
        if {"state", "id"} <= set(table.column_names):
            table = table.sort_by([("state", "ascending"), ("id", "ascending")])
    except InvalidValue:
        raise
    except (pa.ArrowException, ValueError, TypeError) as error:
        allowed = f"a data frame that can be converted to Arrow ({error})"
        raise InvalidValue("frame", type(frame).__name__, allowed) from None
    header = read_header(header or (table.schema.metadata or {}).get(METADATA_KEY.encode()), "metadata")
    parts = [ArrowPart(table, len(table))] if len(table) else []
    number = number_column([field.name for field in table.schema if pa.types.is_integer(field.type)])
    read = partial(records_of, table.to_batches(), source, number)
    context = context_columns(table.column_names, columns, source)
    return open_table(Table(source, table.column_names, read, parts, number, context), header, experiment)


def table_of_arrays(arrays: Mapping[str, Any]) -> Any:
    """Return a dict of arrays or lists, one per column, as an Arrow table."""
    pa = pyarrow()
    try:
        return pa.table({str(name): pa.array(values) for name, values in arrays.items()})
    except (pa.ArrowException, ValueError, TypeError) as error:
        allowed = f"one array per column, all of the same length ({error})"
        raise InvalidValue("log", list(arrays), allowed) from None


def _collected(frame: Any) -> Any:
    """Collect a polars LazyFrame."""
    if type(frame).__name__ != "LazyFrame":
        return frame
    try:
        return frame.collect()
    except Exception as error:  # noqa: BLE001  # a lazy query may fail in any way
        raise InvalidValue("frame", "LazyFrame", f"a lazy frame that can be collected ({error})") from None


@dataclass(frozen=True, eq=False)
class ArrowPart:
    """All rows of a table in memory."""

    table: Any
    rows: int
    start: int = 0

    def __call__(
        self,
        names: Sequence[str],
        rows: int = MAX_BATCH_ROWS,
        /,
        *,
        fields: Fields = NO_FIELDS,  # noqa: ARG002  # the table is in memory, with all fields
    ) -> Iterator[Any]:
        """Yield batches of these columns."""
        yield from self.table.select(list(names)).to_batches(max_chunksize=rows)


def records_of(batches: Iterable[Any], source: str, number: str | None = None) -> Iterator[Mapping[str, Any]]:
    """Yield the values of each row as plain Python objects, for the known columns and that of row numbers."""
    pa = pyarrow()
    try:
        for batch in batches:
            known = [name for name in batch.schema.names if name in COLUMNS and _is_ours(batch, name)]
            columns = {name: cast(batch, name, source) for name in known}
            if number is not None:
                columns.setdefault(number, batch.column(number))
            yield from pa.RecordBatch.from_pydict(columns).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidValue(source, str(error), "a readable table") from None


def _is_ours(batch: Any, name: str) -> bool:
    """Whether a column may be one of ours. Tables of other programs may have contexts in other forms."""
    types, kind = pyarrow().types, batch.schema.field(name).type
    if name not in LATER_COLUMNS:
        return True
    if name == "feature_version":
        return bool(types.is_integer(kind) or types.is_null(kind))
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind))
