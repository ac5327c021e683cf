"""Decisions that `verify` checks and exports write per second, each with a reward event and a tally update.

The baseline reads the columns that `verify` needs from the same file, with plain calls of `fetchmany`, and
does nothing with them. CPU seconds include those of other threads, and of the process that checks the hash
chain of a large log. An increment is the second half of the log, after the first half was exported.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decisions import FEATURES, context
from maillard.decisions import Bandit, Decision, Reward, export_changes, read_log, verify, write_log
from maillard.decisions.decision import RewardEvent
from maillard.decisions.events import TallyUpdate
from maillard.decisions.identifiers import new_ids
from maillard.decisions.state import State
from maillard.decisions.stores.bulk_reads import DECISION_TYPES, REWARD_TYPES, UPDATE_TYPES
from maillard.decisions.stores.contract import Head
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.sqlite import SQLiteStore

ARMS = [f"arm-{i}" for i in range(10)]
MEANS = np.linspace(0.1, 0.6, len(ARMS))
DECISIONS = 1_000_000
CONTEXT_DECISIONS = 20_000
COMMIT = 20  # decisions, which share a state
SPECS = ("ms+", "kl-ms+:floor=0.1")
LINKS = "number", "hash", "time", "first_event", "events", "decisions", "rewards"


def make_log(path: Path, spec: str, decisions: int, seed: int = 0) -> None:
    """Add many commits of 20 decisions, their rewards and their updates to a log, in one transaction."""
    rng = np.random.default_rng(seed)
    store = SQLiteStore(path, synchronous="OFF")
    with Bandit(ARMS, spec, reward=Reward(low=0, high=1), log=store) as bandit:
        state = bandit.state
    with store.transaction("default", lock=True) as transaction:
        for _ in range(0, decisions, COMMIT):
            rows = chosen(state, rng, transaction.now)
            values = rng.binomial(1, MEANS[[ARMS.index(row.arm) for row in rows]]).astype(float).tolist()
            pairs = list(zip(rows, values, strict=True))
            transaction.add_decisions(rows)
            transaction.add_reward_events(
                [RewardEvent(row.id, row.id, value, row.time, row.time) for row, value in pairs]
            )
            events = [
                TallyUpdate(state.number + place, "reward", row.time, row.id, row.arm, value)
                for place, (row, value) in enumerate(pairs, 1)
            ]
            state = state.after(events)
            transaction.add_events(events, Head(state.number, 1, 1))
            transaction.write_link()
    store.close()


def chosen(state: State, rng: np.random.Generator, now: int) -> list[Decision]:
    """Decisions in a state."""
    given = state.choice_distribution()
    p = given.probabilities / given.probabilities.sum()
    return [
        Decision(
            key, "default", now, None, given.arms[arm], given.arms, given.log_probabilities,
            given.log_probabilities[arm], 1, state.policy.formula_version, state.number, 1, given.cold[arm],
        )
        for key, arm in zip(new_ids(COMMIT), rng.choice(len(ARMS), COMMIT, p=p).tolist(), strict=True)
    ]  # fmt: skip


CONTEXTS: dict[str, dict[str, Any]] = {
    "none": {"policy": "ms+:floor=0.1"},
    "stored": {"policy": "ms+:floor=0.1"},
    "segments, kl-ms+": {"policy": "kl-ms+", "segments": ["device"]},
    "features, lin-ms": {"policy": "lin-ms:floor=0.1", "features": FEATURES},
    "features, lin-ts": {"policy": "lin-ts:floor=0.1", "features": FEATURES},
}


def make_context_log(path: Path, use: dict[str, Any], decisions: int, *, contexts: bool) -> None:
    """Create a log in which 20 decisions share a state."""
    rng, store = np.random.default_rng(0), SQLiteStore(path, synchronous="OFF")
    with Bandit(ARMS, reward=Reward(low=0, high=1), log=store, **use) as bandit:
        for _ in range(0, decisions, COMMIT):
            if contexts:
                rows = bandit.choose(context=[context(rng) for _ in range(COMMIT)])
            else:
                rows = bandit.choose(size=COMMIT)
            values = rng.binomial(1, MEANS[[ARMS.index(row.arm) for row in rows]]).astype(float).tolist()
            bandit.rewards(
                [{"decision": row.id, "value": value} for row, value in zip(rows, values, strict=True)]
            )
    store.close()


def with_contexts(decisions: int) -> list[dict[str, Any]]:
    """Decisions with contexts that `verify` checks per CPU second."""
    rows = []
    print(f"{'contexts':20s} {'decisions':>10s} {'rows/CPU s':>12s}")
    for name, use in CONTEXTS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log.db")
            make_context_log(path, use, decisions, contexts=name != "none")
            found, cpu, _ = measure(lambda where=path: verify(where))  # type: ignore[misc]
        assert found.recomputed == found.decisions == decisions
        assert not found.problems
        rows.append({"contexts": name, "what": "verify", "decisions": decisions, "cpu": cpu})
        print(f"{name:20s} {decisions:10,d} {decisions / cpu:12,.0f}", flush=True)
    return rows


def read_columns(path: Path) -> None:
    """Read the columns of all tables that `verify` needs."""
    tables = {
        "decisions": DECISION_TYPES,
        "rewards": REWARD_TYPES,
        "events": UPDATE_TYPES,
        "vectors": ("state", "variant", "arms", "data"),
        "links": LINKS,
    }
    connection = sqlite3.connect(path)
    for table, columns in tables.items():
        cursor = connection.execute(f"SELECT {', '.join(columns)} FROM {table}")
        while cursor.fetchmany(50_000):
            pass
    connection.close()


def measure(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result of a call, its CPU seconds, including child processes, and its seconds."""

    def used() -> float:
        return sum(os.times()[:4])

    cpu, started = used(), time.perf_counter()
    found = call()
    return found, used() - cpu, time.perf_counter() - started


def export(path: Path) -> None:
    """Write the log to a Parquet file."""
    with read_log(path) as log:
        write_log(log, path.with_suffix(".parquet"))


def main() -> None:
    """Print the tables and write them as JSON. The number of decisions may be given.

    With the arguments `contexts` and a number, only logs with contexts are verified.
    """
    if sys.argv[1:2] == ["contexts"]:
        with_contexts(int(sys.argv[2]) if len(sys.argv) > 2 else CONTEXT_DECISIONS)
        return
    decisions = int(sys.argv[1]) if len(sys.argv) > 1 else DECISIONS
    half, rows = decisions // 2, []
    compiled = loops(build=True) is not None  # not part of any measurement
    print(f"compiled reads: {'yes' if compiled else 'no'}")
    heads = f"{'rows/s':>10s} {'rows/CPU s':>10s} {'seconds':>8s} {'ratio to reading':>17s}"
    print(f"{'policy':20s} {'':16s} {heads}")
    for spec in SPECS:
        with tempfile.TemporaryDirectory() as folder:
            path, exported = Path(folder, "log.db"), Path(folder, "exported")
            make_log(path, spec, half)
            export_changes(path, exported)
            make_log(path, spec, decisions - half, seed=1)
            _, floor, _ = measure(lambda where=path: read_columns(where))  # type: ignore[misc]
            calls: dict[str, tuple[int, Callable[[Path], Any]]] = {
                "verify": (decisions, verify),
                "Parquet export": (decisions, export),
                "increment": (decisions - half, lambda where, to=exported: export_changes(where, to)),  # type: ignore[misc]
            }
            for name, (count, call) in calls.items():
                found, cpu, wall = measure(lambda where=path, run=call: run(where))  # type: ignore[misc]
                if name == "verify":
                    assert found.recomputed == found.decisions == decisions
                    assert not found.problems
                ratio = cpu / floor * decisions / count
                rows.append({
                    "policy": spec, "what": name, "decisions": count, "cpu": cpu, "seconds": wall,
                    "floor_cpu": floor, "compiled": compiled,
                })  # fmt: skip
                rates = f"{count / wall:10,.0f} {count / cpu:10,.0f}"
                print(f"{spec:20s} {name:16s} {rates} {wall:8.1f} {ratio:17.2f}", flush=True)
    rows += with_contexts(CONTEXT_DECISIONS)
    Path(__file__).with_name("verification.json").write_text(json.dumps(rows, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
