"""A log in memory, for experiments and tests; also the simplest implementation of the interface."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from maillard.decisions.stores.contract import (
    Row,
)
from maillard.decisions.stores.memory_transaction import MemoryTables, MemoryTransaction
from maillard.decisions.timestamps import system_clock
from maillard.errors import Unavailable


class MemoryStore:
    """Logs in the memory of one process."""

    where = "memory"
    group_commits = False
    concurrent_decisions = False

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._clock = clock or system_clock
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._tables = MemoryTables()

    @contextmanager
    def transaction(self, experiment: str, **_options: bool) -> Iterator[MemoryTransaction]:
        """Begin a transaction, which is always exclusive.

        It cannot roll back, which is safe: `ledger` checks before it writes.
        """
        if os.getpid() != self._process:
            reason = "a log in memory cannot be used in another process"
            raise Unavailable(f"{reason}; give log= a path to share it")
        with self._lock:
            transaction = MemoryTransaction(self._tables, experiment, self._clock)
            try:
                yield transaction
            finally:
                transaction.write_link()

    def reading(self, experiment: str) -> AbstractContextManager[MemoryTransaction]:
        """Begin a read-only transaction."""
        return self.transaction(experiment)

    @contextmanager
    def scanning(self, experiment: str) -> Iterator[MemoryTransaction]:
        """Begin a read-only transaction on a copy, so that writers need not wait."""
        with self.reading(experiment) as transaction:
            transaction.copy_rows()
        yield transaction

    def experiments(self) -> list[str]:
        """The names of all experiments."""
        return sorted(self._tables.experiments)

    def rows(self, experiment: str) -> Iterator[Row]:
        """Every decision with its reward events and tally updates, ordered by state and id."""
        with self.scanning(experiment) as transaction:
            yield from transaction.rows()

    def scrub(self) -> None:
        """Do nothing."""

    def reclaim(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
