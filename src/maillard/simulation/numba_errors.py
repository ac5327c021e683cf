"""What numba cannot compile, and why."""

from __future__ import annotations

import dis
import re
from typing import Any

# Beginnings of the lines in a numba error that say what cannot be compiled.
_REASON = re.compile(
    r"^\s*((?:Untyped|Unknown|Unsupported|Use of|The use of|Cannot|Invalid use|.*not supported).*)$",
    re.MULTILINE,
)


def reason_of(error: Exception) -> str:
    """Return the line of a numba error that says what cannot be compiled, or its last line."""
    message = str(error).strip()
    if found := _REASON.search(message):
        return found[1]
    return message.splitlines()[-1] if message else type(error).__name__


def may_raise(function: Any) -> bool:
    """Return whether a function has a statement that raises an exception."""
    return any(
        step.opname in ("RAISE_VARARGS", "LOAD_ASSERTION_ERROR") for step in dis.get_instructions(function)
    )
