"""The table of a log in Arrow, and so in pandas and polars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maillard.decisions.columns import MAX_BATCH_ROWS, MAX_BATCH_VALUES
from maillard.decisions.files.metadata import read_header, write_header
from maillard.decisions.files.row_codec import APPLIED, COLUMNS, REWARDS, values_of
from maillard.decisions.files.table_logs import open_table, renamed
from maillard.decisions.frames import library_of
from maillard.decisions.log import DecisionLog
from maillard.errors import InvalidValue, MaillardError

__all__ = [
    "KEY",
    "batches_of",
    "open_frame",
    "pyarrow",
    "records_of",
    "to_pandas",
    "to_polars",
    "to_table",
    "types",
]

KEY = "maillard"


def pyarrow() -> Any:
    """The package that knows Arrow and Parquet."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MaillardError("Parquet and frames need pyarrow: pip install 'maillard[decisions]'") from None
    return pyarrow


def types(times: Any, policy: Any) -> dict[str, Any]:
    """The Arrow type of each column, given the type of times and that of the column `policy`."""
    pa = pyarrow()
    plain = {
        "text": pa.string(),
        "whole": pa.int64(),
        "real": pa.float64(),
        "truth": pa.bool_(),
        "time": times,
        "names": pa.list_(pa.string()),
        "logs": pa.list_(pa.float64()),
    }
    plain["rewards"] = pa.list_(pa.struct([(name, plain[kind]) for name, kind in REWARDS.items()]))
    plain["applied"] = pa.list_(pa.struct([(name, plain[kind]) for name, kind in APPLIED.items()]))
    return {name: plain[kind] for name, kind in COLUMNS.items()} | {"policy": policy}


def schema() -> Any:
    """The columns of the table."""
    pa = pyarrow()
    dictionary = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(list(types(pa.timestamp("us", tz="UTC"), dictionary).items()))


def batches_of(log: DecisionLog) -> Iterator[Any]:
    """The table, in batches that do not take much memory."""
    pa, columns = pyarrow(), schema()
    some: list[tuple[Any, ...]] = []
    size = 0

    def batch() -> Any:
        values = zip(*some, strict=True)
        arrays = [pa.array(list(each), type=field.type) for each, field in zip(values, columns, strict=True)]
        return pa.record_batch(arrays, schema=columns)

    for row in log.rows():
        some.append(values_of(log, row))
        size += len(row.decision.eligible)
        if len(some) >= MAX_BATCH_ROWS or size >= MAX_BATCH_VALUES:
            yield batch()
            some, size = [], 0
    if some:
        yield batch()


def to_table(log: DecisionLog) -> Any:
    """The whole table; what the log says of itself is in its metadata."""
    table = pyarrow().Table.from_batches(batches_of(log), schema=schema())
    return table.replace_schema_metadata({KEY: write_header(log)})


def to_pandas(log: DecisionLog) -> Any:
    """The table as a pandas frame; what the log says of itself is in its `attrs`."""
    _needs("pandas")
    frame = to_table(log).to_pandas()
    frame.attrs[KEY] = write_header(log)
    return frame


def to_polars(log: DecisionLog) -> Any:
    """The table as a polars frame."""
    return _needs("polars").from_arrow(to_table(log))


def _needs(library: str) -> Any:
    import importlib

    try:
        return importlib.import_module(library)
    except ImportError:
        raise MaillardError(f"a {library} frame needs {library}: pip install {library}") from None


def open_frame(frame: Any, experiment: str | None, columns: Mapping[str, str] | None = None) -> DecisionLog:
    """The log in a frame or table."""
    pa, library = pyarrow(), library_of(frame)
    header = None
    try:
        if library == "pandas":
            header = frame.attrs.get(KEY)
            table = pa.Table.from_pandas(frame, preserve_index=False)
        elif library == "polars":
            table = _collected(frame).to_arrow()
        else:
            table = pa.Table.from_batches([frame]) if type(frame).__name__ == "RecordBatch" else frame
        ours = renamed(table.column_names, columns, f"{library} table")
        if ours != table.column_names:
            table = table.rename_columns(ours)
        if {"state", "id"} <= set(table.column_names):
            table = table.sort_by([("state", "ascending"), ("id", "ascending")])
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidValue("frame", type(frame).__name__, f"one that Arrow can hold ({error})") from None
    header = header or (table.schema.metadata or {}).get(KEY.encode())
    head = None if header is None else read_header(header, "metadata")
    source = f"{library} table"
    return open_table(
        lambda: records_of(table.to_batches(), source),
        table.column_names,
        head,
        source,
        experiment,
        parts=[ArrowPart(table)] if len(table) else [],
    )


def _collected(frame: Any) -> Any:
    """A polars frame that is there, from one that is to be made."""
    if type(frame).__name__ != "LazyFrame":
        return frame
    try:
        return frame.collect()
    except Exception as error:  # noqa: BLE001  # whatever its plan runs into
        raise InvalidValue("frame", "LazyFrame", f"one that can be collected ({error})") from None


@dataclass(frozen=True, eq=False)
class ArrowPart:
    """A whole table."""

    table: Any
    start: int = 0

    @property
    def rows(self) -> int:
        """How many it has."""
        return len(self.table)

    def __call__(self, names: Sequence[str], rows: int = MAX_BATCH_ROWS, /) -> Iterator[Any]:
        yield from self.table.select(list(names)).to_batches(max_chunksize=rows)


def records_of(batches: Iterable[Any], source: str) -> Iterator[Mapping[str, Any]]:
    """Plain values of each row, of the columns that the table has a name for."""
    pa = pyarrow()
    microseconds = pa.timestamp("us", tz="UTC")
    exact, plain = types(microseconds, pa.string()), types(pa.int64(), pa.string())
    try:
        for batch in batches:
            columns = {}
            for name in [name for name in batch.schema.names if name in COLUMNS]:
                try:
                    # By way of microseconds, whatever unit and zone the times had.
                    columns[name] = batch.column(name).cast(exact[name]).cast(plain[name])
                except (pa.ArrowException, ValueError) as error:
                    allowed = f"values of type {exact[name]} ({error})"
                    raise InvalidValue(f"{source}: {name}", str(batch.column(name).type), allowed) from None
            yield from pa.RecordBatch.from_pydict(columns).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidValue(source, str(error), "a table that can be read") from None
