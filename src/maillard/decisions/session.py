"""An experiment that is open: its state as far as it is known, and calls that share transactions."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from maillard.decisions import choosing, ledger
from maillard.decisions.choosing import Request
from maillard.decisions.configuration import check_same, start_event
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Start
from maillard.decisions.forks import renew_after_fork
from maillard.decisions.group_commit import GroupCommit
from maillard.decisions.ledger import Outcome
from maillard.decisions.log import MALFORMED, apply_events
from maillard.decisions.state import State, replay
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Head, Transaction
from maillard.errors import InvalidLog, InvalidValue, MaillardError, Stale, Unavailable

__all__ = ["Call", "Session"]

_SETTLE_EVERY = 1.0  # seconds
_SETTLE_AT_ONCE = 5_000  # windows
_SAVE_EVERY = 5_000  # events


class Call(NamedTuple):
    """Something to write: draws, rewards, windows to settle, or a change."""

    kind: str
    what: Any


class Session:
    """What stands between a bandit and its store."""

    def __init__(self, store: Store, experiment: str, given: dict[str, Any], staleness: float) -> None:
        self.store, self.experiment, self._staleness = store, experiment, staleness
        self._closed = False
        self.began = False
        "Whether the experiment is new, and this process made it."
        self.renew()
        self._refreshed = self._settled = time.monotonic()
        self.state = self._open(given)
        "The state after the events that this process knows of."
        self._group: GroupCommit[Call, Any] = GroupCommit(self.run)
        # Decisions change no state, so where the store can, they do not wait for what does.
        self._choices: GroupCommit[Call, Any] = (
            GroupCommit(self.run) if store.concurrent_decisions else self._group
        )
        renew_after_fork(self)

    def renew(self) -> None:
        """After a fork: another generator, seeded by the operating system, and a lock that nobody holds."""
        self._rng = np.random.default_rng()
        self._publishing = threading.Lock()

    def decide(self, request: Request) -> list[Decision]:
        """Draw and log; durable when this returns."""
        rows: list[Decision] = self._submit("draws", request, self._choices)
        if self.store.concurrent_decisions and time.monotonic() - self._settled >= _SETTLE_EVERY:
            self._settle_by_the_way()
        return rows

    def apply_rewards(self, rows: Sequence[RewardEvent]) -> list[Outcome | MaillardError]:
        """Log rewards and learn from them; what became of each."""
        outcomes: list[Outcome | MaillardError] = self._submit("rewards", rows, self._group)
        return outcomes

    def settle(self) -> None:
        """Close the windows that are due."""
        while self.settle_some():
            pass

    def settle_some(self) -> bool:
        """Close some of the windows that are due; whether there may be more."""
        self._settled = time.monotonic()
        return self.state.reward.settles and self._submit("settle", _settle, self._group) == _SETTLE_AT_ONCE

    def change(self, make: Callable[[State], AdministrativeEvent], expected: int | None = None) -> None:
        """Write the administrative event that `make` returns for the current state.

        With `expected`, raise Stale unless it is the number of the last administrative event.
        """

        def checked(state: State) -> AdministrativeEvent:
            if expected not in (None, state.administrative):
                raise Stale(
                    f"experiment {self.experiment!r} has changed: its last change is number {state.administrative}, not {expected}"
                )
            return make(state)

        self.write(lambda transaction, state: ledger.change(transaction, state, checked))

    def write(self, change: Callable[[Transaction, State], Any]) -> Any:
        """Whatever else is to be written. A change that raises must do so before it writes."""
        return self._submit("change", change, self._group)

    def refresh(self) -> State:
        """The state, with what other processes have written."""
        self.check_open()
        known = self.state
        with self.store.reading(self.experiment) as transaction:
            self._head(transaction, known)
            known = known.after(transaction.events(known.number))
        self._publish(known)
        self._refreshed = time.monotonic()
        return self.state

    def check_open(self) -> None:
        """Refuse to go on after `close`."""
        if self._closed:
            raise MaillardError(f"the bandit of experiment {self.experiment!r} is closed")

    def close(self) -> None:
        """Let go of the store."""
        self._closed = True
        self.store.close()

    def _submit(self, kind: str, what: Any, group: GroupCommit[Call, Any]) -> Any:
        self.check_open()
        if self.store.grouped:
            return group.submit(Call(kind, what))
        (answer,) = self.run([Call(kind, what)])
        if isinstance(answer, MaillardError):
            raise answer
        return answer

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """What becomes of a group of calls, all in one transaction: for each its result, or an error of that call alone.

        Threads share groups by themselves (`decide`, `observe`, `change`); a server that has calls at hand gives them here.
        """
        draws = [call.what for call in calls if call.kind == "draws"]
        only_draws = len(draws) == len(calls)
        rewards = [] if only_draws else [row for call in calls if call.kind == "rewards" for row in call.what]
        locked = not only_draws or not self.store.concurrent_decisions
        alone = not only_draws and any(call.kind == "change" for call in calls)
        known = self.state
        for eligible in {request.eligible for request in draws}:
            with suppress(MaillardError):  # it is raised, for who asked, where it is drawn from
                known.choice_distribution(
                    eligible
                )  # some policies take their time for it: not while others wait for the lock
        with self.store.transaction(self.experiment, lock=locked, alone=alone) as transaction:
            state = self._seen(transaction, known)
            made = iter(
                choosing.decide(transaction, self.experiment, state, draws, self._rng) if draws else ()
            )
            outcomes = iter(ledger.apply_rewards(transaction, state.reward, rewards) if rewards else ())
            answers: list[Any] = []
            for kind, what in calls:
                if kind == "draws":
                    answers.append(next(made))
                elif kind == "rewards":
                    answers.append([next(outcomes) for _ in what])
                else:
                    answers.append(self._other(transaction, state, what))
            changed = self._settled_state(transaction, state, draws, len(rewards)) if locked else state
        if changed is not known:
            self._publish(changed)
        return answers

    @staticmethod
    def _other(transaction: Transaction, state: State, change: Callable[[Transaction, State], Any]) -> Any:
        try:
            return change(transaction, state)
        except MaillardError as error:  # of this call alone: it is raised before anything is written
            return error

    def _seen(self, transaction: Transaction, known: State) -> State:
        """The state to draw from: all that is committed, unless it may be a little older."""
        head = self._head(transaction, known)
        if head.number == known.number:
            self._refreshed = time.monotonic()
        elif head.administrative > known.number or time.monotonic() - self._refreshed >= self._staleness:
            known = known.after(transaction.events(known.number))
            self._publish(known)
            self._refreshed = time.monotonic()
        return known

    def _head(self, transaction: Transaction, known: State) -> Head:
        head = transaction.head
        if head is None or head.number < known.number:
            what = "has gone from" if head is None else "is older than it was in"
            raise MaillardError(f"experiment {self.experiment!r} {what} {self.store.where}; open it again")
        return head

    @staticmethod
    def _settled_state(
        transaction: Transaction, state: State, draws: Sequence[Request] = (), rewards: int = 0
    ) -> State:
        """Close windows by the way, more than were opened; the state with everything that this transaction has written."""
        if state.reward.settles:
            written = sum(request.size for request in draws) + rewards
            ledger.settle(transaction, state.reward, max(_SETTLE_AT_ONCE, 2 * written))
        if transaction.head and transaction.head.number == state.number:
            return state
        changed = state.after(transaction.events(state.number))
        if changed.number // _SAVE_EVERY > state.number // _SAVE_EVERY:
            transaction.save_checkpoint(changed.number, changed.write())
        return changed

    def _settle_by_the_way(self) -> None:
        """Choices in a lane of their own settle nothing as they go. Now and then one looks, and does not wait for it."""
        self._settled = time.monotonic()
        if self.state.reward.settles:
            with suppress(Unavailable):
                with self.store.transaction(self.experiment, lock=True, wait=False) as transaction:
                    changed = self._settled_state(transaction, self._seen(transaction, self.state))
                self._publish(changed)  # it is committed

    def _publish(self, state: State) -> None:
        with self._publishing:
            if state.number > self.state.number:
                self.state = state

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

    def _resume(self, transaction: Transaction) -> tuple[State, Start] | None:
        """Where the experiment stands and what it was started with, if it exists."""
        where = self.store.where
        if not transaction.head or not transaction.head.number:
            return None
        first = transaction.events(0, through=1)
        state = _saved(transaction) or apply_events(None, first, where)
        (start,) = first
        if not isinstance(start, Start):
            raise InvalidLog(f"{where}: event 1", start.kind, "the start of the experiment")
        return apply_events(state, transaction.events(state.number), where), start

    def _start(self, given: dict[str, Any]) -> None:
        if given["arms"] is None or given["policy"] is None:
            there = self.store.experiments()
            known = f"it has {', '.join(map(repr, there))}" if there else "it has none"
            what = f"one in {self.store.where}, where {known}; or arms and a policy, to begin it"
            raise InvalidValue("experiment", self.experiment, what)
        start = start_event(**given)
        with self.store.transaction(self.experiment, lock=True) as transaction:
            if transaction.head is None:
                transaction.create()
            if transaction.head == Head(0, 0, 0):  # else another process has been quicker
                event = dataclasses.replace(start, time=transaction.now)
                replay([event]).check()
                transaction.add_events([event], Head(1, 1, 1))
                self.began = True


def _settle(transaction: Transaction, state: State) -> int:
    return ledger.settle(transaction, state.reward, _SETTLE_AT_ONCE)


def _saved(transaction: Transaction) -> State | None:
    """The state that was saved last, if it is any good: it only saves time."""
    saved, head = transaction.checkpoint(), transaction.head
    try:
        state = State.read(saved[1]) if saved else None
    except (*MALFORMED, MaillardError):
        return None
    return state if state and head and state.number <= head.number else None
