"""Digests of many commits at once, for the check of the hash chain of a SQLite log.

The records are those of `chain`, made with structured arrays. Anything unusual raises `OddRows`; then the
digests must be computed row by row, which is the reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Ints
from maillard.decisions import chain
from maillard.decisions.chain import ID_SIZE, REWARD_KEY_SIZE, Link
from maillard.decisions.stores.bulk_columns import Arrays, OddRows, codes_of, columns_of_rows, is_present
from maillard.decisions.stores.bulk_reads import DECISION_TYPES, REWARD_TYPES, BulkReader
from maillard.decisions.stores.bulk_vectors import VectorTable
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.stores.sql_chain import events_of, ids_of

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
_EVENT_TYPES = {
    "number": "whole", "kind": "text", "time": "time", "decision": "text?", "arm": "text?", "value": "real?",
    "previous": "real?", "payload": "text?",
}  # fmt: skip
_ID_LENGTH = 36  # characters
_DASHES = [8, 13, 18, 23]


class ScreenedLink(NamedTuple):
    """The digest of the rows of a link, and how many of its decisions had their unit erased."""

    digest: bytes
    erased: int


def screen_links(transaction: Transaction, links: Sequence[Link]) -> Iterator[ScreenedLink]:
    """Compute the digests of consecutive links from their rows. Raises OddRows if that cannot be done."""
    reader = BulkReader(transaction)
    ids, keys = b"".join(link.decisions for link in links), b"".join(link.rewards for link in links)
    if len(ids) % ID_SIZE or len(keys) % REWARD_KEY_SIZE:
        raise OddRows("a link has a part of an id")
    decisions, erased = _decision_records(reader, links, ids)
    rewards, events = _reward_records(reader, links, keys), _event_records(reader, links)
    totals = np.append(0, np.cumsum(erased)).tolist()
    decision = event = reward = 0
    for link in links:
        some, more = len(link.decisions) // ID_SIZE, len(link.rewards) // REWARD_KEY_SIZE
        found = hashlib.sha256(chain.counts_record(some, link.events, more))
        size = _DECISION.itemsize
        found.update(decisions[decision * size : (decision + some) * size])
        size = _EVENT.itemsize
        found.update(events[event * size : (event + link.events) * size])
        size = _REWARD.itemsize
        found.update(rewards[reward * size : (reward + more) * size])
        yield ScreenedLink(found.digest(), totals[decision + some] - totals[decision])
        decision, event, reward = decision + some, event + link.events, reward + more


def _decision_records(reader: BulkReader, links: Sequence[Link], wanted: bytes) -> tuple[memoryview, Ints]:
    """Return the records of the decisions with these ids, and whether their units were erased."""
    if not wanted:
        return memoryview(b""), np.zeros(0, np.int64)
    order = _keys(wanted, ID_SIZE)
    found = reader.rows_with_ids("decisions", DECISION_TYPES, order, lambda: ids_of(links)[0])
    columns = columns_of_rows(found, DECISION_TYPES)
    made = np.zeros(len(found), _DECISION)
    made["id"] = _id_bytes(columns["id"])
    vectors = reader.vectors_of(columns["state"])
    vector = vectors.find(columns["state"], columns["variant"])
    used, place = np.unique(vector, return_inverse=True)
    made["vector"] = _joined([_vector_digest(vectors, each) for each in used.tolist()], 32)[place]
    made["arm"] = _arm_places(columns["arm"], vectors, vector)
    for name in ("time", "state", "epoch", "policy_version", "formula_version", "position"):
        made[name] = columns[name]
    made["log_probability"] = columns["log_probability"] + 0.0  # SQLite stores no negative zero
    made["cold"] = columns["cold"] == 1
    repeated = np.flatnonzero(is_present(columns["origin"]))
    if repeated.size:
        made["origin"][repeated] = _id_bytes(columns["origin"][repeated])
    erased = np.zeros(len(found), np.int64)
    present = is_present(columns["seal"])
    if (~present & (is_present(columns["unit"]) | is_present(columns["idempotency_key"]))).any():
        raise OddRows("a decision has no commitment")
    sealed = np.flatnonzero(present)
    if sealed.size:
        some = [columns[name][sealed].tolist() for name in ("seal", "unit", "idempotency_key")]
        made["commitment"][sealed] = _joined(
            [chain.commitment(*each) for each in zip(*some, strict=True)], 32
        )
        erased[sealed] = [chain.is_erased(seal) for seal in some[0]]
    rows = _places(made["id"].tolist(), order)
    return memoryview(made[rows].tobytes()), erased[rows]


def _vector_digest(vectors: VectorTable, place: int) -> bytes:
    arms = vectors.eligible_sets[vectors.eligible[place]]
    end = int(vectors.ends[place])
    logs = vectors.log_probabilities[end - len(arms) : end]
    return chain.vector_digest(arms, logs.astype("<f8", copy=False).tobytes())


def _arm_places(arms: NDArray[Any], vectors: VectorTable, vector: Ints) -> Ints:
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
    columns = columns_of_rows(reader.events_between(first, end, _EVENT_TYPES), _EVENT_TYPES)
    number = columns["number"]
    expected = [link.first_event for link in links if link.events]
    if number.size != end - first or number.size != sum(link.events for link in links):
        raise OddRows("events are missing")
    if (number != np.arange(first, end)).any() or expected != sorted(expected):
        raise OddRows("events are missing")
    made = np.zeros(number.size, _EVENT)
    made["number"], made["time"] = number, columns["time"]
    for bit, name in enumerate(("value", "previous")):
        present = ~np.isnan(columns[name])
        made[name] = np.where(present, columns[name] + 0.0, 0.0)
        made["present"] += (present << bit).astype(np.uint8)
    applied = np.flatnonzero(is_present(columns["decision"]))
    if applied.size:
        made["decision"][applied] = _id_bytes(columns["decision"][applied])
    made["digest"] = _joined(_event_digests(columns), 32)
    return memoryview(made.tobytes())


def _event_digests(columns: Arrays) -> list[bytes]:
    known: dict[tuple[str, str | None], bytes] = {}
    found = []
    texts = (columns[name].tolist() for name in ("kind", "arm", "payload"))
    for kind, arm, payload in zip(*texts, strict=True):
        if payload is not None:
            found.append(chain.digest_of(kind, arm, payload))
            continue
        digest = known.get((kind, arm))
        if digest is None:
            digest = known[kind, arm] = chain.digest_of(kind, arm, None)
        found.append(digest)
    return found


def _reward_records(reader: BulkReader, links: Sequence[Link], wanted: bytes) -> memoryview:
    """Return the records of the reward events with these keys."""
    if not wanted:
        return memoryview(b"")
    order = _keys(wanted, REWARD_KEY_SIZE)
    found = reader.rows_with_ids("rewards", REWARD_TYPES, order, lambda: ids_of(links)[1])
    columns = columns_of_rows(found, REWARD_TYPES)
    made = np.zeros(len(found), _REWARD)
    made["decision"] = _id_bytes(columns["decision"])
    other = np.flatnonzero(columns["event"] != columns["decision"])
    if other.size:
        made["digest"][other] = _joined([chain.digest_of(each) for each in columns["event"][other]], 32)
    made["value"] = columns["value"] + 0.0
    made["at"], made["arrived"], made["late"] = columns["at"], columns["arrived"], columns["late"] == 1
    matrix = made.view(np.uint8).reshape(made.size, _REWARD.itemsize)
    keys = np.ascontiguousarray(matrix[:, :REWARD_KEY_SIZE])
    return memoryview(made[_places(_keys(keys.tobytes(), REWARD_KEY_SIZE), order)].tobytes())


def _keys(data: bytes, size: int) -> list[bytes]:
    found: list[bytes] = np.frombuffer(data, f"V{size}").tolist()
    return found


def _places(keys: list[bytes], wanted: list[bytes]) -> Ints:
    """Return where each of the wanted keys is."""
    place: Mapping[bytes, int] = dict(zip(keys, range(len(keys)), strict=True))
    if len(place) < len(keys):
        raise OddRows("a key occurs twice")
    try:
        return np.fromiter([place[key] for key in wanted], np.int64, len(wanted))
    except KeyError as error:
        raise OddRows("a row is missing") from error


def _joined(parts: Sequence[bytes], size: int) -> NDArray[Any]:
    data = b"".join(parts)
    if len(data) != size * len(parts):  # a seal of another length
        raise OddRows("a digest has another length")
    return np.frombuffer(data, f"V{size}")


def _id_bytes(ids: NDArray[Any]) -> NDArray[Any]:
    """Return the 16 bytes of each id. Accept only the usual form, which `chain.id_text` writes."""
    texts = ids.tolist()
    text = "".join(texts)
    if set(map(len, texts)) - {_ID_LENGTH} or not text.isascii() or text != text.lower():
        raise OddRows("an id is no UUID")
    letters = np.frombuffer(text.encode(), "S1").reshape(len(texts), _ID_LENGTH)
    digits = text.replace("-", "")
    if (letters[:, _DASHES] != b"-").any() or len(digits) != 32 * len(texts):
        raise OddRows("an id is no UUID")
    try:
        return _joined_ids(bytes.fromhex(digits), len(texts))
    except ValueError as error:
        raise OddRows("an id is no UUID") from error


def _joined_ids(data: bytes, count: int) -> NDArray[Any]:
    if len(data) != ID_SIZE * count:  # `fromhex` skips white space
        raise OddRows("an id is no UUID")
    return np.frombuffer(data, f"V{ID_SIZE}")
