"""The claims on off-policy evaluation: their logs are correct, and their tests can hold or fail."""

from __future__ import annotations

import numpy as np
import pytest

from maillard import Tally, policy
from maillard.evaluation import evaluate
from maillard.reproduction import two_arm_logs
from maillard.reproduction.claim_statistics import judge
from maillard.reproduction.claims.findings import Finding
from maillard.reproduction.claims.off_policy_claims import biased, unbiased

NOTHING = {"worse arm, MS": (np.ones(5), np.ones(5))}
NEVER = {64: (0.0, 0.0)}


@pytest.fixture(scope="module")
def ms() -> two_arm_logs.Logs:
    return two_arm_logs.simulate_logs("ms", 2000, 200, seed=5)


def verdict(finding: Finding) -> str:
    assert finding.verdict is not None
    assert finding.verdict.outcome == judge(finding.checks).outcome
    return finding.verdict.outcome


def replayed(logs: two_arm_logs.Logs, log: int, first: np.ndarray) -> Tally:
    """The tally at the end of a log, the worse arm first, given the first rewards."""
    worse, reward = logs.worse[:, log], logs.reward[:, log]
    return Tally(
        [1 + worse.sum(), 1 + (~worse).sum()],
        [first[0] + reward[worse].sum(), first[1] + reward[~worse].sum()],
    )


@pytest.mark.parametrize("name", ["ms", "ts"])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_the_logs_are_those_of_the_policies(name, floor):
    """The last logged probability is that of the policy, for each of the four possible first reward pairs."""
    logs = two_arm_logs.simulate_logs(name, 50, 40, seed=3, floor=floor)
    made = policy(name, sigma2=0.25)
    before = two_arm_logs.Logs(*(each[:-1] for each in logs))
    for log in range(50):
        probabilities = [
            made.probabilities(replayed(before, log, np.array(first)))[0]
            for first in ((0, 0), (0, 1), (1, 0), (1, 1))
        ]
        expected = (1 - floor) * np.array(probabilities) + floor / 2
        assert np.abs(expected / logs.probability[-1, log] - 1).min() < 1e-9


def test_the_choices_agree_with_the_probabilities(ms):
    for logs in (ms, two_arm_logs.simulate_logs("ts", 2000, 200, seed=5)):
        p = logs.probability
        z = (logs.worse - p).sum() / np.sqrt((p * (1 - p)).sum())
        assert abs(z) < 4


@pytest.mark.parametrize("better", [False, True])
def test_the_scores_are_those_of_evaluate(ms, better):
    worse, p = ms.worse[:, 0], ms.probability[:, 0]
    feedback = {
        "action": np.where(worse, 0, 1),
        "reward": ms.reward[:, 0],
        "pscore": np.where(worse, p, 1 - p),
        "pi_b": np.stack([p, 1 - p], axis=1),
    }
    report = evaluate(feedback, f"arm:{int(better)}", ["ips"], min_effective_size=0)
    assert two_arm_logs.ips_scores(ms, better=better)[:, 0].mean() == pytest.approx(
        report["ips"].value, rel=1e-12
    )


def both_arms(logs: two_arm_logs.Logs, probability: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "better arm": two_arm_logs.ips_scores(logs, probability, better=True).mean(axis=0),
        "worse arm": two_arm_logs.ips_scores(logs, probability).mean(axis=0),
    }


def test_ips_on_ms_can_come_out_either_way(ms):
    assert verdict(unbiased(both_arms(ms, ms.probability), NOTHING)) == "holds"
    later = two_arm_logs.Logs(*(each[:-20] for each in ms))
    # The probabilities are those of other rounds.
    assert verdict(unbiased(both_arms(later, ms.probability[20:]), NOTHING)) == "fails"


def test_a_fraction_of_samples_that_includes_the_served_one_is_too_large():
    """p / logged p averages 1 - (1 - p)^M: 0.57 for p = 0.1 and 0.15 for p = 0.02, with M = 8 samples."""
    rng = np.random.default_rng(1)
    for p, expected in ((0.1, 0.57), (0.02, 0.15)):
        ratios = p * 8 / (1 + rng.binomial(7, p, size=100_000))
        exact = 1 - (1 - p) ** 8
        assert exact == pytest.approx(expected, abs=0.005)
        assert abs(ratios.mean() - exact) < 4 * ratios.std() / np.sqrt(ratios.size)


def test_the_bias_of_ips_on_thompson_agrees_with_the_formula():
    exact, *sampled = two_arm_logs.sampled_propensities(0)
    truth = two_arm_logs.true_means()[0]
    for each in sampled:
        apart = each.estimates / truth - each.expected
        assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(apart.size)
        assert each.estimates.mean() < exact.estimates.mean()
    assert [each.draws for each in sampled] == list(two_arm_logs.SAMPLES)
    rows, logs = zip(*two_arm_logs.zero_fractions(0).values(), strict=True)
    assert sorted(rows, reverse=True) == list(rows)
    assert min(logs) > 0.5


def test_ips_on_thompson_can_come_out_either_way():
    found = two_arm_logs.sampled_propensities(0)
    assert verdict(biased(found, NEVER)) == "holds"
    as_good = [each._replace(estimates=found[0].estimates) for each in found]
    assert verdict(biased(as_good, NEVER)) == "fails"
    as_bad = [found[0]._replace(estimates=found[-1].estimates), *found[1:]]
    assert verdict(biased(as_bad, NEVER)) == "fails"


def test_the_error_of_the_worse_arm_shrinks_only_with_a_floor():
    """From 300 to 3,000 rounds, an error of order 1/√T is divided by 3.2."""
    better, worse, floored = (deviations for deviations, _ in two_arm_logs.single_errors(0).values())
    assert worse[-1] > 0.6 * worse[-3]
    assert better[-1] < 0.5 * better[-3]
    assert floored[-1] < 0.6 * floored[-3]
