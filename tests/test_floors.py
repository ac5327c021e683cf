from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import maillard
from maillard import InvalidValue, MaillardSampling, Tally, WithFloor
from tests.conftest import NAMES, make

TALLY = Tally([30, 4, 4, 2], [21, 1, 2, 0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 0.0])
def test_one_epsilon_is_mixed_in_exactly(name, epsilon) -> None:
    policy = make(name)
    p = policy.probabilities(TALLY)
    floored = WithFloor(policy, epsilon)
    assert floored.probabilities(TALLY) == pytest.approx(
        (1 - epsilon) * p + epsilon / 4, rel=1e-12, abs=1e-300
    )
    if epsilon:
        assert np.isfinite(floored.log_probabilities(TALLY)).all()
        mask = [True, False, True, True]
        some = floored.probabilities(TALLY, eligible=mask)
        assert some[1] == 0
        assert (some[[0, 2, 3]] >= epsilon / 3 * (1 - 1e-12)).all(), "the floor is over eligible arms"


def test_the_mixture_keeps_its_digits_where_p_underflows() -> None:
    tally = Tally([1100, 1100], [880, 220])
    log = WithFloor(MaillardSampling(sigma2=0.25), 1e-300).log_probabilities(tally)
    assert log[1] == pytest.approx(math.log(1e-300) - math.log(2), rel=1e-12)


def test_only_the_policys_own_part_is_in_doubt() -> None:
    rng = np.random.default_rng(1)
    pulls = np.exp(rng.uniform(0, math.log(1e9), 300)).astype(np.int64)
    tally = Tally(pulls, rng.random(300) * pulls)
    inner, floored = make("ts").distribution(tally), WithFloor(make("ts"), 0.1).distribution(tally)
    assert inner.error.max() > 1e-6
    assert floored.error.max() < 1e-9
    assert (WithFloor(make("phe:a=0.1"), 0.3).distribution(Tally([100, 100], [100, 0])).error > 0).all()
    assert WithFloor(make("ms"), 1 + 1e-13).probabilities(TALLY) == pytest.approx(0.25)


def test_a_control_keeps_its_share() -> None:
    policy = MaillardSampling(sigma2=0.25)
    floored = WithFloor(policy, (0.0, 0.0, 0.2, 0.0))
    p = policy.probabilities(TALLY)
    assert floored.probabilities(TALLY) == pytest.approx(0.8 * p + np.array([0, 0, 0.2, 0]))
    without = floored.probabilities(TALLY, eligible=[True, True, False, True])
    assert without == pytest.approx(policy.probabilities(TALLY, eligible=[True, True, False, True]))


def test_shares_that_fill_everything() -> None:
    assert WithFloor(MaillardSampling(sigma2=1), [0.1] * 10).probabilities(Tally.empty(10)) == pytest.approx(
        0.1
    )


def test_cold_arms_under_a_floor() -> None:
    policy = WithFloor(make("ucb1"), 0.4)
    assert policy.probabilities(Tally([3, 0], [1, 0])) == pytest.approx([0.5 * 0.6 + 0.2, 0.5 * 0.6 + 0.2])


@pytest.mark.parametrize(
    "spec",
    [
        "ms+:booster=8,floor=0.05,sigma2=0.25",
        "ms:floor=0.2/0.05,sigma2=1",
        "ts:floor=0.1,sigma2=1",
        "ms:floor=0.3/,sigma2=1",
        "arm:blue,floor=0.1",
    ],
)
def test_specs_pickles_and_equality(spec) -> None:
    policy = maillard.policy(spec)
    assert str(policy) == spec
    assert pickle.loads(pickle.dumps(policy)) == policy == maillard.policy(str(policy))
    assert hash(policy) == hash(maillard.policy(spec))
    assert policy.name == spec.split(":")[0]
    assert policy != maillard.policy(spec, **{}).policy


def test_what_a_floor_says_of_itself() -> None:
    assert WithFloor(make("ucb1"), 0.1).probability_kind == "closed form"
    assert WithFloor(make("ts"), 0.1).probability_kind == "quadrature"
    assert WithFloor(make("ms"), 0.1).guarantees.minimax_ratio == "linear regret"
    assert WithFloor(make("ms"), 0).guarantees == make("ms").guarantees
    assert WithFloor(make("ts"), 0.1).guarantees.closed_form_probability is False
    assert WithFloor(make("moss"), 0.1).guarantees.anytime is False
    assert WithFloor(make("moss"), 0.1).needs_horizon
    assert WithFloor(make("kl-ms"), 0.1).support == (0, 1)


def test_a_target_under_a_floor() -> None:
    target = maillard.policy("arm:blue", floor=0.1)
    assert target == maillard.policy("arm:blue,floor=0.1")
    assert target.bind(["red", "blue"]).probabilities(Tally.empty(2)) == pytest.approx([0.05, 0.95])
    with pytest.raises(maillard.UnknownName, match="bosster"):
        maillard.policy("arm:blue", bosster=3)


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, math.nan, [0.6, 0.6], [-0.1, 0.1], [[0.1]], [], "much", None])
def test_bad_floors(epsilon) -> None:
    with pytest.raises(InvalidValue, match="WithFloor: epsilon: expected a number from 0 to 1"):
        WithFloor(make("ms"), epsilon)


def test_bad_use_of_a_floor() -> None:
    with pytest.raises(InvalidValue, match="one for each of the 4 arms"):
        WithFloor(make("ms"), (0.1, 0.1)).probabilities(TALLY)
    for policy in ("ms", WithFloor(make("ms"), 0.1)):
        with pytest.raises(InvalidValue, match="WithFloor: policy: expected a policy without a floor"):
            WithFloor(policy, 0.1)
    with pytest.raises(InvalidValue, match="no second floor"):
        maillard.policy(WithFloor(make("ms"), 0.1), floor=0.2)
