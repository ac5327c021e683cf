"""Group commit: calls of several threads that wait for the disk at the same time share one transaction.

There is no thread of its own to be lost in a fork: whoever comes first leads, does the work of all that wait, and hands the lead to
the first that came meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from maillard.decisions.forks import renew_after_fork
from maillard.errors import MaillardError, Unavailable

__all__ = ["Group"]

_PATIENCE = 0.001  # seconds
_INTERRUPTED = "the thread that wrote for several was interrupted; what it wrote may be in the log, so call again with the same key"

Call = TypeVar("Call")
Result = TypeVar("Result")


class _Waiting(Generic[Call, Result]):
    """A call in the queue, a lock that its thread sleeps on, and the calls that it answers if it leads."""

    __slots__ = ("call", "done", "error", "group", "leads", "result", "wake")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.done = False
        self.leads = False
        self.group: list[_Waiting[Call, Result]] = []
        self.wake = threading.Lock()
        self.wake.acquire()


class Group(Generic[Call, Result]):
    """Runs calls, those that wait together as one.

    `run` gets some calls and answers each with a result, or an error of that call alone; if it raises, all of them have failed.
    """

    def __init__(
        self, run: Callable[[Sequence[Call]], Sequence[Result | MaillardError]], most: int = 256
    ) -> None:
        self._run, self._most = run, most
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """After a fork: whoever waits belongs to the parent."""
        self._mutex = threading.Lock()
        self._queue: list[_Waiting[Call, Result]] = []
        self._led = False
        self._expected = 0  # calls: as many as the last group had, and as came meanwhile
        self._awaited = 0
        self._complete = threading.Lock()
        self._complete.acquire()

    def submit(self, call: Call) -> Result:
        """The result of a call, when it is durable."""
        mine: _Waiting[Call, Result] = _Waiting(call)
        try:
            with self._mutex:
                self._queue.append(mine)
                if not self._led:
                    self._led = mine.leads = True
                elif len(self._queue) == self._awaited:
                    self._awaited = 0
                    if self._complete.locked():  # else one that was interrupted has not taken it
                        self._complete.release()
            if not mine.leads:
                mine.wake.acquire()
            if not mine.done:
                self._lead(mine)
        except BaseException:  # interrupted while it waited
            self._leave(mine)
            raise
        if mine.error is not None:
            raise mine.error
        return mine.result  # type: ignore[return-value]  # done, and without an error

    def _lead(self, mine: _Waiting[Call, Result]) -> None:
        self._gather()
        with self._mutex:
            mine.group, self._queue = self._queue[: self._most], self._queue[self._most :]
        group, error = list(mine.group), None
        try:
            answers = self._run([each.call for each in group])
        except BaseException as raised:  # noqa: BLE001  # every thread of the group raises it
            answers, error = [], raised
        for place, each in enumerate(group):
            if error is not None:
                each.error = _shared(error, each is mine)
            elif isinstance(answer := answers[place], MaillardError):
                each.error = answer
            else:
                each.result = answer
            each.done = True
        with self._mutex:
            self._expected = min(len(group) + len(self._queue), self._most)
        self._leave(mine)

    def _gather(self) -> None:
        """Wait a moment for those who called a moment ago: they are about to call again.

        Otherwise they find the next group on its way, and every other commit goes without them: twice the commits, and threads that
        wake up get in the way of the one that writes. Whoever stays away is expected no more, so a lone thread never waits.
        """
        with self._mutex:
            if len(self._queue) >= self._expected:
                return
            self._awaited = self._expected
        if not self._complete.acquire(timeout=_PATIENCE):
            with self._mutex:
                self._awaited = 0
                self._complete.acquire(
                    blocking=False
                )  # whoever completed the group meanwhile has released it

    def _leave(self, mine: _Waiting[Call, Result]) -> None:
        """Out of the queue; whoever was led wakes up; the lead, if one had it, goes to the first that waits.

        An interrupt may come at any point of this. Then it is begun again, and nobody sleeps for ever.
        """
        while mine.group:
            each = mine.group[-1]
            if not each.done:
                each.error, each.done = Unavailable(_INTERRUPTED), True
            if each is not mine:
                with suppress(RuntimeError):  # woken already
                    each.wake.release()
            mine.group.pop()
        with self._mutex:
            self._awaited = 0 if mine.leads else self._awaited
            if mine in self._queue:
                self._queue.remove(mine)
            if not mine.leads:
                return
            mine.leads = False
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].wake.release()
            else:
                self._led = False


def _shared(error: BaseException, own: bool) -> BaseException:
    """An error for each thread: a traceback belongs to one, and so does an interrupt."""
    if own:
        return error
    if isinstance(error, MaillardError):
        return type(error)(*error.args)
    return Unavailable(f"the write that this call was part of failed: {error!r}")
