"""Functions that tests run in other processes: they choose and reward until they are done or killed."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from maillard import Features
from maillard.decisions import Bandit, Reward
from maillard.decisions.stores import open_store
from maillard.errors import Unavailable

RULE = Reward(combine="sum")  # any finite reward
POLICY = "ms:sigma2=1"
ARMS = ["red", "blue", "green"]
FEATURES = Features({"device": ["phone", "desktop"], "age": (18, 90)})
CONTEXTUAL = {"policy": "lin-ms:centre=0,sigma2=1", "features": FEATURES}


def race(log: str, keys: list[str], together: Any, result: Connection) -> None:
    """Choose once for each key, in several threads, and send the ids by key."""
    with Bandit(log=log) as bandit, ThreadPoolExecutor(6) as pool:
        together.wait(60)
        made = list(pool.map(lambda key: bandit.choose(unit=key, idempotency_key=key).id, keys))
    result.send(dict(zip(keys, made, strict=True)))


def line_writer(pipe: int) -> Callable[[str], None]:
    """A function that writes a line atomically."""

    def write_line(line: str) -> None:
        os.write(pipe, f"{line}\n".encode())

    return write_line


def choose_and_reward(bandit: Bandit, acknowledge: Callable[[str], None], times: Iterable[int]) -> None:
    """Report "d" or "r", the id and the content of each decision and reward that the bandit acknowledged."""
    for n in times:
        context = {"device": random.choice(["phone", "desktop", "watch"]), "age": random.randrange(100)}
        made = bandit.choose(unit=f"{os.getpid()}-{n}", context=context if bandit.state.context else None)
        acknowledge(f"d {made.id} {made.arm}")
        value = random.uniform(-1, 1)
        bandit.reward(made.id, value)
        acknowledge(f"r {made.id} {value!r}")


def until_killed(log: str, pipe: Connection, contextual: bool = False) -> None:
    """Choose and reward in four threads until the process is killed."""
    bandit = Bandit(ARMS, reward=RULE, log=log, **CONTEXTUAL if contextual else {"policy": POLICY})
    for _ in range(4):
        work = (bandit, line_writer(pipe.fileno()), iter(int, 1))
        threading.Thread(target=choose_and_reward, args=work).start()


def pickled(bandit: Bandit, pipe: Connection) -> None:
    """Use a bandit that was pickled in another process."""
    choose_and_reward(bandit, line_writer(pipe.fileno()), range(20))
    bandit.close()


def forked_children(log: str, pipe: Connection, parent_exits: bool) -> None:
    """Threads choose and reward while the process forks children that do the same with the same bandit."""
    bandit = Bandit(ARMS, POLICY, reward=RULE, log=log)
    acknowledge = line_writer(pipe.fileno())
    stop = threading.Event()
    threads = [
        threading.Thread(target=choose_and_reward, args=(bandit, acknowledge, iter(stop.is_set, True)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(4):
        choose_and_reward(bandit, acknowledge, range(5))
        children.append(_fork(bandit, acknowledge, 100 if parent_exits else 20))
    if not parent_exits:
        for child in children:
            _, status = os.waitpid(child, 0)
            acknowledge(f"x {child} {os.waitstatus_to_exitcode(status)}")
    stop.set()
    for thread in threads:
        thread.join()
    choose_and_reward(bandit, acknowledge, range(5))
    bandit.close()


def _fork(bandit: Bandit, acknowledge: Callable[[str], None], times: int) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(choose_and_reward, bandit, acknowledge, range(times)) for _ in range(2)]
            for each in work:
                each.result()
        arms = "".join(row.arm[0] for row in bandit.choose(size=64))
        acknowledge(f"s {os.getpid()} {arms}")
        bandit.close()
        status = 0
    finally:
        os._exit(status)


def fork_while_reading(log: str, pipe: Connection) -> None:
    """Fork while a log is read. The child tries to use the log and to open it again."""
    write_line = line_writer(pipe.fileno())
    bandit = Bandit(ARMS, POLICY, reward=RULE, log=log)
    choose_and_reward(bandit, write_line, range(5))
    rows = bandit._store.rows("default")
    next(rows)
    child = os.fork()
    if not child:
        for call in (bandit.choose, lambda: Bandit(log=log)):
            try:
                call()
            except Unavailable as error:
                write_line(f"u 0 {error}")
        os._exit(0)
    os.waitpid(child, 0)
    choose_and_reward(bandit, write_line, range(5))
    write_line(f"o 0 {len(list(rows))}")
    bandit.close()


def forked_memory(pipe: Connection) -> None:
    """Fork a child that tries to use a bandit whose log is in memory."""
    bandit = Bandit(ARMS, POLICY, reward=RULE)
    made = bandit.choose()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        for call in (bandit.choose, lambda: bandit.reward(made.id, 1.0), bandit.summary):
            try:
                call()
            except Unavailable as error:
                line_writer(pipe.fileno())(f"u {made.id} {error}")
    finally:
        os._exit(0)


def fill_disk(log: str, pipe: Connection) -> None:
    """Choose and reward while the file may not grow, and after it may grow again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails instead of killing the process
    write_line = line_writer(pipe.fileno())
    bandit = Bandit(ARMS, POLICY, reward=RULE, log=log)
    choose_and_reward(bandit, write_line, range(20))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for free in (0, 5_000, 50_000):
        size = Path(f"{log}-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + free, limits[1]))
        failures = 0
        while failures < 3:
            try:
                choose_and_reward(bandit, write_line, range(1))
            except Unavailable as error:
                failures += 1
                write_line(f"u {size} {error}")
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        choose_and_reward(bandit, write_line, range(20))
    bandit.close()
    write_line("x 0 0")


def without_rights(log: str, pipe: Connection, known: str) -> None:
    """Use a log as a user who may read it but not write it."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    write_line = line_writer(pipe.fileno())
    try:
        Bandit(log=log).choose()
    except Unavailable as error:
        write_line(f"u 0 {error}")
    store = open_store(log, read_only=True)
    with store.reading("default") as transaction:
        write_line(f"o 0 {transaction.decisions([known])[known].arm}")
    store.close()


def lock(path: str, locked: Any, enough: Any) -> None:
    """Lock a database until the event `enough` is set."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        locked.set()
        enough.wait(60)
        connection.execute("ROLLBACK")
