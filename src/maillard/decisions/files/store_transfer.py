"""Opening a log in a store, and copying a log into a store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from maillard.decisions.decision import Decision
from maillard.decisions.events import AdministrativeEvent, Event, Start
from maillard.decisions.files.metadata import check_events
from maillard.decisions.identifiers import check_name
from maillard.decisions.log import DecisionLog, Row, select_experiment
from maillard.decisions.log_locations import redact
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.contract import Head, Transaction
from maillard.errors import Conflict, InvalidLog, InvalidValue, MaillardError

_MAX_INSERTED_ROWS = 1_000  # per batch


def open_owned(store: Store, experiment: str | None) -> DecisionLog:
    """Open a log in a store, and close the store with the log."""
    try:
        return _open(store, experiment, owned=True)
    except BaseException:
        store.close()
        raise


def open_shared(store: Store, experiment: str | None) -> DecisionLog:
    """Open a log in a store that others use. Later rewards are not part of the log."""
    return _open(store, experiment, owned=False)


def _open(store: Store, experiment: str | None, *, owned: bool) -> DecisionLog:
    name = select_experiment(store.experiments(), experiment, store.where)
    with store.reading(name) as transaction:
        number, now = (transaction.head or Head(0, 0, 0)).number, transaction.now
        events = transaction.administrative_events() if number else []
        parked = sorted(
            transaction.all_parked(), key=lambda each: (each.row.arrived, each.row.decision, each.row.event)
        )
    if not number:
        raise MaillardError(f"{store.where}: experiment {name!r} has not begun")
    start = _check(store, name, events, number)
    return DecisionLog(
        lambda: _rows(store, name, number, mature_only=start.reward.mature_only),
        experiment=name,
        source=store.where,
        events=events,
        number=number,
        parked=parked,
        as_of=now,
        close=store.close if owned else None,
    )


def _check(store: Store, experiment: str, events: Sequence[AdministrativeEvent], number: int) -> Start:
    try:
        check_name("experiment", experiment)
        check_events(events, number)
        if not events or not isinstance(events[0], Start):
            raise InvalidLog("events", [], "the start of the experiment as event 1")
        return events[0]
    except InvalidValue as error:
        raise InvalidLog(f"{store.where}: {error.field}", error.value, error.allowed) from None


def _rows(store: Store, experiment: str, number: int, *, mature_only: bool) -> Iterator[Row]:
    """Yield the rows as they were after the event with this number."""
    rows, end = store.rows(experiment), None
    for place, (decision, rewards, applied) in enumerate(rows):
        if not place:
            end = _end(store, experiment, number)  # after the first row: the rows are a snapshot from before
        if decision.state > number:
            return
        if end is not None:
            # Whether the decision itself was appended later.
            later = bool(applied) and applied[0].number > number and not mature_only
            rewards = tuple(  # noqa: PLW2901
                each for each in rewards if each.arrived < end and (each.late or not later)
            )
            applied = tuple(event for event in applied if event.number <= number)  # noqa: PLW2901
        yield Row(decision, tuple(sorted(rewards, key=lambda each: (each.arrived, each.event))), applied)


def _end(store: Store, experiment: str, number: int) -> int | None:
    """Return the time of the next event; None if there is none yet."""
    with store.reading(experiment) as transaction:
        later = transaction.events(number, through=number + 1)
    return later[0].time if later else None


class Imported(NamedTuple):
    """The result of copying a log into a store."""

    rows: int
    where: str


def write(log: DecisionLog, target: str | Path | Store, experiment: str) -> Imported:
    """Copy a log into a store, in one transaction."""
    check_name("experiment", experiment)
    if log.foreign:
        raise MaillardError(
            f"{log.source}: a log without events cannot be imported. "
            "Keep it as a file, or pass its means to warm_start"
        )
    state = log.final_state()  # finds any error in the log before anything is written
    with _opened(target) as store:
        _check_new(log, store, experiment)
        with store.transaction(experiment, lock=True) as transaction:
            if transaction.head is None:
                transaction.create()
            if transaction.head != Head(0, 0, 0):  # another process may just have created it
                raise Conflict(f"{store.where} has an experiment {experiment!r} already")
            rows = _LogCopy(log, transaction, experiment, state.epoch).run()
            transaction.save_checkpoint(state.number, state.write())
        return Imported(rows, store.where)


@contextmanager
def _opened(target: str | Path | Store) -> Iterator[Store]:
    """Open a store to write to. If the block fails, a newly created file is removed."""
    path = Path(target) if isinstance(target, str | Path) and redact(target) == str(target) else None
    new = path is not None and not os.path.lexists(path)
    try:
        store = open_store(target)
        try:
            yield store
        except BaseException:
            new = new and _is_empty(store)  # otherwise another process has written to it
            raise
        finally:
            if store is not target:
                store.close()
    except BaseException:
        for ending in ("", "-wal", "-shm", "-journal") if new else ():
            with suppress(OSError):
                Path(f"{path}{ending}").unlink()
        raise


def _is_empty(store: Store) -> bool:
    try:
        return not store.experiments()
    except MaillardError:
        return False


def _check_new(log: DecisionLog, store: Store, experiment: str) -> None:
    """Refuse a second copy of the log in the same store, because ids are unique in a store."""
    ids = [row.decision.id for row in itertools.islice(log.rows(), 1)]
    for name in store.experiments():
        if name != experiment:
            with store.reading(name) as transaction:
                if transaction.decision_summaries(ids):
                    raise Conflict(f"{store.where} has these decisions already, as experiment {name!r}")


class _LogCopy:
    """Copies a log into a transaction, in batches."""

    def __init__(self, log: DecisionLog, transaction: Transaction, experiment: str, epoch: int) -> None:
        self.log, self.transaction, self.experiment = log, transaction, experiment
        self.head = Head(0, 0, 0)
        self.now = transaction.now
        self.epoch = epoch  # the last one
        pairs = zip(log.events, log.configurations, strict=True)
        self.epochs = {event.number: after.epoch for event, after in pairs}
        self.events: list[Event] = []
        self.rows: list[Row] = []
        self.count = 0
        self.assigned: dict[tuple[int, str], tuple[int, str]] = {}

    def run(self) -> int:
        for each in self.log.history():
            if isinstance(each, Event):
                self.events.append(each)
            else:
                self.rows.append(each)
            if len(self.events) + len(self.rows) >= _MAX_INSERTED_ROWS:
                self.flush()
        self.flush()
        for (epoch, unit), (_, identifier) in self.assigned.items():
            self.transaction.assign(epoch, unit, identifier, instead_of=None)
        parked = self.log.parked
        known = self.transaction.decision_summaries([each.row.decision for each in parked])
        self.transaction.park([each for each in parked if each.row.decision not in known])
        return self.count

    def flush(self) -> None:
        self.add_events()
        rows, self.rows = self.rows, []
        decisions = [self.with_experiment(row.decision) for row in rows]
        ids = {row.id for row in decisions}
        if len(ids) < len(decisions) or self.transaction.decision_summaries(ids):
            raise InvalidValue(self.log.source, min(ids), "decisions with unique ids")
        self.transaction.add_decisions([row for row in decisions if row.idempotency_key is None])
        for row in decisions:
            if row.idempotency_key is not None and not self.transaction.add_if_absent([row]):
                allowed = "each key once at each position"
                raise InvalidValue(f"{self.log.source}: idempotency_key", row.idempotency_key, allowed)
        self.transaction.add_reward_events([each for row in rows for each in row.rewards])
        self.transaction.add_pending(self.pending(rows))
        self.note_assignments(decisions)
        self.count += len(rows)

    def add_events(self) -> None:
        events, self.events = self.events, []
        if events:
            numbers = [event.number for event in events if isinstance(event, AdministrativeEvent)]
            administrative = max(numbers, default=self.head.administrative)
            self.head = Head(events[-1].number, administrative, self.epochs.get(administrative, 0))
            self.transaction.add_events(events, self.head)

    def with_experiment(self, row: Decision) -> Decision:
        return row if row.experiment == self.experiment else row._replace(experiment=self.experiment)

    def pending(self, rows: Sequence[Row]) -> dict[str, int]:
        """Return the decisions whose windows are not settled yet, with the times at which they close."""
        rule = self.log.reward
        if rule is None or not rule.settles:
            return {}
        open_rows = [row.decision for row in rows if not row.applied]
        closing = {row.id: (row, rule.closes(row.time) or 0) for row in open_rows}
        return {
            key: closes
            for key, (row, closes) in closing.items()
            if row.epoch == self.epoch or closes > self.now
        }

    def note_assignments(self, decisions: Sequence[Decision]) -> None:
        """Record the last assignment of each sticky unit."""
        if self.log.sticky:
            for row in decisions:
                if row.unit is not None and row.origin is None:
                    place, drawn = (row.epoch, row.unit), (row.time, row.id)
                    self.assigned[place] = max(drawn, self.assigned.get(place, drawn))
