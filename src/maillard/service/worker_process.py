"""Runs long jobs in a worker process, so that decisions never wait for them.

An evaluation can take minutes of CPU time. In a thread it would compete with every decision for the
interpreter lock. `anyio.to_process` starts the worker when it is first needed, and kills it when a job takes
too long or its caller has disconnected. This module adds what anyio does not have: a bounded queue, a low
priority, errors without secrets, and a worker that ends with its parent and after idle time.
"""

from __future__ import annotations

import logging
import math
import os
import re
import reprlib
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import anyio.to_process

from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.service.service_errors import Busy, JobFailed, JobTimeout

_LOGGER = logging.getLogger(__name__)
_NICENESS = 10
_OOM_SCORE = "500"
_WATCH_INTERVAL = 0.5  # seconds between the worker's checks whether its parent lives and whether it has work
_PLAIN_TYPES = (str, int, float, bool, type(None))

_STOPPING = "the service is stopping"

Job = Callable[..., Any]


class _JobResult(NamedTuple):
    value: Any = None
    error: MaillardError | None = None
    traceback: str | None = None


class WorkerProcess:
    """Runs one job at a time in a worker process. A job is a module-level function.

    If the caller is cancelled, its job is killed together with the worker: nobody will read the result, and
    others wait. The next job then starts a new worker, which takes a second or two.

    Args:
        database: the first argument of every job.
        timeout: how many seconds a job may take; infinity: no limit.
        max_waiting: how many callers may wait.
        max_wait: how many seconds a caller waits for its turn; by default as long as a job may take.
        idle_timeout: seconds without a job after which the worker exits and frees its memory.

    """

    def __init__(
        self,
        database: str | Path,
        timeout: float = 120.0,
        max_waiting: int = 8,
        *,
        max_wait: float | None = None,
        idle_timeout: float = 300.0,
    ) -> None:
        self._database, self._max_waiting, self._idle_timeout = str(database), max_waiting, idle_timeout
        self.timeout, self._max_wait = timeout, max_wait
        self._limiter = anyio.CapacityLimiter(1)  # anyio's own one is shared with other worker processes
        self._turn = anyio.Lock()  # first come, first served
        self._callers = 0
        self._running: anyio.CancelScope | None = None
        self._closed = False

    async def run(self, job: Job, *arguments: Any) -> Any:
        """The value of `job(database, *arguments)`. Raises the `MaillardError` that the job raises."""
        if self._callers > self._max_waiting:
            raise Busy(f"{self._max_waiting} jobs are already waiting; try again later")
        self._callers += 1
        try:
            max_wait = self.timeout if self._max_wait is None else self._max_wait
            with anyio.move_on_after(max_wait) as waiting:
                await self._turn.acquire()
            if waiting.cancelled_caught:
                raise Busy(f"other jobs have taken more than {max_wait:g} seconds; try again later")
            try:
                result = await self._run_now(job, arguments)
            finally:
                self._turn.release()
        finally:
            self._callers -= 1
        if result.traceback is not None:
            _LOGGER.error("a job failed: %s", result.traceback)
        if result.error is not None:
            raise result.error
        return result.value

    async def close(self) -> None:
        """Kill the running job. Every caller gets `Busy`. The worker itself ends with the event loop."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
        async with self._turn:
            pass

    async def _run_now(self, job: Job, arguments: tuple[Any, ...]) -> _JobResult:
        if self._closed:
            raise Busy(_STOPPING)
        try:
            with anyio.move_on_after(self.timeout) as self._running:
                return await anyio.to_process.run_sync(
                    _run_job, self._database, self._idle_timeout, job, arguments,
                    cancellable=True, limiter=self._limiter,
                )  # fmt: skip
        except anyio.BrokenWorkerProcess:
            raise Busy("the worker process ended before the job was done; try again") from None
        finally:
            self._running = None
        if self._closed:
            raise Busy(_STOPPING)
        raise JobTimeout(
            f"the job took more than {self.timeout:g} seconds and was stopped; "
            "export the log to evaluate it without a time limit"
        )


# The rest runs in the worker.


class _Watchdog:
    """Ends the worker when its parent has died, or when it has had no job for a while."""

    def __init__(self, idle_timeout: float) -> None:
        self._idle_timeout, self._parent = idle_timeout, os.getppid()
        self.idle_since = math.inf
        "When the last job ended, by the monotonic clock; infinity while a job runs."
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while os.getppid() == self._parent:
            time.sleep(min(_WATCH_INTERVAL, self._idle_timeout))
            if time.monotonic() - self.idle_since > self._idle_timeout:
                break
        os._exit(1)


_watchdog: _Watchdog | None = None


def _run_job(database: str, idle_timeout: float, job: Job, arguments: tuple[Any, ...]) -> _JobResult:
    global _watchdog  # noqa: PLW0603  # one for each worker process
    if _watchdog is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        os.nice(_NICENESS)
        with suppress(OSError):  # Linux only: if memory runs out, this process is killed and not the service
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
        _watchdog = _Watchdog(idle_timeout)
    _watchdog.idle_since = math.inf
    try:
        return _JobResult(value=job(database, *arguments))
    except MaillardError as error:
        return _JobResult(error=_plain_error(error, database))
    except Exception as error:  # noqa: BLE001  # the caller always gets a result
        failed = JobFailed(f"the job failed: an unexpected {type(error).__name__}")
        return _JobResult(error=failed, traceback=without_secrets(traceback.format_exc(), database))
    finally:
        _watchdog.idle_since = time.monotonic()


def _plain_error(error: MaillardError, database: str) -> MaillardError:
    """The error as a type of `maillard.errors`, so that unpickling it imports no other module."""

    def clean(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(clean, value))
        value = value if type(value) in _PLAIN_TYPES else reprlib.repr(value)
        return without_secrets(value, database) if isinstance(value, str) else value

    error_type = next(cls for cls in type(error).__mro__ if cls.__module__ == MaillardError.__module__)
    structured = issubclass(error_type, (InvalidValue, UnknownName))
    plain: MaillardError = error_type(*map(clean, error.args if structured else [str(error)]))
    return plain


def without_secrets(text: str, database: str) -> str:
    """The text without the database's address or path, and without the passwords in it.

    >>> without_secrets("cannot open /data/shop.db", "/data/shop.db")
    'cannot open the log'
    >>> without_secrets("user 'me', password 'p@ss'", "postgresql://me:p%40ss@host/shop")
    "user 'me', password '***'"
    """
    names = [database] if "://" in database else [str(Path(database).absolute()), database]
    for name in names:
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "the log", text)
    for password in _passwords(database):
        text = text.replace(password, "***")
    return text


def _passwords(database: str) -> list[str]:
    """The passwords in a URL, both as they are written and decoded."""
    try:
        parts = urlsplit(database)
        written = [value for name, value in parse_qsl(parts.query) if "password" in name]
        written.append(parts.password or "")
    except ValueError:  # not a URL
        return []
    return sorted({*written, *map(unquote, written)} - {""}, key=len, reverse=True)
