"""The contract of policies, tested on every registered policy."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import maillard
from maillard import (
    FixedArm,
    FixedDistribution,
    InvalidValue,
    MaillardError,
    Policy,
    Tally,
    UnknownName,
    WithFloor,
)
from tests.conftest import NAMES, VARIANTS, make

EVERY = [*NAMES, *VARIANTS]
FAST = [name for name in EVERY if make(name).probability_kind != "quadrature"]
SLOW = [name for name in EVERY if make(name).probability_kind == "quadrature"]
NEED_UNIT = [name for name in EVERY if make(name).support[1] == 1.0]
DESIGNED = [
    "ms",
    "ms+",
    "ms-practical",
    "ms-printed",
    "kl-ms",
    "kl-ms+",
    "ms-exponential-family",
    "boltzmann",
    "boltzmann-gumbel",
    "epsilon-greedy",
    "uniform",
    "ts",
    "ts-sg",
    "ts-bernoulli",
    "giro",
    "phe",
    "ucb1",
    "aoucb",
    "moss",
    "moss-anytime",
    "ucb+",
    "ocucb",
    "ocucb-n",
    "adaucb",
    "kl-ucb",
    "kl-ucb++",
    "med",
    "imed",
    "dmed",
    "apt",
]


@st.composite
def tallies(draw: st.DrawFn, policy: Policy, most_arms: int, most_pulls: int = 10**9) -> Tally:
    """Pulls from 1 to 10^9 on a log scale, gaps from 0 to 10^3, ties included."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    k = int(np.exp(draw(st.floats(0, np.log(most_arms)))))
    pulls = np.exp(rng.uniform(0, np.log(most_pulls), k)).astype(np.int64)
    low, high = policy.support
    gap = 1.0 if high == 1.0 else 10.0 ** draw(st.floats(-9, 3))
    means = gap * rng.random(k) + (0.001 * gap if low == 0.0 and high > 1.0 else 0.0)
    tied = draw(st.sampled_from(["no", "all", "half"]))
    if tied == "all":
        pulls[:], means[:] = pulls[0], means[0]
    elif tied == "half":
        pulls[: k // 2], means[: k // 2] = 64, means.max()
    sums = np.minimum(np.rint(means * pulls), pulls) if policy.support == (0.0, 1.0) else means * pulls
    return Tally(pulls, sums)


def check_distribution(policy: Policy, tally: Tally) -> None:
    log = policy.log_probabilities(tally)
    assert not np.isnan(log).any()
    assert (log <= 0).all()
    assert abs(policy.probabilities(tally).sum() - 1) < 1e-12
    if policy.probability_kind != "deterministic" and policy.name not in ("kl-ms", "kl-ms+", "giro", "phe"):
        always = getattr(policy, "family", "gaussian") != "bernoulli"
        assert np.isfinite(log).all() or not always


def test_every_policy_of_the_design_is_registered() -> None:
    assert set(DESIGNED) <= set(NAMES)


@pytest.mark.torture
@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=100)
@given(data=st.data())
def test_many_more_distributions(name, data) -> None:
    policy = make(name)
    slow = policy.name in ("ts-bernoulli", "giro", "phe")
    check_distribution(policy, data.draw(tallies(policy, 60 if slow else 10_000)))


@pytest.mark.parametrize("name", FAST)
@settings(max_examples=25)
@given(data=st.data())
def test_probabilities_are_a_distribution(name, data) -> None:
    policy = make(name)
    check_distribution(policy, data.draw(tallies(policy, 10_000)))


@pytest.mark.parametrize("name", SLOW)
@settings(max_examples=5)
@given(data=st.data())
def test_quadrature_is_a_distribution(name, data) -> None:
    policy = make(name)
    most_arms = 60 if policy.name in ("ts-bernoulli", "giro", "phe") else 1000
    check_distribution(policy, data.draw(tallies(policy, most_arms)))


@pytest.mark.parametrize("name", ["ms+", "kl-ms", "ocucb-n", "ts", "boltzmann-gumbel", "phe"])
def test_ten_thousand_arms_of_many_scales(name) -> None:
    policy, rng = make(name), np.random.default_rng(1)
    pulls = np.exp(rng.uniform(0, np.log(1e9), 10_000)).astype(np.int64)
    check_distribution(policy, Tally(pulls, np.rint(pulls * rng.random(10_000))))


@pytest.mark.parametrize("name", [name for name in FAST if name in NAMES])
def test_a_million_arms_are_accepted(name) -> None:
    policy, rng = make(name), np.random.default_rng(2)
    pulls = rng.integers(1, 50, 10**6)
    tally = Tally(pulls, rng.integers(0, pulls) + (0 if policy.support[1] == 1 else 1))
    assert abs(policy.probabilities(tally).sum() - 1) < 1e-12


def chi_square(policy: Policy, tally: Tally, probabilities: np.ndarray, samples: int) -> float:
    """Return the p-value of choices by `choose` under the given probabilities."""
    seen = policy.choose(tally, np.random.default_rng(12345), size=samples)
    counts = np.bincount(seen, minlength=len(tally))
    assert counts[probabilities == 0].sum() == 0
    likely = probabilities * samples >= 5
    observed = np.append(counts[likely], counts[~likely].sum())
    expected = np.append(probabilities[likely], probabilities[~likely].sum()) * samples
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    if len(observed) == 1:  # one arm is certain; the assertion above checks the others
        return 1.0
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


ENOUGH = Tally([3, 4, 4, 2, 5], [1, 3, 3, 1, 2])  # arms 1 and 2 tie for the lead


@pytest.mark.parametrize("name", NAMES)
def test_choose_samples_from_probabilities(name) -> None:
    policy = make(name)
    # One test per policy at level 1e-4 / 30: one in 10^4 seeds makes the suite fail by accident.
    assert chi_square(policy, ENOUGH, policy.probabilities(ENOUGH), 10**5) > 1e-4 / 30


def test_wrong_probabilities_are_detected() -> None:
    """The negative control: MS+ that boosts only the first of two tied leaders."""
    policy = make("ms+")
    p = policy.probabilities(ENOUGH)
    wrong = p.copy()
    wrong[2] /= 4
    assert chi_square(policy, ENOUGH, wrong / wrong.sum(), 10**5) < 1e-12


@pytest.mark.parametrize("name", EVERY)
def test_equal_copies_and_specs(name) -> None:
    policy = make(name)
    for twin in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), maillard.policy(str(policy))):
        assert twin == policy
        assert hash(twin) == hash(policy)
        assert str(twin) == str(policy)
        assert np.array_equal(twin.probabilities(ENOUGH), policy.probabilities(ENOUGH))


@pytest.mark.parametrize("name", NAMES)
def test_metadata(name) -> None:
    cls = maillard.policies.policy_class(name)
    assert cls.formula
    assert cls.reference
    assert cls.__doc__
    assert cls.guarantees.source != "not stated"
    assert cls.probability_kind in ("closed form", "quadrature", "deterministic")
    assert all(parameter.meaning for _, parameter, _ in cls.parameters())
    closed = {"closed form": True, "quadrature": False, "deterministic": None}
    assert cls.guarantees.closed_form_probability == closed[cls.probability_kind]


@pytest.mark.parametrize("name", EVERY)
def test_ineligible_arms_are_treated_as_absent(name) -> None:
    policy = make(name)
    mask = np.array([True, False, True, True, False])
    some = Tally(ENOUGH.pulls[mask], ENOUGH.sums[mask])
    masked = policy.log_probabilities(ENOUGH, eligible=mask)
    assert np.isneginf(masked[~mask]).all()
    assert np.array_equal(masked[mask], policy.log_probabilities(some, round=ENOUGH.round))


@pytest.mark.parametrize("name", EVERY)
def test_cold_arms(name) -> None:
    policy = make(name)
    k = 4
    assert policy.probabilities(Tally.empty(k)) == pytest.approx(1 / k)
    tally = Tally([6, 0, 3, 0], [4, 0, 1, 0])
    p = policy.probabilities(tally)
    assert abs(p.sum() - 1) < 1e-12
    assert p[1] == pytest.approx(p[3], rel=1e-12)
    if isinstance(policy, maillard.Sampled):
        # A cold arm has weight exp(0), like a rival with exponent 0.
        weights = np.exp(policy._weights(np.array([6.0, 3.0]), np.array([4.0, 1.0]), tally.round))
        assert p == pytest.approx(np.array([weights[0], 1, weights[1], 1]) / (weights.sum() + 2))
    elif not getattr(policy, "has_prior", False) and name != "epsilon-greedy":
        warm = policy.probabilities(tally, eligible=tally.pulls > 0)
        if policy.name not in ("moss", "moss-anytime", "kl-ucb++"):  # their formulas count all arms
            assert p == pytest.approx(np.where(tally.pulls > 0, warm * 0.5, 0.25))
        assert p[[1, 3]] == pytest.approx(0.25)


@pytest.mark.parametrize("name", NAMES)
def test_one_arm(name) -> None:
    assert make(name).probabilities(Tally([7], [3])) == pytest.approx(1)


@pytest.mark.parametrize("name", sorted({"moss", "ucb+", "ocucb", "adaucb", "kl-ucb++"}))
def test_a_missing_horizon_is_an_error_and_a_passed_one_is_not(name) -> None:
    with pytest.raises(InvalidValue, match="horizon: expected the number of rounds"):
        maillard.policy(name, sigma2=0.25).probabilities(ENOUGH)
    short = maillard.policy(name, sigma2=0.25, horizon=5)
    assert short.probabilities(ENOUGH).sum() == pytest.approx(1)


@pytest.mark.parametrize("name", sorted(set(NEED_UNIT)))
def test_rewards_outside_the_unit_interval_are_rejected(name) -> None:
    for sums in ([-1, 1], [5, 1]):
        with pytest.raises(InvalidValue, match=r"sums\[0\] over 4 pulls: expected rewards from 0 to 1"):
            make(name).probabilities(Tally([4, 4], sums))


def test_giro_requires_rewards_of_0_and_1() -> None:
    with pytest.raises(InvalidValue, match="rewards 0 and 1"):
        make("giro").probabilities(Tally([4, 4], [1.5, 2]))


@pytest.mark.parametrize(
    ("name", "sums"), [("imed:family=exponential", [0, 1]), ("med:family=poisson", [-1, 1])]
)
def test_families_reject_rewards_outside_their_support(name, sums) -> None:
    with pytest.raises(InvalidValue, match="rewards"):
        make(name).probabilities(Tally([4, 4], sums))


@pytest.mark.parametrize(
    ("spec", "parameters", "message"),
    [
        ("ms", {}, r"ms: sigma2: expected a finite number > 0 and <= 1e\+100 \(or pass reward_range"),
        ("ms", {"sigma2": 0}, "sigma2: expected a finite number > 0.*got 0"),
        ("ms", {"sigma2": -1.0}, "got -1.0"),
        ("ms", {"sigma2": float("nan")}, "got nan"),
        ("ms", {"sigma2": True}, "got True"),
        ("ms:sigma2=abc", {}, "got 'abc'"),
        ("ms", {"reward_range": (1, 0)}, "reward_range: expected two finite numbers with low < high"),
        ("ms", {"reward_range": 3}, r"reward_range: expected \(low, high\)"),
        ("ms+:booster=0.5", {"sigma2": 1}, r"booster: expected a finite number >= 1, got 0.5"),
        ("ms+:c=1.5", {"sigma2": 1}, "c: expected a finite number >= 0 and <= 1, got 1.5"),
        ("ms+:c=-0.1", {"sigma2": 1}, "c: .*got -0.1"),
        ("ms+:d=0", {"sigma2": 1}, "d: expected a finite number > 0 and <= 1, got 0"),
        ("ms+:d=2", {"sigma2": 1}, "d: .*got 2"),
        ("ms+", {"sigma2": 1, "booster": float("inf")}, "booster: .*got inf"),
        ("ms", {"sigma2": 1e-200}, "sigma2: .*got 1e-200"),
        ("ts:scale=1e200", {"sigma2": 1}, "scale: expected a finite number > 0 and <= 1e"),
        ("ms", {"reward_range": (0, 10**400)}, "reward_range"),
        ("moss:horizon=1e300", {"sigma2": 1}, "horizon: expected a whole number"),
        ("moss:horizon=0", {"sigma2": 1}, "horizon: expected a whole number from 1 to .*got 0"),
        ("moss:horizon=1.5", {"sigma2": 1}, "horizon: expected a whole number"),
        ("boltzmann:schedule=linear", {}, "schedule: expected one of constant, log, got 'linear'"),
        ("med:family=cauchy", {}, "family: expected one of gaussian, bernoulli, poisson, exponential"),
        ("kl-ms:jeffreys=7", {}, "jeffreys: expected true or false, got 7"),
        ("epsilon-greedy:epsilon=2", {}, "epsilon: .*got 2"),
        ("ms:floor=2", {"sigma2": 1}, "floor: expected a number from 0 to 1"),
        ("ms:sigma2=1", {"sigma2": 2}, r"sigma2: expected 1 as in the spec \(or leave .*\), got 2"),
        ("ms:0.5", {"sigma2": 2}, "expected parameters as key=value, got 0.5"),
        ("arm", {}, "one arm, as in arm:blue"),
        ("dist:red=0.7,blue=0.1", {}, "sum to 1"),
    ],
)
def test_bad_parameters_are_named(spec, parameters, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        maillard.policy(spec, **parameters)


@pytest.mark.parametrize(
    ("spec", "parameters", "message"),
    [
        ("ms++", {}, "policy: unknown name 'ms\\+\\+'. Did you mean 'ms\\+'"),
        ("thomson", {}, "policy: unknown name 'thomson'. Did you mean 'thompson'"),
        ("Thompson", {}, "Did you mean 'thompson'"),
        ("UCB1", {"sigma2": 1}, "Did you mean 'ucb1'"),
        ("epsilon_greedy:epsilon=0.2", {}, "Did you mean 'epsilon-greedy'"),
        ("ms+:boost=3", {"sigma2": 1}, "parameter of ms\\+: unknown name 'boost'. Did you mean 'booster'"),
        ("ms", {"sigma2": 1, "bosster": 1}, "parameter of ms: unknown name 'bosster'"),
    ],
)
def test_unknown_names_suggest_the_closest_match(spec, parameters, message) -> None:
    with pytest.raises(UnknownName, match=message):
        maillard.policy(spec, **parameters)


@pytest.mark.parametrize(
    ("alias", "parameters", "spec"),
    [
        ("thompson", {"reward_range": (0, 1)}, "ts-bernoulli"),
        ("thompson:floor=0.1", {"reward_range": (0.0, 1.0)}, "ts-bernoulli:floor=0.1"),
        ("thompson", {"reward_range": (0, 2)}, "ts:sigma2=1"),
        ("thompson", {"sigma2": 1}, "ts:sigma2=1"),
        ("thompson:reward_range=0..1", {}, "ts-bernoulli"),
        ("softmax:eta=2", {}, "boltzmann:eta=2"),
        ("ucb", {"sigma2": 1}, "ucb1:sigma2=1"),
        ("epsilon-greedy", {}, "epsilon-greedy"),
    ],
)
def test_aliases(alias, parameters, spec) -> None:
    assert str(maillard.policy(alias, **parameters)) == spec


@pytest.mark.parametrize(
    "eligible", [[1, 0, 1, 1, 1], [True], True, "yes", [0.5] * 5, [[True], [True, False]]]
)
def test_invalid_masks_are_refused(eligible) -> None:
    with pytest.raises(InvalidValue, match="eligible: expected a list of 5 booleans, one per arm"):
        make("ms").probabilities(ENOUGH, eligible=eligible)


@pytest.mark.parametrize("name", NAMES)
def test_no_eligible_arm_is_an_error(name) -> None:
    with pytest.raises(InvalidValue, match="eligible: expected at least one eligible arm"):
        make(name).choose(ENOUGH, np.random.default_rng(), eligible=[False] * 5)


@pytest.mark.parametrize("round", [4, 0, -1, 1.5, True, "9", 10**30])
def test_invalid_rounds_are_refused(round) -> None:
    with pytest.raises(InvalidValue, match="round: expected"):
        make("ms+").probabilities(ENOUGH, round=round)


def test_invalid_tallies_and_generators() -> None:
    with pytest.raises(InvalidValue, match="tally: expected a Tally"):
        make("ms").probabilities([1, 2])
    with pytest.raises(InvalidValue, match=r"rng: expected a numpy\.random\.Generator"):
        make("ms").choose(ENOUGH, 7)


def test_med_is_maillard_sampling() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        pulls = rng.integers(1, 1000, 5)
        tally = Tally(pulls, rng.normal(size=5) * pulls)
        med, ms = (make(name).log_probabilities(tally) for name in ("med", "ms"))
        assert med == pytest.approx(ms, rel=1e-14, abs=1e-14)


def test_explore_is_ms_practical() -> None:
    rng = np.random.default_rng(5)
    pulls = rng.integers(0, 30, (200, 6))
    pulls[:, 0] += 1
    sums = np.rint(pulls * rng.random((200, 6)))
    batch = maillard.explore(sums / np.maximum(pulls, 1), pulls, sigma2=0.25)
    policy = make("ms-practical")
    for row, n, s in zip(batch, pulls, sums, strict=True):
        assert row == pytest.approx(policy.probabilities(Tally(n, s)), rel=1e-13)


@pytest.mark.parametrize(
    ("spec", "warm", "expected"),
    [
        # Beta(1, 1) against Beta(2, 1): P(first larger) = E[1 - X] = 1/3.
        ("ts-bernoulli", (1, 1.0), 1 / 3),
        # N(0, 4 s) against N(1/2, 2 s), s = 1/4: the difference has mean -1/2 and variance 3/2.
        ("ts-sg", (1, 1.0), stats.norm.sf(0.5 / np.sqrt(1.5))),
        # Bin(2, 1/2) / 2 against (1 + Bin(2, 1/2)) / 3: 1 beats 1/3 and 2/3 and ties with 1; 1/2 beats 1/3.
        ("phe", (1, 1.0), 1 / 4 * (3 / 4 + 1 / 8) + 1 / 2 * 1 / 4),
        # Bin(2, 1/2) / 2 against Bin(3, 2/3) / 3: P = 1/4 (19/27 + 4/27) + 1/2 7/27 + 1/4 (1/27) / 2.
        ("giro", (1, 1.0), 1 / 4 * (19 / 27 + 4 / 27) + 1 / 2 * 7 / 27 + 1 / 4 * 1 / 27 / 2),
        # A cold arm has probability 1/2, the warm arm has the rest, and mixing with uniform changes neither.
        ("epsilon-greedy", (1, 1.0), 1 / 2),
    ],
)
def test_a_cold_arm_and_an_arm_with_one_pull(spec, warm, expected) -> None:
    n, s = warm
    assert make(spec).probabilities(Tally([0, n], [0, s]))[0] == pytest.approx(expected, rel=1e-9)


def test_epsilon_applies_when_an_arm_is_cold() -> None:
    p = make("epsilon-greedy").probabilities(Tally([0, 2, 2], [0, 2, 1]))
    assert p == pytest.approx([1 / 3, 0.9 * 2 / 3 + 0.1 / 3, 0.1 / 3])


def test_errors_of_warm_arms_are_no_smaller_with_a_cold_arm() -> None:
    warm = make("ts").distribution(Tally([30, 4, 900], [20, 2, 1]))
    mixed = make("ts").distribution(Tally([30, 0, 4, 900], [20, 0, 2, 1]))
    assert (mixed.error[[0, 2, 3]] >= warm.error).all()
    assert mixed.error[1] > 0


@pytest.mark.parametrize(
    "policy", [FixedArm(0), FixedDistribution([0.5, 0.25, 0.25, 0, 0]), WithFloor(make("ucb1"), 0.1)]
)
def test_targets_and_floors_satisfy_the_contract(policy) -> None:
    distribution = policy.distribution(ENOUGH)
    assert np.array_equal(distribution.log_probabilities, policy.log_probabilities(ENOUGH))
    assert np.exp(distribution.log_probabilities).sum() == pytest.approx(1)
    assert policy.choose(ENOUGH, np.random.default_rng(0)) in range(5)
    assert policy.needs_horizon is False


def test_several_choices_at_once() -> None:
    rng = np.random.default_rng(0)
    assert make("ms").choose(ENOUGH, rng, size=0).tolist() == []
    assert make("ms").choose(ENOUGH, rng, size=3).shape == (3,)
    for size in (-1, 1.5, "3"):
        with pytest.raises(InvalidValue, match="size: expected a whole number >= 0"):
            make("ms").choose(ENOUGH, rng, size=size)


def test_a_family_without_sigma2_ignores_it() -> None:
    assert maillard.policy(maillard.policy("kl-ucb"), sigma2=0.25) == maillard.policy("kl-ucb", sigma2=3)
    assert maillard.policy("med:family=bernoulli") == maillard.policy("med:family=bernoulli,sigma2=9")
    with pytest.raises(InvalidValue, match="sigma2"):
        maillard.policy("med:family=bernoulli,sigma2=-5")


def test_formulas_that_return_one_number() -> None:
    class Flat(maillard.MaillardSampling):
        def rival(self, n, mean, best, t):
            return -1

    assert Flat(sigma2=1).probabilities(Tally([1, 1], [1, 0])) == pytest.approx(
        [1, np.exp(-1)] / (1 + np.exp(-1))
    )

    class Same(maillard.UCB1):
        def index(self, n, mean, best, t, k):
            return 1

    assert Same(sigma2=1).probabilities(ENOUGH) == pytest.approx(0.2)


@pytest.mark.parametrize("value", [np.ones((5, 5)), np.ones(4), "many"])
def test_formulas_that_return_something_else(value) -> None:
    class Odd(maillard.UCB1):
        def index(self, n, mean, best, t, k):
            return value

    with pytest.raises(
        InvalidValue, match="ucb1: index: expected 5 numbers, one per arm, or a single number"
    ):
        Odd(sigma2=1).probabilities(ENOUGH)


@pytest.mark.parametrize("score", [(np.nan, 1.0), (0.0, -1.0), (0.0, 0.0), (np.inf, 1.0)])
def test_invalid_score_distributions(score) -> None:
    class Odd(maillard.GaussianThompson):
        def score(self, n, s):
            return score

    for tally in (ENOUGH, Tally([1, 2], [0, 1])):
        with pytest.raises(
            InvalidValue, match="ts: score of arm 0: expected two finite numbers, the second > 0"
        ):
            Odd(sigma2=1).probabilities(tally)


def test_sizes_that_cannot_be_summed() -> None:
    with pytest.raises(
        InvalidValue, match="phe: number of rewards and pseudo-rewards of an arm: expected fewer than"
    ):
        make("phe:a=5").probabilities(Tally([10**9] * 2, [1, 2]))


@pytest.mark.parametrize(
    "spec", ["med:family=poisson", "kl-ms", "kl-ucb:family=poisson", "kl-ucb", "imed:family=poisson"]
)
@pytest.mark.parametrize("mean", [5e-324, 1e-309, 1e-300, 1e-149, 1e-100])
def test_means_near_zero(spec, mean) -> None:
    assert make(spec).probabilities(Tally([1, 1], [mean, 0.5])).sum() == pytest.approx(1)


def test_a_field_that_does_not_check_itself_is_rejected() -> None:
    with pytest.raises(
        InvalidValue, match=r"Plain.width: expected a parameter declared by real\(...\), whole"
    ):
        type(
            "Plain",
            (maillard.Indexed,),
            {"name": "plain-for-test", "__annotations__": {"width": float}, "width": 2.0},
        )


def test_a_gap_past_the_float_range() -> None:
    assert make("ms+").log_probabilities(Tally([1, 1], [1e170, 0])).tolist() == [0, -np.inf]


def test_reward_range_implies_sigma2() -> None:
    assert maillard.policy("ms:reward_range=0..1") == maillard.MaillardSampling(sigma2=0.25)
    assert maillard.policy("ms", reward_range=(1, 5)) == maillard.MaillardSampling(sigma2=4)
    assert maillard.policy("ms:sigma2=1", reward_range=(0, 1)) == maillard.MaillardSampling(sigma2=1)


def test_keywords_complete_a_given_policy() -> None:
    open_ended = maillard.policy("moss:floor=0.1", sigma2=0.25)
    assert maillard.policy(open_ended, horizon=9) == maillard.policy("moss:floor=0.1,horizon=9,sigma2=0.25")
    with pytest.raises(InvalidValue, match=r"sigma2: expected 0\.25"):
        maillard.policy(open_ended, sigma2=1)


def test_known_value_of_ms_plus_with_two_tied_leaders() -> None:
    """Round 13, sigma2 = 1/4, B = 4, C = D = 0.01, worked out on paper.

    Arms 0 and 1 lead with mean 3/4 (N = 4 and 4), arm 2 has mean 1/2 (N = 4): x = 4 (1/4)^2 / (1/2) = 1/2.
    Leaders weigh 4 (1 + 0.01 ln(1 + ln(13/4))) = 4 (1 + 0.01 ln 2.1786550) = 4.0311478...; the rival weighs
    exp(-1/2) (1 + 0.005) = 0.6095633...
    """
    leader = 4 * (1 + 0.01 * np.log(1 + np.log(13 / 4)))
    rival = np.exp(-0.5) * 1.005
    assert leader == pytest.approx(4.031149, abs=1e-6)
    assert rival == pytest.approx(0.609563, abs=1e-6)
    p = maillard.MaillardSamplingPlus(sigma2=0.25).probabilities(Tally([4, 4, 4], [3, 3, 2]))
    total = 2 * leader + rival
    assert p == pytest.approx([leader / total, leader / total, rival / total], rel=1e-15)
    assert p == pytest.approx([0.464853, 0.464853, 0.070293], abs=2e-6)


def test_underflow_keeps_its_logarithm() -> None:
    log = make("ms").log_probabilities(Tally([1100, 1100], [880, 220]))
    assert log[1] == pytest.approx(-1100 * 0.36 * 2, rel=1e-12)
    assert make("ms").probabilities(Tally([1100, 1100], [880, 220]))[1] == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_nan_is_named(value) -> None:
    class Broken(maillard.MaillardSampling):
        def rival(self, n, mean, best, t):
            return np.where(n == 2, value, -n)

    with pytest.raises(
        InvalidValue, match=r"ms: log weight of arm 3: expected a number < inf, got (np.float64\()?(nan|inf)"
    ):
        Broken(sigma2=1).probabilities(ENOUGH)


def test_a_formula_that_returns_nan_is_named() -> None:
    class Broken(maillard.Indexed):
        name = "broken-for-test"

        def index(self, n, mean, best, t, k):
            return mean * float("nan")

    try:
        with pytest.raises(InvalidValue, match="broken-for-test: index of arm 0"):
            Broken().probabilities(ENOUGH)
    finally:
        del Policy.registry["broken-for-test"]


def test_used_and_malformed_names_are_refused() -> None:
    with pytest.raises(InvalidValue, match="an unused name"):
        type("Second", (maillard.Sampled,), {"name": "ms"})
    with pytest.raises(MaillardError):
        type("Odd", (maillard.Sampled,), {"name": "Not A Name"})


def test_importing_is_light() -> None:
    code = (
        "import sys, maillard\n"
        "heavy = {'scipy', 'numba', 'matplotlib', 'click', 'rich', 'torch', 'jax'}\n"
        "heavy |= {'array_api_compat', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "t = maillard.Tally([3, 2], [1, 1])\n"
        "for n in maillard.policies.names():\n"
        "    if maillard.uses_context(n): continue\n"
        "    p = maillard.policy(n, sigma2=1, horizon=9)\n"
        "    if p.probability_kind != 'quadrature': p.probabilities(t)\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split("\n")[:2] == ["[]", "[]"]
