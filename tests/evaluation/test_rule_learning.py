"""`learn_rule`: the search, the split, and what it reports."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from maillard import evaluate, learn_rule
from maillard.errors import CannotAnswer, InvalidValue, UnknownName
from maillard.evaluation.evaluation_log import EvaluationLog, open_log
from maillard.evaluation.rule_learning import _parts
from maillard.evaluation.rules import Condition
from maillard.evaluation.settings import Settings
from maillard.evaluation.tree_search import best_tree
from tests.evaluation.context_tables import device_log, with_context

OPTIONS = {"reward_range": (0, 1), "adaptive": False}


def value_of(rule, contexts, gamma, arms) -> float:
    rows = zip(contexts, gamma, strict=True)
    return float(sum(row[arms.index(rule.clause_of(each).arm)] for each, row in rows))


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_best_tree(seed) -> None:
    rng = np.random.default_rng(seed)
    arms, n = ["a", "b", "c"], 60
    contexts = [{"x": int(x), "y": int(y)} for x, y in rng.integers(0, 4, (n, 2))]
    gamma = rng.normal(size=(n, 3)) + np.array([[each["x"] % 2, each["y"] % 2, 0] for each in contexts])
    conditions = [Condition(key, "<", str(value)) for key in "xy" for value in (1, 2, 3)]
    holds = np.array([[each.holds_for(context[each.key]) for each in conditions] for context in contexts])
    everywhere = np.ones(n, bool)

    def best(rows) -> float:
        return float(gamma[rows].sum(axis=0).max()) if rows.any() else 0.0

    sides = [everywhere, *holds.T]
    expected = {
        0: best(everywhere),
        1: max(best(one) + best(~one) for one in sides),
        2: max(
            sum(best(side & other) + best(side & ~other) for side, other in ((one, two), (~one, three)))
            for one, two, three in itertools.product(sides, repeat=3)
        ),
    }
    for depth, value in expected.items():
        rule = best_tree(gamma, holds, conditions, arms, depth=depth)
        assert value_of(rule, contexts, gamma, arms) == pytest.approx(value)
        assert len(rule.clauses) <= 2**depth


def test_a_planted_rule_is_found_and_evaluated() -> None:
    log = with_context(device_log(8000, seed=4))
    found = learn_rule(log, **OPTIONS)
    assert found.rule.startswith("rule:device=phone&age<")
    assert found.rule.endswith("->blue,else->red")
    report = evaluate(log.iloc[4000:].reset_index(drop=True), found.rule, **OPTIONS)
    assert found.report["snips"].value == pytest.approx(report["snips"].value)
    assert found.comparison["snips"].lower > 0
    assert found.best_arm == "red"
    assert found.rows == (4000, 4000)
    assert found.learned_value == pytest.approx(0.6, abs=0.05)
    assert "by order" in str(found)
    assert found.to_dict()["rule"] == found.rule
    assert learn_rule(log, "age", depth=1, **OPTIONS).rule.count("device") == 0


def test_a_constant_rule_has_no_comparison() -> None:
    found = learn_rule(with_context(device_log(2000)), depth=0, **OPTIONS)
    assert found.rule == "rule:else->red"
    assert found.comparison is None
    assert "the same as the best arm" in str(found)


def test_units_are_never_in_both_parts() -> None:
    frame = device_log(3000)
    frame["unit"] = [f"u{each}" for each in np.random.default_rng(1).integers(0, 400, 3000)]
    found = learn_rule(frame, "device", **OPTIONS)
    assert "by unit" in found.split
    assert sum(found.rows) == 3000
    assert 1000 < found.rows[0] < 2000

    def units_of(part: EvaluationLog) -> set[str]:
        return {unit for columns in part.columns() if columns.unit is not None for unit in columns.unit}

    with open_log(frame, Settings()) as log, _parts(log, 0.5, by_unit=True) as (one, other, _):
        first, second = units_of(one), units_of(other)
    assert not first & second
    assert first | second == set(frame.unit)
    assert learn_rule(frame, "device", split="order", **OPTIONS).rows == (1500, 1500)
    assert learn_rule(frame, "device", split="unit", fraction=0.2, **OPTIONS).rows[0] < 1000


def test_invalid_arguments_are_refused() -> None:
    log = with_context(device_log(300))
    for options in ({"depth": 3}, {"split": "random"}, {"fraction": 1.0}, {"min_rows": 0}):
        with pytest.raises(InvalidValue, match=next(iter(options))):
            learn_rule(log, **options)
    with pytest.raises(UnknownName, match="device"):
        learn_rule(log, "devise")
    with pytest.raises(CannotAnswer, match="no keys"):
        learn_rule(device_log(300))
