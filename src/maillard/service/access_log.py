"""The service's own log: one JSON object a line, on standard error. No secret, no unit, no body ever comes in here."""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any

import msgspec

__all__ = ["Journal", "Line", "LogLines"]

_EVERY = 0.25  # seconds
_MOST = 1 << 20  # bytes that are written at once
_MOST_WAITING = 16  # times as many that wait for a reader
_PATIENCE = 1.0  # seconds
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
    """Lines that are written together, a few times a second, by a thread: nobody waits for whoever reads them.

    A line each would cost as much as a decision. Where they are not read, lines are dropped, and how many is the next line.
    """

    def __init__(self, stream: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._stream, self.quiet = stream or sys.stderr, quiet
        "Whether requests that went well are left out."
        self._lines: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = 0
        self._written: queue.Queue[bytes | None] = queue.Queue(_MOST_WAITING)
        self._writer = threading.Thread(target=self._work, name="journal", daemon=True)
        self._writer.start()

    def write(self, level: str, event: str, **facts: Any) -> None:
        """Add a line."""
        if self.quiet and level == "info":
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

    def flush(self) -> None:
        """Have written what waits."""
        lines, self._lines, self._size, self._timer = self._lines, [], 0, None
        if self._dropped and lines:
            lines.insert(0, _encode({"level": "warning", "event": "lines dropped", "count": self._dropped}))
        if lines:
            try:
                self._written.put_nowait(b"\n".join(lines) + b"\n")
                self._dropped = 0
            except queue.Full:
                self._dropped += len(lines)

    def close(self) -> None:
        """Write what waits, if somebody reads it."""
        self.flush()
        with suppress(queue.Full):
            self._written.put_nowait(None)
            self._writer.join(_PATIENCE)

    def _work(self) -> None:
        while (some := self._written.get()) is not None:
            with suppress(
                OSError, ValueError, AttributeError
            ):  # it is closed, or there is none; decisions go on
                self._stream.write(some.decode())
                self._stream.flush()


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
