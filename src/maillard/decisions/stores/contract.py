"""The interface of a store of decision logs, implemented for memory, SQLite and PostgreSQL.

A store only reads and writes rows. `ledger` and `choosing` decide, inside a transaction, what a reward
does, which number an event gets, and which call gets an idempotency key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from maillard.decisions.chain import Link
from maillard.decisions.decision import Decision, LoggedContext, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Event, TallyUpdate


class Head(NamedTuple):
    """The last events of an experiment."""

    number: int
    "The number of the last event."
    administrative: int
    "The number of the last administrative event."
    epoch: int


class DecisionSummary(NamedTuple):
    """The fields of a decision that are needed to apply a reward."""

    arm: str
    epoch: int
    time: int
    encoded: bytes | None = None
    "What the distribution was computed from, if the experiment uses contexts."


class Parked(NamedTuple):
    """A reward whose decision is not in the log yet, and the time at which it is dropped."""

    row: RewardEvent
    expires: int | None

    def expired(self, now: int) -> bool:
        """Whether it is time to drop the reward because its decision was never logged."""
        return self.expires is not None and self.expires <= now


class Row(NamedTuple):
    """A decision with its rewards."""

    decision: Decision
    rewards: tuple[RewardEvent, ...]
    applied: tuple[TallyUpdate, ...]
    "The events that applied the rewards to the tally."


class Counts(NamedTuple):
    """The numbers of rows of an experiment."""

    decisions: dict[str, int]
    "For each arm."
    rewards: int
    late: int
    parked: int


class Visits(NamedTuple):
    """How often units returned."""

    decisions: int
    units: int
    "The number of different units. A decision without a unit has none."
    squares: int
    "The sum of the squared numbers of decisions of the units; a decision without a unit counts 1."


class OpenWindow(NamedTuple):
    """Decisions of one arm whose windows are open and that count with the same reward."""

    arm: str
    value: float | None
    "The reward that the tally has for each of them; None if they do not count yet."
    decisions: int
    closes: int
    "When the first of these windows closes."


class ChainRows(NamedTuple):
    """The rows that some links name, as far as they are in the log."""

    decisions: dict[str, tuple[Decision, bytes | None]]
    "Each decision with its seal: a salt, or the commitment after erasure."
    events: dict[int, tuple[Any, ...]]
    "The rows of events, as SQL stores write them."
    rewards: dict[str, list[RewardEvent]]
    "All reward events of the decisions whose reward events the links name."


class Transaction(Protocol):
    """An atomic group of reads and writes of one experiment."""

    @property
    def name(self) -> str:
        """The name of the experiment."""

    @property
    def now(self) -> int:
        """The store's clock, in microseconds since 1970. A locked transaction reads it after locking."""

    @property
    def head(self) -> Head | None:
        """The experiment's last events; None if the experiment does not exist."""

    def create(self) -> None:
        """Create the experiment, without events."""

    def events(self, after: int, through: int | None = None) -> list[Event]:
        """The events with numbers greater than `after`, in order, optionally up to `through`."""

    def add_events(self, events: Sequence[Event], head: Head) -> None:
        """Add the next events and set the head. The experiment must be locked."""

    def administrative_events(self) -> list[AdministrativeEvent]:
        """The administrative events, in order."""

    def checkpoint(self) -> tuple[int, str] | None:
        """The number and the text of the last saved state."""

    def save_checkpoint(self, number: int, state: str) -> None:
        """Save a state, so that opening the log need not replay all events."""

    def decision_summaries(self, ids: Iterable[str]) -> dict[str, DecisionSummary]:
        """The arm, epoch, time and encoded context of each of these decisions that exists."""

    def decisions(self, ids: Iterable[str]) -> dict[str, Decision]:
        """Those of these decisions that exist, by id."""

    def decisions_of_units(self, units: Iterable[str]) -> list[str]:
        """The ids of the decisions of these units. This reads all decisions."""

    def contexts_of(self, ids: Iterable[str]) -> dict[str, LoggedContext]:
        """The contexts of those of these decisions that exist, by id."""

    def contexts_between(self, after: str, before: str, limit: int) -> tuple[list[LoggedContext], str | None]:
        """The contexts of this experiment among the first `limit` decisions of the store between these ids.

        They are ordered by id. The second value is the id of the last decision; None if there are no more.
        """

    def rows(self) -> Iterator[Row]:
        """Every decision with its reward events and tally updates, ordered by state and id."""

    def rows_of(self, ids: Iterable[str]) -> list[Row]:
        """Those of these decisions that exist, with their reward events and tally updates."""

    def decisions_by_key(self, keys: Iterable[str]) -> dict[str, list[Decision]]:
        """The decisions of each of these idempotency keys that was used, ordered by position."""

    def add_decisions(self, rows: Sequence[Decision]) -> None:
        """Add decisions with new ids."""

    def add_if_absent(self, rows: Sequence[Decision]) -> set[str]:
        """Add those decisions whose id and key (at their position) are new; return their ids."""

    def reward_events(self, ids: Iterable[str]) -> dict[str, list[RewardEvent]]:
        """The reward events of each of these decisions that has any."""

    def add_reward_events(self, rows: Sequence[RewardEvent]) -> None:
        """Add reward events."""

    def parked(self, ids: Iterable[str]) -> dict[str, list[Parked]]:
        """The parked rewards of each of these decisions that has any."""

    def all_parked(self) -> list[Parked]:
        """All parked rewards."""

    def count_parked(self) -> int:
        """The number of parked rewards that have not expired."""

    def park(self, rows: Sequence[Parked]) -> None:
        """Add parked rewards and remove expired ones."""

    def unpark(self, rows: Iterable[RewardEvent]) -> None:
        """Remove these parked rewards."""

    def pending(self, ids: Iterable[str]) -> set[str]:
        """Those of these decisions whose window has not been closed yet."""

    def add_pending(self, rows: Mapping[str, int]) -> None:
        """Store the times at which the windows of these decisions close."""

    def remove_pending(self, ids: Iterable[str]) -> None:
        """Mark the windows of these decisions as settled."""

    def due_decisions(self, limit: int) -> list[str]:
        """Pending decisions whose window has closed, the earliest first."""

    def open_windows(self, epoch: int, *, applied: bool) -> list[OpenWindow]:
        """The pending decisions of an epoch, grouped by arm and, with `applied`, by the applied reward."""

    def decisions_of_epoch(self, epoch: int) -> dict[str, int]:
        """The number of decisions of each arm in an epoch."""

    def visits(self, epoch: int) -> Visits:
        """How often units returned in an epoch. This reads all of its decisions."""

    def assignment(self, epoch: int, unit: str) -> str | None:
        """The id of the decision that assigned the unit's arm (sticky assignment)."""

    def assign(self, epoch: int, unit: str, decision: str, *, instead_of: str | None) -> bool:
        """Assign the decision's arm to a unit if its assignment is `instead_of`; return whether it was."""

    def updated_decisions(self, after: int, through: int) -> list[str]:
        """The ids of the decisions of the tally updates after one number, up to another one."""

    def counts(self) -> Counts:
        """The numbers of rows."""

    def count_decisions(self) -> int:
        """The number of decisions."""

    def count_rewards(self, expected: int) -> int:
        """The number of reward events of decisions. If there are not more than expected: any such number."""

    def erase_unit(self, unit: str, token: str) -> int:
        """Replace a unit's name and idempotency keys by a token, and remove its contexts.

        Return the number of changed rows.
        """

    def write_link(self) -> None:
        """Add a link for the rows added so far. The end of a transaction does this for the rest."""

    def chain_end(self) -> tuple[int, bytes] | None:
        """The number and the hash of the last link, as they are stored apart from the links."""

    def last_link(self) -> Link | None:
        """The last link of the chain."""

    def links(self, after: int, limit: int) -> list[Link]:
        """At most `limit` links with numbers greater than `after`, in order."""

    def chain_rows(self, links: Sequence[Link]) -> ChainRows:
        """The rows that consecutive links name."""

    # Pruning. The links are the first ones of the chain, so that no decision loses its rewards before it is
    # removed itself.

    def updates(self, ids: Iterable[str]) -> dict[str, list[TallyUpdate]]:
        """The tally updates of each of these decisions that has any, in order."""

    def lost_updates(self, base: int) -> list[TallyUpdate]:
        """The tally updates after event `base` of decisions that are not in the log after this event.

        These were pruned, or are about to be: they were made in a state before `base`.
        """

    def count_earlier_states(self, number: int) -> int:
        """The number of decisions that were made in a state before this one. This reads all decisions."""

    def remove_links(self, links: Sequence[Link], base: int) -> None:
        """Remove consecutive links, and the rows that they name except administrative events.

        Tally updates are removed only up to event `base`.
        """

    def remove_distributions(self, before: int, limit: int) -> bool:
        """Remove the distributions of states before this one; return False if `limit` was too small."""

    # These methods concern the whole store. The experiment of the transaction can be "" (none).

    def heads(self) -> dict[str, Head]:
        """The heads of all experiments."""

    def due_experiments(self) -> list[str]:
        """The names of the experiments in which some window has closed and is not settled."""

    def experiments_of(self, ids: Iterable[str]) -> dict[str, str]:
        """The experiment of each of these decisions that exists."""

    def decisions_between(self, after: str, before: str, limit: int) -> list[Decision]:
        """Decisions of all experiments with ids between these, ordered by id, which is the order of time."""

    def documents(self, kind: str) -> dict[str, str]:
        """The documents of one kind, by name. A service stores its API keys, for example, as documents."""

    def document(self, kind: str, name: str) -> str | None:
        """A document; None if there is none."""

    def put_document(self, kind: str, name: str, content: str) -> None:
        """Add or replace a document."""

    def remove_document(self, kind: str, name: str) -> None:
        """Remove a document if there is one."""


class Store(Protocol):
    """A store of experiments."""

    @property
    def where(self) -> str:
        """The location of the store, without secrets."""

    @property
    def group_commits(self) -> bool:
        """Whether commits are slow, so that concurrent calls should share them."""

    @property
    def concurrent_decisions(self) -> bool:
        """Whether decisions can be written while another transaction changes the experiment's state."""

    def transaction(
        self, experiment: str, *, lock: bool, exclusive: bool = False, wait: bool = True
    ) -> AbstractContextManager[Transaction]:
        """Begin a transaction. It is durably committed at the end of the block, unless the block raises.

        With `lock`, no other locked transaction of the experiment runs at the same time; with `exclusive`,
        no other transaction at all. Without `wait`, raise Unavailable if the lock is not free.
        """

    def reading(self, experiment: str) -> AbstractContextManager[Transaction]:
        """Begin a read-only transaction on a consistent snapshot of the store."""

    def scanning(self, experiment: str) -> AbstractContextManager[Transaction]:
        """Begin a read-only transaction like `reading` that may take hours and does not hold up writers."""

    def experiments(self) -> list[str]:
        """The names of all experiments."""

    def rows(self, experiment: str) -> Iterator[Row]:
        """Every decision with its reward events and tally updates, ordered by state and id."""

    def scrub(self) -> None:
        """Remove erased data from the storage, as far as the store can."""

    def reclaim(self) -> None:
        """Make the space of removed rows available to new ones, as far as the store can."""

    def close(self) -> None:
        """Close files and connections."""


class SharedTransaction(Protocol):
    """Transactions of several experiments that share one durable commit."""

    @property
    def now(self) -> int:
        """The time of the transaction, in microseconds since 1970."""

    @property
    def expects_new(self) -> bool:
        """Whether idempotency keys are probably new: none was used twice in recent commits."""

    def last_events(self, experiments: Sequence[str]) -> dict[str, int]:
        """The number of the last event of each of these experiments that exists."""

    def due(self, experiments: Sequence[str]) -> set[str]:
        """Those of these experiments in which a window has closed and is not settled."""

    def add_new(self, batches: Sequence[tuple[str, Sequence[Decision], int | None]]) -> None:
        """Add decisions of several experiments, each with the time at which their reward windows close.

        If an id or an idempotency key is not new, a later call or the end of the block raises `NotNewError`,
        and nothing is kept.
        """

    def parts(self, keys: Mapping[str, Collection[str]]) -> Mapping[str, Transaction]:
        """A transaction for each of these experiments, after their calls of `add_new`.

        `keys` has the idempotency keys that each transaction will probably look up.
        """


class NotNewError(Exception):
    """A decision that was said to be new has an id or an idempotency key that is used."""


@runtime_checkable
class SharedCommitStore(Store, Protocol):
    """A store in which several experiments can share a commit, because there is one writer at a time."""

    def together(self) -> AbstractContextManager[SharedTransaction]:
        """Begin transactions of several experiments; all share one durable commit, or none is kept."""
