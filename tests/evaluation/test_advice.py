"""`advise`: its rules, its choice of a floor, and its numbers, which are those of `plan` and `simulate`."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import maillard
from docs.policy_flow import rules_table
from maillard import InvalidValue, Reward, UnknownName, advise, plan, simulate
from maillard.evaluation.advising import AdviceOption, advice_simulation
from maillard.evaluation.advising.advice_formatting import with_error
from maillard.evaluation.advising.advice_requirements import make_requirements
from maillard.evaluation.advising.advice_rules import (
    NOTES,
    POLICY_RULES,
    alternatives,
    choose_option,
    policy_rule,
    undecided,
)
from maillard.evaluation.advising.advice_simulation import context_problem_for, problem_for
from maillard.evaluation.advising.floor_logs import describe_intervals
from maillard.evaluation.advising.reward_answers import order_deviation
from maillard.evaluation.advising.sequential_test import evidence
from maillard.policies import names as policy_names
from maillard.problems import Bounded, Gaussian

# The answers that lead to each rule.
EXAMPLES: dict[str, dict[str, Any]] = {
    "arms differ at every decision": {"contexts": "actions", "context_size": 2},
    "attributes of the visitor": {"contexts": "features", "context_size": 2, "reward": "binary"},
    "clicks and other rewards of 0 or 1": {"rate": 0.2, "delay": "5m"},
    "rewards from 0 to a maximum, mostly far below it": {
        "reward": "bounded",
        "reward_range": (0, 50),
        "rate": 2.0,
        "delay": "2d",
        "traffic": 10.0,
    },
    "rewards without a maximum": {"reward": "unbounded", "rate": 3.0, "deviation": 4.0},
    "rewards in a range": {"reward": "bounded", "reward_range": (1, 5), "rate": 3.0, "deviation": 1.0},
}
SHOP: dict[str, Any] = {"reward": "revenue", "reward_range": (0, 300), "buyers": 0.02, "order": 40}
SMALL = {"horizon": 400, "quick": True, "threads": 1}


@pytest.fixture(scope="module")
def clicks() -> Any:
    return advise(3, rate=0.3, lift=0.2, traffic=2400, delay="1h", horizon=3000, quick=True, seed=3)


def test_every_rule_can_be_reached() -> None:
    assert list(EXAMPLES) == [rule.name for rule in POLICY_RULES]
    for name, answers in EXAMPLES.items():
        assert policy_rule(make_requirements(3, **answers)).name == name


def test_every_note_can_be_reached() -> None:
    every = [
        make_requirements(3, horizon=300),
        make_requirements(3, horizon="1d", delay="12h"),
        make_requirements(3, contexts="segments"),
        *(make_requirements(3, **answers) for answers in EXAMPLES.values()),
    ]
    for note in NOTES:
        found = [note.text(each) for each in every if note.applies(each)]
        assert found, note.name
        assert all(text[0].isupper() and text.endswith(".") for text in found)


@pytest.mark.parametrize("evaluate", [True, False])
@pytest.mark.parametrize("answers", [*EXAMPLES.values(), {"contexts": "segments", "context_size": 2}])
def test_the_program_runs_and_its_log_can_be_evaluated_if_asked(
    answers, evaluate, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    advice = advise(3, evaluate=evaluate, **SMALL, **answers)
    namespace: dict[str, Any] = {}
    exec(advice.code, namespace)
    bandit = namespace["bandit"]
    asked = {"visitor": "v", "device": "phone", "age": 40, "articles": {"a": {"price": 5}, "b": {"price": 9}}}
    decide, report = namespace["decide"], namespace["report"]
    arm, decision_id = decide(**{name: asked[name] for name in inspect.signature(decide).parameters})
    reported = {"decision_id": decision_id, "success": True, "order_value": 25.0, "value": 4.0}
    given = {name: reported[name] for name in inspect.signature(report).parameters}
    if "value" in given and advice.requirements.high == 1:
        given["value"] = 1.0
    assert report(**given) is None
    decision = bandit.decision(decision_id)
    assert decision.arm == arm
    assert bandit.state.reward == advice.reward
    inner = bandit.state.policy
    while hasattr(inner, "policy"):  # a floor, segments
        inner = inner.policy
    assert inner.probability_kind == "closed form"
    if evaluate:
        assert advice.floor > 0
        assert min(decision.probabilities.values()) >= advice.floor / len(decision.probabilities) - 1e-12
    else:
        assert "floor" not in advice.policy
    bandit.close()
    assert len({option.policy for option in advice.options}) == 3
    assert advice.suggestion in advice.options


def test_the_numbers_are_those_of_plan_and_simulate(clicks) -> None:
    problem = "bernoulli:0.3,0.3,0.5,delay='fixed:100'"  # 2,400 decisions per day are 100 per hour
    assert clicks.problem == problem
    common = {"target": "arm:0", "decays": (), "seed": 3}
    pairs = {"against": "arm:2", "confidence": 1 - 0.05 / 3}
    floors = [each.floor for each in clicks.tried]
    assert floors == [0, 0.1, 0.2, 0.5, 1]
    for each in clicks.tried:
        policy, floor = ("uniform", 0.0) if each.floor == 1 else ("kl-ms+", each.floor)
        boosters = (4,) if policy == "kl-ms+" else None
        grid = {"policy": policy, "floors": (floor,), "boosters": boosters, **common}
        (row,) = plan(problem, 3000, **grid, runs=each.logs, **pairs).rows
        assert (each.width, each.found) == pytest.approx((row.width, row.decided), rel=1e-12)
        (row,) = plan(problem, 3000, **grid, runs=clicks.runs).rows
        assert each.mean_width == pytest.approx(row.width, rel=1e-12)
    assert clicks.runs == min(each.logs for each in clicks.tried) == 20
    assert clicks.suggestion.logs > clicks.runs
    policies = ["kl-ms+", "kl-ms+:floor=0.1", "kl-ms+:floor=0.2", "kl-ms+:floor=0.5", "uniform"]
    assert [each.policy for each in clicks.tried] == policies
    lost = simulate(policies, problem, 3000, clicks.trials, seed=3).final_regret
    assert [each.regret for each in clicks.tried] == lost.mean(axis=1).tolist()
    for each in clicks.tried:
        assert each.loss == pytest.approx(each.regret / 1500)


def test_the_smallest_floor_that_resolves_is_suggested(clicks) -> None:
    assert clicks.resolves
    needed = clicks.requirements.needed_width
    z = NormalDist().inv_cdf(1 - 0.025 / 3)
    assert needed == pytest.approx(0.2 * z / (z + 0.8416), rel=1e-4)
    floors = [each for each in clicks.tried if each.floor > 0]
    assert clicks.suggestion == next(each for each in floors if each.resolves)
    assert clicks.suggestion.found >= 0.8
    assert clicks.needed_decisions < 3000


def test_a_difference_that_cannot_be_found_is_a_compromise() -> None:
    advice = advise(2, rate=0.1, lift=0.01, traffic=100, horizon=1000, delay="1h", quick=True)
    assert advice.resolves is False
    first, second, z = 0.09, 0.11 * 0.89, 1.959964 + 0.841621
    assert advice.needed_decisions == pytest.approx(2 * (first + second) * (z / 0.01) ** 2, rel=1e-3)
    assert "not even an equal split" in advice.reasons[-1]
    assert "(295 days of your traffic)" in advice.reasons[-1]
    split = advice.tried[-1]
    floors = [each for each in advice.tried if each.floor > 0]
    assert advice.suggestion == next(each for each in floors if each.width <= 1.5 * split.width)
    assert advice.suggestion.found < 0.5


def test_rare_rewards_need_more_decisions_than_the_normal_approximation_says() -> None:
    advice = advise(2, rate=0.02, lift=0.06, horizon=420, delay="0s", quick=True)
    assert advice.needed_decisions < 420
    assert advice.resolves is False
    assert "even with an equal split. Almost all rewards are 0, so it takes more" in advice.reasons[-1]


def test_revenue_that_does_not_come_counts_as_0() -> None:
    answers = EXAMPLES["rewards from 0 to a maximum, mostly far below it"]
    assert make_requirements(**answers | {"delay": 0}).reward_rule == Reward(low=0, high=1)
    assert make_requirements(**answers).reward_rule == Reward(low=0, high=1, window="2d", default=0)
    answers = EXAMPLES["rewards in a range"]
    assert make_requirements(**answers, delay="2d").reward_rule == Reward(low=1, high=5, window="2d")


def test_names_with_quotes_are_names_in_the_program(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["it's", 'a "b"', "ü\\n"]
    namespace: dict[str, Any] = {}
    exec(advise(names, **SMALL).code, namespace)
    assert namespace["bandit"].arms == names
    namespace["bandit"].close()


def options(*rows: tuple[float, float, float, float]) -> list[AdviceOption]:
    """Options with these floors, regrets, widths and fractions of 400 logs that find the difference."""
    return [
        AdviceOption(policy=f"p:floor={floor}", floor=floor, regret=regret, regret_error=1.0, loss=0.1,
                     width=width, found=found, valid=True, logs=400)
        for floor, regret, width, found in rows
    ]  # fmt: skip


def found_in(*fractions: float) -> list[AdviceOption]:
    """Options without a floor, with floors of 10% and 50%, and with an equal split."""
    rows = ((0, 10, 9), (0.1, 20, 4), (0.5, 40, 2), (1, 80, 1))
    return options(*((*row, found) for row, found in zip(rows, fractions, strict=True)))


ROWS = found_in(0, 0.7, 0.9, 1)


@pytest.mark.parametrize(
    ("fractions", "max_regret", "evaluate", "floor", "reason"),
    [
        ((0, 0.9, 1, 1), None, True, 0.1, "resolves"),
        ((0, 0.78, 0.82, 1), None, True, 0.5, "resolves"),
        ((0, 0.1, 0.7, 0.9), None, True, 1, "resolves"),
        ((0, 0.1, 0.2, 0.3), None, True, 1, "cannot resolve"),
        ((0, 0.1, 0.7, 0.9), 50, True, 0.5, "too expensive"),
        ((0, 0.1, 0.7, 0.9), 15, True, 0.1, "too expensive"),
        ((0, 0.1, 0.7, 0.9), 80, True, 1, "resolves"),
        ((0, 0.9, 1, 1), None, False, 0, "no evaluation"),
    ],
)
def test_how_a_floor_is_chosen(fractions, max_regret, evaluate, floor, reason) -> None:
    chosen, why = choose_option(found_in(*fractions), 0.9, max_regret, evaluate=evaluate)
    assert (chosen.floor, why) == (floor, reason)


def test_an_option_resolves_if_it_finds_the_difference_in_about_80_percent() -> None:
    """Between 75% and 85% the likelihood decides; it is equal at 80.3%."""
    assert [each.resolves for each in found_in(0.75, 0.8, 0.81, 0.85)] == [False, False, True, True]
    assert not AdviceOption(policy="p", floor=0, regret=1, regret_error=1, loss=0).resolves


def test_the_floor_falls_gradually_when_the_traffic_is_too_small() -> None:
    widths = ((0, 5, 9), (0.1, 10, 1.6), (0.2, 20, 1.4), (0.3, 40, 1.2), (0.5, 60, 1.1), (1, 80, 1))
    rows = options(*((*row, 0.3) for row in widths))
    needed = (1.0, 0.99, 0.91, 0.9, 0.83, 0.71, 0.1)
    floors = [choose_option(rows, each, None, evaluate=True)[0].floor for each in needed]
    assert floors == [1, 1, 1, 0.5, 0.3, 0.2, 0.2]


def test_a_slightly_smaller_lift_does_not_change_the_suggestion() -> None:
    found = [
        advise(3, rate=0.04, lift=lift, traffic=900, horizon="28d", delay="18h", quick=True)
        for lift in (0.009, 0.010, 0.011)
    ]
    assert [each.policy for each in found] == ["uniform"] * 3
    assert [each.resolves for each in found] == [False, False, True]
    assert "What you can find is a difference of about 1 point." in found[0].reasons[-1]
    assert "What you can find is a difference of about 1.03 points." in found[1].reasons[-1]
    assert len(found[1].reasons) == 1  # an equal split does not learn
    assert "kl-ms+ is made" not in str(found[1])
    half, split = found[1].tried[-2:]
    words = (
        f"Floor 50% would lose about {split.regret - half.regret:.0f} clicks less, but find the difference"
    )
    assert words in found[1].reasons[-1]
    assert f"in {half.found:.0%} " in found[1].reasons[-1]
    assert f"instead of {split.found:.0%} " in found[1].reasons[-1]


def test_intervals_that_are_not_valid_do_not_count() -> None:
    better = [ROWS[0], dataclasses.replace(ROWS[1], found=0.9), *ROWS[2:]]
    for valid, floor in ((True, 0.1), (None, 0.1), (False, 0.5)):
        rows = [better[0], dataclasses.replace(better[1], valid=valid), *better[2:]]
        assert choose_option(rows, 2, None, evaluate=True)[0].floor == floor
    wrong = [ROWS[0], dataclasses.replace(ROWS[1], valid=False), *ROWS[2:]]
    assert choose_option(wrong, 2, 35, evaluate=True)[0].floor == 0.1  # none that is valid costs so little


def test_logs_are_added_where_the_choice_is_not_clear() -> None:
    few = [dataclasses.replace(each, logs=20) for each in found_in(0, 0.7, 0.85, 1)]
    chosen, _ = choose_option(few, 2, None, evaluate=True)
    assert [each.floor for each in undecided(few, chosen)] == [0.1, 0.5]
    many = found_in(0, 0.7, 0.85, 1)
    assert undecided(many, many[2]) == []
    doubtful = [dataclasses.replace(each, valid=None) for each in many]
    assert [each.floor for each in undecided(doubtful, doubtful[2])] == [0.5]
    wrong = [dataclasses.replace(each, valid=False) for each in few]
    assert undecided(wrong, wrong[2]) == []


def test_the_evidence_is_wrong_in_at_most_1_percent_of_sequences() -> None:
    """With looks after every trial; Ville's inequality gives 1%, and 5 standard errors are added."""
    rng = np.random.default_rng(5)
    sequences, trials = 4000, 600
    steps = {hit: evidence(hit, 1, 0.75, 0.85) for hit in (0, 1)}
    limit = 0.01 + 5 * math.sqrt(0.01 * 0.99 / sequences)
    for probability, sign in ((0.75, 1), (0.85, -1)):
        hits = rng.random((sequences, trials)) < probability
        paths = sign * np.where(hits, steps[1], steps[0]).cumsum(axis=1)
        wrong = (paths >= math.log(100)).any(axis=1).mean()
        assert wrong <= limit
        assert (paths.min(axis=1) <= -math.log(100)).mean() > 0.95  # and usually it is clear
        too_soon = (paths >= math.log(5)).any(axis=1).mean()
        assert too_soon > limit  # a negative control: less evidence would not do


def test_few_logs_do_not_show_that_intervals_are_wrong() -> None:
    """Two of 17 intervals miss in 2% of experiments even if 98.5% of them cover."""

    def valid(missed: int, logs: int) -> bool | None:
        errors = np.where(np.arange(logs) < missed, 3.0, 0.5)
        return describe_intervals(errors - 1, errors + 1, 0.0, 1 - 0.05 / 6).valid

    assert [valid(missed, 17) for missed in (0, 1, 2)] == [None, None, None]
    assert [valid(missed, 200) for missed in (1, 2, 3)] == [True, True, True]
    assert valid(6, 17) is False
    assert valid(20, 200) is False
    assert valid(9, 200) is None


def test_a_log_without_an_interval_finds_nothing_but_does_not_hide_the_others() -> None:
    lower = np.array([*[np.nan] * 2, *[0.5] * 15])
    found = describe_intervals(lower, lower + 1, 1.0, 0.95)
    assert (found.width, found.found, found.logs) == (0.5, 15 / 17, 17)
    lower[:4] = np.nan
    assert describe_intervals(lower, lower + 1, 1.0, 0.95).width == math.inf


def test_intervals_shrink_until_the_end_of_the_experiment() -> None:
    lower, upper = np.array([-0.1, -0.9]), np.array([1.9, 1.1])
    assert describe_intervals(lower, upper, 1.0, 0.95).found == 0.0
    assert describe_intervals(lower, upper, 1.0, 0.95, shrink=0.6).found == 0.5
    assert describe_intervals(lower, upper, 1.0, 0.95, shrink=0.3).found == 1.0


def test_alternatives_are_no_floor_and_an_equal_split_or_the_nearest() -> None:
    for place, expected in ((0, [0.1, 1]), (1, [0, 1]), (2, [0, 1]), (3, [0.5, 0])):
        assert [each.floor for each in alternatives(ROWS, ROWS[place])] == expected


def test_a_price_that_is_too_low_is_reported() -> None:
    advice = advise(2, rate=0.3, max_regret=0.5, **SMALL)
    assert advice.warnings[0].startswith("The suggestion loses more than you accept (0.5)")


def test_segments_are_separate_experiments() -> None:
    answers: dict[str, Any] = {"rate": 0.3, "lift": 0.2, "traffic": 2400, "delay": "1h", "quick": True}
    parts = advise(2, contexts="segments", context_size=2, horizon=2000, **answers)
    assert parts.problem == "bernoulli:0.3,0.5,delay='fixed:50'"
    assert parts.horizon == 1000
    lost = simulate("uniform", parts.problem, 1000, parts.trials).final_regret.mean()
    assert parts.tried[-1].regret == pytest.approx(2 * lost)
    assert parts.requirements.confidence == 0.975


def test_linear_models_have_no_intervals() -> None:
    advice = advise(4, contexts="features", context_size=2, rate=0.3, lift=0.2, horizon=500, quick=True)
    assert [each.policy for each in advice.options] == [
        "lin-ms:floor=0.1,sigma2=0.21",
        "kl-ms+:floor=0.1",
        "uniform",
    ]
    assert (advice.resolves, advice.needed_decisions, advice.runs) == (None, None, 0)
    assert all(math.isnan(each.width) for each in advice.options)
    problem = context_problem_for(advice.requirements)
    lost = simulate([each.policy for each in advice.options], problem, 500, advice.trials).final_regret
    assert [each.regret for each in advice.options] == lost.mean(axis=1).tolist()
    assert "margin" not in str(advice).partition("Keep in mind")[0]
    with pytest.raises(maillard.CannotAnswer, match="nothing to draw"):
        advice.plot()


@pytest.mark.parametrize("kind", ["features", "actions"])
def test_the_context_problem_has_the_rate_and_the_lift(kind) -> None:
    r = make_requirements(4, contexts=kind, context_size=3, rate=0.3, lift=0.1)
    problem: Any = context_problem_for(r)
    means = problem.centre + (
        problem.rows @ problem.coefficients if kind == "actions" else problem.rows @ problem.coefficients.T
    )
    assert sorted({round(float(each), 12) for each in means.ravel()}) == [0.3, 0.4]


@pytest.mark.parametrize(
    ("answers", "mean", "deviation"),
    [
        (EXAMPLES["rewards without a maximum"], 3.0, 4.0),
        (EXAMPLES["rewards in a range"], 3.0, 1.0),
        ({"reward": "bounded", "reward_range": (-2, 2), "rate": 1.0}, 1.0, math.sqrt(3)),
        ({"reward": "unbounded", "rate": 9.0, "deviation": 1.0}, 9.0, 1.0),
        *(
            ({"reward": "bounded", "reward_range": (0, 300), "rate": 2.4, "deviation": each}, 2.4, each)
            for each in (26.0, 14.0, 5.0, 1.0)
        ),
    ],
)
def test_simulated_rewards_have_the_mean_and_the_deviation(answers, mean, deviation) -> None:
    r = make_requirements(2, lift=0.5, **answers)
    problem, unit = problem_for(r)
    low = r.low if unit != 1.0 else 0.0
    assert problem.true_means * unit + low == pytest.approx([mean, mean + 0.5])
    if isinstance(problem, Gaussian):
        assert problem.variance == deviation**2
        return
    chances: Any = [1 - problem.true_means[0], problem.true_means[0]]
    values: Any = [0.0, 1.0]
    if isinstance(problem, Bounded):
        chances, values = problem.probabilities[0], np.atleast_2d(problem.values)[0]
    centre = sum(v * p for v, p in zip(values, chances, strict=True))
    spread = math.sqrt(sum((v - centre) ** 2 * p for v, p in zip(values, chances, strict=True)))
    assert spread * unit == pytest.approx(deviation)


def test_less_noisy_revenue_never_gives_worse_advice() -> None:
    shop: dict[str, Any] = {"reward": "bounded", "reward_range": (0, 300), "rate": 2.4, "lift": 1.2}
    found = [
        advise(2, **shop, deviation=each, traffic=900, horizon="28d", delay="18h", quick=True)
        for each in (None, 14.0, 5.0)
    ]
    for noisy, quiet in itertools.pairwise(found):
        assert quiet.floor <= noisy.floor
        assert quiet.resolves
        for first, second in zip(noisy.tried[-2:], quiet.tried[-2:], strict=True):
            assert second.valid is not False
            assert second.width < first.width < math.inf
            assert second.found >= first.found
    assert "purchases of 300 on average, up to 300, by 0.008 of the visitors" in found[0].problem
    support = [problem_for(each.requirements)[0].support for each in found]
    assert support == [(0, 1)] * 3  # all amounts may be small, but the declared range is the same


def test_a_long_experiment_is_simulated_in_part(monkeypatch) -> None:
    monkeypatch.setattr(advice_simulation, "QUICK", advice_simulation.QUICK._replace(horizon=500))
    advice = advise(2, rate=0.3, lift=0.3, horizon=2000, quick=True, threads=1)
    assert advice.horizon == 500
    text = " ".join(str(advice).split())
    assert "Only the first 500 of 2,000 decisions were simulated" in text
    assert "by a factor of 2 until the end" in text
    assert advice.suggestion == next(each for each in advice.tried if each.floor > 0 and each.resolves)
    cells = advice_simulation.FULL.cells
    assert make_requirements(100, horizon=30_000).part_horizon > cells // 100  # then memory is the limit


def test_defaults_are_stated() -> None:
    r = make_requirements()
    assert (r.arms, r.reward, r.rate, r.lift, r.horizon, r.window) == (
        ("A", "B"), "clicks", 0.03, 0.015, 14_000, 3600.0,
    )  # fmt: skip
    assert {"arms", "reward", "rate", "lift", "traffic", "horizon", "delay", "evaluate"} == set(r.assumed)
    assert make_requirements(reward="bounded", reward_range=(0, 10)).deviation == 5.0
    assert make_requirements(rate=0.9).lift == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"arms": 1}, "arms: expected a number of arms from 2 to 100"),
        ({"arms": ["a", "a"]}, "at least two different names"),
        ({"arms": "red"}, "arms: expected"),
        ({"rate": 3}, r"rate: expected a number > 0 and < 1 \(did you mean 3%, which is 0.03\?\), got 3"),
        ({"rate": 300}, "rate: expected a number > 0 and < 1, got 300"),
        ({"lift": 1}, "lift: expected .*did you mean 1%"),
        ({"buyers": 0.02}, "buyers: expected None: only revenue has it"),
        ({**SHOP, "buyers": 2}, "buyers: expected .*did you mean 2%"),
        ({**SHOP, "rate": 0.8}, "rate: expected None: it is buyers times order"),
        ({**SHOP, "reward_range": (20, 300)}, "reward_range: expected a range from 0"),
        ({**SHOP, "order": 400}, "order: expected a number > 0 and <= 300"),
        ({**SHOP, "deviation": 20}, "deviation: expected a number > 0 and <= 15"),
        ({"rate": 0.5, "lift": 0.6}, "lift: expected a number > 0 and <= 0.5, got 0.6"),
        ({"lift": 0}, "lift: expected"),
        ({"reward_range": (0, 2)}, "reward_range: expected None: only bounded"),
        ({"reward": "bounded", "reward_range": (2, 1)}, "reward_range: expected two numbers"),
        ({"reward": "bounded", "reward_range": (0, 1), "deviation": 0.6}, "deviation: expected"),
        ({"horizon": 5}, "horizon: expected at least 20 decisions, 10 per arm"),
        ({"horizon": "soon"}, "horizon: expected seconds, or a number with a unit"),
        ({"delay": "-1h"}, "delay: expected"),
        ({"traffic": 0}, "traffic: expected a number > 0"),
        ({"context_size": 3}, "context_size: expected None, because contexts is None"),
        ({"contexts": "segments", "context_size": 0}, "context_size: expected a whole number"),
        ({"contexts": "segments", "horizon": 30}, "10 per arm and segment"),
        ({"evaluate": "yes"}, "evaluate: expected true or false"),
        ({"max_regret": -1}, "max_regret: expected"),
        ({"quick": 1}, "quick: expected true or false"),
    ],
)  # fmt: skip
def test_wrong_answers_are_refused(answers, message) -> None:
    with pytest.raises(InvalidValue, match="^" + message if ": " in message else message):
        advise(**answers)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'clicks'"):
        advise(reward="click")
    with pytest.raises(UnknownName, match="contexts"):
        advise(contexts="rows")


def test_the_text_explains_and_is_short(clicks) -> None:
    text = str(clicks)
    assert max(map(len, text.partition("To repeat")[0].splitlines())) <= 90
    assert text.index("Why") < text.index("What to expect") < text.index("In your program")
    assert sum(line.startswith("* ") for line in text.splitlines()) == 1
    assert len(repr(clicks).splitlines()) <= 10
    assert clicks.policy in repr(clicks)
    plain = json.loads(json.dumps(clicks.to_dict()))
    assert plain["policy"] == clicks.policy
    assert plain["code"] == clicks.code


def test_at_the_end_every_arm_is_evaluated_and_every_pair_compared(clicks) -> None:
    text = str(clicks).partition("When it has ended")[2].partition("To repeat")[0]
    commands = [line.split() for line in text.splitlines() if line.startswith("  maillard")]
    evaluate, *pairs = commands
    assert evaluate[:3] == ["maillard", "evaluate", "decisions.db"]
    assert evaluate[3:] == ["--target", "arm:A", "--target", "arm:B", "--target", "arm:C", "--finished"]
    assert [each[3:5] for each in pairs] == [["arm:A", "arm:B"], ["arm:A", "arm:C"], ["arm:B", "arm:C"]]
    assert "wait 1h for the last rewards" in " ".join(text.split())
    many = " ".join(str(advise(7, rate=0.3, lift=0.5, **SMALL)).partition("When it has ended")[2].split())
    assert "Do the same for the other arms." in many
    assert "maillard evaluate decisions.db --target arm:A --finished" in many
    assert "Do the same for the other pairs of arms: there are 21." in many


def test_revenue_follows_from_buyers_and_orders() -> None:
    r = make_requirements(4, **SHOP)
    assert (r.low, r.high, r.rate, r.lift) == (0.0, 300.0, 0.8, 0.4)
    assert r.deviation == pytest.approx(math.sqrt(0.02 * 2 * 40**2 - 0.8**2))
    assert "deviation" not in r.assumed
    # The variance of a reward that is an exponential variable with mean 40 with probability 0.02, by samples.
    rng = np.random.default_rng(2)
    orders = rng.exponential(40, 2_000_000) * (rng.random(2_000_000) < 0.02)
    assert orders.std() == pytest.approx(r.deviation, rel=0.025)  # 4 standard errors: the kurtosis is 306
    assert order_deviation(0.02, 200, 300) == pytest.approx(math.sqrt(0.02 * 200 * 300 - 4**2))
    assert make_requirements(4, **SHOP, deviation=9).deviation == 9
    assert make_requirements(4, reward="revenue", rate=0.8, order=40, reward_range=(0, 300)).buyers == 0.02
    assert make_requirements(4, reward="revenue", rate=0.8, buyers=0.02).order == 40


def test_revenue_is_repeated_and_explained() -> None:
    advice = advise(4, **SHOP, delay="2d", traffic=3000, horizon=2000, quick=True)
    text = " ".join(str(advice).split())
    assert "0.02 × 40 = 0.8, and the standard deviation is √(0.02 × 2 × 40² - 0.8²) = 7.96" in text
    assert "default=0" in advice.code
    assert "in fractions of 300: multiply it by 300" in text
    assert "--reward revenue" in advice.command
    assert "--buyers 0.02 --order 40" in advice.command
    assert "--deviation" not in advice.command
    assert not make_requirements(4, **SHOP, deviation=9).deviation_is_derived


def test_orders_that_are_given_as_rewards_of_every_decision_are_noticed() -> None:
    for limits in ((20, 300), (0, 300)):
        assert make_requirements(4, reward="bounded", reward_range=limits, rate=40).looks_like_orders
    assert not make_requirements(4, reward="bounded", reward_range=(1, 5), rate=3).looks_like_orders
    advice = advise(4, reward="bounded", reward_range=(20, 300), rate=40, horizon=400, quick=True)
    text = " ".join(str(advice).split())
    assert "use --reward revenue --reward-range 0..300 --order 40" in text


def test_margins_that_are_missing_or_wrong_are_explained() -> None:
    shop: dict[str, Any] = {"reward": "bounded", "reward_range": (0, 300), "rate": 2.4, "lift": 1.2}
    advice = advise(2, **shop, horizon=2000, quick=True)
    text = " ".join(str(advice).split())
    assert advice.options[0].width == math.inf
    assert "no interval: many of the logs" in text
    assert "order_value / 300) # 0 to 300" in text
    assert "multiply it by 300" in text
    wrong = dataclasses.replace(advice.tried[-1], valid=False, width=1.0)
    edited = dataclasses.replace(
        advice, tried=(*advice.tried[:-1], wrong), options=(*advice.options[:-1], wrong)
    )
    shown = " ".join(str(edited).split())
    assert shown.count("not valid") == 2  # in the table, and its explanation
    assert "contained the true difference too rarely (equal split)" in shown
    assert "(not valid)" in " ".join(each.get_text() for each in edited.plot().axes[0].texts)
    assert "0000" not in repr(advice.suggestion)


def test_the_figure_names_every_floor(clicks) -> None:
    texts = {each.get_text() for each in clicks.plot().axes[0].texts}
    assert {"no floor", "floor 10%", "equal split"} <= {each.removesuffix(" (suggested)") for each in texts}
    assert sum(each.endswith("(suggested)") for each in texts) == 1


def test_progress_is_reported() -> None:
    seen: list[tuple[str, float]] = []
    advise(2, rate=0.3, progress=lambda *step: seen.append(step), **SMALL)
    assert list(dict.fromkeys(what for what, _ in seen)) == [
        "comparing arms",
        "evaluating an arm",
        "measuring what is lost",
        "checking the suggestion",
    ]
    assert all(0 <= fraction <= 1 for _, fraction in seen)


def test_numbers_are_rounded_to_their_error() -> None:
    assert with_error(94.94, 2.1) == "95 ± 2"
    assert with_error(0.8715, 0.0123) == "0.87 ± 0.01"
    assert with_error(12345.0, 321.0) == "12,300 ± 300"


def test_the_page_has_the_rules() -> None:
    from docs.generate import HERE

    page = (HERE / "how-to" / "choose-policy.md").read_text(encoding="utf8")
    assert rules_table() in page, "run `make docs`"
    statement = f"There are {len(policy_names())} policies"
    assert statement in page
    assert statement in (HERE / "reference" / "glossary.md").read_text(encoding="utf8")
    for rule in POLICY_RULES:
        name, _, _ = rule.evidence.partition("#")
        assert (HERE / name).exists()
