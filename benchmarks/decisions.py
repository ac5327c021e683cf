"""Decisions per second, each compared with a baseline measured in the same run.

The baseline of a durable choice inserts the same rows into the same tables and does nothing else: prepared
tuples, one thread, one commit per group. Repetitions of both alternate, so that load on the machine affects
both, and the reported ratio is the median of the repetitions.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from maillard import Features, Tally
from maillard.decisions import Bandit, Decision, Reward, read_log, write_log
from maillard.decisions.identifiers import new_ids
from maillard.decisions.stores.sql_chain import ADD_DECISION
from maillard.decisions.stores.sql_rows import write_decision
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.decisions.stores.vectors import vector_of

ARMS = [f"arm-{i}" for i in range(10)]
FEATURES = Features(
    {
        **{f"number-{i}": (0, 1) for i in range(12)},
        **{f"flag-{i}": bool for i in range(3)},
        "device": ["a", "b", "c"],
    }
)
THREADS = 16
REPETITIONS = 7
MIN_RATIO, MAX_P99, MIN_IN_MEMORY = 0.35, 0.010, 30_000


def bandit(log: Any) -> Bandit:
    """A bandit with ten arms that have observed rewards."""
    made = Bandit(ARMS, "ms+:booster=8", reward=Reward(low=0, high=1), log=log)
    made.warm_start(Tally(range(10, 20), np.arange(10.0, 20.0) / 2))
    return made


def choose(chooser: Bandit, threads: int, each: int, pairs: bool = False) -> tuple[float, list[float]]:
    """Calls per second, and the duration of each call."""
    taken: list[float] = []

    def run() -> None:
        mine = []
        for _ in range(each):
            started = time.perf_counter()
            decision = chooser.choose()
            if pairs:
                chooser.reward(decision.id, 0.5)
            mine.append(time.perf_counter() - started)
        taken.extend(mine)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * each / (time.perf_counter() - started), taken


def written(row: Decision) -> tuple[Any, ...]:
    """The row of the table of decisions, without the experiment."""
    return write_decision(row, None, vector_of(row.eligible, row.log_probabilities))


def raw_sqlite(store: SQLiteStore, rows: list[Decision], group: int) -> float:
    """Rows per second that plain inserts achieve, in groups, into a log that is as large as the other."""
    connection = store._write_connection()
    fresh = [row._replace(id=new) for row, new in zip(rows, new_ids(len(rows)), strict=True)]
    prepared = [(*written(row), 1) for row in fresh]
    started = time.perf_counter()
    for start in range(0, len(prepared), group):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(ADD_DECISION, prepared[start : start + group])
        connection.execute("COMMIT")
    return len(prepared) / (time.perf_counter() - started)


class Table:
    """Prints rows as they are added, and collects them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        print(f"{'what':44s} {'a second':>10s} {'ratio':>7s}  {'p50':>8s} {'p99':>8s}")

    def add(  # noqa: PLR0917  # the columns, in their order
        self, name: str, speed: float, ratio: float, beside: str, taken: list[float], verdict: str = ""
    ) -> None:
        """Add and print one row."""
        p50, p99 = np.quantile(taken, [0.5, 0.99])
        self.rows.append(
            {"name": name, "a_second": speed, "ratio": ratio, "beside": beside, "p50": p50, "p99": p99}
        )
        print(
            f"{name:44s} {speed:10,.0f} {ratio:7.2f}  {p50 * 1e3:5.2f} ms {p99 * 1e3:5.2f} ms  "
            f"{beside}{verdict}",
            flush=True,
        )


def paired(
    ours: Callable[[], tuple[float, list[float]]],
    floor: Callable[[], float],
    *,
    repetitions: int = REPETITIONS,
) -> tuple[float, float, list[float]]:
    """The median speed, the median ratio and all durations of alternating repetitions."""
    speeds, ratios, times = [], [], []
    for _ in range(repetitions):
        before = floor()
        speed, taken = ours()
        after = floor()
        speeds.append(speed)
        ratios.append(speed / ((before + after) / 2))
        times += taken
    return statistics.median(speeds), statistics.median(ratios), times


def met(condition: bool) -> str:
    """The text that says whether a limit was met."""
    return ": met" if condition else ": MISSED"


def in_memory(table: Table) -> None:
    """Choices, and choices with rewards, on one thread, compared with `policy.choose`."""
    for name, pairs in (("memory, 1 thread, choose", False), ("memory, 1 thread, choose and reward", True)):
        chooser = bandit(None)
        policy, tally, rng = chooser.policy, chooser.tally, np.random.default_rng(0)

        def bare(policy: Any = policy, tally: Tally = tally, rng: Any = rng) -> float:
            started = time.perf_counter()
            for _ in range(5_000):
                policy.choose(tally, rng)
            return 5_000 / (time.perf_counter() - started)

        speed, ratio, times = paired(lambda c=chooser, p=pairs: choose(c, 1, 10_000, p), bare)  # type: ignore[misc]
        limit = "" if pairs else f"; at least {MIN_IN_MEMORY:,}{met(speed >= MIN_IN_MEMORY)}"
        table.add(name, speed, ratio, "policy.choose alone", times, limit)


def on_sqlite(table: Table) -> None:
    """Durable choices, compared with plain inserts in groups of as many rows as there are threads."""
    with tempfile.TemporaryDirectory() as folder:
        chooser = bandit(Path(folder) / "log.db")
        raw = SQLiteStore(Path(folder) / "raw.db")
        rows = chooser.choose(size=16_000)
        raw_sqlite(raw, rows, len(rows))
        for threads, each, pairs in ((THREADS, 1_000, False), (THREADS, 300, True), (1, 1_000, False)):
            what = f"SQLite FULL, {threads} thread{'s' * (threads > 1)}, choose{' and reward' * pairs}"
            some = rows if threads > 1 else rows[:1_000]
            speed, ratio, times = paired(
                lambda t=threads, e=each, p=pairs: choose(chooser, t, e, p),  # type: ignore[misc]
                lambda t=threads, s=some: raw_sqlite(raw, s, t),  # type: ignore[misc]
            )
            limit = ""
            if threads > 1 and not pairs:
                p99 = float(np.quantile(times, 0.99))
                limit = (
                    f"; at least {MIN_RATIO}{met(ratio >= MIN_RATIO)}; p99 under 10 ms{met(p99 < MAX_P99)}"
                )
            table.add(what, speed, ratio, f"raw inserts in groups of {threads}", times, limit)
        raw.close()
        chooser.close()


def on_postgresql(table: Table) -> None:
    """The same with a PostgreSQL server on this machine."""
    import psycopg

    from tests.postgres import Server

    server = Server()
    try:
        chooser = bandit(server.url())
        rows = [(*written(row), 1) for row in chooser.choose(size=8_000)]
        statement = ADD_DECISION.replace("?", "%s").replace("decisions", "raw")

        def raw(group: int, some: list[Any]) -> float:
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS raw (LIKE maillard.decisions INCLUDING ALL)")
                connection.execute("TRUNCATE raw")
                started = time.perf_counter()
                for start in range(0, len(some), group):
                    with connection.transaction(), connection.cursor() as cursor:
                        cursor.executemany(statement, some[start : start + group])
                return len(some) / (time.perf_counter() - started)

        for threads, each in ((THREADS, 500), (1, 500)):
            some = rows if threads > 1 else rows[:1_000]
            speed, ratio, times = paired(
                lambda t=threads, e=each: choose(chooser, t, e),  # type: ignore[misc]
                lambda t=threads, s=some: raw(t, s),  # type: ignore[misc]
            )
            what = f"PostgreSQL, {threads} thread{'s' * (threads > 1)}, choose"
            table.add(what, speed, ratio, f"raw inserts in groups of {threads}", times)
        chooser.close()
    finally:
        server.release()


EXPORTED_TABLES = {  # the columns that an export reads
    "decisions": "id, time, unit, arm, log_probability, policy_version, formula_version, state, epoch, cold, "
    "idempotency_key, position, origin, variant",
    "rewards": "decision, event, value, at, arrived, late",
    "events": "decision, number, kind, time, value, previous",
    "vectors": "state, variant, arms, data",
}


def exports(table: Table, decisions: int = 1_000_000) -> None:
    """Decisions per second of an export to Parquet, compared with fetching the same columns with sqlite3.

    Every decision has a reward that was applied. A hundred decisions share a state.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        store, rng = SQLiteStore(path, synchronous="OFF"), np.random.default_rng(0)
        with Bandit(ARMS, "ms+:booster=8", reward=Reward(low=0, high=1), log=store) as chooser:
            for _ in range(decisions // 100):
                made = zip(chooser.choose(size=100), rng.random(100).tolist(), strict=True)
                chooser.rewards([{"decision": each.id, "value": value} for each, value in made])
        store.close()

        def fetched() -> float:
            started = time.perf_counter()
            with closing(sqlite3.connect(path)) as connection:
                for name, columns in EXPORTED_TABLES.items():
                    cursor = connection.execute(f"SELECT {columns} FROM {name}")
                    while cursor.fetchmany(10_000):
                        pass
            return decisions / (time.perf_counter() - started)

        def exported() -> tuple[float, list[float]]:
            with read_log(path) as log:
                started = time.perf_counter()
                write_log(log, Path(folder) / "log.parquet")
                taken = time.perf_counter() - started
            return decisions / taken, [taken]

        exported()  # imports pyarrow
        speed, ratio, times = paired(exported, fetched, repetitions=3)
        table.add("export to Parquet, SQLite", speed, ratio, "sqlite3 fetches of the same columns", times)


USES: dict[str, dict[str, Any]] = {
    "K arms, ms+": {"policy": "ms+:floor=0.1"},
    "a stored context, ms+": {"policy": "ms+:floor=0.1"},
    "segments, ms+": {"policy": "ms+:floor=0.1", "segments": ["device"]},
    "features, default policy": {"features": FEATURES},
    "features, lin-ms": {"features": FEATURES, "policy": "lin-ms"},
    "features, lin-ts": {"features": FEATURES, "policy": "lin-ts"},
}


def context(rng: np.random.Generator) -> dict[str, Any]:
    """A context with 16 attributes, which `FEATURES` encodes as 20 numbers."""
    numbers = {f"number-{i}": value for i, value in enumerate(rng.random(12).tolist())}
    flags = {f"flag-{i}": bool(rng.random() < 0.5) for i in range(3)}
    return {**numbers, **flags, "device": "abc"[rng.integers(3)]}


def cpu_of_decisions(chooser: Bandit, contexts: Sequence[Any], *, rewards: bool) -> float:
    """The CPU seconds of a decision with each context, and a reward after each decision."""
    started = time.process_time()
    for each in contexts:
        decision = chooser.choose(context=each)
        if rewards:
            chooser.reward(decision, 1.0)
    return (time.process_time() - started) / len(contexts)


def with_contexts(repetitions: int = REPETITIONS, each: int = 100) -> list[dict[str, Any]]:
    """CPU of durable decisions with contexts on one thread, divided by that of K-armed ones.

    A state of the K-armed bandit has one distribution, which is computed once. With a reward after every
    decision, every decision has a new state, and the linear model of the arm is factored again.
    """
    rng, rows = np.random.default_rng(0), []
    print(f"{'CPU of a decision on SQLite FULL, 1 thread':44s} {'decision':>16s} {'with a reward':>20s}")
    with tempfile.TemporaryDirectory() as folder:
        choosers = {}
        for place, (name, use) in enumerate(USES.items()):
            chooser = choosers[name] = Bandit(
                ARMS, reward=Reward(low=0, high=1), log=Path(folder) / f"{place}.db", **use
            )
            for _ in range(100):
                given = context(rng) if place else None
                chooser.reward(chooser.choose(context=given), float(rng.random() < 0.5))
        found: dict[tuple[str, bool], list[float]] = {}
        for rewards in (False, True):
            for _, (name, chooser) in itertools.product(range(repetitions), choosers.items()):
                contexts = [None if name == next(iter(USES)) else context(rng) for _ in range(each)]
                taken = cpu_of_decisions(chooser, contexts, rewards=rewards)
                found.setdefault((name, rewards), []).append(taken)
        for chooser in choosers.values():
            chooser.close()
    for name in USES:
        text = f"{name:44s}"
        for rewards in (False, True):
            mine, base = found[name, rewards], found[next(iter(USES)), rewards]
            ratio = statistics.median([one / other for one, other in zip(mine, base, strict=True)])
            cpu = statistics.median(mine)
            rows.append({"name": name, "with_reward": rewards, "cpu": cpu, "ratio": ratio})
            text += f" {cpu * 1e6:8,.0f} us {ratio:5.2f}"
        print(text, flush=True)
    return rows


def main() -> None:
    """Print the tables and write them as JSON; with the argument `contexts`, only that part."""
    if sys.argv[1:] == ["contexts"]:
        with_contexts()
        return
    table = Table()
    in_memory(table)
    on_sqlite(table)
    exports(table)
    on_postgresql(table)
    table.rows += with_contexts()
    Path(__file__).with_name("decisions.json").write_text(json.dumps(table.rows, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
