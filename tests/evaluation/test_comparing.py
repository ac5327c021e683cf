"""Tests of `compare`: the difference of two targets, estimated from the same rows, with valid intervals."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from maillard import FixedDistribution, simulate_log
from maillard.decisions import Bandit, Reward
from maillard.errors import InvalidValue, UnknownName
from maillard.evaluation import compare, evaluate
from maillard.evaluation.comparing import difference_names
from tests.evaluation.test_evaluation import random_log


def test_ips_and_snips_are_paired() -> None:
    table, arm, probabilities, reward, _ = random_log(n=500, seed=30)
    one, other = np.array([0.1, 0.2, 0.7]), np.array([0.5, 0.5, 0.0])
    found = compare(table, FixedDistribution(one), FixedDistribution(other), ["ips", "snips"])
    p = probabilities[np.arange(len(arm)), arm]
    a, b = one[arm] / p, other[arm] / p
    terms = (a - b) * reward
    assert found["ips"].value == pytest.approx(terms.mean())
    assert found["ips"].standard_error == pytest.approx(terms.std() / math.sqrt(len(arm)))
    first, second = (a * reward).sum() / a.sum(), (b * reward).sum() / b.sum()
    influence = a * (reward - first) / a.mean() - b * (reward - second) / b.mean()
    assert found["snips"].value == pytest.approx(first - second)
    assert found["snips"].standard_error == pytest.approx(np.sqrt((influence**2).sum()) / len(arm))


def test_aipw_is_the_difference_and_sequences_are_simultaneously_valid() -> None:
    log = simulate_log("ms+:floor=0.2", "bernoulli:0.6,0.5,0.3", horizon=3000, seed=3)
    found = compare(log, "arm:0", "uniform")
    first, second = (evaluate(log, each, confidence=0.975) for each in ("arm:0", "uniform"))
    assert found["aipw"].value == pytest.approx(first["aipw"].value - second["aipw"].value, abs=1e-12)
    for name in ("cs-bernstein", "cs-dr", "cs-betting"):
        assert found[name].lower == pytest.approx(first[name].lower - second[name].upper)
        assert found[name].upper == pytest.approx(first[name].upper - second[name].lower)
    assert found.first["snips"] == first["snips"]
    back = compare(log, "uniform", "arm:0")
    for name, each in found.items():
        assert (back[name].lower, back[name].upper) == pytest.approx((-each.upper, -each.lower), abs=1e-9)
    json.dumps(found.to_dict(), allow_nan=False)
    assert "arm:0 minus uniform" in str(found)


def test_intervals_cover_the_difference() -> None:
    """Of 300 intervals of 90%, 270 ± 5.2 · 3.5 cover the difference; with a third of the width, fewer do."""
    hits, thirds = np.zeros(3), 0
    for seed in range(300):
        log = simulate_log("ms+:floor=0.3", "bernoulli:0.6,0.4", horizon=800, seed=seed)
        found = compare(log, "arm:0", "arm:1", ["aipw-sqrt", "aipw-two-point", "cs-betting"], 0.9)
        hits += [each.value is not None and each.lower <= 0.2 <= each.upper for each in found.values()]
        thirds += abs(found["aipw-sqrt"].value - 0.2) <= found["aipw-sqrt"].width / 6
    deviation = math.sqrt(300 * 0.9 * 0.1)
    assert (np.abs(hits[:2] - 270) < 3.5 * deviation).all()
    assert hits[2] > 270 - 3.5 * deviation
    assert thirds < 270 - 3.5 * deviation


def test_batches_and_decorrelation(tmp_path) -> None:
    rng = np.random.default_rng(4)
    path = tmp_path / "log.db"
    with Bandit(["red", "blue"], "ms:floor=0.4", reward=Reward(low=0, high=1), log=path) as bandit:
        for _ in range(8):
            for decision in bandit.choose(size=150):
                bandit.reward(decision.id, float(rng.random() < (0.7 if decision.arm == "red" else 0.3)))
    found = compare(path, "arm:red", "arm:blue", ["bols", "w-decorrelation"], penalty=5.0)
    for each in found.values():  # the choices depend on the name of the test: allow five standard errors
        assert abs(each.value - 0.4) < each.width * 5 / 3.92
    assert re.fullmatch(
        r"least squares in each of [2-8] batches", found["bols"].interval
    )  # the probabilities are equal because both are at the floor
    refused = compare(path, "arm:red", "uniform", ["bols", "w-decorrelation"]).refusals
    assert all("two arms" in why for why in refused.values())
    assert "penalty=" in compare(path, "arm:red", "arm:blue", ["w-decorrelation"]).refusals["w-decorrelation"]


def test_refusals_and_errors() -> None:
    log = simulate_log("ms", "bernoulli:0.9,0.1", horizon=3000, seed=1)
    found = compare(log, "arm:0", "arm:1", difference_names(), min_effective_size=100)
    for name in ("ips", "snips", "aipw"):
        assert found.refusals[name].startswith("arm:1: the effective sample size is")
    assert "cs-betting" not in found.refusals
    ucb = simulate_log("ucb1", "bernoulli:0.6,0.4", horizon=1000, seed=1)
    assert set(compare(ucb, "arm:0", "arm:1").refusals) == set(difference_names()[:-2]) - {"cs-catoni"}
    with pytest.raises(InvalidValue, match="a target that differs"):
        compare(log, "arm:0", "dist:1.0,0.0")
    with pytest.raises(UnknownName, match="estimator of differences"):
        compare(log, "arm:0", "arm:1", ["dr"])
    with pytest.raises(UnknownName, match="in this report"):
        compare(log, "arm:0", "arm:1", ["ips"])["dr"]
