"""One family of errors: each names the field, the value and what is allowed."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

__all__ = [
    "Archived",
    "Conflict",
    "InvalidValue",
    "MaillardError",
    "Paused",
    "Stale",
    "Unavailable",
    "UnknownName",
]


_SHOWN = 60  # names that a message lists
_COMPARED, _LONG = 200, 64  # names that one is compared with; characters of a name that is


class MaillardError(Exception):
    """Everything that this package raises on purpose derives from this."""


class InvalidValue(MaillardError, ValueError):
    """A value that is not allowed where it was given.

    >>> raise InvalidValue("sigma2", -1, "a finite number > 0")
    Traceback (most recent call last):
    maillard.errors.InvalidValue: sigma2: expected a finite number > 0, got -1
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field, self.value, self.allowed = field, value, allowed

    def __str__(self) -> str:
        return f"{self.field}: expected {self.allowed}, got {reprlib.repr(self.value)}"


class UnknownName(MaillardError, LookupError):
    """A name that nothing answers to, with the nearest ones that something does.

    >>> raise UnknownName("policy", "ms++", ["ms", "ms+", "ucb1"])
    Traceback (most recent call last):
    maillard.errors.UnknownName: policy: unknown name 'ms++'. Did you mean 'ms+'? Known: ms, ms+, ucb1
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(kind, str(name), tuple(map(str, known)))
        self.kind, self.name, self.known = kind, str(name), tuple(self.args[2])

    def __str__(self) -> str:
        # To compare takes time that grows with the square of a name's length.
        short = [name for name in self.known[:_COMPARED] if len(name) <= _LONG]
        near = difflib.get_close_matches(self.name, short, n=1, cutoff=0.5) if len(self.name) <= _LONG else []
        hint = f" Did you mean {near[0]!r}?" if near else ""
        some = [name if name.isprintable() else repr(name) for name in self.known[:_SHOWN]]
        more = f" and {len(self.known) - _SHOWN} more" if len(self.known) > _SHOWN else ""
        return f"{self.kind}: unknown name {self.name!r}.{hint} Known: {', '.join(some)}{more}"


class Conflict(MaillardError):
    """Something else is recorded under the same key."""


class Stale(Conflict):
    """It has changed since it was read."""


class Paused(MaillardError):
    """The experiment is paused: it takes rewards but makes no choices."""


class Archived(Paused):
    """The experiment is archived: it takes rewards, but makes no choices and no changes."""


class Unavailable(MaillardError):
    """The log cannot be reached or written now. Nothing was acknowledged; the call may be made again."""
