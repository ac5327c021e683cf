"""The rows of a SQL store as Arrow batches in one transaction, without an object for each row.

SQLite logs are read in bulk (see `bulk_reads`). Rows of PostgreSQL, and those that cannot be read in bulk,
are converted a chunk at a time, and a chunk that is unusual row by row, with `arrow.plain_batches`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.decisions.files import arrow
from maillard.decisions.files.column_batches import batch_of, batch_of_part
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.bulk_columns import Arrays, OddRows, codes_of, columns_of_rows
from maillard.decisions.stores.bulk_reads import DECISION_TYPES, REWARD_TYPES, UPDATE_TYPES, check_updates
from maillard.decisions.stores.bulk_vectors import VectorTable, decode
from maillard.decisions.stores.native_reads import packed_reader
from maillard.decisions.stores.raw_rows import RawRows, moved
from maillard.decisions.stores.sql import SQLTransaction
from maillard.decisions.stores.sql_rows import DECISION, EVENT
from maillard.decisions.stores.vectors import read_arms

# The columns of `sql_rows.DECISION` and `sql_rows.EVENT`, in their order.
_KINDS = {**DECISION_TYPES, "names": "text", "data": "bytes"}
_DECISION_TYPES = {name: _KINDS[name] for name in (each.split(".")[1] for each in DECISION.split(", "))}
_EVENT_TYPES = {name: UPDATE_TYPES[name] for name in EVENT.split(", ")}


def all_batches(transaction: SQLTransaction, log: DecisionLog, size: int) -> Generator[Any, None, None]:
    """Yield all rows, ordered by state and id, in batches of at most `size`."""
    done = 0
    try:
        for batch in _read_all(transaction, log, size):
            yield batch
            done += batch.num_rows
    except OddRows:
        with closing(transaction.raw_decisions(size)) as chunks:
            for chunk in chunks:
                done, rest = max(done - len(chunk), 0), chunk[done:]
                yield from _batches_of_chunk(transaction, log, rest)


def _read_all(transaction: SQLTransaction, log: DecisionLog, size: int) -> Iterator[Any]:
    reader = packed_reader(transaction)
    for part in reader.raw_rows(size=size):
        yield batch_of_part(log, reader, part, arrow.schema())


def batches_of(
    transaction: SQLTransaction, log: DecisionLog, ids: Iterable[NDArray[np.bytes_]]
) -> Iterator[tuple[NDArray[np.bytes_], list[Any]]]:
    """Yield each of some arrays of sorted ids with the batches of those of these decisions that exist."""
    reader = None
    with suppress(OddRows):
        reader = packed_reader(transaction)
    for some in ids:
        try:
            if reader is None:
                raise OddRows("the store has no bulk reads")  # noqa: TRY301  # one place for all reasons
            part = reader.rows_of(some)
            found = [batch_of_part(log, reader, part, arrow.schema())] if len(part) else []
        except OddRows:
            chunk = transaction.raw_decisions_of(some.astype(str).tolist())
            found = list(_batches_of_chunk(transaction, log, chunk))
        yield some, found


def _batches_of_chunk(transaction: SQLTransaction, log: DecisionLog, chunk: list[Any]) -> Iterator[Any]:
    """Yield the batches of some rows of `sql_rows.DECISION`."""
    if not chunk:
        return
    try:
        decisions = columns_of_rows(chunk, _DECISION_TYPES)
        ids = decisions["id"].tolist()
        rewards = columns_of_rows(transaction.raw_rewards(ids), {**REWARD_TYPES})
        updates = columns_of_rows(transaction.raw_updates(ids), _EVENT_TYPES)
        rows = RawRows(decisions, _with_rows(rewards, ids), _with_rows(updates, ids))
        check_updates(rows.updates)
        batch = batch_of(log, rows, *_vectors(decisions), arrow.schema())
    except OddRows:
        yield from arrow.plain_batches(log, transaction.with_rewards(chunk))
    else:
        yield batch


def _with_rows(columns: Arrays, ids: list[str]) -> Arrays:
    """Add the position of the decision of each row, and sort the rows by it."""
    place = {identifier: row for row, identifier in enumerate(ids)}
    if len(place) < len(ids):
        raise OddRows("an id occurs twice")
    columns = {name: each for name, each in columns.items() if name not in ("decision", "payload")} | {
        "row": codes_of(columns["decision"], place)
    }
    return moved(columns, np.arange(len(ids)))


def _vectors(decisions: Arrays) -> tuple[VectorTable, NDArray[np.int64]]:
    """Return the distributions of decisions, and the index of each decision's."""
    places: dict[tuple[str, bytes], int] = {}
    pairs = zip(decisions["names"].tolist(), decisions["data"].tolist(), strict=True)
    vector = np.array([places.setdefault(pair, len(places)) for pair in pairs], np.int64)
    lists = {names: code for code, names in enumerate(dict.fromkeys(names for names, _ in places))}
    try:
        sets = [read_arms(names) for names in lists]
    except (TypeError, ValueError, RecursionError) as error:
        raise OddRows("a list of arms is malformed") from error
    code = np.array([lists[names] for names, _ in places], np.int64)
    width = np.array([len(each) for each in sets], np.int64)[code]
    number = np.arange(len(places))
    logs = decode([data for _, data in places], 8 * width)
    return VectorTable(number, np.zeros_like(number), code, sets, np.cumsum(width), logs), vector
