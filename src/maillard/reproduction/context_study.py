"""The study of policies on labelled data: parameters are tuned on some data sets and reported on others."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from maillard import specs
from maillard.linear_tally import LinearTally
from maillard.policies import policy, policy_class, uses_context
from maillard.reproduction.claim_statistics import CONFIDENCE, TrialEstimate, average, mean
from maillard.reproduction.data_sets import PREFIX, REPORTED, TUNING
from maillard.reproduction.experiment_results import ExperimentResults

EXPERIMENT = "contexts-data"
_SIDE = 1 - (1 - CONFIDENCE) / 2  # of each end of a two-sided interval


@dataclass(frozen=True)
class PolicyOutcome:
    """The rewards of one policy on the reported data sets, with default parameters and with tuned ones.

    Parameters with which arms may have probability 0 count as another policy, such as epsilon=0.
    """

    default: str  # the first spec of the policy in paper_experiments.toml
    tuned: str  # the spec with the largest mean reward on the other data sets
    default_reward: TrialEstimate
    tuned_reward: TrialEstimate
    tuning_reward: TrialEstimate  # of the tuned spec on the data sets that it was tuned on

    @property
    def has_exact_log(self) -> bool:
        """Whether its log can evaluate every arm: it uses contexts, and no arm ever has probability 0."""
        return _is_positive(self.tuned)

    @property
    def is_closed_form(self) -> bool:
        """Whether its probabilities have a closed form, which takes a fraction of the time of quadrature."""
        return policy_class(specs.read(self.tuned).name).probability_kind == "closed form"


def rewards(results: ExperimentResults, group: Iterable[str], spec: str) -> dict[str, TrialEstimate]:
    """The mean reward of a policy on each of these data sets.

    The right label pays 1, so the regret is what is missing.
    """
    found = {}
    for name in group:
        problem = PREFIX + name
        horizon = results.result(EXPERIMENT, problem).rounds[-1]
        found[name] = mean(1.0 - results.regret(EXPERIMENT, problem, spec) / horizon)
    return found


def mean_reward(results: ExperimentResults, group: Iterable[str], spec: str) -> TrialEstimate:
    """The mean reward of a policy, averaged over these data sets."""
    return average(list(rewards(results, group, spec).values()))


def outcomes(results: ExperimentResults) -> list[PolicyOutcome]:
    """The outcome of each policy, from the largest tuned mean reward to the smallest."""
    listed = results.parts_of(EXPERIMENT)[0].policies
    families: dict[tuple[str, bool], list[str]] = {}
    for spec in listed:
        families.setdefault((specs.read(spec).name, _is_positive(spec)), []).append(spec)
    found = []
    for family in families.values():
        tuned = max(family, key=lambda spec: mean_reward(results, TUNING, spec).value)
        default = mean_reward(results, REPORTED, family[0])
        reported, on_tuning = (mean_reward(results, each, tuned) for each in (REPORTED, TUNING))
        found.append(PolicyOutcome(family[0], tuned, default, reported, on_tuning))
    return sorted(found, key=lambda each: -each.tuned_reward.value)


def recommended(found: list[PolicyOutcome]) -> PolicyOutcome:
    """The policy to start with: the best on the data sets for tuning, if its logs are exact and cheap."""
    candidates = [each for each in found if each.has_exact_log and each.is_closed_form]
    return max(candidates, key=lambda each: each.tuning_reward.value)


def paired(results: ExperimentResults, one: str, other: str) -> TrialEstimate:
    """The mean difference of mean rewards, paired by data set; the reported data sets are the sample."""
    first, second = (rewards(results, REPORTED, spec) for spec in (one, other))
    difference = mean(np.array([first[name].value - second[name].value for name in first]))
    return replace(difference, third=0.0)  # too few data sets to estimate a skewness


def wins(results: ExperimentResults, one: str, other: str) -> int:
    """The number of reported data sets on which the first policy has the larger mean reward."""
    first, second = (rewards(results, REPORTED, spec) for spec in (one, other))
    return sum(first[name].value > second[name].value for name in first)


def interval(estimate: TrialEstimate) -> tuple[float, float]:
    """The two-sided interval of an estimate."""
    return estimate.lower(_SIDE), estimate.upper(_SIDE)


def interval_text(estimate: TrialEstimate, form: str = ".3f") -> str:
    """An estimate with its interval."""
    low, high = interval(estimate)
    return f"{estimate.value:{form}} ({low:{form}} to {high:{form}})"


def advice(results: ExperimentResults, found: list[PolicyOutcome]) -> tuple[str, ...]:
    """Which policy to start with, and how it compares with others on the reported data sets."""
    best, count = recommended(found), len(REPORTED)
    exact = [each for each in found if each.has_exact_log]
    default = max(exact, key=lambda each: each.default_reward.value)
    text = (
        f"Start with {best.tuned}. Of the policies in closed form that give every arm a positive "
        "probability, so that their logs can evaluate any arm, it had the largest mean reward on the data "
        f"sets for tuning. On the {count} others, its mean reward is {interval_text(best.tuned_reward)}. "
        f"With default parameters, {default.default} had the largest of those with positive probabilities, "
        f"{interval_text(default.default_reward)}."
    )
    comparisons = (
        ("the best other policy with positive probabilities", [each.tuned for each in exact]),
        ("the best policy of all", [each.tuned for each in found]),
        ("its default parameters", [best.default]),
    )
    compared: dict[str, str] = {}
    for name, group in comparisons:  # the outcomes are sorted, so the first of a group is the best
        other = next((each for each in group if each != best.tuned), None)
        if other is not None and other not in compared:
            compared[other] = _comparison(results, best.tuned, other, name)
    return text, f"Compared data set by data set, {best.tuned} " + ", ".join(compared.values()) + "."


def _comparison(results: ExperimentResults, one: str, other: str, name: str) -> str:
    difference = paired(results, one, other)
    low, high = interval(difference)
    verdict = "is better than" if low > 0 else "is worse than" if high < 0 else "does not clearly differ from"
    won, count = wins(results, one, other), len(REPORTED)
    numbers = f"{difference.value:+.3f}, from {low:+.3f} to {high:+.3f}; larger on {won} of {count} data sets"
    return f"{verdict} {name}, {other} ({numbers})"


@functools.cache
def _is_positive(spec: str) -> bool:
    """Whether a policy uses contexts and all arms have positive probabilities in a number of states."""
    if not uses_context(spec):
        return False
    made = policy(spec, reward_range=(0, 1))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = LinearTally.to_grid(rng.uniform(-1, 1, (60, 3)))
        tally = LinearTally.empty(3, 5)
        for i, row in enumerate(rows):
            tally.add(row, float(rng.random() < 0.2 * (i % 5) + row.sum()), arm=i % 5)
        if any(np.isneginf(made.log_probabilities(tally, x)).any() for x in (rows[0], np.ones(3))):
            return False
    return True
