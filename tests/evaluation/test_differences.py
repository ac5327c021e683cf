"""Differences between arms on adaptive logs: formulas and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import maillard
from maillard import InvalidValue
from maillard.evaluation.differences.batched_difference import batched_difference
from maillard.evaluation.differences.decorrelation import choose_penalty, decorrelated_difference

BATCHES, SIZE, RUNS, CONFIDENCE = 10, 100, 2000, 0.9
NORMAL = float(special.ndtri(0.5 + CONFIDENCE / 2))
# A fraction of RUNS deviates by more with a probability of 4e-5.
TOLERANCE = float(special.ndtri(1 - 2e-5)) * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / RUNS)


@pytest.fixture(scope="module")
def logs():
    """Two equal arms; between batches, an arm that is worse by a standard error is nearly dropped."""
    rng, rewards, arms = np.random.default_rng(2), [], []
    pulls, sums = np.zeros((RUNS, 2)), np.zeros((RUNS, 2))
    for _ in range(BATCHES):
        with np.errstate(invalid="ignore", divide="ignore"):
            lead = np.subtract(*(sums / pulls).T[::-1]) / np.sqrt((1 / pulls).sum(axis=1))
        probability = np.select([lead > 1, lead < -1], [0.95, 0.05], 0.5)
        arm = (rng.random((RUNS, SIZE)) < probability[:, None]).astype(np.int64)
        reward = rng.standard_normal((RUNS, SIZE))
        for place in (0, 1):
            pulls[:, place] += (arm == place).sum(axis=1)
            sums[:, place] += np.where(arm == place, reward, 0).sum(axis=1)
        arms.append(arm)
        rewards.append(reward)
    return np.concatenate(arms, axis=1), np.concatenate(rewards, axis=1)


def covered(intervals, truth=0.0):
    return float(np.mean([low <= truth <= high for low, high in intervals]))


def test_batches_cover_a_difference_that_sample_means_miss(logs) -> None:
    batch, found, naive = np.repeat(np.arange(BATCHES), SIZE), [], []
    for arm, reward in zip(*logs, strict=True):
        each = batched_difference(arm, reward, batch, 1, 0, confidence=CONFIDENCE)
        found.append((each.lower, each.upper))
        one, zero = reward[arm == 1], reward[arm == 0]
        half = NORMAL * math.sqrt(one.var(ddof=1) / one.size + zero.var(ddof=1) / zero.size)
        value = one.mean() - zero.mean()
        naive.append((value - half, value + half))
    assert abs(covered(found) - CONFIDENCE) < TOLERANCE
    assert covered(naive) < CONFIDENCE - TOLERANCE  # the interval for independent rows fails the same test


def test_decorrelation_covers_the_difference(logs) -> None:
    arms, rewards = logs
    least = np.minimum(arms.sum(axis=1), (1 - arms).sum(axis=1))
    penalty = float(np.quantile(least, 1 / arms.shape[1])) / math.log(arms.shape[1])
    found, barely = [], []
    for arm, reward in zip(arms, rewards, strict=True):
        each = decorrelated_difference(arm, reward, 1, 0, penalty=penalty, confidence=CONFIDENCE)
        found.append((each.lower, each.upper))
        # If λ is too large for the least pulled arm, almost nothing is corrected, and coverage is too low.
        each = decorrelated_difference(arm, reward, 1, 0, penalty=20 * penalty, confidence=CONFIDENCE)
        barely.append((each.lower, each.upper))
    assert abs(covered(found) - CONFIDENCE) < TOLERANCE
    assert covered(barely) < CONFIDENCE - TOLERANCE


def test_the_batched_difference_equals_its_formula() -> None:
    rng = np.random.default_rng(3)
    arm, batch = rng.integers(3, size=600), rng.integers(4, size=600)
    reward = rng.normal(arm)
    weights, differences, freedom = [], [], []
    for each in range(4):
        one, zero = (reward[(batch == each) & (arm == place)] for place in (2, 0))
        squares = ((one - one.mean()) ** 2).sum() + ((zero - zero.mean()) ** 2).sum()
        sigma = math.sqrt(squares / (one.size + zero.size - 2))
        weights.append(math.sqrt(one.size * zero.size / (one.size + zero.size)) / sigma)
        differences.append(one.mean() - zero.mean())
        freedom.append(one.size + zero.size - 2)
    found = batched_difference(arm, reward, batch, 2, 0, confidence=0.8)
    value = np.dot(weights, differences) / sum(weights)
    assert found.value == pytest.approx(value, abs=1e-13)
    quantile = (found.upper - found.value) * sum(weights) / math.sqrt(4)
    draws = np.random.default_rng(9).standard_t(np.array(freedom), (400_000, 4)).sum(axis=1) / 2
    # Two simulated quantiles, from 160,000 and from 400,000 samples.
    error = math.sqrt(0.16 / 160_000 + 0.16 / 400_000)
    assert abs(np.mean(np.abs(draws) <= quantile) - 0.8) < 4 * error
    assert found.lower == pytest.approx(2 * found.value - found.upper)


def test_one_small_batch_is_students_interval() -> None:
    arm, reward = np.array([0, 1, 0, 1, 1]), np.array([1.0, 2.0, 1.5, 2.5, 4.0])
    found = batched_difference(arm, reward, np.zeros(5, int), 1, 0, confidence=0.9)
    one, zero = reward[arm == 1], reward[arm == 0]
    sigma = math.sqrt((((one - one.mean()) ** 2).sum() + ((zero - zero.mean()) ** 2).sum()) / 3)
    quantile = (found.upper - found.value) / (sigma * math.sqrt(1 / 3 + 1 / 2))
    error = 4 * 1e-3  # four times the precision that determines the number of samples
    assert abs(2 * special.stdtr(3, quantile) - 1 - 0.9) < error
    assert abs(2 * special.stdtr(3, NORMAL) - 1 - 0.9) > error  # a normal quantile is too small here
    assert found.simulated


def test_large_batches_use_the_normal_quantile() -> None:
    rng = np.random.default_rng(4)
    arm, batch = rng.integers(2, size=40_000), np.repeat(np.arange(4), 10_000)
    assert not batched_difference(arm, rng.normal(size=40_000), batch, 1, 0).simulated


def test_batches_without_both_arms_are_left_out_and_counted() -> None:
    arm = np.array([0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1])
    reward = np.array([1, 2, 3, 5, 1, 2, 3, 4, 5, 9, 1, 0, 1, 1.0])
    batch = np.array([0, 0, 0, 0, 7, 7, 7, 7, -2, -2, 3, 3, 3, 3])
    found = batched_difference(arm, reward, batch, 1, 0)  # 7: one arm; -2: two rewards; 3: constant rewards
    assert (found.batches, found.left_out) == (1, 3)
    assert found.value == pytest.approx(3.5 - 2.0)
    with pytest.raises(InvalidValue, match="a batch in which arms 1 and 0"):
        batched_difference(arm[4:], reward[4:], batch[4:], 1, 0)


def test_decorrelation_equals_its_recursion() -> None:
    """W is built row by row: w_t = (I - W X) x_t / (λ + |x_t|²), over the rows before t."""
    rng, penalty = np.random.default_rng(5), 3.0
    arm = rng.integers(3, size=80)
    reward = rng.normal(arm)
    design = np.eye(3)[arm]
    rows: list[np.ndarray] = []
    for t in range(80):
        past = np.array(rows).T @ design[:t] if rows else np.zeros((3, 3))
        rows.append((np.eye(3) - past) @ design[t] / (penalty + 1))
    w = np.array(rows).T
    least, *_ = np.linalg.lstsq(design, reward, rcond=None)
    residuals = reward - design @ least
    corrected, sigma2 = least + w @ residuals, residuals @ residuals / 77
    contrast = np.array([-1.0, 0.0, 1.0])
    found = decorrelated_difference(arm, reward, 2, 0, penalty=penalty, confidence=CONFIDENCE)
    assert found.value == pytest.approx(contrast @ corrected, abs=1e-13)
    assert found.sigma2 == pytest.approx(sigma2)
    half = NORMAL * math.sqrt(sigma2 * contrast @ w @ w.T @ contrast)
    assert found.upper - found.value == pytest.approx(half)
    assert found.value - found.lower == pytest.approx(half)


def test_the_penalty_is_a_quantile_of_null_runs() -> None:
    null = "gaussian:1,1,1,variance=1"
    result = maillard.simulate("ms", null, 100, 500, seed=6)
    least = np.sort(result.pulls[0].min(axis=1)) / math.log(100)
    found = choose_penalty("ms", null, 100, runs=500, seed=6)
    assert least[4] <= found <= least[5]
    with pytest.raises(InvalidValue, match="the same mean"):
        choose_penalty("ms", "gaussian:1,0,variance=1", 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": [1.0, np.nan, 2.0]}, r"reward\[1\]"),
        ({"reward": [1.0]}, "shape"),
        ({"arm": [0.0, 1.0, 0.0]}, "float64"),
        ({"arm": []}, "arm:"),
        ({"second": 1}, "other than the first"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_bad_rows_are_refused(change, message) -> None:
    given = {"arm": [0, 1, 0], "reward": [1.0, 2.0, 3.0], "first": 1, "second": 0} | change
    with pytest.raises(InvalidValue, match=message):
        batched_difference(**given, batch=np.zeros(len(given["arm"]), int))
    with pytest.raises(InvalidValue, match=message):
        decorrelated_difference(**given, penalty=1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"penalty": -1.0}, "penalty"), ({"sigma2": -1.0}, "sigma2"), ({"second": 5}, "second")],
)
def test_bad_settings_of_decorrelation_are_refused(change, message) -> None:
    given = {"first": 1, "second": 0, "penalty": 1.0} | change
    with pytest.raises(InvalidValue, match=message):
        decorrelated_difference([0, 1, 0], [1.0, 2.0, 3.0], **given)
