"""Linear policies: the contract on every registered one, agreement with mpmath, invariances, refusals."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest
from scipy import stats

import maillard
from maillard import InvalidValue, LinearTally, Tally, WithFloor, policy
from maillard.policies import floors
from maillard.policies.base import linear_policy
from maillard.policies.base.arm_matrices import FEW_ARMS
from maillard.policies.numerics import planar_thompson, triangular, upper_envelope
from maillard.policies.numerics.linear_models import LinearModels
from maillard.policies.numerics.linear_scores import linear_scores
from maillard.policies.numerics.optimal_design import design
from maillard.policies.numerics.triangular import backward, cholesky, forward, multiply, sum_in_order
from tests.policies import linear_reference
from tests.policies.linear_reference import Decision
from tests.policies.linear_states import (
    NAMES,
    VARIANTS,
    largest_eigenvalue,
    make,
    random_decision,
    random_rows,
    ridge_for,
)

EVERY = [*NAMES, *VARIANTS]
CLOSED = [spec for spec in EVERY if make(spec).probability_kind != "quadrature"]
DESIGNED = {
    "lin-ms", "lin-med", "lin-ts", "lin-rand-ucb", "igw", "lin-epsilon-greedy", "lin-boltzmann", "lin-ucb",
    "lin-imed",
}  # fmt: skip


def sized(seed: int, most_features: int = 6, most_arms: int = 8, most_events: int = 150) -> Decision:
    """A random state with random sizes; every tenth is empty."""
    rng = np.random.default_rng(seed)
    features, arms = int(rng.integers(1, most_features + 1)), int(rng.integers(1, most_arms + 1))
    events = 0 if seed % 10 == 9 else int(np.exp(rng.uniform(0, np.log(most_events))))
    return random_decision(rng, features, arms, shared=bool(seed % 2), events=events)


def with_noise(spec: str, decision: Decision, seed: int, ridge: float | None = None) -> maillard.Policy:
    """The policy, with a random sigma2 if it has one; a small sigma2 gives small probabilities."""
    rng = np.random.default_rng(seed)
    ridge = ridge_for(decision, rng) if ridge is None else ridge
    noisy = issubclass(maillard.policy_class(spec.split(":", maxsplit=1)[0]), maillard.LinearNoise)
    return make(spec, ridge=ridge, **({"sigma2": 10 ** rng.uniform(-4, 0)} if noisy else {}))


def compare(spec: str, decision: Decision, made: maillard.Policy, tolerance: float | None) -> float:
    """Compare with mpmath, at the tolerance or at the stated bound. Return the smallest log probability."""
    found = made.distribution(decision.tally(), decision.x, eligible=decision.eligible)
    mask = np.ones(decision.choices, bool) if decision.eligible is None else np.array(decision.eligible)
    assert np.isneginf(found.log_probabilities[~mask]).all()
    assert abs(np.exp(found.log_probabilities).sum() - 1) < 1e-12
    exact = np.array([float(v) for v in linear_reference.log_probabilities(decision, made)])
    log, error = found.log_probabilities[mask], found.error[mask]
    possible = np.isfinite(exact) & np.isfinite(log)
    assert ((log == exact) | possible | np.isinf(error)).all(), (spec, log, exact)
    off, size = np.abs(log[possible] - exact[possible]), np.maximum(1.0, np.abs(exact[possible]))
    assert (off <= error[possible] + 1e-15 * size).all(), (spec, off, error[possible])
    if tolerance is not None:
        assert (off <= tolerance * size).all(), (spec, off)
    return float(exact.min())


def test_every_policy_of_the_design_is_registered() -> None:
    assert set(NAMES) >= DESIGNED
    assert {*NAMES, "segmented"} <= set(maillard.policies.names())


@pytest.mark.parametrize(
    ("spec", "count"),
    [(spec, 12) for spec in CLOSED] + [pytest.param(spec, 200, marks=pytest.mark.torture) for spec in CLOSED],
)
def test_closed_forms_against_mpmath(spec, count) -> None:
    least = []
    for seed in range(count):
        decision = sized(seed)
        least.append(compare(spec, decision, with_noise(spec, decision, seed), 1e-12))
    if count >= 200 and spec in ("lin-ms", "lin-med:beta=0.001", "lin-rand-ucb"):
        assert sum(np.isfinite(value) and value < -50 for value in least) > 5


@pytest.mark.parametrize(
    ("spec", "count"),
    [("lin-ts", 4), *(pytest.param(s, 200, marks=pytest.mark.torture) for s in ("lin-ts", "lin-ts:scale=2"))],
)
def test_quadrature_against_mpmath(spec, count) -> None:
    for seed in range(count):
        decision = sized(seed, most_arms=3 if count < 10 else 6)
        compare(spec, decision, with_noise(spec, decision, seed), None)


@pytest.mark.parametrize(
    ("rank", "count"),
    [(0, 1), (1, 8), (2, 2), *(pytest.param(r, 100, marks=pytest.mark.torture) for r in (1, 2))],
)
def test_joint_draws_against_orthants(rank, count) -> None:
    for seed in range(count):
        rng = np.random.default_rng(seed)
        arms = int(rng.integers(2, 5 if count < 10 else 11))
        decision = random_decision(rng, int(rng.integers(2, 6)), arms, shared=True, events=20)
        decision.x[:, rank:] = decision.x[0, rank:]
        compare("lin-ts:draws=joint", decision, with_noise("lin-ts:draws=joint", decision, seed), 1e-11)


@pytest.mark.torture
@pytest.mark.parametrize("spec", [*CLOSED, "lin-ts"])
@pytest.mark.parametrize(("features", "arms", "shared"), [(50, 200, True), (50, 30, False), (20, 200, False)])
def test_large_states_against_mpmath(spec, features, arms, shared) -> None:
    arms = min(arms, 30) if spec == "lin-ts" else arms
    for seed in range(2):
        rng = np.random.default_rng(seed)
        decision = random_decision(rng, features, arms, shared=shared, events=300)
        # Where lines of randomized UCB are nearly parallel, their crossing loses digits, as the bound says.
        only_bound = spec.partition(":")[0] in ("lin-ts", "lin-rand-ucb")
        compare(spec, decision, with_noise(spec, decision, seed), None if only_bound else 1e-12)


@pytest.mark.parametrize("condition", [1e6, 1e10])
@pytest.mark.parametrize("spec", [name for name in NAMES if name != "lin-ts"])
def test_the_stated_bound_covers_ill_conditioned_models(spec, condition) -> None:
    for seed in range(8):
        decision = sized(seed)
        ridge = max(largest_eigenvalue(decision), 1e-3) / condition
        compare(spec, decision, with_noise(spec, decision, seed, ridge), None)


def state(shared: bool, *, events: int = 40, features: int = 3, arms: int = 5, seed: int = 0) -> Decision:
    rng = np.random.default_rng(seed)
    decision = random_decision(rng, features, arms, shared=shared, events=events, masks=False)
    decision.x[:] = (
        random_rows(np.random.default_rng(seed + 1), arms, features)[: len(decision.x)]
        if shared
        else (random_rows(np.random.default_rng(seed + 1), 1, features)[0])
    )
    return decision


def chi_square(made, decision, probabilities, samples=10**5) -> float:
    tally = decision.tally()
    seen = made.choose(tally, np.random.default_rng(12345), decision.x, size=samples)
    counts = np.bincount(seen, minlength=probabilities.size)
    assert counts[probabilities == 0].sum() == 0
    likely = probabilities * samples >= 5
    if np.count_nonzero(likely) < 2:
        return 1.0
    observed, expected = counts[likely], probabilities[likely] * samples
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_choose_samples_from_probabilities(name, shared) -> None:
    made, decision = make(name), state(shared)
    p = made.probabilities(decision.tally(), decision.x)
    assert chi_square(made, decision, p) > 1e-4 / (2 * len(NAMES))


def test_wrong_probabilities_are_detected() -> None:
    made, decision = make("lin-ms"), state(False)
    p = make("lin-ms:booster=4").probabilities(decision.tally(), decision.x)
    assert chi_square(made, decision, p) < 1e-12


@pytest.mark.parametrize("spec", EVERY)
def test_the_contract(spec) -> None:
    made = make(spec)
    for shared in (False, True):
        decision = state(shared)
        tally = decision.tally()
        log = made.log_probabilities(tally, decision.x)
        found = made.distribution(tally, decision.x)
        assert np.array_equal(found.log_probabilities, log)
        assert np.array_equal(made.probabilities(tally, decision.x), np.exp(log))
        assert (found.error < 1e-8).all()
        for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), policy(str(made))):
            assert (twin, hash(twin), str(twin)) == (made, hash(made), str(made))
            assert np.array_equal(twin.log_probabilities(tally, decision.x), log)
        # Arms that are not eligible count as absent.
        mask = np.array([True, False, True, True, False])
        masked = made.log_probabilities(tally, decision.x, eligible=mask)
        assert np.isneginf(masked[~mask]).all()
        if "lin-med" not in spec:  # its confidence set depends on all models
            if shared:
                some, rows = tally, decision.x[mask]
            else:
                some = LinearTally.joined([tally.only(int(arm)) for arm in np.flatnonzero(mask)])
                rows = decision.x
            assert np.array_equal(masked[mask], made.log_probabilities(some, rows, round=tally.round))
        # Floors.
        p = np.exp(log)
        assert np.allclose(WithFloor(made, 0.1).probabilities(tally, decision.x), 0.9 * p + 0.02, atol=1e-15)
        floors = np.array([0.2, 0, 0.1, 0, 0])
        per_arm = WithFloor(made, tuple(floors))
        assert np.allclose(per_arm.probabilities(tally, decision.x), 0.7 * p + floors, atol=1e-15)
        assert policy(str(per_arm)) == per_arm
        assert np.isfinite(WithFloor(made, 0.1).distribution(tally, decision.x).error).all()
    with pytest.raises(InvalidValue, match="floor: expected one number, or 5 numbers"):
        WithFloor(made, (0.1, 0.1)).probabilities(tally, decision.x)


@pytest.mark.parametrize("name", NAMES)
def test_metadata(name) -> None:
    cls = maillard.policy_class(name)
    assert cls.formula
    assert cls.reference
    assert cls.__doc__
    assert cls.guarantees.source != "not stated"
    assert all(parameter.meaning for _, parameter, _ in cls.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_empty_state_and_rows_of_zeros(name) -> None:
    made = make(name)
    assert np.allclose(made.probabilities(LinearTally.empty(3, 4), [1, 0.5, -1]), 1 / 4)
    assert np.allclose(made.probabilities(state(False).tally(), [0, 0, 0]), 1 / 5)
    shared = state(True).tally()
    assert np.allclose(made.probabilities(shared, np.zeros((4, 3))), 1 / 4)
    assert made.probabilities(shared, [[0.5, 0, 1]]).tolist() == [1.0]


def test_tied_leaders_that_rounding_separates() -> None:
    """The rows are swapped, and so are the rewards: exact ties that float64 breaks in some of the cases."""
    broken = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        tally = LinearTally.empty(3, None)
        for row in LinearTally.to_grid(rng.uniform(-1, 1, (6, 3))):
            reward = float(rng.random())
            tally.add(row, reward)
            tally.add(row[[1, 0, 2]], reward)
        x = LinearTally.to_grid(rng.uniform(-1, 1, 3))
        rows = np.stack([x, x[[1, 0, 2]]])
        made = make("lin-ms")
        models = made.models(tally)
        scores = linear_scores(
            models, (rows.T * 65536).astype(np.int64), None, t=1, centre=0.5, tolerance=2.0**-40
        )
        broken += scores.mu[0] != scores.mu[1]
        assert scores.leads.all()
        for name in ("lin-ms", "lin-med", "igw", "lin-epsilon-greedy", "lin-ucb", "lin-imed", "lin-rand-ucb"):
            assert np.allclose(make(name).probabilities(tally, rows), 0.5, atol=1e-12)
    assert broken > 5


@pytest.mark.parametrize(("linear", "plain"), [("lin-ms:booster=1", "ms"), ("lin-ts", "ts")])
@pytest.mark.parametrize("shared", [False, True])
def test_one_hot_features_give_the_k_armed_policies(linear, plain, shared) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        arms = int(rng.integers(2, 7))
        one_hot, tally = Tally.empty(arms), LinearTally.empty(arms if shared else 1, None if shared else arms)
        for arm in [*range(arms), *rng.integers(arms, size=30).tolist()]:
            reward = float(rng.integers(2))
            one_hot.add(arm, reward)
            tally.add(np.eye(arms)[arm] if shared else [1.0], reward, None if shared else arm)
        x = np.eye(arms) if shared else [1.0]
        found = policy(f"{linear},ridge={2.0**-60}" if ":" in linear else f"{linear}:ridge={2.0**-60}",
                       reward_range=(0, 1)).log_probabilities(tally, x)  # fmt: skip
        exact = policy(plain, sigma2=0.25).log_probabilities(one_hot)
        assert np.abs(found - exact).max() <= 1e-11 * np.maximum(1, np.abs(exact)).max()


@pytest.mark.parametrize("spec", EVERY)
def test_a_shift_of_rewards_and_range_changes_nothing(spec) -> None:
    for seed in range(6):
        decision = sized(seed)
        moved = Decision(
            decision.features, decision.arms, decision.x, [(x, r + 10, a) for x, r, a in decision.events]
        )
        ridge = ridge_for(decision, np.random.default_rng(seed))
        here = make(spec, ridge=ridge).probabilities(decision.tally(), decision.x)
        there = make(spec, ridge=ridge, reward_range=(10, 11)).probabilities(moved.tally(), moved.x)
        assert np.abs(here - there).max() <= 1e-12


@numba.njit
def plain_loops(gram, right, x, ridge, centre):  # the same operations as loops over numbers
    d = gram.shape[0]
    lower, inverse = np.zeros((d, d)), np.eye(d)
    y, theta, white = np.zeros(d), np.zeros(d), np.zeros(d)
    for i in range(d):
        for k in range(i + 1):
            value = gram[i, k] + ridge if i == k else gram[i, k]
            for j in range(k):
                value -= lower[i, j] * lower[k, j]
            lower[i, k] = np.sqrt(value) if i == k else value / lower[k, k]
    for i in range(d):
        y[i] = right[i]
        for j in range(i):
            y[i] -= lower[i, j] * y[j]
            for k in range(d):
                inverse[i, k] -= lower[i, j] * inverse[j, k]
        y[i] /= lower[i, i]
        for k in range(d):
            inverse[i, k] /= lower[i, i]
            white[i] += inverse[i, k] * x[k]
    for i in range(d - 1, -1, -1):
        theta[i] = y[i]
        for j in range(d - 1, i, -1):
            theta[i] -= lower[j, i] * theta[j]
        theta[i] /= lower[i, i]
    total, square = x[0] * theta[0], white[0] * white[0]
    for i in range(1, d):
        total += x[i] * theta[i]
        square += white[i] * white[i]
    return lower, theta, centre + total, square


@pytest.mark.parametrize("shared", [False, True])
def test_plain_compiled_loops_give_the_same_bits(shared) -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        features, arms = int(rng.integers(1, 41)), int(rng.integers(1, 12))
        decision = random_decision(rng, features, arms, shared=shared, events=60, masks=False)
        tally, ridge, centre = decision.tally(), 10 ** rng.uniform(-3, 1), 0.3
        models = LinearModels.of(tally, ridge, centre)
        units = (np.atleast_2d(decision.x).T * 65536).astype(np.int64)
        scores = linear_scores(models, units, None, t=1, centre=centre, tolerance=0.0)
        for arm in range(arms):
            model = 0 if shared else arm
            x = decision.x[arm] if shared else decision.x
            right = tally.products[model] - centre * tally.feature_sums[model]
            lower, theta, mu, s2 = plain_loops(tally.gram[model], right, x, ridge, centre)
            assert np.array_equal(np.tril(models.lower[:, :, model]), lower)
            assert np.array_equal(models.theta[:, model], theta)
            assert (scores.mu[arm], scores.s2[arm]) == (mu, s2)


def test_factors_follow_the_tally() -> None:
    """Cached factors equal those of a new policy after additions, revisions, removals and copies."""
    rng, made = np.random.default_rng(3), make("lin-ms")
    tally, other = LinearTally.empty(3, 4), LinearTally.empty(2, None)
    x = LinearTally.to_grid(rng.uniform(-1, 1, 3))

    def same(one: LinearTally, row: object) -> None:
        assert np.array_equal(made.log_probabilities(one, row), make("lin-ms").log_probabilities(one, row))

    for _ in range(25):
        row, reward, arm = (
            LinearTally.to_grid(rng.uniform(-1, 1, 3)),
            float(rng.random()),
            int(rng.integers(4)),
        )
        tally.add(row, reward, arm)
        same(tally, x)
        match rng.integers(4):
            case 0:
                tally.revise(row, reward, 0.5, arm)
            case 1:
                tally.remove(row, reward, arm)
            case 2:
                tally = tally.copy()
            case _:
                other.add([1, 0.5], reward)
                same(other, [[1, 0], [0.5, -0.5]])
        same(tally, x)
    before = made.models(tally)
    assert made.models(tally) is before
    assert made.models(tally.copy()) is before


def test_the_design_of_lin_med_survives_underflow() -> None:
    """The only row other than 0 has weight exp(-10^4) or less, but it is the whole design."""
    tally = LinearTally.empty(1, None)
    for _ in range(50):
        tally.add([1], 0.0)
    decision = Decision(1, None, np.array([[0.0], [0.0], [1.0]]), [(np.array([1.0]), 0.0, 0)] * 50)
    compare("lin-med", decision, make("lin-med:beta=0.001"), 1e-12)
    assert make("lin-med:beta=0.001").log_probabilities(tally, decision.x)[2] < -1e3


def test_the_design_has_small_leverages() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        d, k = int(rng.integers(1, 9)), int(rng.integers(1, 40))
        rows = random_rows(rng, k, d).T * np.exp(-rng.exponential(3, k))
        weights = design(rows)
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1, abs=1e-13)
        moments = (rows * weights) @ rows.T
        rank = np.linalg.matrix_rank(rows, tol=1e-6 * np.linalg.norm(rows, axis=0).max())
        leverage = np.einsum("ij,ij->j", rows, np.linalg.pinv(moments, rcond=1e-10, hermitian=True) @ rows)
        assert leverage.max() <= 2 * rank * (1 + 1e-6)


def test_the_convex_hull_is_exact() -> None:
    points = [(0, 0), (2**35, 1), (2**34, 0), (2**34, 1), (1, 0)]
    assert planar_thompson.convex_hull(points) == [(0, 0), (2**34, 0), (2**35, 1), (2**34, 1)]


def test_joint_draws_of_rank_three_are_refused() -> None:
    rows = np.vstack([np.zeros(3), np.eye(3)])
    made = make("lin-ts:draws=joint")
    with pytest.raises(
        InvalidValue, match=r"draws: expected independent \(or the policy lin-rand-ucb\).*rank 3"
    ):
        made.probabilities(state(True).tally(), rows)
    kept = made.probabilities(state(True).tally(), rows, eligible=[True, True, True, False])
    assert kept.sum() == pytest.approx(1)
    assert made.probabilities(state(False).tally(), [1, 0, 0]).sum() == pytest.approx(1)  # disjoint


@pytest.mark.parametrize(
    ("spec", "parameters", "message"),
    [
        (
            "lin-ms",
            {"sigma2": 0.25},
            r"centre: expected a finite number \(or pass reward_range=\(low, high\)",
        ),
        ("lin-ms", {"centre": 0}, "sigma2: expected a finite number > 0.*or bernoulli:p.*got None"),
        ("lin-ms:ridge=0", {"reward_range": (0, 1)}, "ridge: expected a finite number > 0.*got 0"),
        ("lin-ms:sigma2=bernoulli:2", {"reward_range": (0, 1)}, "bernoulli:p with 0 < p < 1"),
        ("lin-ms:sigma2=poisson:2", {"reward_range": (0, 1)}, "sigma2=bernoulli:0.05"),
        ("lin-ms", {"reward_range": (1, 0)}, r"reward_range: expected \(low, high\) with low < high"),
        ("lin-boltzmann", {"reward_range": (0, 1)}, "eta: expected a finite number > 0"),
        (
            "lin-med:beta=wide",
            {"reward_range": (0, 1)},
            "beta: expected a finite number.*or theory, got 'wide'",
        ),
        ("lin-med:emp=0.9,opt=0.2", {"reward_range": (0, 1)}, r"emp: expected at most 0.8.*got 0.9"),
        ("igw:fast=true", {"centre": 0.5}, r"reward_range: expected \(low, high\), because fast=true"),
        ("lin-ts:draws=both", {"reward_range": (0, 1)}, "draws: expected one of independent, joint"),
    ],
)
def test_invalid_parameters_are_named(spec, parameters, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        policy(spec, **parameters)


def test_parameters_and_specs() -> None:
    assert str(policy("lin-ms", reward_range=(0, 1))) == "lin-ms:reward_range=0..1"
    assert str(policy("lin-ms:sigma2=bernoulli:0.05", reward_range=(0, 1))) == (
        "lin-ms:reward_range=0..1,sigma2=0.0475"
    )
    assert policy("lin-ms:sigma2=bernoulli:0.5,reward_range=0..2").sigma2 == 1.0
    assert policy("lin-ms:sigma2=1", reward_range=(0, 4)).centre == 2.0
    assert policy("lin-ms:sigma2=1,centre=3").range_width == 1.0
    assert (
        str(policy("lin-ms:centre=0,reward_range=-1..2,sigma2=2.25")) == "lin-ms:centre=0,reward_range=-1..2"
    )


@pytest.mark.parametrize(
    ("tally", "x", "message"),
    [
        (Tally.empty(2), [1, 0], "tally: expected a LinearTally, because lin-ms uses features"),
        (LinearTally.empty(2, 3), None, "x: expected the context's feature row, 2 numbers, got None"),
        (LinearTally.empty(2, 3), [1, 0, 0], r"x: expected 2 numbers, one per feature, got \(3,\)"),
        (LinearTally.empty(2, 3), [1, np.nan], r"x\[1\]: expected numbers from -1 to 1.*got nan"),
        (LinearTally.empty(2, 3), [1, 1.5], r"x\[1\]: expected numbers from -1 to 1"),
        (LinearTally.empty(2, 3), [1, 0.1], r"x\[1\]: expected multiples of 2\*\*-16.*to_grid"),
        (LinearTally.empty(2, 3), "ab", "x: expected numbers, one per feature"),
        (LinearTally.empty(2, None), [1, 0], "x: expected a feature row of 2 numbers for each arm"),
        (LinearTally.empty(2, None), np.zeros((0, 2)), "x: expected a feature row of 2 numbers for each arm"),
        (LinearTally.empty(2, None), [[1, 0], [1]], "x: expected a feature row of 2 numbers for each arm"),
        (LinearTally.empty(2, None), None, "x: expected a feature row of 2 numbers for each arm"),
    ],
)
def test_invalid_input_is_named(tally, x, message) -> None:
    with pytest.raises(InvalidValue, match=message):
        make("lin-ms").probabilities(tally, x)


def test_more_refusals() -> None:
    tally, x = state(False).tally(), [1, 0, 0]
    with pytest.raises(InvalidValue, match="eligible: expected a list of 5 booleans"):
        make("lin-ms").probabilities(tally, x, eligible=[True])
    with pytest.raises(InvalidValue, match="round: expected a whole number greater than"):
        make("lin-ms").probabilities(tally, x, round=1)
    with pytest.raises(InvalidValue, match="x: expected None, because ms uses no context"):
        policy("ms", sigma2=1).probabilities(Tally.empty(2), [1, 0])
    with pytest.raises(InvalidValue, match="tally: expected a Tally"):
        policy("ms", sigma2=1).probabilities(tally)
    with pytest.raises(InvalidValue, match="features: expected at most 256"):
        LinearTally.empty(257, 2)
    collinear = LinearTally.empty(2, 1)
    collinear.add([1, 1], 1.0, arm=0)
    with pytest.raises(InvalidValue, match="ridge: expected a larger number: features are so collinear"):
        make("lin-ms", ridge=2.0**-60).probabilities(collinear, [1, 0])
    with pytest.raises(InvalidValue, match="policies: expected a policy without a context"):
        maillard.simulate(["lin-ms:reward_range=0..1"], "bernoulli:0.5,0.4", 10, 1)
    for name in ("lin-ms", "segmented:policy='ms+'", make("lin-ms")):
        with pytest.raises(InvalidValue, match="policy: expected a policy without a context"):
            maillard.Bandit(["a", "b"], name, reward=maillard.Reward(low=0, high=1))


def test_an_own_formula_may_need_arrays() -> None:
    class Clipped(maillard.LinearSampled):
        def rival(self, gap, s2, t):
            return -gap.clip(0.0, 0.1)

    class Numbers(maillard.LinearSampled):
        def rival(self, gap, s2, t):
            return -np.minimum(gap, 0.1)

    decision = state(False)
    found = [
        each(reward_range=(0, 1)).probabilities(decision.tally(), decision.x) for each in (Clipped, Numbers)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-14)
    assert found[0].min() < 0.2


def test_an_own_formula_that_returns_nan_is_named() -> None:
    class Broken(maillard.LinearSampled):
        def rival(self, gap, s2, t):
            return gap * float("nan")

    class Odd(maillard.LinearIndexed):
        def index(self, mu, s2, gap, t):
            return mu * float("nan")

    decision = state(False)
    with pytest.raises(InvalidValue, match="log weight of arm"):
        Broken(reward_range=(0, 1)).probabilities(decision.tally(), decision.x)
    with pytest.raises(InvalidValue, match="index of arm 0: expected a number"):
        Odd(reward_range=(0, 1)).probabilities(decision.tally(), decision.x)


@pytest.mark.parametrize("spec", ["lin-ms", "lin-ms:booster=1"])
def test_few_arms_and_arrays_agree(spec, monkeypatch) -> None:
    """The same arms lead, so that only the last bits of exponentials and logarithms may differ."""
    tiny = 0
    for seed in range(60):
        decision = sized(seed, most_arms=FEW_ARMS)
        for made in (with_noise(spec, decision, seed, ridge=1.0), WithFloor(make(spec), 0.1)):
            arguments = decision.tally(), decision.x
            few = made.log_probabilities(*arguments, eligible=decision.eligible)
            bounded = made.distribution(*arguments, eligible=decision.eligible).log_probabilities
            assert np.array_equal(few, bounded)
            with monkeypatch.context() as patched:
                patched.setattr(linear_policy, "FEW_ARMS", 0)
                patched.setattr(floors, "FEW_ARMS", 0)
                arrays = made.log_probabilities(*arguments, eligible=decision.eligible)
            assert np.array_equal(np.isneginf(few), np.isneginf(arrays))
            few, arrays = few[few > -np.inf], arrays[arrays > -np.inf]
            assert few == pytest.approx(arrays, rel=1e-14, abs=1e-14)
            tiny += int((arrays < -50).any())
    assert tiny > 5


def test_arrays_handle_rivals_without_uncertainty() -> None:
    """A rival with s = 0 has probability 0, but Python does not divide by 0."""
    decision = state(True)
    rows = np.array([[0.5, 0, 1], [0, 0, 0], [0.5, 0, 1]])
    tally = decision.tally()
    for _ in range(300):
        tally.add([0.5, 0, 1], 1.0)
    log = make("lin-ms").log_probabilities(tally, rows)
    assert log[1] == -np.inf
    assert np.exp(log[[0, 2]]) == pytest.approx([0.5, 0.5])


def test_the_live_path_imports_no_numba_and_closed_forms_no_scipy() -> None:
    code = (
        "import sys, maillard\n"
        "t = maillard.LinearTally.empty(2, 3); t.add([1, 0.5], 1.0, arm=1)\n"
        "for n in maillard.policies.names():\n"
        "    if not n.startswith(('lin-', 'igw')) or n in ('lin-ts', 'lin-rand-ucb'): continue\n"
        "    spec = n + ':eta=2' if n == 'lin-boltzmann' else n\n"
        "    maillard.policy(spec, reward_range=(0, 1)).distribution(t, [1, -0.5])\n"
        "print(sorted({'scipy', 'numba'} & set(sys.modules)))\n"
        "for n in ('lin-ts', 'lin-rand-ucb'):\n"
        "    maillard.policy(n, reward_range=(0, 1)).distribution(t, [1, -0.5])\n"
        "print('numba' in sys.modules)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split("\n")[:2] == ["[]", "False"]


@pytest.mark.parametrize("shape", [(300, 1), (300,), (300, 2), (300, 3, 1), (300, 2, 40), (1, 1), (9, 17, 2)])
def test_sums_are_in_order(shape) -> None:
    terms = np.random.default_rng(3).normal(size=shape) * 10.0 ** np.arange(shape[0]).reshape(
        -1, *[1] * (len(shape) - 1)
    ).clip(0, 12)
    total = terms[0].copy()
    for each in terms[1:]:
        total = total + each
    for given in (terms, np.asfortranarray(terms), np.repeat(terms, 2, axis=0)[::2]):
        assert np.array_equal(sum_in_order(given), total)
    if shape == (300, 1):
        assert not np.array_equal(terms.sum(axis=0), total)  # the test can fail


@pytest.mark.parametrize(("models", "rows"), [(1, 3), (4, 1), (1, 1)])
def test_large_products_have_the_same_bits_as_small_ones(models, rows, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    columns, given = rng.normal(size=(6, 6, models)), rng.normal(size=(6, rows))
    given[2] = 0.0
    small = multiply(columns, given)
    assert np.allclose(small, np.einsum("jim,jr->imr", columns, given).reshape(6, -1))
    monkeypatch.setattr(triangular, "_MAX_TERMS", 0)
    assert np.array_equal(multiply(columns, given), small)


@pytest.mark.parametrize("models", [1, 3])
def test_the_factorization_has_the_columns_of_the_inverse(models) -> None:
    rows = np.random.default_rng(2).uniform(-1, 1, (models, 5, 9))
    gram = (rows @ rows.transpose(0, 2, 1)).transpose(1, 2, 0)
    identity = np.broadcast_to(np.eye(5)[:, :, None], gram.shape)
    found = cholesky(np.concatenate([gram, identity]), identity=True)
    assert np.array_equal(found[5:], cholesky(np.concatenate([gram, identity]))[5:])
    for i in range(models):
        columns = forward(found[:5, :, i : i + 1], np.eye(5))
        assert np.array_equal(found[5:, :, i], columns.T)


def test_forward_solves_with_one_factor_per_column() -> None:
    rng = np.random.default_rng(0)
    lower = np.tril(rng.uniform(1, 2, (3, 4, 4))).transpose(1, 2, 0)
    rows = rng.normal(size=(4, 3))
    for i in range(3):
        assert np.allclose(lower[:, :, i] @ forward(lower, rows)[:, i], rows[:, i])


@pytest.mark.parametrize("size", [1, 3, 10, 32, 33, 40])
def test_one_model_has_the_same_bits_as_many(size) -> None:
    rng = np.random.default_rng(size)
    rows = rng.uniform(-1, 1, (2, size, 2 * size))
    gram = rows @ rows.transpose(0, 2, 1)
    matrices = np.concatenate([gram, rng.normal(size=(2, 1, size))], axis=1).transpose(1, 2, 0)
    factors = cholesky(matrices)
    solved = backward(factors[:size], factors[size])
    for i in range(2):
        one = cholesky(matrices[:, :, i : i + 1])
        below = np.tril_indices(size + 1, m=size)
        assert np.array_equal(one[below][:, 0], factors[below][:, i])
        assert np.array_equal(backward(one[:size], one[size])[:, 0], solved[:, i])
    not_definite = np.array([[1.0, 2.0], [2.0, 1.0]])[:, :, None]
    assert np.isnan(cholesky(not_definite)[1, 1, 0])


def test_few_lines_have_the_probabilities_of_many(monkeypatch) -> None:
    """The loop over numbers and the operations on arrays are the same formulas."""
    rng = np.random.default_rng(3)
    cases = [
        (rng.normal(size=k), rng.exponential(size=k) * 10.0 ** rng.integers(-9, 3)) for k in [1, 2, 9] * 40
    ]
    cases += [(rng.integers(0, 3, k) / 2, rng.integers(0, 3, k) / 2) for k in [2, 5, 20] * 20]  # with ties
    cases += [
        (np.array([1e200, 0.0]), np.array([0.0, 1.0])),
        (np.array([1e10, 0.0, -1.0]), np.array([0.0, 1.0, 1.1])),
    ]
    few = [upper_envelope.envelope_log_probabilities(*case, 1e-12)[0] for case in cases]
    monkeypatch.setattr(upper_envelope, "_FEW", 0)
    for case, log in zip(cases, few, strict=True):
        arrays = upper_envelope.envelope_log_probabilities(*case, 1e-12)[0]
        assert np.array_equal(np.isneginf(log), np.isneginf(arrays))
        seen = log > -np.inf
        assert np.abs(log[seen] - arrays[seen]) == pytest.approx(0, abs=1e-14 * max(1, -log[seen].min()))
