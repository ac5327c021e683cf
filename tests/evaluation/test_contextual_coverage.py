"""Seeded coverage of rules, frozen policies, segments and actions on logs of linear policies.

`python -m benchmarks.coverage.contextual` is the long version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from scipy.stats import binom

from benchmarks.coverage import action_logs, contextual
from benchmarks.coverage.action_logs import simulate_action_log
from benchmarks.coverage.contextual_logs import POLICIES, RULE, simulate_contextual_log
from maillard import evaluate

CHANCE = 1e-5  # of a failure if intervals are valid


Count = Callable[[str, int, int, "Counter[tuple[str, str, str]]"], None]


def count_contextual(name: str, rows: int, seed: int, counts: Counter[tuple[str, str, str]]) -> None:
    contextual.count_log(simulate_contextual_log(name, rows, seed), counts)


def count_actions(name: str, rows: int, seed: int, counts: Counter[tuple[str, str, str]]) -> None:
    contextual.count_action_log(simulate_action_log(name, rows, seed), counts)


def check_coverage(count: Count, rows: int, logs: int) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    for name in POLICIES:
        for seed in range(logs):
            count(name, rows, seed, counts)
    for question, name in {key[:2] for key in counts}:
        answered, covered = (counts[question, name, each] for each in ("answered", "covered"))
        assert covered >= binom.ppf(CHANCE, answered, contextual.CONFIDENCE), (question, name)
        # The others have few effective rows for estimators that need an effective sample size.
        if question in ("rule", "frozen", "uniform", "function") or name.startswith("cs-"):
            assert answered > 0.8 * logs * len(POLICIES), (question, name)


@pytest.mark.parametrize(("count", "logs"), [(count_contextual, 5), (count_actions, 3)])
def test_intervals_cover_as_often_as_stated(count: Count, logs: int) -> None:
    check_coverage(count, rows=600, logs=logs)


@pytest.mark.parametrize("count", [count_contextual, count_actions])
@pytest.mark.torture
def test_intervals_cover_as_often_as_stated_in_many_logs(count: Count) -> None:
    check_coverage(count, logs=100, rows=2000)


def test_a_wrong_value_is_not_covered() -> None:
    """The negative control: as many logs show that a value is wrong by 0.2."""
    options = {"confidence": contextual.CONFIDENCE, "reward_range": (0, 1), "floor": 0.1}
    covered = 0
    for seed in range(20):
        log = simulate_contextual_log("igw", 600, seed)
        found = evaluate(log.table, RULE, ["aipw"], **options)["aipw"]
        covered += found.lower <= 0.551 + 0.2 <= found.upper
    assert covered < binom.ppf(CHANCE, 20, contextual.CONFIDENCE)


def test_a_wrong_value_of_actions_is_not_covered() -> None:
    options = {"confidence": contextual.CONFIDENCE, "reward_range": (0, 1), "floor": action_logs.FLOOR}
    target, distribution = action_logs.TARGETS["uniform"]
    wrong, covered = action_logs.true_value(distribution) + 0.15, 0
    for seed in range(20):
        found = evaluate(simulate_action_log("igw", 600, seed).table, target, ["aipw"], **options)["aipw"]
        covered += found.lower <= wrong <= found.upper
    assert covered < binom.ppf(CHANCE, 20, contextual.CONFIDENCE)
