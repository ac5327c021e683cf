"""Group commit for coroutines: order, errors of one call and of a batch, cancelled callers, queue limit."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from maillard.decisions import group_commit
from maillard.decisions.group_commit import AsyncGroupCommit
from maillard.errors import MaillardError, Unavailable


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_waiting_calls_share_a_batch(threads: ThreadPoolExecutor) -> None:
    batches: list[list[int]] = []
    first = threading.Event()

    def run(calls):
        batches.append(list(calls))
        first.wait(5)
        return [10 * call for call in calls]

    async def main() -> Any:
        commit: AsyncGroupCommit[int, int] = AsyncGroupCommit(run, threads)
        begun = asyncio.ensure_future(commit.submit(0))
        while not batches:  # until the first batch runs
            await asyncio.sleep(0.001)
        rest = [asyncio.ensure_future(commit.submit(n)) for n in range(1, 400)]
        await asyncio.sleep(0.01)
        first.set()
        return await asyncio.gather(begun, *rest)

    assert asyncio.run(main()) == [10 * n for n in range(400)]
    assert [len(batch) for batch in batches] == [1, 256, 143]
    assert [call for batch in batches for call in batch] == list(range(400))


@pytest.mark.parametrize("library", ["asyncio", "uvloop"])
@pytest.mark.parametrize("by", ["the caller", "a new task", "a request that is read next"])
def test_a_batch_waits_for_calls_that_follow_the_results_of_the_last(
    threads: ThreadPoolExecutor, by: str, library: str
) -> None:
    """A second batch waits when the first one ends. Calls that react to the end of the first one join it."""
    batches: list[list[str]] = []
    go_on = threading.Event()

    def run(calls):
        batches.append(list(calls))
        go_on.wait(5)
        return calls

    async def main() -> None:
        loop = asyncio.get_running_loop()
        commit: AsyncGroupCommit[str, str] = AsyncGroupCommit(run, threads)
        again: asyncio.Future[asyncio.Task[str]] = loop.create_future()

        async def handle_request() -> str:
            return await commit.submit("again")

        def call_again() -> None:
            again.set_result(loop.create_task(handle_request()))

        def read_request(reading: socket.socket) -> None:
            reading.recv(100)
            call_again()

        async def call_twice() -> None:
            await commit.submit("first")
            if by == "the caller":
                await commit.submit("again")
            elif by == "a new task":
                call_again()
            else:
                ours.send(b"request")

        ours, theirs = socket.socketpair()
        with ours, theirs:
            loop.add_reader(theirs, read_request, theirs)
            first = asyncio.ensure_future(call_twice())
            while not batches:
                await asyncio.sleep(0.001)
            second = asyncio.ensure_future(commit.submit("waiting"))
            await asyncio.sleep(0.01)
            go_on.set()
            await asyncio.gather(first, second)
            if by != "the caller":
                await (await again)
            loop.remove_reader(theirs)

    pytest.importorskip(library).run(main())
    assert batches == [["first"], ["waiting", "again"]]


def test_a_full_batch_starts_at_once(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_MAX_BATCH", 2)
    monkeypatch.setattr(group_commit, "_ROUNDS_BETWEEN_BATCHES", 10**9)

    async def main() -> Any:
        commit: AsyncGroupCommit[int, int] = AsyncGroupCommit(lambda calls: calls, threads)
        return await asyncio.gather(*(commit.submit(n) for n in range(6)))

    assert asyncio.run(main()) == list(range(6))


def test_an_error_of_one_call_does_not_affect_the_others(threads: ThreadPoolExecutor) -> None:
    async def main() -> Any:
        commit: AsyncGroupCommit[int, int] = AsyncGroupCommit(
            lambda calls: [MaillardError("no") if call == 1 else call for call in calls], threads
        )
        return await asyncio.gather(*(commit.submit(n) for n in range(3)), return_exceptions=True)

    zero, one, two = asyncio.run(main())
    assert (zero, two) == (0, 2)
    assert isinstance(one, MaillardError)


@pytest.mark.parametrize("error", [Unavailable("the disk is full"), ZeroDivisionError()])
def test_a_failed_batch_fails_for_all_callers_and_the_next_batch_runs(
    threads: ThreadPoolExecutor, error: Exception
) -> None:
    broken = [True]

    def run(calls):
        if broken.pop() if broken else False:
            raise error
        return calls

    async def main() -> Any:
        commit: AsyncGroupCommit[int, int] = AsyncGroupCommit(run, threads)
        failed = await asyncio.gather(*(commit.submit(n) for n in range(3)), return_exceptions=True)
        return failed, await commit.submit(7)

    failed, after = asyncio.run(main())
    assert [type(each) for each in failed] == [type(error)] * 3
    assert len(set(map(id, failed))) == (3 if isinstance(error, MaillardError) else 1)
    assert after == 7


def test_cancelling_one_caller_does_not_affect_the_others(threads: ThreadPoolExecutor) -> None:
    begun, go_on, ran = threading.Event(), threading.Event(), []

    def run(calls):
        begun.set()
        go_on.wait(5)
        ran.extend(calls)
        return calls

    async def main() -> Any:
        commit: AsyncGroupCommit[int, int] = AsyncGroupCommit(run, threads)
        cancelled, other = asyncio.ensure_future(commit.submit(1)), asyncio.ensure_future(commit.submit(2))
        await asyncio.to_thread(begun.wait, 5)
        cancelled.cancel()
        go_on.set()
        return await other, await commit.submit(3)

    assert asyncio.run(main()) == (2, 3)
    assert ran == [1, 2, 3]  # a call of a running batch is written even if its caller was cancelled


def test_calls_that_wait_when_the_executor_is_shut_down_fail() -> None:
    batches: list[list[int]] = []
    go_on = threading.Event()

    def run(calls):
        batches.append(list(calls))
        go_on.wait(5)
        return calls

    async def main() -> Any:
        threads = ThreadPoolExecutor(1)
        commit: AsyncGroupCommit[int, int] = AsyncGroupCommit(run, threads)
        running = commit.submit(0)
        while not batches:
            await asyncio.sleep(0.001)
        waiting = [commit.submit(n) for n in (1, 2)]
        threads.shutdown(wait=False)
        go_on.set()
        return await asyncio.gather(running, *waiting, commit.submit(3), return_exceptions=True)

    done, *failed = asyncio.run(main())
    assert (done, batches) == (0, [[0]])
    assert [type(each) for each in failed] == [Unavailable] * 3


def test_calls_beyond_the_queue_limit_are_refused_at_once(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_MAX_WAITING", 3)

    async def main() -> Any:
        commit: AsyncGroupCommit[int, int] = AsyncGroupCommit(lambda calls: calls, threads)
        return await asyncio.gather(*(commit.submit(n) for n in range(5)), return_exceptions=True)

    results = asyncio.run(main())
    assert results[:3] == [0, 1, 2]
    assert all(isinstance(each, Unavailable) for each in results[3:])
