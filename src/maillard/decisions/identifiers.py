"""Decision ids (UUIDs of version 7, which sort by time), and the rule for names and keys."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

from maillard.errors import InvalidValue

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_VARIANT_DIGIT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_MAX_NAME_LENGTH = 512  # PostgreSQL indexes keys of at most 2,700 bytes


def new_ids(
    count: int, now: int | None = None, random_bytes: Callable[[int], bytes] = os.urandom
) -> list[str]:
    """Return new ids in ascending order: 48 bits of milliseconds, 12 bits of their fraction, 62 random bits.

    `now` is in microseconds since 1970, by default the system's time. By default, the random bits come from
    the operating system, so forked processes do not share them.

    >>> len(set(new_ids(1000)))
    1000
    """
    milliseconds, rest = divmod(time.time_ns() if now is None else 1000 * now, 1_000_000)
    time_part = f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7{(rest << 12) // 1_000_000:03x}-"
    random = random_bytes(8 * count).hex()
    ids = [
        f"{time_part}{_VARIANT_DIGIT[random[i]]}{random[i + 1 : i + 4]}-{random[i + 4 : i + 16]}"
        for i in range(0, 16 * count, 16)
    ]
    ids.sort()
    return ids


def check_id(value: object, field: str = "decision") -> str:
    """Return the id in lower case, as it is stored, or raise InvalidValue."""
    if isinstance(value, str) and _UUID7.fullmatch(lowered := value.lower()):
        return lowered
    raise InvalidValue(field, value, "the id of a decision (a UUID of version 7)")


def id_of_decision(decision: object, field: str = "decision") -> str:
    """Return the id of a decision, given the decision or its id."""
    return check_id(getattr(decision, "id", decision), field)


def creation_time(identifier: str) -> int:
    """The time at which an id was created, in microseconds since 1970."""
    return int(identifier[:8] + identifier[9:13], 16) * 1000


def check_name(field: str, value: object) -> str:
    """Return a name or key if every store can hold it, or raise InvalidValue."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME_LENGTH or "\0" in value:
        raise InvalidValue(field, value, f"a string of 1 to {_MAX_NAME_LENGTH} characters without NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(field, value, "a string that can be encoded as UTF-8") from None
    return value
