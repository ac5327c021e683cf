"""The service's structured log: one JSON object per line on standard error.

It never contains secrets, units or bodies.

Requests do not go through `logging`: a `QueueHandler` with its `QueueListener` costs 11 microseconds of CPU
time per request, this module 1.5. It encodes each line at once and gives a thread many lines at a time.
Everything else in the process uses `logging` as usual; `AccessLogHandler` writes those records in the same
format.
"""

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

_FLUSH_INTERVAL = 0.25  # seconds
_MAX_BATCH = 1 << 20  # bytes of lines that are written at once
_MAX_QUEUED = 16  # batches that wait for the writer thread
_CLOSE_TIMEOUT = 1.0  # seconds to write the last batches
_encode = msgspec.json.Encoder().encode


class RequestLine(msgspec.Struct):
    """The log line of a request. A struct is encoded in a fifth of the time of a dictionary."""

    time: float
    level: str
    event: str
    request_id: str
    operation: str
    status: int
    microseconds: int
    decision_id: str | list[str] | None
    "For a batch, the ids of all its decisions."
    key: str | None
    "The id of the caller's API key."
    experiment: str | None
    "The experiment in the path."
    peer: str | None
    "The address of the caller, or of its proxy."


class AccessLog:
    """Collects lines and writes them in a thread, so that no request waits for the reader of the log.

    If the reader is too slow, lines are dropped. The next line that is written says how many.
    """

    def __init__(self, stream: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._stream, self.quiet = stream or sys.stderr, quiet
        "Whether to leave out successful requests and other information."
        self._lines: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._dropped = 0
        self._batches: queue.Queue[bytes | None] = queue.Queue(_MAX_QUEUED)
        self._writer = threading.Thread(target=self._write_batches, name="access log", daemon=True)
        self._writer.start()

    def log_event(self, level: str, event: str, **fields: Any) -> None:
        """Add a line. Errors are flushed at once, because the process may be about to end."""
        if self.quiet and level == "info":
            return
        self._add(_encode({"time": round(time.time(), 6), "level": level, "event": event, **fields}))
        if level in ("error", "critical"):
            self.flush()

    def log_request(self, line: RequestLine) -> None:
        """Add the line of a request."""
        self._add(_encode(line))

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size > _MAX_BATCH:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(_FLUSH_INTERVAL, self.flush)
            except RuntimeError:  # this thread has no event loop
                self.flush()

    def flush(self) -> None:
        """Hand all collected lines to the writer thread."""
        lines, self._lines, self._size, self._timer = self._lines, [], 0, None
        if self._dropped and lines:
            lines.insert(0, _encode({"level": "warning", "event": "lines dropped", "count": self._dropped}))
        if lines:
            try:
                self._batches.put_nowait(b"\n".join(lines) + b"\n")
                self._dropped = 0
            except queue.Full:
                self._dropped += len(lines)

    def close(self) -> None:
        """Write all lines, unless the reader does not take them within a second."""
        self.flush()
        with suppress(queue.Full):
            self._batches.put_nowait(None)
            self._writer.join(_CLOSE_TIMEOUT)

    def _write_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            # Decisions go on if standard error is closed or missing.
            with suppress(OSError, ValueError, AttributeError):
                self._stream.write(batch.decode())
                self._stream.flush()


class AccessLogHandler(logging.Handler):
    """Writes the records of `logging` to the access log, with the traceback if there is one."""

    def __init__(self, access_log: AccessLog) -> None:
        super().__init__()
        self._access_log = access_log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        fields = {"message": record.getMessage(), "logger": record.name}
        if record.exc_info and record.exc_info[0]:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._access_log.log_event(record.levelname.lower(), "log", **fields)
