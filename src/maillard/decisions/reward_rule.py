"""The reward rule: the range of a reward, its window, and how several rewards of one decision combine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from maillard.decisions.decision import RewardEvent
from maillard.errors import InvalidValue

# The sum of 2**53 rewards of this size is still a finite float.
_LARGEST = 1e290


def _occurrence(row: RewardEvent) -> tuple[int, str]:
    return row.at, row.event


# Ordered by occurrence, not by arrival, so that the order of arrival does not matter.
_COMBINE: dict[str, Callable[[Sequence[RewardEvent]], float]] = {
    "first": lambda rows: min(rows, key=_occurrence).value,
    "last": lambda rows: max(rows, key=_occurrence).value,
    "sum": lambda rows: math.fsum(row.value for row in rows),
    "max": lambda rows: max(row.value for row in rows),
}


@dataclass(frozen=True, kw_only=True)
class Reward:
    """The reward rule of an experiment.

    `low` and `high` bound a reward. With both, policies that need `sigma2` get it from the range. `window`
    (seconds or a timedelta) is how long after its decision a reward may arrive; later rewards are logged
    but not applied. `default` is the reward of a decision whose window closes without one. `combine`
    defines the reward of a decision with several reward events: the first or last by occurrence, their sum
    (clipped to the bounds) or their maximum. With `mature_only`, a reward is applied only when its window
    closes, so that fast successes do not bias the tally against slow failures.

    >>> Reward(low=0, high=1, window=3600, default=0)
    Reward(low=0.0, high=1.0, window=3600.0, default=0.0, combine='first', mature_only=False)
    """

    low: float | None = None
    high: float | None = None
    window: float | None = None
    default: float | None = None
    combine: str = "first"
    mature_only: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.window, timedelta):
            object.__setattr__(self, "window", self.window.total_seconds())
        for name in ("low", "high", "window", "default"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _number(f"reward: {name}", getattr(self, name)))
        low, high = self.bounds
        if not -_LARGEST <= low < high <= _LARGEST:
            allowed = f"low < high, both within {_LARGEST:g}"
            raise InvalidValue("reward: (low, high)", (self.low, self.high), allowed)
        if self.window is not None and not 1e-6 <= self.window <= 1e9:
            raise InvalidValue("reward: window", self.window, "seconds, from 1e-6 to 1e9")
        if not isinstance(self.combine, str) or self.combine not in _COMBINE:
            raise InvalidValue("reward: combine", self.combine, "one of " + ", ".join(_COMBINE))
        if self.combine == "sum" and not low <= 0 <= high:
            allowed = "a range that contains 0, because combine is 'sum'"
            raise InvalidValue("reward: (low, high)", (self.low, self.high), allowed)
        if not isinstance(self.mature_only, bool):
            raise InvalidValue("reward: mature_only", self.mature_only, "true or false")
        if self.window is None and (self.default is not None or self.mature_only):
            raise InvalidValue("reward: window", None, "a window, because default or mature_only is set")
        if self.default is not None and not low <= self.default <= high:
            raise InvalidValue("reward: default", self.default, f"a number from {low:g} to {high:g}")

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest possible reward."""
        low = -_LARGEST if self.low is None else self.low
        return low, _LARGEST if self.high is None else self.high

    @property
    def range(self) -> tuple[float, float] | None:
        """Both bounds, if both are given."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def settles(self) -> bool:
        """Whether closing a window has an effect."""
        return self.default is not None or self.mature_only

    def closes(self, time: int) -> int | None:
        """The time in microseconds at which the window of a decision made at `time` closes, or None."""
        return None if self.window is None else time + round(self.window * 1_000_000)

    def check(self, value: object, field: str = "value") -> float:
        """Return a reward as it is stored, or raise InvalidValue."""
        low, high = self.bounds
        number = _number(field, value)
        if not low <= number <= high:
            raise InvalidValue(field, value, f"a number from {low:g} to {high:g}")
        return number

    def total(self, rows: Sequence[RewardEvent]) -> float | None:
        """The reward of a decision with these reward events, without late ones; None if there are none."""
        timely = [row for row in rows if not row.late]
        if not timely:
            return None
        low, high = self.bounds
        return min(max(_COMBINE[self.combine](timely), low), high)


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValue(name, value, "a finite number")
    return number + 0.0  # turns -0.0 into 0.0
