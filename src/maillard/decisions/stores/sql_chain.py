"""The rows that the hash chain covers, in SQL that both SQLite and PostgreSQL understand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from maillard.decisions import chain
from maillard.decisions.chain import Commit, Link
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import Event
from maillard.decisions.stores import sql_rows
from maillard.decisions.stores.contract import ChainRows, Head
from maillard.decisions.stores.sql_rows import DECISION, DECISIONS, EVENT, LINK, NEW_DECISION, REWARD
from maillard.decisions.stores.vectors import Vector, WrittenVectors, vector_of

_T = TypeVar("_T")
# The links after a number. Only every 64th link is indexed: begin with the last one of these before it.
_SELECT_LINKS = f"""
SELECT {LINK} FROM links
WHERE experiment = ? AND number > ? AND sequence >= coalesce((
    SELECT sequence FROM links WHERE experiment = ? AND number % 64 = 0 AND number <= ?
    ORDER BY number DESC LIMIT 1), 0)
ORDER BY sequence LIMIT ?
"""


@lru_cache
def insertion(table: str, columns: str) -> str:
    """The statement that inserts a row with these columns.

    >>> insertion("pending", "decision, closes")
    'INSERT INTO pending (decision, closes) VALUES (?, ?)'
    """
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' for _ in columns.split(','))})"


ADD_DECISION = insertion("decisions", f"{NEW_DECISION}, experiment")
IGNORE = " ON CONFLICT DO NOTHING"
ADD_ARM_LIST = insertion("arm_lists", "experiment, arms, names") + IGNORE
ADD_VECTOR = insertion("vectors", "experiment, state, variant, arms, data") + IGNORE
ADD_LINK = insertion("links", f"experiment, {LINK}")
SET_CHAIN_END = insertion("chains", "experiment, number, hash") + (
    " ON CONFLICT (experiment) DO UPDATE SET number = excluded.number, hash = excluded.hash"
)


class ChainTransaction(ABC):
    """A transaction that adds decisions, events and reward events, and then their link."""

    connection: Any
    now: int
    head: Head | None
    last: tuple[int, bytes] | None = None
    "The number and the hash of the last link, if the database does not compute hashes itself."
    experiment: int
    "The experiment's id in the database."

    def __init__(self, name: str, written: WrittenVectors) -> None:
        self.name = name
        self.written = written
        self._vectors: dict[tuple[int, int], Vector] = {}
        self.commit = Commit()
        "The records of the chained rows that were added."

    # These differ between the databases.

    IN: ClassVar[str]
    "The end of a condition that a column is one of the values in a parameter, which `_list` makes."

    @staticmethod
    @abstractmethod
    def _list(values: Iterable[str]) -> Any:
        """The parameter of an `IN` condition."""

    @abstractmethod
    def _fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement and return its rows."""

    @abstractmethod
    def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of parameters."""

    @abstractmethod
    def _insert(self, statement: str, rows: Sequence[Sequence[Any]], clause: str) -> list[Any]:
        """Insert several rows, with a clause after the values; return the rows of the statement."""

    @abstractmethod
    def _execute_counted(self, statement: str, parameters: Sequence[Any]) -> int:
        """Run a statement and return how many rows it changed."""

    # Chained rows.

    def add_events(self, events: Sequence[Event], head: Head) -> None:
        self._lock_chain()
        rows = [sql_rows.write_event(event) for event in events]
        self.commit.add_events(rows)
        written = [(*row, self.experiment) for row in rows]
        self._execute_many(insertion("events", f"{EVENT}, experiment"), written)
        sql = "UPDATE experiments SET number = ?, administrative = ?, epoch = ? WHERE id = ?"
        self._execute_many(sql, [[*head, self.experiment]])
        self.head = head

    def add_decisions(self, rows: Sequence[Decision]) -> None:
        self._lock_chain()
        written, records = self._prepare_decisions(rows)
        self._execute_many(ADD_DECISION, written)
        self.commit.decisions += records

    def add_if_absent(self, rows: Sequence[Decision]) -> set[str]:
        self._lock_chain()
        offered, records = self._prepare_decisions(rows)
        added = {key for (key,) in self._insert(ADD_DECISION, offered, f"{IGNORE} RETURNING id")}
        self.commit.decisions += [
            record for row, record in zip(rows, records, strict=True) if row.id in added
        ]
        return added

    def _prepare_decisions(self, rows: Sequence[Decision]) -> tuple[list[tuple[Any, ...]], list[bytes]]:
        """Add the distributions of decisions; return the rows of the decisions and their records."""
        made, records, new = [], [], dict[tuple[int, int], Vector]()
        parts: dict[tuple[Any, ...], bytes] = {}
        for row, seal in zip(rows, chain.new_seals(rows), strict=True):
            vector = vector_of(row.eligible, row.log_probabilities)
            place = row.state, vector.variant
            if place not in self._vectors:
                self._vectors[place] = vector
                if not self.written.has_vector(self.experiment, *place):
                    new[place] = vector
            made.append((*sql_rows.write_decision(row, seal, vector), self.experiment))
            if len(rows) == 1:
                records.append(chain.decision_record(row, seal, vector.digest))
                continue
            common = (place, row.arm, row.time, row.position, row.origin, row.encoded)
            part = parts.get(common)
            if part is None:
                part = parts[common] = chain.common_part(row, vector.digest)
            records.append(chain.id_bytes(row.id) + chain.commitment_of(row, seal) + part)
        if new:
            mine = self.experiment
            lists = {each.arms: (mine, each.arms, each.names) for each in new.values()}
            unknown = [row for arms, row in lists.items() if not self.written.has_list(mine, arms)]
            vectors = [(mine, *place, each.arms, each.data) for place, each in new.items()]
            self._add_vectors(unknown, vectors)
        return made, records

    def _add_vectors(self, arm_lists: Sequence[Sequence[Any]], vectors: Sequence[Sequence[Any]]) -> None:
        if arm_lists:
            self._execute_many(ADD_ARM_LIST, arm_lists)
        self._execute_many(ADD_VECTOR, vectors)

    def note_commit(self) -> None:
        """Remember, after the commit, which distributions need not be written again."""
        if self._vectors:
            self.written.add(self.experiment, self._vectors)

    def reward_events(self, ids: Iterable[str]) -> dict[str, list[RewardEvent]]:
        return grouped(map(sql_rows.read_reward, self.raw_rewards(ids)), lambda each: each.decision)

    def raw_rewards(self, ids: Iterable[str]) -> list[Any]:
        """The rows of the reward events of these decisions, ordered by arrival, not checked."""
        sql = f"SELECT {REWARD}, late FROM rewards WHERE decision {self.IN} ORDER BY arrived, event"
        return self._fetch(sql, [self._list(ids)])

    def add_reward_events(self, rows: Sequence[RewardEvent]) -> None:
        self._lock_chain()
        self.commit.add_rewards(rows)
        written = [(*row[:5], int(row.late)) for row in rows]
        self._execute_many(insertion("rewards", f"{REWARD}, late"), written)

    def erase_unit(self, unit: str, token: str) -> int:
        mine = [self.experiment, unit]
        columns = "id, idempotency_key, seal, context, actions"
        rows = self._fetch(f"SELECT {columns} FROM decisions WHERE experiment = ? AND unit = ?", mine)
        erased = [
            (token, None if key is None else f"{token}:{identifier}",
             None if seal is None else chain.commitment(seal, unit, key, *context), identifier)
            for identifier, key, seal, *context in rows
        ]  # fmt: skip
        values = "unit = ?, idempotency_key = ?, seal = ?, context = NULL, actions = NULL"
        self._execute_many(f"UPDATE decisions SET {values} WHERE id = ?", erased)
        self._execute_many(
            "UPDATE assignments SET unit = ? WHERE experiment = ? AND unit = ?", [[token, *mine]]
        )
        return len(rows)

    # The chain.

    def _lock_chain(self) -> None:  # noqa: B027  # SQLite has one writer at a time
        """Wait until no other transaction can add a link."""

    def write_link(self) -> None:
        """Add a link for the rows added so far."""
        if self.commit:
            link = self.next_link()
            self._execute_many(ADD_LINK, [(self.experiment, *link)])
            self._execute_many(SET_CHAIN_END, [(self.experiment, link.number, link.hash)])

    def next_link(self) -> Link:
        """The link of the rows added since the last one."""
        link = self.commit.link(self.last, self.now)
        self.commit, self.last = Commit(), (link.number, link.hash)
        return link

    def chain_end(self) -> tuple[int, bytes] | None:
        rows = self._fetch("SELECT number, hash FROM chains WHERE experiment = ?", [self.experiment])
        for row in rows:
            number, hashed = sql_rows.check_row("chains", self.name, row, "whole bytes")
            return number, hashed
        return None

    def last_link(self) -> Link | None:
        end = self.chain_end()
        links = self.links(end[0] - 1, 1) if end else []
        return links[0] if links else None

    def links(self, after: int, limit: int) -> list[Link]:
        parameters = [self.experiment, after, self.experiment, after, limit]
        return [sql_rows.read_link(row) for row in self._fetch(_SELECT_LINKS, parameters)]

    def chain_rows(self, links: Sequence[Link]) -> ChainRows:
        decisions, rewards = ids_of(links)
        sql = f"SELECT {DECISION} FROM {DECISIONS} WHERE d.experiment = ? AND d.id {self.IN}"
        rows = self._fetch(sql, [self.experiment, self._list(decisions)])
        made = {row[0]: (sql_rows.read_decision(row, self.name), row[15]) for row in rows}
        sql = f"SELECT {EVENT} FROM events WHERE experiment = ? AND number >= ? AND number < ?"
        events = {row[0]: tuple(row) for row in self._fetch(sql, [self.experiment, *events_of(links)])}
        return ChainRows(made, events, self.reward_events(rewards))


def ids_of(links: Iterable[Link]) -> tuple[list[str], list[str]]:
    """The ids of the decisions of some links, and of the decisions that their reward events belong to."""
    decisions = [each for link in links for each in chain.id_texts(link.decisions)]
    rewards = [each for link in links for each in chain.id_texts(link.rewards, chain.REWARD_KEY_SIZE)]
    return decisions, rewards


def events_of(links: Iterable[Link]) -> tuple[int, int]:
    """The number of the first event of some links, and of the first event after them."""
    with_events = [link for link in links if link.events]
    if not with_events:
        return 0, 0
    return with_events[0].first_event, with_events[-1].first_event + with_events[-1].events


def grouped(rows: Iterable[_T], key: Callable[[_T], str]) -> dict[str, list[_T]]:
    """The rows of each key, in order."""
    found: dict[str, list[_T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
