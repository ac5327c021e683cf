"""Claims on tuning, delay and variance: the booster against narrower widths, C and D, delayed rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from maillard.problems import problem as problem_of
from maillard.reproduction.claim_statistics import (
    CONFIDENCE,
    Check,
    Verdict,
    binomial_bounds,
    fisher_p_value,
    log_mean,
    mean,
    stricter,
    trials_for,
)
from maillard.reproduction.claims.findings import (
    DEVIATION,
    MEAN,
    Finding,
    estimates_text,
    nearest_text,
    ratio,
    ratio_check,
    tests,
    times,
    within,
)
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.regret_bounds import sub_gaussian_slope
from maillard.reproduction.report_content import DataTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HALF = 10**-0.3  # the checkpoint nearest to half of the rounds
AGGRESSIVE = "ms+:booster=32"
USUAL = "ms+:booster=4,c=0.01,d=0.01"


def matched(results: ExperimentResults, name: str) -> str:
    """The scale with which a policy's regret at a hundredth of the rounds is nearest to that of MS+32."""
    aim = results.regret("width", None, AGGRESSIVE, 0.01).mean()
    scaled = [policy for policy in results.result("width").policies if policy.startswith(f"{name}:")]
    return min(scaled, key=lambda policy: abs(results.regret("width", None, policy, 0.01).mean() - aim))


def _second_half(results: ExperimentResults, policy: str) -> Floats:
    return results.regret("width", None, policy) - results.regret("width", None, policy, HALF)


def _stuck(results: ExperimentResults, policy: str) -> Floats:
    """1 for each trial whose regret per round in the second half exceeds 0.9 of the smallest gap, else 0."""
    result = results.result("width")
    gaps = problem_of(result.provenance["problem"]).gaps
    least = gaps[gaps > 0].min() * result.rounds[-1] * (1 - HALF)
    return np.where(_second_half(results, policy) > 0.9 * least, 1.0, 0.0)


@tests("width")
def width(results: ExperimentResults, _where: str) -> Finding:
    """The number of trials with linear regret, for narrowed policies and for an aggressive booster."""
    narrowed = [matched(results, "ts"), matched(results, "aoucb")]
    found = {policy: _stuck(results, policy) for policy in results.result("width").policies}
    counts = {policy: (int(one.sum()), one.size) for policy, one in found.items()}
    own = counts[AGGRESSIVE]

    def outcome(more: int) -> str:
        times_as_many = {
            policy: (more * events, more * trials) for policy, (events, trials) in counts.items()
        }
        booster = times_as_many[AGGRESSIVE]
        if all(fisher_p_value(*times_as_many[policy], *booster) < 1 - CONFIDENCE for policy in narrowed):
            return "holds"
        contrary = min(fisher_p_value(*booster, *times_as_many[policy]) for policy in narrowed)
        return "fails" if contrary < 1 - stricter(CONFIDENCE, 2) else "open"

    verdict = Verdict(outcome(1), trials_for(outcome, own[1]) if outcome(1) == "open" else None)
    statistic = "; ".join(
        f"{label(policy)} {counts[policy][0]} of {counts[policy][1]}" for policy in (*narrowed, AGGRESSIVE)
    )
    rows: list[tuple[str | int | float, ...]] = []
    for policy in found:
        early, late = (float(results.regret("width", None, policy, part).mean()) for part in (0.01, 1.0))
        half = float(_second_half(results, policy).mean())
        p = fisher_p_value(*counts[policy], *own)
        rows.append((label(policy), early, late, half, *counts[policy], *binomial_bounds(*counts[policy]), p))
    columns = (
        "policy",
        "mean regret at a hundredth",
        "at the horizon",
        "of the second half",
        "trials that are stuck",
        "of",
        "share, at least (95%)",
        "at most (95%)",
        "p against MS+32",
    )
    return Finding(
        f"trials that are stuck: {statistic}", verdict=verdict, evidence=DataTable(columns, tuple(rows))
    )


@tests("recovers")
def recovers(results: ExperimentResults, _where: str) -> Finding:
    """The regret of an aggressive booster in the second half, compared with the theoretical slope."""
    lost = mean(_second_half(results, AGGRESSIVE))
    problem = problem_of(results.result("width").provenance["problem"])
    allowed = sub_gaussian_slope(problem.gaps, problem.sigma2 or 1.0) * -math.log(HALF)
    check = Check("regret of the second half over the theory's", lost * (1 / allowed), 3.0, below=True)
    statistic = (
        f"MS+32 loses {lost.value:.1f} ± {lost.error:.1f} in the second half; the slope of the theory gives "
        f"{allowed:.1f}"
    )
    return Finding(statistic, (check,))


@tests("c-matters-little", fixed="d=0.01")
@tests("d-matters-little", fixed="c=0.01")
def other_values(results: ExperimentResults, _where: str, *, fixed: str) -> Finding:
    """Mean regret of MS+4 for other values of C or D, relative to that for the paper's values."""
    checks = [
        check
        for problem in results.problems("c-and-d")
        for policy in results.result("c-and-d", problem).policies
        if policy != USUAL and fixed in policy
        for check in within(
            f"{problem}: {label(policy)}", ratio(results, ("c-and-d", problem), MEAN, policy, USUAL), 1.25
        )
    ]
    return Finding(nearest_text(checks), tuple(checks))


@tests("milder-than-b")
def milder_than_b(results: ExperimentResults, _where: str) -> Finding:
    """The change of mean regret from B = 16 to 128 over the changes by C and D, on one problem."""
    (problem,) = results.problems("booster")
    ends = (results.regret("booster", problem, f"ms+:booster={b}") for b in (128, 16))
    high, low = (log_mean(values) for values in ends)
    checks = []
    for policy in results.result("c-and-d", problem).policies:
        if policy != USUAL:
            change = ratio(results, ("c-and-d", problem), MEAN, policy, USUAL)
            size = change if change.value > 0 else -change
            checks.append(ratio_check(f"B's change over that of {label(policy)}", high - low - size))
    return Finding(nearest_text(checks), tuple(checks))


@tests("delay-static", experiment="delay-static", randomised=("ms",))
@tests("delay-dynamic", experiment="delay-dynamic", randomised=("ms", "ts-bernoulli"))
def delay(results: ExperimentResults, _where: str, *, experiment: str, randomised: Sequence[str]) -> Finding:
    """The regret of two UCB policies over that of randomised policies, for every delay."""
    checks = [
        ratio_check(
            f"{problem.split('delay=')[-1]}: {label(ucb)} over {label(policy)}",
            ratio(results, (experiment, problem), MEAN, ucb, policy),
        )
        for policy in randomised
        for ucb in ("aoucb", "ucb1")
        for problem in results.problems(experiment)[1:]  # the first has no delay
    ]
    return Finding(nearest_text(checks), tuple(checks))


@tests("delay-widens")
def delay_widens(results: ExperimentResults, _where: str) -> Finding:
    """The ratio of the regrets of AOUCB and MS at the longest delay over that without delay."""
    checks, texts = [], []
    for experiment in ("delay-static", "delay-dynamic"):
        none, *_, longest = results.problems(experiment)
        before, after = (
            ratio(results, (experiment, problem), MEAN, "aoucb", "ms") for problem in (none, longest)
        )
        checks.append(ratio_check(f"{experiment}: the growth of the ratio", after - before))
        texts.append(f"{experiment}: AOUCB over MS from {times(before.value)} to {times(after.value)}")
    return Finding("; ".join(texts), tuple(checks))


@tests("variance")
def variance(results: ExperimentResults, _where: str) -> Finding:
    """The deviation of the booster with the smallest mean regret over that of B = 1."""
    checks = []
    for problem in results.problems("frontier"):
        means = {
            policy: results.regret("frontier", problem, policy).mean()
            for policy in results.result("frontier", problem).policies[1:]
        }
        best = min(means, key=means.__getitem__)
        quantity = ratio(results, ("frontier", problem), DEVIATION, best, "ms+:booster=1")
        what = f"{problem}: deviation of {label(best)} over that of B = 1"
        checks.append(ratio_check(what, quantity, among=len(means)))
    return Finding(estimates_text(checks), tuple(checks))
