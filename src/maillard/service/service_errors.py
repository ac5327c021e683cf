"""Exceptions that only the service raises."""

from __future__ import annotations

from maillard.errors import MaillardError, Unavailable, UnknownName


class NotFound(UnknownName):
    """There is no experiment or decision with this name or id. The message does not list those that exist."""

    code = "not_found"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name, ())

    def __str__(self) -> str:
        return f"there is no {self.kind} {self.name!r:.100}"


class ExperimentExists(MaillardError):
    """An experiment with this name already exists."""

    code = "exists"


class Busy(Unavailable):
    """The service is overloaded or stopping. Callers may read its message, unlike other `Unavailable`."""


class JobTimeout(Busy):
    """A job took too long and was stopped. It would take as long again."""

    code = "too_long"


class JobFailed(MaillardError):
    """A job raised an unexpected exception. The service's log has the traceback."""
