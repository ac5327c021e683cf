"""The hash chain of an experiment, which makes changes of its log evident.

Each commit that adds decisions, events or reward events also adds a link. The hash of a link is

    SHA-256(hash of the previous link || digest of the commit),    32 zero bytes before the first link,

and the digest of a commit is the SHA-256 of the records of its rows: decisions sorted by id, events by
number, rewards by decision and event. Records have a fixed size, so that many can be made at once.

Erasing a unit must not break the chain. So a record does not contain the unit, the idempotency key and the
context of a decision, but a commitment: the SHA-256 of a random salt and these texts. The log stores the
salt. Erasing replaces the salt by the commitment, from which nobody can guess the texts. What the context was
encoded as is covered like the distribution that was computed from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from maillard.decisions.decision import Decision, RewardEvent
from maillard.errors import InvalidLog

FIRST_HASH = bytes(32)
ID_SIZE, REWARD_KEY_SIZE = 16, 24
_SALT_SIZE = 16
_ABSENT = bytes(32)
# After the id and the commitment of a decision: vector, origin; time, state, epoch, versions of policy and
# formula, position, arm; log p; cold
_DECISION = struct.Struct("<32s16s7qd?")
# number, time, value, previous, which of both are set; decision; digest of kind, arm and payload
_EVENT = struct.Struct("<qqddB16s32s")
# decision, digest of the event's id; value, occurred, arrived, late
_REWARD = struct.Struct("<16s32sdqq?")
_COUNTS = struct.Struct("<16sqqq")
_ENCODED = struct.Struct("<qq")
_FORMAT = b"maillard chain 1"


class Link(NamedTuple):
    """One link of a chain: which rows a commit added, and the hash of the log up to this commit."""

    number: int
    "1 for the first link."
    hash: bytes
    time: int
    first_event: int
    "The number of the first event of the commit; 0 if it has none."
    events: int
    "How many events the commit has."
    decisions: bytes
    "The ids of its decisions, 16 bytes each, sorted."
    rewards: bytes
    "The keys of its reward events, sorted: 16 bytes of the decision's id, 8 of the digest of the event's id."


class ChainHead(NamedTuple):
    """The end of a chain. Publish the hash, and `verify` can tell later whether a log extends this one."""

    commit: int
    "The number of commits so far; 0 if the log has no chain yet."
    hash: str
    "64 hexadecimal digits."
    time: int | None
    "When the last commit was made, in microseconds since 1970."


def head_of(last: Link | None) -> ChainHead:
    """The head of a chain with this last link."""
    if last is None:
        return ChainHead(0, FIRST_HASH.hex(), None)
    return ChainHead(last.number, last.hash.hex(), last.time)


def encode(text: str | None) -> bytes:
    """A text, or None, in a form that can be joined to others without ambiguity."""
    return b"\0" if text is None else b"\1%d:%b" % (len(data := text.encode()), data)


def digest_of(*texts: str | None) -> bytes:
    """The SHA-256 of some texts."""
    return hashlib.sha256(b"".join(map(encode, texts))).digest()


def id_bytes(identifier: str) -> bytes:
    """The 16 bytes of a decision's id."""
    try:
        found = bytes.fromhex(identifier.replace("-", ""))
    except ValueError:
        found = b""
    if len(found) != ID_SIZE:
        raise InvalidLog("decisions: id", identifier, "a UUID")
    return found


def id_text(data: bytes) -> str:
    """The decision's id with these 16 bytes."""
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_texts(data: bytes, size: int = ID_SIZE) -> list[str]:
    """The ids at the beginning of each `size` bytes of a link's `decisions` or `rewards`."""
    return [id_text(data[start : start + ID_SIZE]) for start in range(0, len(data), size)]


def reward_keys(link: Link) -> list[bytes]:
    """The keys of a link's reward events."""
    size = REWARD_KEY_SIZE
    return [link.rewards[start : start + size] for start in range(0, len(link.rewards), size)]


# Commitments.


def new_seals(rows: Sequence[Decision]) -> list[bytes | None]:
    """A new salt for each decision; None if it has nothing to commit to."""
    salts = os.urandom(_SALT_SIZE * len(rows))
    return [
        salts[start : start + _SALT_SIZE]
        if row.unit is not None
        or row.idempotency_key is not None
        or row.context is not None
        or row.actions is not None
        else None
        for start, row in zip(range(0, len(salts), _SALT_SIZE), rows, strict=True)
    ]


def commitment(
    seal: bytes | None,
    unit: str | None,
    key: str | None,
    context: str | None = None,
    actions: str | None = None,
) -> bytes:
    """The commitment to a decision's unit, idempotency key and context, given its salt.

    After erasure, the commitment itself is in place of the salt.
    """
    if seal is None:
        if unit is None and key is None and context is None and actions is None:
            return _ABSENT
        seal = bytes(_SALT_SIZE)  # added later: no record has this commitment
    if len(seal) != _SALT_SIZE:
        return seal
    content = seal + encode(unit) + encode(key)
    if context is not None or actions is not None:
        content += encode(context) + encode(actions)
    return hashlib.sha256(content).digest()


def commitment_of(row: Decision, seal: bytes | None) -> bytes:
    """The commitment to a decision's unit, idempotency key and context."""
    return commitment(seal, row.unit, row.idempotency_key, row.context, row.actions)


def is_erased(seal: bytes | None) -> bool:
    """Whether the salt of a decision was replaced by the commitment."""
    return seal is not None and len(seal) != _SALT_SIZE


# Records.


@lru_cache(maxsize=64)
def _vector_digest_of_arms(arms: tuple[str, ...]) -> Any:
    return hashlib.sha256(json.dumps(arms, ensure_ascii=False).encode() + b"\0")


def vector_digest(arms: tuple[str, ...], data: bytes) -> bytes:
    """The digest of a distribution: the eligible arms, and log probabilities as little-endian doubles."""
    found = _vector_digest_of_arms(arms).copy()
    found.update(data)
    digest: bytes = found.digest()
    return digest


def decision_record(row: Decision, seal: bytes | None, vector: bytes) -> bytes:
    """The record of a decision; `vector` is the digest of its distribution."""
    return id_bytes(row.id) + commitment_of(row, seal) + common_part(row, vector)


def common_part(row: Decision, vector: bytes) -> bytes:
    """The end of a decision's record, which other decisions of a batch may have in common with it."""
    if row.encoded is not None or row.feature_version:
        vector = digest_with_context(vector, row.encoded, row.feature_version)
    return _DECISION.pack(
        vector, _ABSENT if row.origin is None else id_bytes(row.origin), row.time, row.state, row.epoch,
        row.policy_version, row.formula_version, row.position, row.eligible.index(row.arm),
        row.log_probability + 0.0, row.cold,
    )  # fmt: skip


def digest_with_context(vector: bytes, encoded: bytes | None, feature_version: int) -> bytes:
    """The digest of a distribution together with what it was computed from."""
    encoded = encoded or b""
    return hashlib.sha256(vector + _ENCODED.pack(feature_version, len(encoded)) + encoded).digest()


_event_digest = lru_cache(maxsize=256)(digest_of)


def event_record(row: Sequence[Any]) -> bytes:
    """The record of an event, given as the row that SQL stores write: see `sql_rows.EVENT`."""
    number, kind, time, decision, arm, value, previous, payload = row
    present = (value is not None) + 2 * (previous is not None)
    digest = (_event_digest if payload is None else digest_of)(kind, arm, payload)
    identifier = _ABSENT if decision is None else id_bytes(decision)
    # SQLite stores no negative zero.
    value, previous = (value or 0.0) + 0.0, (previous or 0.0) + 0.0
    return _EVENT.pack(number, time, value, previous, present, identifier, digest)


def reward_record(row: RewardEvent) -> bytes:
    """The record of a reward event. By default its id is that of its decision, which needs no digest."""
    event = _ABSENT if row.event == row.decision else digest_of(row.event)
    return _REWARD.pack(id_bytes(row.decision), event, row.value + 0.0, row.at, row.arrived, row.late)


def counts_record(decisions: int, events: int, rewards: int) -> bytes:
    """The record of the numbers of rows, with which a commit begins."""
    return _COUNTS.pack(_FORMAT, decisions, events, rewards)


class Commit:
    """The records of the rows that a transaction has added."""

    __slots__ = ("decisions", "events", "first_event", "rewards")

    def __init__(self) -> None:
        self.decisions: list[bytes] = []
        self.events: list[bytes] = []
        self.rewards: list[bytes] = []
        self.first_event = 0

    def __bool__(self) -> bool:
        return bool(self.decisions or self.events or self.rewards)

    def add_events(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add events, given as rows of SQL stores."""
        for row in rows:
            self.first_event = self.first_event or row[0]
            self.events.append(event_record(row))

    def add_rewards(self, rows: Iterable[RewardEvent]) -> None:
        """Add reward events."""
        self.rewards.extend(map(reward_record, rows))

    def digest(self) -> bytes:
        """The digest of the commit."""
        self.decisions.sort()
        self.rewards.sort()
        counts = counts_record(len(self.decisions), len(self.events), len(self.rewards))
        return hashlib.sha256(b"".join([counts, *self.decisions, *self.events, *self.rewards])).digest()

    def link(self, last: tuple[int, bytes] | None, time: int) -> Link:
        """The link of the commit, given the number and hash of the last one."""
        number, previous = last or (0, FIRST_HASH)
        hashed = next_hash(previous, self.digest())
        return Link(number + 1, hashed, time, *self.contents())

    def contents(self) -> tuple[int, int, bytes, bytes]:
        """The other fields of the link."""
        return (
            self.first_event,
            len(self.events),
            b"".join([record[:ID_SIZE] for record in self.decisions]),
            b"".join([record[:REWARD_KEY_SIZE] for record in self.rewards]),
        )


def link_of_decisions(last: tuple[int, bytes] | None, time: int, records: list[bytes]) -> Link:
    """The link of a commit that adds only decisions, given their records; as `Commit.link`, but faster."""
    records.sort()
    number, previous = last or (0, FIRST_HASH)
    digest = hashlib.sha256(b"".join([counts_record(len(records), 0, 0), *records])).digest()
    ids = b"".join([record[:ID_SIZE] for record in records])
    return Link(number + 1, next_hash(previous, digest), time, 0, 0, ids, b"")


def next_hash(previous: bytes, digest: bytes) -> bytes:
    """The hash of a link."""
    return hashlib.sha256(previous + digest).digest()
