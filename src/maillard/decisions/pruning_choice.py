"""Choice of the commit up to which a log can be pruned."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from maillard.array_types import Ints
from maillard.decisions import chain
from maillard.decisions.chain import Link
from maillard.decisions.decision import Decision
from maillard.decisions.events import TallyUpdate
from maillard.decisions.files.exported_commits import ExportedHead
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.stores.sql_chain import events_of
from maillard.errors import CannotAnswer, InvalidValue

_MAX_LINKS = 250  # per read


@dataclass
class CommitChoice:
    """The first commits of a log, which can be pruned, and what is known about their decisions."""

    link: Link
    "The last of these commits."
    last_event: int
    "The last event of these commits, or of earlier ones."
    count: int = 0
    states: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    "The states of the decisions, sorted."
    arms_of_epoch: dict[int, Counter[str]] = field(default_factory=dict)
    "How many decisions each arm has in each epoch."
    ids: bytes = b""
    "The ids of the decisions, 16 bytes each."

    def count_before(self, state: int) -> int:
        """The number of decisions in earlier states."""
        return int(np.searchsorted(self.states, state))


class _Epochs:
    """In which links the decisions of each epoch are."""

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.decisions: Counter[int] = Counter()

    def add(self, link: int, rows: list[Decision]) -> None:
        for row in rows:
            self.first.setdefault(row.epoch, link)
            self.last[row.epoch] = link
            self.decisions[row.epoch] += 1

    def last_complete(self, transaction: Transaction, last: int) -> int:
        """The last link, up to `last`, at which no epoch has begun that is not complete."""
        totals = {epoch: sum(transaction.decisions_of_epoch(epoch).values()) for epoch in self.decisions}
        whole = {epoch for epoch, count in self.decisions.items() if totals[epoch] == count}
        while True:
            cut = {
                first - 1
                for epoch, first in self.first.items()
                if first <= last and (epoch not in whole or self.last[epoch] > last)
            }
            if not cut:
                return last
            last = min(cut)


def choose_commit(
    transaction: Transaction, log: DecisionLog, before: int, exported: ExportedHead
) -> CommitChoice | None:
    """The last commit that can be pruned; None if there is none with new decisions.

    Up to it, all decisions were made before a time, are exported, and have a final reward.
    """
    start = 0 if log.pruned is None else log.pruned.commit
    _check_exported(transaction, exported, start)
    first = transaction.links(start, 1)
    if log.pruned is None and first and first[0].first_event != 1:
        advice = "Export it and import it into a new log, which has a chain of all its decisions"
        raise CannotAnswer(f"{log.source}: the log is older than its hash chain. {advice}")
    epochs, last = _Epochs(), start
    reward, head = log.reward, transaction.head
    assert reward is not None and head is not None  # the log is in a store  # noqa: PT018
    for link, rows in _read(transaction, start, exported.commit, settled=reward.window is not None):
        closing = (reward.closes(row.time) for row in rows)
        if any(row.time >= before or (log.sticky and row.epoch >= head.epoch) for row in rows):
            break
        if any(closes is not None and closes > transaction.now for closes in closing):
            break
        epochs.add(link.number, rows)
        last = link.number
    if log.sticky:
        last = epochs.last_complete(transaction, last)
    choice = _collect(transaction, start, last, 0 if log.pruned is None else log.pruned.last_event)
    if choice is not None:
        _refuse_later_rewards(transaction, choice, exported)
    return choice


def _check_exported(transaction: Transaction, exported: ExportedHead, start: int) -> None:
    if exported.commit <= start:
        return
    found = transaction.links(exported.commit - 1, 1)
    if not found or found[0].number != exported.commit or found[0].hash.hex() != exported.hash:
        allowed = f"an export of this log, whose commit {exported.commit} has another hash"
        raise InvalidValue("exported", str(exported.folder), allowed)


def _read(
    transaction: Transaction, after: int, through: int, *, settled: bool = False
) -> Iterator[tuple[Link, list[Decision]]]:
    """Yield links with their decisions; with `settled`, up to the first window that is not settled."""
    while after < through:
        links = transaction.links(after, min(_MAX_LINKS, through - after))
        if not links:
            return
        ids = [key for link in links for key in chain.id_texts(link.decisions)]
        rows, pending = transaction.decisions(ids), transaction.pending(ids) if settled else set()
        for link in links:
            mine = chain.id_texts(link.decisions)
            if any(key not in rows or key in pending for key in mine):
                return  # if a decision is missing, `verify` says so
            yield link, [rows[key] for key in mine]
        after = links[-1].number


def _collect(transaction: Transaction, start: int, last: int, last_event: int) -> CommitChoice | None:
    choice: CommitChoice | None = None
    ids: list[bytes] = []
    states = array("q")
    for link, rows in _read(transaction, start, last):
        choice = choice or CommitChoice(link, last_event)
        choice.link = link
        choice.last_event = link.first_event + link.events - 1 if link.events else choice.last_event
        choice.count += len(rows)
        states.extend(row.state for row in rows)
        for row in rows:
            choice.arms_of_epoch.setdefault(row.epoch, Counter())[row.arm] += 1
        ids.append(link.decisions)
    if choice is None or not choice.count:
        return None
    choice.states = np.sort(np.array(states, np.int64))
    choice.ids = b"".join(ids)
    return choice


def _refuse_later_rewards(transaction: Transaction, choice: CommitChoice, exported: ExportedHead) -> None:
    """Refuse decisions that have got a reward after they were exported."""
    later, after = set[bytes](), exported.commit
    while links := transaction.links(after, _MAX_LINKS):
        later.update(key[: chain.ID_SIZE] for link in links for key in chain.reward_keys(link))
        first, end = events_of(links)
        events = transaction.events(first - 1, end - 1)
        later.update(chain.id_bytes(each.decision) for each in events if isinstance(each, TallyUpdate))
        after = links[-1].number
    chosen = np.frombuffer(choice.ids, "S16")
    if found := int(np.isin(np.array(sorted(later), "S16"), chosen).sum()):
        allowed = f"a newer export: {found:,} of these decisions have got rewards since"
        raise InvalidValue("exported", str(exported.folder), allowed)
