"""Log probabilities of many tallies at once agree with those of each tally, for every policy."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

import numpy as np
import pytest

from maillard import MaillardError, Policy, Sampled, Tally, WithFloor, policy
from maillard.policies import tally_batches
from maillard.policies.base.policy import ProbabilityKind
from maillard.policies.tally_batches import log_probabilities_of_rows
from tests.conftest import NAMES, VARIANTS, make

TARGETS = ["arm:1", "dist:0.5,0.2,0.3,0,0,0,0,0,0,0,0,0"]
# These use quadrature, or the pulls of all arms at once.
PLAIN = [name for name in [*NAMES, *VARIANTS] if make(name).probability_kind == "quadrature"]
POOLED = ["adaucb", "ocucb-n"]
BATCHED = [name for name in [*NAMES, *VARIANTS] if name not in [*PLAIN, *POOLED]]
FLOORED = [
    f"{name}:floor={floor}" for name in ("ms+", "kl-ms+", "ucb1", "epsilon-greedy") for floor in (0, 0.1, 1)
]
PER_ARM = (0.7, 0.2, 0.1, *[0.0] * 9)


def tallies(made: Policy, rows: int, arms: int, seed: int) -> tuple[Any, Any]:
    """Tallies of few and many pulls, with ties, cold arms, and rewards that the policy accepts."""
    rng = np.random.default_rng(seed)
    pulls = np.exp(rng.uniform(0, rng.choice([1.0, 4.0, 16.0], (rows, 1)), (rows, arms))).astype(np.int64)
    pulls[rng.random((rows, arms)) < rng.choice([0.0, 0.3, 1.0], (rows, 1), p=[0.6, 0.3, 0.1])] = 0
    means = rng.choice([0.25, 0.5, 0.75, *rng.random(3)], (rows, arms))
    low, high = made.support
    sums = np.rint(means * pulls) if high == 1.0 else means * pulls
    sums[pulls > 0] += 0.5 if low == 0.0 < 1.0 < high else 0.0
    return pulls, sums


def masks(rows: int, arms: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, arms)) < rng.choice([0.2, 0.6, 1.0], (rows, 1))
    mask[np.arange(rows), rng.integers(0, arms, rows)] = True
    return mask


def one_by_one(made: Policy, pulls: Any, sums: Any, rounds: Any, eligible: Any) -> Any:
    found = np.full(pulls.shape, np.nan)
    for row in range(len(pulls)):
        with contextlib.suppress(MaillardError):
            found[row] = made.log_probabilities(
                Tally(pulls[row], sums[row]),
                round=int(rounds[row]),
                eligible=None if eligible is None else eligible[row],
            )
    return found


def check(made: Policy, arms: int, *, masked: bool, rows: int = 60) -> None:
    pulls, sums = tallies(made, rows, arms, seed=arms)
    rounds = 1 + pulls.sum(axis=1)
    eligible = masks(rows, arms, seed=arms) if masked else None
    found = log_probabilities_of_rows(made, pulls, sums, rounds, eligible)
    expected = one_by_one(made, pulls, sums, rounds, eligible)
    assert found is not None
    if eligible is None and not getattr(made, "decay", 0.0):
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", [*BATCHED, *FLOORED])
def test_every_row_is_as_from_the_policy(name, masked) -> None:
    for arms in (1, 2, 7, 12, 200):
        check(make(name), arms, masked=masked)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spec", TARGETS)
def test_targets(spec, masked) -> None:
    check(policy(spec), 12, masked=masked)
    check(WithFloor(policy(spec), 0.1), 12, masked=masked)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, PER_ARM, (0.01,) * 12, (0.0,) * 12])
def test_floors(epsilon, decay, masked) -> None:
    for name in ("ms+", "ucb1"):
        check(WithFloor(make(name), epsilon, decay=decay), 12, masked=masked)


@pytest.mark.parametrize("name", [*PLAIN, *POOLED])
def test_other_policies_have_no_such_form(name) -> None:
    pulls, sums = np.array([[3, 4]]), np.array([[1.0, 2.0]])
    assert log_probabilities_of_rows(make(name), pulls, sums, np.array([8])) is None
    assert log_probabilities_of_rows(WithFloor(make(name), 0.1), pulls, sums, np.array([8])) is None


def test_every_policy_is_in_one_of_the_tests() -> None:
    assert sorted([*BATCHED, *PLAIN, *POOLED]) == sorted([*NAMES, *VARIANTS])
    assert len(BATCHED) > 30


def test_blocks_do_not_change_the_result(monkeypatch) -> None:
    made = make("ms+")
    pulls, sums = tallies(made, 100, 7, seed=3)
    whole = log_probabilities_of_rows(made, pulls, sums, 1 + pulls.sum(axis=1))
    monkeypatch.setattr(tally_batches, "_MAX_BLOCK_VALUES", 50)
    parts = log_probabilities_of_rows(made, pulls, sums, 1 + pulls.sum(axis=1))
    np.testing.assert_array_equal(whole, parts)


def test_a_tally_that_the_policy_refuses_is_nan() -> None:
    pulls, sums = np.array([[3, 4]] * 3), np.array([[1.0, 2.0], [1.0, 4.5], [2.0, 2.0]])
    found = log_probabilities_of_rows(make("kl-ms"), pulls, sums, np.array([8, 8, 8]))
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]
    assert not np.isnan(found[[0, 2]]).any()


def test_a_row_without_eligible_arms_is_nan() -> None:
    pulls, sums = np.array([[3, 4]] * 3), np.ones((3, 2))
    eligible = np.array([[True, True], [False, False], [True, False]])
    for name in ("ms+", "ucb1", "arm:0"):
        found = log_probabilities_of_rows(make(name), pulls, sums, np.array([8, 8, 8]), eligible)
        assert np.isnan(found).all(axis=1).tolist() == [False, True, False]


class _Own(Sampled):
    """A user's formulas: elementwise, with single numbers as results."""

    def leader(self, n: Any, t: Any) -> Any:
        return 1.0

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -1.0


class _Sums(Sampled):
    """A formula that is not elementwise."""

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -n / np.sum(n)


class _PerArm(Sampled):
    """A formula whose result has another shape than its arguments."""

    def rival(self, n: Any, mean: Any, best: Any, t: Any) -> Any:
        return -np.arange(np.size(n))


class _Overridden(_Own):
    probability_kind: ClassVar[ProbabilityKind] = "closed form"

    def _solve(self, n: Any, s: Any, t: Any) -> Any:
        return np.log(n / n.sum()), None


@pytest.mark.parametrize("masked", [False, True])
def test_formulas_of_users(masked) -> None:
    check(_Own(), 5, masked=masked)


@pytest.mark.parametrize("cls", [_Sums, _PerArm, _Overridden])
def test_formulas_that_do_not_fit_are_left_to_the_policy(cls) -> None:
    pulls, sums = np.array([[3, 4, 5], [2, 9, 4], [1, 2, 3]]), np.ones((3, 3))
    assert log_probabilities_of_rows(cls(), pulls, sums, 1 + pulls.sum(axis=1)) is None
