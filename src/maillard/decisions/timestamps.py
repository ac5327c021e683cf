"""Times as the log stores them: whole microseconds since 1970, in UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from maillard.errors import InvalidValue

NOW = -1  # placeholder for the time of the transaction that writes the row
END_OF_TIME = 253_402_300_800_000_000  # the first microsecond of the year 10000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def system_clock() -> int:
    """The current time in microseconds since 1970."""
    return time.time_ns() // 1000


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
