"""Backups of SQLite logs: a consistent copy of a log that may be in use, complete or not there at all."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.log_locations import is_postgresql
from maillard.decisions.stores import open_store
from maillard.decisions.stores.sqlite_files import log_path, open_read_only
from maillard.errors import InvalidLog, InvalidValue, MaillardError


class Backup(NamedTuple):
    """What a backup contains."""

    path: Path
    experiments: int
    decisions: int
    size: int
    "Bytes of the file."


def back_up(log: str | Path, target: str | Path) -> Backup:
    """Copy a SQLite log to a new file that only its owner can read, and check the copy.

    The log may be in use. The copy has everything that was committed before the call, is one file without a
    write-ahead log, and is on disk when this returns. The same call, with the backup as the log, restores it.
    """
    for name, given in (("log", log), ("target", target)):
        if is_postgresql(str(given)):
            raise InvalidValue(name, "postgresql...", "the path of a SQLite log (use pg_dump for PostgreSQL)")
    open_store(str(log), read_only=True, create=False).close()  # it is a log of this version or an older one
    source, path = log_path(str(log), create=False), _check_target(target)
    with atomic_file(path) as temporary:
        temporary.chmod(0o600)
        try:
            experiments, decisions = _copy(source, temporary)
        except sqlite3.Error as error:
            raise MaillardError(f"the backup of {source} to {path} failed: {error}") from None
        _flush(temporary)
        size = temporary.stat().st_size
    _flush(path.parent)  # the new name
    return Backup(path, experiments, decisions, size)


def _copy(source: Path, target: Path) -> tuple[int, int]:
    """Copy a database and check the copy; returns the numbers of experiments and decisions."""
    with closing(open_read_only(source)) as reading, closing(sqlite3.connect(target)) as writing:
        # One step: a backup in several steps starts again whenever another process writes to the log.
        reading.backup(writing, pages=-1)
        writing.execute("PRAGMA journal_mode = DELETE")  # one file, also while it is read
        found = [row[0] for row in writing.execute("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            raise InvalidLog("log", str(source), f"an undamaged SQLite file ({found[0]})")
        counts = "SELECT (SELECT count(*) FROM experiments), (SELECT count(*) FROM decisions)"
        experiments, decisions = writing.execute(counts).fetchone()
        return experiments, decisions


def _check_target(target: str | Path) -> Path:
    path = log_path(str(target), create=True)
    # SQLite would apply a write-ahead log that was left behind by another database of this name.
    for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))):
        if each.exists() or each.is_symlink():
            raise InvalidValue("target", str(target), f"a new file ({each} exists; move it away first)")
    return path


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
