"""Rows of a SQL store as Arrow batches, without an object for each row.

`arrow.plain_batches` is the plain version. It also handles batches that this module does not: those with rows
that are damaged, or that an earlier version wrote with distributions as text.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, RewardEvent
from maillard.decisions.events import UPDATE_KINDS
from maillard.decisions.files import arrow
from maillard.decisions.files.arrow import pyarrow
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.sql import SQLTransaction
from maillard.decisions.stores.vectors import read_arms, read_vector
from maillard.decisions.timestamps import END_OF_TIME

_MAX_WHOLE = 2**62
_Columns = list[tuple[Any, ...]]


class _Unusual(Exception):
    """A batch that only the plain version handles."""


def batches_of_chunks(
    transaction: SQLTransaction, log: DecisionLog, chunks: Generator[list[Any], None, None]
) -> Generator[Any, None, None]:
    """Yield a batch for each chunk of rows of decisions, given as the tables have them."""
    unusual = (_Unusual, ValueError, TypeError, KeyError, OverflowError, pyarrow().ArrowException)
    with closing(chunks):
        for chunk in chunks:
            ids = [row[0] for row in chunk]
            try:
                batch = _batch(log, chunk, transaction.raw_rewards(ids), transaction.raw_updates(ids))
            except unusual:
                yield from arrow.plain_batches(log, transaction.with_rewards(chunk))
            else:
                yield batch


def _batch(log: DecisionLog, chunk: list[Any], rewards: list[Any], updates: list[Any]) -> Any:
    pa, types = pyarrow(), arrow.schema()
    columns: _Columns = list(zip(*chunk, strict=True))
    ids, time, unit, arm, chosen, _, _, version, formula, state, epoch, *rest = columns
    cold, key, position, origin, _, names, data, context, actions, encoded, features = rest
    _require(set(encoded) == {None} and set(features) == {None} and set(actions) == {None})
    times, logs = _whole(time, END_OF_TIME - 1), np.array(chosen, np.float64)
    _require((logs <= LOG_PROBABILITY_TOLERANCE).all())
    _require(all(each in read_arms(listed) for listed, each in set(zip(names, arm, strict=True))))
    eligible, log_probabilities = _distributions(names, data)
    place = {identifier: row for row, identifier in enumerate(ids)}
    _require(len(place) == len(ids))
    events = _Events.of(rewards, place, 6)
    applied = _Events.of(updates, place, 8)
    made = {
        "id": ids, "time": times, "unit": unit, "arm": arm, "log_probability": logs,
        "probability": [math.exp(each) for each in chosen], "policy_version": _whole(version),
        "formula_version": _whole(formula), "state": _whole(state), "epoch": _whole(epoch),
        "cold": _whole(cold, 1).astype(np.bool_), "idempotency_key": key, "position": _whole(position),
        "origin": origin, "closed": _closed(log, times), "context": context, "actions": actions,
        "encoded": encoded, "feature_version": np.zeros(len(ids), np.int64),
    }  # fmt: skip
    arrays = {name: pa.array(values, types.field(name).type) for name, values in made.items()}
    specs = sorted(log.policies)
    _require(set(version) <= set(specs))
    arrays |= {
        "experiment": pa.array([log.experiment], pa.string()).take(pa.array(np.zeros(len(ids), np.int32))),
        "policy": pa.DictionaryArray.from_arrays(
            pa.array(np.searchsorted(specs, version), pa.int32()), [log.policies[each] for each in specs]
        ),
        "eligible": eligible,
        "log_probabilities": log_probabilities,
        "reward": _rewards(log, made["closed"], events, applied),
        "rewards": _reward_lists(events, types.field("rewards").type),
        "applied": _applied_lists(applied, types.field("applied").type),
    }
    return pa.record_batch([arrays[name] for name in types.names], schema=types)


def _require(condition: Any) -> None:
    if not condition:
        raise _Unusual


def _whole(values: Sequence[Any], high: int = _MAX_WHOLE) -> Ints:
    """The values as integers from 0 to `high`."""
    array = np.array(values)
    _require(array.dtype == np.int64)
    _require(not array.size or 0 <= array.min() <= array.max() <= high)
    return array


def _closed(log: DecisionLog, times: Ints) -> Bools:
    assert log.reward is not None  # a log in a store has events
    window = log.reward.closes(0)
    return np.zeros(times.size, np.bool_) if window is None else times + window <= log.as_of


def _distributions(names: Sequence[Any], data: Sequence[Any]) -> tuple[Any, Any]:
    """The lists of eligible arms, and of log probabilities."""
    pa = pyarrow()
    # Decisions of one state share a distribution.
    places: dict[tuple[str, bytes], int] = {}
    index = [places.setdefault(pair, len(places)) for pair in zip(names, data, strict=True)]
    rows = pa.array(index, pa.int32())
    lists = list(dict.fromkeys(names))
    number = {each: place for place, each in enumerate(lists)}
    arms = pa.array([read_arms(each) for each in lists], pa.list_(pa.string()))
    eligible = arms.take(pa.array([number[each] for each in names], pa.int32()))
    sizes = {each: len(read_arms(each)) for each in lists}
    if all(len(content) == 8 * sizes[listed] for listed, content in places):
        values = np.frombuffer(b"".join(content for _, content in places), "<f8").astype(np.float64)
        _require((values <= LOG_PROBABILITY_TOLERANCE).all())  # NaN is not
        offsets = np.cumsum([0, *(sizes[listed] for listed, _ in places)])
        vectors = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values))
    else:  # some are compressed
        vectors = pa.array([read_vector(*pair)[1] for pair in places], pa.list_(pa.float64()))
    return eligible, vectors.take(rows)


class _Events(NamedTuple):
    """Reward events or tally updates, ordered by the row of their decision."""

    columns: _Columns
    row: Ints
    offsets: Any
    "Where the events of each row begin."

    @classmethod
    def of(cls, events: list[Any], place: dict[str, int], width: int) -> _Events:
        """Order the rows of a table. The position of the decision's id in a row follows from the width."""
        decision = 0 if width == 6 else 3
        row = np.fromiter((place[each[decision]] for each in events), np.int64, len(events))
        order = np.argsort(row, kind="stable")
        columns = list(zip(*(events[each] for each in order.tolist()), strict=True)) or [()] * width
        counts = np.bincount(row, minlength=len(place))
        return cls(columns, row[order], pyarrow().array(np.append(0, np.cumsum(counts)), pyarrow().int32()))


def _lists(events: _Events, kind: Any, fields: dict[str, Any]) -> Any:
    pa = pyarrow()
    arrays = [pa.array(fields[each.name], each.type) for each in kind.value_type]
    structs = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(events.offsets, structs, type=kind)


def _numbers(values: Sequence[Any]) -> Floats:
    array = np.array(values, np.float64)
    _require(np.isfinite(array).all())
    return array


def _reward_lists(events: _Events, kind: Any) -> Any:
    _, event, value, at, arrived, late = events.columns
    fields = {
        "event": event, "value": _numbers(value), "at": _whole_or_none(at, END_OF_TIME - 1),
        "arrived": _whole_or_none(arrived, END_OF_TIME - 1),
        "late": _whole_or_none(late, 1).astype(np.bool_),
    }  # fmt: skip
    return _lists(events, kind, fields)


def _whole_or_none(values: Sequence[Any], high: int = _MAX_WHOLE) -> Ints:
    return _whole(values, high) if values else np.zeros(0, np.int64)


def _applied_lists(events: _Events, kind: Any) -> Any:
    number, name, time, _, arm, value, previous, payload = events.columns
    _require(set(name) <= set(UPDATE_KINDS) and set(payload) <= {None} and None not in arm)
    revisions = zip(name, previous, strict=True)
    _require(all((each == "revision") == (before is not None) for each, before in revisions))
    _numbers([each for each in previous if each is not None])
    fields = {
        "number": _whole_or_none(number), "kind": name, "value": _numbers(value),
        "previous": previous, "time": _whole_or_none(time, END_OF_TIME - 1),
    }  # fmt: skip
    return _lists(events, kind, fields)


def _rewards(log: DecisionLog, closed: Any, events: _Events, applied: _Events) -> Any:
    """The reward of each decision, as `DecisionLog.reward_of` derives it."""
    rule = log.reward
    assert rule is not None  # a log in a store has events
    n = len(closed)
    _, names, values, at, arrived, late = events.columns
    timely = np.array(late, np.int64) == 0
    count = np.bincount(events.row[timely], minlength=n)
    reward = np.full(n, np.nan)
    reward[events.row[timely]] = np.clip(np.array(values, np.float64)[timely], *rule.bounds)
    starts = events.offsets.to_numpy()
    for row in np.flatnonzero(count > 1).tolist():
        several = [
            RewardEvent("", names[each], values[each], at[each], arrived[each], late[each] == 1)
            for each in range(starts[row], starts[row + 1])
        ]
        total = rule.total(several)
        reward[row] = math.nan if total is None else total
    if rule.default is not None:
        reward[(count == 0) & closed] = rule.default
    if rule.learn != "provisional":
        kinds = np.array(applied.columns[1], np.object_)
        defaults = np.flatnonzero(kinds == "default")[::-1]  # the first one of a decision counts
        reward[applied.row[defaults]] = np.array(applied.columns[5], np.float64)[defaults]
    return pyarrow().array(reward, mask=np.isnan(reward))
