"""Times as the log stores them (whole microseconds since 1970, in UTC), and durations."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from maillard.errors import InvalidValue

NOW = -1  # placeholder for the time of the transaction that writes the row
END_OF_TIME = 253_402_300_800_000_000  # the first microsecond of the year 10000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Duration = float | timedelta | str
"A number of seconds, a timedelta, or a number with a unit, such as '90s', '15m', '1h' or '2d'."
DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)? ?(s|m|min|h|d|w)$"
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def system_clock() -> int:
    """The current time in microseconds since 1970."""
    return time.time_ns() // 1000


def clock_of(clock: Callable[[], datetime | float]) -> Callable[[], int]:
    """A clock in microseconds since 1970, from one that returns an aware datetime or seconds since 1970."""
    if not callable(clock):
        raise InvalidValue("clock", clock, "a function without arguments that returns an aware datetime")
    to_microseconds("clock()", clock())  # report a clock that does not work before anything is written
    return lambda: to_microseconds("clock()", clock())


def from_microseconds(microseconds: int) -> datetime:
    """Convert microseconds since 1970 to an aware datetime."""
    return _EPOCH + microseconds * _MICROSECOND


def to_microseconds(field: str, value: datetime | float) -> int:
    """Convert an aware datetime, or seconds since 1970, to microseconds since 1970."""
    try:
        if isinstance(value, datetime):
            microseconds = (value - _EPOCH) // _MICROSECOND
        elif isinstance(value, int | float) and not isinstance(value, bool):
            microseconds = round(value * 1_000_000)
        else:
            microseconds = -1
    except (TypeError, ValueError, OverflowError):  # a naive datetime, nan, infinity
        microseconds = -1
    if not 0 <= microseconds < END_OF_TIME:
        allowed = "an aware datetime or seconds since 1970, in the years 1970 to 9999"
        raise InvalidValue(field, value, allowed)
    return microseconds


def to_seconds(field: str, value: object) -> float:
    """Convert a duration to seconds.

    >>> [to_seconds("window", each) for each in (90, "90s", "1.5h", timedelta(days=2))]
    [90.0, 90.0, 5400.0, 172800.0]
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) and (match := re.fullmatch(DURATION_PATTERN, value.strip())):
        unit = match[2]
        return float(value.strip().removesuffix(unit)) * _UNIT_SECONDS[unit]
    try:
        seconds = math.nan if isinstance(value, str | bytes | bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds):
        allowed = "seconds, or a number with a unit: s, m, h, d or w, as in '90s', '15m', '1h' or '2d'"
        raise InvalidValue(field, value, allowed)
    return seconds
