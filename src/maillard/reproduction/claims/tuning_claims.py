"""Claims on tuning, delay and variance: the booster against narrower widths, C and D, delayed rewards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from maillard.array_types import Floats
from maillard.problems import problem as problem_of
from maillard.reproduction import claim_statistics as statistics
from maillard.reproduction.claim_statistics import CONFIDENCE, Check, fisher_p_value, times
from maillard.reproduction.claims.findings import Finding, all_pairs, log_ratio, tests
from maillard.reproduction.claims.theory_claims import theoretical_slope
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable

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


def _stuck(results: ExperimentResults, policy: str) -> tuple[int, int]:
    """The trials that lose over 0.9 of the smallest gap per round in the second half, and all trials."""
    result = results.result("width")
    gaps = problem_of(result.provenance["problem"]).gaps
    least = gaps[gaps > 0].min() * result.rounds[-1] * (1 - HALF)
    lost = _second_half(results, policy)
    return int((lost > 0.9 * least).sum()), lost.size


@tests("width")
def width(results: ExperimentResults, _where: str) -> Finding:
    """The number of trials with linear regret, for narrowed policies and for an aggressive booster."""
    narrowed = [matched(results, "ts"), matched(results, "aoucb")]
    counts = {policy: _stuck(results, policy) for policy in results.result("width").policies}
    own = counts[AGGRESSIVE]

    def outcome(more: int) -> str:
        larger = {policy: (more * events, more * trials) for policy, (events, trials) in counts.items()}
        booster = larger[AGGRESSIVE]
        if all(fisher_p_value(*larger[policy], *booster) < 1 - CONFIDENCE for policy in narrowed):
            return "holds"
        contrary = min(fisher_p_value(*booster, *larger[policy]) for policy in narrowed)
        return "fails" if contrary < 1 - statistics.stricter(CONFIDENCE, 2) else "open"

    rows = []
    for policy, (stuck, trials) in counts.items():
        early, late = (float(results.regret("width", None, policy, part).mean()) for part in (0.01, 1.0))
        least, most = statistics.binomial_bounds(stuck, trials)
        row = {
            "policy": label(policy),
            "mean regret at a hundredth": early,
            "at the horizon": late,
            "of the second half": float(_second_half(results, policy).mean()),
            "trials that are stuck": stuck,
            "of": trials,
            "share, at least (95%)": least,
            "at most (95%)": most,
            "p against MS+32": fisher_p_value(stuck, trials, *own),
        }
        rows.append(row)
    shown = [
        f"{label(policy)} {counts[policy][0]} of {counts[policy][1]}" for policy in (*narrowed, AGGRESSIVE)
    ]
    verdict = statistics.judge_counts(outcome, own[1])
    return Finding("trials that are stuck: " + "; ".join(shown), verdict=verdict, evidence=DataTable.of(rows))


@tests("recovers")
def recovers(results: ExperimentResults, _where: str) -> Finding:
    """The regret of an aggressive booster in the second half of the rounds, over what theory predicts."""
    lost = statistics.mean(_second_half(results, AGGRESSIVE))
    allowed = theoretical_slope(results, "width") * -math.log(HALF)
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
    checks: list[Check] = []
    for problem in results.problems("c-and-d"):
        for policy in results.result("c-and-d", problem).policies:
            if policy != USUAL and fixed in policy:
                quantity = log_ratio(results, "c-and-d", policy, USUAL, problem=problem)
                checks += Check.within(f"{problem}: {label(policy)}", quantity, 1.25)
    return Finding.nearest(checks)


@tests("milder-than-b")
def milder_than_b(results: ExperimentResults, _where: str) -> Finding:
    """The change of mean regret from B = 16 to 128 over the changes by C and D, on one problem."""
    (problem,) = results.problems("booster")
    by_booster = log_ratio(results, "booster", "ms+:booster=128", "ms+:booster=16")
    checks = []
    for policy in results.result("c-and-d", problem).policies:
        if policy != USUAL:
            change = log_ratio(results, "c-and-d", policy, USUAL, problem=problem)
            size = change if change.value > 0 else -change
            checks.append(Check.ratio(f"B's change over that of {label(policy)}", by_booster - size))
    return Finding.nearest(checks)


@tests("delay-static", experiment="delay-static", randomised=("ms",))
@tests("delay-dynamic", experiment="delay-dynamic", randomised=("ms", "ts-bernoulli"))
def delay(results: ExperimentResults, _where: str, *, experiment: str, randomised: Sequence[str]) -> Finding:
    """The regret of two UCB policies over that of randomised policies, for every delay."""
    checks: list[Check] = []
    for policy, ucb in itertools.product(randomised, ("aoucb", "ucb1")):
        for problem in results.problems(experiment)[1:]:  # the first has no delay
            delay = f"{problem.split('delay=')[-1]}: "
            checks += all_pairs(results, experiment, [ucb], [policy], problem=problem, where=delay)
    return Finding.nearest(checks)


@tests("delay-widens")
def delay_widens(results: ExperimentResults, _where: str) -> Finding:
    """The ratio of the regrets of AOUCB and MS at the longest delay over that without delay."""
    checks, texts = [], []
    for experiment in ("delay-static", "delay-dynamic"):
        none, *_, longest = results.problems(experiment)
        before, after = (
            log_ratio(results, experiment, "aoucb", "ms", problem=problem) for problem in (none, longest)
        )
        checks.append(Check.ratio(f"{experiment}: the growth of the ratio", after - before))
        texts.append(f"{experiment}: AOUCB over MS from {times(before.value)} to {times(after.value)}")
    return Finding("; ".join(texts), checks)


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
        deviation = statistics.log_deviation
        quantity = log_ratio(results, "frontier", best, "ms+:booster=1", problem=problem, measure=deviation)
        what = f"{problem}: deviation of {label(best)} over that of B = 1"
        checks.append(Check.ratio(what, quantity, among=len(means)))
    return Finding.estimates(checks)
