"""The study of contexts: its data, its statistics and its advice, on made-up results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from maillard import LinearTally, MaillardError, UnknownName, policy
from maillard.reproduction import ReproductionSettings, data_sets, experiments, linear_logs, reproduce
from maillard.reproduction.claim_statistics import mean
from maillard.reproduction.context_study import advice, outcomes, paired, recommended
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.experiment_runner import part_file_name
from maillard.reproduction.paper_experiments import parts
from maillard.reproduction.sections import context_sections, sections
from maillard.simulation import Result

ALL = ReproductionSettings(only=("contexts",))
TRIALS = 20


def test_contexts_are_run_only_on_request() -> None:
    assert not any(part.experiment.startswith("contexts") for part in parts(ReproductionSettings()))
    names = {part.experiment for part in parts(ALL)}
    assert names == {each.name for each in experiments().values() if each.group == "contexts"}
    assert {part.experiment for part in parts(ReproductionSettings(only=("contexts-data",)))} == {
        "contexts-data"
    }
    with pytest.raises(UnknownName, match="contexts"):
        ReproductionSettings(only=("context",))


def test_data_sets_are_halved_and_scaled() -> None:
    problems = [part.problem for part in parts(ALL) if part.experiment == "contexts-data"]
    assert problems == [data_sets.PREFIX + name for name in data_sets.DATA_SETS]
    assert len(data_sets.TUNING) == len(data_sets.REPORTED)
    assert not set(data_sets.TUNING) & set(data_sets.REPORTED)
    for name in data_sets.DATA_SETS:
        problem = data_sets.classification(name)
        assert problem.X[:, 0].tolist() == [1] * len(problem.X)  # the intercept
        assert np.abs(problem.X).max() == 1
        assert 2 <= problem.arms <= 10
    with pytest.raises(UnknownName, match="Did you mean 'digits'"):
        data_sets.classification("digit")


def test_a_missing_package_is_named(monkeypatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(data_sets, "import_module", missing)
    data_sets.classification.cache_clear()
    with pytest.raises(
        MaillardError, match=r"No module named 'sklearn.datasets'\): pip install 'maillard\[study\]'"
    ):
        data_sets.classification("iris")


def test_a_part_is_stored_under_its_data() -> None:
    names = [part_file_name(part) for part in parts(ALL)]
    assert len(set(names)) == len(names)


def made_up(reward: Callable[[str, str], float], noise: float = 0.01) -> ExperimentResults:
    """Results whose mean reward is a function of the policy and the data set or problem."""
    rng, found = np.random.default_rng(3), {}
    for part in parts(ALL):
        rounds = np.array([part.horizon // 2, part.horizon] if part.curves else [part.horizon])
        name = part.problem.removeprefix(data_sets.PREFIX)
        means = np.array([reward(spec, name) for spec in part.policies])
        lost = 1 - means[:, None] + noise * rng.standard_normal((means.size, TRIALS))
        values = lost[:, :, None] * rounds
        pulls = np.zeros((means.size, TRIALS, 2), np.int64)
        provenance = {"problem": part.problem, "policies": list(part.policies)}
        found[part] = Result(part.policies, "regret", rounds, values, pulls, provenance)
    return ExperimentResults(ALL, found)


def one_is_best(spec: str, name: str) -> float:
    """The best narrow parameter differs between tuning data and others; lin-ucb is best but deterministic."""
    tuning = name in data_sets.TUNING
    best = {"lin-ms:sigma2=0.03": 0.8 if tuning else 0.75, "lin-ms": 0.7 if tuning else 0.9, "lin-ucb": 0.95}
    return best.get(spec, 0.5)


def test_parameters_are_tuned_on_other_data() -> None:
    found = outcomes(made_up(one_is_best))
    by_default = {each.default: each for each in found}
    assert by_default["lin-ms"].tuned == "lin-ms:sigma2=0.03"
    assert by_default["lin-ms"].tuned_reward.value == pytest.approx(0.75, abs=0.005)
    assert by_default["lin-ms"].default_reward.value == pytest.approx(0.9, abs=0.005)
    assert found[0].default == "lin-ucb"
    assert not found[0].has_exact_log
    assert recommended(found).tuned == "lin-ms:sigma2=0.03"


def test_the_advice_follows_the_numbers() -> None:
    results = made_up(one_is_best)
    text, comparison = advice(results, outcomes(results))
    assert text.startswith("Start with lin-ms:sigma2=0.03.")
    assert "is worse than the best policy of all, lin-ucb (-0.2" in comparison
    assert "is better than the best other policy with positive probabilities, " in comparison
    assert "is worse than its default parameters, lin-ms (-0.1" in comparison
    assert comparison.endswith("larger on 0 of 8 data sets).")

    def thompson(spec: str, name: str) -> float:  # as good on average, but it takes quadrature
        return {"lin-ts:scale=0.4": 0.8, "igw": 0.79, "igw:fast=true": 0.85}.get(spec, 0.5)

    results = made_up(thompson, noise=0.3)
    text, comparison = advice(results, outcomes(results))
    assert text.startswith("Start with igw.")
    assert "does not clearly differ from the best other policy with positive probabil" in comparison


def test_differences_are_paired_by_data_set() -> None:
    """Data sets differ by 0.5, policies by 0.02 on each: only a paired comparison sees it."""

    def reward(spec: str, name: str) -> float:
        return (0.3 if name < "m" else 0.8) + (0.02 if spec == "lin-ms" else 0.0)

    difference = paired(made_up(reward), "lin-ms", "lin-ts")
    assert difference.lower(0.999) > 0.0
    assert difference.upper(0.999) < 0.04


def test_the_sections_show_every_policy() -> None:
    results = made_up(one_is_best)
    makers = {maker.func for maker in sections(results)}
    assert {context_sections.labelled_data, context_sections.linear_arms} < makers
    section = context_sections.labelled_data(results)
    assert [panel.name for panel in section.panels] == ["contexts-rewards", "contexts-differences"]
    assert section.paragraphs[1].startswith("Start with lin-ms:sigma2=0.03.")
    main, by_data, listed = section.tables
    families = {spec.partition(":")[0] for spec in parts(ALL)[-1].policies}
    # fast=true and epsilon=0 may give arms probability 0, and are listed as further policies.
    assert len(main.rows) == len(by_data.rows) == len(families) + 2
    assert len(listed.rows) == len(data_sets.DATA_SETS)
    linear = context_sections.linear_arms(results)
    assert [len(table.rows) for table in linear.tables] == [len(parts(ALL)[0].policies)] * 2


@pytest.mark.parametrize("spec", [linear_logs.LINMED, *linear_logs.THOMPSON])
def test_probabilities_of_many_states_are_those_of_the_policy(spec) -> None:
    made = policy(spec, sigma2=linear_logs.DEVIATION**2, ridge=linear_logs.RIDGE, centre=0.0)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        tally = LinearTally.empty(2, None)
        for _ in range(int(rng.integers(0, 60))):
            row = linear_logs.ROWS[int(rng.random() < 0.6)]
            tally.add(row, float(row @ linear_logs.THETA + 0.3 * rng.normal()))
        expected = made.probabilities(tally, linear_logs.ROWS)[1]
        found = linear_logs.second_arm_probability(spec, tally.gram, tally.products)[0]
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_exact_probabilities_give_the_value_and_estimated_ones_do_not() -> None:
    logs = linear_logs.simulate_logs(linear_logs.THOMPSON[1], 400, 300, seed=1)
    truth = linear_logs.true_value()
    exact, estimated = (mean(linear_logs.estimates(logs, draws, seed=1)) for draws in (0, 8))
    assert abs(exact.value - truth) < 4.5 * exact.error
    assert abs(estimated.value - truth) > 8 * estimated.error  # 8 draws miss the arms that are rare


@pytest.mark.torture
def test_the_whole_study(tmp_path) -> None:
    report = reproduce(tmp_path / "report", ReproductionSettings(only=("contexts",), quick=True), show=False)
    assert {"contexts", "contexts-linear", "contexts-off-policy"} <= {each.id for each in report.sections}
    assert (tmp_path / "report" / "figures" / "contexts-rewards.png").exists()
