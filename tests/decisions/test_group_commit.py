"""Group commit for threads: own results, errors of one call and of a batch, batch size, interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from maillard.decisions.group_commit import GroupCommit
from maillard.errors import Conflict, InvalidValue, Unavailable


class Recorder:
    """Doubles numbers, records the batches, and waits at a gate if one is set."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.error: BaseException | None = None

    def __call__(self, calls: Sequence[int]) -> list[int | Conflict]:
        self.batches.append(list(calls))
        self.entered.set()
        time.sleep(0.0005)  # gives other threads time to call
        if self.gate is not None:
            assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return [Conflict(f"{call} is odd") if call % 2 else 2 * call for call in calls]


def wait_for_queue(commit: GroupCommit[int, int], count: int) -> None:
    """Wait until the queue has this many calls."""
    for _ in range(3000):
        if len(commit._queue) >= count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(commit._queue)


def test_many_threads_get_their_own_results() -> None:
    run = Recorder()
    commit: GroupCommit[int, int] = GroupCommit(run)
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(commit.submit, range(0, 4000, 2)))
    assert results == list(range(0, 8000, 4))
    assert sorted(call for calls in run.batches for call in calls) == list(range(0, 4000, 2))
    assert max(map(len, run.batches)) > 1


def test_waiting_calls_share_batches_of_limited_size() -> None:
    run = Recorder()
    run.gate = threading.Event()
    commit: GroupCommit[int, int] = GroupCommit(run, max_batch=8)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(commit.submit, 0)
        assert run.entered.wait(30)
        rest = [pool.submit(commit.submit, 2) for _ in range(12)]
        wait_for_queue(commit, 12)
        run.gate.set()
        assert [each.result(30) for each in (first, *rest)] == [0] + [4] * 12
    assert [len(calls) for calls in run.batches][:2] == [1, 8]


def test_an_error_of_one_call_does_not_affect_the_others() -> None:
    commit: GroupCommit[int, int] = GroupCommit(Recorder())
    with pytest.raises(Conflict, match="3 is odd"):
        commit.submit(3)
    assert commit.submit(4) == 8


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (Unavailable("the disk is full"), Unavailable),
        (InvalidValue("x", 1, "2"), InvalidValue),
        (KeyboardInterrupt(), Unavailable),  # only the leader is interrupted
        (RuntimeError("a bug"), Unavailable),
    ],
)
def test_a_failed_batch_fails_for_all_callers_and_the_next_batch_runs(error, seen) -> None:
    run = Recorder()
    commit: GroupCommit[int, int] = GroupCommit(run)
    run.gate = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(commit.submit, 0)
        assert run.entered.wait(30)
        rest = [pool.submit(commit.submit, 2) for _ in range(5)]
        wait_for_queue(commit, 5)
        run.error = error
        run.gate.set()
        assert type(first.exception(30)) is type(error)
        types = [type(each.exception(30)) for each in rest]
    assert types.count(type(error)) >= 1  # the leader of the second batch
    assert set(types) <= {type(error), seen}
    run.error = None
    assert commit.submit(4) == 8


class Interrupted(GroupCommit[int, int]):
    """Interrupts the leader once, after it has woken up some threads of its batch."""

    at, woken = 0, 0

    def _finish(self, own) -> None:
        self.at -= 1
        if self.at == 0:
            for each in list(own.batch)[: self.woken]:
                each.done = True
                each.wake.release()
            raise KeyboardInterrupt
        super()._finish(own)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("woken", [0, 2])
def test_an_interrupted_leader_leaves_no_thread_asleep(at, woken) -> None:
    run = Recorder()
    run.gate = threading.Event()
    commit = Interrupted(run)
    commit.at, commit.woken = at, woken
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(commit.submit, 0)]
        assert run.entered.wait(30)
        calls += [pool.submit(commit.submit, 2) for _ in range(5)]
        wait_for_queue(commit, 5)
        run.gate.set()
        for call in calls:
            call.exception(30)  # a result or an error; TimeoutError if the thread still waits
    commit.at = 0
    assert commit.submit(4) == 8


def test_a_single_thread_does_not_wait_for_others() -> None:
    commit: GroupCommit[int, int] = GroupCommit(Recorder())
    for _ in range(3):
        commit.submit(2)
        assert commit._expected_size == 1


def test_an_interrupted_thread_leaves_the_queue() -> None:
    run = Recorder()
    run.gate = threading.Event()
    commit: GroupCommit[int, int] = GroupCommit(run)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(commit.submit, 0)
            assert run.entered.wait(30)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                commit.submit(100)
            second = pool.submit(commit.submit, 2)
            wait_for_queue(commit, 1)
            run.gate.set()
            assert (first.result(30), second.result(30)) == (0, 4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [100] not in run.batches
    assert commit.submit(6) == 12
