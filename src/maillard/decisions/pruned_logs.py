"""What a pruned log keeps of its removed part: a state to rebuild later ones from, and the other events.

A `Prune` event has digests of both, and the hash chain covers the event, so that a change is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from maillard.decisions import chain
from maillard.decisions.chain import Link
from maillard.decisions.events import AdministrativeEvent, Prune
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Transaction
from maillard.errors import InvalidLog

_KIND = "pruned"  # of the documents
_MAX_EVENTS = 10_000  # per read


class Base(NamedTuple):
    """The document of a pruned experiment."""

    state: State
    "The state after the event `Prune.base`."
    epoch: int
    "The epoch at the time of pruning."
    decisions: dict[str, int]
    "How many decisions of this epoch were removed, for each arm."


def last_prune(events: Iterable[AdministrativeEvent]) -> Prune | None:
    """The last of these events that pruned the log."""
    found = None
    for event in events:
        found = event if isinstance(event, Prune) else found
    return found


def write_base(base: Base) -> str:
    """The text of the document."""
    content = {"state": base.state.write(), "epoch": base.epoch, "decisions": base.decisions}
    return json.dumps(content, ensure_ascii=False, sort_keys=True)


def digest_of_base(content: str) -> str:
    """The digest of a document."""
    return hashlib.sha256(content.encode()).hexdigest()


def save_base(transaction: Transaction, content: str) -> None:
    """Store the document of an experiment."""
    transaction.put_document(_KIND, transaction.name, content)


def load_base(transaction: Transaction, prune: Prune) -> Base:
    """Read the document of an experiment, or raise InvalidLog if it is not the one of the event."""
    content = transaction.documents(_KIND).get(transaction.name)
    where = f"documents, {_KIND} {transaction.name!r}"
    if content is None:
        allowed = f"the state after event {prune.base}, from which later states are rebuilt"
        raise InvalidLog(where, None, allowed)
    if digest_of_base(content) != prune.base_digest:
        allowed = f"the state with the digest {prune.base_digest}, which event {prune.number} has"
        raise InvalidLog(where, digest_of_base(content), f"{allowed}: the document was changed")
    data = json.loads(content)
    return Base(State.read(data["state"]), data["epoch"], data["decisions"])


def digest_of_events(transaction: Transaction, base: int, last_event: int) -> str:
    """The digest of the events that pruning keeps: administrative ones, and all from `base` on."""
    digest = hashlib.sha256()
    for row in _event_rows(transaction, last_event):
        if row[3] is None or row[0] > base:
            digest.update(chain.event_record(row))
    return digest.hexdigest()


def _event_rows(transaction: Transaction, last_event: int) -> Iterator[Sequence[Any]]:
    """Yield the rows of all events up to a number, in order."""
    for first in range(1, last_event + 1, _MAX_EVENTS):
        part = Link(0, b"", 0, first, min(_MAX_EVENTS, last_event - first + 1), b"", b"")
        rows = transaction.chain_rows([part]).events
        yield from (rows[number] for number in sorted(rows))


def pruned_decisions(transaction: Transaction, epoch: int) -> dict[str, int]:
    """How many decisions of an epoch were removed, for each arm."""
    prune = last_prune(transaction.administrative_events())
    base = None if prune is None else load_base(transaction, prune)
    return base.decisions if base is not None and base.epoch == epoch else {}
