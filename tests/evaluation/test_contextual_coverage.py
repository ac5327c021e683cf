"""Seeded coverage of rules, frozen policies and segments on logs of linear policies.

`python -m benchmarks.coverage.contextual` is the long version.
"""

from __future__ import annotations

from collections import Counter

import pytest
from scipy.stats import binom

from benchmarks.coverage import contextual
from benchmarks.coverage.contextual_logs import POLICIES, RULE, simulate_contextual_log
from maillard import evaluate

CHANCE = 1e-5  # of a failure if intervals are valid


def check_coverage(logs: int, rows: int) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    for name in POLICIES:
        for seed in range(logs):
            contextual.count_log(simulate_contextual_log(name, rows, seed), counts)
    for question, name in {key[:2] for key in counts}:
        answered, covered = (counts[question, name, each] for each in ("answered", "covered"))
        assert covered >= binom.ppf(CHANCE, answered, contextual.CONFIDENCE), (question, name)
        # Segments have few rows for estimators that need an effective sample size.
        if question != "segments" or name.startswith("cs-"):
            assert answered > 0.8 * logs * len(POLICIES), (question, name)


def test_intervals_cover_as_often_as_stated() -> None:
    check_coverage(logs=5, rows=600)


@pytest.mark.torture
def test_intervals_cover_as_often_as_stated_in_many_logs() -> None:
    check_coverage(logs=100, rows=2000)


def test_a_wrong_value_is_not_covered() -> None:
    """The negative control: as many logs show that a value is wrong by 0.2."""
    options = {"confidence": contextual.CONFIDENCE, "reward_range": (0, 1), "floor": 0.1}
    covered = 0
    for seed in range(20):
        log = simulate_contextual_log("igw", 600, seed)
        found = evaluate(log.table, RULE, ["aipw"], **options)["aipw"]
        covered += found.lower <= 0.551 + 0.2 <= found.upper
    assert covered < binom.ppf(CHANCE, 20, contextual.CONFIDENCE)
