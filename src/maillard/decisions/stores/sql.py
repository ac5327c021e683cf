"""The store interface in SQL that both SQLite and PostgreSQL understand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Event, TallyUpdate
from maillard.decisions.stores.contract import Counts, DecisionSummary, Head, Parked
from maillard.decisions.stores.sql_rows import (
    DECISION,
    EVENT,
    REWARD,
    check_row,
    read_administrative_event,
    read_decision,
    read_event,
    read_parked,
    read_reward,
    read_update,
    write_decision,
    write_event,
    write_reward,
)

ADD_DECISION = (
    f"INSERT INTO decisions ({DECISION}, experiment) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class SQLTransaction(ABC):
    """A transaction on a connection. The store opens the connection and commits."""

    head: Head | None
    experiment: int
    "The experiment's id in the database."

    def __init__(self, name: str) -> None:
        self.name = name

    # These methods differ between the databases.

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

    @abstractmethod
    def _in_condition(self, column: str, values: Iterable[str]) -> tuple[str, Any]:
        """A condition that the column is one of the values, and its parameter."""

    @property
    @abstractmethod
    def now(self) -> int:
        """The store's clock."""

    # The store interface.

    def create(self) -> None:
        sql = (
            "INSERT INTO experiments (name, number, administrative, epoch) VALUES (?, 0, 0, 0) "
            "ON CONFLICT DO NOTHING"
        )
        self._execute_many(sql, [[self.name]])
        self.load()

    def load(self) -> None:
        """Read the experiment's head."""
        self.set_head(self._fetch(SELECT_HEAD, [self.name]))

    def set_head(self, found: Iterable[Any]) -> None:
        """Set the head from the result of SELECT_HEAD, which has at most one row."""
        self.experiment, self.head = 0, None
        for row in found:
            identifier, *head = check_row("experiments", self.name, row, "whole whole whole whole")
            self.experiment, self.head = identifier, Head(*head)

    def events(self, after: int, through: int | None = None) -> list[Event]:
        sql = (
            f"SELECT {EVENT} FROM events WHERE experiment = ? AND number > ? AND number <= ? ORDER BY number"
        )
        limits = [self.experiment, after, 2**62 if through is None else through]
        return [read_event(row) for row in self._fetch(sql, limits)]

    def administrative_events(self) -> list[AdministrativeEvent]:
        sql = f"SELECT {EVENT} FROM events WHERE experiment = ? AND decision IS NULL ORDER BY number"
        rows = self._fetch(sql, [self.experiment])
        return [read_administrative_event(row) for row in rows]

    def checkpoint(self) -> tuple[int, str] | None:
        rows = self._fetch("SELECT number, state FROM checkpoints WHERE experiment = ?", [self.experiment])
        return tuple(rows[0]) if rows else None

    def save_checkpoint(self, number: int, state: str) -> None:
        sql = (
            "INSERT INTO checkpoints (experiment, number, state) VALUES (?, ?, ?) "
            "ON CONFLICT (experiment) DO UPDATE SET number = excluded.number, state = excluded.state"
        )
        self._execute_counted(sql, [self.experiment, number, state])

    def add_events(self, events: Sequence[Event], head: Head) -> None:
        sql = f"INSERT INTO events ({EVENT}, experiment) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self._execute_many(sql, [(*write_event(event), self.experiment) for event in events])
        sql = "UPDATE experiments SET number = ?, administrative = ?, epoch = ? WHERE id = ?"
        self._execute_many(sql, [[*head, self.experiment]])
        self.head = head

    def decision_summaries(self, ids: Iterable[str]) -> dict[str, DecisionSummary]:
        among, values = self._in_condition("id", ids)
        sql = f"SELECT id, arm, epoch, time FROM decisions WHERE experiment = ? AND {among}"
        rows = self._fetch(sql, [self.experiment, values])
        for row in rows:
            check_row("decisions", row[0], row, "text text whole time")
        return {key: DecisionSummary(*rest) for key, *rest in rows}

    def decisions(self, ids: Iterable[str]) -> dict[str, Decision]:
        among, values = self._in_condition("id", ids)
        sql = f"SELECT {DECISION} FROM decisions WHERE experiment = ? AND {among}"
        rows = self._fetch(sql, [self.experiment, values])
        return {row[0]: read_decision(row, self.name) for row in rows}

    def decisions_by_key(self, keys: Iterable[str]) -> dict[str, list[Decision]]:
        among, values = self._in_condition("idempotency_key", keys)
        sql = f"SELECT {DECISION} FROM decisions WHERE experiment = ? AND {among} ORDER BY position"
        found: dict[str, list[Decision]] = {}
        for row in self._fetch(sql, [self.experiment, values]):
            decision = read_decision(row, self.name)
            found.setdefault(decision.idempotency_key or "", []).append(decision)
        return found

    def add_decisions(self, rows: Sequence[Decision]) -> None:
        self._execute_many(ADD_DECISION, [(*write_decision(row), self.experiment) for row in rows])

    def add_if_absent(self, rows: Sequence[Decision]) -> set[str]:
        offered = [(*write_decision(row), self.experiment) for row in rows]
        return {key for (key,) in self._insert(ADD_DECISION, offered, " ON CONFLICT DO NOTHING RETURNING id")}

    def reward_events(self, ids: Iterable[str]) -> dict[str, list[RewardEvent]]:
        among, values = self._in_condition("decision", ids)
        found: dict[str, list[RewardEvent]] = {}
        for row in self._fetch(
            f"SELECT {REWARD}, late FROM rewards WHERE {among} ORDER BY arrived, event", [values]
        ):
            found.setdefault(row[0], []).append(read_reward(row))
        return found

    def add_reward_events(self, rows: Sequence[RewardEvent]) -> None:
        sql = f"INSERT INTO rewards ({REWARD}, late) VALUES (?, ?, ?, ?, ?, ?)"
        self._execute_many(sql, [(*write_reward(row), int(row.late)) for row in rows])

    def parked(self, ids: Iterable[str]) -> dict[str, list[Parked]]:
        among, values = self._in_condition("decision", ids)
        sql = f"SELECT {REWARD}, expires FROM parked WHERE experiment = ? AND {among} ORDER BY arrived, event"
        found: dict[str, list[Parked]] = {}
        for row in self._fetch(sql, [self.experiment, values]):
            found.setdefault(row[0], []).append(read_parked(row))
        return found

    def all_parked(self) -> list[Parked]:
        sql = f"SELECT {REWARD}, expires FROM parked WHERE experiment = ? ORDER BY arrived, decision, event"
        return [read_parked(row) for row in self._fetch(sql, [self.experiment])]

    def count_parked(self) -> int:
        sql = "SELECT count(*) FROM parked WHERE experiment = ? AND (expires IS NULL OR expires > ?)"
        return int(self._fetch(sql, [self.experiment, self.now])[0][0])

    def park(self, rows: Sequence[Parked]) -> None:
        self._execute_many(
            "DELETE FROM parked WHERE experiment = ? AND expires <= ?", [[self.experiment, self.now]]
        )
        sql = f"INSERT INTO parked ({REWARD}, expires, experiment) VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._execute_many(sql, [(*write_reward(each.row), each.expires, self.experiment) for each in rows])

    def unpark(self, rows: Iterable[RewardEvent]) -> None:
        sql = "DELETE FROM parked WHERE experiment = ? AND decision = ? AND event = ?"
        self._execute_many(sql, [(self.experiment, row.decision, row.event) for row in rows])

    def pending(self, ids: Iterable[str]) -> set[str]:
        among, values = self._in_condition("decision", ids)
        return {key for (key,) in self._fetch(f"SELECT decision FROM pending WHERE {among}", [values])}

    def add_pending(self, rows: Mapping[str, int]) -> None:
        sql = "INSERT INTO pending (decision, closes, experiment) VALUES (?, ?, ?)"
        self._execute_many(sql, [(key, closes, self.experiment) for key, closes in rows.items()])

    def remove_pending(self, ids: Iterable[str]) -> None:
        among, values = self._in_condition("decision", ids)
        self._execute_many(f"DELETE FROM pending WHERE {among}", [[values]])

    def due_decisions(self, limit: int) -> list[str]:
        sql = (
            "SELECT decision FROM pending WHERE experiment = ? AND closes <= ? "
            "ORDER BY closes, decision LIMIT ?"
        )
        return [key for (key,) in self._fetch(sql, [self.experiment, self.now, limit])]

    def assignment(self, epoch: int, unit: str) -> str | None:
        sql = "SELECT decision FROM assignments WHERE experiment = ? AND epoch = ? AND unit = ?"
        rows = self._fetch(sql, [self.experiment, epoch, unit])
        return rows[0][0] if rows else None

    def assign(self, epoch: int, unit: str, decision: str, *, instead_of: str | None) -> bool:
        if instead_of is None:
            sql = (
                "INSERT INTO assignments (decision, experiment, epoch, unit) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING"
            )
            return self._execute_counted(sql, [decision, self.experiment, epoch, unit]) == 1
        sql = (
            "UPDATE assignments SET decision = ? "
            "WHERE experiment = ? AND epoch = ? AND unit = ? AND decision = ?"
        )
        return self._execute_counted(sql, [decision, self.experiment, epoch, unit, instead_of]) == 1

    def counts(self) -> Counts:
        sql = "SELECT arm, count(*) FROM decisions WHERE experiment = ? GROUP BY arm"
        decisions = {arm: int(count) for arm, count in self._fetch(sql, [self.experiment])}
        sql = (
            "SELECT count(*), coalesce(sum(late), 0) "
            "FROM rewards JOIN decisions ON rewards.decision = decisions.id "
            "WHERE experiment = ?"
        )
        ((rewards, late),) = self._fetch(sql, [self.experiment])
        ((parked,),) = self._fetch("SELECT count(*) FROM parked WHERE experiment = ?", [self.experiment])
        return Counts(decisions, int(rewards), int(late), int(parked))

    def erase_unit(self, unit: str, token: str) -> int:
        sql = (
            "UPDATE decisions SET unit = ?, idempotency_key = CASE WHEN idempotency_key IS NULL THEN NULL "
            "ELSE CAST(? AS TEXT) || id END WHERE experiment = ? AND unit = ?"
        )
        rows = self._execute_counted(sql, [token, f"{token}:", self.experiment, unit])
        sql = "UPDATE assignments SET unit = ? WHERE experiment = ? AND unit = ?"
        self._execute_many(sql, [[token, self.experiment, unit]])
        return rows

    # The whole store.

    def heads(self) -> dict[str, Head]:
        rows = self._fetch("SELECT name, number, administrative, epoch FROM experiments ORDER BY name")
        return {name: Head(*head) for name, *head in rows}

    def experiments_of(self, ids: Iterable[str]) -> dict[str, str]:
        among, values = self._in_condition("decisions.id", ids)
        sql = (
            "SELECT decisions.id, name FROM decisions JOIN experiments ON experiment = experiments.id "
            f"WHERE {among}"
        )
        return dict(self._fetch(sql, [values]))

    def decisions_between(self, after: str, before: str, limit: int) -> list[Decision]:
        names = dict(self._fetch("SELECT id, name FROM experiments"))
        sql = f"SELECT {DECISION}, experiment FROM decisions WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
        rows = self._fetch(sql, [after, before, limit])
        return [read_decision(row, names.get(experiment, "")) for *row, experiment in rows]

    def documents(self, kind: str) -> dict[str, str]:
        return dict(self._fetch("SELECT name, content FROM documents WHERE kind = ? ORDER BY name", [kind]))

    def put_document(self, kind: str, name: str, content: str) -> None:
        sql = (
            "INSERT INTO documents (kind, name, content) VALUES (?, ?, ?) "
            "ON CONFLICT (kind, name) DO UPDATE SET content = excluded.content"
        )
        self._execute_counted(sql, [kind, name, content])

    def with_rewards(
        self, rows: Iterable[Any]
    ) -> Iterator[tuple[Decision, tuple[RewardEvent, ...], tuple[TallyUpdate, ...]]]:
        """Decisions with their reward events and tally updates."""
        made = [read_decision(row, self.name) for row in rows]
        ids = [row.id for row in made]
        among, values = self._in_condition("decision", ids)
        updates: dict[str, list[TallyUpdate]] = {}
        for row in self._fetch(f"SELECT {EVENT} FROM events WHERE {among} ORDER BY number", [values]):
            updates.setdefault(row[3], []).append(read_update(row))
        rewards = self.reward_events(ids)
        for row in made:
            yield row, tuple(rewards.get(row.id, ())), tuple(updates.get(row.id, ()))


SELECT_HEAD = "SELECT id, number, administrative, epoch FROM experiments WHERE name = ?"
SELECT_ROWS = f"SELECT {DECISION} FROM decisions WHERE experiment = ? ORDER BY state, id"
