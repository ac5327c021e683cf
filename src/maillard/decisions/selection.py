"""Selecting decisions of a log by time, state, unit and epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.decision import Decision
from maillard.decisions.identifiers import check_name
from maillard.decisions.timestamps import to_microseconds
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns

Time = datetime | float
Names = str | Iterable[str] | None
Numbers = int | Iterable[int] | None


@dataclass(frozen=True)
class Selection:
    """A filter for decisions. Times are microseconds since 1970; `until` is exclusive. None: no limit.

    `from_state` and `to_state` are both included.
    """

    since: int | None = None
    until: int | None = None
    units: frozenset[str] | None = None
    epochs: frozenset[int] | None = None
    from_state: int | None = None
    to_state: int | None = None

    @classmethod
    def of(
        cls,
        since: Time | None,
        until: Time | None,
        unit: Names,
        epoch: Numbers,
        *,
        from_state: int | None = None,
        to_state: int | None = None,
    ) -> Selection:
        """Check the arguments of `read_log` and make the selection."""
        units = _as_set("unit", unit, str, "a name, or several")
        epochs = _as_set("epoch", epoch, int | np.integer, "a whole number >= 0, or several")
        for each in units or ():
            check_name("unit", each)
        for number in epochs or ():
            _check_whole("epoch", number)
        first = None if since is None else to_microseconds("since", since)
        end = None if until is None else to_microseconds("until", until)
        if first is not None and end is not None and first >= end:
            raise InvalidValue("until", until, f"a time after since, {since}")
        for name, state in (("from_state", from_state), ("to_state", to_state)):
            if state is not None:
                _check_whole(name, state)
        if from_state is not None and to_state is not None and from_state > to_state:
            raise InvalidValue("to_state", to_state, f"a state not before from_state, {from_state}")
        return cls(first, end, units, epochs, from_state, to_state)

    def to_json(self) -> dict[str, Any]:
        """Return the selection as JSON, for the metadata of a file."""
        made = vars(self)
        return {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in made.items()
            if value is not None
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Selection:
        """Return the selection that `to_json` wrote."""
        made: dict[str, Any] = {
            name: frozenset(given[name]) if name in ("units", "epochs") else given[name]
            for name in (field.name for field in fields(cls))
            if name in given
        }
        return cls(**made)

    @property
    def selects_all(self) -> bool:
        """Whether there is no restriction."""
        return self == Selection()

    def within(self, other: Selection) -> Selection:
        """Return the selection of the decisions that both select."""

        def limit(name: str, choose: Callable[[list[int]], int]) -> int | None:
            given = [value for each in (self, other) if (value := getattr(each, name)) is not None]
            return choose(given) if given else None

        units, epochs = self.units, self.epochs
        if units is None or other.units is None:
            units = other.units if units is None else units
        else:
            units &= other.units
        if epochs is None or other.epochs is None:
            epochs = other.epochs if epochs is None else epochs
        else:
            epochs &= other.epochs
        since, until = limit("since", max), limit("until", min)
        return Selection(since, until, units, epochs, limit("from_state", max), limit("to_state", min))

    def includes(self, decision: Decision) -> bool:
        """Whether a decision is selected."""
        return (
            (self.since is None or decision.time >= self.since)
            and (self.until is None or decision.time < self.until)
            and (self.units is None or decision.unit in self.units)
            and (self.epochs is None or decision.epoch in self.epochs)
            and (self.from_state is None or decision.state >= self.from_state)
            and (self.to_state is None or decision.state <= self.to_state)
        )

    def mask(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which of these decisions are selected."""
        chosen = np.ones(len(columns), np.bool_)
        if (self.since is not None or self.until is not None) and len(columns) and not columns.time.any():
            raise InvalidValue("since, until", "no times", "a log whose decisions have times")
        if self.since is not None:
            chosen &= columns.time >= self.since
        if self.until is not None:
            chosen &= columns.time < self.until
        if self.epochs is not None:
            chosen &= np.isin(columns.epoch, list(self.epochs))
        if self.from_state is not None:
            chosen &= columns.state >= self.from_state
        if self.to_state is not None:
            chosen &= columns.state <= self.to_state
        if self.units is not None:
            units = [None] * len(columns) if columns.unit is None else columns.unit
            chosen &= np.fromiter((each in self.units for each in units), np.bool_, len(columns))
        return chosen


def _check_whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InvalidValue(name, value, "a whole number >= 0")


def _as_set(name: str, given: Any, one: Any, allowed: str) -> frozenset[Any] | None:
    """Make a set of one value or of several."""
    if given is None:
        return None
    try:
        return frozenset([given] if isinstance(given, one) else given)
    except TypeError:
        raise InvalidValue(name, given, allowed) from None


def select_part(part: Callable[[], Iterable[Columns]], selection: Selection) -> Iterator[Columns]:
    """The selected decisions of a part of a log, as columns."""
    return (batch.filter(selection.mask(batch)) for batch in part())
