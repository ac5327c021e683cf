"""The experiments as data: completeness, sizes, seeds and labels."""

from __future__ import annotations

import dataclasses

import pytest

import maillard
from maillard import InvalidValue, UnknownName, problems
from maillard.reproduction.paper_experiments import ReproductionSettings, experiments, label, parts, rounds


def test_all_experiments_of_the_paper_exist():
    full = parts(ReproductionSettings())
    of = {name: [part for part in full if part.experiment == name] for name in experiments()}
    (booster,) = of["booster"]
    assert [maillard.policy(spec, sigma2=1).booster for spec in booster.policies] == [
        2**i for i in range(1, 8)
    ]
    problem = problems.problem(booster.problem)
    assert problem.true_means.tolist() == pytest.approx([0.9 - 0.1 * i for i in range(10)])
    assert (problem.sigma2, booster.trials, booster.horizon) == (1.0, 200, 20_000)

    quarter = [problems.problem(part.problem) for part in of["gaussian-quarter"] + of["bernoulli"]]
    assert quarter == [problems.problem(spec) for spec in problems.PAPER]
    for one, other in zip(of["gaussian-1"], of["gaussian-quarter"], strict=True):
        first, second = (problems.problem(part.problem) for part in (one, other))
        assert (first.sigma2, second.sigma2) == (1.0, 0.25)
        assert first.true_means.tolist() == second.true_means.tolist()

    nine = {
        "ms+:booster=4",
        "ms+:booster=8",
        "ms+:booster=16",
        "ts",
        "ts-sg",
        "aoucb",
        "ucb+",
        "ocucb",
        "moss",
    }
    for name in ("gaussian-1", "gaussian-quarter", "bernoulli"):
        for part in of[name]:
            assert nine < set(part.policies)
            assert (part.trials, part.horizon) == (200, 20_000)


def test_sigma2_defaults_to_that_of_the_problem():
    sigma2 = {"maximum-mixed": 0.25, "maximum-1": 1.0, "maximum-quarter": 0.25}
    for part in parts(ReproductionSettings(only=tuple(sigma2))):
        (plan,) = part.simulation().plans
        assert plan.policy.sigma2 == sigma2[part.experiment]


def test_every_part_can_be_run_and_has_its_own_seed():
    full = parts(ReproductionSettings())
    assert len({part.seed for part in full}) == len(full)
    assert {part.seed for part in full}.isdisjoint(part.seed for part in parts(ReproductionSettings(seed=1)))
    for part in full:
        simulation = part.simulation()
        assert len(set(simulation.names)) == len(simulation.names)
        assert simulation.plans[0].horizon == part.horizon


def test_sizes_keep_their_proportion():
    def size(settings: ReproductionSettings) -> dict[str, tuple[int, int]]:
        return {part.experiment: (part.trials, part.horizon) for part in parts(settings)}

    assert size(ReproductionSettings(trials=400, horizon=10_000))["slopes"] == (120, 100_000)
    assert size(ReproductionSettings(quick=True))["booster"] == (20, 2000)
    # Four trials are the minimum for statistics.
    assert size(ReproductionSettings(quick=True))["delay-static"] == (4, 10_000)
    assert size(ReproductionSettings(full=True))["delay-dynamic"] == (100, 1_000_000)
    assert size(ReproductionSettings(only=("booster",))) == {"booster": (200, 20_000)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 3}, "trials"),
        ({"horizon": 999}, "horizon"),
        ({"trials": 2.5}, "trials"),
        ({"only": ("boster",)}, "booster"),
        ({"only": "booster"}, "only"),
        ({"seed": -1}, "seed"),
        ({"seed": None}, "seed"),
        ({"trials": 10**6}, "trials"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises((InvalidValue, UnknownName), match=message):
        ReproductionSettings(**settings)


def test_a_repeated_experiment_is_run_once():
    assert ReproductionSettings(only=("booster", "booster")).only == ("booster",)


def test_checkpoints_are_decades_back_from_the_horizon():
    found = rounds(20_000)
    assert {20_000, 2000, 200, 20} <= set(found)
    assert found[0] >= 10
    assert found == sorted(set(found))
    assert rounds(5) == [5]


def test_labels_of_policies_are_distinct():
    for part in parts(ReproductionSettings()):
        assert len({label(spec) for spec in part.policies}) == len(part.policies)


def test_experiments_state_their_source():
    for experiment in experiments().values():
        assert experiment.source
        assert dataclasses.replace(experiment, name="x").problems == experiment.problems
