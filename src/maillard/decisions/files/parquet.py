"""Logs as Parquet files."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maillard.decisions.columns import MAX_BATCH_ROWS
from maillard.decisions.files import arrow
from maillard.decisions.files.arrow import METADATA_KEY, NO_FIELDS, Fields, pyarrow
from maillard.decisions.files.file_formats import WriteResult
from maillard.decisions.files.metadata import Header, read_header, write_header
from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.files.row_codec import COLUMNS
from maillard.decisions.files.table_logs import (
    Table,
    context_columns,
    number_column,
    open_table,
    rename_columns,
)
from maillard.decisions.log import DecisionLog
from maillard.errors import InvalidValue

_MAX_PART_ROWS = 1_000_000  # a part is read by one worker
# Dictionaries only for columns with few different values: they make other columns larger, and take longer.
_REPEATED = [
    "experiment", "arm", "eligible.list.element", "policy", "policy_version", "formula_version", "epoch",
    "cold", "position", "rewards.list.element.event", "applied.list.element.kind",
]  # fmt: skip
OPTIONS: dict[str, Any] = {"compression": "zstd", "use_dictionary": _REPEATED}


def written(batches: Iterable[Any], write: Callable[[Any], None]) -> Iterator[int]:
    """Write each batch with this function while the next is read; yield the number of rows of each."""
    with ThreadPoolExecutor(1) as thread:
        pending = None
        for batch in batches:
            if pending is not None:
                pending.result()
            # Arrow writes without the interpreter lock.
            pending = thread.submit(write, batch)
            yield batch.num_rows
        if pending is not None:
            pending.result()


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write a log, one row group at a time."""
    pq = pyarrow().parquet
    columns = arrow.schema().with_metadata({METADATA_KEY: write_header(log)})

    def write_batches(batches: Iterable[Any]) -> int:
        with pq.ParquetWriter(partial, columns, **OPTIONS) as writer:
            return sum(written(batches, writer.write_batch))

    with atomic_file(path) as partial:
        return WriteResult(arrow.each_batch(log, write_batches), 0)


def open_file(path: Path, experiment: str | None, columns: Mapping[str, str] | None = None) -> DecisionLog:
    """Open the log in a file."""
    return open_files([path], experiment, columns)


def open_files(
    paths: Sequence[Path],
    experiment: str | None,
    columns: Mapping[str, str] | None = None,
    source: str | None = None,
    *,
    header: Header | None = None,
    close: Callable[[], None] | None = None,
) -> DecisionLog:
    """Open the log in one file, or the foreign log in several consecutive files.

    `header` is the metadata of a file that does not contain it. `close` is called with the log's `close`.
    """
    if not paths:
        raise InvalidValue("log", source, "a folder with .parquet files")
    pa, source = pyarrow(), source or str(paths[0])
    files = []
    for path in paths:
        if not path.is_file():
            raise InvalidValue("log", str(path), "a .parquet file that exists")
        try:
            with pa.parquet.ParquetFile(path) as file:
                files.append((path, file.schema_arrow, file.metadata))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidValue("log", str(path), f"a Parquet file ({error})") from None
        schema, other = files[0][1], files[-1][1]
        if set(other.names) != set(schema.names):
            allowed = f"the columns of {paths[0]}: {', '.join(schema.names)}"
            raise InvalidValue(f"{path}: columns", other.names, allowed)
    ours = rename_columns(schema.names, columns, source)
    names = dict(zip(ours, schema.names, strict=True))
    string_arms = "arm" in names and schema.field(names["arm"]).type in (pa.string(), pa.large_string())

    parts: list[ParquetPart] = []
    start = 0
    for path, _, metadata in files:
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if not parts or parts[-1].path != path or parts[-1].rows + rows > _MAX_PART_ROWS:
                parts.append(ParquetPart(path, (), start, 0, names, string_arms))
            last = parts[-1]
            parts[-1] = dataclasses.replace(last, groups=(*last.groups, group), rows=last.rows + rows)
            start += rows
    content = (schema.metadata or {}).get(METADATA_KEY.encode())
    if header is None:
        renamed = any(isinstance(each, str) for each in (columns or {}).values())
        header = read_header(content if len(paths) == 1 and not renamed else None, source)
    number = number_column([name for name in ours if pa.types.is_integer(schema.field(names[name]).type)])
    known = [name for name in ours if name in COLUMNS or name == number]

    def records() -> Iterator[Mapping[str, Any]]:
        batches = itertools.chain.from_iterable(part(known, 2_000) for part in parts)
        return arrow.records_of(batches, source, number)

    table = Table(source, ours, records, parts, number, context_columns(ours, columns, source))
    return open_table(table, header, experiment, close)


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of a file. It can be pickled."""

    path: Path
    groups: tuple[int, ...]
    start: int
    rows: int
    names: dict[str, str]
    "The name of each column in the file, by its name in this package."
    string_arms: bool
    "Whether the arm column contains strings."

    def __call__(
        self, names: Sequence[str], rows: int = MAX_BATCH_ROWS, /, *, fields: Fields = NO_FIELDS
    ) -> Iterator[Any]:
        """Yield batches of these columns, with the names of this package.

        Of columns of structs that are in `fields`, only those fields are read.
        """
        wanted, pa = [self.names[name] for name in names], pyarrow()
        # Dictionary encoding: a log has many rows and few arms.
        encoded = [self.names["arm"]] if self.string_arms and "arm" in names else []
        try:
            with pa.parquet.ParquetFile(self.path, read_dictionary=encoded) as file:
                paths = [
                    path for name in names for path in _paths(file, self.names[name], fields.get(name, ()))
                ]
                for batch in file.iter_batches(batch_size=rows, row_groups=list(self.groups), columns=paths):
                    yield batch.select(wanted).rename_columns(list(names))
        except (pa.ArrowException, OSError) as error:
            raise InvalidValue("log", str(self.path), f"a readable Parquet file ({error})") from None


def _paths(file: Any, name: str, fields: Sequence[str]) -> list[str]:
    """Return the paths of these fields of a column of structs; without fields, the column."""
    leaves = (file.schema.column(place).path for place in range(len(file.schema) if fields else 0))
    found = [each for each in leaves if each.startswith(f"{name}.") and each.rpartition(".")[2] in fields]
    return found or [name]
