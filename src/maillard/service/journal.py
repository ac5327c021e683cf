"""The service's own log: one JSON object a line, on standard error. No secret, no unit, no body ever comes in here."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import IO, Any

import msgspec

__all__ = ["Journal", "Line", "LogLines"]

_EVERY = 0.25  # seconds
_MOST = 1 << 20  # bytes that wait to be written
_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct):
    """What is written of a request: a structure, for it is written in a fifth of the time of a dictionary."""

    time: float
    level: str
    event: str
    request_id: str
    operation: str
    status: int
    microseconds: int
    decision_id: str | list[str] | None
    "Of a batch, all of them."
    key: str | None
    "The id of the caller's key."


class Journal:
    """Lines that are written together, a few times a second: a line each would cost as much as a decision."""

    def __init__(self, stream: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._stream, self._quiet = stream or sys.stderr, quiet
        self._lines: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, level: str, event: str, **facts: Any) -> None:
        """Add a line."""
        if self._quiet and level == "info":
            return
        self._add(_encode({"time": round(time.time(), 6), "level": level, "event": event, **facts}))
        if level in ("error", "critical"):  # it may be the last one
            self.flush()

    def request(self, line: Line) -> None:
        """Add a line for a request."""
        self._add(_encode(line))

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size > _MOST:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(_EVERY, self.flush)
            except RuntimeError:  # before or after the service, or in a thread of its
                self.flush()

    @property
    def quiet(self) -> bool:
        """Whether requests that went well are left out."""
        return self._quiet

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines, self._size, self._timer = self._lines, [], 0, None
        if lines:
            try:
                self._stream.write(b"\n".join(lines).decode() + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads it any more; decisions go on
                pass


class LogLines(logging.Handler):
    """What Python's logging has to say, as lines of the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """One line, with the traceback if there is one."""
        facts = {"message": record.getMessage(), "logger": record.name}
        if record.exc_info and record.exc_info[0]:
            facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._journal.write(record.levelname.lower(), "log", **facts)
