"""Decision ids: UUIDs of version 7, which sort by time."""

from __future__ import annotations

import os
import re
import time

from maillard.errors import InvalidValue

__all__ = ["check_id", "made_at", "new_ids"]

_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_ids(count: int) -> list[str]:
    """New ids, in ascending order: 48 bits of milliseconds, 12 of their fraction, 62 that are random.

    The random part comes from the operating system, so forked processes do not share it.

    >>> len(set(new_ids(1000)))
    1000
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    time_part = f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7{(rest << 12) // 1_000_000:03x}-"
    random = os.urandom(8 * count).hex()
    ids = [
        f"{time_part}{_VARIANT[random[i]]}{random[i + 1 : i + 4]}-{random[i + 4 : i + 16]}"
        for i in range(0, 16 * count, 16)
    ]
    ids.sort()
    return ids


def check_id(value: object, field: str = "decision_id") -> str:
    """The id as it is stored, or an error."""
    if isinstance(value, str) and _FORM.fullmatch(lowered := value.lower()):
        return lowered
    raise InvalidValue(field, value, "the id of a decision (a UUID of version 7)")


def made_at(identifier: str) -> int:
    """When the id was made, in microseconds since 1970."""
    return int(identifier[:8] + identifier[9:13], 16) * 1000
