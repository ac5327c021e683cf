"""verify of logs with contexts in bulk has the same result as row by row, for honest and tampered logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, Features, Reward
from maillard.decisions import verify
from maillard.decisions.raw_contexts import RawContext
from maillard.decisions.state import State
from tests.decisions.test_fast_verification import (
    ONE,
    REWARDED,
    STATE,
    UPDATE,
    assert_same,
    natively,
    row_by_row,
    slow_calls,
    tampered,
)

__all__ = ["slow_calls"]  # a fixture

FEATURES = Features({"device": ["phone", "desktop"], "age": (18, 90)})
USES: dict[str, dict[str, Any]] = {
    "stored": {"policy": "kl-ms+:floor=0.1"},
    "segments": {"policy": "kl-ms+:floor=0.1", "segments": ["device"]},
    "features": {"policy": "lin-ms:floor=0.1", "features": FEATURES},
}


def fill(bandit: Bandit, rounds: int, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for place in range(rounds):
        context = {
            "device": ["phone", "desktop", "tablet"][place % 3],
            "age": round(20 + 50 * rng.random(), 3),
        }
        unit = f"user-{place % 20}" if place % 4 else None
        decision = bandit.choose(
            unit, idempotency_key=f"key-{place}" if place % 5 == 0 else None, context=context
        )
        if rng.random() < 0.9:
            bandit.reward(decision, float(rng.random() < 0.4))


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> dict[str, Path]:
    """A log of each use, with contexts that were erased and with some decisions without a context."""
    folder, found = tmp_path_factory.mktemp("honest"), {}
    for name, use in USES.items():
        path = found[name] = folder / f"{name}.db"
        with Bandit(["red", "green", "blue"], reward=Reward(low=0, high=1), log=path, **use) as bandit:
            if name == "stored":
                bandit.choose()
            fill(bandit, 80)
            bandit.choose(context=[{"device": "phone", "age": age} for age in range(20, 40)])
            bandit.erase_unit("user-3")
    return found


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("native", [False, True])
def test_an_honest_log(honest, monkeypatch, slow_calls, name, native) -> None:
    found = natively(honest[name], monkeypatch) if native else verify(honest[name])
    # The chain of every log is checked in bulk; states with contexts are rebuilt row by row.
    assert slow_calls == ([] if name == "stored" else ["rows"])
    assert found.problems == []
    assert found.chain is not None
    assert found.chain.erased > 0
    assert found.erased_contexts == (0 if name == "stored" else found.chain.erased)
    assert found.recomputed == found.decisions >= 100
    assert_same(found, row_by_row(honest[name], monkeypatch))
    assert {"rows", "links"} <= set(slow_calls)


CHANGES = [
    *(
        f"UPDATE decisions SET {change} WHERE id = {ONE}"
        for change in (
            "context = replace(context, 'device', 'gadget')", "context = NULL", "context = '{'",
            "context = '{}'", "actions = '{\"red\":{}}'", "encoded = x'0001'", "encoded = x''",
            "feature_version = 1 + coalesce(feature_version, 0)", "seal = NULL", "seal = zeroblob(16)",
            "arm = CASE arm WHEN 'red' THEN 'blue' ELSE 'red' END",
            "log_probability = log_probability - 0.5", "unit = 'other'", "cold = 1 - cold",
        )
    ),
    f"UPDATE vectors SET data = zeroblob(length(data)) WHERE state = {STATE}",
    f"UPDATE rewards SET value = 1 - value WHERE decision = {REWARDED}",
    f"UPDATE events SET value = 1 - value WHERE number = {UPDATE}",
    f"UPDATE events SET payload = '[\"phone\"]' WHERE number = {UPDATE}",
]  # fmt: skip
ENCODED = [  # changes of what only a rule of contexts writes
    f"UPDATE decisions SET encoded = (SELECT encoded FROM decisions ORDER BY id LIMIT 1 OFFSET 1) "
    f"WHERE id = {ONE}",
    f"UPDATE decisions SET encoded = NULL WHERE id = {ONE}",
    f"UPDATE decisions SET feature_version = NULL, context = NULL, actions = '1' WHERE id = {ONE}",
    f"UPDATE events SET payload = NULL WHERE number = {UPDATE}",
]


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, change) for name in USES for change in CHANGES + (ENCODED if name != "stored" else [])],
)
def test_a_tampered_log(honest, tmp_path, monkeypatch, name, change) -> None:
    copy = tampered(honest[name], tmp_path, change)
    found = verify(copy)
    assert found.problems
    assert_same(found, row_by_row(copy, monkeypatch))
    assert_same(found, natively(copy, monkeypatch))


def test_segments_without_new_rewards_keep_their_distributions(monkeypatch) -> None:
    """The kept distributions are those that a state without them computes."""
    solved: list[object] = []
    solve: Callable[..., Any] = State._solve

    def counted(state: State, mask: Any, encoded: Any, arms: Any = ()) -> Any:
        solved.append(encoded)
        return solve(state, mask, encoded, arms)

    with Bandit(["a", "b"], "kl-ms+", reward=Reward(low=0, high=1), segments=["device"]) as bandit:
        for device in ("phone", "tablet", "phone", "phone", "tablet"):
            bandit.reward(bandit.choose(context={"device": device}), 1.0)
        monkeypatch.setattr(State, "_solve", counted)
        for device in ("tablet", "desktop"):
            bandit.reward(bandit.choose(context={"device": device, "time": 5}), 0.0)
        assert bandit.choose(context={"device": "phone"}) is not None
        assert solved == [("tablet",), ("desktop",), ("phone",)]
        bandit.reward(bandit.choose(context={"device": "tablet"}), 0.0)
        bandit.choose(context={"device": "phone", "time": 6})
        assert solved[3:] == [("tablet",)]
        again = State.read(bandit.state.write())
        for device in ("phone", "tablet", "desktop", "other"):
            raw = RawContext({"device": device}, device)
            kept, fresh = (each.choice_distribution(None, raw) for each in (bandit.state, again))
            assert kept.log_probabilities == fresh.log_probabilities
            assert kept.cold == fresh.cold
        bandit.retire_arm("b")
        assert bandit.choose(context={"device": "phone"}).eligible == ("a",)
        assert verify(bandit).problems == []


def test_actions_are_refused_without_a_shared_model() -> None:
    with Bandit(["a", "b"], "kl-ms+", reward=Reward(low=0, high=1)) as bandit:
        bandit.choose()
        for _ in range(2):
            with pytest.raises(Exception, match="only an experiment without arms"):
                bandit.choose(actions={"x": {}})
