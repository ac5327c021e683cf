"""What the log holds: decisions, rewards, and the events that change state. Rows are immutable."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from maillard.errors import InvalidValue

__all__ = [
    "ADMINISTRATIVE",
    "END_OF_TIME",
    "NOW",
    "SLACK",
    "Decision",
    "Event",
    "Observation",
    "from_microseconds",
    "system_clock",
    "text",
    "to_microseconds",
]

Kind = Literal[
    "start", "add_arm", "retire_arm", "policy", "pause", "resume", "archive", "reset", "warm_start", "restore", "erase_unit",
    "reward", "revision", "default",
]  # fmt: skip
# Events other than those that rewards make.
ADMINISTRATIVE = frozenset(Kind.__args__) - {"reward", "revision", "default"}  # type: ignore[attr-defined]

NOW = -1  # in the place of a time: when the transaction is
END_OF_TIME = 253_402_300_800_000_000  # microseconds from 1970 to the year 10000
SLACK = 1e-9  # how far rounding may lift the logarithm of a probability above 0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST = 512  # PostgreSQL indexes keys of at most 2,700 bytes


class Decision(NamedTuple):
    """One choice, the law that it was drawn from, and the state that the law came from."""

    id: str
    "UUID, version 7."
    experiment: str
    time: int
    "Microseconds since 1970, by the store's clock."
    unit: str | None
    "Whom or what the choice was for."
    arm: str
    eligible: tuple[str, ...]
    "The arms that could have been drawn."
    log_probabilities: tuple[float, ...]
    "Of each eligible arm: the law that was drawn from."
    log_probability: float
    "Of the arm that was drawn."
    policy_version: int
    formula_version: int
    state: int
    "The number of the last event that the law knew of."
    epoch: int
    cold: bool
    "Whether the arm had no observed reward in that state."
    idempotency_key: str | None = None
    position: int = 0
    "Place within a batch."
    origin: str | None = None
    "The decision that drew the arm, where this one repeats it (sticky assignment)."

    @property
    def probability(self) -> float:
        """Of the arm that was drawn."""
        return math.exp(self.log_probability)

    @property
    def probabilities(self) -> dict[str, float]:
        """Of each eligible arm."""
        return {arm: math.exp(log) for arm, log in zip(self.eligible, self.log_probabilities, strict=True)}

    @property
    def at(self) -> datetime:
        """`time` as a datetime."""
        return from_microseconds(self.time)


class Observation(NamedTuple):
    """One reward event of one decision, as it arrived."""

    decision: str
    event: str
    value: float
    at: int
    "When it occurred, in microseconds since 1970."
    arrived: int
    "When it reached the store, by the store's clock."
    late: bool = False
    "Whether the window had closed by then: logged, not learned."


class Event(NamedTuple):
    """A change of state: number n turns the state after n - 1 events into the state after n."""

    number: int
    kind: Kind
    time: int
    decision: str | None = None
    arm: str | None = None
    value: float | None = None
    "What the decision's reward is from now on."
    previous: float | None = None
    "What it was before (revisions)."
    payload: Mapping[str, Any] = MappingProxyType({})
    "What an administrative event changes."


def system_clock() -> int:
    """Microseconds since 1970."""
    return clock.time_ns() // 1000


def from_microseconds(time: int) -> datetime:
    """Microseconds since 1970 as an aware datetime."""
    return _EPOCH + time * _MICROSECOND


def to_microseconds(name: str, value: datetime | float) -> int:
    """A time as the log stores it, from an aware datetime or seconds since 1970."""
    allowed = "an aware datetime, or seconds since 1970, within the years 1970 to 9999"
    try:
        if isinstance(value, datetime):
            microseconds = (value - _EPOCH) // _MICROSECOND
        elif isinstance(value, int | float) and not isinstance(value, bool):
            microseconds = round(value * 1_000_000)
        else:
            microseconds = NOW
    except (TypeError, ValueError, OverflowError):  # naive, nan, beyond floats
        microseconds = NOW
    if not 0 <= microseconds < END_OF_TIME:
        raise InvalidValue(name, value, allowed)
    return microseconds


def text(name: str, value: object) -> str:
    """A name or key that every store can hold."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or "\0" in value:
        raise InvalidValue(name, value, f"a string of 1 to {_LONGEST} characters, none of them NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(name, value, "a string that UTF-8 can encode") from None
    return value
