"""Group commit: everybody gets their own answer, whatever happens to the others."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from maillard.decisions.group_commit import Group
from maillard.errors import Conflict, InvalidValue, Unavailable


class Recorder:
    """Doubles numbers; waits at a gate, if there is one; remembers the groups."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.error: BaseException | None = None

    def __call__(self, calls: Sequence[int]) -> list[int | Conflict]:
        self.groups.append(list(calls))
        self.entered.set()
        time.sleep(0.0005)  # so that others come meanwhile
        if self.gate is not None:
            assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return [Conflict(f"{call} is odd") if call % 2 else 2 * call for call in calls]


def waiting(group: Group[int, int], count: int) -> None:
    """Until so many calls are in the queue."""
    for _ in range(3000):
        if len(group._queue) >= count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(group._queue)


def test_many_threads_get_their_own_answers() -> None:
    run = Recorder()
    group: Group[int, int] = Group(run)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(group.submit, range(0, 4000, 2)))
    assert answers == list(range(0, 8000, 4))
    assert sorted(call for calls in run.groups for call in calls) == list(range(0, 4000, 2))
    assert max(map(len, run.groups)) > 1


def test_calls_that_wait_share_a_group_and_no_more_than_the_most() -> None:
    run = Recorder()
    run.gate = threading.Event()
    group: Group[int, int] = Group(run, most=8)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(group.submit, 0)
        assert run.entered.wait(30)
        rest = [pool.submit(group.submit, 2) for _ in range(12)]
        waiting(group, 12)
        run.gate.set()
        assert [each.result(30) for each in (first, *rest)] == [0] + [4] * 12
    assert [len(calls) for calls in run.groups][:2] == [1, 8]


def test_an_error_of_one_call_is_its_own() -> None:
    group: Group[int, int] = Group(Recorder())
    with pytest.raises(Conflict, match="3 is odd"):
        group.submit(3)
    assert group.submit(4) == 8


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (Unavailable("the disk is full"), Unavailable),
        (InvalidValue("x", 1, "2"), InvalidValue),
        (KeyboardInterrupt(), Unavailable),  # of the leader: the others were not interrupted
        (RuntimeError("a bug"), Unavailable),
    ],
)
def test_a_group_that_fails_fails_for_all_and_the_next_goes_on(error, seen) -> None:
    run = Recorder()
    group: Group[int, int] = Group(run)
    run.gate = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(group.submit, 0)
        assert run.entered.wait(30)
        rest = [pool.submit(group.submit, 2) for _ in range(5)]
        waiting(group, 5)
        run.error = error
        run.gate.set()
        assert type(first.exception(30)) is type(error)
        kinds = [type(each.exception(30)) for each in rest]
    assert kinds.count(type(error)) >= 1  # whoever led the second group
    assert set(kinds) <= {type(error), seen}
    run.error = None
    assert group.submit(4) == 8


class Interrupted(Group[int, int]):
    """A group whose leader is interrupted once, when it has woken some of those that it led and not the others."""

    at, woken = 0, 0

    def _leave(self, mine) -> None:
        self.at -= 1
        if self.at == 0:
            for each in list(mine.group)[: self.woken]:
                each.done = True
                each.wake.release()
            raise KeyboardInterrupt
        super()._leave(mine)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("woken", [0, 2])
def test_an_interrupt_between_two_answers_leaves_nobody_asleep(at, woken) -> None:
    run = Recorder()
    run.gate = threading.Event()
    group = Interrupted(run)
    group.at, group.woken = at, woken
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(group.submit, 0)]
        assert run.entered.wait(30)
        calls += [pool.submit(group.submit, 2) for _ in range(5)]
        waiting(group, 5)
        run.gate.set()
        for call in calls:
            call.exception(30)  # an answer or an error, but not for ever
    group.at = 0
    assert group.submit(4) == 8


def test_a_lone_thread_expects_nobody() -> None:
    group: Group[int, int] = Group(Recorder())
    for _ in range(3):
        group.submit(2)
        assert group._expected == 1


def test_who_is_interrupted_while_waiting_leaves_the_queue() -> None:
    run = Recorder()
    run.gate = threading.Event()
    group: Group[int, int] = Group(run)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(group.submit, 0)
            assert run.entered.wait(30)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                group.submit(100)
            second = pool.submit(group.submit, 2)
            waiting(group, 1)
            run.gate.set()
            assert (first.result(30), second.result(30)) == (0, 4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [100] not in run.groups
    assert group.submit(6) == 12
