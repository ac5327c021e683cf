"""One experiment's log, wherever it is kept: a store, a file, a frame."""

from __future__ import annotations

import copy
import heapq
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from maillard.decisions.columns import Columns, columns_of
from maillard.decisions.decision import Decision, RewardEvent
from maillard.decisions.events import (
    AdministrativeEvent,
    Configuration,
    Event,
    TallyUpdate,
    configurations,
)
from maillard.decisions.reward_rule import Reward
from maillard.decisions.selection import Chosen, Names, Numbers, Selection, Time
from maillard.decisions.state import State, replay
from maillard.decisions.stores.contract import Parked
from maillard.decisions.timestamps import system_clock
from maillard.errors import InvalidLog, InvalidValue, MaillardError, UnknownName

__all__ = [
    "DecisionLog",
    "Row",
    "apply_events",
    "select_experiment",
]

# What an event, or a law, of a log that was tampered with may raise.
MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError)


class Row(NamedTuple):
    """A decision and what became of it."""

    decision: Decision
    rewards: tuple[RewardEvent, ...]
    applied: tuple[TallyUpdate, ...]
    "The events that the rewards made."


class DecisionLog:
    """The log of one experiment, as `read_log` opens it.

    `events` are the changes of the experiment, its start first; `number` is that of its last event, changes and rewards alike.
    A `foreign` log is one without events: decisions with probabilities and rewards, from elsewhere or cut loose from the states
    that they were drawn from. It can be evaluated, and not be replayed.
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
        "Told now and then how many rows have been read."
        self._release = None if close is None else weakref.finalize(self, close)
        self.parts: tuple[Callable[[], Iterable[Columns]], ...] = ()
        "Whose columns, one after the other, are the log's."
        self.size: int | None = None
        "How many rows there are, if that is known without reading them."
        self.has_windows = False
        "Whether a foreign log says which windows had closed."
        self.arms_unordered = False
        "Whether the arms are in the order in which they were met, and no other."
        self.selection = Selection()
        self._whole: DecisionLog | None = None

    def __repr__(self) -> str:
        return f"<log of experiment {self.experiment!r}: {self.source}>"

    @property
    def foreign(self) -> bool:
        """Whether the log has no events, and so no states."""
        return not self.events

    def rows(self) -> Iterator[Row]:
        """Every decision with its rewards, ordered by state and id."""
        for number, row in enumerate(self._rows(), 1):
            if self.on_rows is not None and number % 1000 == 0:
                self.on_rows(number)
            yield row

    def supply(self, *parts: Callable[[], Iterable[Columns]], size: int | None = None) -> None:
        """Have `columns` from where they are cheaper than from rows: part after part, `size` rows in all."""
        self.parts, self.size = parts, size

    def columns(self) -> Iterator[Columns]:
        """The same as arrays, some thousand decisions at a time."""
        if not self.parts:
            yield from columns_of(self, self.rows())
            return
        read, last = 0, -1
        for some in itertools.chain.from_iterable(part() for part in self.parts):
            last = some.check_order(last, self.source)
            read += len(some)
            if self.on_rows is not None:
                self.on_rows(read)
            yield some

    def only(
        self,
        *,
        since: Time | None = None,
        until: Time | None = None,
        unit: Names = None,
        epoch: Numbers = None,
    ) -> DecisionLog:
        """The decisions from one time on and before another, of some units, of some epochs.

        What is left has its events still, and cannot be replayed: rows are missing.
        """
        chosen = Selection.of(since=since, until=until, unit=unit, epoch=epoch)
        if chosen.empty:
            return self
        part = copy.copy(self)
        part.selection, part._release = chosen, None
        part._rows = lambda: (row for row in self._rows() if chosen.has(row.decision))
        part.size = None
        part.parts = tuple(Chosen(each, chosen) for each in self.parts)
        part._whole = self  # and with it, what closes the store
        return part

    def history(self) -> Iterator[Event | Row]:
        """Events by their number, and each row between the events that its law knew of and those that came after."""
        self._check_whole()
        order = itertools.count()
        waiting: list[tuple[int, int, Event]] = [(event.number, next(order), event) for event in self.events]
        last = 0

        def until(number: int) -> Iterator[Event]:
            nonlocal last
            while last < number:
                if not waiting or waiting[0][0] != last + 1:
                    raise MaillardError(f"{self.source}: event {last + 1} is missing, or is there twice")
                last += 1
                yield heapq.heappop(waiting)[2]

        for row in self.rows():
            # What a decision teaches comes after its state: so by now every event up to here has been seen.
            yield from until(row.decision.state)
            yield row
            for event in row.applied:
                heapq.heappush(waiting, (event.number, next(order), event))
        yield from until(self.number)
        if waiting:
            raise MaillardError(f"{self.source}: event {waiting[0][0]} is not one of its {self.number}")

    def final_state(self) -> State:
        """The state after all events."""
        events = (each for each in self.history() if isinstance(each, Event))
        state: State | None = None
        while some := list(itertools.islice(events, 10_000)):
            state = apply_events(state, some, self.source)
        return replay([]) if state is None else state

    def reward_of(self, row: Row) -> float | None:
        """A decision's reward: what its events come to, or the default once its window has closed, settled yet or not."""
        if self.reward is None:
            return row.rewards[0].value if row.rewards else None
        for event in row.applied:
            if event.kind == "default":
                return event.value
        total = self.reward.total(row.rewards)
        return self.reward.default if total is None and self.is_closed(row.decision) else total

    @property
    def requires_closed_windows(self) -> bool:
        """Whether rewards are final only when their windows have closed."""
        return self.has_windows or (self.reward is not None and self.reward.window is not None)

    def final_reward_of(self, row: Row) -> float | None:
        """The same, and None as long as its window is open: what is yet to come may change it."""
        if self.reward is not None and self.requires_closed_windows and not self.is_closed(row.decision):
            return None
        return self.reward_of(row)

    def is_closed(self, decision: Decision) -> bool:
        """Whether the decision's window had closed when the log was opened, or exported."""
        closes = None if self.reward is None else self.reward.closes(decision.time)
        return closes is not None and closes <= self.as_of

    @cached_property
    def configurations(self) -> list[Configuration]:
        """The configuration after each administrative event."""
        return list(configurations(self.events))

    @property
    def sticky(self) -> bool:
        """Whether a unit keeps its arm."""
        return bool(self.events) and self.configurations[0].sticky

    @cached_property
    def reward(self) -> Reward | None:
        """The rules for rewards; None where the log is foreign."""
        return self.configurations[0].reward if self.events else None

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """Every arm there ever was."""
        names = dict.fromkeys(self._arms)
        for each in self.configurations:
            names.update(dict.fromkeys(each.arms))
        return tuple(names)

    @cached_property
    def policies(self) -> dict[int, str]:
        """The spec of each version of the policy."""
        return {each.policy_version: each.policy for each in self.configurations}

    def to_arrow(self) -> Any:
        """The table of decisions, as Arrow; docs/log-files.md defines its columns."""
        from maillard.decisions.files import arrow

        return arrow.table_of(self)

    def to_pandas(self) -> Any:
        """The table of decisions, as a pandas frame."""
        from maillard.decisions.files import arrow

        return arrow.pandas_of(self)

    def to_polars(self) -> Any:
        """The table of decisions, as a polars frame. It carries no events: opened again, it is a foreign log."""
        from maillard.decisions.files import arrow

        return arrow.polars_of(self)

    def close(self) -> None:
        """Let go of the store, where this log opened one."""
        if self._release is not None:
            self._release()
        if self._whole is not None:
            self._whole.close()

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_whole(self) -> None:
        if not self.selection.empty:
            raise MaillardError(
                f"{self.source}: only a part of this log is selected, and states need all of it"
            )
        if self.foreign:
            raise MaillardError(
                f"{self.source}: this log has decisions and rewards, and no events: there is no state to rebuild from it. "
                "It can be evaluated, and its means can warm_start an experiment"
            )


def apply_events(state: State | None, events: Sequence[Event], source: str) -> State:
    """The state after further events of a log that may be anybody's; None is that before the first."""
    try:
        return replay(events) if state is None else state.after(events)
    except (*MALFORMED, MaillardError) as error:
        if len(events) > 1:  # which of them?
            for place in range(len(events)):
                state = apply_events(state, events[place : place + 1], source)
        if not events:
            raise InvalidLog(f"{source}: events", [], "the start of the experiment") from None
        which = f"{source}: event {events[0].number}"
        if isinstance(error, InvalidValue):
            raise InvalidLog(f"{which}: {error.field}", error.value, error.allowed) from None
        raise InvalidLog(which, events[0].kind, f"an event that can be applied ({error!r})") from None


def select_experiment(names: Sequence[str], experiment: str | None, source: str) -> str:
    """The experiment that is asked for, or the only one."""
    if experiment is not None and experiment not in names:
        raise UnknownName("experiment", experiment, names)
    if experiment is None and len(names) != 1:
        allowed = (
            "experiment= or --experiment, one of " + ", ".join(map(repr, names))
            if names
            else f"one in {source}; it has none"
        )
        raise InvalidValue("experiment", None, allowed)
    return experiment or names[0]
