"""The worker process: one job at a time, time limits, errors without secrets, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard import Conflict, InvalidValue, MaillardError, Paused, Unavailable, UnknownName
from maillard.service.jobs import check, what_if
from maillard.service.service_errors import JobFailed
from maillard.service.worker_process import WorkerProcess, without_secrets
from tests.service.filled_logs import fill

SECRET = "Sesame-17"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fill(tmp_path_factory.mktemp("logs") / "log.db", "ms+:floor=0.5")


# Jobs. The worker process imports them by name from this module.


def process_id(database: str) -> int:
    return os.getpid()


def sleep(database: str, seconds: float) -> None:
    time.sleep(seconds)


def loop_forever(database: str, marker: str) -> None:
    """Work that never ends."""
    Path(marker).write_text(str(os.getpid()))
    while True:
        pass


def environment(database: str) -> dict[str, Any]:
    return {
        "database": database,
        "nice": os.nice(0),
        "interrupts": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "arguments": Path("/proc/self/cmdline").read_bytes(),
        "environment": Path("/proc/self/environ").read_bytes(),
    }


def zeros(database: str, size: int) -> bytes:
    return bytes(size)


def exit_at_once(database: str) -> None:
    os._exit(3)


class Strange(InvalidValue):
    """An error type that the parent process would have to import."""


RAISED: dict[str, Callable[[str], BaseException]] = {
    "invalid": lambda database: InvalidValue("target", "blue", "arm:blue"),
    "unknown": lambda database: UnknownName("arm", "blu", ["red", "blue"]),
    "paused": lambda database: Paused("not now"),
    "conflict": lambda database: Conflict("twice"),
    "strange": lambda database: Strange("target", np.arange(3), "no array"),
    "secret": lambda database: InvalidValue("log", database, f"another than {database}"),
    "unexpected": lambda database: ZeroDivisionError(f"{database} and {SECRET}"),
    "unreachable": lambda database: OSError(2, "gone", database),
}


def raise_error(database: str, how: str) -> None:
    raise RAISED[how](database)


def exists(pid: int) -> bool:
    """Whether a process exists, possibly as a zombie."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def ended(pid: int) -> bool:
    """Whether an orphaned process has ended."""
    status = Path(f"/proc/{pid}/stat")
    return not exists(pid) or status.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


@asynccontextmanager
async def started(database: str = "shop.db", **options: Any):
    """A worker whose process has been started."""
    worker = WorkerProcess(database, **{"timeout": 60.0} | options)
    try:
        await worker.run(process_id)
        yield worker
    finally:
        await worker.close()


def run(coroutine: Coroutine[Any, Any, Any], loops: Callable[[], Any] | None = None) -> Any:
    """Run a coroutine, and check that all threads it started have ended."""
    before = threading.enumerate()
    with asyncio.Runner(loop_factory=loops) as runner:
        made = runner.run(asyncio.wait_for(coroutine, 120))
    wait_for(lambda: threading.enumerate() == before)
    return made


def fast_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


LOOPS = pytest.mark.parametrize("loops", [None, fast_loop], ids=["asyncio", "uvloop"])


@LOOPS
def test_jobs_run_in_one_other_process(log: str, loops) -> None:
    async def run_jobs() -> Any:
        worker = WorkerProcess(log)
        try:
            return [
                await worker.run(what_if, "home", "arm:green", ["snips"], 0.9),
                await worker.run(check, "home"),
                await worker.run(process_id),
                await worker.run(process_id),
                len(await worker.run(zeros, 5_000_000)),
            ]
        finally:
            await worker.close()

    evaluation, checked, pid, again, size = run(run_jobs(), loops)
    assert evaluation == what_if(log, "home", "arm:green", ["snips"], 0.9)
    assert checked == check(log, "home")
    assert pid == again != os.getpid()
    assert not exists(pid)
    assert size == 5_000_000


def test_a_job_that_takes_too_long_is_killed() -> None:
    async def run_jobs() -> tuple[int, int]:
        async with started() as worker:
            first = await worker.run(process_id)
            worker.timeout = 0.3
            with pytest.raises(Unavailable, match=r"took more than 0\.3 seconds"):
                await worker.run(sleep, 600)
            worker.timeout = 60
            second = await worker.run(process_id)
            assert not exists(first)
            return first, second

    first, second = run(run_jobs())
    assert first != second
    assert not exists(second)


def test_callers_are_served_in_order_and_their_number_is_bounded() -> None:
    order: list[int] = []

    async def call(worker: WorkerProcess, number: int) -> Any:
        try:
            await worker.run(sleep, 0.01)
        except Unavailable as error:
            return str(error)
        order.append(number)
        return None

    async def run_jobs() -> list[Any]:
        async with started(max_waiting=19) as worker:
            return await asyncio.gather(*(call(worker, number) for number in range(25)))

    assert run(run_jobs()) == [None] * 20 + ["19 jobs are already waiting; try again later"] * 5
    assert order == list(range(20))


def test_a_caller_does_not_wait_for_its_turn_for_ever() -> None:
    async def run_jobs() -> None:
        async with started() as worker:
            first = asyncio.create_task(worker.run(sleep, 1.0))
            await asyncio.sleep(0.1)
            worker.timeout = 0.2
            with pytest.raises(Unavailable, match=r"other jobs have taken more than 0\.2 seconds"):
                await worker.run(process_id)
            worker.timeout = 60
            assert await worker.run(process_id)  # the lock was released
            await first

    run(run_jobs())


def test_a_worker_that_dies_is_replaced() -> None:
    async def run_jobs() -> None:
        async with started() as worker:
            first = await worker.run(process_id)
            with pytest.raises(Unavailable, match="ended before the job was done"):
                await worker.run(exit_at_once)
            second = await worker.run(process_id)
            os.kill(second, signal.SIGKILL)  # while it has nothing to do
            while exists(second):
                await asyncio.sleep(0.02)
            third = await worker.run(process_id)
            assert len({first, second, third}) == 3
            assert [pid for pid in (first, second) if exists(pid)] == []

    run(run_jobs())


@LOOPS
def test_cancelling_the_caller_kills_its_job(loops) -> None:
    async def run_jobs() -> None:
        async with started() as worker:
            first = await worker.run(process_id)
            running = asyncio.create_task(worker.run(sleep, 600))
            waiting = asyncio.create_task(worker.run(sleep, 600))
            next_in_line = asyncio.create_task(worker.run(process_id))
            await asyncio.sleep(0.1)
            waiting.cancel()  # it has not begun
            await asyncio.sleep(0.1)
            assert exists(first)
            running.cancel()
            assert await next_in_line != first
            assert not exists(first)
            for task in (running, waiting):
                with pytest.raises(asyncio.CancelledError):
                    await task

    run(run_jobs(), loops)


def test_the_worker_has_low_priority_and_its_errors_contain_no_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = f"postgresql://me:{SECRET}@localhost/shop"

    async def run_jobs() -> tuple[Any, dict[str, Any]]:
        found: dict[str, Any] = {}
        async with started(url) as worker:
            child = await worker.run(environment)
            for how in RAISED:
                with pytest.raises(MaillardError) as caught:
                    await worker.run(raise_error, how)
                found[how] = caught.value
        return child, found

    with caplog.at_level(logging.ERROR):
        child, found = run(run_jobs())
    assert (child["database"], child["nice"], child["interrupts"]) == (url, os.nice(0) + 10, True)
    assert SECRET.encode() not in child["arguments"] + child["environment"]
    error_types = [
        InvalidValue,
        UnknownName,
        Paused,
        Conflict,
        InvalidValue,
        InvalidValue,
        JobFailed,
        JobFailed,
    ]
    assert [type(error) for error in found.values()] == error_types
    for how in ("invalid", "unknown", "paused", "conflict"):
        assert str(found[how]) == str(RAISED[how](""))
        assert vars(found[how]) == vars(RAISED[how](""))
    assert found["strange"].value == "array([0, 1, 2])"
    assert found["secret"].allowed == "another than the log"
    assert str(found["unexpected"]) == "the job failed: an unexpected ZeroDivisionError"
    assert "FileNotFoundError" in str(found["unreachable"])
    assert [record.getMessage().count("Traceback") for record in caplog.records] == [1, 1]
    for text in (*map(str, found.values()), *(repr(error.args) for error in found.values()), caplog.text):
        assert SECRET not in text
        assert "me:" not in text


def test_texts_without_secrets() -> None:
    url = "postgresql://me:a%40b@localhost/shop?sslpassword=other"
    assert without_secrets(f"{url}: a@b, a%40b, other", url) == "the log: ***, ***, ***"
    assert without_secrets("a is in data", "a") == "the log is in data"
    assert without_secrets("http://[ is no URL", "http://[") == "the log is no URL"


def test_closing_fails_all_callers() -> None:
    async def run_jobs() -> None:
        worker = WorkerProcess("shop.db")
        await worker.close()
        with pytest.raises(Unavailable, match="is stopping"):
            await worker.run(process_id)
        worker = WorkerProcess("shop.db")
        await worker.run(process_id)
        running = [asyncio.create_task(worker.run(sleep, 600)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await worker.close()
        for task in running:
            with pytest.raises(Unavailable, match="is stopping"):
                await task

    run(run_jobs())


def test_an_idle_worker_exits() -> None:
    async def run_jobs() -> None:
        async with started(idle_timeout=0.3) as worker:
            child = await worker.run(process_id)
            while exists(child):
                await asyncio.sleep(0.05)
            assert await worker.run(process_id) != child

    run(run_jobs())


PARENT = """
import asyncio, sys
from maillard.service.worker_process import WorkerProcess
from tests.service import test_worker_process as work

async def run_jobs():
    worker = WorkerProcess("shop.db")
    print(await worker.run(work.process_id), flush=True)
    await (worker.run(work.loop_forever, sys.argv[1]) if sys.argv[1:] else asyncio.sleep(600))

if __name__ == "__main__":
    asyncio.run(run_jobs())
"""


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_the_worker_does_not_outlive_its_parent(busy: bool, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), *([str(marker)] if busy else [])]
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            if busy:
                wait_for(lambda: marker.exists() and marker.read_text())
            assert exists(child)
        finally:
            parent.kill()
    try:
        wait_for(lambda: ended(child))
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
