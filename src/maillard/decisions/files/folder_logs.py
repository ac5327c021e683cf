"""Opening an export folder as a log, optionally with what the live log has added or changed since.

A folder has several versions of decisions that changed after they were exported. DuckDB selects the last
version of each and sorts the decisions by state and id, on disk if they do not fit into memory. The result
is a temporary Parquet file, because an evaluation reads its log several times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from maillard.decisions.columns import MAX_BATCH_ROWS, MAX_BATCH_VALUES
from maillard.decisions.files import arrow, export_folders, parquet
from maillard.decisions.files.arrow import pyarrow
from maillard.decisions.files.export_folders import ExportedFile, Manifest
from maillard.decisions.files.increments import changes_since, opened_store
from maillard.decisions.files.metadata import Header
from maillard.decisions.files.row_codec import COLUMNS, LATER_COLUMNS
from maillard.decisions.log import DecisionLog, select_experiment
from maillard.errors import InvalidLog, MaillardError

_MEMORY = "1GB"  # for DuckDB, which sorts the rest on disk
# {closed} and {reward} differ from what was true when the row was exported: windows have closed since.
_MERGED = """
SELECT {columns}
FROM read_parquet($paths, filename = true, union_by_name = true) rows
JOIN files ON files.path = rows.filename
{last}
ORDER BY state, id
"""
# Each increment has a decision at most once.
_LAST_VERSIONS = """
JOIN (
    SELECT id AS last_id, max(increment) AS last_increment
    FROM read_parquet($paths, filename = true) versions
    JOIN files ON files.path = versions.filename
    GROUP BY id
) ON last_id = id AND last_increment = increment
"""


def open_folder(folder: Path, experiment: str | None = None, tail: Any = None) -> DecisionLog:
    """Open the log in an export folder, and with `tail` what that log has added or changed since."""
    path = export_folders.find_export(folder, experiment)
    manifest = export_folders.read_manifest(path)
    if manifest is None:
        raise InvalidLog("log", str(path), f"a folder with a {export_folders.MANIFEST}")
    name, source = manifest.header.experiment, str(path)
    select_experiment([name], experiment, source)
    export_folders.check_sizes(path, manifest.files)
    folder_of_copy = tempfile.TemporaryDirectory(prefix="maillard-")
    try:
        copy = Path(folder_of_copy.name, "merged.parquet")
        header, files, active = manifest.header, _located(path, manifest.files), False
        if tail is not None:
            header, more, active = _read_tail(tail, manifest, copy.with_name("tail.parquet"))
            files = [*files, *more]
        _merge(files, header, copy)
        log = parquet.open_files([copy], None, source=source, header=header, close=folder_of_copy.cleanup)
    except BaseException:
        folder_of_copy.cleanup()
        raise
    log.active = active
    log.changed_files = partial(_describe_changes, path, manifest.files)
    return log


def _describe_changes(folder: Path, files: Sequence[ExportedFile]) -> Iterator[str]:
    for path in export_folders.changed_files(folder, files):
        yield f"{folder / path} was changed: it does not have the SHA-256 in the manifest"


def _located(folder: Path, files: Sequence[ExportedFile]) -> list[tuple[Path, int]]:
    """The path and the increment of each file."""
    return [(folder / each.path, each.increment) for each in files]


def _read_tail(tail: Any, manifest: Manifest, path: Path) -> tuple[Header, list[tuple[Path, int]], bool]:
    """Write what a log has added or changed to a file. Returns the log's metadata and whether it may grow."""
    with (
        opened_store(tail) as (store, owned),
        changes_since(store, manifest.header.experiment, manifest, owned=owned) as changes,
        pyarrow().parquet.ParquetWriter(path, arrow.schema(), compression="lz4") as writer,
    ):
        log = changes.log
        for batch in changes.batches:
            writer.write_batch(batch)
    header = Header(log.experiment, log.number, log.events, log.parked, log.as_of, None)
    return header, [(path, manifest.increment + 1)], log.active


def _merge(files: Sequence[tuple[Path, int]], header: Header, path: Path) -> None:
    """Write the last version of each decision, ordered by state and id."""
    pa = pyarrow()
    rule = DecisionLog(tuple, experiment=header.experiment, source="", events=header.events).reward
    arms = DecisionLog(tuple, experiment=header.experiment, source="", events=header.events).arms
    assert rule is not None  # a manifest has events
    window = rule.closes(0)
    closed = "false" if window is None else f"epoch_us(time) + {window} <= {header.as_of}"
    derived = {"closed": closed, "reward": "reward"}
    if rule.default is not None:
        derived["reward"] = f"CASE WHEN reward IS NULL AND {closed} THEN $default ELSE reward END"
    exported = {name for each, _ in files for name in pa.parquet.read_schema(each).names}
    derived |= dict.fromkeys(LATER_COLUMNS - exported, "NULL")  # an earlier version wrote these files
    columns = ", ".join(f"{derived[name]} AS {name}" if name in derived else name for name in COLUMNS)
    several = len({increment for _, increment in files}) > 1
    query = _MERGED.format(columns=columns, last=_LAST_VERSIONS if several else "")
    parameters: dict[str, Any] = {"paths": [str(each) for each, _ in files]}
    if rule.default is not None:
        parameters["default"] = rule.default
    types = pa.schema(list(arrow.column_types().items()))
    # As large as the batches of a log in a store, so that sums are equal to the last bit.
    rows = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_VALUES // max(len(arms), 1)))
    with pa.parquet.ParquetWriter(path, types, compression="lz4") as writer:
        for table in _tables(files, query, parameters, path.parent, rows) if files else ():
            writer.write_table(table.cast(types), row_group_size=rows)


def _tables(
    files: Sequence[tuple[Path, int]], query: str, parameters: dict[str, Any], folder: Path, rows: int
) -> Iterator[Any]:
    """Run a query over files; yields tables of `rows` rows."""
    pa, duckdb = pyarrow(), _duckdb()
    settings = {"memory_limit": _MEMORY, "temp_directory": str(folder), "autoinstall_known_extensions": False}
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register(
            "files",
            pa.table({"path": [str(path) for path, _ in files], "increment": [each for _, each in files]}),
        )
        try:
            pending: list[Any] = []
            for batch in connection.sql(query, params=parameters).to_arrow_reader(rows):
                pending.append(batch)
                while sum(each.num_rows for each in pending) >= rows:
                    table = pa.Table.from_batches(pending)
                    yield table.slice(0, rows)
                    pending = table.slice(rows).to_batches()
            if pending:
                yield pa.Table.from_batches(pending)
        except duckdb.Error as error:
            raise InvalidLog(str(files[0][0].parent.parent), str(error), "readable Parquet files") from None


def _duckdb() -> Any:
    """Import DuckDB, or raise an error that tells how to install it."""
    try:
        import duckdb
    except ImportError:
        reason = "folders of exported increments need duckdb"
        raise MaillardError(f"{reason}: pip install 'maillard[decisions]'") from None
    return duckdb
