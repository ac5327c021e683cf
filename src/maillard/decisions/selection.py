"""Which decisions of a log are meant: by time, by unit, by epoch."""

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

__all__ = ["Chosen", "Names", "Numbers", "Selection", "Time"]

Time = datetime | float
Names = str | Iterable[str] | None
Numbers = int | Iterable[int] | None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """From `since` on and before `until`, in microseconds since 1970; None is no limit."""

    since: int | None = None
    until: int | None = None
    units: frozenset[str] | None = None
    epochs: frozenset[int] | None = None

    @classmethod
    def of(
        cls,
        *,
        since: Time | None = None,
        until: Time | None = None,
        unit: Names = None,
        epoch: Numbers = None,
    ) -> Selection:
        """What a caller asks for, checked."""
        units = _several("unit", unit, str, "a name, or several")
        epochs = _several("epoch", epoch, int | np.integer, "a whole number >= 0, or several")
        for each in units or ():
            check_name("unit", each)
        for number in epochs or ():
            if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
                raise InvalidValue("epoch", number, "a whole number >= 0")
        made = cls(
            since=None if since is None else to_microseconds("since", since),
            until=None if until is None else to_microseconds("until", until),
            units=units,
            epochs=epochs,
        )
        if made.since is not None and made.until is not None and made.since >= made.until:
            raise InvalidValue("until", until, f"a time after since, {since}")
        return made

    @property
    def empty(self) -> bool:
        """Whether every decision is meant."""
        return self == Selection()

    def has(self, decision: Decision) -> bool:
        """Whether a decision is meant."""
        return (
            (self.since is None or decision.time >= self.since)
            and (self.until is None or decision.time < self.until)
            and (self.units is None or decision.unit in self.units)
            and (self.epochs is None or decision.epoch in self.epochs)
        )

    def mask(self, some: Columns) -> NDArray[np.bool_]:
        """Which of these decisions are meant."""
        chosen = np.ones(len(some), np.bool_)
        if (self.since is not None or self.until is not None) and len(some) and not some.time.any():
            raise InvalidValue("since, until", "no times", "a log that has a time for its decisions")
        if self.since is not None:
            chosen &= some.time >= self.since
        if self.until is not None:
            chosen &= some.time < self.until
        if self.epochs is not None:
            chosen &= np.isin(some.epoch, list(self.epochs))
        if self.units is not None:
            units = [None] * len(some) if some.unit is None else some.unit
            chosen &= np.fromiter((each in self.units for each in units), np.bool_, len(some))
        return chosen


def _several(name: str, given: Any, one: Any, allowed: str) -> frozenset[Any] | None:
    """One of something, or several."""
    if given is None:
        return None
    try:
        return frozenset([given] if isinstance(given, one) else given)
    except TypeError:
        raise InvalidValue(name, given, allowed) from None


@dataclass(frozen=True)
class Chosen:
    """A part of a log's columns, less the decisions that are not meant; it travels to other processes if the part does."""

    part: Callable[[], Iterable[Columns]]
    selection: Selection

    def __call__(self) -> Iterator[Columns]:
        return (some.filter(self.selection.mask(some)) for some in self.part())
