"""What a transaction does with rewards and changes: one definition for every store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from maillard.decisions.choosing import await_rewards
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import (
    AdministrativeEvent,
    Archive,
    EraseUnit,
    Resume,
    TallyUpdate,
    UpdateKind,
)
from maillard.decisions.identifiers import creation_time
from maillard.decisions.reward_rule import Reward
from maillard.decisions.state import State
from maillard.decisions.stores.contract import DecisionSummary, Head, Parked, Transaction
from maillard.decisions.timestamps import NOW
from maillard.errors import Archived, Conflict, InvalidValue, MaillardError, Unavailable

__all__ = [
    "MOST_EVENTS",
    "MOST_PARKED",
    "Outcome",
    "append",
    "apply_rewards",
    "change",
    "park",
    "settle",
]

MOST_PARKED = 10_000
MOST_EVENTS = 1_000  # of one decision
_ALLOWED_WHILE_ARCHIVED = (Resume, Archive, EraseUnit)
_LONGEST_WAIT = 86_400_000_000  # microseconds that a reward waits for its decision, where there is no window

Outcome = Literal[
    "applied",
    "revised",
    "unchanged",
    "duplicate",
    "parked",
    "late",
    "waiting",
    "old epoch",
    "conflict",
    "refused",
]


def append(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> int:
    """Add decisions that were drawn elsewhere, as they are; how many are new. Rewards that came before them are taken up."""
    known = transaction.decision_summaries([row.id for row in rows])
    new = list({row.id: row for row in rows if row.id not in known}.values())
    keys = {row.idempotency_key for row in new if row.idempotency_key is not None}
    if keys and (taken := transaction.decisions_by_key(keys)):
        raise Conflict(f"idempotency_key {next(iter(taken))!r} belongs to other decisions")
    added = transaction.add_if_absent(new)  # the id may be another experiment's
    new = [row for row in new if row.id in added]
    await_rewards(transaction, rule, new)
    parked = transaction.parked([row.id for row in new])
    if parked:
        early = [each.row for some in parked.values() for each in some]
        transaction.unpark(early)
        apply_rewards(transaction, rule, early)
    return len(new)


def apply_rewards(
    transaction: Transaction, rule: Reward, offered: Sequence[RewardEvent]
) -> list[Outcome | MaillardError]:
    """Log rewards and learn from them; what became of each. `NOW` stands for times that are the transaction's."""
    ids = {row.decision for row in offered}
    book = _Book(transaction, rule)
    drawn, known = transaction.decision_summaries(ids), transaction.reward_events(ids)
    unknown = ids - drawn.keys()
    early = _Early(transaction, unknown) if unknown else None
    pending = transaction.pending(ids) if rule.settles else set()
    outcomes: list[Outcome | MaillardError] = []
    kept: list[RewardEvent] = []
    for row in offered:
        arrived = _timed(row, book.now)
        decision = drawn.get(row.decision)
        if decision is None:
            assert early is not None  # its id is unknown
            outcomes.append(early.take(arrived, rule))
            continue
        before = known.setdefault(row.decision, [])
        if repeated := _repeated(row, before):
            outcomes.append(repeated)
            continue
        if len(before) >= MOST_EVENTS:
            outcomes.append(InvalidValue("event", row.event, f"at most {MOST_EVENTS} of one decision"))
            continue
        late = _is_late(arrived, decision, rule, before, row.decision in pending)
        arrived = arrived._replace(late=late) if late else arrived
        kept.append(arrived)
        outcomes.append("late" if late else book.learn(decision, before, arrived))
        before.append(arrived)
    if early is not None:
        transaction.park(early.new)
    transaction.add_reward_events(kept)
    book.write()
    return outcomes


def park(transaction: Transaction, offered: Sequence[RewardEvent]) -> list[Outcome | MaillardError]:
    """Keep rewards whose decision no experiment knows yet, in a transaction of none."""
    early = _Early(transaction, {row.decision for row in offered})
    outcomes = [early.take(_timed(row, transaction.now), Reward()) for row in offered]
    transaction.park(early.new)
    return outcomes


def _timed(row: RewardEvent, now: int) -> RewardEvent:
    arrived = row if row.arrived != NOW else row._replace(arrived=now)
    return arrived if row.at != NOW else arrived._replace(at=arrived.arrived)


class _Early:
    """Rewards whose decision is not known yet: kept for a while, if there is room."""

    def __init__(self, transaction: Transaction, ids: Iterable[str]) -> None:
        now = transaction.now
        self.parked = {
            key: [each for each in some if not each.expired(now)]
            for key, some in transaction.parked(ids).items()
        }
        self.room = MOST_PARKED - transaction.count_parked()
        self.new: list[Parked] = []

    def take(self, row: RewardEvent, rule: Reward) -> Outcome | MaillardError:
        before = self.parked.setdefault(row.decision, [])
        if repeated := _repeated(row, [each.row for each in before]):
            return repeated
        since = min(creation_time(row.decision), row.arrived)
        closes = rule.closes(since)
        expires = since + _LONGEST_WAIT if closes is None else closes
        if expires <= row.arrived:
            return InvalidValue(
                "decision_id", row.decision, "a decision that is known, or one whose window is open"
            )
        if len(self.new) >= self.room:
            return Unavailable(
                f"decision {row.decision} is not known, and {MOST_PARKED} rewards wait for such decisions already: no more are taken"
            )
        before.append(Parked(row, expires))
        self.new.append(before[-1])
        return "parked"


def _repeated(row: RewardEvent, before: Sequence[RewardEvent]) -> Outcome | MaillardError | None:
    for same in before:
        if same.event == row.event:
            if same.value == row.value:
                return "duplicate"
            return Conflict(
                f"decision {row.decision}, event {row.event!r}: its reward is {same.value!r}, not {row.value!r}"
            )
    return None


def _is_late(
    row: RewardEvent, decision: DecisionSummary, rule: Reward, before: Sequence[RewardEvent], pending: bool
) -> bool:
    closes = rule.closes(decision.time)
    if closes is None:
        return False
    if row.arrived >= closes or any(each.late for each in before):
        return True
    # A window that was settled stays closed, even if the clock is set back.
    return rule.settles and not pending and (rule.mature_only or not before)


class _Book:
    """Events that are about to be written."""

    def __init__(self, transaction: Transaction, rule: Reward) -> None:
        self.transaction, self.rule = transaction, rule
        self.now, self.head = transaction.now, _head(transaction)
        self.events: list[TallyUpdate] = []
        self.settled: list[str] = []

    def learn(self, decision: DecisionSummary, before: Sequence[RewardEvent], row: RewardEvent) -> Outcome:
        if decision.epoch != self.head.epoch:
            return "old epoch"
        if self.rule.mature_only:
            return "waiting"
        previous, value = self.rule.total(before), self.rule.total([*before, row])
        assert value is not None  # `row` is not late
        if previous is None:
            self.add("reward", row.decision, decision.arm, value)
            self.settled.append(row.decision)
            return "applied"
        if value == previous:
            return "unchanged"
        self.add("revision", row.decision, decision.arm, value, previous)
        return "revised"

    def add(
        self, kind: UpdateKind, decision: str, arm: str, value: float, previous: float | None = None
    ) -> None:
        number = self.head.number + len(self.events) + 1
        self.events.append(TallyUpdate(number, kind, self.now, decision, arm, value, previous))

    def write(self) -> None:
        if self.events:
            head = self.head._replace(number=self.events[-1].number)
            self.transaction.add_events(self.events, head)
        if self.settled and self.rule.settles:
            self.transaction.remove_pending(self.settled)


def settle(transaction: Transaction, rule: Reward, limit: int) -> int:
    """Freeze decisions whose window has closed, giving them the default if they have no reward; how many."""
    if not rule.settles:
        return 0
    due = transaction.due_decisions(limit)
    if due:
        book = _Book(transaction, rule)
        drawn, known = transaction.decision_summaries(due), transaction.reward_events(due)
        for identifier in due:
            decision, value = drawn[identifier], rule.total(known.get(identifier, []))
            if decision.epoch == book.head.epoch:
                if value is not None and rule.mature_only:
                    book.add("reward", identifier, decision.arm, value)
                elif value is None and rule.default is not None:
                    book.add("default", identifier, decision.arm, rule.default)
        book.settled = due
        book.write()
    return len(due)


def change(transaction: Transaction, state: State, make: Callable[[State], AdministrativeEvent]) -> State:
    """Write the administrative event that `make` returns for the current state, if the policy can choose after it."""
    head = _head(transaction)
    state = state.after(transaction.events(state.number))
    event = dataclasses.replace(make(state), number=head.number + 1, time=transaction.now)
    if state.archived and not isinstance(event, _ALLOWED_WHILE_ARCHIVED):
        raise Archived("the experiment is archived; call resume() first")
    changed = state.after([event]).check()
    transaction.add_events([event], Head(event.number, event.number, changed.epoch))
    return changed


def _head(transaction: Transaction) -> Head:
    if transaction.head is None:
        raise MaillardError("the experiment has gone from its log")
    return transaction.head
