"""`cs-catoni`: the confidence sequence for heavy tails, given a bound on the mean square of a reward."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from maillard import Bandit, Reward, compare, evaluate
from maillard.errors import InvalidValue
from maillard.evaluation.sequential import heavy_tails
from maillard.evaluation.sequential.heavy_tails import HeavyTailState

SIGMA, BUYERS = 1.5, 0.02
MEAN_SQUARE = BUYERS * 2500.0 * math.exp(SIGMA**2)
"Of a revenue whose mean is 1: 2% buy, for a lognormal amount with a mean of 50."


def revenue(rng: np.random.Generator, rows: int) -> np.ndarray:
    amount = rng.lognormal(math.log(50.0) - SIGMA**2 / 2, SIGMA, rows)
    return np.where(rng.random(rows) < BUYERS, amount, 0.0)


def influence(x: np.ndarray) -> np.ndarray:
    """φ, written down without shortcuts."""
    return np.asarray(np.where(x < 0, -np.log(1 - x + x * x / 2), np.log(1 + np.abs(x) + x * x / 2)))


def test_the_influence_function_satisfies_both_inequalities() -> None:
    x = np.concatenate([-np.logspace(-6, 6, 200), [0.0], np.logspace(-6, 6, 200)])
    for sign in (1.0, -1.0):
        bound = np.log(1 + sign * x + x * x / 2)
        assert (sign * influence(x) <= bound + 1e-12 * (1 + np.abs(bound))).all()


def test_the_state_equals_the_plain_sums_whatever_the_chunks() -> None:
    rng = np.random.default_rng(1)
    propensity, reward = rng.uniform(0.05, 1.0, 500), rng.normal(0.5, 3.0, 500)
    weight = np.where(rng.random(500) < propensity, 1 / propensity, 0.0)
    states = []
    for cuts in ([500], [0, 1, 7, 499], [250]):
        state = HeavyTailState.start(9.25, 0.95)
        for rows in np.split(np.arange(500), cuts):
            state.advance(weight=weight[rows], reward=reward[rows], propensity=propensity[rows])
        states.append(state)
    y = propensity * weight * reward / math.sqrt(9.25)
    scales = heavy_tails._SCALES
    plain = [*influence(scales[:, None] * y).sum(axis=1), propensity.sum()]
    assert states[0].run == pytest.approx(plain, rel=1e-12)
    assert all((state.run == states[0].run).all() for state in states)


def test_the_bounds_are_where_the_mixtures_reach_their_limit() -> None:
    rng = np.random.default_rng(2)
    state = HeavyTailState.start(MEAN_SQUARE, 0.9)
    state.advance(weight=np.full(3000, 1.0), reward=revenue(rng, 3000), propensity=np.full(3000, 1.0))
    value, lower, upper = state.bounds()
    scales, (*sums, pulls) = heavy_tails._SCALES, state.run
    for sign, bound in ((1.0, lower), (-1.0, upper)):
        apart = sign * (np.array(sums) - scales * pulls * bound / state.size) - scales**2 * pulls / 2
        assert np.log(np.mean(np.exp(apart))) == pytest.approx(math.log(2 / 0.1))
    assert lower < value < upper


def test_the_value_is_covered_at_all_looks() -> None:
    """400 logs of 4,000 rows, ten looks: at most 5% of them may miss at any look, plus 3 standard errors.

    The probability of the arm follows its rewards. A stated mean square that is 100 times too small misses.
    """
    rng, misses, wrong, trials = np.random.default_rng(3), 0, 0, 400
    for _ in range(trials):
        states = [HeavyTailState.start(bound, 0.95) for bound in (MEAN_SQUARE, MEAN_SQUARE / 100)]
        missed, p = [False, False], 0.5
        for _ in range(10):
            reward = revenue(rng, 400)
            weight = np.where(rng.random(400) < p, 1 / p, 0.0)
            for place, state in enumerate(states):
                state.advance(weight=weight, reward=reward, propensity=np.full(400, p))
                _, lower, upper = state.bounds()
                missed[place] |= not lower <= 1.0 <= upper
            p = 0.8 if (weight * reward).mean() > 1.0 else 0.1
        misses, wrong = misses + missed[0], wrong + missed[1]
    assert misses <= trials * 0.05 + 3 * math.sqrt(trials * 0.05 * 0.95)
    assert wrong > trials / 2


@pytest.fixture(scope="module")
def shop() -> Bandit:
    """3,000 decisions between two arms with the same revenue."""
    bandit = Bandit(["a", "b"], "uniform", reward=Reward(low=0, high=2000), seed=4)
    rng = np.random.default_rng(4)
    for decision, value in zip(bandit.choose(size=3000), revenue(rng, 3000).tolist(), strict=True):
        bandit.reward(decision, min(value, 2000.0))
    return bandit


def test_a_stated_mean_square_gives_a_narrow_interval_that_is_recommended(shop) -> None:
    plain, stated = evaluate(shop, "arm:a"), evaluate(shop, "arm:a", second_moment=MEAN_SQUARE)
    assert "cs-catoni" not in plain
    assert plain.best is not None
    assert stated.best is not None
    assert stated.best.name == "cs-catoni"
    assert stated.best.lower is not None
    assert stated.best.upper is not None
    assert 0 <= stated.best.lower <= 1 <= stated.best.upper  # bounds are within the range of rewards
    assert stated.best.width < plain.best.width / 4
    assert "mean square" in stated.best.assumes


def test_the_caveat_of_skewed_rewards_names_it(shop) -> None:
    assert "second_moment" in evaluate(shop, "arm:a")["snips"].caveat
    assert "second_moment" not in evaluate(shop, "arm:a", second_moment=MEAN_SQUARE)["snips"].caveat


def test_the_caveat_of_rare_clicks_does_not_offer_what_is_for_heavy_tails() -> None:
    """One click in 25 views of each arm, half as many views of b: too few for a normal interval."""
    rows = range(1500)
    arms = ["b" if row % 5 == 0 else "a" for row in rows]
    probability = [0.2 if arm == "b" else 0.8 for arm in arms]
    clicks = [float(row % 26 == 0) for row in rows]
    unit = [f"visitor-{row}" for row in rows]
    log = pa.table({"arm": arms, "probability": probability, "reward": clicks, "unit": unit})
    caveats = {arm: evaluate(log, f"arm:{arm}", ["ips"], comparisons=1)["ips"].caveat for arm in "ab"}
    assert "12 of the 300 rewards that count have the rarer value: a normal interval needs" in caveats["b"]
    assert not caveats["a"]
    assert "cs-catoni" not in caveats["b"]
    both = compare(log, "arm:a", "arm:b", ["ips"])["ips"].caveat
    assert both.startswith("arm:b: only 12 of the 300")
    assert both.count("a confidence sequence is safer") == 1


def test_compare_includes_it_only_if_the_mean_square_is_stated(shop) -> None:
    assert "cs-catoni" not in compare(shop, "arm:a", "arm:b")
    found = compare(shop, "arm:a", "arm:b", second_moment=MEAN_SQUARE)
    assert found.best is not None
    assert found.best.name == "cs-catoni"
    assert found.best.lower is not None
    assert found.best.upper is not None
    assert found.best.lower < 0 < found.best.upper


def test_it_needs_a_mean_square_that_agrees_with_the_log(shop) -> None:
    assert "second_moment" in evaluate(shop, "arm:a", ["cs-catoni"]).refusals["cs-catoni"]
    refusal = evaluate(shop, "arm:a", ["cs-catoni"], second_moment=1.0).refusals["cs-catoni"]
    assert "more than 10 times the stated second_moment of 1" in refusal
    assert "cs-catoni" in evaluate(shop, "arm:a", second_moment=1.0).refusals  # also in the default report
    for wrong in (0, -1, math.inf, math.nan, "1", True):
        with pytest.raises(InvalidValue, match="second_moment"):
            evaluate(shop, "arm:a", second_moment=wrong)


def test_it_needs_no_range_of_rewards() -> None:
    bandit = Bandit(["a", "b"], "uniform", reward=Reward(), seed=5)
    rng = np.random.default_rng(5)
    for decision, value in zip(bandit.choose(size=2000), rng.normal(-5, 1, 2000).tolist(), strict=True):
        bandit.reward(decision, value)
    assert evaluate(bandit, "arm:b").best is None  # it is still running, and nothing is known of the rewards
    best = evaluate(bandit, "arm:b", second_moment=30).best
    assert best is not None
    assert best.lower is not None
    assert best.upper is not None
    assert best.lower < -5 < best.upper
    assert best.width < 2
