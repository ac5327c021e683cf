"""An experiment that is open: its state as far as it is known, and calls that share transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from maillard.decisions import ledger
from maillard.decisions.configuration import check_same, start_payload
from maillard.decisions.forks import renew_after_fork
from maillard.decisions.grouping import Group
from maillard.decisions.ledger import Outcome, Request
from maillard.decisions.records import Decision, Event, Kind, Observation
from maillard.decisions.state import State, replay
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Head, Transaction
from maillard.errors import MaillardError

__all__ = ["Session"]

_SETTLE_EVERY = 1.0  # seconds
_SAVE_EVERY = 5_000  # events


class _Call(NamedTuple):
    """Something to write: draws, rewards, windows to settle, or a change."""

    kind: str
    what: Any


class Session:
    """What stands between a bandit and its store."""

    def __init__(self, store: Store, experiment: str, given: dict[str, Any], staleness: float) -> None:
        self.store, self.experiment, self._staleness = store, experiment, staleness
        self._closed = False
        self.renew()
        self._refreshed = self._settled = time.monotonic()
        self.state = self._open(given)
        "The state after the events that this process knows of."
        self._group: Group[_Call, Any] = Group(self._run)
        # Decisions change no state, so where the store can, they do not wait for what does.
        self._choices: Group[_Call, Any] = Group(self._run) if store.separate_lanes else self._group
        renew_after_fork(self)

    def renew(self) -> None:
        """After a fork: another generator, seeded by the operating system, and a lock that nobody holds."""
        self._rng = np.random.default_rng()
        self._publishing = threading.Lock()

    def decide(self, request: Request) -> list[Decision]:
        """Draw and log; durable when this returns."""
        if self.store.separate_lanes and time.monotonic() - self._settled >= _SETTLE_EVERY:
            self.settle()  # in a lane of their own, choices do not settle anything by the way
        rows: list[Decision] = self._submit("draws", request, self._choices)
        return rows

    def observe(self, rows: Sequence[Observation]) -> list[Outcome | MaillardError]:
        """Log rewards and learn from them; what became of each."""
        outcomes: list[Outcome | MaillardError] = self._submit("rewards", rows, self._group)
        return outcomes

    def settle(self) -> None:
        """Close the windows that are due."""
        self._settled = time.monotonic()
        while self.state.reward.settles and self._submit("settle", None, self._group):
            pass

    def change(self, kind: Kind, payload: Callable[[State], dict[str, Any]]) -> None:
        """An administrative event, its payload made from the state that it changes."""
        self.write(lambda transaction: ledger.change(transaction, self.state, kind, payload))

    def write(self, change: Callable[[Transaction], Any]) -> Any:
        """Whatever else is to be written. A change that raises must do so before it writes."""
        return self._submit("change", change, self._group)

    def refresh(self) -> State:
        """The state, with what other processes have written."""
        self.check_open()
        with self.store.reading(self.experiment) as transaction:
            news = self._news(transaction)
        self._publish(news)
        return self.state

    def check_open(self) -> None:
        """Refuse to go on after `close`."""
        if self._closed:
            raise MaillardError(f"the bandit of experiment {self.experiment!r} is closed")

    def close(self) -> None:
        """Let go of the store."""
        self._closed = True
        self.store.close()

    def _submit(self, kind: str, what: Any, group: Group[_Call, Any]) -> Any:
        self.check_open()
        if self.store.grouped:
            return group.submit(_Call(kind, what))
        (answer,) = self._run([_Call(kind, what)])
        if isinstance(answer, MaillardError):
            raise answer
        return answer

    def _run(self, calls: Sequence[_Call]) -> list[Any]:
        """Everything that a group of calls writes, in one transaction."""
        draws = [call.what for call in calls if call.kind == "draws"]
        rewards = [row for call in calls if call.kind == "rewards" for row in call.what]
        locked = len(draws) < len(calls) or not self.store.separate_lanes
        with self.store.transaction(self.experiment, lock=locked) as transaction:
            state = self._seen(transaction)
            made = iter(ledger.decide(transaction, self.experiment, state, draws, self._rng) if draws else ())
            outcomes = iter(ledger.observe(transaction, state.reward, rewards) if rewards else ())
            answers: list[Any] = []
            for kind, what in calls:
                if kind == "draws":
                    answers.append(next(made))
                elif kind == "rewards":
                    answers.append([next(outcomes) for _ in what])
                else:
                    answers.append(self._other(transaction, what))
            news = []
            if locked:
                ledger.settle(transaction, state.reward)
                news = self._news(transaction)
                if news and news[-1].number // _SAVE_EVERY > (news[0].number - 1) // _SAVE_EVERY:
                    transaction.save_checkpoint(news[-1].number, self.state.after(news).write())
        self._publish(news)
        return answers

    def _other(self, transaction: Transaction, change: Callable[[Transaction], Any] | None) -> Any:
        if change is None:
            return ledger.settle(transaction, self.state.reward)
        try:
            return change(transaction)
        except MaillardError as error:  # of this call alone: it is raised before anything is written
            return error

    def _seen(self, transaction: Transaction) -> State:
        """The state to draw from: all that is committed, unless it may be a little older."""
        head, state = transaction.head, self.state
        if head is None or head.number == state.number:
            self._refreshed = time.monotonic()
        elif head.administrative > state.number or time.monotonic() - self._refreshed >= self._staleness:
            self._publish(transaction.events(state.number))
        return self.state

    def _news(self, transaction: Transaction) -> list[Event]:
        head, known = transaction.head, self.state.number
        return transaction.events(known) if head is not None and head.number > known else []

    def _publish(self, events: Sequence[Event]) -> None:
        if events:
            with self._publishing:
                known = self.state.number
                self.state = self.state.after([event for event in events if event.number > known])
        self._refreshed = time.monotonic()

    def _open(self, given: dict[str, Any]) -> State:
        with self.store.reading(self.experiment) as transaction:
            opened = self._resume(transaction)
        if opened is None:
            self._start(given)
            with self.store.reading(self.experiment) as transaction:
                opened = self._resume(transaction)
        assert opened is not None
        state, started = opened
        check_same(given, started, state)
        return state

    @staticmethod
    def _resume(transaction: Transaction) -> tuple[State, Mapping[str, Any]] | None:
        """Where the experiment stands and what it was started with, if it exists."""
        if not transaction.head or not transaction.head.number:
            return None
        first = transaction.events(0, through=1)
        saved = transaction.checkpoint()
        state = State.read(saved[1]) if saved else replay(first)
        return state.after(transaction.events(state.number)), first[0].payload

    def _start(self, given: dict[str, Any]) -> None:
        payload = start_payload(**given | {"sticky": given["sticky"] or False})
        with self.store.transaction(self.experiment, lock=True) as transaction:
            if transaction.head is None:
                transaction.create()
            if transaction.head == Head(0, 0, 0):  # else another process has been quicker
                event = Event(number=1, kind="start", time=transaction.now, payload=payload)
                replay([event]).check()
                transaction.add_events([event], Head(1, 1, 1))
