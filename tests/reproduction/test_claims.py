"""The claims: every claim has a test, and every test can hold or fail."""

from __future__ import annotations

import numpy as np
import pytest

from maillard.problems import problem as problem_of
from maillard.reproduction.claim_statistics import judge
from maillard.reproduction.claims import claims, judge_claims
from maillard.reproduction.claims.findings import TESTS
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import ReproductionSettings, experiments, parts
from maillard.reproduction.report_content import VERDICTS
from maillard.simulation import Result

SMALL = ReproductionSettings(trials=200)


def made_up_results(only, mean, deviation=lambda *_: 0.1, settings=SMALL) -> ExperimentResults:
    """Made-up results, without running trials.

    Final regret has this mean and relative deviation, and grows as a power of t.
    """
    rng = np.random.default_rng(7)
    found = {}
    for part in parts(ReproductionSettings(trials=settings.trials, only=only)):
        simulation = part.simulation()
        rounds = np.array(simulation.plans[0].checkpoints, np.int64)
        final = np.array(
            [
                mean(part, policy) * _around_one(rng, deviation(part, policy), part.trials)
                for policy in part.policies
            ]
        )
        shape = np.array([(rounds / rounds[-1]) ** GROWTH.get(policy, 0.2) for policy in part.policies])
        pulls = np.zeros((len(part.policies), part.trials, simulation.plans[0].problem.arms), np.int64)
        provenance = {"problem": part.problem, "policies": list(part.policies)}
        values = final[:, :, None] * shape[:, None, :]
        found[part] = Result(part.policies, "regret", rounds, values, pulls, provenance)
    return ExperimentResults(settings, found)


GROWTH = {"ms-printed": 1.0}


def _around_one(rng, deviation, size):
    """Lognormal values with mean 1."""
    return np.exp(deviation * rng.standard_normal(size) - deviation**2 / 2)


def verdict(results: ExperimentResults, name: str) -> str:
    (row,) = [row for row in judge_claims(results) if row.id == name]
    return row.verdict


def booster(part, policy) -> float:
    return {2: 330, 4: 290, 8: 275, 16: 265, 32: 300, 64: 400, 128: 560}[int(policy.rpartition("=")[2])]


def wide(part, policy) -> float:
    return min(0.9, 0.01 * int(policy.rpartition("=")[2]))


def test_every_claim_has_its_test_and_every_test_its_claim():
    tests = {claim["test of"] for claim in claims()}
    assert tests == set(TESTS)
    known = {name for claim in claims() for name in claim["needs"]}
    assert known <= set(experiments())
    assert len({claim["id"] for claim in claims()}) == len(claims())
    for claim in claims():
        assert claim["quote"]
        assert "{" not in claim["reading"] + claim["section"]


def test_claims_without_their_experiments_are_not_run():
    rows = judge_claims(made_up_results(("booster",), booster))
    judged = {row.id for row in rows if row.verdict != "not run"}
    assert {"booster-falls", "table-1", "thompson-two-arms"} <= judged
    assert not any(row.id.startswith(("ocucb", "delay")) for row in rows if row.id in judged)
    assert all(row.verdict in VERDICTS for row in rows)


@pytest.mark.parametrize(
    ("name", "mean", "deviation", "expected"),
    [
        ("booster-falls", booster, lambda *_: 0.02, "holds"),
        ("booster-falls", lambda part, policy: 1000 / booster(part, policy), lambda *_: 0.02, "fails"),
        ("booster-falls", lambda *_: 300, lambda *_: 0.5, "open"),
        ("booster-rises", booster, lambda *_: 0.1, "holds"),
        ("booster-rises", lambda part, policy: 1000 / booster(part, policy), lambda *_: 0.1, "fails"),
        ("booster-rises", lambda *_: 300, lambda *_: 0.5, "open"),
        ("variance-grows", booster, wide, "holds"),
        ("variance-grows", booster, lambda part, policy: 0.9 / int(policy.rpartition("=")[2]), "fails"),
        (
            "variance-starts",
            lambda *_: 300,
            lambda part, policy: 0.1 if int(policy.rpartition("=")[2]) < 16 else 0.3,
            "holds",
        ),
        ("variance-starts", booster, wide, "fails"),
        ("booster-not-linear", booster, lambda *_: 0.1, "holds"),
        ("booster-not-linear", lambda part, policy: 8000.0, lambda *_: 0.1, "fails"),
        ("b-matters", booster, lambda *_: 0.1, "holds"),
        ("b-matters", lambda *_: 300, lambda *_: 0.1, "fails"),
    ],
)
def test_the_booster_study_can_come_out_either_way(name, mean, deviation, expected):
    assert verdict(made_up_results(("booster",), mean, deviation), name) == expected


MEANS = {
    "ocucb": 10,
    "ms+:booster=16": 17,
    "ms+:booster=8": 20,
    "ts": 20,
    "ms+:booster=4": 24,
    "ts-sg": 70,
    "aoucb": 50,
}
DEVIATIONS = {"ts": 0.1, "ms+:booster=4": 0.1, "ms+:booster=8": 0.3, "ms+:booster=16": 0.4}


def means_of_the_paper(part, policy) -> float:
    slower = part.experiment == "bernoulli" and policy == "ts"
    return MEANS.get(policy, 25) * (1.4 if slower else 1)


def deviations_of_the_paper(_part, policy) -> float:
    return DEVIATIONS.get(policy, 0.1)


COMPARED = ("gaussian-1", "gaussian-quarter", "bernoulli")
NAMES = [
    *(
        f"{name}-gaussian-1"
        for name in ("ocucb-wins", "comparable", "vary-more", "ms4-steadier", "much-worse")
    ),
    *("ts-on-bernoulli-gaussian-1", "best-or-on-par-gaussian-1", "enough-trials-gaussian-1", "ms16-least"),
]


@pytest.fixture(scope="module")
def agreeing() -> ExperimentResults:
    return made_up_results(COMPARED, means_of_the_paper, deviations_of_the_paper)


@pytest.fixture(scope="module")
def contradicting() -> ExperimentResults:
    """With results opposite to the paper: the best policies are the worst, and the steadiest vary most."""
    return made_up_results(
        COMPARED,
        lambda part, policy: (
            1000 / means_of_the_paper(part, policy) ** 1.5 * (9 if policy == "ms+:booster=16" else 1)
        ),
        lambda part, policy: 0.05 / deviations_of_the_paper(part, policy) if policy in DEVIATIONS else 1.5,
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_comparison_can_come_out_either_way(name, agreeing, contradicting):
    assert verdict(agreeing, name) == "holds"
    assert verdict(contradicting, name) == "fails"


def test_the_closing_equation_with_and_without_pulls_differ():
    results = made_up_results(("closing",), lambda *_: 500.0)
    assert verdict(results, "closing-printed") == "fails"
    assert verdict(results, "closing-meant") == "holds"


@pytest.mark.parametrize(
    ("noisy", "quiet", "expected"),
    [
        (
            450.0,
            20.0,
            "holds",
        ),  # the quoted maximum is likely with large noise, and never occurs with small noise
        (20.0, 450.0, "fails"),
        (450.0, 450.0, "open"),
    ],
)
def test_the_maximum_supports_the_more_likely_interpretation(noisy, quiet, expected):
    def mean(part, _policy) -> float:
        typical = quiet if part.experiment == "maximum-quarter" else noisy
        return float(
            typical / np.exp(0.3 * 2.7 - 0.3**2 / 2)
        )  # 2.7 deviations: the median of the largest of 200

    results = made_up_results(
        ("maximum-1", "maximum-quarter"), mean, lambda *_: 0.3, ReproductionSettings(trials=1000)
    )
    assert verdict(results, "maximum") == expected


@pytest.mark.parametrize(("slow", "expected"), [(2.0, "holds"), (0.5, "fails")])
def test_the_conjecture_on_delay_can_come_out_either_way(slow, expected):
    def mean(part, policy) -> float:
        longest = part.problem.endswith("1000'") or part.problem.endswith("1000")
        return 100 * (slow * (slow if longest else 1) if "ucb" in policy else 1)

    results = made_up_results(("delay-static", "delay-dynamic"), mean, lambda *_: 0.02)
    for name in ("delay-static", "delay-dynamic", "delay-widens"):
        assert verdict(results, name) == expected


def tuned(part, policy) -> float:
    """Regret with D = 1 is 1.5 times as large; C and smaller D do not change it."""
    return 450.0 if policy.endswith("d=1") else 300.0


@pytest.mark.parametrize(
    ("name", "only", "mean", "deviation", "expected"),
    [
        ("c-matters-little", ("c-and-d",), tuned, 0.1, "holds"),
        (
            "c-matters-little",
            ("c-and-d",),
            lambda part, policy: 450 if "c=1," in policy else 300,
            0.1,
            "fails",
        ),
        ("d-matters-little", ("c-and-d",), tuned, 0.1, "fails"),
        ("d-matters-little", ("c-and-d",), lambda *_: 300, 0.1, "holds"),
        ("closing-meant", ("closing",), lambda *_: 300, 0.1, "holds"),
        (
            "replacement",
            ("closing",),
            lambda part, policy: 500 if "boltzmann" in policy else 30,
            0.1,
            "holds",
        ),
        ("replacement", ("closing",), lambda part, policy: 30 if "boltzmann" in policy else 50, 0.1, "fails"),
        (
            "slopes",
            ("slopes",),
            lambda *_: 2.303 / (1 - 10**-0.2),
            0.1,
            "holds",
        ),  # grows by ln 10 over a tenfold of rounds
        ("slopes", ("slopes",), lambda *_: 5 * 2.303, 0.1, "fails"),
        ("slope-ts-sg", ("slopes",), lambda *_: 5 * 2.303 / (1 - 10**-0.2), 0.1, "holds"),
        ("slope-ts-sg", ("slopes",), lambda *_: 2.303 / (1 - 10**-0.2), 0.1, "fails"),
        ("recovers", ("width",), lambda *_: 350, 0.1, "holds"),
        ("recovers", ("width",), lambda *_: 9000, 0.1, "fails"),
        ("far-from-linear", ("maximum-1", "maximum-quarter"), lambda *_: 30, 0.3, "holds"),
        ("far-from-linear", ("maximum-1", "maximum-quarter"), lambda *_: 2000, 0.3, "fails"),
        ("variance", ("frontier",), lambda part, policy: 300 - len(policy), 0.1, "open"),
        ("bounds", COMPARED, means_of_the_paper, 0.1, "holds"),
        ("bounds", COMPARED, lambda *_: 9e5, 0.1, "fails"),
    ],
)
def test_the_other_claims_can_come_out_either_way(name, only, mean, deviation, expected):
    assert verdict(made_up_results(only, mean, lambda *_: deviation), name) == expected


@pytest.mark.parametrize(
    ("narrow", "booster_is_stuck", "expected"), [(40, 0, "holds"), (0, 40, "fails"), (0, 0, "open")]
)
def test_the_width_claim_counts_trials_with_linear_regret(narrow, booster_is_stuck, expected):
    results = made_up_results(("width",), lambda *_: 350.0)
    ((part, result),) = results.parts.items()
    values = result.values.copy()
    for i, policy in enumerate(part.policies):
        many = booster_is_stuck if policy.startswith("ms+") else narrow
        values[i, :many] += 0.1 * result.rounds  # 0.1 in every round, the smallest gap
    found = Result(result.policies, "regret", result.rounds, values, result.pulls, result.provenance)
    assert verdict(ExperimentResults(results.settings, {part: found}), "width") == expected


@pytest.mark.parametrize(("growth", "expected"), [(0.5, "holds"), (0.75, "fails")])
def test_worst_cases_grow_no_faster_than_the_rate(growth, expected, monkeypatch):
    for policy in ("ms", "ms+:booster=4"):
        monkeypatch.setitem(GROWTH, policy, growth)

    def mean(part, _policy) -> float:
        problem = problem_of(part.problem)
        sharpest = np.exp(
            -((np.log(0.5 / np.sqrt(problem.sigma2) / 0.16)) ** 2)
        )  # the worst gap is in the middle
        return float(np.sqrt(problem.sigma2 * problem.arms * np.log(problem.arms)) * 100 * sharpest)

    results = made_up_results(("worst-case",), mean, lambda *_: 0.05)
    assert verdict(results, "worst-case-ms+") == expected
    assert verdict(results, "worst-case-ms") == expected


def test_an_open_claim_suggests_a_number_of_trials():
    """A verdict counts trials of its own experiment; the option counts those of the paper's experiments."""
    results = made_up_results(("c-and-d",), lambda *_: 300.0, lambda *_: 1.0)
    (row,) = [row for row in judge_claims(results) if row.id == "c-matters-little"]
    assert row.verdict == "open"
    needed = judge(TESTS["c-matters-little"](results, "").checks).trials_needed
    assert needed is not None
    assert row.trials_needed == pytest.approx(needed * 200 / experiments()["c-and-d"].trials, rel=0.01)
