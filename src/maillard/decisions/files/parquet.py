"""Logs as Parquet files."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maillard.decisions.columns import MAX_BATCH_ROWS
from maillard.decisions.files.arrow import METADATA_KEY, batches_of, pyarrow, records_of, schema
from maillard.decisions.files.file_formats import FileFormat, WriteResult
from maillard.decisions.files.metadata import read_header, write_header
from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.files.row_codec import COLUMNS
from maillard.decisions.files.table_logs import open_table, rename_columns
from maillard.decisions.log import DecisionLog
from maillard.errors import InvalidValue

_MAX_PART_ROWS = 1_000_000  # a part is read by one worker


def write(log: DecisionLog, path: Path) -> WriteResult:
    """Write a log, one row group at a time."""
    pq = pyarrow().parquet
    columns = schema().with_metadata({METADATA_KEY: write_header(log)})
    rows = 0
    with atomic_file(path) as partial, pq.ParquetWriter(partial, columns, compression="zstd") as writer:
        for batch in batches_of(log):
            writer.write_batch(batch)
            rows += batch.num_rows
    return WriteResult(rows, 0)


def open_file(path: Path, experiment: str | None, columns: Mapping[str, str] | None = None) -> DecisionLog:
    """Open the log in a file."""
    return open_files([path], experiment, columns)


def open_files(
    paths: Sequence[Path],
    experiment: str | None,
    columns: Mapping[str, str] | None = None,
    source: str | None = None,
) -> DecisionLog:
    """Open the log in one file, or the foreign log in several consecutive files."""
    if not paths:
        raise InvalidValue("log", source, "a folder with .parquet files")
    pa, source = pyarrow(), source or str(paths[0])
    schemas = []
    for path in paths:
        if not path.is_file():
            raise InvalidValue("log", str(path), "a .parquet file that exists")
        try:
            schemas.append(pa.parquet.read_schema(path))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidValue("log", str(path), f"a Parquet file ({error})") from None
    theirs = schemas[0].names
    for path, other in zip(paths, schemas, strict=True):
        if set(other.names) != set(theirs):
            raise InvalidValue(
                f"{path}: columns", other.names, f"the columns of {paths[0]}: {', '.join(theirs)}"
            )
    ours = rename_columns(theirs, columns, source)

    parts: list[ParquetPart] = []
    string_arms = "arm" in ours and schemas[0].field(theirs[ours.index("arm")]).type in (
        pa.string(),
        pa.large_string(),
    )
    for path in paths:
        with pa.parquet.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                start = parts[-1].start + parts[-1].rows if parts else 0
                if parts and parts[-1].path == path and parts[-1].rows + rows <= _MAX_PART_ROWS:
                    last = parts.pop()
                    parts.append(
                        dataclasses.replace(last, groups=(*last.groups, group), rows=last.rows + rows)
                    )
                else:
                    parts.append(
                        ParquetPart(path, (group,), start, rows, tuple(theirs), tuple(ours), string_arms)
                    )
    header = (
        (schemas[0].metadata or {}).get(METADATA_KEY.encode())
        if len(paths) == 1 and columns is None
        else None
    )
    head = None if header is None else read_header(header, source)
    known = [name for name in ours if name in COLUMNS]

    def records() -> Iterator[Mapping[str, Any]]:
        return records_of(itertools.chain.from_iterable(part(known, 2_000) for part in parts), source)

    return open_table(records, ours, head, source, experiment, parts=parts)


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of a file. It can be pickled."""

    path: Path
    groups: tuple[int, ...]
    start: int
    rows: int
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    string_arms: bool
    "Whether the arm column contains strings."

    def __call__(self, names: Sequence[str], rows: int = MAX_BATCH_ROWS, /) -> Iterator[Any]:
        """Yield batches of these columns, with the names of this package."""
        wanted = [self.theirs[self.ours.index(name)] for name in names]
        # Dictionary encoding: a log has many rows and few arms.
        encoded = [
            theirs for theirs, name in zip(wanted, names, strict=True) if name == "arm" and self.string_arms
        ]
        pa = pyarrow()
        try:
            with pa.parquet.ParquetFile(self.path, read_dictionary=encoded) as file:
                for batch in file.iter_batches(batch_size=rows, row_groups=list(self.groups), columns=wanted):
                    yield batch.select(wanted).rename_columns(list(names))
        except (pa.ArrowException, OSError) as error:
            raise InvalidValue("log", str(self.path), f"a readable Parquet file ({error})") from None


FORMAT = FileFormat("parquet", (".parquet",), write, open_file, renames_columns=True)
