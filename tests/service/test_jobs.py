from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard import (
    Bandit,
    Conflict,
    InvalidValue,
    MaillardError,
    Paused,
    Reward,
    Unavailable,
    UnknownName,
    evaluate,
    read_log,
    replay,
)
from maillard.service.jobs import check, export, what_if
from maillard.service.worker_process import JobFailed, WorkerProcess, without_secrets

UNIT_RANGE = Reward(low=0, high=1)
TRUTH = {"red": 0.2, "green": 0.35, "blue": 0.5}
SECRET = "Sesame-17"
TARGETS = ["arm:green", "uniform", "dist:red=0.75,blue=0.25"]


def fill(
    where: Path | str, policy: str, decisions: int = 600, reward: Reward = UNIT_RANGE, truth=TRUTH, batch=20
) -> str:
    """A log of live decisions, whose rewards are drawn by `truth`."""
    rng = random.Random(1)
    with Bandit(list(truth), policy, reward=reward, log=where, experiment="home") as bandit:
        for _ in range(decisions // batch):
            rows = [
                {"decision_id": each.id, "value": float(rng.random() < truth[each.arm])}
                for each in bandit.choose(size=batch)
            ]
            bandit.rewards(rows)
    return str(where)


@pytest.fixture(scope="module")
def floored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with a floor under its probabilities."""
    return fill(tmp_path_factory.mktemp("logs") / "floored.db", "ms+:floor=0.5")


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One without, of two arms that are far apart."""
    where = tmp_path_factory.mktemp("logs") / "free.db"
    return fill(where, "ms+", truth={"bad": 0.05, "good": 0.95})


def asked(database: str, target: Any, *more: Any, experiment: str = "home") -> dict[str, Any]:
    """The answer, of which every part is a value of JSON and none says where the log is."""
    answer = what_if(database, experiment, target, *more)
    assert database not in json.dumps(answer, allow_nan=False)
    assert answer["answered"] == (answer["refusal"] is None)
    return answer


# What another choice would have earned.


@pytest.mark.parametrize("target", TARGETS)
def test_an_answer_is_the_estimate_to_read_first(floored: str, target: str) -> None:
    report = evaluate(floored, target, confidence=0.9)
    answer = asked(floored, target, None, 0.9)
    best = report.best
    assert best is not None
    told = {name: answer[name] for name in ("value", "lower", "upper", "assumes", "caveat")}
    assert told == {name: getattr(best, name) for name in told}
    assert (answer["estimator"], answer["kind"], answer["confidence"]) == (best.name, "evaluation", 0.9)
    assert (answer["target"], answer["experiment"], answer["rows"]) == (target, "home", 600)
    whole = report.to_dict()
    del whole["source"]
    assert answer["details"] == json.loads(json.dumps(whole))
    with read_log(floored) as log:
        assert answer["logged_mean"] == pytest.approx(np.mean([log.reward_of(row) for row in log.rows()]))


def test_jobs_in_words(floored: str) -> None:
    assert [asked(floored, each, ["snips"])["question"] for each in TARGETS] == [
        "had 'green' been always shown",
        "had all arms been shown equally often",
        "had the arms been shown in these shares: 'red' 0.75, 'blue' 0.25",
    ]
    assert asked(floored, "kl-ms")["question"] == "had the policy been kl-ms"


def test_arms_are_meant_by_what_they_are_called(tmp_path: Path) -> None:
    names = ["1", "a,b", "it's 'so'", "arm:x", "floor=0.1", " "]
    log = fill(
        tmp_path / "log.db", "uniform", 120, truth={name: place / 8 for place, name in enumerate(names)}
    )
    for name in names:
        answer = asked(log, f"arm:{name}", ["cs-betting"])
        assert answer["question"] == f"had {name!r} been always shown"
        assert (
            answer["value"]
            == evaluate(log, f"arm:'{name.replace(chr(39), chr(39) * 2)}'")["cs-betting"].value
        )
    with pytest.raises(InvalidValue, match="of the arms '1'"):
        asked(log, "arm:2")  # which is a place, and no name


def test_rows_in_which_the_arm_was_not_eligible_are_not_in_the_mean(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    with Bandit(list(TRUTH), "uniform", reward=UNIT_RANGE, log=log, experiment="home") as bandit:
        for eligible, value in ((["red", "blue"], 1.0), (["green", "blue"], 0.0)):
            for decision in bandit.choose(size=50, eligible=eligible):
                bandit.reward(decision.id, value)
    answer = asked(log, "arm:green", ["cs-betting"])
    assert (answer["rows"], answer["logged_mean"]) == (50, 0.0)


def test_a_tiny_log_without_a_range_is_refused(tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    with Bandit(list(TRUTH), "ms:sigma2=1", log=log, experiment="home") as bandit:
        for number in range(6):
            bandit.reward(bandit.choose().id, number % 2)
    answer = asked(log, "uniform")
    nothing = [answer[name] for name in ("estimator", "value", "lower", "upper")]
    assert (answer["answered"], answer["rows"], answer["logged_mean"], nothing) == (False, 6, 0.5, [None] * 4)
    assert "The estimate to read first would be" in answer["refusal"]
    assert "even uniform choices (floor=1) would have needed 30 rows; there are 6" in answer["refusal"]
    assert "a lowest and a highest value" in answer["refusal"]
    assert "A floor in the policy" in answer["refusal"]
    assert set(answer["details"]["refusals"]) == set(answer["details"]["estimates"])


def test_a_log_without_support_is_refused(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ucb1", 200, batch=1)
    answer = asked(log, "uniform")
    assert not answer["answered"]
    assert answer["refusal"].startswith(
        "The log cannot answer: what the target chooses could not have been drawn"
    )
    assert "A floor in the policy" in answer["refusal"]


def test_an_estimate_with_a_caveat_is_told_in_words(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ms+:floor=0.5", 400)
    with Bandit(list(TRUTH), "ms+:floor=0.5", reward=UNIT_RANGE, log=log, experiment="home") as bandit:
        bandit.choose(size=4)  # nobody says what became of them
    answer = asked(log, "arm:blue")
    first = answer["details"]["estimates"]["aipw-two-point"]
    assert not answer["answered"]
    assert f"It is {first['value']:.4g}, from {first['lower']:.4g}" in answer["refusal"]
    assert "1.0% of the rows have no reward" in answer["refusal"]


def test_logs_with_nothing_to_tell_from(tmp_path: Path) -> None:
    log, window = str(tmp_path / "log.db"), Reward(low=0, high=1, window=3600)
    with Bandit(["red", "blue"], "uniform", reward=window, log=log, experiment="home") as bandit:
        none = [asked(log, target) for target in ("arm:red", "ms+")]
        decisions = bandit.choose(size=40)
        for decision in decisions:
            bandit.reward(decision.id, 1.0)
        early = [asked(log, target) for target in ("arm:red", "ms+")]
    assert "has made no decision yet" in none[0]["refusal"]
    assert "no decision has a reward" in none[1]["refusal"]
    for answer in early:
        assert "after 3600 seconds: ask again then" in answer["refusal"]
    assert "no row has a final reward (40 window not closed)" in early[0]["refusal"]
    for answer in none + early:
        assert (answer["answered"], answer["rows"], answer["logged_mean"]) == (False, 0, None)


def test_a_policy_that_learns_is_replayed(floored: str) -> None:
    answer = asked(floored, "ms+:booster=16", None, 0.8)
    found = replay(floored, "ms+:booster=16", confidence=0.8)
    told = answer["value"], answer["lower"], answer["upper"], answer["logged_mean"], answer["rows"]
    assert told == (found.mean[-1], found.lower[-1], found.upper[-1], found.logged_mean, found.rows)
    assert (answer["kind"], answer["estimator"]) == ("replay", "rejection")
    assert answer["assumes"] == "; ".join(found.assumes)
    assert f"the policy's first {found.rounds[-1]} rounds" in answer["caveat"]
    own = replay(floored, "ms+:floor=0.5", confidence=0.8)
    assert f"replayed in the same way, has a mean from {own.lower[-1]:.4g}" in answer["caveat"]
    assert answer["details"]["own"]["mean"][-1] == own.mean[-1]


def test_a_replay_that_has_but_bounds(free: str) -> None:
    answer = asked(free, "ms+:booster=16")
    found = replay(free, "ms+:booster=16")
    assert np.isnan(found.mean[-1])
    assert (answer["value"], answer["lower"], answer["upper"]) == (None, found.lower[-1], found.upper[-1])
    assert f"but bounds, from {found.least[-1]:.4g} to {found.most[-1]:.4g}" in answer["caveat"]
    wide = asked(free, "epsilon-greedy:epsilon=1")
    assert "The log has no reward for" in wide["refusal"]
    assert (wide["value"], wide["lower"]) == (None, None)


def test_a_replay_that_is_refused(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ms:sigma2=1", 60, Reward())
    answer = asked(log, "ts:sigma2=1")
    assert answer["refusal"].startswith("No way to replay this log: no constant floor")


WRONG: list[tuple[Any, type[MaillardError], str]] = [
    ("arm:purple", UnknownName, "arm: unknown name 'purple'"),
    ("dist:purple=1", UnknownName, "arm: unknown name 'purple'"),
    ("dist:red=0.5", InvalidValue, "target: expected .* add up to 1"),
    ("dist:0.5,0.3,0.2", InvalidValue, "target: expected .*NAME=SHARE"),
    ("arm:0", InvalidValue, "target: expected arm:NAME"),
    ("arm", InvalidValue, "target: expected arm:NAME"),
    ("blue", InvalidValue, "arm:blue, if the arm of that name is meant"),
    ("ms++", UnknownName, "Did you mean 'ms\\+'"),
    ("no such thing", InvalidValue, "target: expected arm:NAME, uniform"),
    ("", InvalidValue, "target: expected"),
    (7, InvalidValue, "target: expected"),
    ("ms+:boster=3", UnknownName, "Did you mean 'booster'"),
    ("arm:red,floor=1,floor_decay=0.7", InvalidValue, "no floor_decay"),
]


@pytest.mark.parametrize(("target", "kind", "message"), WRONG)
def test_targets_that_are_wrong(floored: str, target: Any, kind: type[MaillardError], message: str) -> None:
    with pytest.raises(kind, match=message):
        what_if(floored, "home", target)


def test_jobs_that_are_wrong(floored: str, tmp_path: Path) -> None:
    for target in ("arm:red", "ms"):
        with pytest.raises(InvalidValue, match="confidence"):
            what_if(floored, "home", target, None, 1.5)
    with pytest.raises(UnknownName, match="Did you mean 'snips'"):
        what_if(floored, "home", "arm:red", ["snip"])
    with pytest.raises(InvalidValue, match="it is replayed"):
        what_if(floored, "home", "ms", ["snips"])
    with pytest.raises(UnknownName, match="Did you mean 'home'"):
        what_if(floored, "hom", "arm:red")
    with pytest.raises(Unavailable, match="cannot be opened now"):
        what_if(str(tmp_path / "gone.db"), "home", "arm:red")


# Whether the log holds, and all of it as a file.


def test_a_log_is_checked(floored: str, tmp_path: Path) -> None:
    found = check(floored, "home")
    assert (found["verdict"], found["decisions"], found["recomputed"]) == ("consistent", 600, 600)
    assert (found["problems"], found["problem_count"]) == ([], 0)
    assert [each["arm"] for each in found["arms"]] == list(TRUTH)
    assert all(abs(each["z"]) < 5 for each in found["arms"])
    log = fill(tmp_path / "log.db", "ms+:floor=0.5", 60)
    with closing(sqlite3.connect(log)) as file, file:
        file.execute("UPDATE decisions SET log_probability = log_probability - 0.5")
    broken = check(log, "home")
    assert broken["verdict"] == "broken"
    assert broken["problem_count"] >= 60
    assert set(broken["problems"][0]) == {"decision", "what"}
    assert log not in json.dumps(broken, allow_nan=False)


def test_a_log_that_cannot_be_read_is_a_problem_that_does_not_say_where(tmp_path: Path) -> None:
    log = fill(tmp_path / "log.db", "ms", 20)
    with closing(sqlite3.connect(log)) as file, file:
        file.execute("DELETE FROM events WHERE number = 1")
    found = check(log, "home")
    assert (found["verdict"], found["problem_count"]) == ("broken", 1)
    assert "the log cannot be read: the log: " in found["problems"][0]["what"]
    assert log not in json.dumps(found)


def test_a_log_is_exported(floored: str, tmp_path: Path) -> None:
    export(floored, "home", tmp_path / "home.parquet")
    copy = read_log(tmp_path / "home.parquet")
    assert [row.decision.id for row in copy.rows()] == [row.decision.id for row in read_log(floored).rows()]
    assert list(tmp_path.iterdir()) == [tmp_path / "home.parquet"]


# The child process. What it is asked is found by its name in this module.


def whoami(database: str) -> int:
    return os.getpid()


def nap(database: str, seconds: float) -> None:
    time.sleep(seconds)


def spin(database: str, note: str) -> None:
    """Work that never lets go of the interpreter's lock by itself."""
    Path(note).write_text(str(os.getpid()))
    while True:
        pass


def circumstances(database: str) -> dict[str, Any]:
    return {
        "database": database,
        "nice": os.nice(0),
        "interrupts": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "arguments": Path("/proc/self/cmdline").read_bytes(),
        "environment": Path("/proc/self/environ").read_bytes(),
    }


def large(database: str, size: int) -> bytes:
    return bytes(size)


def die(database: str) -> None:
    os._exit(3)


class Strange(InvalidValue):
    """One of a module that the parent would have to import."""


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


def fail(database: str, how: str) -> None:
    raise RAISED[how](database)


def there(pid: int) -> bool:
    """Whether a process exists, as a zombie or not."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def ended(pid: int) -> bool:
    """Whether a process that is nobody's runs no more; who buries it is not known here."""
    status = Path(f"/proc/{pid}/stat")
    return not there(pid) or status.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


@asynccontextmanager
async def opened(database: str = "shop.db", **options: Any):
    """A pool whose child is there."""
    pool = WorkerProcess(database, **{"timeout": 60.0} | options)
    try:
        await pool.run(whoami)
        yield pool
    finally:
        await pool.close()


def run(coroutine: Coroutine[Any, Any, Any], loops: Callable[[], Any] | None = None) -> Any:
    """Run it; what it started has ended with it."""
    before = threading.enumerate()
    with asyncio.Runner(loop_factory=loops) as runner:
        made = runner.run(asyncio.wait_for(coroutine, 120))
    assert threading.enumerate() == before
    return made


def fast_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


LOOPS = pytest.mark.parametrize("loops", [None, fast_loop], ids=["asyncio", "uvloop"])


@LOOPS
def test_a_question_to_the_child(floored: str, loops) -> None:
    async def ask() -> Any:
        pool = WorkerProcess(floored)
        try:
            return [
                await pool.run(what_if, "home", "arm:green", ["snips"], 0.9),
                await pool.run(check, "home"),
                await pool.run(whoami),
                await pool.run(whoami),
                len(await pool.run(large, 5_000_000)),
            ]
        finally:
            await pool.close()

    answer, checked, pid, again, size = run(ask(), loops)
    assert answer == what_if(floored, "home", "arm:green", ["snips"], 0.9)
    assert checked == check(floored, "home")
    assert pid == again != os.getpid()
    assert not there(pid)
    assert size == 5_000_000


def test_a_job_that_takes_too_long_is_killed_with_its_child() -> None:
    async def ask() -> tuple[int, int]:
        async with opened() as pool:
            first = await pool.run(whoami)
            pool.timeout = 0.3
            with pytest.raises(Unavailable, match=r"took more than 0\.3 seconds"):
                await pool.run(nap, 600)
            pool.timeout = 60
            second = await pool.run(whoami)
            assert not there(first)
            return first, second

    first, second = run(ask())
    assert first != second
    assert not there(second)


def test_twenty_callers_and_some_too_many() -> None:
    order: list[int] = []

    async def call(pool: WorkerProcess, number: int) -> Any:
        try:
            await pool.run(nap, 0.01)
        except Unavailable as error:
            return str(error)
        order.append(number)
        return None

    async def ask() -> list[Any]:
        async with opened(waiting=19) as pool:
            return await asyncio.gather(*(call(pool, number) for number in range(25)))

    assert run(ask()) == [None] * 20 + ["19 questions are waiting already; ask again in a while"] * 5
    assert order == list(range(20))


def test_who_waits_too_long_for_others_is_told() -> None:
    async def ask() -> None:
        async with opened() as pool:
            first = asyncio.create_task(pool.run(nap, 1.0))
            await asyncio.sleep(0)
            pool.timeout = 0.2
            with pytest.raises(Unavailable, match=r"other questions have taken more than 0\.2 seconds"):
                await pool.run(whoami)
            pool.timeout = 60
            assert await pool.run(whoami)  # the turn was not lost
            await first

    run(ask())


def test_a_child_that_dies_is_made_anew() -> None:
    async def ask() -> None:
        async with opened() as pool:
            first = await pool.run(whoami)
            with pytest.raises(Unavailable, match="ended before it had answered"):
                await pool.run(die)
            second = await pool.run(whoami)
            os.kill(second, signal.SIGKILL)  # while it has nothing to do
            while multiprocessing.active_children():
                await asyncio.sleep(0.02)
            third = await pool.run(whoami)
            assert len({first, second, third}) == 3
            assert [pid for pid in (first, second) if there(pid)] == []

    run(ask())


@LOOPS
def test_a_caller_that_goes_away_takes_its_job_along(loops) -> None:
    async def ask() -> None:
        async with opened() as pool:
            first = await pool.run(whoami)
            running = asyncio.create_task(pool.run(nap, 600))
            waiting = asyncio.create_task(pool.run(nap, 600))
            patient = asyncio.create_task(pool.run(whoami))
            await asyncio.sleep(0.1)
            waiting.cancel()  # it has no child yet
            await asyncio.sleep(0.1)
            assert there(first)
            running.cancel()
            assert await patient != first
            assert not there(first)
            for task in (running, waiting):
                with pytest.raises(asyncio.CancelledError):
                    await task

    run(ask(), loops)


def test_the_child_is_humble_and_its_errors_keep_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    url = f"postgresql://me:{SECRET}@localhost/shop"

    async def ask() -> tuple[Any, dict[str, Any]]:
        found: dict[str, Any] = {}
        async with opened(url) as pool:
            child = await pool.run(circumstances)
            for how in RAISED:
                with pytest.raises(MaillardError) as caught:
                    await pool.run(fail, how)
                found[how] = caught.value
        return child, found

    with caplog.at_level(logging.ERROR):
        child, found = run(ask())
    assert (child["database"], child["nice"], child["interrupts"]) == (url, os.nice(0) + 10, True)
    assert SECRET.encode() not in child["arguments"] + child["environment"]
    kinds = [
        InvalidValue,
        UnknownName,
        Paused,
        Conflict,
        InvalidValue,
        InvalidValue,
        JobFailed,
        JobFailed,
    ]
    assert [type(error) for error in found.values()] == kinds
    for how in ("invalid", "unknown", "paused", "conflict"):
        assert str(found[how]) == str(RAISED[how](""))
        assert vars(found[how]) == vars(RAISED[how](""))
    assert found["strange"].value == "array([0, 1, 2])"
    assert found["secret"].allowed == "another than the log"
    assert str(found["unexpected"]) == "the question could not be answered: an unexpected ZeroDivisionError"
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


def test_the_end_of_a_pool() -> None:
    async def ask() -> None:
        pool = WorkerProcess("shop.db")
        await pool.close()
        with pytest.raises(Unavailable, match="is ending"):
            await pool.run(whoami)
        pool = WorkerProcess("shop.db")
        child = await pool.run(whoami)
        running = [asyncio.create_task(pool.run(nap, 600)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await pool.close()
        assert not there(child)
        for task in running:
            with pytest.raises(Unavailable, match="is ending"):
                await task

    run(ask())


def test_a_child_that_is_not_needed_goes() -> None:
    async def ask() -> None:
        async with opened(idle=0.3) as pool:
            child = await pool.run(whoami)
            while there(child):
                await asyncio.sleep(0.05)
            assert await pool.run(whoami) != child

    run(ask())


PARENT = """
import asyncio, sys
from maillard.service.worker_process import WorkerProcess
from tests.service import test_jobs as work

async def ask():
    pool = WorkerProcess("shop.db")
    print(await pool.run(work.whoami), flush=True)
    await (pool.run(work.spin, sys.argv[1]) if sys.argv[1:] else asyncio.sleep(600))

if __name__ == "__main__":
    asyncio.run(ask())
"""


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_child_does_not_outlive_its_parent(busy: bool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), *([str(note)] if busy else [])]
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            if busy:
                wait_for(lambda: note.exists() and note.read_text())
            assert there(child)
        finally:
            parent.kill()
    try:
        wait_for(lambda: ended(child))
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_log_in_postgresql(postgres: str, tmp_path: Path) -> None:
    fill(postgres, "ms+:floor=0.5", 120)
    url = postgres.replace("postgres@", f"postgres:{SECRET}@")

    async def ask() -> list[Any]:
        async with opened(url) as pool:
            await pool.run(export, "home", str(tmp_path / "home.parquet"))
            return [await pool.run(what_if, "home", "arm:blue", None, 0.95), await pool.run(check, "home")]

    async def ask_another() -> str:
        async with opened(url.replace("?", "-which-is-not-there?")) as pool:
            with pytest.raises(Unavailable) as caught:
                await pool.run(check, "home")
            return str(caught.value)

    answer, checked = run(ask())
    report = evaluate(postgres, "arm:blue")
    assert report.best is not None
    assert (answer["estimator"], answer["value"]) == (report.best.name, report.best.value)
    assert (checked["decisions"], checked["recomputed"], checked["problem_count"]) == (120, 120, 0)
    assert len(list(read_log(tmp_path / "home.parquet").rows())) == 120
    assert "postgresql:" not in json.dumps([answer, checked])
    message = run(ask_another())
    assert "does not exist" in message
    assert SECRET not in message
