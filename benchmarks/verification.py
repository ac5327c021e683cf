"""Rows that `verify` checks per second: a decision, a reward event and a tally update each.

The baseline reads the columns that `verify` needs from the same file, with plain calls of `fetchmany`, and
does nothing with them. CPU seconds include those of the process that checks the hash chain of a large log.
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

from maillard.decisions import Bandit, Decision, Reward, verify
from maillard.decisions.decision import RewardEvent
from maillard.decisions.events import TallyUpdate
from maillard.decisions.identifiers import new_ids
from maillard.decisions.state import State
from maillard.decisions.stores.bulk_reads import DECISION_TYPES, REWARD_TYPES, UPDATE_TYPES
from maillard.decisions.stores.contract import Head
from maillard.decisions.stores.sqlite import SQLiteStore

ARMS = [f"arm-{i}" for i in range(10)]
MEANS = np.linspace(0.1, 0.6, len(ARMS))
DECISIONS = 1_000_000
COMMIT = 20  # decisions, which share a state
SPECS = ("ms+", "kl-ms+:floor=0.1")
LINKS = "number", "hash", "time", "first_event", "events", "decisions", "rewards"


def make_log(path: Path, spec: str, decisions: int) -> None:
    """Write a log with many commits of 20 decisions, their rewards and their updates, in one transaction."""
    rng = np.random.default_rng(0)
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


def main() -> None:
    """Print the table and write it as JSON. The number of decisions may be given."""
    decisions = int(sys.argv[1]) if len(sys.argv) > 1 else DECISIONS
    rows = []
    print(f"{'policy':20s} {'rows/s':>10s} {'CPU s':>7s} {'seconds':>8s} {'ratio to reading':>17s}")
    for spec in SPECS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.db"
            make_log(path, spec, decisions)
            _, floor, _ = measure(lambda where=path: read_columns(where))  # type: ignore[misc]
            found, cpu, wall = measure(lambda where=path: verify(where))  # type: ignore[misc]
        assert found.recomputed == found.decisions == decisions
        assert not found.problems
        rows.append({"policy": spec, "decisions": decisions, "cpu": cpu, "seconds": wall, "floor_cpu": floor})
        print(f"{spec:20s} {decisions / wall:10,.0f} {cpu:7.1f} {wall:8.1f} {cpu / floor:17.2f}", flush=True)
    Path(__file__).with_name("verification.json").write_text(json.dumps(rows, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
