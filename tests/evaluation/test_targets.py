"""Targets: a fixed arm, a fixed distribution, uniform choice."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import maillard
from maillard import FixedArm, FixedDistribution, InvalidValue, Tally, Uniform, UnknownName

TALLY = Tally([3, 2, 5], [1, 2, 0])
ARMS = ["red", "blue", "green"]


def test_probabilities_of_targets() -> None:
    assert FixedArm(1).probabilities(TALLY).tolist() == [0, 1, 0]
    assert FixedDistribution([0.5, 0.3, 0.2]).probabilities(TALLY) == pytest.approx([0.5, 0.3, 0.2])
    assert Uniform().probabilities(TALLY) == pytest.approx(1 / 3)
    assert FixedArm("green").bind(ARMS).choose(TALLY, np.random.default_rng(0)) == 2
    bound = FixedDistribution({"blue": 0.9, "green": 0.1}).bind(ARMS)
    assert bound.probabilities(TALLY) == pytest.approx([0, 0.9, 0.1])
    assert bound.bind(ARMS) is bound
    assert FixedArm(1).bind(ARMS) == FixedArm(1)


def test_the_probabilities_of_eligible_arms_are_renormalised() -> None:
    p = FixedDistribution([0.5, 0.3, 0.2]).probabilities(TALLY, eligible=[True, False, True])
    assert p == pytest.approx([5 / 7, 0, 2 / 7])
    with pytest.raises(InvalidValue, match="at least one arm that arm:1 can choose"):
        FixedArm(1).probabilities(TALLY, eligible=[True, False, True])


@pytest.mark.parametrize(
    ("target", "spec"),
    [
        (FixedArm("blue"), "arm:blue"),
        (FixedArm(2), "arm:2"),
        (FixedArm("2"), "arm:'2'"),
        (FixedArm("true, it's"), "arm:'true, it''s'"),
        (FixedDistribution({"a,b=c": 0.5, "true": 0.5}), "dist:'a,b=c'=0.5,'true'=0.5"),
        (FixedDistribution({"red": 0.7, "blue": 0.3}), "dist:blue=0.3,red=0.7"),
        (FixedDistribution([0.25, 0.75]), "dist:0.25,0.75"),
        (Uniform(), "uniform"),
    ],
)
def test_specs_pickles_and_equality(target, spec) -> None:
    assert str(target) == spec
    assert maillard.policy(spec) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert hash(pickle.loads(pickle.dumps(target))) == hash(target)


def test_a_matrix_over_arms_and_positions() -> None:
    target = FixedDistribution([[0.5, 1.0], [0.5, 0.0]])
    assert target.arm_probabilities == ((0.5, 1.0), (0.5, 0.0))
    with pytest.raises(InvalidValue, match="a vector of 2 probabilities"):
        target.probabilities(Tally.empty(2))


def test_targets_are_not_listed_among_learning_policies() -> None:
    assert not {"arm", "dist"} & set(maillard.policies.names())


@pytest.mark.parametrize(
    "wrong",
    [
        [0.5, 0.4],
        [1.5, -0.5],
        [],
        "red",
        None,
        {"red": 2},
        (("red", 5.0), ("blue", -4.0)),
        {"red": "x"},
        {},
        [[0.5, 0.5], [0.5, 0.4]],
        [np.nan, 1],
    ],
)
def test_invalid_distributions_are_refused(wrong) -> None:
    with pytest.raises(InvalidValue, match="FixedDistribution: expected numbers >= 0 that sum to 1"):
        FixedDistribution(wrong)


@pytest.mark.parametrize("arm", [-1, 1.5, None, True, [0]])
def test_invalid_arms_are_refused(arm) -> None:
    with pytest.raises(InvalidValue, match="FixedArm: arm: expected a name, or a position counted from 0"):
        FixedArm(arm)


def test_unknown_and_unbound_arms_are_refused() -> None:
    with pytest.raises(InvalidValue, match="a position from 0 to 2"):
        FixedArm(3).probabilities(TALLY)
    with pytest.raises(InvalidValue, match="a position; call bind"):
        FixedArm("blue").probabilities(TALLY)
    with pytest.raises(InvalidValue, match="bind"):
        FixedDistribution({"red": 1}).probabilities(TALLY)
    with pytest.raises(UnknownName, match=r"unknown name 'bleu'\. Did you mean 'blue'"):
        FixedArm("bleu").bind(ARMS)
    with pytest.raises(InvalidValue, match="a vector of 3 probabilities"):
        FixedDistribution([0.5, 0.5]).probabilities(TALLY)
