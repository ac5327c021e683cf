"""AIPW with its four weightings: formulas, chunks, bias and coverage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from maillard.errors import InvalidValue, MaillardError
from maillard.evaluation.sequential.aipw import WEIGHTINGS, Weighted, estimate
from maillard.evaluation.weighted_rows import _propensity
from tests.evaluation.adaptive_logs import Logs, simulate_logs


def reference_estimates(rows: dict[str, Any], horizon: float, decay: float) -> dict[str, tuple[float, float]]:
    """A direct implementation of the formulas, row by row, without regard to rounding."""
    gammas, row_weights, stick = [], [], 1.0
    arm, reward = np.asarray(rows["arm"]), np.asarray(rows["reward"])
    for t in range(1, len(reward) + 1):
        before = slice(0, t - 1)
        target = rows["target_probabilities"][rows["target_row"][t - 1]]
        if t > 1:
            overall = reward[before].mean()
            model = [
                reward[before][arm[before] == a].mean() if (arm[before] == a).any() else overall
                for a in range(len(target))
            ]
            chosen = arm[t - 1]
            gammas.append(np.dot(target, model) + rows["weight"][t - 1] * (reward[t - 1] - model[chosen]))
        e = rows["propensity"][t - 1]
        capped = min(e, 1)
        rate = (1 - capped) * (1 - decay) / ((1 - decay) + horizon * (t / horizon) ** decay - t)
        rate += capped / (1 + horizon - t)
        part = rate * stick
        stick -= part
        if t > 1:
            row_weights.append([1, math.sqrt(e), e, math.sqrt(part * e)])
    found = {}
    for name, h in zip(WEIGHTINGS, np.transpose(row_weights), strict=True):
        value = (h * gammas).sum() / h.sum()
        found[name] = (value, math.sqrt((h**2 * (np.array(gammas) - value) ** 2).sum()) / h.sum())
    return found


def rows_of(logs: Logs, run: int, target: list[float]) -> dict[str, Any]:
    logs = Logs(*(each[[run]].copy() for each in logs))
    weight, propensity = logs.weight(np.array(target))[0], logs.propensity(np.array(target))[0]
    rows = len(weight)
    return {
        "arm": logs.arm[0],
        "reward": logs.reward[0],
        "weight": weight,
        "propensity": propensity,
        "target_row": np.zeros(rows, np.int64),
        "target_probabilities": np.array([target]),
    }


def estimates(
    rows: dict[str, Any], horizon: int, chunks: tuple[int, ...] = ()
) -> dict[str, tuple[float, float]]:
    weighted = Weighted.start(arms=rows["target_probabilities"].shape[1], horizon=horizon)
    for begin, end in zip((0, *chunks), (*chunks, len(rows["reward"])), strict=True):
        cut = {name: rows[name] if name == "target_probabilities" else rows[name][begin:end] for name in rows}
        weighted.advance(**cut)
    return weighted.estimates()


LOGS = simulate_logs([0.6, 0.5, 0.4], runs=3, rows=200, seed=5, floor=0.1)
TARGETS = [[0, 0, 1], [0.2, 0.3, 0.5], [1, 0, -1]]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("horizon", [200, 1000])
def test_the_estimates_equal_the_formula(target: list[float], horizon: int) -> None:
    rows = rows_of(LOGS, 0, target)
    expected = reference_estimates(rows, horizon, 0.7)
    for name, found in estimates(rows, horizon).items():
        assert found == pytest.approx(expected[name], rel=1e-12, abs=1e-12)


def test_target_probabilities_by_position() -> None:
    rows = rows_of(LOGS, 1, [0, 0, 1])
    target_probabilities = np.array([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]])
    target_row = np.arange(200) % 2
    chosen = np.take_along_axis(LOGS.probabilities[1], LOGS.arm[1][:, None], axis=1)[:, 0]
    rows |= {
        "target_probabilities": target_probabilities,
        "target_row": target_row,
        "weight": target_probabilities[target_row, LOGS.arm[1]] / chosen,
    }
    rows["propensity"] = 1 / (target_probabilities[target_row] ** 2 / LOGS.probabilities[1]).sum(axis=1)
    expected = reference_estimates(rows, 200, 0.7)
    for name, found in estimates(rows, 200).items():
        assert found == pytest.approx(expected[name], rel=1e-12)


@pytest.mark.parametrize("chunks", [(1,), (7, 7, 50), (1, 2, 3, 199), tuple(range(1, 200))])
def test_results_do_not_depend_on_the_chunks(chunks: tuple[int, ...]) -> None:
    rows = rows_of(LOGS, 0, [0.2, 0.3, 0.5])
    assert estimates(rows, 250, chunks) == estimates(rows, 250)


def test_estimate_of_a_whole_log_equals_the_incremental_one() -> None:
    rows = rows_of(LOGS, 2, [0, 1, 0])
    *columns, target_probabilities = rows.values()
    found = estimate((*columns, target_probabilities.astype(float)), 200.0, 0.7)
    assert dict(zip(WEIGHTINGS, map(tuple, found.tolist()), strict=True)) == estimates(rows, 200)


@pytest.mark.parametrize("target", TARGETS)
def test_adding_a_constant_to_all_rewards_adds_it_to_the_value(target: list[float]) -> None:
    rows = rows_of(LOGS, 0, target)
    moved = rows | {"reward": rows["reward"] + 2.0**40}
    near, far = estimates(rows, 200), estimates(moved, 200)
    for name in WEIGHTINGS:
        assert far[name][0] - sum(target) * 2.0**40 == pytest.approx(near[name][0], abs=2 * 2.0**-12)
        assert far[name][1] == pytest.approx(near[name][1], rel=1e-12)


def test_precision_with_an_outlier_as_first_reward() -> None:
    rows = rows_of(LOGS, 0, [0, 0, 1])
    rows["arm"][:2], rows["reward"][:2] = [0, 2], [1e9, 1.0]
    rows["propensity"][:2] = 0  # the second row's model is the outlier, so it has no weight
    exact = reference_estimates(rows, 200, 0.7)
    found = estimates(rows, 200)
    for name in WEIGHTINGS[1:]:
        # With a sum of squares, no digit would be correct.
        assert found[name] == pytest.approx(exact[name], abs=1e9 * 2.0**-50)


def test_without_all_probabilities_only_uniform_weighting_is_available() -> None:
    rows = rows_of(LOGS, 0, [0, 0, 1])
    both = estimates(rows, 200)
    weighted = Weighted.start(arms=3, horizon=200)
    weighted.advance(**(rows | {"propensity": None}))
    assert weighted.estimates() == {"aipw": both["aipw"]}


def test_values_and_errors_of_the_first_rows() -> None:
    weighted = Weighted.start(arms=2, horizon=9)
    row = {
        "arm": [0],
        "reward": [1.0],
        "weight": [2.0],
        "propensity": [0.5],
        "target_row": [0],
        "target_probabilities": [[1.0, 0.0]],
    }
    assert all(math.isnan(value) for value, _ in weighted.estimates().values())
    weighted.advance(**row)
    assert all(math.isnan(value) for value, _ in weighted.estimates().values())
    weighted.advance(**row)
    assert all(value == 1 and math.isnan(error) for value, error in weighted.estimates().values())
    weighted.advance(**row)
    assert all(estimate == (1, 0) for estimate in weighted.estimates().values())
    assert weighted.rows == 3


def test_invalid_arguments() -> None:
    rows = rows_of(LOGS, 0, [0, 0, 1])
    with pytest.raises(MaillardError, match="order"):
        Weighted.start(arms=3, horizon=10) + Weighted.start(arms=3, horizon=10)
    with pytest.raises(InvalidValue, match="horizon"):
        estimates(rows, 199)
    with pytest.raises(InvalidValue, match=r"arm\[3\]"):
        estimates(rows | {"arm": np.where(np.arange(200) == 3, 3, 0)}, 200)
    with pytest.raises(InvalidValue, match="target_row"):
        estimates(rows | {"target_row": np.ones(200, np.int64)}, 200)
    with pytest.raises(InvalidValue, match="sum"):
        estimates(rows | {"target_probabilities": np.array([[0.0, 0.0, 1.0], [1.0, 0.0, -1.0]])}, 200)
    for wrong in (
        {"arms": 0, "horizon": 5},
        {"arms": 2, "horizon": 0},
        {"arms": 2, "horizon": 5, "decay": 1.0},
    ):
        with pytest.raises(InvalidValue):
            Weighted.start(**wrong)


def z_score(values: np.ndarray, truth: float) -> float:
    return float((values.mean() - truth) / (values.std(ddof=1) / math.sqrt(len(values))))


def values(logs: Logs, target: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Value and standard error in each run: [runs, 4, 2] of the weightings, [runs, 2] of the sample mean."""
    runs, rows = logs.arm.shape
    weight, propensity = logs.weight(np.array(target)), logs.propensity(np.array(target))
    target_row, target_probabilities = np.zeros(rows, np.int64), np.array([target], float)
    found, naive = [], []
    for run in range(runs):
        given = (
            logs.arm[run],
            logs.reward[run],
            weight[run],
            propensity[run],
            target_row,
            target_probabilities,
        )
        found.append(estimate(given, float(rows), 0.7))
        mine = logs.reward[run][logs.arm[run] == np.argmax(target)]
        naive.append((mine.mean(), mine.std() / math.sqrt(len(mine))))
    return np.array(found), np.array(naive)


def test_the_uniform_weighting_is_unbiased_and_the_sample_mean_is_not() -> None:
    logs = simulate_logs([0.6, 0.4], runs=4000, rows=60, seed=11, floor=0.2)
    found, naive = values(logs, [0, 1])
    assert abs(z_score(found[:, 0, 0], 0.4)) < 4  # two-sided, 6e-5
    assert z_score(naive[:, 0], 0.4) < -4


def test_probabilities_of_the_next_row_bias_the_estimate() -> None:
    logs = simulate_logs([0.6, 0.4], runs=4000, rows=60, seed=11, floor=0.2)
    late = Logs(logs.arm[:, :-1], logs.reward[:, :-1], logs.probabilities[:, 1:])
    assert abs(z_score(values(late, [0, 1])[0][:, 0, 0], 0.4)) > 4


def test_stabilised_intervals_cover_the_value_and_that_of_the_sample_mean_does_not() -> None:
    runs = 4000
    found, naive = values(simulate_logs([0.5, 0.5, 0.5], runs=runs, rows=500, seed=3, floor=0.15), [1, 0, 0])
    for weighting in (1, 3):
        covered = int((abs(found[:, weighting, 0] - 0.5) <= 1.6449 * found[:, weighting, 1]).sum())
        assert binomtest(covered, runs, 0.9).pvalue > 1e-3
    covered = int((abs(naive[:, 0] - 0.5) <= 1.6449 * naive[:, 1]).sum())
    assert binomtest(covered, runs, 0.9, alternative="less").pvalue < 1e-3


def test_the_propensity_of_a_target_with_several_arms_by_hand() -> None:
    """1 / Σ π² / p, over the arms that the target chooses."""
    probabilities = np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])
    squares = np.array([[0.25, 0.25, 0.0]])
    found = _propensity(probabilities, squares, np.zeros(2, np.int64))
    assert found == pytest.approx([1 / (0.25 / 0.5 + 0.25 / 0.25), 1 / (0.25 / 0.2 + 0.25 / 0.2)])
    one = _propensity(probabilities, np.array([[0.0, 1.0, 0.0]]), np.zeros(2, np.int64))
    assert one.tolist() == [0.25, 0.2]
