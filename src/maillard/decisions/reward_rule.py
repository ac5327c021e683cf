"""The reward rule: the range of a reward, its window, and how several rewards of one decision combine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from maillard.decisions.decision import RewardEvent
from maillard.decisions.timestamps import Duration, to_seconds
from maillard.errors import InvalidValue
from maillard.short_reprs import dataclass_repr

if TYPE_CHECKING:
    from maillard.array_types import Floats, Ints

# The sum of 2**53 rewards of this size is still a finite float.
_LARGEST = 1e290


def _occurrence(row: RewardEvent) -> tuple[int, str]:
    return row.at, row.event


class _Combination(NamedTuple):
    """How the reward events of a decision combine."""

    of_one: Callable[[Sequence[RewardEvent]], float]
    of_many: Callable[[Any, Floats, Ints], Floats]
    """The same for many decisions. The arguments are NumPy, which the client does not need, the values of all
    events, sorted by decision and occurrence, and the index of the first event of each decision."""


# Ordered by occurrence, not by arrival, so that the order of arrival does not matter.
_COMBINE = {
    "first": _Combination(
        lambda rows: min(rows, key=_occurrence).value,
        lambda _, values, first: values[first],
    ),
    "last": _Combination(
        lambda rows: max(rows, key=_occurrence).value,
        lambda np, values, first: values[np.append(first[1:], values.size) - 1],
    ),
    "sum": _Combination(
        lambda rows: math.fsum(row.value for row in rows),
        lambda np, values, first: np.add.reduceat(values, first),
    ),
    "max": _Combination(
        lambda rows: max(row.value for row in rows),
        lambda np, values, first: np.maximum.reduceat(values, first),
    ),
}


Combine = Literal["first", "last", "sum", "max"]
Learn = Literal["on_close", "provisional", "on_arrival"]


@dataclass(frozen=True, kw_only=True, init=False)
class Reward:
    """The reward rule of an experiment.

    `low` and `high` bound a reward. With both, policies that need `sigma2` get it from the range. `window`
    is how long after its decision a reward may arrive: seconds, a timedelta, or a string such as "90s",
    "1h" or "2d". Later rewards are logged but not applied. `default` is the reward of a decision whose
    window closes without one. `combine` defines the reward of a decision with several reward events: the
    first or last by occurrence, their sum (clipped to the bounds) or their maximum. With `binary`, a reward
    is 0 or 1 and nothing else, which some policies require.

    `learn` defines when a decision counts in the tally:

    - "on_close": when its window closes, with its final reward or the default. This is the default if both
      `window` and `default` are given.
    - "provisional": at once, with the default, which is revised when a reward arrives. The policy learns
      sooner, but from means that are biased toward the default for recent decisions.
    - "on_arrival": when a reward arrives. This is right if every decision gets a reward. If only successes
      are reported, the means are too high until the windows close.

    >>> Reward(low=0, high=1, window="1h", default=0)
    Reward(low=0.0, high=1.0, window=3600.0, default=0.0, combine='first', learn='on_close', binary=False)
    """

    low: float | None
    high: float | None
    window: float | None
    "In seconds."
    default: float | None
    combine: Combine
    learn: Learn
    binary: bool = False

    __repr__ = dataclass_repr

    def __init__(
        self,
        *,
        low: float | None = None,
        high: float | None = None,
        window: Duration | None = None,
        default: float | None = None,
        combine: Combine = "first",
        learn: Learn | None = None,
        binary: bool = False,
    ) -> None:
        for name, value in (("low", low), ("high", high), ("default", default)):
            object.__setattr__(self, name, None if value is None else _number(f"reward: {name}", value))
        seconds = None if window is None else to_seconds("reward: window", window)
        if learn is None:
            learn = "on_arrival" if window is None or default is None else "on_close"
        object.__setattr__(self, "window", seconds)
        object.__setattr__(self, "combine", combine)
        object.__setattr__(self, "learn", learn)
        object.__setattr__(self, "binary", binary)
        self._check_range()
        self._check_times()

    @classmethod
    def clicks(cls, window: Duration, *, learn: Learn | None = None) -> Reward:
        """The rule for clicks: 1 if a click arrives within the window, else 0.

        >>> Reward.clicks(window="30m")
        Reward(low=0.0, high=1.0, window=1800.0, default=0.0, combine='first', learn='on_close', binary=True)
        """
        return cls(low=0, high=1, window=window, default=0, learn=learn, binary=True)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Reward:
        """The rule with these fields, as a log stores them.

        Logs of earlier versions have `mature_only` in place of `learn`.
        """
        given = dict(fields)
        if isinstance(mature := given.get("mature_only"), bool):
            given["learn"] = "on_close" if mature else "on_arrival"
            del given["mature_only"]
        return cls(**given)

    def _check_range(self) -> None:
        low, high = self.bounds
        if not -_LARGEST <= low < high <= _LARGEST:
            allowed = f"low < high, both within {_LARGEST:g}"
            raise InvalidValue("reward: (low, high)", (self.low, self.high), allowed)
        if not isinstance(self.combine, str) or self.combine not in _COMBINE:
            raise InvalidValue("reward: combine", self.combine, "one of " + ", ".join(_COMBINE))
        if self.combine == "sum" and not low <= 0 <= high:
            allowed = "a range that contains 0, because combine is 'sum'"
            raise InvalidValue("reward: (low, high)", (self.low, self.high), allowed)
        if self.default is not None and not low <= self.default <= high:
            raise InvalidValue("reward: default", self.default, f"a number from {low:g} to {high:g}")
        if not isinstance(self.binary, bool) or (self.binary and not self.is_binary):
            allowed = "true or false; true needs low=0 and high=1"
            raise InvalidValue("reward: binary", self.binary, allowed)
        if self.binary and self.default not in (None, 0.0, 1.0):
            raise InvalidValue("reward: default", self.default, "0 or 1, because binary is true")

    def _check_times(self) -> None:
        if self.window is not None and not 1e-6 <= self.window <= 1e9:
            raise InvalidValue("reward: window", self.window, "a duration from 1e-6 to 1e9 seconds")
        if self.learn not in get_args(Learn):
            raise InvalidValue("reward: learn", self.learn, "one of " + ", ".join(get_args(Learn)))
        if self.learn == "provisional" and self.default is None:
            allowed = "a number that a decision counts with until its reward arrives (learn is 'provisional')"
            raise InvalidValue("reward: default", None, allowed)
        if self.window is None and (self.default is not None or self.learn != "on_arrival"):
            reason = "default is set" if self.default is not None else f"learn is {self.learn!r}"
            raise InvalidValue("reward: window", None, f"a duration such as '1h', because {reason}")

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
        """Whether every decision counts at the latest when its window closes."""
        return self.default is not None or self.learn == "on_close"

    @property
    def is_ordered(self) -> bool:
        """Whether the reward of a decision depends on the order of its reward events."""
        return self.combine in ("first", "last")

    @property
    def is_binary(self) -> bool:
        """Whether the range is 0 to 1, as for clicks."""
        return self.range == (0.0, 1.0)

    def closes(self, time: int) -> int | None:
        """The time in microseconds at which the window of a decision made at `time` closes, or None.

        >>> Reward.clicks(window="1h").closes(0)
        3600000000
        """
        return None if self.window is None else time + round(self.window * 1_000_000)

    def check(self, value: object, field: str = "value") -> float:
        """Return a reward as it is stored, or raise InvalidValue.

        >>> Reward(low=0, high=1).check(True)
        1.0
        >>> Reward(low=0, high=1).check(2)
        Traceback (most recent call last):
        maillard.errors.InvalidValue: value: expected a number from 0 to 1, got 2
        """
        low, high = self.bounds
        number = _number(field, value)
        if not low <= number <= high:
            raise InvalidValue(field, value, f"a number from {low:g} to {high:g}")
        if self.binary and number not in (0.0, 1.0):
            raise InvalidValue(field, value, "0 or 1, because the reward rule is binary")
        return number

    def total(self, rows: Sequence[RewardEvent]) -> float | None:
        """The reward of a decision with these reward events, without late ones; None if there are none.

        >>> rows = [RewardEvent("id", event, 1.0, at=0, arrived=0) for event in ("click", "order")]
        >>> Reward(combine="sum").total(rows), Reward(combine="first").total(rows)
        (2.0, 1.0)
        """
        timely = [row for row in rows if not row.late]
        return self._combined(timely) if timely else None

    def total_with_late(self, rows: Sequence[RewardEvent]) -> float | None:
        """The reward of a decision if its late reward events counted, too; None if none is late."""
        return self._combined(rows) if any(row.late for row in rows) else None

    def _combined(self, rows: Sequence[RewardEvent]) -> float:
        low, high = self.bounds
        return min(max(_COMBINE[self.combine].of_one(rows), low), high)

    def totals(self, values: Floats, first: Ints) -> Floats:
        """The rewards of many decisions, each with at least one reward event, all of which count.

        `values` are those of all events, sorted by decision, and then by time and name of the event. `first`
        has the index of the first event of each decision.
        """
        import numpy as np

        return np.clip(_COMBINE[self.combine].of_many(np, values, first), *self.bounds)


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValue(name, value, "a finite number")
    return number + 0.0  # turns -0.0 into 0.0
