"""The state does not depend on the order of decisions and rewards, nor on how often each is delivered."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from maillard.decisions import Bandit, Decision, Reward, ledger
from maillard.decisions.decision import RewardEvent
from maillard.decisions.state import replay
from maillard.decisions.stores import Store
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.stores.memory import MemoryStore
from maillard.decisions.stores.postgresql import PostgreSQLStore
from maillard.decisions.stores.sqlite import SQLiteStore
from maillard.decisions.timestamps import NOW
from maillard.errors import MaillardError
from tests.stores import events, new_id

AWKWARD = [
    0.1,
    0.2,
    0.3,
    1 / 3,
    -0.0,
    5e-324,
    -5e-324,
    1e-300,
    1e16,
    -1e16,
    1.0,
    -1.0,
    1e290,
    -1e290,
    0.1 + 0.2,
]
VALUES = st.sampled_from(AWKWARD) | st.floats(-1e290, 1e290)
ARMS = ["a", "b", "c"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[Any], int]:
    """The reward's `combine`, the steps, and a seed.

    A step is None for a choice, or the index of a choice, a value and a time for a reward.
    """
    steps: list[Any] = [None]
    for made in range(1, draw(st.integers(1, 5)) + 1):
        more = st.tuples(st.integers(0, made - 1), VALUES, st.integers(1, 3))
        steps += draw(st.lists(more, max_size=4))
        steps.append(None)
    return draw(st.sampled_from(["first", "last", "sum", "max"])), steps, draw(st.integers(0, 2**32))


def run_in_order(
    combine: str, steps: list[Any], seed: int
) -> tuple[Bandit, list[Decision], list[RewardEvent]]:
    """Make every choice and reward once, in the given order."""
    bandit = Bandit(ARMS, "ms:sigma2=1", reward=Reward(combine=combine))
    bandit._rng = np.random.default_rng(seed)
    made: list[Decision] = []
    rewards: list[RewardEvent] = []
    for number, step in enumerate(steps):
        if step is None:
            made.append(bandit.choose())
        else:
            place, value, at = step
            bandit.reward(made[place].id, value, at=at, event=f"e{number}")
            rewards.append(
                RewardEvent(
                    decision=made[place].id, event=f"e{number}", value=value + 0.0, at=at * 10**6, arrived=NOW
                )
            )
    return bandit, made, rewards


def totals(store: Store, experiment: str, rule: Reward) -> dict[str, float | None]:
    return {row.id: rule.total(rewards) for row, rewards, _ in store.rows(experiment)}


def deliver(transaction: Transaction, rule: Reward, some: list[Decision | RewardEvent]) -> None:
    """Append decisions that were made elsewhere, and apply rewards, in one transaction."""
    for each in some:
        if isinstance(each, Decision):
            ledger.append(transaction, rule, [each])
        else:
            (outcome,) = ledger.apply_rewards(transaction, rule, [each])
            assert not isinstance(outcome, MaillardError)


def check_history(store: Store, history: tuple[str, list[Any], int]) -> None:
    """Deliver everything five times in a random order, and compare with one delivery in order."""
    in_order, made, rewards = run_in_order(*history)
    rng = Random(history[2])
    rule = in_order.state.reward
    name = f"{rng.random()}-{new_id()}"
    Bandit(ARMS, "ms:sigma2=1", reward=rule, log=store, experiment=name)
    deliveries = [*made, *rewards] * 5
    rng.shuffle(deliveries)
    while deliveries:
        size = rng.choice([1, 1, 2, 5])
        with store.transaction(name, lock=True) as transaction:
            deliver(transaction, rule, deliveries[:size])
        del deliveries[:size]
    tally = Bandit(log=store, experiment=name).tally
    assert tally == replay(events(store, 0, name)).tally
    assert tally == in_order.tally
    assert totals(store, name, rule) == totals(in_order._store, "default", rule)
    with store.reading(name) as transaction:
        assert transaction.all_parked() == []


def counts(kind: str, many: int) -> list[Any]:
    return [
        pytest.param(kind, many // 40, id=f"{kind}-{many // 40}"),
        pytest.param(kind, many, id=f"{kind}-{many}", marks=pytest.mark.torture),
    ]


@pytest.mark.parametrize(
    ("kind", "many"), [*counts("memory", 10_000), *counts("sqlite", 1_000), *counts("postgresql", 300)]
)
def test_the_state_does_not_depend_on_order_and_repetition(
    kind: str, many: int, tmp_path: Path, request
) -> None:
    store: Store
    if kind == "memory":
        store = MemoryStore()
    elif kind == "sqlite":
        store = SQLiteStore(tmp_path / "log.db", synchronous="OFF")
    else:
        store = PostgreSQLStore(request.getfixturevalue("postgres"))

    @settings(max_examples=many)
    @given(histories())
    def check(history: tuple[str, list[Any], int]) -> None:
        check_history(store, history)
        if isinstance(store, MemoryStore):
            store._tables.experiments.clear()

    check()
    store.close()
