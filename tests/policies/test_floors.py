"""Floors, constant and decaying: exact mixtures, specs, refused input, simulated logs."""

from __future__ import annotations

import functools
import math
import pickle

import numpy as np
import pytest

import maillard
from maillard import InvalidValue, MaillardSampling, Tally, WithFloor
from maillard.policies import floors
from tests.conftest import NAMES, make

TALLY = Tally([30, 4, 4, 2], [21, 1, 2, 0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 0.0])
def test_one_epsilon_is_applied_exactly(name, epsilon) -> None:
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


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 0.1, 0.5, 1.0])
def test_few_arms_have_the_same_bits_as_many(epsilon, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    # With one arm and an epsilon of 0.5, both terms of the sum are equal.
    for log in (*-(10.0 ** rng.uniform(-9, 3, (75, 4))), np.array([0.0, -np.inf]), np.zeros(1)):
        few = floors.mix_uniform(log, epsilon, log.size)
        with monkeypatch.context() as patched:
            patched.setattr(floors, "FEW_ARMS", 0)
            assert np.array_equal(few, floors.mix_uniform(log, epsilon, log.size), equal_nan=True)


def test_the_mixture_keeps_its_digits_where_p_underflows() -> None:
    tally = Tally([1100, 1100], [880, 220])
    log = WithFloor(MaillardSampling(sigma2=0.25), 1e-300).log_probabilities(tally)
    assert log[1] == pytest.approx(math.log(1e-300) - math.log(2), rel=1e-12)


def test_the_error_covers_only_the_policys_part() -> None:
    rng = np.random.default_rng(1)
    pulls = np.exp(rng.uniform(0, math.log(1e9), 300)).astype(np.int64)
    tally = Tally(pulls, rng.random(300) * pulls)
    inner, floored = make("ts").distribution(tally), WithFloor(make("ts"), 0.1).distribution(tally)
    assert inner.error.max() > 1e-6
    assert floored.error.max() < 1e-9
    assert (WithFloor(make("phe:a=0.1"), 0.3).distribution(Tally([100, 100], [100, 0])).error > 0).all()
    assert WithFloor(make("ms"), 1 + 1e-13).probabilities(TALLY) == pytest.approx(0.25)


def test_a_control_arm_keeps_its_probability() -> None:
    policy = MaillardSampling(sigma2=0.25)
    floored = WithFloor(policy, (0.0, 0.0, 0.2, 0.0))
    p = policy.probabilities(TALLY)
    assert floored.probabilities(TALLY) == pytest.approx(0.8 * p + np.array([0, 0, 0.2, 0]))
    without = floored.probabilities(TALLY, eligible=[True, True, False, True])
    assert without == pytest.approx(policy.probabilities(TALLY, eligible=[True, True, False, True]))


def test_floors_that_sum_to_one() -> None:
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
        "ms+:floor=1,floor_decay=0.7,sigma2=0.25",
        "ms:floor=0.2/0.05,floor_decay=0.25,sigma2=1",
        "dist:blue=0.5,floor=0.1,floor_decay=0.5,red=0.5",
    ],
)
def test_specs_pickles_and_equality(spec) -> None:
    policy = maillard.policy(spec)
    assert str(policy) == spec
    assert pickle.loads(pickle.dumps(policy)) == policy == maillard.policy(str(policy))
    assert hash(policy) == hash(maillard.policy(spec))
    assert policy.name == spec.split(":")[0]
    assert policy != maillard.policy(spec, **{}).policy


def test_properties_of_a_floor() -> None:
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
    with pytest.raises(InvalidValue, match=r"^floor: expected a number from 0 to 1"):
        WithFloor(make("ms"), epsilon)


def test_bad_use_of_a_floor() -> None:
    with pytest.raises(InvalidValue, match="4 numbers, one per arm"):
        WithFloor(make("ms"), (0.1, 0.1)).probabilities(TALLY)
    for policy in ("ms", WithFloor(make("ms"), 0.1)):
        with pytest.raises(InvalidValue, match="WithFloor: policy: expected a policy without a floor"):
            WithFloor(policy, 0.1)
    with pytest.raises(InvalidValue, match="no second floor"):
        maillard.policy(WithFloor(make("ms"), 0.1), floor=0.2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [1.0, 0.3, (0.1, 0.0, 0.4, 0.2)])
def test_a_decaying_floor_is_applied_exactly(name, epsilon) -> None:
    policy, mask = make(name), np.array([True, False, True, True])
    floored = WithFloor(policy, epsilon, decay=0.7)
    for t in (TALLY.round, 10**6):
        floor = np.full(4, epsilon / 4) if isinstance(epsilon, float) else np.array(epsilon)
        floor = floor * t**-0.7
        plain = (1 - floor.sum()) * policy.probabilities(TALLY, round=t) + floor
        assert floored.probabilities(TALLY, round=t) == pytest.approx(plain, rel=1e-12, abs=1e-300)
        floor = (
            (np.full(4, epsilon / 3) if isinstance(epsilon, float) else np.array(epsilon)) * mask * t**-0.7
        )
        plain = (1 - floor.sum()) * policy.probabilities(TALLY, round=t, eligible=mask) + floor
        some = floored.probabilities(TALLY, round=t, eligible=mask)
        assert some == pytest.approx(plain, rel=1e-12, abs=1e-300)


def test_the_first_round_of_a_whole_floor_is_uniform() -> None:
    for spec in ("ms", "ucb1", "arm:1"):
        p = maillard.policy(spec, sigma2=1, floor=1, floor_decay=0.7).probabilities(Tally.empty(4))
        assert p == pytest.approx(0.25, rel=1e-15)


def test_properties_of_a_decaying_floor() -> None:
    floored = WithFloor(make("ms+"), 1, decay=0.7)
    assert floored.guarantees.minimax_ratio is None
    assert floored.guarantees.sub_ucb is floored.guarantees.asymptotically_optimal is False
    assert WithFloor(make("uniform"), 1, decay=0.7).guarantees.minimax_ratio == "linear regret"
    assert WithFloor(make("ms+"), 0, decay=0.7).guarantees == make("ms+").guarantees
    assert floored.constant_probabilities(4) is None, "no part of it is constant"
    assert WithFloor(make("ms+"), 1).constant_probabilities(4) == pytest.approx(0.25)
    assert WithFloor(make("ms+"), 0.1, decay=0.0) == WithFloor(make("ms+"), 0.1) != floored
    assert str(WithFloor(make("ms+"), 0.1, decay=0)) == str(WithFloor(make("ms+"), 0.1))


@pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5, math.nan, True, "fast", None, (0.1, 0.2)])
def test_bad_decays(decay) -> None:
    with pytest.raises(InvalidValue, match=r"^floor_decay: expected a number >= 0 and < 1"):
        WithFloor(make("ms"), 0.1, decay=decay)


def test_bad_use_of_a_decay() -> None:
    with pytest.raises(InvalidValue, match="floor_decay: expected a floor as well"):
        maillard.policy("ms:floor_decay=0.7,sigma2=1")
    with pytest.raises(InvalidValue, match="no second floor"):
        maillard.policy(WithFloor(make("ms"), 0.1), floor_decay=0.2)
    with pytest.raises(TypeError):
        WithFloor(make("ms"), 0.1, 0.5)  # type: ignore[call-arg]
    with pytest.raises(maillard.UnknownName, match="Did you mean 'floor_decay'"):
        maillard.policy("ms:floor=1,floor_decays=0.7,sigma2=1")


@pytest.mark.parametrize(
    "spec",
    [
        "ms+:floor=1,floor_decay=0.7",
        "ucb1:floor=0.2/0/0.3,floor_decay=0.3",
        "epsilon-greedy:floor=0.5,floor_decay=0.5",
        "arm:1,floor=1,floor_decay=0.7",
        "ts:floor=1,floor_decay=0.7",
    ],
)
def test_a_simulated_log_has_the_probabilities_of_a_live_policy(spec) -> None:
    log = maillard.simulate_log(spec, "bernoulli:0.6,0.5,0.3", horizon=25 if spec[0] == "t" else 200, seed=4)
    policy, tally = maillard.policy(log.provenance["policy"]), Tally.empty(3)
    for t, arm in enumerate(log.arms):
        if t >= log.forced:
            assert log.log_probabilities[t] == pytest.approx(policy.log_probabilities(tally), rel=1e-12)
        tally.add(int(arm), float(log.rewards[t]))


@functools.cache
def _plain_pulls(runs: int, horizon: int, decay: float) -> np.ndarray:
    """Simulate MS with the floor t^-decay / K directly; return mean pulls and their standard errors."""
    means, rng = np.array([0.6, 0.5, 0.2]), np.random.default_rng(5)
    n = np.ones((runs, 3))
    s = (rng.random((runs, 3)) < means).astype(float)
    for t in range(4, horizon + 1):
        gap = (s / n).max(axis=1, keepdims=True) - s / n
        p = np.exp(-2 * n * gap**2)
        p = (1 - t**-decay) * p / p.sum(axis=1, keepdims=True) + t**-decay / 3
        arm = (rng.random((runs, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=2)
        n[np.arange(runs), arm] += 1
        s[np.arange(runs), arm] += rng.random(runs) < means[arm]
    return np.array([n.mean(axis=0), n.std(axis=0, ddof=1) / math.sqrt(runs)])


@pytest.mark.parametrize("engine", ["lazy", "direct"])
def test_simulated_pulls_match_a_direct_implementation(engine) -> None:
    result = maillard.simulate(
        "ms:floor=1,floor_decay=0.7", "bernoulli:0.6,0.5,0.2", 150, 10_000, seed=3, engine=engine
    )
    pulls = result.pulls[0]
    z = {}
    for decay in (0.7, 0.63):  # the second differs from the simulated decay
        mean, error = _plain_pulls(10_000, 150, decay)
        z[decay] = (pulls.mean(axis=0) - mean) / np.hypot(
            error, pulls.std(axis=0, ddof=1) / math.sqrt(10_000)
        )
    assert np.abs(z[0.7]).max() < 4  # with three arms, correct code exceeds 4 about once in 5,000 runs
    assert np.abs(z[0.63]).max() > 5


def test_a_live_log_under_a_decaying_floor_verifies(tmp_path) -> None:
    path = tmp_path / "log.db"
    with maillard.Bandit(
        ["red", "blue"], policy="ms+:floor=1,floor_decay=0.7", reward=maillard.Reward(low=0, high=1), log=path
    ) as bandit:
        for t in range(1, 41):
            decision = bandit.choose()
            assert min(decision.probabilities.values()) >= t**-0.7 / 2 * (1 - 1e-12)
            bandit.reward(decision.id, float(decision.arm == "red"))
    found = maillard.verify(path)
    assert found.problems == []
    assert (found.recomputed, found.decisions) == (40, 40)
