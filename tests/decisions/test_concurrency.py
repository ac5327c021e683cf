"""Eight processes choose and reward at once while arms, policy and epoch change; `verify` passes."""

from __future__ import annotations

import multiprocessing
import random
from typing import Any

import pytest

from maillard import Bandit, Reward, verify
from maillard.decisions.stores import Store
from maillard.decisions.stores.sqlite import SQLiteStore

MEANS = {"red": 0.3, "blue": 0.5, "green": 0.4, "late": 0.6}
# Each process is forked from one that has imported what they need, and that has opened nothing.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__, "psycopg", "numpy.random"])
CHOOSERS = 8


def patient(log: str) -> Store | str:
    """The log with a long timeout: SQLite does not queue writers, so on a busy machine one may wait long."""
    return log if log.startswith("postgresql://") else SQLiteStore(log, timeout=60)


def choose_and_reward(log: str, seed: int, decisions: int, staleness: float) -> None:
    """One process: choices of all sizes, for some or all arms; two thirds get rewards; it reopens once."""
    rng = random.Random(seed)
    left = decisions
    for remaining in (decisions // 2, 0):
        with Bandit(log=patient(log), experiment="shared", staleness=staleness) as bandit:
            while left > remaining:
                size = min(rng.choice((1, 1, 4, 32, 128)), left - remaining)
                some = rng.sample(bandit.arms, 2) if rng.random() < 0.2 else None
                try:
                    made = bandit.choose(size=size, eligible=some, unit=f"unit-{rng.randrange(1000)}")
                except ValueError:  # an arm was retired since it was looked up
                    continue
                left -= size
                bandit.rewards(
                    {"decision": each.id, "value": float(rng.random() < MEANS[each.arm])}
                    for each in made
                    if rng.random() < 2 / 3
                )


def interfere(log: str, steps: int) -> None:
    """Make administrative changes of every kind, one after the other."""
    with Bandit(log=patient(log), experiment="shared") as bandit:
        for step in range(steps):
            bandit.add_arm("late")
            bandit.choose(size=50)
            bandit.retire_arm("green")
            bandit.change_policy("ms" if step % 2 else "ms+:booster=4,floor=0.05")
            snapshot = bandit.snapshot()
            bandit.choose(size=50)
            bandit.reset()
            bandit.warm_start({"red": (20, 6.0)})
            bandit.choose(size=50)
            bandit.add_arm("green")
            bandit.restore(snapshot) if step % 2 else bandit.retire_arm("late")
            if step % 2:
                bandit.add_arm("green")
                bandit.retire_arm("late")


def run(target: Any, *arguments: Any) -> multiprocessing.process.BaseProcess:
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


def check(log: str, decisions: int) -> None:
    Bandit(
        ["red", "blue", "green"], "ms+:booster=8", reward=Reward(low=0, high=1), log=log, experiment="shared"
    ).close()
    workers = [
        run(choose_and_reward, log, seed, decisions // CHOOSERS, 0.0 if seed % 2 else 0.2)
        for seed in range(CHOOSERS)
    ]
    interfere(log, 10)
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * CHOOSERS

    found = verify(log)
    assert found.problems == []
    assert found.recomputed == found.decisions >= decisions
    assert found.largest_error <= 1e-12
    scores = {score.name: score.z for score in found.arms}
    assert set(scores) == set(MEANS)
    # No seed fixes how the processes interleave, so every run writes another log. A correct log exceeds
    # |z| = 7 in one of 10^11 runs.
    assert all(z is not None and abs(z) < 7 for z in scores.values()), scores
    assert found.weights is not None
    assert found.weights.z is None or abs(found.weights.z) < 7


def test_eight_processes_on_postgresql(postgres) -> None:
    check(postgres, 3_000)


def test_eight_processes_on_sqlite(tmp_path) -> None:
    check(str(tmp_path / "log.db"), 2_000)


@pytest.mark.torture
def test_eight_processes_a_million_decisions(postgres) -> None:
    check(postgres, 1_000_000)
