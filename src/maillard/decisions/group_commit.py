"""Group commit: concurrent calls share one transaction, so that they also share the wait for the disk.

`GroupCommit` serves threads, `AsyncGroupCommit` serves coroutines. Both collect calls while a batch is
being written, and write all of them as the next batch. `run` gets the calls of a batch and returns, for
each call, its result or the error of that call alone. If `run` raises, the whole batch has failed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Generic, TypeVar

from maillard.decisions.forks import renew_after_fork
from maillard.errors import MaillardError, Unavailable

_MAX_BATCH = 256  # calls in one transaction
_MAX_WAITING = 20_000  # calls of coroutines that wait for their batch
_MAX_BATCH_DELAY = 0.001  # seconds that a leader waits for the threads of the previous batch
_ROUNDS_BETWEEN_BATCHES = 4  # of the event loop: see `AsyncGroupCommit`
_INTERRUPTED = (
    "the thread that wrote this batch was interrupted. "
    "The write may be in the log: call again with the same key."
)
_STOPPED = "the process is stopping. Nothing was acknowledged."

Call = TypeVar("Call")
Result = TypeVar("Result")


# Runs a batch of calls.
Run = Callable[[Sequence[Call]], Sequence[Result | MaillardError]]


def _run_batch(run: Run[Call, Result], calls: Sequence[Call]) -> Sequence[Result | BaseException]:
    """Run a batch and return a result or an error for each call."""
    try:
        return run(calls)
    except MaillardError as error:  # callers must not share an exception: each one adds its traceback
        return [error, *(type(error)(*error.args) for _ in calls[1:])]
    except BaseException as error:  # noqa: BLE001  # every call must end
        return [error] * len(calls)


class _PendingCall(Generic[Call, Result]):
    """A call in the queue of a `GroupCommit`, and the lock that its thread sleeps on.

    If the thread becomes the leader, `batch` holds the calls it runs and has not woken up yet.
    """

    __slots__ = ("batch", "call", "done", "error", "is_leader", "result", "wake")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.done = False
        self.is_leader = False
        self.batch: list[_PendingCall[Call, Result]] = []
        self.wake = threading.Lock()
        self.wake.acquire()


class GroupCommit(Generic[Call, Result]):
    """Group commit for threads.

    It has no thread of its own, which a fork would lose. The first thread to arrive becomes the leader: it
    runs the calls of all waiting threads, then makes the first thread that arrived in the meantime the next
    leader.
    """

    def __init__(self, run: Run[Call, Result], max_batch: int = _MAX_BATCH) -> None:
        self._run, self._max_batch = run, max_batch
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Start with an empty queue after a fork: the waiting threads exist only in the parent."""
        self._mutex = threading.Lock()
        self._queue: list[_PendingCall[Call, Result]] = []
        self._has_leader = False
        self._expected_size = 0  # calls in the last batch, plus those that arrived while it ran
        self._awaited_size = 0  # the queue length that a leader waits for, or 0
        self._queue_filled = threading.Lock()
        self._queue_filled.acquire()

    def submit(self, call: Call) -> Result:
        """Run a call in the next batch and return its result once it is durable."""
        own: _PendingCall[Call, Result] = _PendingCall(call)
        try:
            with self._mutex:
                self._queue.append(own)
                if not self._has_leader:
                    self._has_leader = own.is_leader = True
                elif len(self._queue) == self._awaited_size:
                    self._awaited_size = 0
                    if self._queue_filled.locked():  # it is free if an interrupted leader did not acquire it
                        self._queue_filled.release()
            if not own.is_leader:
                own.wake.acquire()
            if not own.done:
                self._lead(own)
        except BaseException:  # for example KeyboardInterrupt while waiting
            self._finish(own)
            raise
        if own.error is not None:
            raise own.error
        return own.result  # type: ignore[return-value]  # it is done, without an error

    def _lead(self, own: _PendingCall[Call, Result]) -> None:
        self._wait_for_queue()
        with self._mutex:
            own.batch, self._queue = self._queue[: self._max_batch], self._queue[self._max_batch :]
        batch = list(own.batch)
        outcomes = _run_batch(self._run, [each.call for each in batch])
        for each, outcome in zip(batch, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                each.result = outcome
            elif each is own or isinstance(outcome, MaillardError):
                each.error = outcome
            else:  # the leader's own exception, for example an interrupt
                each.error = Unavailable(f"the write of this call's batch failed: {outcome!r}")
            each.done = True
        with self._mutex:
            self._expected_size = min(len(batch) + len(self._queue), self._max_batch)
        self._finish(own)

    def _wait_for_queue(self) -> None:
        """Wait up to a millisecond until as many threads call as in the previous batch.

        Threads that have just received a result usually call again at once. Without this wait they would
        find the next batch already running, and every other commit would run without them: twice as many
        commits. The next batch expects only the threads that came, so a single thread never waits.
        """
        with self._mutex:
            if len(self._queue) >= self._expected_size:
                return
            self._awaited_size = self._expected_size
        if not self._queue_filled.acquire(timeout=_MAX_BATCH_DELAY):
            with self._mutex:
                self._awaited_size = 0
                self._queue_filled.acquire(blocking=False)  # in case the queue filled after the timeout

    def _finish(self, own: _PendingCall[Call, Result]) -> None:
        """Leave the queue; a leader wakes up its batch and passes the lead to the first waiting thread.

        An interrupt can arrive at any point here. `submit` then calls this again, so no thread sleeps
        forever.
        """
        while own.batch:
            each = own.batch[-1]
            if not each.done:
                each.error, each.done = Unavailable(_INTERRUPTED), True
            if each is not own:
                with suppress(RuntimeError):  # awake already
                    each.wake.release()
            own.batch.pop()
        with self._mutex:
            self._awaited_size = 0 if own.is_leader else self._awaited_size
            if own in self._queue:
                self._queue.remove(own)
            if not own.is_leader:
                return
            own.is_leader = False
            if self._queue:
                self._queue[0].is_leader = True
                self._queue[0].wake.release()
            else:
                self._has_leader = False


class AsyncGroupCommit(Generic[Call, Result]):
    """Group commit for coroutines: batches run one after the other in `executor`.

    When a batch has ended, the event loop makes a few rounds before the next batch starts. In the first, the
    callers get their results, and a server sends its responses; in the second, it reads the requests that
    have arrived; in the third, their handlers call `submit`; in the fourth, the batch starts. If it started
    at once, it would run without the callers of the last batch, who usually call again: there would be twice
    as many batches, and their thread would compete with the event loop for the interpreter lock. Rounds in
    which the loop has nothing to do take microseconds.

    Create it in a running event loop.
    """

    def __init__(self, run: Run[Call, Result], executor: Executor) -> None:
        self._run, self._executor = run, executor
        self._loop = asyncio.get_running_loop()
        self._queue: list[tuple[Call, asyncio.Future[Result]]] = []
        self._running = False

    def submit(self, call: Call) -> asyncio.Future[Result]:
        """Run a call in the next batch. The future has its result once it is durable."""
        future: asyncio.Future[Result] = self._loop.create_future()
        if len(self._queue) >= _MAX_WAITING:
            problem = f"{_MAX_WAITING} calls are already waiting for the log"
            future.set_exception(Unavailable(f"{problem}. Nothing was acknowledged; try again."))
            return future
        self._queue.append((call, future))
        if not self._running:
            self._running = True
            self._start_batch_after(1)  # after the requests that the loop is reading now
        return future

    def _start_batch(self) -> None:
        batch, self._queue = self._queue[:_MAX_BATCH], self._queue[_MAX_BATCH:]
        try:
            self._executor.submit(self._run_in_thread, batch)
        except RuntimeError:  # the executor was shut down after the call was submitted
            self._finish_batch(batch, [Unavailable(_STOPPED) for _ in batch])

    def _run_in_thread(self, batch: list[tuple[Call, asyncio.Future[Result]]]) -> None:
        outcomes = _run_batch(self._run, [call for call, _ in batch])
        self._loop.call_soon_threadsafe(self._finish_batch, batch, outcomes)

    def _finish_batch(
        self, batch: list[tuple[Call, asyncio.Future[Result]]], outcomes: Sequence[Result | BaseException]
    ) -> None:
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if self._queue:
            self._start_batch_after(_ROUNDS_BETWEEN_BATCHES)
        else:
            self._running = False

    def _start_batch_after(self, rounds: int) -> None:
        """Start the next batch after some rounds of the event loop, or at once if it is full."""
        if rounds and len(self._queue) < _MAX_BATCH:
            self._loop.call_soon(self._start_batch_after, rounds - 1)
        else:
            self._start_batch()
