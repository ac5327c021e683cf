"""Statistics of contexts, kept up to date by reading only new rows.

An experiment is read when someone asks for its contexts, from its beginning, a part with every request. The
statistics are only in memory, because they contain values of contexts: when a unit is erased, or when the
features change, the experiment is read again from its beginning. So what was erased is forgotten.

Decisions are read in the order of their ids, with the lag of `log_monitor`. Rewards are read as events, and
the contexts of their decisions are looked up.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

from maillard.decisions.events import EraseUnit, TallyUpdate, configurations
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.timestamps import from_microseconds, system_clock
from maillard.service.context_statistics import ContextStatistics, Declaration
from maillard.service.log_monitor import default_lag, first_id

_MAX_EXPERIMENTS = 8  # whose statistics are kept
_BATCH = 1_000  # rows of one read
_RECENT = 60.0  # seconds after a request in which an experiment is read further


class ContextMonitor:
    """Statistics of the contexts of experiments. Threads may share it.

    >>> from maillard.decisions import Bandit, Reward
    >>> from maillard.decisions.stores import open_store
    >>> store = open_store(None)
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1), log=store, segments=["device"])
    >>> for _ in range(20): _ = bandit.reward(bandit.choose(context={"device": "phone"}), 1)
    >>> found = ContextMonitor(store, lag=0).read("default", None, limit_s=1)
    >>> found["by"], found["complete"], [(each["value"], each["mean"]) for each in found["segments"]]
    ('device', True, [('phone', 1.0)])
    """

    def __init__(self, store: Store, *, lag: float | None = None) -> None:
        self._store = store
        self._lag = round(1e6 * (default_lag(store) if lag is None else lag))
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, _Reader] = OrderedDict()

    def read(self, experiment: str, by: str | None, limit_s: float) -> dict[str, Any]:
        """Read new rows for about `limit_s` seconds; the statistics by a key, as far as the log was read.

        By default the key is the first one: a declared one, if there is any.
        """
        with self._lock:
            reader = self._readers.setdefault(experiment, _Reader(self._store, experiment, self._lag))
            self._readers.move_to_end(experiment)
            while len(self._readers) > _MAX_EXPERIMENTS:
                self._readers.popitem(last=False)
            reader.used = time.monotonic()
        with reader.lock:
            reader.advance(limit_s)
            return reader.found(by)

    def advance(self, limit_s: float) -> None:
        """Read further what was recently asked for, if it has not been read completely."""
        now = time.monotonic()
        with self._lock:
            readers = [each for each in self._readers.values() if now - each.used < _RECENT]
        for reader in readers:
            if not reader.complete:
                with reader.lock:
                    reader.advance(limit_s)


class _Reader:
    """How far an experiment was read, and its statistics."""

    def __init__(self, store: Store, experiment: str, lag: int) -> None:
        self._store, self._experiment, self._lag = store, experiment, lag
        self.lock = threading.Lock()
        self.used = 0.0
        self.complete = False
        self._as_of: int | None = None
        self._administrative = -1  # the last administrative event that is known
        self._begin(Declaration(), 0)

    def _begin(self, declaration: Declaration, clean: int) -> None:
        """Forget everything. Contexts that are read from now on do not have what was erased before."""
        self._statistics = ContextStatistics(declaration)
        self._clean = clean  # the last event at that time
        self._position, self._number = "0", 0  # the last decision and the last event that were read

    def advance(self, limit_s: float) -> None:
        """Read batches of rows for about `limit_s` seconds; at least one."""
        end, horizon = time.monotonic() + limit_s, system_clock() - self._lag
        self.complete = False
        while True:
            with self._store.reading(self._experiment) as transaction:
                self._follow(transaction)
                more_decisions = self._read_decisions(transaction, first_id(horizon // 1000 + 1))
                more_events = self._read_events(transaction)
            self.complete = not (more_decisions or more_events)
            self._as_of = horizon
            if self.complete or time.monotonic() >= end:
                break
            time.sleep(0)  # let other threads run

    def _follow(self, transaction: Transaction) -> None:
        """Begin anew if the features have changed, or if a unit was erased that has been counted."""
        head = transaction.head
        if head is None or (head.administrative == self._administrative and head.number >= self._number):
            return
        events = transaction.administrative_events()
        declaration = Declaration.of(configurations(events)[-1])
        erased = max((event.number for event in events if isinstance(event, EraseUnit)), default=0)
        replaced = head.number < self._number  # by another experiment of the same name
        if self._administrative < 0 or replaced or erased > self._clean or self._changed(declaration):
            self._begin(declaration, head.number)
        self._administrative = head.administrative

    def _changed(self, declaration: Declaration) -> bool:
        return declaration != self._statistics.declaration

    def _read_decisions(self, transaction: Transaction, before: str) -> bool:
        """Read a batch of decisions. Returns whether there may be more."""
        rows, last = transaction.contexts_between(self._position, before, _BATCH)
        for row in rows:
            self._statistics.count(row)
        if last is not None or rows:
            self._position = last or rows[-1].id
        return last is not None

    def _read_events(self, transaction: Transaction) -> bool:
        """Read a batch of events. Returns whether there are more."""
        last = transaction.head.number if transaction.head else 0
        through = min(self._number + _BATCH, last)
        if through <= self._number:
            return False
        events = transaction.events(self._number, through)
        updates = [event for event in events if isinstance(event, TallyUpdate)]
        rows = transaction.contexts_of({event.decision for event in updates})
        for event in updates:
            if event.decision in rows:  # otherwise it was pruned
                previous = event.previous if event.kind == "revision" else None
                self._statistics.reward(rows[event.decision], event.value, previous)
        self._number = through
        return through < last

    def found(self, by: str | None) -> dict[str, Any]:
        """The statistics, as a part of a `wire_schema.ContextActivity`."""
        statistics = self._statistics
        key = statistics.keys[0] if by is None and statistics.keys else by
        segments, other = statistics.segments(key) if key in statistics.keys else ([], None)
        return {
            "experiment": self._experiment,
            "as_of": None if self._as_of is None else from_microseconds(self._as_of),
            "complete": self.complete,
            "decisions": statistics.decisions,
            "without_context": statistics.without_context,
            "keys": statistics.keys,
            "by": key,
            "segments": segments,
            "other": other,
            "features": statistics.features(),
        }
