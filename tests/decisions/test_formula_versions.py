"""Decisions that were made with an earlier version of a formula can still be verified."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from maillard import Bandit, Reward, Tally, policies, policy, read_log, verify
from maillard.policies.base import Perturbed
from maillard.policies.base.formula_versions import earlier_version
from maillard.policies.numerics.score_distributions import GAUSSIAN

# One arm has a probability below 1e-20, the others have not.
TALLY = Tally([200_000, 3_000, 40, 7], [120_000, 300, 20, 3])


def bandit_of_version_1(monkeypatch, spec: str) -> Bandit:
    """Return a bandit whose decisions were made with version 1 of its formula."""
    cls = type(policy(spec, sigma2=0.25)) if ":" not in spec else policies.GaussianThompson
    with monkeypatch.context() as patched:
        patched.setattr(cls, "formula_version", 1)
        bandit = Bandit(["a", "b", "c", "d"], spec, reward=Reward(low=0, high=1, binary=True), seed=3)
        for round_ in range(40):
            bandit.reward(bandit.choose(unit=f"user-{round_}").id, round_ % 2)
    return bandit


@pytest.mark.parametrize("spec", ["ts", "ts:floor=0.1", "ts-bernoulli", "boltzmann-gumbel", "phe", "giro"])
def test_decisions_of_version_1_are_recomputed(spec, monkeypatch) -> None:
    with bandit_of_version_1(monkeypatch, spec) as bandit:
        assert {row.decision.formula_version for row in read_log(bandit).rows()} == {1}
        found = verify(bandit)
    assert found.problems == []
    assert found.recomputed == 40
    assert not found.not_recomputed


def test_a_wrong_probability_of_version_1_is_found(monkeypatch) -> None:
    """The negative control: decisions that were made with another posterior."""
    with monkeypatch.context() as patched:
        patched.setattr(policies.BernoulliThompson, "score", lambda self, n, s: (2.0 + s, 2.0 + (n - s)))
        bandit = bandit_of_version_1(monkeypatch, "ts-bernoulli")
    found = verify(bandit)
    assert found.problem_count > 20
    assert "log probability" in str(found.problems[0])


@pytest.mark.parametrize("spec", ["ts", "boltzmann-gumbel", "ts-bernoulli"])
def test_version_1_states_no_bound_for_arms_that_are_almost_never_chosen(spec) -> None:
    now: Any = policy(spec, sigma2=0.25)
    earlier: Any = earlier_version(now, 1)
    assert (earlier.formula_version, now.formula_version, str(earlier)) == (1, 2, str(now))
    old, new = earlier.distribution(TALLY), now.distribution(TALLY)
    assert np.array_equal(old.log_probabilities, new.log_probabilities)
    rare = new.log_probabilities < math.log(1e-20)
    assert rare.tolist() == [False, True, False, False]
    assert np.isposinf(old.error[rare]).all()
    assert np.array_equal(old.error[~rare], new.error[~rare])


def test_version_1_of_discrete_scores_lists_all_points() -> None:
    made: Any = policy("phe")
    earlier: Any = earlier_version(made, 1)
    old, new = earlier.distribution(TALLY), made.distribution(TALLY)
    assert not np.array_equal(old.error, new.error)  # other points were listed
    assert (np.abs(old.log_probabilities - new.log_probabilities) <= old.error + new.error).all()


def test_wrappers_pass_the_version_on() -> None:
    for spec in ("ts:floor=0.1", "segmented:policy=ts"):
        made: Any = policy(spec, reward_range=(0, 1))
        earlier: Any = earlier_version(made, 1)
        assert (earlier.formula_version, earlier.policy.formula_version) == (1, 1)
        assert earlier.bind(["a", "b"]).formula_version == 1
        assert earlier_version(made, 9) is None


def test_unknown_versions() -> None:
    class Own(Perturbed):
        noise = GAUSSIAN
        formula_version = 3

        def score(self, n, s):
            return s / n, 1 / n

    assert earlier_version(Own(), 3) is not None
    assert earlier_version(Own(), 1) is None  # that is another formula than version 1 of the base class
    assert earlier_version(policy("ms", sigma2=0.25), 2) is None
