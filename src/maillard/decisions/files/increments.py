"""Exports of what has changed: the decisions that a log has added or changed since the last increment.

The links of the hash chain tell which decisions these are. An increment is read in one read-only transaction,
a bounded number of rows at a time, and written as one Parquet file for each day.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maillard.decisions import chain
from maillard.decisions.bandit import Bandit
from maillard.decisions.events import AdministrativeEvent, EraseUnit, Prune
from maillard.decisions.files import arrow, column_batches, export_folders, parquet, sql_batches
from maillard.decisions.files.arrow import pyarrow
from maillard.decisions.files.export_folders import ExportedFile, Manifest
from maillard.decisions.files.output_files import TEMPORARY, synchronize_file, synchronize_folder
from maillard.decisions.files.store_transfer import contents_of
from maillard.decisions.log import DecisionLog, select_experiment
from maillard.decisions.log_locations import redact
from maillard.decisions.pruned_logs import last_prune
from maillard.decisions.stores import Store, is_store, open_store
from maillard.decisions.stores.bulk_columns import OddRows, bytes_of_ids, id_texts
from maillard.decisions.stores.contract import Row, Transaction
from maillard.decisions.stores.sql import SQLTransaction
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import Conflict, InvalidLog, InvalidValue

_MAX_LINKS, _MAX_EVENTS, _MAX_IDS = 1_000, 50_000, 2_000  # read at once
_MAX_OPEN_FILES = 64
_DAY = 86_400_000_000  # microseconds

OnRows = Callable[[int], None]


class Increment(NamedTuple):
    """The result of an incremental export."""

    folder: str
    "The folder of the experiment."
    experiment: str
    rows: int
    "Decisions that were written: new ones, and those that have changed."
    files: int
    commit: int
    "The last commit of the hash chain that is in the folder."


class Changes(NamedTuple):
    """What a log has added or changed since an export."""

    log: DecisionLog
    "The log as it is now. Its rows are those that were added or changed."
    commit: int
    hash: str
    complete: bool
    "Whether the rows are all rows of the log."
    batches: Iterator[Any]
    "The rows as Arrow batches, to be read once."


def export_changes(
    log: str | Path | Bandit | Store,
    folder: str | Path,
    experiment: str | None = None,
    *,
    on_rows: OnRows | None = None,
) -> Increment:
    """Implements `maillard.decisions.export_changes`."""
    with opened_store(log) as (store, owned):
        if isinstance(log, Bandit):
            experiment = experiment or log.experiment
        name = select_experiment(store.experiments(), experiment, store.where)
        target = _made(Path(folder) / export_folders.folder_name(name))
        with export_folders.exclusive(target):
            before = export_folders.read_manifest(target)
            if before is not None and before.header.experiment != name:
                allowed = f"an export of {name!r}; choose another folder"
                raise InvalidValue(str(target), before.header.experiment, allowed)
            export_folders.remove_strays(target, before.files if before else ())
            with changes_since(store, name, before, owned=owned) as changes:
                return _write(target, before, changes, on_rows)


@contextmanager
def opened_store(log: Any) -> Iterator[tuple[Store, bool]]:
    """Open the store of a log for reading; yields it and whether it is closed at the end of the block."""
    if isinstance(log, Bandit) or is_store(log):
        yield (log._store if isinstance(log, Bandit) else log), False
        return
    if not isinstance(log, str | Path):
        raise InvalidValue("log", redact(log), "a path, a postgresql:// URL, a store or a Bandit")
    store = open_store(log, create=False, read_only=True)
    try:
        yield store, True
    finally:
        store.close()


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue("folder", str(folder), f"a folder ({error.strerror})") from None
    return folder


# Reading.


@contextmanager
def changes_since(store: Store, name: str, before: Manifest | None, *, owned: bool) -> Iterator[Changes]:
    """Begin a read-only transaction, and find what has changed since an export; None: everything."""
    with store.scanning(name) as transaction:
        contents = contents_of(transaction, name, store.where, owned=owned)
        head = chain.head_of(transaction.last_link())
        # Without a chain there is no telling what has changed.
        complete = before is None or before.commit == 0
        ids = None
        if before is not None and not complete:
            _check_extends(transaction, before, last_prune(contents.events), store.where)
            ids = _changed_ids(transaction, before, contents.number, contents.events)

        log = contents.open(partial(_rows, transaction, ids, store.where), lambda: store.reading(name))
        with closing(_batches(transaction, log, ids, store.where)) as batches:  # before the transaction ends
            yield Changes(log, head.commit, head.hash, complete, batches)


def _batches(transaction: Transaction, log: DecisionLog, ids: Any, where: str) -> Generator[Any, None, None]:
    """Yield the rows with these ids, or all rows, as Arrow batches of bounded size."""
    if not isinstance(transaction, SQLTransaction):
        return arrow.plain_batches(log)
    size = column_batches.batch_size(log)
    if ids is None:
        return sql_batches.all_batches(transaction, log, size)
    return _complete_batches(transaction, log, ids, where, size)


def _complete_batches(
    transaction: SQLTransaction, log: DecisionLog, ids: Any, where: str, size: int
) -> Generator[Any, None, None]:
    """Yield the rows with these ids as Arrow batches; all of them must exist."""
    texts = (id_texts(each) for each in _parts(ids, size))
    for wanted, found in sql_batches.batches_of(transaction, log, texts):
        if sum(batch.num_rows for batch in found) < wanted.size:
            known = itertools.chain.from_iterable(batch.column("id").to_pylist() for batch in found)
            _refuse_missing(wanted.astype(str).tolist(), known, where)
        yield from found


def _check_extends(transaction: Transaction, before: Manifest, prune: Prune | None, where: str) -> None:
    """Raise Conflict unless the log has the last commit of the export, or has pruned exactly up to it."""
    if prune is not None and (prune.commit, prune.hash) == (before.commit, before.hash):
        return
    links = transaction.links(before.commit - 1, 1)
    if links and links[0].number == before.commit and links[0].hash.hex() == before.hash:
        return
    found = "has another hash" if links and links[0].number == before.commit else "is missing"
    raise Conflict(
        f"{where} does not continue the log that was exported: commit {before.commit} {found}. "
        "The log was replaced, or restored from an older backup. Export it to a new folder"
    )


def _changed_ids(
    transaction: Transaction, before: Manifest, number: int, events: Sequence[AdministrativeEvent]
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The ids of the decisions that were added or changed, as pairs of numbers, sorted, each once."""
    found: list[Any] = [np.zeros((0, 2), ">u8")]
    after = before.commit
    while links := transaction.links(after, _MAX_LINKS):
        after = links[-1].number
        found.append(_ids_in(b"".join(link.decisions for link in links), chain.ID_SIZE))
        found.append(_ids_in(b"".join(link.rewards for link in links), chain.REWARD_KEY_SIZE))
    for first in range(before.header.number, number, _MAX_EVENTS):
        ids = transaction.updated_decisions(first, first + _MAX_EVENTS)
        found.append(_ids_in(_bytes_of(ids), chain.ID_SIZE))
    # Erasing a unit changes its decisions without a link that names them.
    later = [each for each in events if each.number > before.header.number]
    tokens = [each.token for each in later if isinstance(each, EraseUnit)]
    if tokens:
        ids = transaction.decisions_of_units(tokens)
        found.append(_ids_in(_bytes_of(ids), chain.ID_SIZE))
    pairs = np.concatenate(found).astype(np.uint64)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]  # much faster than `np.unique` of rows
    new = np.ones(len(pairs), np.bool_)
    new[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    distinct: np.ndarray[Any, np.dtype[np.uint64]] = pairs[new]
    return distinct


def _bytes_of(ids: list[str]) -> bytes:
    try:
        return bytes_of_ids(ids).tobytes()
    except OddRows:  # an error names the id
        return b"".join(map(chain.id_bytes, ids))


def _ids_in(data: bytes, size: int) -> Any:
    """The ids at the beginning of each `size` bytes, as pairs of big-endian numbers."""
    table = np.frombuffer(data, np.uint8).reshape(-1, size)[:, : chain.ID_SIZE]
    return np.ascontiguousarray(table).view(">u8")


def _rows(transaction: Transaction, ids: Any, where: str) -> Iterator[Row]:
    """Yield the rows with these ids, or all rows; the plain version of `_batches`."""
    found: Iterable[Row] = transaction.rows()
    if ids is not None:
        parts = map(chain.id_texts, _parts(ids, _MAX_IDS))
        chunks = (_complete(transaction.rows_of(each), each, where) for each in parts)
        found = itertools.chain.from_iterable(chunks)
    for decision, rewards, applied in found:
        ordered = sorted(rewards, key=lambda each: (each.arrived, each.event))
        yield Row(decision, tuple(ordered), applied)


def _parts(ids: Any, size: int) -> Iterator[bytes]:
    """Yield the bytes of at most `size` ids at a time."""
    for start in range(0, len(ids), size):
        yield np.ascontiguousarray(ids[start : start + size], ">u8").tobytes()


def _complete(rows: list[Row], ids: list[str], where: str) -> list[Row]:
    """Return rows of decisions if none of these ids is missing."""
    if len(rows) < len(ids):
        _refuse_missing(ids, (row.decision.id for row in rows), where)
    return rows


def _refuse_missing(ids: Iterable[str], found: Iterable[str], where: str) -> None:
    allowed = "a decision in the log; it was removed before it was exported"
    raise InvalidLog(f"{where}: decision", min(set(ids) - set(found)), allowed)


# Writing.


def _write(target: Path, before: Manifest | None, changes: Changes, on_rows: OnRows | None) -> Increment:
    """Write an increment: the files first, then the manifest."""
    log = changes.log
    last = before or export_folders.new_manifest(log)
    kept = () if changes.complete else last.files
    first, increment = (1 if changes.complete else last.commit + 1), last.increment + 1
    names = _FileNames(target, f"commits-{first}-{changes.commit}")
    with DayFiles(target, names, increment) as writer:
        for _ in parquet.written(changes.batches, writer.write):
            if on_rows is not None:
                on_rows(writer.rows)
        files = writer.finish()
    made = Manifest(last.header, changes.commit, changes.hash, increment, (*kept, *files))
    export_folders.write_manifest(target, log, made)
    return Increment(str(target), log.experiment, writer.rows, len(files), changes.commit)


class _FileNames:
    """Paths of new files, relative to the folder of an experiment."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._taken: set[str] = set()

    def __call__(self, day: str) -> str:
        for number in itertools.count(1):
            path = f"day={day}/{self._name}{f'-{number}' if number > 1 else ''}.parquet"
            if path not in self._taken and not (self._folder / path).exists():
                break
        self._taken.add(path)
        return path


class _OpenFile(NamedTuple):
    temporary: Path
    path: str
    writer: Any


class DayFiles:
    """Writes rows to a Parquet file for each day, under temporary names until `finish`."""

    def __init__(self, folder: Path, name: Callable[[str], str], increment: int) -> None:
        self._folder, self._name, self._increment = folder, name, increment
        self._open: dict[int, _OpenFile] = {}  # by day, the one that was used last is at the end
        self._closed: list[tuple[_OpenFile, int]] = []
        self.rows = 0

    def write(self, batch: Any) -> None:
        """Write a batch of rows, each to the file of its day."""
        days = batch.column("time").cast(pyarrow().int64()).to_numpy() // _DAY
        for day in np.unique(days).tolist():
            chosen = days == day
            part = batch if chosen.all() else batch.filter(pyarrow().array(chosen))
            self._file(day).writer.write_batch(part)
        self.rows += batch.num_rows

    def _file(self, day: int) -> _OpenFile:
        file = self._open.pop(day, None)
        if file is None:
            if len(self._open) >= _MAX_OPEN_FILES:
                self._close(next(iter(self._open)))
            temporary = self._folder / f"{TEMPORARY}{secrets.token_hex(8)}"
            writer = pyarrow().parquet.ParquetWriter(temporary, arrow.schema(), **parquet.OPTIONS)
            file = _OpenFile(temporary, self._name(from_microseconds(day * _DAY).date().isoformat()), writer)
        self._open[day] = file
        return file

    def _close(self, day: int) -> None:
        file = self._open.pop(day)
        file.writer.close()
        self._closed.append((file, pyarrow().parquet.read_metadata(file.temporary).num_rows))

    def finish(self) -> list[ExportedFile]:
        """Give the files their names, durably."""
        for day in list(self._open):
            self._close(day)
        made = []
        for file, rows in self._closed:
            synchronize_file(file.temporary)
            size, digest = file.temporary.stat().st_size, export_folders.digest_of_file(file.temporary)
            final = self._folder / file.path
            final.parent.mkdir(exist_ok=True)
            file.temporary.rename(final)
            made.append(ExportedFile(file.path, self._increment, rows, size, digest))
        for folder in {(self._folder / each.path).parent for each in made} | {self._folder}:
            synchronize_folder(folder)
        return made

    def __enter__(self) -> DayFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.writer.close()
        for file in (*self._open.values(), *(each for each, _ in self._closed)):
            file.temporary.unlink(missing_ok=True)
