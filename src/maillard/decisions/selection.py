"""Selecting decisions of a log by time, unit and epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
    """A filter for decisions. Times are microseconds since 1970; `until` is exclusive. None: no limit."""

    since: int | None = None
    until: int | None = None
    units: frozenset[str] | None = None
    epochs: frozenset[int] | None = None

    @classmethod
    def of(cls, since: Time | None, until: Time | None, unit: Names, epoch: Numbers) -> Selection:
        """Check the arguments of `read_log` and make the selection."""
        units = _as_set("unit", unit, str, "a name, or several")
        epochs = _as_set("epoch", epoch, int | np.integer, "a whole number >= 0, or several")
        for each in units or ():
            check_name("unit", each)
        for number in epochs or ():
            if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
                raise InvalidValue("epoch", number, "a whole number >= 0")
        first = None if since is None else to_microseconds("since", since)
        end = None if until is None else to_microseconds("until", until)
        if first is not None and end is not None and first >= end:
            raise InvalidValue("until", until, f"a time after since, {since}")
        return cls(first, end, units, epochs)

    def to_json(self) -> dict[str, Any]:
        """Return the selection as JSON, for the metadata of a file."""
        made = {"since": self.since, "until": self.until, "units": self.units, "epochs": self.epochs}
        return {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in made.items()
            if value is not None
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Selection:
        """Return the selection that `to_json` wrote."""
        sets = {name: frozenset(given[name]) for name in ("units", "epochs") if name in given}
        return cls(given.get("since"), given.get("until"), **sets)

    @property
    def selects_all(self) -> bool:
        """Whether there is no restriction."""
        return self == Selection()

    def within(self, other: Selection) -> Selection:
        """Return the selection of the decisions that both select."""
        since = [each for each in (self.since, other.since) if each is not None]
        until = [each for each in (self.until, other.until) if each is not None]
        units, epochs = self.units, self.epochs
        if units is None or other.units is None:
            units = other.units if units is None else units
        else:
            units &= other.units
        if epochs is None or other.epochs is None:
            epochs = other.epochs if epochs is None else epochs
        else:
            epochs &= other.epochs
        return Selection(max(since, default=None), min(until, default=None), units, epochs)

    def includes(self, decision: Decision) -> bool:
        """Whether a decision is selected."""
        return (
            (self.since is None or decision.time >= self.since)
            and (self.until is None or decision.time < self.until)
            and (self.units is None or decision.unit in self.units)
            and (self.epochs is None or decision.epoch in self.epochs)
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
        if self.units is not None:
            units = [None] * len(columns) if columns.unit is None else columns.unit
            chosen &= np.fromiter((each in self.units for each in units), np.bool_, len(columns))
        return chosen


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
