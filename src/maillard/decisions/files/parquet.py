"""The table of a log as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maillard.decisions.files import Written, whole
from maillard.decisions.files.arrow import KEY, batches_of, pyarrow, records_of, schema
from maillard.decisions.files.metadata import read_header, write_header
from maillard.decisions.files.tables import open_table
from maillard.decisions.log import DecisionLog
from maillard.errors import InvalidValue

__all__ = ["open_file", "write"]


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


def open_file(path: Path, experiment: str | None) -> DecisionLog:
    """The log in a file."""
    pa = pyarrow()
    try:
        columns = pa.parquet.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidValue("log", str(path), f"a Parquet file ({error})") from None

    def batches() -> Iterator[Any]:
        with pa.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=2_000)

    header = (columns.metadata or {}).get(KEY.encode())
    head = None if header is None else read_header(header, str(path))
    return open_table(lambda: records_of(batches(), str(path)), columns.names, head, str(path), experiment)
