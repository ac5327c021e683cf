"""What a transaction does with choices, rewards and changes: one definition for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

from maillard.decisions.identifiers import made_at, new_ids
from maillard.decisions.records import ADMINISTRATIVE, NOW, Decision, Event, Kind, Observation
from maillard.decisions.rules import Reward
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Drawn, Head, Parked, Transaction
from maillard.errors import Conflict, InvalidValue, MaillardError, Paused

__all__ = [
    "MOST_PARKED",
    "Outcome",
    "Request",
    "append",
    "change",
    "decide",
    "observe",
    "settle",
]

MOST_PARKED = 10_000
_LONGEST_WAIT = 86_400_000_000  # microseconds that a reward waits for its decision, where there is no window

Outcome = Literal[
    "learned",
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


class Request(NamedTuple):
    """A call of `choose`."""

    unit: str | None
    eligible: frozenset[str] | None
    key: str | None
    size: int


def decide(
    transaction: Transaction,
    experiment: str,
    state: State,
    requests: Sequence[Request],
    rng: np.random.Generator,
) -> list[list[Decision] | MaillardError]:
    """Draw from a state and log the draws, or find what an earlier call with the same key or unit logged."""
    results: list[list[Decision] | MaillardError] = [[] for _ in requests]
    plain: list[Decision] = []
    draws = _Draws(transaction, experiment, state, rng, requests)

    def turn(place: int) -> tuple[str, str]:
        """Units and keys in one order everywhere, so that two processes that want the same ones do not wait for each other."""
        unit, key = requests[place].unit, requests[place].key
        return (unit or "") if state.sticky else "", key or ""

    for place in sorted(range(len(requests)), key=turn):
        request = requests[place]
        try:
            if request.key is None and not (state.sticky and request.unit is not None):
                rows = draws.make(request)
                plain += rows
            else:
                rows = _decide_once(transaction, draws, request)
            results[place] = rows
        except MaillardError as error:  # of this call alone
            results[place] = error
    if plain:
        transaction.add_decisions(plain)
        _await_rewards(transaction, state.reward, plain)
    return results


class _Draws:
    """The one place where choices are made: the law that is drawn from is the law that is logged."""

    def __init__(
        self,
        transaction: Transaction,
        experiment: str,
        state: State,
        rng: np.random.Generator,
        requests: Sequence[Request],
    ) -> None:
        self.experiment, self.state, self.rng, self.now = experiment, state, rng, transaction.now
        self.sizes: dict[frozenset[str] | None, int] = {}
        for request in requests:
            self.sizes[request.eligible] = self.sizes.get(request.eligible, 0) + request.size
        # Some more: a sticky call may draw for nothing, where another process is quicker.
        spare = len(requests) if state.sticky else 0
        self.ids = iter(new_ids(sum(self.sizes.values()) + spare))
        self.places: dict[frozenset[str] | None, Iterator[int]] = {}

    def make(self, request: Request) -> list[Decision]:
        """The decisions of a call."""
        state, eligible = self.state, request.eligible
        self.check_running()
        law = state.law(eligible)
        if eligible not in self.places:  # for all calls with the same arms at once
            self.places[eligible] = iter(law.draw(self.rng, self.sizes[eligible]))
        return [
            Decision(
                id=next(self.ids),
                experiment=self.experiment,
                time=self.now,
                unit=request.unit,
                arm=law.arms[place],
                eligible=law.arms,
                log_probabilities=law.log_probabilities,
                log_probability=law.log_probabilities[place],
                policy_version=state.policy_version,
                formula_version=state.policy.formula_version,
                state=state.number,
                epoch=state.epoch,
                cold=law.cold[place],
                idempotency_key=request.key,
                position=position,
            )
            for position, place in enumerate(islice(self.places[eligible], request.size))
        ]

    def repeat(self, origin: Decision, request: Request) -> list[Decision]:
        """Decisions that keep the arm, and the law, of another."""
        self.check_running()
        return [
            origin._replace(
                id=next(self.ids),
                time=self.now,
                idempotency_key=request.key,
                position=position,
                origin=origin.id,
            )
            for position in range(request.size)
        ]

    def check_running(self) -> None:
        """Refuse to choose while the experiment is paused."""
        if self.state.paused:
            raise Paused(f"experiment {self.experiment!r} is paused; resume() lets it choose again")


def _decide_once(transaction: Transaction, draws: _Draws, request: Request) -> list[Decision]:
    """The decisions of a call with a key, or for a unit that keeps its arm."""
    if request.key is not None and (stored := _find(transaction, request)):
        return stored
    if draws.state.sticky and request.unit is not None:
        rows = _stick(transaction, draws, request)
    else:
        rows = draws.make(request)
    if request.key is not None and not transaction.claim(rows[0]):
        return _find(transaction, request)  # another process was quicker
    transaction.add_decisions(rows if request.key is None else rows[1:])
    _await_rewards(transaction, draws.state.reward, rows)
    return rows


def _find(transaction: Transaction, request: Request) -> list[Decision]:
    """What the first call with this idempotency key logged; nothing if there was none."""
    stored = transaction.keyed(request.key or "")
    if not stored:
        return []
    what = None
    if stored[0].unit != request.unit:
        what = f"for another unit than {request.unit!r}"
    elif len(stored) != request.size:
        what = f"for {len(stored)} decisions, not {request.size}"
    elif request.eligible is not None and not {row.arm for row in stored} <= request.eligible:
        what = f"that drew {stored[0].arm!r}, which is not eligible now"
    if what is not None:
        raise Conflict(f"idempotency_key {request.key!r} belongs to a call {what}")
    return stored


def _stick(transaction: Transaction, draws: _Draws, request: Request) -> list[Decision]:
    """A unit keeps the arm that was drawn for it first, with that draw's law, as long as the arm is eligible."""
    unit, epoch, eligible = request.unit or "", draws.state.epoch, draws.state.allowed(request.eligible)
    fresh: list[Decision] = []
    while True:
        found = transaction.assigned(epoch, unit)
        origin = None if found is None else transaction.decisions([found]).get(found)
        if origin is not None and origin.arm in eligible:
            return draws.repeat(origin, request)
        fresh = fresh or draws.make(request._replace(size=1))
        if transaction.assign(epoch, unit, fresh[0].id, instead_of=found):
            rest = draws.repeat(fresh[0], request)[1:] if request.size > 1 else []
            return [*fresh, *rest]


def _await_rewards(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> None:
    if rule.settles:
        transaction.add_pending({row.id: rule.closes(row.time) or 0 for row in rows})


def append(transaction: Transaction, rule: Reward, rows: Sequence[Decision]) -> int:
    """Add decisions that were drawn elsewhere, as they are; how many are new. Rewards that came before them are taken up."""
    known = transaction.drawn([row.id for row in rows])
    new = list({row.id: row for row in rows if row.id not in known}.values())
    for key in {row.idempotency_key for row in new} - {None}:
        if transaction.keyed(key or ""):
            raise Conflict(f"idempotency_key {key!r} belongs to other decisions")
    new = [row for row in new if transaction.claim(row)]  # the id may be another experiment's
    _await_rewards(transaction, rule, new)
    parked = transaction.parked([row.id for row in new])
    if parked:
        transaction.unpark(parked)
        observe(transaction, rule, [early.row for each in parked.values() for early in each])
    return len(new)


def observe(
    transaction: Transaction, rule: Reward, offered: Sequence[Observation]
) -> list[Outcome | MaillardError]:
    """Log rewards and learn from them; what became of each. `NOW` stands for times that are the transaction's."""
    ids = {row.decision for row in offered}
    book = _Book(transaction, rule)
    drawn, known = transaction.drawn(ids), transaction.observations(ids)
    unknown = ids - drawn.keys()
    early = _Early(transaction, unknown) if unknown else None
    pending = transaction.pending(ids) if rule.settles else set()
    outcomes: list[Outcome | MaillardError] = []
    kept: list[Observation] = []
    for row in offered:
        arrived = row if row.arrived != NOW else row._replace(arrived=book.now)
        arrived = arrived if row.at != NOW else arrived._replace(at=arrived.arrived)
        decision = drawn.get(row.decision)
        if decision is None:
            assert early is not None  # its id is unknown
            outcomes.append(early.take(arrived, rule))
            continue
        before = known.setdefault(row.decision, [])
        if repeated := _repeated(row, before):
            outcomes.append(repeated)
            continue
        late = _is_late(arrived, decision, rule, before, row.decision in pending)
        arrived = arrived._replace(late=late) if late else arrived
        kept.append(arrived)
        outcomes.append("late" if late else book.learn(decision, before, arrived))
        before.append(arrived)
    if early is not None:
        transaction.park(early.new)
    transaction.add_observations(kept)
    book.write()
    return outcomes


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

    def take(self, row: Observation, rule: Reward) -> Outcome | MaillardError:
        before = self.parked.setdefault(row.decision, [])
        if repeated := _repeated(row, [each.row for each in before]):
            return repeated
        if len(self.new) >= self.room:
            return MaillardError(
                f"decision {row.decision} is not known, and {MOST_PARKED} rewards wait for such decisions already: no more are taken"
            )
        since = min(made_at(row.decision), row.arrived)
        closes = rule.closes(since)
        expires = since + _LONGEST_WAIT if closes is None else closes
        if expires <= row.arrived:
            return InvalidValue(
                "decision_id", row.decision, "a decision that is known, or one whose window is open"
            )
        before.append(Parked(row, expires))
        self.new.append(before[-1])
        return "parked"


def _repeated(row: Observation, before: Sequence[Observation]) -> Outcome | MaillardError | None:
    for same in before:
        if same.event == row.event:
            if same.value == row.value:
                return "duplicate"
            return Conflict(
                f"decision {row.decision}, event {row.event!r}: its reward is {same.value!r}, not {row.value!r}"
            )
    return None


def _is_late(
    row: Observation, decision: Drawn, rule: Reward, before: Sequence[Observation], pending: bool
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
        self.events: list[Event] = []
        self.settled: list[str] = []

    def learn(self, decision: Drawn, before: Sequence[Observation], row: Observation) -> Outcome:
        if decision.epoch != self.head.epoch:
            return "old epoch"
        if self.rule.mature_only:
            return "waiting"
        previous, value = self.rule.total(before), self.rule.total([*before, row])
        if previous is None:
            self.add("reward", row.decision, decision.arm, value)
            self.settled.append(row.decision)
            return "learned"
        if value == previous:
            return "unchanged"
        self.add("revision", row.decision, decision.arm, value, previous)
        return "revised"

    def add(
        self, kind: Kind, decision: str, arm: str, value: float | None, previous: float | None = None
    ) -> None:
        number = self.head.number + len(self.events) + 1
        self.events.append(
            Event(
                number=number,
                kind=kind,
                time=self.now,
                decision=decision,
                arm=arm,
                value=value,
                previous=previous,
            )
        )

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
    due = transaction.due(limit)
    if due:
        book = _Book(transaction, rule)
        drawn, known = transaction.drawn(due), transaction.observations(due)
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


def change(
    transaction: Transaction, state: State, kind: Kind, make: Callable[[State], dict[str, Any]]
) -> State:
    """Add an administrative event, its payload made from the state that it changes, if a policy can choose after it."""
    assert kind in ADMINISTRATIVE
    head = _head(transaction)
    state = state.after(transaction.events(state.number))
    event = Event(number=head.number + 1, kind=kind, time=transaction.now, payload=make(state))
    changed = state.after([event]).check()
    transaction.add_events([event], Head(event.number, event.number, changed.epoch))
    return changed


def _head(transaction: Transaction) -> Head:
    if transaction.head is None:
        raise MaillardError("the experiment has gone from its log")
    return transaction.head
