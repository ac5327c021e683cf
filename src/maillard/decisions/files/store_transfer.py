"""Opening a log in a store, and copying a log into a store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from maillard.decisions.decision import Decision
from maillard.decisions.events import AdministrativeEvent, Event, Prune, Simulate, Start, TallyUpdate
from maillard.decisions.files.metadata import check_events
from maillard.decisions.identifiers import check_name
from maillard.decisions.log import DecisionLog, select_experiment
from maillard.decisions.log_locations import redact
from maillard.decisions.pruned_logs import last_prune, load_base
from maillard.decisions.reward_rule import Learn
from maillard.decisions.state import State
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.contract import Head, Parked, Row, Transaction
from maillard.decisions.stores.earlier_rows import rows_until
from maillard.errors import Conflict, InvalidLog, InvalidValue, MaillardError

_MAX_INSERTED_ROWS = 1_000  # per batch


def open_owned(store: Store, experiment: str | None) -> DecisionLog:
    """Open a log in a store, and close the store with the log."""
    try:
        return open_shared(store, experiment, store.close)
    except BaseException:
        store.close()
        raise


def open_shared(store: Store, experiment: str | None, close: Callable[[], None] | None = None) -> DecisionLog:
    """Open a log in a store that others use. Later rewards are not part of the log."""
    name = select_experiment(store.experiments(), experiment, store.where)
    with store.reading(name) as transaction:
        found = contents_of(transaction, name, store.where, owned=close is not None)
    number, learn = found.number, found.learn
    opened = found.open(
        lambda: _rows(store, name, range(opened.first_event - 1, number + 1), learn),
        lambda: store.reading(name),
        close,
    )
    if (prune := last_prune(found.events)) is not None:
        opened.set_pruned_part(*_pruned_part(store, name, prune, number))
    return opened


class LogContents(NamedTuple):
    """What a log in a store contains besides its rows."""

    experiment: str
    where: str
    number: int
    events: list[AdministrativeEvent]
    parked: list[Parked]
    as_of: int
    learn: Learn

    def open(
        self,
        rows: Callable[[], Iterable[Row]],
        read_chain: Callable[[], AbstractContextManager[Transaction]],
        close: Callable[[], None] | None = None,
    ) -> DecisionLog:
        """The log with these rows."""
        log = DecisionLog(
            rows, experiment=self.experiment, source=self.where, events=self.events, number=self.number,
            parked=self.parked, as_of=self.as_of, close=close,
        )  # fmt: skip
        log.active = not log.configurations[-1].archived
        log.read_chain = read_chain
        return log


def contents_of(transaction: Transaction, name: str, where: str, *, owned: bool) -> LogContents:
    """Read what an experiment contains besides its rows. `owned`: whether only this log uses the store."""
    number, now = (transaction.head or Head(0, 0, 0)).number, transaction.now
    if not number:
        raise MaillardError(f"{where}: experiment {name!r} has not begun")
    events, last = transaction.administrative_events(), transaction.events(number - 1)
    try:
        check_name("experiment", name)
        check_events(events, number)
        if not events or not isinstance(events[0], Start):
            raise InvalidLog("events", [], "the start of the experiment as event 1")
    except InvalidValue as error:
        raise InvalidLog(f"{where}: {error.field}", error.value, error.allowed) from None
    if owned and any(isinstance(event, Simulate) and event.clock for event in events):
        now = last[0].time  # the store, which was opened for this log only, has another clock
    parked = sorted(
        transaction.all_parked(), key=lambda each: (each.row.arrived, each.row.decision, each.row.event)
    )
    return LogContents(name, where, number, events, parked, now, events[0].reward.learn)


def _pruned_part(
    store: Store, experiment: str, prune: Prune, number: int
) -> tuple[Callable[[], State], Callable[[], list[TallyUpdate]]]:
    """Functions that read the base state of a pruned log, and the updates of decisions that it lost."""

    def base() -> State:
        with store.reading(experiment) as transaction:
            return load_base(transaction, prune).state

    def updates() -> list[TallyUpdate]:
        with store.reading(experiment) as transaction:
            found = transaction.lost_updates(prune.base)
        return [event for event in found if event.number <= number]

    return base, updates


def _rows(store: Store, experiment: str, states: range, learn: Learn) -> Iterator[Row]:
    """Yield the rows with these states, as they were after the event with the last number.

    A prune that was interrupted leaves rows with earlier states.
    """
    rows, number = iter(store.rows(experiment)), states[-1]
    first = next(rows, None)
    if first is None:
        return
    with store.reading(experiment) as transaction:  # after the first row: the rows are a snapshot from before
        following = transaction.events(number, through=number + 1)
    end = following[0].time if following else None
    for row in rows_until(itertools.chain([first], rows), number, end, learn):
        if row.decision.state >= states[0]:
            yield row


class Imported(NamedTuple):
    """The result of copying a log into a store."""

    rows: int
    where: str


def write(log: DecisionLog, target: str | Path | Store, experiment: str) -> Imported:
    """Copy a log into a store, in one transaction."""
    check_name("experiment", experiment)
    if log.foreign:
        advice = "Keep it as a file, or pass its means to warm_start"
        raise MaillardError(f"{log.source}: a log without events cannot be imported. {advice}")
    if log.pruned is not None:
        advice = "To move it, copy the database; to analyse it, read the log where it is"
        raise MaillardError(f"{log.source}: a pruned log cannot be imported. {advice}")
    state = log.final_state()  # finds any error in the log before anything is written
    with _opened(target) as store:
        _check_new(log, store, experiment)
        with store.transaction(experiment, lock=True) as transaction:
            if transaction.head is None:
                transaction.create()
            if transaction.head != Head(0, 0, 0):  # another process may just have created it
                raise Conflict(f"{store.where} has an experiment {experiment!r} already")
            rows = _copy(log, transaction, experiment, state.epoch)
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
    with store.reading("") as transaction:
        owners = set(transaction.experiments_of(ids).values()) - {experiment}
    if owners:
        raise Conflict(f"{store.where} has these decisions already, as experiment {min(owners)!r}")


def _copy(log: DecisionLog, transaction: Transaction, experiment: str, epoch: int) -> int:
    """Copy a log into a transaction, in batches. Return the number of decisions. `epoch` is the last one."""
    head = Head(log.number, log.events[-1].number, epoch)
    assigned: dict[tuple[int, str], tuple[int, str]] = {}
    history, count = log.history(), 0
    while batch := list(itertools.islice(history, _MAX_INSERTED_ROWS)):
        transaction.add_events([each for each in batch if isinstance(each, Event)], head)
        rows = [each for each in batch if isinstance(each, Row)]
        decisions = [row.decision._replace(experiment=experiment) for row in rows]
        _add_decisions(transaction, decisions, log.source)
        transaction.add_reward_events([each for row in rows for each in row.rewards])
        transaction.add_pending(_pending(log, rows, epoch, transaction.now))
        transaction.write_link()
        count += len(rows)
        for row in decisions if log.sticky else ():
            if row.unit is not None and row.origin is None:
                place, chosen = (row.epoch, row.unit), (row.time, row.id)
                assigned[place] = max(chosen, assigned.get(place, chosen))
    for (epoch_of_unit, unit), (_, identifier) in assigned.items():
        transaction.assign(epoch_of_unit, unit, identifier, instead_of=None)
    known = transaction.decision_summaries([each.row.decision for each in log.parked])
    transaction.park([each for each in log.parked if each.row.decision not in known])
    return count


def _add_decisions(transaction: Transaction, decisions: Sequence[Decision], source: str) -> None:
    ids = {row.id for row in decisions}
    if len(ids) < len(decisions) or transaction.decision_summaries(ids):
        raise InvalidValue(source, min(ids), "decisions with unique ids")
    transaction.add_decisions([row for row in decisions if row.idempotency_key is None])
    for row in decisions:
        if row.idempotency_key is not None and not transaction.add_if_absent([row]):
            where = f"{source}: idempotency_key"
            raise InvalidValue(where, row.idempotency_key, "each key once at each position")


def _pending(log: DecisionLog, rows: Sequence[Row], epoch: int, now: int) -> dict[str, int]:
    """Return the decisions whose windows are not settled yet, with the times at which they close."""
    rule = log.reward
    if rule is None or rule.window is None:
        return {}
    found: dict[str, int] = {}
    now = min(now, log.as_of)
    for row in rows:
        closes = rule.closes(row.decision.time) or 0
        if rule.learn == "provisional":
            pending = closes > now  # closing the window writes no event
        elif row.applied:
            pending = closes > now and rule.learn == "on_arrival" and row.applied[0].kind == "reward"
        else:
            pending = closes > now or (rule.settles and row.decision.epoch == epoch)
        if pending:
            found[row.decision.id] = closes
    return found
