"""The log of one experiment, read from a store, a file or a data frame."""

from __future__ import annotations

import copy
import heapq
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from maillard.decisions.columns import Columns, columns_of
from maillard.decisions.decision import Decision
from maillard.decisions.events import AdministrativeEvent, Event, Prune, TallyUpdate, configurations
from maillard.decisions.experiment_configuration import Configuration
from maillard.decisions.pruned_logs import last_prune
from maillard.decisions.reward_rule import Reward
from maillard.decisions.selection import Names, Numbers, Selection, Time, select_part
from maillard.decisions.state import State, replay
from maillard.decisions.stores.contract import Parked, Row, Transaction
from maillard.decisions.timestamps import system_clock
from maillard.errors import CannotAnswer, InvalidLog, InvalidValue, MaillardError, UnknownName
from maillard.short_reprs import COLUMNS, cut

# The errors that a malformed event or row may cause, besides those of this package.
MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError)


class DecisionLog:
    """The log of one experiment, as `read_log` opens it.

    `events` are the administrative events of the experiment, beginning with its start. `number` is the number
    of its last event of any kind. A `foreign` log has no events, only decisions with probabilities and
    rewards, for example from another program. It can be evaluated, but its states cannot be rebuilt.

    >>> from maillard import Bandit, read_log
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1), seed=1)
    >>> for decision in bandit.choose(size=3): outcome = bandit.reward(decision, decision.arm == "red")
    >>> log = read_log(bandit)
    >>> log.arms, log.policies
    (('red', 'blue'), {1: 'kl-ms+:floor=0.1'})
    >>> [(row.decision.arm, log.reward_of(row)) for row in log.rows()]
    [('red', 1.0), ('blue', 0.0), ('red', 1.0)]
    >>> [batch.reward.tolist() for batch in log.columns()]
    [[1.0, 0.0, 1.0]]
    >>> log.to_arrow().num_rows, log.to_pandas().shape[0], log.to_polars().height
    (3, 3, 3)
    >>> log.close()
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[Row]],
        *,
        experiment: str,
        source: str,
        events: Sequence[AdministrativeEvent] = (),
        number: int = 0,
        parked: Sequence[Parked] = (),
        as_of: int | None = None,
        arms: Sequence[str] = (),
        close: Callable[[], None] | None = None,
    ) -> None:
        self._rows, self.experiment, self.source = rows, experiment, source
        self.events, self.number, self.parked = list(events), number, list(parked)
        self.as_of = system_clock() if as_of is None else as_of
        self._arms = tuple(arms)
        self.on_rows: Callable[[int], None] | None = None
        "A callback that receives the number of rows read so far."
        self._release = None if close is None else weakref.finalize(self, close)
        self.column_parts: tuple[Callable[[], Iterable[Columns]], ...] = ()
        "Functions that read consecutive parts of the log as columns; empty if only rows can be read."
        self.row_count: int | None = None
        "The number of rows, if it is known without reading them."
        self.has_windows = False
        "Whether a foreign log tells which reward windows had closed."
        self.lists_actions = False
        "Whether a foreign log has the actions of each decision with their attributes."
        self.arms_unordered = False
        "Whether the arms are in order of first appearance, for lack of a declared order."
        self.selection = Selection()
        self.active = False
        "Whether the log is in a store and its experiment is not archived, so that it may grow."
        self.read_chain: Callable[[], AbstractContextManager[Transaction]] | None = None
        "Begins a read-only transaction of the store; None if the log is not in a store."
        self.pruned: Prune | None = None
        "The event that removed the first decisions, if this log does not have them. An export may have them."
        self.read_lost_updates: Callable[[], Iterable[TallyUpdate]] = tuple
        "Reads the later tally updates of decisions that were pruned."
        self.check_rows: Callable[[], None] = lambda: None
        "Raises InvalidLog if rows of an exported table were removed or edited."
        self.changed_files: Callable[[], Iterable[str]] = tuple
        "Describes each file of an export folder that does not have the hash that it was exported with."

    def __repr__(self) -> str:
        return f"<{cut(f'log of experiment {self.experiment!r}: {self.source}', COLUMNS - 2)}>"

    @property
    def foreign(self) -> bool:
        """Whether the log has no events, so that states cannot be rebuilt."""
        return not self.events

    def rows(self) -> Iterator[Row]:
        """Yield every decision with its rewards, ordered by state and id."""
        for number, row in enumerate(self._rows(), 1):
            if self.on_rows is not None and number % 1000 == 0:
                self.on_rows(number)
            yield row

    def set_column_parts(self, *parts: Callable[[], Iterable[Columns]], row_count: int) -> None:
        """Make `columns` read these consecutive parts, which is faster than converting rows."""
        self.column_parts, self.row_count = parts, row_count

    def columns(self) -> Iterator[Columns]:
        """Yield the decisions as arrays, in batches of some thousand rows."""
        if self.has_actions:
            raise CannotAnswer(
                f"{self.source}: the arms differ at every decision (actions=...). `evaluate` and `compare` "
                "accept such logs, `verify` checks them, and an export has the probabilities of all actions"
            )
        yield from self._columns(columns_of)

    def action_columns(self) -> Iterator[Columns]:
        """Yield the decisions as arrays if the arms differ at every decision; an arm's index is its rank."""
        from maillard.decisions.action_columns import action_columns_of

        yield from self._columns(action_columns_of)

    def _columns(
        self, convert: Callable[[DecisionLog, Iterable[Row]], Iterator[Columns]]
    ) -> Iterator[Columns]:
        if not self.column_parts:
            yield from convert(self, self.rows())
            return
        read, last = 0, -1
        for batch in itertools.chain.from_iterable(part() for part in self.column_parts):
            last = batch.check_order(last, self.source)
            read += len(batch)
            if self.on_rows is not None:
                self.on_rows(read)
            yield batch

    def select(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        unit: Names = None,
        epoch: Numbers = None,
        from_state: int | None = None,
        to_state: int | None = None,
        keep: bool = False,
    ) -> DecisionLog:
        """Return a log with only the decisions of a time interval, of some units, epochs or states.

        `until` is exclusive; `to_state` is included. States cannot be rebuilt from the result, because rows
        are missing. With `keep`, the log's own selection applies as well.

        >>> from maillard import Bandit, read_log
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> for unit in ("user-17", "user-18"): decision = bandit.choose(unit=unit)
        >>> [row.decision.unit for row in read_log(bandit).select(unit="user-18").rows()]
        ['user-18']
        """
        chosen = Selection.of(since, until, unit, epoch, from_state=from_state, to_state=to_state)
        if keep:
            chosen = replace(self.selection, epochs=chosen.epochs)
        if chosen.selects_all:
            return self
        part = copy.copy(self)
        part.selection = chosen.within(self.selection)
        # This refers to `self`, whose finalizer closes the store.
        part._rows = lambda: (row for row in self._rows() if chosen.includes(row.decision))
        part.row_count = None
        part.column_parts = tuple(partial(select_part, each, chosen) for each in self.column_parts)
        return part

    def history(self) -> Iterator[Event | Row]:
        """Yield events and rows in order: each row follows the event that made the state it was chosen in.

        The events of a pruned log follow its `base_state`.
        """
        if not self.selection.selects_all:
            problem = "states cannot be rebuilt from a part of a log; read it without a selection"
            raise MaillardError(f"{self.source}: {problem}")
        if self.foreign:
            raise MaillardError(
                f"{self.source}: this log has no events, so its states cannot be rebuilt. "
                "It can be evaluated, and its means can be passed to warm_start"
            )
        order, last = itertools.count(), self.first_event - 1
        rows = self.rows()
        # Begin to read the rows before the updates, so that nothing is missed if a decision is removed now.
        first = list(itertools.islice(rows, 1))
        lost = list(self.read_lost_updates())
        known: list[Event] = [*self.events, *lost]
        pending: list[tuple[int, int, Event]] = [
            (event.number, next(order), event) for event in known if event.number > last
        ]
        heapq.heapify(pending)

        def until(number: int) -> Iterator[Event]:
            nonlocal last
            while last < number:
                if not pending or pending[0][0] != last + 1:
                    raise MaillardError(f"{self.source}: event {last + 1} is missing or occurs twice")
                last += 1
                yield heapq.heappop(pending)[2]

        removed = {event.number for event in lost}
        for row in itertools.chain(first, rows):
            # Rewards are applied after the decision's state, so all events up to that state are known by now.
            yield from until(row.decision.state)
            yield row
            for event in row.applied:
                if event.number not in removed:
                    heapq.heappush(pending, (event.number, next(order), event))
        yield from until(self.number)
        if pending:
            raise MaillardError(f"{self.source}: event {pending[0][0]} is not one of its {self.number}")

    @property
    def first_event(self) -> int:
        """The first event that `history` yields: 1, unless the log was pruned."""
        return 1 if self.pruned is None else self.pruned.base + 1

    def set_pruned_part(
        self, read_base: Callable[[], State], read_lost_updates: Callable[[], Iterable[TallyUpdate]]
    ) -> None:
        """Say that the first decisions of the experiment are missing, because they were pruned."""
        self.pruned = last_prune(self.events)
        self._read_base, self.read_lost_updates = read_base, read_lost_updates

    @property
    def events_elsewhere(self) -> int:
        """The number of events that are not tally updates of a decision in the log."""
        known: list[Event] = [*self.events, *self.read_lost_updates()]
        return self.first_event - 1 + sum(event.number >= self.first_event for event in known)

    def base_state(self) -> State | None:
        """The state before the first event of `history`; None if that is the start of the experiment."""
        return None if self.pruned is None else self._read_base()

    def final_state(self) -> State:
        """Rebuild the state after all events."""
        return self._state_after(each for each in self.history() if isinstance(each, Event))

    def state_at(self, number: int) -> State:
        """Rebuild the state after the event with this number.

        >>> from maillard import Bandit, read_log
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> outcome = bandit.reward(bandit.choose(), 1.0)
        >>> log = read_log(bandit)
        >>> [type(each).__name__ for each in log.history()]
        ['Start', 'Row', 'TallyUpdate']
        >>> log.state_at(1).tally.round, log.final_state().tally.round
        (1, 2)
        """
        first, last = max(self.first_event - 1, 1), self.number
        if not first <= number <= last:
            raise InvalidValue("state", number, f"the number of an event of this log, {first:,} to {last:,}")
        events = (each for each in self.history() if isinstance(each, Event))
        return self._state_after(itertools.takewhile(lambda event: event.number <= number, events))

    def _state_after(self, events: Iterator[Event]) -> State:
        state = self.base_state()
        while batch := list(itertools.islice(events, 10_000)):
            state = apply_events(state, batch, self.source)
        return replay([]) if state is None else state

    def reward_of(self, row: Row) -> float | None:
        """Return a decision's combined reward; after its window has closed, the default if there was none."""
        if self.reward is None:
            return row.rewards[0].value if row.rewards else None
        for event in row.applied if self.reward.learn != "provisional" else ():
            if event.kind == "default":
                return event.value
        total = self.reward.total(row.rewards)
        return self.reward.default if total is None and self.is_closed(row.decision) else total

    @property
    def requires_closed_windows(self) -> bool:
        """Whether a reward is final only when its window has closed."""
        return self.has_windows or (self.reward is not None and self.reward.window is not None)

    def final_reward_of(self, row: Row) -> float | None:
        """Return a decision's reward; None while its window is open, because the reward may still change.

        >>> from maillard import Bandit, read_log
        >>> bandit = Bandit(["red", "blue"], reward=Reward.clicks(window="1h"))
        >>> outcome, log = bandit.reward(bandit.choose(), 1), read_log(bandit)
        >>> row = next(log.rows())
        >>> log.reward_of(row), log.final_reward_of(row), log.is_closed(row.decision)
        (1.0, None, False)
        """
        if self.reward is not None and self.requires_closed_windows and not self.is_closed(row.decision):
            return None
        return self.reward_of(row)

    def is_closed(self, decision: Decision) -> bool:
        """Whether the decision's reward window had closed when the log was opened or exported."""
        closes = None if self.reward is None else self.reward.closes(decision.time)
        return closes is not None and closes <= self.as_of

    @cached_property
    def configurations(self) -> list[Configuration]:
        """The configuration after each administrative event."""
        return configurations(self.events)

    @cached_property
    def uses_contexts(self) -> bool:
        """Whether distributions depend on features or segments."""
        return any(each.context is not None for each in self.configurations)

    @property
    def has_actions(self) -> bool:
        """Whether the arms differ at every decision."""
        return self.lists_actions or any(each.dynamic for each in self.configurations)

    @property
    def sticky(self) -> bool:
        """Whether a unit keeps its arm."""
        return bool(self.events) and self.configurations[0].sticky

    @cached_property
    def reward(self) -> Reward | None:
        """The reward rule; None for a foreign log."""
        return self.configurations[0].reward if self.events else None

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """All arms, including retired ones."""
        later = (each.arms for each in self.configurations)
        return tuple(dict.fromkeys(itertools.chain(self._arms, *later)))

    @cached_property
    def policies(self) -> dict[int, str]:
        """The spec of each policy version."""
        return {each.policy_version: each.spec for each in self.configurations}

    def to_arrow(self) -> Any:
        """Return the decisions as an Arrow table; docs/how-to/log-files.md describes its columns."""
        from maillard.decisions.files import arrow

        return arrow.to_table(self)

    def to_pandas(self) -> Any:
        """Return the decisions as a pandas data frame."""
        from maillard.decisions.files import arrow

        return arrow.to_pandas(self)

    def to_polars(self) -> Any:
        """Return the decisions as a polars data frame, which has no metadata: read again, it is foreign."""
        from maillard.decisions.files import arrow

        return arrow.to_polars(self)

    def close(self) -> None:
        """Close the store, if this log opened it."""
        if self._release is not None:
            self._release()

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def apply_events(state: State | None, events: Sequence[Event], source: str) -> State:
    """Apply events of an untrusted log to a state; None is the state before the first event."""
    try:
        return replay(events) if state is None else state.after(events)
    except (*MALFORMED, MaillardError) as error:
        if len(events) > 1:  # apply them one by one, to find the one that fails
            for place in range(len(events)):
                state = apply_events(state, events[place : place + 1], source)
        if not events:
            raise InvalidLog(f"{source}: events", [], "the start of the experiment") from None
        which = f"{source}: event {events[0].number}"
        if isinstance(error, InvalidValue):
            raise InvalidLog(f"{which}: {error.field}", error.value, error.allowed) from None
        raise InvalidLog(which, events[0].kind, f"an event that can be applied ({error!r})") from None


def select_experiment(names: Sequence[str], experiment: str | None, source: str) -> str:
    """Return the requested experiment, or the only one."""
    if experiment is not None and experiment not in names:
        raise UnknownName("experiment", experiment, names)
    if experiment is None and len(names) != 1:
        if not names:
            raise InvalidValue("log", source, "a log with at least one experiment")
        allowed = "experiment= or --experiment, one of " + ", ".join(map(repr, names))
        raise InvalidValue("experiment", None, allowed)
    return experiment or names[0]
