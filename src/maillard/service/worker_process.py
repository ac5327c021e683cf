"""A child process for questions that take their time, so that decisions never wait for one.

An evaluation is minutes of arithmetic in an interpreter whose lock all threads share: in a thread it would slow every decision. So
there is one child: spawned when it is first needed, niced, one job at a time. A job that takes too long is killed with its child, and
the next one gets another. The child ends with its parent, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import pickle
import re
import reprlib
import signal
import socket
import struct
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, unquote, urlsplit

from maillard.errors import InvalidValue, MaillardError, Unavailable, UnknownName

__all__ = ["JobFailed", "JobTimeout", "WorkerProcess", "without_secrets"]

_JOURNAL = logging.getLogger(__name__)
_SPAWN = multiprocessing.get_context("spawn")
_LENGTH = struct.Struct("!Q")  # of what comes after it, in bytes
_NICE = 10
_OFTEN = 0.02  # seconds between looks at whether a child that was killed has ended
_PATIENCE = 5.0  # seconds after which nobody looks any more: the system will end it when it can
_PIECE = 1 << 18  # bytes to receive at once
_PLAIN = (str, int, float, bool, type(None))

_CLOSED = "the service is ending"

Job = Callable[..., Any]


class JobTimeout(Unavailable):
    """A question that would take as long again."""


class JobFailed(MaillardError):
    """A job raised what nobody expected. The journal has the traceback."""


class WorkerProcess:
    """Calls functions in a child process, each with the database and the arguments that are given.

    `timeout` is how many seconds a job may take, and how many a caller waits for its turn; `waiting` is how many callers may wait. After `idle`
    seconds without a job the child is let go, with its memory. Whoever is refused, or waited in vain, gets `Unavailable`.

    A caller that is cancelled takes its job with it, by the child's death: nobody will read the answer, and others wait for their turn. That
    costs the next one a new child, a second or two; to let the job go on could cost everybody the whole `timeout`.
    """

    def __init__(
        self, database: str | Path, timeout: float = 120.0, waiting: int = 8, *, idle: float = 300.0
    ) -> None:
        self._database, self._most, self._idle = str(database), waiting, idle
        self.timeout = timeout
        self._turn = asyncio.Lock()  # who waits for it is served in order
        self._callers = 0
        self._child: _Child | None = None
        self._ending: list[_Child] = []
        self._rest: asyncio.TimerHandle | None = None
        self._closed = False

    async def run(self, function: Job, *arguments: Any) -> Any:
        """What `function(database, *arguments)` returns, or the `MaillardError` that it raises. The function is a module's, by its name."""
        if self._callers > self._most:
            raise Unavailable(f"{self._most} questions are waiting already; ask again in a while")
        job = _framed((function, arguments))
        self._callers += 1
        try:
            async with self._own_turn():
                good, answer, told = await self._asked(job)
        finally:
            self._callers -= 1
        if told is not None:
            _JOURNAL.error("a question failed: %s", told)
        if not good:
            raise answer
        return answer

    async def close(self) -> None:
        """End the child. Whoever waits for an answer gets `Unavailable`."""
        self._closed = True
        self._let_go()
        while not all(child.buried for child in self._ending):
            await asyncio.sleep(_OFTEN)

    @asynccontextmanager
    async def _own_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.timeout):
                await self._turn.acquire()
        except TimeoutError:
            raise Unavailable(
                f"other questions have taken more than {self.timeout:g} seconds; ask again in a while"
            ) from None
        try:
            yield
        finally:
            self._turn.release()

    async def _asked(self, job: bytes) -> Any:
        try:
            async with asyncio.timeout(self.timeout):
                answer = await self._working().ask(job)
        except TimeoutError:
            self._let_go()
            raise JobTimeout(
                f"the question took more than {self.timeout:g} seconds and was given up; an exported log can be asked at leisure"
            ) from None
        except (EOFError, OSError):
            self._let_go()
            raise Unavailable(
                _CLOSED
                if self._closed
                else "the process that answers questions ended before it had answered; the question may be asked again"
            ) from None
        except BaseException:  # above all, the caller was cancelled
            self._let_go()
            raise
        self._rest = asyncio.get_running_loop().call_later(self._idle, self._let_go)
        return answer

    def _working(self) -> _Child:
        """The child; another, where there is none or it has died."""
        if self._closed:
            raise Unavailable(_CLOSED)
        if self._rest is not None:
            self._rest.cancel()
        if self._child is None or not self._child.process.is_alive():
            self._let_go()
            self._child = _Child(self._database)
        return self._child

    def _let_go(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        if self._child is not None:
            self._child.kill()
            self._ending = [child for child in self._ending if not child.buried] + [self._child]
            self._child = None


class _Child:
    """A child process, and our end of the socket to it."""

    def __init__(self, database: str) -> None:
        self._ours, theirs = socket.socketpair()
        self._killed = 0.0
        self.buried = False
        with theirs:
            try:
                self._ours.setblocking(False)
                # The database travels through a pipe: command lines and environments are there for others to see.
                self.process = _SPAWN.Process(
                    target=_serve, args=(theirs, database), name="maillard-questions", daemon=True
                )
                self.process.start()
            except BaseException:
                self._ours.close()
                raise

    async def ask(self, job: bytes) -> Any:
        """The child's answer to a job."""
        await asyncio.get_running_loop().sock_sendall(self._ours, job)
        (length,) = _LENGTH.unpack(await self._receive(_LENGTH.size))
        return pickle.loads(await self._receive(length))  # our own child wrote it

    async def _receive(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            part = await asyncio.get_running_loop().sock_recv(self._ours, min(length - len(received), _PIECE))
            if not part:
                raise EOFError
            received += part
        return bytes(received)

    def kill(self) -> None:
        """End it now, whatever it does. It is buried later: the system takes its time to free what it had."""
        self.process.kill()
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)  # whoever reads it hears of the end, before it is closed
        self._killed = time.monotonic()
        self._bury_later()

    def _bury_later(self) -> None:
        asyncio.get_running_loop().call_later(_OFTEN, self._bury)

    def _bury(self) -> None:
        if self.process.is_alive() and time.monotonic() < self._killed + _PATIENCE:
            self._bury_later()
        else:
            self._ours.close()
            self.buried = True


# What follows runs in the child.


def _serve(theirs: socket.socket, database: str) -> None:
    """HttpResponse one job after the other until the parent closes the socket, or is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    os.nice(_NICE)
    # Where memory is short, the child is to go and not the service. Only Linux can be told so.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with theirs, theirs.makefile("rb") as jobs:
        while (job := _read(jobs)) is not None:
            theirs.sendall(_answer(job, database))


def _end_with_parent() -> None:
    """While a job runs nobody reads the socket, and a parent that was killed closes nothing in good order."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a child
    parent.join()
    os._exit(1)


def _read(jobs: BinaryIO) -> bytes | None:
    head = jobs.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return jobs.read(*_LENGTH.unpack(head))


def _answer(job: bytes, database: str) -> bytes:
    """Whether it went well, what came out, and what a log should have of it."""
    try:
        function, arguments = pickle.loads(job)
        return _framed((True, function(database, *arguments), None))
    except MaillardError as error:
        return _framed((False, _plain_error(error, database), None))
    except Exception as error:  # noqa: BLE001  # the child answers, whatever a job does
        told = without_secrets(traceback.format_exc(), database)
        made = JobFailed(f"the question could not be answered: an unexpected {type(error).__name__}")
        return _framed((False, made, told))


def _framed(thing: object) -> bytes:
    data = pickle.dumps(thing)
    return _LENGTH.pack(len(data)) + data


def _plain_error(error: MaillardError, database: str) -> MaillardError:
    """The same error as one of `maillard.errors`: to read one of another module would import that into the parent."""

    def clean(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(clean, value))
        value = value if type(value) in _PLAIN else reprlib.repr(value)
        return without_secrets(value, database) if isinstance(value, str) else value

    kind = next(cls for cls in type(error).__mro__ if cls.__module__ == MaillardError.__module__)
    fields = map(clean, error.args if issubclass(kind, InvalidValue | UnknownName) else [str(error)])
    made: MaillardError = kind(*fields)
    return made


def without_secrets(text: str, database: str) -> str:
    """A text without the database's address or path, and without the passwords in it.

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
    """Those in a URL, as they are written there and as they are."""
    try:
        parts = urlsplit(database)
        written = [value for name, value in parse_qsl(parts.query) if "password" in name]
        written.append(parts.password or "")
    except ValueError:  # it is no URL
        return []
    return sorted({*written, *map(unquote, written)} - {""}, key=len, reverse=True)
