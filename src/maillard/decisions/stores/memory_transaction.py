"""A transaction on dictionaries, for logs in memory."""

from __future__ import annotations

import copy
import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter

from maillard.decisions import chain
from maillard.decisions.chain import Commit, Link
from maillard.decisions.decision import Decision, LoggedContext, RewardEvent
from maillard.decisions.events import AdministrativeEvent, Event, TallyUpdate
from maillard.decisions.stores import vectors
from maillard.decisions.stores.contract import (
    ChainRows,
    Counts,
    DecisionSummary,
    Head,
    OpenWindow,
    Parked,
    Row,
    Visits,
)
from maillard.decisions.stores.sql_chain import events_of, ids_of
from maillard.decisions.stores.sql_rows import write_event

_number = attrgetter("number")


@dataclass
class MemoryExperiment:
    """The rows of one experiment."""

    head: Head = field(default_factory=lambda: Head(0, 0, 0))
    events: list[Event] = field(default_factory=list)
    checkpoint: tuple[int, str] | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    reward_events: dict[str, list[RewardEvent]] = field(default_factory=dict)
    parked: dict[str, dict[str, Parked]] = field(default_factory=dict)
    "By decision and event."
    closing: dict[str, int] = field(default_factory=dict)
    schedule: list[tuple[int, str]] = field(default_factory=list)
    "A heap of the times at which windows close."
    assigned: dict[tuple[int, str], str] = field(default_factory=dict)
    seals: dict[str, bytes | None] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)


@dataclass
class MemoryTables:
    """The rows of all experiments."""

    experiments: dict[str, MemoryExperiment] = field(default_factory=dict)
    unassigned: MemoryExperiment = field(default_factory=MemoryExperiment)
    documents: dict[str, dict[str, str]] = field(default_factory=dict)


class MemoryTransaction:
    """A transaction on dictionaries."""

    def __init__(self, tables: MemoryTables, experiment: str, clock: Callable[[], int]) -> None:
        self._all, self.name, self.now = tables.experiments, experiment, clock()
        self._data = self._all.get(experiment) or (MemoryExperiment() if experiment else tables.unassigned)
        self._documents = tables.documents
        self._commit = Commit()

    def copy_rows(self) -> None:
        """From now on, read a copy of the experiment."""
        self._all = dict(self._all)
        if self.name in self._all:
            data = self._data
            copied = {each.name: copy.copy(getattr(data, each.name)) for each in fields(data)}
            copied["reward_events"] = {key: list(rows) for key, rows in data.reward_events.items()}
            copied["parked"] = {key: dict(rows) for key, rows in data.parked.items()}
            self._data = self._all[self.name] = MemoryExperiment(**copied)

    @property
    def head(self) -> Head | None:
        return self._data.head if self.name in self._all else None

    def create(self) -> None:
        self._all[self.name] = self._data

    def events(self, after: int, through: int | None = None) -> list[Event]:
        events = self._data.events
        first = bisect_right(events, after, key=_number)
        return events[first : None if through is None else bisect_right(events, through, key=_number)]

    def administrative_events(self) -> list[AdministrativeEvent]:
        return [event for event in self._data.events if isinstance(event, AdministrativeEvent)]

    def checkpoint(self) -> tuple[int, str] | None:
        return self._data.checkpoint

    def save_checkpoint(self, number: int, state: str) -> None:
        self._data.checkpoint = number, state

    def add_events(self, events: Sequence[Event], head: Head) -> None:
        self._commit.add_events(map(write_event, events))
        self._data.events.extend(events)
        self._data.head = head

    def decision_summaries(self, ids: Iterable[str]) -> dict[str, DecisionSummary]:
        found = self.decisions(ids)
        return {key: DecisionSummary(row.arm, row.epoch, row.time, row.encoded) for key, row in found.items()}

    def decisions(self, ids: Iterable[str]) -> dict[str, Decision]:
        return {key: self._data.decisions[key] for key in ids if key in self._data.decisions}

    def decisions_of_units(self, units: Iterable[str]) -> list[str]:
        wanted = set(units)
        return [row.id for row in self._data.decisions.values() if row.unit in wanted]

    def rows(self) -> Iterator[Row]:
        decisions = sorted(self._data.decisions.values(), key=lambda row: (row.state, row.id))
        yield from self.rows_of(row.id for row in decisions)

    def rows_of(self, ids: Iterable[str]) -> list[Row]:
        data = self._data
        return [
            Row(row, tuple(data.reward_events.get(row.id, ())), tuple(self._updates.get(row.id, ())))
            for row in self.decisions(ids).values()
        ]

    @cached_property
    def _updates(self) -> dict[str, list[TallyUpdate]]:
        """The tally updates of each decision, as of the first use."""
        updates: dict[str, list[TallyUpdate]] = {}
        for event in self._data.events:
            if isinstance(event, TallyUpdate):
                updates.setdefault(event.decision, []).append(event)
        return updates

    def decisions_by_key(self, keys: Iterable[str]) -> dict[str, list[Decision]]:
        found = {key: [self._data.decisions[each] for each in self._data.keys.get(key, ())] for key in keys}
        return {key: sorted(rows, key=lambda row: row.position) for key, rows in found.items() if rows}

    def add_decisions(self, rows: Sequence[Decision]) -> None:
        for row, seal in zip(rows, chain.new_seals(rows), strict=True):
            self._data.decisions[row.id], self._data.seals[row.id] = row, seal
            vector = vectors.digest_of(row.eligible, row.log_probabilities)
            self._commit.decisions.append(chain.decision_record(row, seal, vector))
            if row.idempotency_key is not None:
                self._data.keys.setdefault(row.idempotency_key, []).append(row.id)

    def add_if_absent(self, rows: Sequence[Decision]) -> set[str]:
        added: set[str] = set()
        for row in rows:
            key = row.idempotency_key or ""
            taken = any(each.position == row.position for each in self.decisions_by_key([key]).get(key, ()))
            if not taken and not self.experiments_of([row.id]):
                self.add_decisions([row])
                added.add(row.id)
        return added

    def reward_events(self, ids: Iterable[str]) -> dict[str, list[RewardEvent]]:
        return {key: list(self._data.reward_events[key]) for key in ids if key in self._data.reward_events}

    def add_reward_events(self, rows: Sequence[RewardEvent]) -> None:
        self._commit.add_rewards(rows)
        for row in rows:
            self._data.reward_events.setdefault(row.decision, []).append(row)

    def parked(self, ids: Iterable[str]) -> dict[str, list[Parked]]:
        found = {key: self._data.parked.get(key) for key in ids}
        return {key: list(rows.values()) for key, rows in found.items() if rows}

    def all_parked(self) -> list[Parked]:
        return [each for rows in self._data.parked.values() for each in rows.values()]

    def count_parked(self) -> int:
        return sum(not each.expired(self.now) for each in self.all_parked())

    def park(self, rows: Sequence[Parked]) -> None:
        kept = [each for each in self.all_parked() if not each.expired(self.now)]
        self._data.parked = {}
        for each in (*kept, *rows):
            self._data.parked.setdefault(each.row.decision, {})[each.row.event] = each

    def unpark(self, rows: Iterable[RewardEvent]) -> None:
        for row in rows:
            self._data.parked.get(row.decision, {}).pop(row.event, None)

    def pending(self, ids: Iterable[str]) -> set[str]:
        return self._data.closing.keys() & set(ids)

    def add_pending(self, rows: Mapping[str, int]) -> None:
        for key, closes in rows.items():
            self._data.closing[key] = closes
            heapq.heappush(self._data.schedule, (closes, key))

    def remove_pending(self, ids: Iterable[str]) -> None:
        for key in ids:
            self._data.closing.pop(key, None)

    def due_decisions(self, limit: int) -> list[str]:
        found: list[str] = []
        schedule = self._data.schedule
        while schedule and schedule[0][0] <= self.now and len(found) < limit:
            _, key = heapq.heappop(schedule)
            if key in self._data.closing:
                found.append(key)
        return found

    def open_windows(self, epoch: int, *, applied: bool) -> list[OpenWindow]:
        values: dict[str, float] = {}
        for event in self._data.events if applied else ():
            if isinstance(event, TallyUpdate):
                values[event.decision] = event.value
        groups: dict[tuple[str, float | None], list[int]] = {}
        for key, closes in self._data.closing.items():
            row = self._data.decisions[key]
            if row.epoch == epoch:
                groups.setdefault((row.arm, values.get(key)), []).append(closes)
        return [OpenWindow(*group, len(closing), min(closing)) for group, closing in groups.items()]

    def decisions_of_epoch(self, epoch: int) -> dict[str, int]:
        return Counter(row.arm for row in self._data.decisions.values() if row.epoch == epoch)

    def visits(self, epoch: int) -> Visits:
        times = Counter(row.unit for row in self._data.decisions.values() if row.epoch == epoch)
        without = times.pop(None, 0)
        squares = sum(each**2 for each in times.values())
        return Visits(times.total() + without, len(times), squares + without)

    def assignment(self, epoch: int, unit: str) -> str | None:
        return self._data.assigned.get((epoch, unit))

    def assign(self, epoch: int, unit: str, decision: str, *, instead_of: str | None) -> bool:
        if self.assignment(epoch, unit) != instead_of:
            return False
        self._data.assigned[epoch, unit] = decision
        return True

    def updated_decisions(self, after: int, through: int) -> list[str]:
        return [each.decision for each in self.events(after, through) if isinstance(each, TallyUpdate)]

    def counts(self) -> Counts:
        rewarded = self._data.reward_events.items()
        observed = [row for key, rows in rewarded if key in self._data.decisions for row in rows]
        arms = Counter(row.arm for row in self._data.decisions.values())
        return Counts(arms, len(observed), sum(row.late for row in observed), len(self.all_parked()))

    def count_decisions(self) -> int:
        return len(self._data.decisions)

    def count_rewards(self, expected: int) -> int:  # noqa: ARG002  # counting is no work
        return self.counts().rewards

    def erase_unit(self, unit: str, token: str) -> int:
        rows = [row for row in self._data.decisions.values() if row.unit == unit]
        for row in rows:
            key = row.idempotency_key
            seal = self._data.seals.get(row.id)
            self._data.seals[row.id] = None if seal is None else chain.commitment_of(row, seal)
            if key is not None:
                self._data.keys.pop(key, None)
                key = f"{token}:{row.id}"
                self._data.keys[key] = [row.id]
            self._data.decisions[row.id] = row._replace(
                unit=token, idempotency_key=key, context=None, actions=None
            )
        for epoch, name in [place for place in self._data.assigned if place[1] == unit]:
            self._data.assigned[epoch, token] = self._data.assigned.pop((epoch, name))
        return len(rows)

    def write_link(self) -> None:
        """Add the link of the rows that were added."""
        if self._commit:
            last = self.last_link()
            place = (last.number, last.hash) if last else None
            self._data.links.append(self._commit.link(place, self.now))
            self._commit = Commit()

    def chain_end(self) -> tuple[int, bytes] | None:
        last = self.last_link()
        return (last.number, last.hash) if last else None

    def last_link(self) -> Link | None:
        return self._data.links[-1] if self._data.links else None

    def links(self, after: int, limit: int) -> list[Link]:
        first = bisect_right(self._data.links, after, key=_number)
        return self._data.links[first : first + limit]

    def chain_rows(self, links: Sequence[Link]) -> ChainRows:
        decisions, rewards = ids_of(links)
        found = {key: (row, self._data.seals.get(key)) for key, row in self.decisions(decisions).items()}
        first, end = events_of(links)
        events = {event.number: write_event(event) for event in self.events(first - 1, end - 1)}
        return ChainRows(found, events, self.reward_events(rewards))

    def updates(self, ids: Iterable[str]) -> dict[str, list[TallyUpdate]]:
        wanted, found = set(ids), dict[str, list[TallyUpdate]]()
        for event in self._data.events:
            if isinstance(event, TallyUpdate) and event.decision in wanted:
                found.setdefault(event.decision, []).append(event)
        return found

    def lost_updates(self, base: int) -> list[TallyUpdate]:
        kept = {key for key, row in self._data.decisions.items() if row.state >= base}
        updates = [event for event in self.events(base) if isinstance(event, TallyUpdate)]
        return [event for event in updates if event.decision not in kept]

    def count_earlier_states(self, number: int) -> int:
        return sum(row.state < number for row in self._data.decisions.values())

    def remove_links(self, links: Sequence[Link], base: int) -> None:
        data, (decisions, rewarded) = self._data, ids_of(links)
        keys = {key for link in links for key in chain.reward_keys(link)}
        for identifier in set(rewarded):
            rows = data.reward_events.pop(identifier, [])
            kept = [row for row in rows if chain.reward_record(row)[: chain.REWARD_KEY_SIZE] not in keys]
            if kept:
                data.reward_events[identifier] = kept
        for identifier in decisions:
            row = data.decisions.pop(identifier)
            del data.seals[identifier]
            data.keys.pop(row.idempotency_key or "", None)
            if data.assigned.get(place := (row.epoch, row.unit or "")) == identifier:
                del data.assigned[place]
        first, end = events_of(links)
        last = min(end - 1, base)
        data.events = [
            event
            for event in data.events
            if not (isinstance(event, TallyUpdate) and first <= event.number <= last)
        ]
        data.links = [link for link in data.links if not links[0].number <= link.number <= links[-1].number]

    def remove_distributions(self, before: int, limit: int) -> bool:  # noqa: ARG002
        return True  # they are parts of the decisions

    def heads(self) -> dict[str, Head]:
        return {name: data.head for name, data in sorted(self._all.items())}

    def due_experiments(self) -> list[str]:
        return [
            name
            for name, data in self._all.items()
            if any(closes <= self.now and key in data.closing for closes, key in data.schedule)
        ]

    def experiments_of(self, ids: Iterable[str]) -> dict[str, str]:
        wanted = list(ids)
        return {key: name for name, data in self._all.items() for key in wanted if key in data.decisions}

    def contexts_of(self, ids: Iterable[str]) -> dict[str, LoggedContext]:
        return {key: _context_of(row) for key, row in self.decisions(ids).items()}

    def contexts_between(self, after: str, before: str, limit: int) -> tuple[list[LoggedContext], str | None]:
        rows = self.decisions_between(after, before, limit)
        mine = [_context_of(row) for row in rows if row.experiment == self.name]
        return mine, rows[-1].id if len(rows) == limit else None

    def decisions_between(self, after: str, before: str, limit: int) -> list[Decision]:
        rows = (row for data in self._all.values() for row in data.decisions.values())
        return sorted(row for row in rows if after < row.id < before)[:limit]

    def documents(self, kind: str) -> dict[str, str]:
        return dict(sorted(self._documents.get(kind, {}).items()))

    def document(self, kind: str, name: str) -> str | None:
        return self._documents.get(kind, {}).get(name)

    def put_document(self, kind: str, name: str, content: str) -> None:
        self._documents.setdefault(kind, {})[name] = content

    def remove_document(self, kind: str, name: str) -> None:
        self._documents.get(kind, {}).pop(name, None)


def _context_of(row: Decision) -> LoggedContext:
    return LoggedContext(row.id, row.arm, row.context, row.feature_version)
