"""An open experiment: its latest known state, and the transactions that concurrent calls share."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar

from maillard.decisions import deferred_events, ledger
from maillard.decisions.actors import current_actor
from maillard.decisions.call_arguments import Request
from maillard.decisions.choosing import DecisionBatch, RandomSource
from maillard.decisions.configuration import check_same, start_event
from maillard.decisions.decision import Decision, Outcome, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Simulate, Start
from maillard.decisions.experiment_configuration import Configuration
from maillard.decisions.forks import renew_after_fork
from maillard.decisions.group_commit import GroupCommit
from maillard.decisions.log import MALFORMED, apply_events
from maillard.decisions.pruned_logs import last_prune, load_base
from maillard.decisions.shared_batches import PartFailedError, run_in_one_commit
from maillard.decisions.simple_decisions import SimpleBatch, simple_batch
from maillard.decisions.state import State, replay
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Head, NotNewError, SharedCommitStore, Transaction
from maillard.errors import InvalidLog, InvalidValue, MaillardError, Stale, Unavailable

_SETTLE_INTERVAL = 1.0  # seconds
_MAX_SETTLED = 5_000  # windows per transaction
_CHECKPOINT_INTERVAL = 5_000  # events


Read = TypeVar("Read")
CallKind = Literal["decide", "rewards", "settle", "change"]


class Call(NamedTuple):
    """Something to write: a request for decisions, rewards, windows to settle, or a change."""

    kind: CallKind
    argument: Any


class Session:
    """Connects a bandit, or a server, to the store of one experiment."""

    def __init__(
        self,
        store: Store,
        experiment: str,
        given: dict[str, Any],
        staleness: float = 0.0,
        simulation: Simulate | None = None,
    ) -> None:
        self.store, self.experiment, self._staleness = store, experiment, staleness
        self._shared_store = store if isinstance(store, SharedCommitStore) else None
        self._closed = False
        self._simulated_clock = simulation is not None and simulation.clock
        self.created = False
        "Whether this session created the experiment."
        self.renew()
        self._refreshed = self._settled = time.monotonic()
        self.state = self._open(given)
        "The latest state that this process knows."
        self._changes: GroupCommit[Call, Any] = GroupCommit(self.run)
        # Decisions do not change the state. If the store allows it, they do not wait for writes that do.
        self._decisions = GroupCommit(self.run) if store.concurrent_decisions else self._changes
        renew_after_fork(self)
        if simulation is not None:
            self.change(lambda _: simulation)
            if simulation.seed is not None:
                # The number of the event makes the choices of a second run differ from those of the first.
                seed = [simulation.seed, self.state.administrative]
                self._random = RandomSource(seed, simulated_clock=simulation.clock)

    def renew(self) -> None:
        """After a fork: create a new random generator and a new lock."""
        self._random = RandomSource(simulated_clock=self._simulated_clock)
        self._publishing = threading.Lock()

    def decide(self, request: Request) -> list[Decision]:
        """Make and log decisions; they are durable when this returns."""
        rows: list[Decision] = self._submit("decide", request, self._decisions)
        waited = time.monotonic() - self._settled
        if self.store.concurrent_decisions and (self._simulated_clock or waited >= _SETTLE_INTERVAL):
            self._try_settle()
        return rows

    def apply_rewards(self, rows: Sequence[RewardEvent]) -> list[Outcome | MaillardError]:
        """Log rewards, apply them, and return the outcome of each."""
        outcomes: list[Outcome | MaillardError] = self._submit("rewards", rows, self._changes)
        return outcomes

    def defer(self, request: Request) -> list[Decision]:
        """Make a decision that is logged when it is activated; it is durable when this returns."""
        rows: list[Decision] = self.write(
            lambda transaction, state: deferred_events.defer(transaction, state, request, self._random)
        )
        return rows

    def activate(self, key: str) -> tuple[Decision, bool] | None:
        """Log the decision that waits under a key. Returns it and whether it is new, or None."""
        found: tuple[Decision, bool] | None = self.write(
            lambda transaction, state: deferred_events.activate(transaction, state, key, self._random)
        )
        return found

    def settle(self) -> None:
        """Close all reward windows that are due."""
        self.check_open()
        while self.settle_batch():
            pass

    def settle_batch(self) -> bool:
        """Close a limited number of the windows that are due; return whether more may be due."""
        self._settled = time.monotonic()
        has_windows = self.state.reward.window is not None
        return has_windows and self._submit("settle", _settle, self._changes) == _MAX_SETTLED

    def change(self, make: Callable[[State], AdministrativeEvent], expected: int | None = None) -> None:
        """Write the administrative event that `make` returns for the current state.

        With `expected`, raise Stale unless it is the number of the last administrative event.
        """
        actor = current_actor()  # another thread may write the event

        def checked(state: State) -> AdministrativeEvent:
            if expected not in (None, state.administrative):
                last = f"its last change is event {state.administrative}, not {expected}"
                raise Stale(f"experiment {self.experiment!r} has changed: {last}")
            return dataclasses.replace(make(state), by=actor)

        self.write(lambda transaction, state: ledger.change(transaction, state, checked))

    def write(self, change: Callable[[Transaction, State], Any]) -> Any:
        """Run another change in a transaction. A change that raises must raise before it writes."""
        return self._submit("change", change, self._changes)

    def refresh(self) -> State:
        """Read the events of other processes and return the state."""
        return self.refresh_with(lambda _transaction, _state: None)[0]

    def refresh_with(self, read: Callable[[Transaction, State], Read]) -> tuple[State, Read]:
        """Read the events of other processes; return the state and what `read` finds in that snapshot."""
        self.check_open()
        known = self.state  # before the snapshot, which must not be older
        with self.store.reading(self.experiment) as transaction:
            state = self._current_state(transaction, known, staleness=0.0)
            return state, read(transaction, state)

    def check_open(self) -> None:
        """Raise if the session is closed."""
        if self._closed:
            raise MaillardError(f"the bandit of experiment {self.experiment!r} is closed")

    def close(self) -> None:
        """Close the store."""
        self._closed = True
        self.store.close()

    def _submit(self, kind: CallKind, argument: Any, group: GroupCommit[Call, Any]) -> Any:
        self.check_open()
        if self.store.group_commits:
            return group.submit(Call(kind, argument))
        (answer,) = self.run([Call(kind, argument)])
        if isinstance(answer, MaillardError):
            raise answer
        return answer

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Run a batch of calls in one transaction; return the result or the error of each call.

        Threads share batches through `decide`, `apply_rewards` and `change`. A server forms its own batches.
        """
        if self._shared_store is not None and (batch := self.simple_batch(calls)) is not None:
            with suppress(NotNewError, PartFailedError):  # nothing was written
                return run_in_one_commit(self._shared_store, {self: calls}, {self: batch})[self]
        decisions_only = all(call.kind == "decide" for call in calls)
        learns = not decisions_only or self.state.reward.learn == "provisional"
        locked = learns or not self.store.concurrent_decisions
        exclusive = any(call.kind == "change" for call in calls)
        known = self.prepare(calls)
        with self.store.transaction(self.experiment, lock=locked, exclusive=exclusive) as transaction:
            answers, state = self.run_in(transaction, known, calls, locked=locked)
        self.publish(state)
        return answers

    def prepare(self, calls: Sequence[Call]) -> State:
        """Compute slow distributions before taking the lock; return the state that `run_in` starts from.

        It must be known before the transaction begins, because a transaction must not be older than it.
        """
        known = self.state
        if known.context is None:
            for eligible in {call.argument.eligible for call in calls if call.kind == "decide"}:
                with suppress(MaillardError):  # it is raised again for the caller concerned
                    known.choice_distribution(eligible)
            return known
        for request in [call.argument for call in calls if call.kind == "decide"]:
            for raw in request.contexts:
                with suppress(MaillardError):
                    known.choice_distribution(request.eligible, raw)
        return known

    def simple_batch(self, calls: Sequence[Call]) -> SimpleBatch | None:
        """The requests for decisions, if there is nothing else and all are simple."""
        requests = [argument for kind, argument in calls if kind == "decide"]
        if len(requests) < len(calls):
            return None
        return simple_batch(self.experiment, self.state, requests, self._random)

    def run_in(
        self, transaction: Transaction, known: State, calls: Sequence[Call], *, locked: bool
    ) -> tuple[list[Any], State]:
        """Run calls in a transaction; return their answers, and the state to publish after the commit."""
        requests = [call.argument for call in calls if call.kind == "decide"]
        rewards = [row for call in calls if call.kind == "rewards" for row in call.argument]
        state = self._current_state(transaction, known, self._staleness)
        made: Iterator[list[Decision] | MaillardError] = iter(())
        if requests:
            batch = DecisionBatch(transaction, self.experiment, state, requests, self._random)
            made = iter(batch.decide())
            ledger.apply_provisional_defaults(transaction, state.reward, batch.logged)
        applied = (
            ledger.apply_rewards(transaction, state.reward, rewards, pruned=bool(state.pruned))
            if rewards
            else ()
        )
        outcomes = iter(applied)
        answers: list[Any] = []
        for kind, argument in calls:
            if kind == "decide":
                answers.append(next(made))
            elif kind == "rewards":
                answers.append([next(outcomes) for _ in argument])
            else:
                try:
                    answers.append(argument(transaction, state))
                except MaillardError as error:  # it concerns only this call, and nothing was written
                    answers.append(error)
        if locked:
            written = sum(request.size for request in requests) + len(rewards)
            state = self._settle_and_advance(transaction, state, written)
        return answers, state

    def _current_state(self, transaction: Transaction, known: State, staleness: float) -> State:
        """The state to choose from: everything committed, or a known state within the allowed staleness."""
        head = transaction.head
        if head is None or head.number < known.number:
            problem = "is no longer in" if head is None else "has fewer events than before in"
            raise MaillardError(f"experiment {self.experiment!r} {problem} {self.store.where}; open it again")
        if head.number == known.number:
            self._refreshed = time.monotonic()
        elif head.administrative > known.number or time.monotonic() - self._refreshed >= staleness:
            known = self._advanced(transaction, known)
            self.publish(known)
            self._refreshed = time.monotonic()
        return known

    def _advanced(self, transaction: Transaction, known: State) -> State:
        """A known state after all later events."""
        events = transaction.events(known.number)
        if events and events[-1].number - known.number > len(events):  # another process has pruned the log
            return load_state(transaction, self.store.where)
        return known.after(events)

    @staticmethod
    def _settle_and_advance(transaction: Transaction, state: State, written: int = 0) -> State:
        """Close due windows, more than were `written`; return the state after the transaction's events."""
        ledger.settle(transaction, state.reward, max(_MAX_SETTLED, 2 * written))
        if transaction.head and transaction.head.number == state.number:
            return state
        changed = state.after(transaction.events(state.number))
        if changed.number // _CHECKPOINT_INTERVAL > state.number // _CHECKPOINT_INTERVAL:
            transaction.save_checkpoint(changed.number, changed.write())
        return changed

    def _try_settle(self) -> None:
        """Settle due windows, after concurrent decisions, unless another transaction holds the lock."""
        self._settled = time.monotonic()
        if self.state.reward.window is not None:
            with suppress(Unavailable):
                with self.store.transaction(self.experiment, lock=True, wait=False) as transaction:
                    known = self._current_state(transaction, self.state, self._staleness)
                    changed = self._settle_and_advance(transaction, known)
                self.publish(changed)  # only after the commit

    def publish(self, state: State) -> None:
        """Make a committed state the one that this process knows, unless it knows a later one."""
        if state is self.state:
            return
        with self._publishing:
            if state.number > self.state.number:
                self.state = state

    def _open(self, given: dict[str, Any]) -> State:
        opened = self._resume()
        if opened is None:
            self._start(given)
            opened = self._resume()
        assert opened is not None
        check_same(given, *opened)
        return opened[1]

    def _resume(self) -> tuple[Configuration, State] | None:
        """The first configuration and the current state of the experiment; None if it does not exist."""
        with self.store.reading(self.experiment) as transaction:
            if not transaction.head or not transaction.head.number:
                return None
            state = load_state(transaction, self.store.where)
            (start,) = transaction.events(0, through=1)
        if not isinstance(start, Start):
            raise InvalidLog("events: kind", start.kind, "the start of the experiment as its first event")
        return start.configuration(), state

    def _start(self, given: dict[str, Any]) -> None:
        if given["arms"] is None:
            names = ", ".join(map(repr, self.store.experiments())) or "none"
            allowed = f"an experiment in {self.store.where} ({names}), or arms to create one"
            raise InvalidValue("experiment", self.experiment, allowed)
        start = start_event(**given)
        with self.store.transaction(self.experiment, lock=True) as transaction:
            if transaction.head is None:
                transaction.create()
            if transaction.head == Head(0, 0, 0):  # otherwise another process created it first
                event = dataclasses.replace(start, time=transaction.now)
                replay([event]).check_policy()
                transaction.add_events([event], Head(1, 1, 1))
                self.created = True


def _settle(transaction: Transaction, state: State) -> int:
    return ledger.settle(transaction, state.reward, _MAX_SETTLED)


def load_state(transaction: Transaction, where: str) -> State:
    """The current state of an experiment, from its checkpoint if it can be used."""
    saved = _read_checkpoint(transaction)
    if saved is None and (prune := last_prune(transaction.administrative_events())):
        saved = load_base(transaction, prune).state
    return apply_events(saved, transaction.events(saved.number if saved else 0), where)


def _read_checkpoint(transaction: Transaction) -> State | None:
    """The state of the last checkpoint, or None if it is missing or damaged; a checkpoint only saves time."""
    saved, head = transaction.checkpoint(), transaction.head
    try:
        state = State.read(saved[1]) if saved else None
    except (*MALFORMED, MaillardError):
        return None
    return state if state and head and state.number <= head.number else None
