"""Random operations on an experiment with features, compared with a plain model of its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maillard import Bandit, Features, LinearTally, Reward, verify
from maillard.decisions.state import replay
from tests.stores import Log, events

RULE = Reward(low=0, high=1, combine="max")
# Each begins with the columns of the one before, except for the crosses, which move.
DECLARATIONS = [
    Features({"device": ["phone"], "age": (0, 100)}, crosses=[("device", "age")]),
    Features({"device": ["phone"], "age": (0, 100), "new": bool}, crosses=[("device", "age")]),
    Features(
        {"device": ["phone"], "age": (0, 100), "new": bool, "visits": (0, 9)},
        crosses=[("device", "age"), ("new", "visits")],
    ),
]
OTHER = Features({"age": (0, 50)})


@dataclass
class Made:
    """A decision as the plain model knows it."""

    arm: str
    epoch: int
    row: dict[str, float]
    "The value of each column, by the column's name."
    rewards: list[float] = field(default_factory=list)


class Model:
    """The experiment, and what is known about it without looking into it."""

    def __init__(self, log: Log, shared: bool) -> None:
        self.shared, self.features, self.next = shared, DECLARATIONS[0], 1
        arms: Any = {"a": {"device": "phone"}, "b": {"device": "watch"}} if shared else ["a", "b"]
        self.bandit = log.bandit(
            arms, "lin-ms:floor=0.1", reward=RULE, features=self.features, model="shared" if shared else None
        )
        self.devices = {"a": "phone", "b": "watch"}
        self.made: dict[str, Made] = {}
        self.epoch, self.arms, self.count = 1, ["a", "b"], 0

    def choose(self, age: int, flag: bool, unit: str) -> None:
        context: dict[str, Any] = {"device": "phone", "age": age, "new": flag, "visits": age % 10}
        context = {key: value for key, value in context.items() if key in self.features.inputs}
        if self.shared:
            context.pop("device", None)
        row = self.bandit.choose(unit=unit, context=context)
        if self.shared and "device" in self.features.inputs:
            context = {**context, "device": self.devices[row.arm]}
        values = self.features.encode(context).tolist()
        self.made[row.id] = Made(row.arm, self.epoch, dict(zip(self.features.names, values, strict=True)))

    def reward(self, place: int, value: float) -> None:
        if self.made:
            key = list(self.made)[place % len(self.made)]
            self.count += 1
            self.bandit.reward(key, value, event=f"{self.count:05}")
            if self.made[key].epoch == self.epoch:
                self.made[key].rewards.append(value)

    def append_features(self) -> None:
        if self.next < len(DECLARATIONS) and self.features is DECLARATIONS[self.next - 1]:
            self.features = DECLARATIONS[self.next]
            self.bandit.change_features(self.features)
            self.next += 1

    def replace_features(self) -> None:
        if not self.shared and self.features is not OTHER:
            self.features = OTHER
            self.bandit.change_features(OTHER)
            self.epoch += 1

    def reset(self) -> None:
        self.bandit.reset()
        self.epoch += 1

    def add_arm(self) -> None:
        arm = f"arm-{len(self.arms)}"
        self.devices[arm] = "desktop"
        more = {"features": {"device": "desktop"}} if self.shared else {}
        self.bandit.add_arm(arm, **more)
        self.arms.append(arm)

    def retire_arm(self) -> None:
        if len(self.bandit.arms) > 1:
            self.bandit.retire_arm(self.bandit.arms[0])

    def change_policy(self, spec: str) -> None:
        self.bandit.change_policy(spec)

    def restore(self) -> None:
        """A new epoch with the same statistics: rewards of earlier decisions do not change it any more."""
        before = self.bandit.statistics
        self.bandit.restore(self.bandit.snapshot())
        assert self.bandit.statistics == before
        self.bandit.reset()
        self.epoch += 2

    def expected(self) -> LinearTally:
        size = self.features.dimension
        tally = LinearTally.empty(size, None if self.shared else len(self.arms))
        for made in self.made.values():
            if made.epoch == self.epoch and made.rewards:
                row = np.zeros(size)
                for name, value in made.row.items():
                    row[self.features.names.index(name)] = value
                tally.add(row, max(made.rewards), None if self.shared else self.arms.index(made.arm))
        return tally


values = st.sampled_from([0.0, 1.0, 0.5, 0.1, 1 / 3])
steps = st.one_of(
    st.tuples(st.just("choose"), st.integers(-5, 120), st.booleans(), st.sampled_from("xyz")),
    st.tuples(st.just("choose"), st.integers(-5, 120), st.booleans(), st.sampled_from("xyz")),
    st.tuples(st.just("reward"), st.integers(0, 20), values),
    st.tuples(st.just("reward"), st.integers(0, 20), values),
    st.tuples(
        st.sampled_from(["append_features", "replace_features", "reset", "add_arm", "retire_arm", "restore"])
    ),
    st.tuples(st.just("change_policy"), st.sampled_from(["lin-ucb:floor=0.1", "igw:floor=0.1", "lin-ms"])),
)


def run(log: Log, shared: bool, operations: list[tuple[Any, ...]]) -> None:
    model = Model(log, shared)
    for name, *arguments in operations:
        getattr(model, name)(*arguments)
        assert model.bandit.statistics == model.expected()
    bandit = model.bandit
    if model.made:
        bandit.erase_unit("x")
    found = verify(bandit)
    assert found.problems == []
    assert found.recomputed == found.decisions == len(model.made)
    assert replay(events(log.open())).statistics == model.expected()
    assert Bandit(log=log.open(), experiment="home").statistics == model.expected()


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.lists(steps, max_size=30))
def test_the_statistics_are_those_of_a_plain_model(shared: bool, operations: list[Any]) -> None:
    run(Log(None), shared, operations)


@pytest.mark.torture
@settings(max_examples=1_000, deadline=None)
@given(st.booleans(), st.lists(steps, max_size=60))
def test_many_operations(shared: bool, operations: list[Any]) -> None:
    run(Log(None), shared, operations)


@pytest.mark.parametrize("shared", [False, True])
def test_one_run_in_every_store(log, shared) -> None:
    operations: list[tuple[Any, ...]] = []
    for age in range(12):
        operations += [("choose", 9 * age, age % 2 == 0, "xyz"[age % 3]), ("reward", age, age / 12)]
        if age % 4 == 1:
            operations += [("append_features",), ("reward", age // 2, 1.0), ("add_arm",)]
        if age == 9:
            operations += [("retire_arm",), ("change_policy", "igw:floor=0.1"), ("reset",)]
    run(log, shared, operations)
