"""What a store of decisions does. Memory, SQLite and PostgreSQL keep this contract; `ledger` is written against it.

A store only keeps rows: what a reward means, which event gets which number, who wins a race for a key is decided once, in
`ledger`, inside a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Event, TallyUpdate

__all__ = ["Counts", "DecisionSummary", "Head", "Parked", "Store", "Transaction"]


class Head(NamedTuple):
    """Where an experiment stands."""

    number: int
    "Of its last event."
    administrative: int
    "Of its last event that was not a reward."
    epoch: int


class DecisionSummary(NamedTuple):
    """What a reward must know of its decision."""

    arm: str
    epoch: int
    time: int


class Parked(NamedTuple):
    """A reward whose decision is not known yet, and when it is too late for it."""

    row: RewardEvent
    expires: int | None

    def expired(self, now: int) -> bool:
        """Whether it is too late by now."""
        return self.expires is not None and self.expires <= now


class Counts(NamedTuple):
    """How much an experiment's log holds."""

    decisions: dict[str, int]
    "Of each arm."
    rewards: int
    late: int
    parked: int


class Transaction(Protocol):
    """Reads and writes of one experiment that happen together or not at all."""

    @property
    def now(self) -> int:
        """The store's clock, in microseconds since 1970; in a locked transaction, read after the lock was had."""

    @property
    def head(self) -> Head | None:
        """Where the experiment stands; None where there is none of this name."""

    def create(self) -> None:
        """Make the experiment, with no event yet."""

    def events(self, after: int, through: int | None = None) -> list[Event]:
        """The events with a greater number, in order, up to another."""

    def add_events(self, events: Sequence[Event], head: Head) -> None:
        """Add the next events and move the head. The experiment must be locked."""

    def administrative_events(self) -> list[AdministrativeEvent]:
        """The administrative events, in order."""

    def checkpoint(self) -> tuple[int, str] | None:
        """The number and the text of the last state that was saved."""

    def save_checkpoint(self, number: int, state: str) -> None:
        """Save a state, so that a log that is opened need not be replayed from its start."""

    def decision_summaries(self, ids: Iterable[str]) -> dict[str, DecisionSummary]:
        """Arm, epoch and time of those of the decisions that exist."""

    def decisions(self, ids: Iterable[str]) -> dict[str, Decision]:
        """Those of the decisions that exist."""

    def decisions_by_key(self, keys: Iterable[str]) -> dict[str, list[Decision]]:
        """The decisions of those of the idempotency keys that were used, by position."""

    def add_decisions(self, rows: Sequence[Decision]) -> None:
        """Add decisions whose ids are new."""

    def add_if_absent(self, rows: Sequence[Decision]) -> set[str]:
        """Add decisions, except those whose id, or whose key at their position, is taken; the ids of those that were added."""

    def reward_events(self, ids: Iterable[str]) -> dict[str, list[RewardEvent]]:
        """The rewards of those of the decisions that have any."""

    def add_reward_events(self, rows: Sequence[RewardEvent]) -> None:
        """Add rewards."""

    def parked(self, ids: Iterable[str]) -> dict[str, list[Parked]]:
        """The parked rewards of those of the decisions that have any."""

    def all_parked(self) -> list[Parked]:
        """Every parked reward."""

    def count_parked(self) -> int:
        """How many parked rewards have not expired."""

    def park(self, rows: Sequence[Parked]) -> None:
        """Keep rewards whose decision is not known, instead of those that have expired."""

    def unpark(self, rows: Iterable[RewardEvent]) -> None:
        """Forget these parked rewards."""

    def pending(self, ids: Iterable[str]) -> set[str]:
        """Those of the decisions that something is to happen to when their window closes."""

    def add_pending(self, rows: Mapping[str, int]) -> None:
        """Remember when the windows of these decisions close."""

    def remove_pending(self, ids: Iterable[str]) -> None:
        """Nothing is to happen to these any more."""

    def due_decisions(self, limit: int) -> list[str]:
        """Pending decisions whose window has closed, the earliest first."""

    def assignment(self, epoch: int, unit: str) -> str | None:
        """The decision that drew a unit's arm (sticky assignment)."""

    def assign(self, epoch: int, unit: str, decision: str, *, instead_of: str | None) -> bool:
        """Make a decision the one that drew a unit's arm, if none is, or if `instead_of` is; whether it did."""

    def counts(self) -> Counts:
        """How many rows there are."""

    def erase_unit(self, unit: str, token: str) -> int:
        """Put a token in the place of a unit's name and of its idempotency keys; how many rows had it."""

    # Of the whole store, whichever experiment the transaction is of; "" is none.

    def heads(self) -> dict[str, Head]:
        """Where every experiment stands."""

    def experiments_of(self, ids: Iterable[str]) -> dict[str, str]:
        """In which experiment those of the decisions are that exist."""

    def decisions_between(self, after: str, before: str, limit: int) -> list[Decision]:
        """Decisions of all experiments with ids between these, in the order of their ids, which is that of time."""

    def documents(self, kind: str) -> dict[str, str]:
        """Texts by their names: what a service keeps beside the log, as its API keys."""

    def put_document(self, kind: str, name: str, content: str) -> None:
        """Keep a text, in the place of the one of the same name."""


class Store(Protocol):
    """Where experiments are kept."""

    @property
    def where(self) -> str:
        """The store in words, without secrets."""

    @property
    def grouped(self) -> bool:
        """Whether a commit takes so long that calls which wait for one should share the next."""

    @property
    def concurrent_decisions(self) -> bool:
        """Whether decisions can be written while another transaction of the experiment changes its state."""

    def transaction(
        self, experiment: str, *, lock: bool, alone: bool = False, wait: bool = True
    ) -> AbstractContextManager[Transaction]:
        """A transaction, committed at the end of the block unless that raises; durable when the block has ended.

        With `lock` no other locked transaction of the experiment runs at the same time; `alone`, none at all. Without `wait` a lock that
        cannot be had at once is Unavailable.
        """

    def reading(self, experiment: str) -> AbstractContextManager[Transaction]:
        """A transaction that only reads, on one consistent state of the store."""

    def experiments(self) -> list[str]:
        """The names of all experiments."""

    def rows(
        self, experiment: str
    ) -> Iterator[tuple[Decision, tuple[RewardEvent, ...], tuple[TallyUpdate, ...]]]:
        """Every decision with its rewards and the events that these made, ordered by state and id."""

    def scrub(self) -> None:
        """Leave no trace of what was erased, as far as the store can."""

    def close(self) -> None:
        """Let go of files and connections."""
