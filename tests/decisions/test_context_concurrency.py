"""Processes choose with contexts, and apply and revise rewards late, while arms and features change."""

from __future__ import annotations

import random
from typing import Any

import pytest

from maillard import Bandit, Features, Reward, verify
from maillard.errors import InvalidValue, UnknownName
from tests.decisions.test_concurrency import patient, run

DEVICES = ["phone", "desktop", "watch"]
FIRST = Features({"device": ["phone", "desktop"], "age": (18, 90)})
WIDER = Features({"device": ["phone", "desktop"], "age": (18, 90), "returning": bool})
RULE = Reward(low=0, high=1, combine="last")


def visit(log: str, seed: int, decisions: int, staleness: float) -> None:
    """One process: single choices and batches; two thirds get rewards, later, and some are revised."""
    rng, waiting, left = random.Random(seed), list[str](), decisions
    with Bandit(log=patient(log), experiment="shared", staleness=staleness) as bandit:
        while left > 0:
            context = {"device": rng.choice(DEVICES), "age": rng.randrange(100)}
            rule: Any = bandit.state.context
            if "returning" in rule.features.inputs:
                context["returning"] = rng.random() < 0.5
            size = min(rng.choice((1, 1, 1, 4, 16)), left)
            try:
                made = bandit.choose(unit=f"unit-{rng.randrange(200)}", context=context, size=size)
            except (InvalidValue, UnknownName):  # the features have changed since they were looked up
                bandit.session.refresh()
                continue
            left -= size
            waiting += [each.id for each in made if rng.random() < 2 / 3]
            if len(waiting) > 20:
                rng.shuffle(waiting)
                bandit.rewards(
                    {"decision": each, "value": float(rng.random() < 0.4), "event": event}
                    for each in waiting
                    for event in ("first", "second")[: rng.choice((1, 1, 2))]
                )
                waiting = []


def interfere(log: str, steps: int) -> None:
    """Add and retire arms, change the policy, and append a feature."""
    rng = random.Random(99)
    with Bandit(log=patient(log), experiment="shared") as bandit:
        for step in range(steps):
            bandit.add_arm("late")
            if step == steps // 2:
                bandit.change_features(WIDER)
            context = {"device": "phone", "age": rng.randrange(100)}
            if step >= steps // 2:
                context["returning"] = True
            bandit.choose(size=20, context=context)
            bandit.retire_arm("green")
            bandit.change_policy("lin-ms" if step % 2 else "lin-ts:floor=0.05")
            bandit.choose(size=20, context=context)
            bandit.add_arm("green")
            bandit.retire_arm("late")


def check(log: str, decisions: int, processes: int) -> None:
    arms = ["red", "blue", "green"]
    Bandit(arms, "lin-ms:floor=0.1", features=FIRST, reward=RULE, log=log, experiment="shared").close()
    workers = [
        run(visit, log, seed, decisions // processes, 0.0 if seed % 2 else 0.2) for seed in range(processes)
    ]
    interfere(log, 6)
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * processes
    found = verify(log)
    assert found.problems == []
    assert found.recomputed == found.decisions >= decisions
    assert found.largest_error <= 1e-12
    scores = {score.name: score.z for score in found.arms}
    assert set(scores) == {*arms, "late"}
    # No seed fixes how the processes interleave. A correct log exceeds |z| = 7 in one of 10^11 runs.
    assert all(z is None or abs(z) < 7 for z in scores.values()), scores
    with Bandit(log=patient(log), experiment="shared") as bandit:
        assert bandit.state.feature_version == 2
        statistics: Any = bandit.statistics
        assert statistics.counts.sum() == bandit.tally.pulls.sum() > 0


def test_processes_with_contexts_on_postgresql(postgres) -> None:
    check(postgres, 300, 2)


def test_processes_with_contexts_on_sqlite(tmp_path) -> None:
    check(str(tmp_path / "log.db"), 300, 2)


@pytest.mark.torture
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_eight_processes_a_hundred_thousand_decisions(kind, tmp_path, request) -> None:
    log = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "log.db")
    check(log, 100_000, 8)
