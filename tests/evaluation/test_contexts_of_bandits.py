"""Evaluation of the logs of bandits with contexts: stores, files, frozen states."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, CannotAnswer, Features, Reward, evaluate, read_log
from maillard.decisions import write_log
from maillard.decisions.raw_contexts import check_context

FEATURES = Features({"device": ["phone", "desktop"], "age": (18, 90)})
ARMS = ["red", "blue", "green"]
USES: dict[str, dict[str, Any]] = {
    "disjoint": {"policy": "lin-ms:floor=0.2", "features": FEATURES},
    "shared": {
        "policy": "lin-ts:floor=0.2",
        "model": "shared",
        "features": Features({"colour": ARMS, "age": (18, 90)}, crosses=[("colour", "age")]),
    },
    "segments": {"policy": "ms+:floor=0.2", "segments": ["device"]},
    "stored": {"policy": "ms+:floor=0.2"},
}
RULE = "rule:device=phone->blue,else->red"


def run(path: Any, use: str, rows: int = 300, seed: int = 3) -> Bandit:
    rng = np.random.default_rng(seed)
    arms: Any = {arm: {"colour": arm} for arm in ARMS} if use == "shared" else ARMS
    bandit = Bandit(arms, reward=Reward(low=0, high=1), log=path, **USES[use])
    for number in range(rows):
        context: dict[str, Any] = {"age": int(rng.integers(18, 91))}
        if use != "shared":
            context["device"] = ["phone", "desktop"][rng.integers(2)]
        eligible = None if number % 5 else ["red", "blue"]
        chosen = bandit.choose(unit=f"u{number}", context=context, eligible=eligible)
        bandit.reward(chosen, float(rng.random() < 0.3 + 0.4 * (chosen.arm == "blue")))
    return bandit


@pytest.mark.parametrize("use", ["disjoint", "segments", "stored"])
def test_rules_on_stores_files_and_plain_tables_agree(use, tmp_path) -> None:
    bandit = run(tmp_path / "log.db", use)
    bandit.close()
    store = evaluate(tmp_path / "log.db", RULE, ["ips", "snips", "dr", "aipw"])
    log = read_log(tmp_path / "log.db")
    write_log(read_log(tmp_path / "log.db"), tmp_path / "log.parquet")
    file = evaluate(tmp_path / "log.parquet", RULE, ["ips", "snips", "dr", "aipw"])
    for name in ("ips", "snips", "dr", "aipw"):
        assert (store[name].value, store[name].lower) == (file[name].value, file[name].lower)
    # Independently: the mean of reward / probability over the rows whose arm the rule would have chosen.
    total, count = 0.0, 0
    for row in log.rows():
        decision = row.decision
        wanted = "blue" if '"phone"' in decision.context else "red"
        total += (decision.arm == wanted) * log.reward_of(row) / decision.probability
        count += 1
    assert store["ips"].value == pytest.approx(total / count, rel=1e-12)


@pytest.mark.parametrize("use", ["disjoint", "shared", "segments"])
def test_a_frozen_state_has_the_probabilities_of_that_state(use, tmp_path) -> None:
    bandit = run(tmp_path / "log.db", use)
    bandit.close()
    log = read_log(tmp_path / "log.db")
    report = evaluate(tmp_path / "log.db", "frozen:150", ["ips"], min_effective_size=0)
    state = log.state_at(150)
    total, count = 0.0, 0
    for row in log.rows():
        decision = row.decision
        if decision.state >= 150:
            raw = check_context(json.loads(decision.context))
            found = state.choice_distribution(frozenset(decision.eligible), raw)
            p = found.probabilities[found.arms.index(decision.arm)]
            total += p / decision.probability * log.reward_of(row)
            count += 1
    assert count < 300
    assert report["ips"].value == pytest.approx(total / count, rel=1e-12)


def test_features_that_change_later_are_not_guessed(tmp_path) -> None:
    bandit = run(tmp_path / "log.db", "disjoint", rows=40)
    bandit.change_features(Features({"device": ["phone", "desktop"], "age": (18, 90), "returning": bool}))
    for number in range(40):
        context = {"device": "phone", "age": 20 + number, "returning": number % 2 == 0}
        bandit.reward(bandit.choose(context=context), float(number % 3 == 0))
    state = bandit.state.number
    bandit.close()
    with pytest.raises(CannotAnswer, match="features changed after state 20"):
        evaluate(tmp_path / "log.db", "frozen:20")
    assert evaluate(tmp_path / "log.db", f"frozen:{state - 10}", ["ips"], min_effective_size=0)["ips"].value
    # A model of the rewards leaves out the columns that were appended.
    assert evaluate(tmp_path / "log.db", RULE, ["dr"], min_effective_size=0)["dr"].value is not None


def test_a_log_without_contexts_says_so(tmp_path) -> None:
    bandit = Bandit(["red", "blue"], "ms+", reward=Reward(low=0, high=1), log=tmp_path / "log.db")
    bandit.reward(bandit.choose(), 1.0)
    bandit.close()
    with pytest.raises(CannotAnswer, match="has no contexts: pass context="):
        evaluate(tmp_path / "log.db", RULE)
    write_log(read_log(tmp_path / "log.db"), tmp_path / "log.parquet")
    with pytest.raises(CannotAnswer, match="has no contexts"):
        evaluate(tmp_path / "log.parquet", RULE)


def test_contexts_that_begin_later_and_erased_ones_are_missing_values(tmp_path) -> None:
    bandit = run(tmp_path / "log.db", "stored", rows=60)
    for _ in range(10):
        bandit.reward(bandit.choose(), 0.0)
    bandit.erase_unit("u7")
    bandit.close()
    options: dict[str, Any] = {"min_segment_rows": 1, "min_effective_size": 0}
    report = evaluate(tmp_path / "log.db", "arm:blue", ["ips"], by="device", **options)
    assert set(report) >= {"phone", "desktop"}
    rows = {segment: each.diagnostics.rows for segment, each in report.items()}
    assert sum(rows.values()) == 70
