"""Group commit for a server: calls that come while a transaction is under way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

from maillard.errors import MaillardError, Unavailable

__all__ = ["Lane"]

_MOST = 256  # calls of one transaction
_MOST_WAITING = 20_000


class Lane:
    """Runs calls in a thread, one group after the other, those that wait together as one.

    `run` gets some calls and answers each, with a result or an error of that call alone; if it raises, all of them have failed. As
    `decisions.grouping` does for threads, without a thread for each call.
    """

    def __init__(self, run: Callable[[Sequence[Any]], Sequence[Any]], threads: Executor) -> None:
        self._run, self._threads = run, threads
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._busy = False

    async def submit(self, call: Any) -> Any:
        """The answer to a call, when it is durable."""
        if len(self._waiting) >= _MOST_WAITING:
            raise Unavailable(
                f"{_MOST_WAITING} calls wait for the log already. Nothing was acknowledged; try again."
            )
        answered = self._loop.create_future()
        self._waiting.append((call, answered))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._start)  # after the requests that are being read now
        answer = await answered
        if isinstance(answer, MaillardError):
            raise answer
        return answer

    def _start(self) -> None:
        group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        self._threads.submit(self._work, group)

    def _work(self, group: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        answers: Sequence[Any]
        try:
            answers = self._run([call for call, _ in group])
        except MaillardError as error:
            answers = [_same(error) for _ in group]
        except BaseException as error:  # noqa: BLE001  # whatever it is, nobody may wait for ever
            answers = [error] * len(group)
        self._loop.call_soon_threadsafe(self._finish, group, answers)

    def _finish(self, group: list[tuple[Any, asyncio.Future[Any]]], answers: Sequence[Any]) -> None:
        for (_, answered), answer in zip(group, answers, strict=True):
            if answered.done():  # whoever asked has gone
                continue
            if isinstance(answer, BaseException) and not isinstance(answer, MaillardError):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)
        if self._waiting:
            self._start()
        else:
            self._busy = False


def _same(error: MaillardError) -> MaillardError:
    """An error for each caller: a traceback belongs to one."""
    return type(error)(*error.args)
