"""Removal of the first commits of a chain, in SQL that both SQLite and PostgreSQL understand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from maillard.decisions import chain
from maillard.decisions.chain import Link
from maillard.decisions.events import TallyUpdate
from maillard.decisions.stores import sql_rows
from maillard.decisions.stores.sql_chain import ChainTransaction, events_of, grouped, ids_of
from maillard.decisions.stores.sql_rows import EVENT


class PruningTransaction(ChainTransaction):
    """A transaction that can remove the first commits of a chain."""

    def _longer_timeout(self) -> AbstractContextManager[None]:
        """Allow more time for statements that read every row, if the database has a time limit."""
        return nullcontext()

    def updates(self, ids: Iterable[str]) -> dict[str, list[TallyUpdate]]:
        return grouped(map(sql_rows.read_update, self.raw_updates(ids)), lambda each: each.decision)

    def raw_updates(self, ids: Iterable[str]) -> list[Any]:
        """The rows of the tally updates of these decisions, ordered by number, not checked."""
        sql = f"SELECT {EVENT} FROM events WHERE decision {self.IN} ORDER BY number"
        return self._fetch(sql, [self._list(ids)])

    def lost_updates(self, base: int) -> list[TallyUpdate]:
        kept = "SELECT 1 FROM decisions WHERE decisions.id = events.decision AND decisions.state >= ?"
        among = f"experiment = ? AND number > ? AND decision IS NOT NULL AND NOT EXISTS ({kept})"
        sql = f"SELECT {EVENT} FROM events WHERE {among} ORDER BY number"
        with self._longer_timeout():
            return [sql_rows.read_update(row) for row in self._fetch(sql, [self.experiment, base, base])]

    def count_earlier_states(self, number: int) -> int:
        sql = "SELECT count(*) FROM decisions WHERE experiment = ? AND state < ?"
        with self._longer_timeout():
            return int(self._fetch(sql, [self.experiment, number])[0][0])

    def remove_links(self, links: Sequence[Link], base: int) -> None:
        mine = self.experiment
        decisions, rewarded = ids_of(links)
        keys = {key for link in links for key in chain.reward_keys(link)}
        rewards = [
            (row.decision, row.event)
            for rows in self.reward_events(rewarded).values()
            for row in rows
            if chain.reward_record(row)[: chain.REWARD_KEY_SIZE] in keys
        ]
        self._execute_many("DELETE FROM rewards WHERE decision = ? AND event = ?", rewards)
        same = "a.experiment = d.experiment AND a.epoch = d.epoch AND a.unit = d.unit AND a.decision = d.id"
        sql = f"SELECT a.epoch, a.unit FROM decisions d JOIN assignments a ON {same} WHERE d.id {self.IN}"
        assigned = [(mine, *row) for row in self._fetch(sql, [self._list(decisions)])]
        place = "experiment = ? AND epoch = ? AND unit = ?"
        self._execute_many(f"DELETE FROM assignments WHERE {place}", assigned)
        sql = f"DELETE FROM decisions WHERE experiment = ? AND id {self.IN}"
        self._execute_many(sql, [(mine, self._list(decisions))])
        first, end = events_of(links)
        within = "experiment = ? AND number >= ? AND number <= ?"
        sql = f"DELETE FROM events WHERE {within} AND decision IS NOT NULL"
        self._execute_many(sql, [(mine, first, min(end - 1, base))])
        sql = f"DELETE FROM links WHERE {within}"
        self._execute_many(sql, [(mine, links[0].number, links[-1].number)])

    def remove_distributions(self, before: int, limit: int) -> bool:
        among = "vectors WHERE experiment = ? AND state < ?"
        sql = f"SELECT state FROM {among} ORDER BY state LIMIT 1 OFFSET ?"
        next_states = self._fetch(sql, [self.experiment, before, limit])
        # A state can have several distributions, so that the next one may be of the same state.
        end = min(next_states[0][0] + 1, before) if next_states else before
        self._execute_many(f"DELETE FROM {among}", [(self.experiment, end)])
        return end == before
