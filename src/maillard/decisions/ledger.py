"""Applies rewards and changes inside a transaction, in the same way for every store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from maillard.decisions.choosing import schedule_windows
from maillard.decisions.decision import Decision, Outcome, RewardEvent
from maillard.decisions.encoded_contexts import has_row_of_each_arm, row_of_chosen_arm, row_of_reward
from maillard.decisions.events import (
    AdministrativeEvent,
    Archive,
    EraseUnit,
    Prune,
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

MAX_PARKED = 10_000  # rewards without a known decision, per experiment
MAX_REWARD_EVENTS = 1_000  # per decision
_MAX_PARKING_TIME = 86_400_000_000  # microseconds, if the reward rule has no window


def append(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> int:
    """Add decisions that were made elsewhere, apply their parked rewards, and return how many are new."""
    known = transaction.decision_summaries([row.id for row in rows])
    new = list({row.id: row for row in rows if row.id not in known}.values())
    keys = {row.idempotency_key for row in new if row.idempotency_key is not None}
    if keys and (taken := transaction.decisions_by_key(keys)):
        raise Conflict(f"idempotency_key {next(iter(taken))!r} was used by other decisions")
    added = transaction.add_if_absent(new)  # an id may exist in another experiment
    new = [row for row in new if row.id in added]
    schedule_windows(transaction, rule, new)
    apply_provisional_defaults(transaction, rule, new)
    parked = transaction.parked([row.id for row in new]).values()
    if early := [each.row for rewards in parked for each in rewards]:
        transaction.unpark(early)
        apply_rewards(transaction, rule, early)
    return len(new)


def apply_provisional_defaults(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> None:
    """Count new decisions with the default reward, if the rule says so. Rewards will revise it."""
    if rule.learn != "provisional" or not rows:
        return
    assert rule.default is not None  # the rule requires it
    batch = _TallyUpdates(transaction, rule)
    for row in rows:
        if row.epoch == batch.head.epoch:
            batch.rows[row.id] = row_of_chosen_arm(row)
            batch.add("default", row.id, row.arm, rule.default)
    batch.write()


def apply_rewards(
    transaction: Transaction, rule: Reward, offered: Sequence[RewardEvent], *, pruned: bool = False
) -> list[Outcome | MaillardError]:
    """Log rewards, apply them to the tally, and return the outcome of each.

    Times that are `NOW` become the time of the transaction. `pruned`: whether old decisions were removed.
    """
    ids = {row.decision for row in offered}
    batch = _TallyUpdates(transaction, rule)
    decisions, known = transaction.decision_summaries(ids), transaction.reward_events(ids)
    batch.read_rows(decisions)
    unknown = ids - decisions.keys()
    parking = _ParkedRewards(transaction, unknown) if unknown else None
    pending = transaction.pending(ids) if rule.settles else set()
    outcomes: list[Outcome | MaillardError] = []
    new: list[RewardEvent] = []
    for offer in offered:
        row = _timed(offer, batch.now)
        decision, before = decisions.get(row.decision), known.setdefault(row.decision, [])
        if decision is None:
            assert parking is not None  # because its id is unknown
            outcomes.append(parking.add(row, rule, pruned=pruned))
        elif duplicate := _find_duplicate(row, before):
            outcomes.append(duplicate)
        elif len(before) >= MAX_REWARD_EVENTS:
            allowed = f"at most {MAX_REWARD_EVENTS} reward events per decision"
            outcomes.append(InvalidValue("event", row.event, allowed))
        else:
            late = _is_late(row, decision, rule, before, row.decision in pending)
            row = row._replace(late=late) if late else row
            outcomes.append("late" if late else batch.apply(decision, before, row))
            new.append(row)
            before.append(row)
    if parking is not None:
        transaction.park(parking.new)
    transaction.add_reward_events(new)
    batch.write()
    return outcomes


def park(transaction: Transaction, offered: Sequence[RewardEvent]) -> list[Outcome | MaillardError]:
    """Park rewards whose decision no experiment has yet. The transaction belongs to no experiment."""
    parking = _ParkedRewards(transaction, {row.decision for row in offered})
    outcomes = [parking.add(_timed(row, transaction.now), Reward()) for row in offered]
    transaction.park(parking.new)
    return outcomes


def _timed(row: RewardEvent, now: int) -> RewardEvent:
    arrived = row if row.arrived != NOW else row._replace(arrived=now)
    return arrived if row.at != NOW else arrived._replace(at=arrived.arrived)


class _ParkedRewards:
    """Rewards whose decision is not in the log yet. Their number and storage time are limited."""

    def __init__(self, transaction: Transaction, ids: Iterable[str]) -> None:
        found, now = transaction.parked(ids).items(), transaction.now
        self.parked = {key: [each for each in parked if not each.expired(now)] for key, parked in found}
        self.capacity = MAX_PARKED - transaction.count_parked()
        self.new: list[Parked] = []

    def add(self, row: RewardEvent, rule: Reward, *, pruned: bool = False) -> Outcome | MaillardError:
        before = self.parked.setdefault(row.decision, [])
        if duplicate := _find_duplicate(row, [each.row for each in before]):
            return duplicate
        since = min(creation_time(row.decision), row.arrived)
        closes = rule.closes(since)
        expires = since + _MAX_PARKING_TIME if closes is None else closes
        if expires <= row.arrived:
            allowed = "a decision in the log, or one whose reward window is still open"
            allowed += " (old decisions of this experiment were pruned)" if pruned else ""
            return InvalidValue("decision", row.decision, allowed)
        if len(self.new) >= self.capacity:
            return Unavailable(
                f"decision {row.decision} is not in the log, "
                f"and {MAX_PARKED} rewards already wait for unknown decisions. "
                "Nothing was acknowledged; try again."
            )
        before.append(Parked(row, expires))
        self.new.append(before[-1])
        return "parked"


def _find_duplicate(row: RewardEvent, before: Sequence[RewardEvent]) -> Outcome | MaillardError | None:
    for same in before:
        if same.event == row.event:
            if same.value == row.value:
                return "duplicate"
            known = f"the reward is already {same.value!r}, not {row.value!r}"
            return Conflict(f"decision {row.decision}, event {row.event!r}: {known}")
    return None


def _is_late(
    row: RewardEvent, decision: DecisionSummary, rule: Reward, before: Sequence[RewardEvent], pending: bool
) -> bool:
    closes = rule.closes(decision.time)
    if closes is None:
        return False
    if row.arrived >= closes or any(each.late for each in before):
        return True
    # A settled window stays closed, even if the clock is set back.
    return rule.settles and not pending and (rule.learn != "on_arrival" or not before)


class _TallyUpdates:
    """The tally updates that a transaction is about to write."""

    def __init__(self, transaction: Transaction, rule: Reward) -> None:
        self.transaction, self.rule = transaction, rule
        assert transaction.head is not None  # the session has checked that the experiment exists
        self.now, self.head = transaction.now, transaction.head
        self.events: list[TallyUpdate] = []
        self.rows: dict[str, str | None] = {}
        "The row of each decision that its reward is applied with, if the experiment uses contexts."

    def read_rows(self, decisions: Mapping[str, DecisionSummary]) -> None:
        """Find the rows of these decisions."""
        shared = []
        for key, decision in decisions.items():
            if decision.encoded is not None:
                if has_row_of_each_arm(decision.encoded):
                    shared.append(key)
                else:
                    self.rows[key] = row_of_reward(decision.encoded)
        if shared:  # the position of the chosen arm among the eligible ones tells its row
            found = self.transaction.decisions(shared)
            self.rows.update((key, row_of_chosen_arm(row)) for key, row in found.items())

    def apply(self, decision: DecisionSummary, before: Sequence[RewardEvent], row: RewardEvent) -> Outcome:
        if decision.epoch != self.head.epoch:
            return "old epoch"
        if self.rule.learn == "on_close":
            return "waiting"
        previous, value = self.rule.total(before), self.rule.total([*before, row])
        assert value is not None  # `row` is not late
        if previous is None and self.rule.learn == "provisional":
            previous = self.rule.default
        if previous is None:
            self.add("reward", row.decision, decision.arm, value)
            return "applied"
        if value == previous:
            return "unchanged"
        self.add("revision", row.decision, decision.arm, value, previous)
        return "revised"

    def add(
        self, kind: UpdateKind, decision: str, arm: str, value: float, previous: float | None = None
    ) -> None:
        number, row = self.head.number + len(self.events) + 1, self.rows.get(decision)
        self.events.append(TallyUpdate(number, kind, self.now, decision, arm, value, previous, row))

    def write(self) -> None:
        if self.events:
            self.transaction.add_events(self.events, self.head._replace(number=self.events[-1].number))


def settle(transaction: Transaction, rule: Reward, limit: int) -> int:
    """Close due windows: their rewards become final, and decisions without a reward get the default.

    Returns the number of windows settled, at most `limit`.
    """
    due = transaction.due_decisions(limit) if rule.window is not None else []
    if not due:
        return 0
    if rule.settles and rule.learn != "provisional":
        batch = _TallyUpdates(transaction, rule)
        decisions, known = transaction.decision_summaries(due), transaction.reward_events(due)
        batch.read_rows(decisions)
        for identifier in due:
            decision, value = decisions[identifier], rule.total(known.get(identifier, []))
            if decision.epoch == batch.head.epoch:
                if value is not None and rule.learn == "on_close":
                    batch.add("reward", identifier, decision.arm, value)
                elif value is None and rule.default is not None:
                    batch.add("default", identifier, decision.arm, rule.default)
        batch.write()
    transaction.remove_pending(due)
    return len(due)


def change(transaction: Transaction, state: State, make: Callable[[State], AdministrativeEvent]) -> State:
    """Write the event that `make` returns for the current state, if the policy can choose after it."""
    state = state.after(transaction.events(state.number))
    event = dataclasses.replace(make(state), number=state.number + 1, time=transaction.now)
    if state.archived and not isinstance(event, Resume | Archive | EraseUnit | Prune):
        raise Archived("the experiment is archived; resume it first (bandit.resume())")
    changed = state.after([event])
    changed.check_policy()
    transaction.add_events([event], Head(event.number, event.number, changed.epoch))
    return changed
