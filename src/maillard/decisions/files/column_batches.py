"""The table of a log in a SQLite store, made from columns: without an object for each row.

The batches have the values that `arrow.plain_batches` makes from rows, which is the reference. A log that
`PackedReader` cannot read raises `OddRows`; then the caller starts again with the reference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.columns import MAX_BATCH_ROWS, MAX_BATCH_VALUES
from maillard.decisions.decision import RewardEvent
from maillard.decisions.events import UPDATE_KINDS
from maillard.decisions.files.row_codec import APPLIED, REWARDS
from maillard.decisions.log import DecisionLog
from maillard.decisions.log_arrays import DEFAULT
from maillard.decisions.reward_rule import Reward
from maillard.decisions.stores.bulk_columns import Arrays, OddRows, codes_of
from maillard.decisions.stores.bulk_reads import BulkReader
from maillard.decisions.stores.bulk_vectors import VectorTable
from maillard.decisions.stores.native_reads import packed_reader
from maillard.decisions.stores.raw_rows import RawRows
from maillard.decisions.stores.text_columns import Names, Texts


def column_batches(log: DecisionLog, schema: Any) -> Iterator[Any]:
    """Yield the table of a log in batches of bounded size; raise OddRows if it must be read row by row."""
    if not log.selection.selects_all:
        raise OddRows("the log is a selection")
    if log.read_chain is None or log.reward is None:
        raise OddRows("the log is not in a store")
    done = 0
    with log.read_chain() as transaction:
        reader = packed_reader(transaction)
        following = transaction.events(log.number, through=log.number + 1)
        end = following[0].time if following else None
        for rows in reader.raw_rows(size=batch_size(log)):
            part = rows.without_later(log.number, end, log.reward.learn)
            if not len(part):
                continue
            yield batch_of_part(log, reader, part, schema)
            done += len(part)
            if log.on_rows is not None:
                log.on_rows(done)


def batch_size(log: DecisionLog) -> int:
    """Return the number of rows of a batch."""
    return max(1, min(MAX_BATCH_ROWS, MAX_BATCH_VALUES // max(len(log.arms), 1)))


def batch_of_part(log: DecisionLog, reader: BulkReader, part: RawRows, schema: Any) -> Any:
    """Return the batch of some rows that were read in bulk."""
    state = part.decisions["state"]
    vectors = reader.vectors_of(state)
    return batch_of(log, part, vectors, vectors.find(state, part.decisions["variant"]), schema)


def batch_of(log: DecisionLog, part: RawRows, vectors: VectorTable, vector: Ints, schema: Any) -> Any:
    """Return the batch of some rows; `vector` is the index of each decision's distribution."""
    import pyarrow as pa

    rule = log.reward
    assert rule is not None  # a log in a store has events
    decisions, updates = part.decisions, part.updates
    rewards = _in_order_of_arrival(part.rewards)
    n, logs = len(part), decisions["log_probability"]
    closes = rule.closes(0)
    closed = np.zeros(n, np.bool_) if closes is None else decisions["time"] + closes <= log.as_of
    eligible, log_probabilities = _distributions(decisions, vectors, vector, schema)
    # Like a decision's `probability`: the exponential function of NumPy can differ in the last bit.
    probability = np.fromiter(map(math.exp, logs.tolist()), np.float64, n)
    columns = {
        **{name: decisions[name] for name in schema.names if name in decisions},
        # The reader refuses decisions with contexts.
        **dict.fromkeys(("context", "actions", "encoded"), pa.nulls(n)),
        "feature_version": np.zeros(n, np.int64),
        "experiment": pa.repeat(log.experiment, n),
        "probability": probability,
        "eligible": eligible,
        "log_probabilities": log_probabilities,
        "policy": _policies(log, decisions["policy_version"]),
        "cold": decisions["cold"] == 1,
        "reward": _rewards(rule, closed, rewards, updates),
        "closed": closed,
        "rewards": _lists(rewards | {"late": rewards["late"] == 1}, REWARDS, n, schema.field("rewards").type),
        "applied": _lists(
            updates | {"kind": pa.array(UPDATE_KINDS).take(pa.array(updates["kind"]))},
            APPLIED, n, schema.field("applied").type,
        ),
    }  # fmt: skip
    return pa.record_batch([_array(columns[field.name], field.type) for field in schema], schema=schema)


def _array(values: Any, kind: Any) -> Any:
    """Return an Arrow array of this type."""
    import pyarrow as pa

    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    if isinstance(values, Names):
        return pa.array(values.names, pa.string()).take(pa.array(values.codes))
    if isinstance(values, Texts):
        return _text_array(values)
    if values.dtype.kind == "S":  # ids, which all have the same length
        data, size = np.ascontiguousarray(values), values.dtype.itemsize
        offsets = np.arange(0, size * (values.size + 1), size, dtype=np.int32)
        return pa.StringArray.from_buffers(values.size, pa.py_buffer(offsets), pa.py_buffer(data))
    if values.dtype == np.int64 and kind != pa.int64():
        return pa.array(values).cast(kind)  # a time
    return pa.array(values, kind)


def _text_array(values: Texts) -> Any:
    import pyarrow as pa

    texts = values.compact()
    offsets, missing = np.append(0, texts.ends).astype(np.int32), None
    if not texts.present.all():
        missing = pa.py_buffer(np.packbits(texts.present, bitorder="little"))
    buffers = pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(texts.data)), missing
    return pa.StringArray.from_buffers(texts.size, *buffers)


def _in_order_of_arrival(rewards: Arrays) -> Arrays:
    """Sort the reward events of each decision by arrival and name."""
    row, arrived = rewards["row"], rewards["arrived"]
    if (row[1:] > row[:-1]).all():
        return rewards
    events = np.array(
        [each.encode() for each in rewards["event"].tolist()], object
    )  # bytes sort like code points
    order = np.lexsort((_ranks(events), arrived, row))
    return {name: each[order] for name, each in rewards.items()}


def _ranks(values: Any) -> Ints:
    return np.unique(values, return_inverse=True)[1]


def _offsets(counts: Ints) -> Any:
    """Return the offsets of lists with these lengths."""
    import pyarrow as pa

    return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def _lists(items: Arrays, fields: Iterable[str], n: int, kind: Any) -> Any:
    """Return lists of structs: for each of n rows, the items that have its position in `row`."""
    import pyarrow as pa

    types = [kind.value_type.field(name).type for name in fields]
    columns = [
        pa.array(items[name], from_pandas=True) if name == "previous" else _array(items[name], each)
        for name, each in zip(fields, types, strict=True)
    ]
    structs = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(_offsets(np.bincount(items["row"], minlength=n)), structs, kind)


def _distributions(decisions: Arrays, vectors: VectorTable, vector: Ints, schema: Any) -> tuple[Any, Any]:
    """Return the eligible arms and their log probabilities, as lists."""
    import pyarrow as pa

    sets, chosen = vectors.eligible_sets, vectors.eligible[vector]
    names = {arm: code for code, arm in enumerate(dict.fromkeys(itertools.chain.from_iterable(sets)))}
    member = np.zeros((len(sets), len(names)), np.bool_)
    codes = [np.array([names[arm] for arm in each], np.int32) for each in sets]
    for row, each in zip(member, codes, strict=True):
        row[each] = True
    arms = codes_of(decisions["arm"], names)
    if (arms < 0).any() or not member[chosen, arms].all():
        raise OddRows("an arm is not eligible")
    lengths = np.array([each.size for each in codes], np.int64)
    ends = np.cumsum(lengths)
    offsets = _offsets(lengths[chosen])
    flat = np.concatenate(codes)[_places(ends[chosen], lengths[chosen])]
    eligible = pa.array(list(names), pa.string()).take(pa.array(flat))
    logs = vectors.log_probabilities
    if not np.array_equal(vector, np.arange(vectors.ends.size)):  # else each vector has its decision
        logs = logs[_places(vectors.ends[vector], lengths[chosen])]
    kinds = schema.field("eligible").type, schema.field("log_probabilities").type
    return (
        pa.ListArray.from_arrays(offsets, eligible, kinds[0]),
        pa.ListArray.from_arrays(offsets, pa.array(logs), kinds[1]),
    )


def _places(ends: Ints, lengths: Ints) -> Ints:
    """Return the positions of the items of lists with these ends and lengths, one list after the other."""
    before = np.cumsum(lengths)
    places: Ints = np.arange(before[-1]) + np.repeat(ends - before, lengths)
    return places


def _policies(log: DecisionLog, versions: Ints) -> Any:
    """Return the spec of each version. The dictionary is in order of first appearance, as Arrow makes it."""
    import pyarrow as pa

    found, first, code = np.unique(versions, return_index=True, return_inverse=True)
    specs = [log.policies.get(version) for version in found[np.argsort(first)].tolist()]
    dictionary = list(dict.fromkeys(spec for spec in specs if spec is not None))
    places = [None if spec is None else dictionary.index(spec) for spec in specs]
    order = pa.array(places, pa.int32()).take(pa.array(np.argsort(np.argsort(first))[code]))
    return pa.DictionaryArray.from_arrays(order, pa.array(dictionary, pa.string()))


def _rewards(rule: Reward, closed: Bools, rewards: Arrays, updates: Arrays) -> Any:
    """Return the reward of each decision, as `DecisionLog.reward_of` does."""
    import pyarrow as pa

    n, (low, high) = closed.size, rule.bounds
    timely = rewards["late"] == 0
    row, value = rewards["row"][timely], rewards["value"][timely]
    count = np.bincount(row, minlength=n)
    found: Floats = np.zeros(n)
    found[row] = np.where(value < low, low, np.where(value > high, high, value))
    has_reward = count > 0
    several = np.flatnonzero(count > 1)
    if several.size:
        columns = [rewards[name][timely].tolist() for name in ("event", "value", "at", "arrived")]
        starts = np.searchsorted(row, several).tolist()
        for place, start, size in zip(several.tolist(), starts, count[several].tolist(), strict=True):
            items = zip(*(each[start : start + size] for each in columns), strict=True)
            total = rule.total([RewardEvent("", *item) for item in items])
            assert total is not None  # there is at least one event, and none is late
            found[place] = total
    if rule.default is not None:
        missing = closed & ~has_reward
        found[missing] = rule.default
        has_reward |= missing
    if rule.learn != "provisional":
        is_default = np.flatnonzero(updates["kind"] == DEFAULT)[::-1]  # the first of a row is written last
        found[updates["row"][is_default]] = updates["value"][is_default]
        has_reward[updates["row"][is_default]] = True
    return pa.array(found, mask=~has_reward)
