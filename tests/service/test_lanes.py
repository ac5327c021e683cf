"""Group commit for a server: order, errors of one and of all, callers that go away, an end to waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from maillard.errors import MaillardError, Unavailable
from maillard.service import lanes
from maillard.service.lanes import Lane


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_calls_that_wait_together_share_a_group(threads: ThreadPoolExecutor) -> None:
    groups: list[list[int]] = []
    first = threading.Event()

    def run(calls):
        groups.append(list(calls))
        first.wait(5)
        return [10 * call for call in calls]

    async def main() -> Any:
        lane = Lane(run, threads)
        begun = asyncio.ensure_future(lane.submit(0))
        while not groups:  # it is under way
            await asyncio.sleep(0.001)
        rest = [asyncio.ensure_future(lane.submit(n)) for n in range(1, 400)]
        await asyncio.sleep(0.01)
        first.set()
        return await asyncio.gather(begun, *rest)

    assert asyncio.run(main()) == [10 * n for n in range(400)]
    assert [len(group) for group in groups] == [1, 256, 143]
    assert [call for group in groups for call in group] == list(range(400))


def test_an_error_of_one_call_is_its_own(threads: ThreadPoolExecutor) -> None:
    async def main() -> Any:
        lane = Lane(lambda calls: [MaillardError("no") if call == 1 else call for call in calls], threads)
        return await asyncio.gather(*(lane.submit(n) for n in range(3)), return_exceptions=True)

    zero, one, two = asyncio.run(main())
    assert (zero, two) == (0, 2)
    assert isinstance(one, MaillardError)


@pytest.mark.parametrize("error", [Unavailable("the disk is full"), ZeroDivisionError()])
def test_a_group_that_fails_fails_for_all_and_the_next_goes_on(
    threads: ThreadPoolExecutor, error: Exception
) -> None:
    broken = [True]

    def run(calls):
        if broken.pop() if broken else False:
            raise error
        return calls

    async def main() -> Any:
        lane = Lane(run, threads)
        failed = await asyncio.gather(*(lane.submit(n) for n in range(3)), return_exceptions=True)
        return failed, await lane.submit(7)

    failed, after = asyncio.run(main())
    assert [type(each) for each in failed] == [type(error)] * 3
    assert len(set(map(id, failed))) == (3 if isinstance(error, MaillardError) else 1)
    assert after == 7


def test_a_caller_that_goes_away_takes_nobody_along(threads: ThreadPoolExecutor) -> None:
    begun, go_on, ran = threading.Event(), threading.Event(), []

    def run(calls):
        begun.set()
        go_on.wait(5)
        ran.extend(calls)
        return calls

    async def main() -> Any:
        lane = Lane(run, threads)
        gone, stays = asyncio.ensure_future(lane.submit(1)), asyncio.ensure_future(lane.submit(2))
        await asyncio.to_thread(begun.wait, 5)
        gone.cancel()
        go_on.set()
        return await stays, await lane.submit(3)

    assert asyncio.run(main()) == (2, 3)
    assert ran == [1, 2, 3]  # what was under way is written, whoever still listens


def test_too_many_are_refused_at_once(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_MOST_WAITING", 3)

    async def main() -> Any:
        lane = Lane(lambda calls: calls, threads)
        return await asyncio.gather(*(lane.submit(n) for n in range(5)), return_exceptions=True)

    answers = asyncio.run(main())
    assert answers[:3] == [0, 1, 2]
    assert all(isinstance(each, Unavailable) for each in answers[3:])
