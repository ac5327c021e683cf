"""The table of a log as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maillard.decisions.columns import MOST_ROWS
from maillard.decisions.files import Written, whole
from maillard.decisions.files.arrow import KEY, batches_of, pyarrow, records_of, schema
from maillard.decisions.files.metadata import read_header, write_header
from maillard.decisions.files.records import COLUMNS
from maillard.decisions.files.tables import open_table, renamed
from maillard.decisions.log import DecisionLog
from maillard.errors import InvalidValue

__all__ = ["open_files", "write"]


def write(log: DecisionLog, path: Path) -> Written:
    """Write the table, a row group at a time."""
    pq = pyarrow().parquet
    columns = schema().with_metadata({KEY: write_header(log)})
    rows = 0
    with whole(path) as partial, pq.ParquetWriter(partial, columns, compression="zstd") as writer:
        for batch in batches_of(log):
            writer.write_batch(batch)
            rows += batch.num_rows
    return Written(rows, 0)


def open_files(
    paths: Sequence[Path],
    experiment: str | None,
    columns: Mapping[str, str] | None = None,
    source: str | None = None,
) -> DecisionLog:
    """The log in a file; or in several, one after the other, which then is a foreign one."""
    pa, source = pyarrow(), source or str(paths[0])
    schemas = []
    for path in paths:
        try:
            schemas.append(pa.parquet.read_schema(path))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidValue("log", str(path), f"a Parquet file ({error})") from None
    theirs = schemas[0].names
    for path, other in zip(paths, schemas, strict=True):
        if set(other.names) != set(theirs):
            raise InvalidValue(f"{path}: columns", other.names, f"those of {paths[0]}: {', '.join(theirs)}")
    ours = renamed(theirs, columns, source)

    def batches(names: Sequence[str], rows: int = MOST_ROWS) -> Iterator[Any]:
        wanted = [theirs[ours.index(name)] for name in names]
        for path in paths:
            with pa.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=rows, columns=wanted):
                    yield batch.select(wanted).rename_columns(list(names))

    header = (schemas[0].metadata or {}).get(KEY.encode()) if len(paths) == 1 and columns is None else None
    head = None if header is None else read_header(header, source)
    known = [name for name in ours if name in COLUMNS]

    def records() -> Iterator[Mapping[str, Any]]:
        return records_of(batches(known, 2_000), source)

    return open_table(records, ours, head, source, experiment, batches=batches)
