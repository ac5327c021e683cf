"""The store interface in SQL that both SQLite and PostgreSQL understand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from maillard.decisions.decision import Decision, LoggedContext, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Event
from maillard.decisions.stores import sql_rows
from maillard.decisions.stores.contract import (
    Counts,
    DecisionSummary,
    Head,
    OpenWindow,
    Parked,
    Row,
    Visits,
)
from maillard.decisions.stores.sql_chain import IGNORE, grouped, insertion
from maillard.decisions.stores.sql_pruning import PruningTransaction
from maillard.decisions.stores.sql_rows import DECISION, DECISIONS, EVENT, REWARD
from maillard.errors import Unavailable

_T = TypeVar("_T")
_MAX_FETCHED_ROWS = 1_000
SELECT_ROWS = f"SELECT {DECISION} FROM {DECISIONS} WHERE d.experiment = ? ORDER BY d.state, d.id"

_CONTEXT = "id, arm, context, feature_version"  # the fields of a LoggedContext

ADD_PENDING = insertion("pending", "decision, closes, experiment")


class SQLStore(ABC):
    """What the stores in SQLite and PostgreSQL have in common."""

    where: str
    _timeout: float

    @abstractmethod
    def reading(self, experiment: str) -> AbstractContextManager[SQLTransaction]:
        """Begin a read-only transaction."""

    @abstractmethod
    def scanning(self, experiment: str) -> AbstractContextManager[SQLTransaction]:
        """Begin a read-only transaction that may take long."""

    def rows(self, experiment: str) -> Iterator[Row]:
        """Every decision with its reward events and tally updates, ordered by state and id."""
        with self.scanning(experiment) as transaction:
            yield from transaction.rows()

    def experiments(self) -> list[str]:
        """The names of all experiments."""
        with self.reading("") as transaction:
            return list(transaction.heads())

    def _unavailable(self, what: str, advice: str = "try again") -> Unavailable:
        return Unavailable(f"log {self.where}: {what}. Nothing was acknowledged; {advice}.")

    @contextmanager
    def _acquired(self, lock: Any, timed_out: str) -> Iterator[None]:
        """Take a lock or semaphore, or raise Unavailable after the timeout."""
        if not lock.acquire(timeout=self._timeout):
            raise self._unavailable(f"{timed_out} {self._timeout:g} seconds")
        try:
            yield
        finally:
            lock.release()


class SQLTransaction(PruningTransaction):
    """A transaction on a connection. The store opens the connection and commits."""

    SELECT_HEAD = "SELECT id, number, administrative, epoch FROM experiments WHERE name = ?"

    def create(self) -> None:
        sql = insertion("experiments", "name, number, administrative, epoch") + IGNORE
        self._execute_many(sql, [[self.name, 0, 0, 0]])
        self.load()

    def load(self) -> None:
        """Read the experiment's head."""
        self.set_head(self._fetch(self.SELECT_HEAD, [self.name]))

    def set_head(self, found: Iterable[Any]) -> None:
        """Set the head from the result of SELECT_HEAD, which has at most one row."""
        self.experiment, self.head = 0, None
        for row in found:
            identifier, *head = sql_rows.check_row("experiments", self.name, row, "whole whole whole whole")
            self.experiment, self.head = identifier, Head(*head)

    def events(self, after: int, through: int | None = None) -> list[Event]:
        within = "experiment = ? AND number > ? AND number <= ?"
        limits = [self.experiment, after, 2**62 if through is None else through]
        rows = self._fetch(f"SELECT {EVENT} FROM events WHERE {within} ORDER BY number", limits)
        return [sql_rows.read_event(row) for row in rows]

    def administrative_events(self) -> list[AdministrativeEvent]:
        sql = f"SELECT {EVENT} FROM events WHERE experiment = ? AND decision IS NULL ORDER BY number"
        return [sql_rows.read_administrative_event(row) for row in self._fetch(sql, [self.experiment])]

    def checkpoint(self) -> tuple[int, str] | None:
        rows = self._fetch("SELECT number, state FROM checkpoints WHERE experiment = ?", [self.experiment])
        return tuple(rows[0]) if rows else None

    def save_checkpoint(self, number: int, state: str) -> None:
        replace = " ON CONFLICT (experiment) DO UPDATE SET number = excluded.number, state = excluded.state"
        sql = insertion("checkpoints", "experiment, number, state") + replace
        self._execute_counted(sql, [self.experiment, number, state])

    def decision_summaries(self, ids: Iterable[str]) -> dict[str, DecisionSummary]:
        sql = f"SELECT id, arm, epoch, time, encoded FROM decisions WHERE experiment = ? AND id {self.IN}"
        rows = self._fetch(sql, [self.experiment, self._list(ids)])
        for row in rows:
            sql_rows.check_row("decisions", row[0], row, "text text whole time bytes?")
        return {key: DecisionSummary(*rest) for key, *rest in rows}

    def decisions(self, ids: Iterable[str]) -> dict[str, Decision]:
        sql = f"SELECT {DECISION} FROM {DECISIONS} WHERE d.experiment = ? AND d.id {self.IN}"
        rows = self._fetch(sql, [self.experiment, self._list(ids)])
        return {row[0]: sql_rows.read_decision(row, self.name) for row in rows}

    def contexts_of(self, ids: Iterable[str]) -> dict[str, LoggedContext]:
        sql = f"SELECT {_CONTEXT} FROM decisions WHERE experiment = ? AND id {self.IN}"
        rows = self._fetch(sql, [self.experiment, self._list(ids)])
        return {row[0]: sql_rows.read_context(row) for row in rows}

    def contexts_between(self, after: str, before: str, limit: int) -> tuple[list[LoggedContext], str | None]:
        sql = f"SELECT experiment, {_CONTEXT} FROM decisions WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
        rows = self._fetch(sql, [after, before, limit])
        mine = [sql_rows.read_context(row) for owner, *row in rows if owner == self.experiment]
        return mine, rows[-1][1] if len(rows) == limit else None

    def decisions_of_units(self, units: Iterable[str]) -> list[str]:
        sql = f"SELECT id FROM decisions WHERE experiment = ? AND unit {self.IN}"
        return [key for (key,) in self._fetch(sql, [self.experiment, self._list(units)])]

    def rows_of(self, ids: Iterable[str]) -> list[Row]:
        return list(self.with_rewards(self.raw_decisions_of(ids)))

    def decisions_by_key(self, keys: Iterable[str]) -> dict[str, list[Decision]]:
        among = f"d.experiment = ? AND d.idempotency_key {self.IN}"
        sql = f"SELECT {DECISION} FROM {DECISIONS} WHERE {among} ORDER BY d.position"
        rows = self._fetch(sql, [self.experiment, self._list(keys)])
        decisions = [sql_rows.read_decision(row, self.name) for row in rows]
        return grouped(decisions, lambda each: each.idempotency_key or "")

    def parked(self, ids: Iterable[str]) -> dict[str, list[Parked]]:
        among = f"experiment = ? AND decision {self.IN}"
        sql = f"SELECT {REWARD}, expires FROM parked WHERE {among} ORDER BY arrived, event"
        rows = self._fetch(sql, [self.experiment, self._list(ids)])
        return grouped(map(sql_rows.read_parked, rows), lambda each: each.row.decision)

    def all_parked(self) -> list[Parked]:
        sql = f"SELECT {REWARD}, expires FROM parked WHERE experiment = ? ORDER BY arrived, decision, event"
        return [sql_rows.read_parked(row) for row in self._fetch(sql, [self.experiment])]

    def count_parked(self) -> int:
        sql = "SELECT count(*) FROM parked WHERE experiment = ? AND (expires IS NULL OR expires > ?)"
        return int(self._fetch(sql, [self.experiment, self.now])[0][0])

    def park(self, rows: Sequence[Parked]) -> None:
        expired = "DELETE FROM parked WHERE experiment = ? AND expires <= ?"
        self._execute_many(expired, [[self.experiment, self.now]])
        written = [(*each.row[:5], each.expires, self.experiment) for each in rows]
        self._execute_many(insertion("parked", f"{REWARD}, expires, experiment"), written)

    def unpark(self, rows: Iterable[RewardEvent]) -> None:
        sql = "DELETE FROM parked WHERE experiment = ? AND decision = ? AND event = ?"
        self._execute_many(sql, [(self.experiment, row.decision, row.event) for row in rows])

    def pending(self, ids: Iterable[str]) -> set[str]:
        rows = self._fetch(f"SELECT decision FROM pending WHERE decision {self.IN}", [self._list(ids)])
        return {key for (key,) in rows}

    def add_pending(self, rows: Mapping[str, int]) -> None:
        written = [(key, closes, self.experiment) for key, closes in rows.items()]
        self._execute_many(ADD_PENDING, written)

    def remove_pending(self, ids: Iterable[str]) -> None:
        self._execute_many(f"DELETE FROM pending WHERE decision {self.IN}", [[self._list(ids)]])

    def due_decisions(self, limit: int) -> list[str]:
        due = "pending WHERE experiment = ? AND closes <= ?"
        sql = f"SELECT decision FROM {due} ORDER BY closes, decision LIMIT ?"
        return [key for (key,) in self._fetch(sql, [self.experiment, self.now, limit])]

    def open_windows(self, epoch: int, *, applied: bool) -> list[OpenWindow]:
        joined, value = "pending JOIN decisions d ON d.id = pending.decision", "NULL"
        if applied:
            later = "SELECT 1 FROM events later WHERE later.decision = e.decision AND later.number > e.number"
            joined += f" LEFT JOIN events e ON e.decision = d.id AND NOT EXISTS ({later})"
            value = "e.value"
        sql = f"SELECT d.arm, {value}, count(*), min(pending.closes) FROM {joined}"
        sql += " WHERE pending.experiment = ? AND d.epoch = ? GROUP BY d.arm" + ", e.value" * applied
        rows = self._fetch(sql, [self.experiment, epoch])
        for row in rows:
            sql_rows.check_row("pending", row[0], row, "text real? whole time")
        return [OpenWindow(*row) for row in rows]

    def decisions_of_epoch(self, epoch: int) -> dict[str, int]:
        sql = "SELECT arm, count(*) FROM decisions WHERE experiment = ? AND epoch = ? GROUP BY arm"
        return dict(self._fetch(sql, [self.experiment, epoch]))

    def visits(self, epoch: int) -> Visits:
        grouped = (
            "SELECT unit, count(*) AS times FROM decisions WHERE experiment = ? AND epoch = ? GROUP BY unit"
        )
        squares = "CASE WHEN unit IS NULL THEN times ELSE times * times END"
        sql = (
            f"SELECT coalesce(sum(times), 0), count(unit), coalesce(sum({squares}), 0) FROM ({grouped}) AS t"
        )
        (row,) = self._fetch(sql, [self.experiment, epoch])
        return Visits(*map(int, row))

    def assignment(self, epoch: int, unit: str) -> str | None:
        sql = "SELECT decision FROM assignments WHERE experiment = ? AND epoch = ? AND unit = ?"
        rows = self._fetch(sql, [self.experiment, epoch, unit])
        return rows[0][0] if rows else None

    def assign(self, epoch: int, unit: str, decision: str, *, instead_of: str | None) -> bool:
        self._lock_chain()  # always before other locks
        values = [decision, self.experiment, epoch, unit]
        if instead_of is None:
            sql = insertion("assignments", "decision, experiment, epoch, unit") + IGNORE
        else:
            place = "experiment = ? AND epoch = ? AND unit = ? AND decision = ?"
            sql = f"UPDATE assignments SET decision = ? WHERE {place}"
            values.append(instead_of)
        return self._execute_counted(sql, values) == 1

    def updated_decisions(self, after: int, through: int) -> list[str]:
        within = "experiment = ? AND number > ? AND number <= ? AND decision IS NOT NULL"
        rows = self._fetch(f"SELECT decision FROM events WHERE {within}", [self.experiment, after, through])
        for row in rows:
            if type(row[0]) is not str:
                sql_rows.check_row("events", row[0], row, "text")
        return [key for (key,) in rows]

    def counts(self) -> Counts:
        mine = [self.experiment]
        arms = self._fetch("SELECT arm, count(*) FROM decisions WHERE experiment = ? GROUP BY arm", mine)
        joined = "rewards JOIN decisions ON decision = id"
        sql = f"SELECT count(*), coalesce(sum(late), 0) FROM {joined} WHERE experiment = ?"
        ((rewards, late),) = self._fetch(sql, mine)
        ((parked,),) = self._fetch("SELECT count(*) FROM parked WHERE experiment = ?", mine)
        return Counts(dict(arms), int(rewards), int(late), int(parked))

    def count_decisions(self) -> int:
        with self._longer_timeout():
            sql = "SELECT count(*) FROM decisions WHERE experiment = ?"
            return int(self._fetch(sql, [self.experiment])[0][0])

    def count_rewards(self, expected: int) -> int:
        with self._longer_timeout():
            # This number includes the rewards of other experiments. It is much faster to find.
            number = int(self._fetch("SELECT count(*) FROM rewards")[0][0])
        return number if number <= expected else self.counts().rewards

    # The whole store.

    def heads(self) -> dict[str, Head]:
        rows = self._fetch("SELECT name, number, administrative, epoch FROM experiments ORDER BY name")
        return {name: Head(*head) for name, *head in rows}

    def due_experiments(self) -> list[str]:
        due = "SELECT 1 FROM pending WHERE pending.experiment = experiments.id AND closes <= ?"
        return [
            name for (name,) in self._fetch(f"SELECT name FROM experiments WHERE EXISTS ({due})", [self.now])
        ]

    def experiments_of(self, ids: Iterable[str]) -> dict[str, str]:
        joined = "decisions JOIN experiments ON experiment = experiments.id"
        sql = f"SELECT decisions.id, name FROM {joined} WHERE decisions.id {self.IN}"
        return dict(self._fetch(sql, [self._list(ids)]))

    def decisions_between(self, after: str, before: str, limit: int) -> list[Decision]:
        names = dict(self._fetch("SELECT id, name FROM experiments"))
        within = "d.id > ? AND d.id < ? ORDER BY d.id LIMIT ?"
        sql = f"SELECT {DECISION}, d.experiment FROM {DECISIONS} WHERE {within}"
        rows = self._fetch(sql, [after, before, limit])
        return [sql_rows.read_decision(row, names.get(experiment, "")) for *row, experiment in rows]

    def documents(self, kind: str) -> dict[str, str]:
        return dict(self._fetch("SELECT name, content FROM documents WHERE kind = ? ORDER BY name", [kind]))

    def document(self, kind: str, name: str) -> str | None:
        rows = self._fetch("SELECT content FROM documents WHERE kind = ? AND name = ?", [kind, name])
        return rows[0][0] if rows else None

    def put_document(self, kind: str, name: str, content: str) -> None:
        replace = " ON CONFLICT (kind, name) DO UPDATE SET content = excluded.content"
        self._execute_counted(insertion("documents", "kind, name, content") + replace, [kind, name, content])

    def remove_document(self, kind: str, name: str) -> None:
        self._execute_counted("DELETE FROM documents WHERE kind = ? AND name = ?", [kind, name])

    def rows(self) -> Iterator[Row]:
        for chunk in self.raw_decisions(_MAX_FETCHED_ROWS):
            yield from self.with_rewards(chunk)

    # Rows as the tables have them, not checked.

    def raw_decisions(self, size: int) -> Generator[list[Any], None, None]:
        """The rows of all decisions, ordered by state and id, in lists of at most `size`."""
        with self._cursor(SELECT_ROWS, [self.experiment]) as cursor:
            while chunk := cursor.fetchmany(size):
                yield chunk

    def raw_decisions_of(self, ids: Iterable[str]) -> list[Any]:
        """The rows of those of these decisions that exist."""
        sql = f"SELECT {DECISION} FROM {DECISIONS} WHERE d.experiment = ? AND d.id {self.IN}"
        return self._fetch(sql, [self.experiment, self._list(ids)])

    @abstractmethod
    def _cursor(self, statement: str, parameters: Sequence[Any]) -> AbstractContextManager[Any]:
        """Run a statement with many rows, which a cursor fetches."""

    def with_rewards(self, rows: Iterable[Any]) -> Iterator[Row]:
        """Decisions with their reward events and tally updates."""
        made = [sql_rows.read_decision(row, self.name) for row in rows]
        ids = [row.id for row in made]
        updates, rewards = self.updates(ids), self.reward_events(ids)
        for row in made:
            yield Row(row, tuple(rewards.get(row.id, ())), tuple(updates.get(row.id, ())))
