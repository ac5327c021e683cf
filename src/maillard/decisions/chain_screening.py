"""Digests of many commits at once, for the check of the hash chain of a SQLite log.

The records are those of `chain`, made with structured arrays. Anything unusual raises `OddRows`; then the
digests must be computed row by row, which is the reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Ints
from maillard.decisions import chain
from maillard.decisions.chain import ID_SIZE, REWARD_KEY_SIZE, Link
from maillard.decisions.log_arrays import runs
from maillard.decisions.stores.bulk_columns import Arrays, OddRows, codes_of, is_present
from maillard.decisions.stores.bulk_reads import DECISION_TYPES, REWARD_TYPES, BulkReader
from maillard.decisions.stores.bulk_vectors import VectorTable
from maillard.decisions.stores.sql_chain import events_of, ids_of
from maillard.decisions.stores.text_columns import Names

# The fields of the records, in the order of the structures in `chain`.
_DECISION = np.dtype([
    ("id", "V16"), ("commitment", "V32"), ("vector", "V32"), ("origin", "V16"), ("time", "<i8"),
    ("state", "<i8"), ("epoch", "<i8"), ("policy_version", "<i8"), ("formula_version", "<i8"),
    ("position", "<i8"), ("arm", "<i8"), ("log_probability", "<f8"), ("cold", "?"),
])  # fmt: skip
_EVENT = np.dtype([
    ("number", "<i8"), ("time", "<i8"), ("value", "<f8"), ("previous", "<f8"), ("present", "u1"),
    ("decision", "V16"), ("digest", "V32"),
])  # fmt: skip
_REWARD = np.dtype([
    ("decision", "V16"), ("digest", "V32"), ("value", "<f8"), ("at", "<i8"), ("arrived", "<i8"),
    ("late", "?"),
])  # fmt: skip
_FEATURE_VERSION = "coalesce(feature_version, 0)"
_CONTEXT_TYPES = {"context": "text?", "actions": "text?", "encoded": "bytes?", _FEATURE_VERSION: "whole"}
_DECISION_TYPES = {
    **{name: kind for name, kind in DECISION_TYPES.items() if kind != "null"},
    **_CONTEXT_TYPES,
    "id": "uuid",
    "origin": "uuid?",
}
_SEALED = "unit", "idempotency_key", "context", "actions"
_EVENT_TYPES = {
    "number": "whole", "kind": "name", "time": "time", "decision": "uuid?", "arm": "name?", "value": "real?",
    "previous": "real?", "payload": "text?",
}  # fmt: skip
# By default, the id of a reward event is that of its decision: then this is NULL. No id is 0.
_OTHER_EVENT = "CASE WHEN event = decision THEN NULL ELSE coalesce(event, 0) END"
_REWARD_TYPES = {
    **{name: kind for name, kind in REWARD_TYPES.items() if name != "event"},
    "decision": "uuid",
    _OTHER_EVENT: "text?",
}


class ScreenedLink(NamedTuple):
    """The digest of the rows of a link, and how many of its decisions had their unit erased."""

    digest: bytes
    erased: int


def screen_links(reader: BulkReader, links: Sequence[Link]) -> Iterator[ScreenedLink]:
    """Compute the digests of consecutive links from their rows. Raises OddRows if that cannot be done."""
    ids, keys = b"".join(link.decisions for link in links), b"".join(link.rewards for link in links)
    if len(ids) % ID_SIZE or len(keys) % REWARD_KEY_SIZE:
        raise OddRows("a link has a part of an id")
    decisions, erased = _decision_records(reader, links, np.frombuffer(ids, f"V{ID_SIZE}"))
    rewards = _reward_records(reader, links, np.frombuffer(keys, f"V{REWARD_KEY_SIZE}"))
    events = _event_records(reader, links)
    totals = np.append(0, np.cumsum(erased)).tolist()
    decision = event = reward = 0
    for link in links:
        some, more = len(link.decisions) // ID_SIZE, len(link.rewards) // REWARD_KEY_SIZE
        parts = (
            chain.counts_record(some, link.events, more),
            decisions[decision * _DECISION.itemsize : (decision + some) * _DECISION.itemsize],
            events[event * _EVENT.itemsize : (event + link.events) * _EVENT.itemsize],
            rewards[reward * _REWARD.itemsize : (reward + more) * _REWARD.itemsize],
        )
        digest = hashlib.sha256(b"".join(parts)).digest()
        yield ScreenedLink(digest, totals[decision + some] - totals[decision])
        decision, event, reward = decision + some, event + link.events, reward + more


def _decision_records(
    reader: BulkReader, links: Sequence[Link], wanted: NDArray[Any]
) -> tuple[memoryview, Ints]:
    """Return the records of the decisions with these ids, and whether their units were erased."""
    if not wanted.size:
        return memoryview(b""), np.zeros(0, np.int64)
    columns = reader.rows_with_ids("decisions", _DECISION_TYPES, wanted, lambda: ids_of(links)[0])
    state = columns["state"]
    if not state.size:
        raise OddRows("a row is missing")
    made, erased = np.zeros(state.size, _DECISION), np.zeros(state.size, np.int64)
    vectors = reader.vectors_of(state)
    vector = vectors.find(state, columns["variant"])
    first, run = runs(vector)
    made["vector"] = _joined(_vector_digests(vectors, vector[first]), 32)[run]
    features = columns[_FEATURE_VERSION]
    encoded = np.flatnonzero(is_present(columns["encoded"]) | (features != 0))
    if encoded.size:
        some = [each[encoded].tolist() for each in (made["vector"], columns["encoded"], features)]
        made["vector"][encoded] = _joined(list(map(chain.digest_with_context, *some)), 32)
    made["arm"] = _arm_places(columns["arm"], vectors, vector)
    for name in ("id", "origin", "time", "state", "epoch", "policy_version", "formula_version", "position"):
        made[name] = columns[name]
    made["log_probability"] = columns["log_probability"] + 0.0  # SQLite stores no negative zero
    made["cold"] = columns["cold"] == 1
    present = is_present(columns["seal"])
    if any((~present & is_present(columns[name])).any() for name in _SEALED):
        raise OddRows("a decision has no commitment")
    sealed = np.flatnonzero(present)
    if sealed.size:
        seals, *texts = (columns[name][sealed].tolist() for name in ("seal", *_SEALED))
        made["commitment"][sealed] = _joined(list(map(chain.commitment, seals, *texts)), 32)
        erased[sealed] = list(map(chain.is_erased, seals))
    rows = _places(reader, wanted, columns["id"])
    return _bytes_of(made, rows), erased[rows]


def _vector_digests(vectors: VectorTable, places: Ints) -> list[bytes]:
    """Return the digests of some distributions."""
    data = vectors.log_probabilities.astype("<f8", copy=False).tobytes()
    found = zip(vectors.eligible[places].tolist(), vectors.ends[places].tolist(), strict=True)
    sets = vectors.eligible_sets
    return [
        chain.vector_digest(sets[arms], data[8 * (end - len(sets[arms])) : 8 * end]) for arms, end in found
    ]


def _arm_places(arms: Any, vectors: VectorTable, vector: Ints) -> Ints:
    """Return the index of each arm among the eligible ones."""
    codes: dict[str, int] = {}
    for each in vectors.eligible_sets:
        for arm in each:
            codes.setdefault(arm, len(codes))
    table = np.full((len(vectors.eligible_sets), len(codes) + 1), -1)
    for place, each in enumerate(vectors.eligible_sets):
        table[place, [codes[arm] for arm in each]] = np.arange(len(each))
    found: Ints = table[vectors.eligible[vector], codes_of(arms, codes)]
    if (found < 0).any():
        raise OddRows("an arm is not eligible")
    return found


def _event_records(reader: BulkReader, links: Sequence[Link]) -> memoryview:
    """Return the records of the events of consecutive links."""
    first, end = events_of(links)
    columns = reader.events_between(first, end, _EVENT_TYPES)
    number = columns["number"]
    expected = [link.first_event for link in links if link.events]
    if number.size != end - first or number.size != sum(link.events for link in links):
        raise OddRows("events are missing")
    if (number != np.arange(first, end)).any() or expected != sorted(expected):
        raise OddRows("events are missing")
    made = np.zeros(number.size, _EVENT)
    for name in ("number", "time", "decision"):
        made[name] = columns[name]
    for bit, name in enumerate(("value", "previous")):
        present = ~np.isnan(columns[name])
        made[name] = np.where(present, columns[name] + 0.0, 0.0)
        made["present"] += (present << bit).astype(np.uint8)
    made["digest"] = _event_digests(columns)
    return _bytes_of(made)


def _event_digests(columns: Arrays) -> NDArray[Any]:
    """Return the digest of kind, arm and payload of each event."""
    kinds, arms = Names.of(columns["kind"]), Names.of(columns["arm"])
    pair = kinds.codes * (len(arms.names) + 1) + arms.codes + 1
    pairs, place = np.unique(pair, return_inverse=True)
    texts = [divmod(each, len(arms.names) + 1) for each in pairs.tolist()]
    known = [
        chain.digest_of(kinds.names[kind], arms.names[arm - 1] if arm else None, None) for kind, arm in texts
    ]
    found = _joined(known, 32)[place]
    other = np.flatnonzero(is_present(columns["payload"]))
    if other.size:
        some = (columns[name][other].tolist() for name in ("kind", "arm", "payload"))
        found[other] = _joined([chain.digest_of(*each) for each in zip(*some, strict=True)], 32)
    return found


def _reward_records(reader: BulkReader, links: Sequence[Link], wanted: NDArray[Any]) -> memoryview:
    """Return the records of the reward events with these keys."""
    if not wanted.size:
        return memoryview(b"")
    columns = reader.rows_with_ids("rewards", _REWARD_TYPES, wanted, lambda: ids_of(links)[1])
    made = np.zeros(columns["value"].size, _REWARD)
    events = columns[_OTHER_EVENT]
    other = np.flatnonzero(is_present(events))
    if other.size:
        made["digest"][other] = _joined(list(map(chain.digest_of, events[other].tolist())), 32)
    for name in ("decision", "at", "arrived"):
        made[name] = columns[name]
    made["value"], made["late"] = columns["value"] + 0.0, columns["late"] == 1
    keys = np.ascontiguousarray(made.view(np.uint8).reshape(made.size, -1)[:, :REWARD_KEY_SIZE])
    return _bytes_of(made, _places(reader, wanted, keys.view(wanted.dtype).ravel()))


def _places(reader: BulkReader, wanted: NDArray[Any], among: NDArray[Any]) -> Ints:
    """Return where each of the wanted keys is."""
    found = reader.places(wanted, among)
    if (found < 0).any():
        raise OddRows("a row is missing")
    return found


def _bytes_of(records: NDArray[Any], rows: Ints | None = None) -> memoryview:
    """Return records, or those in these rows, one after the other."""
    if rows is not None and not np.array_equal(rows, np.arange(records.size)):
        records = records[rows]
    return memoryview(cast("Any", records.view(np.uint8)))


def _joined(parts: Sequence[bytes], size: int) -> NDArray[Any]:
    data = b"".join(parts)
    if len(data) != size * len(parts):  # a seal of another length
        raise OddRows("a digest has another length")
    return np.frombuffer(data, f"V{size}")
