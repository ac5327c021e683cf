"""Claims on slopes, worst cases, bounds, the closing equation, and the probabilities of Thompson sampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maillard import policies
from maillard.problems import problem as problem_of
from maillard.reproduction import thompson_probabilities
from maillard.reproduction.claim_statistics import Check, TrialEstimate, log_growth, log_mean, mean, times
from maillard.reproduction.claims.findings import Finding, all_pairs, tests
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.regret_bounds import (
    RegretBound,
    maillard_sampling,
    maillard_sampling_plus,
    sub_gaussian_slope,
)
from maillard.reproduction.report_content import DataTable

BOUNDED = ("ms", "ms+:booster=4", "ms+:booster=8", "ms+:booster=16")


def bound_of(policy: str, problem: str, horizons: ArrayLike) -> RegretBound:
    """The explicit bound of MS or MS+ on a problem, at each horizon."""
    bandit = problem_of(problem)
    sigma2 = bandit.sigma2 or 1.0
    if policy == "ms":
        return maillard_sampling(bandit.gaps, sigma2, horizons)
    made: Any = policies.policy(policy, sigma2=sigma2)
    return maillard_sampling_plus(bandit.gaps, sigma2, horizons, booster=made.booster, c=made.c, d=made.d)


def theoretical_slope(results: ExperimentResults, experiment: str) -> float:
    """The slope of regret in ln t by the theorems, on the only problem of an experiment."""
    (part,) = results.parts_of(experiment)
    problem = problem_of(part.problem)
    return sub_gaussian_slope(problem.gaps, problem.sigma2 or 1.0)


@tests("closing-printed", policy="ms-printed", most=9.0)
@tests("closing-meant", policy="ms-practical", most=3.0)
def closing(results: ExperimentResults, _where: str, *, policy: str, most: float) -> Finding:
    """The growth of regret over the last tenfold of rounds, for Eq. (4) as printed and with N."""
    early, late = (results.regret("closing", None, policy, share) for share in (0.1, 1.0))
    grown = log_growth(early, late)
    check = Check.ratio("growth of regret over the last tenfold of rounds", grown, most, below=True)
    statistic = f"regret grows from {early.mean():,.1f} to {late.mean():,.1f}, {times(grown.value)}"
    return Finding(statistic, [check])


@tests("replacement")
def replacement(results: ExperimentResults, _where: str) -> Finding:
    """Eq. (4) with N against Boltzmann exploration."""
    others = [policy for policy in results.result("closing").policies if policy.startswith("boltzmann")]
    return Finding.estimates(all_pairs(results, "closing", others, ["ms-practical"]))


def slope(results: ExperimentResults, policy: str) -> TrialEstimate:
    """Regret per unit of ln t over the last tenfold of the rounds, over the theory's 2 sigma2 / gap."""
    grown = results.regret("slopes", None, policy) - results.regret("slopes", None, policy, 0.1)
    return mean(grown) * (1 / (math.log(10) * theoretical_slope(results, "slopes")))


def _slopes(results: ExperimentResults, checks: list[Check]) -> Finding:
    found = {label(policy): slope(results, policy) for policy in results.result("slopes").policies}
    shown = ", ".join(f"{name} {one.value:.2f} ± {one.error:.2f}" for name, one in found.items())
    return Finding(f"slope over 2 sigma2 / gap: {shown}", checks)


@tests("slopes", chosen=("ms", "ms+:booster=4"))
@tests("slope-128", chosen=("ms+:booster=128",))
def optimal_slopes(results: ExperimentResults, _where: str, *, chosen: tuple[str, ...]) -> Finding:
    """Regret per unit of ln t of asymptotically optimal policies, compared with 2 sigma2 / gap."""
    checks = []
    for policy in chosen:
        what, found = f"{label(policy)}: slope over the theory's", slope(results, policy)
        checks += [Check(what, found, 1.5, below=True), Check(what, found, 1 / 1.5)]
    return _slopes(results, checks)


@tests("slope-ts-sg")
def slope_ts_sg(results: ExperimentResults, _where: str) -> Finding:
    """The slopes of policies that are not asymptotically optimal, which are larger."""
    checks = [
        Check(f"{label(policy)}: slope over the theory's", slope(results, policy), 1.5)
        for policy in ("ts-sg", "ucb1")
    ]
    return _slopes(results, checks)


def arm_counts(results: ExperimentResults) -> list[int]:
    """The numbers of arms of the worst-case study."""
    return sorted({problem_of(problem).arms for problem in results.problems("worst-case")})


def worst(results: ExperimentResults, policy: str, arms: int, fraction: float) -> tuple[str, TrialEstimate]:
    """The problem with the largest mean regret over sigma, among all gaps, and the log of this ratio."""
    found = []
    for problem in results.problems("worst-case"):
        made = problem_of(problem)
        if made.arms == arms:
            regret = log_mean(results.regret("worst-case", problem, policy, fraction))
            found.append((problem, regret - 0.5 * math.log(made.sigma2 or 1.0)))
    return max(found, key=lambda pair: pair[1].value)


def _growth_of_worst(results: ExperimentResults, policy: str, arms: int) -> TrialEstimate:
    """The log of the growth of the worst mean regret over the last tenfold of rounds."""
    (problem, early), (other, late) = (worst(results, policy, arms, share) for share in (0.1, 1.0))
    if problem != other:
        return late - early
    return log_growth(*(results.regret("worst-case", problem, policy, share) for share in (0.1, 1.0)))


@tests("worst-case-ms+", policy="ms+:booster=4", rate=lambda arms, rounds: arms * rounds * math.log(arms))
@tests("worst-case-ms", policy="ms", rate=lambda arms, rounds: arms * rounds * math.log(rounds))
def worst_case(
    results: ExperimentResults, _where: str, *, policy: str, rate: Callable[[float, float], float]
) -> Finding:
    """The change of the worst regret over sigma sqrt(rate) with T and with K."""
    horizon = float(results.result("worst-case", results.problems("worst-case")[0]).rounds[-1])
    # The growth of the ratio if regret had an additional factor √(ln T).
    allowed = 0.5 * math.log(math.log(horizon) / math.log(horizon / 10))
    counts, checks, last = arm_counts(results), [], {}
    for arms in counts:
        expected = 0.5 * math.log(rate(arms, horizon) / rate(arms, horizon / 10))
        grown = _growth_of_worst(results, policy, arms) - expected
        what = f"K = {arms}: growth over the last tenfold of T"
        checks.append(Check(what, grown, allowed, below=True, form=times))
        last[arms] = worst(results, policy, arms, 1.0)[1] - 0.5 * math.log(rate(arms, horizon))
    for fewer, more in itertools.pairwise(counts[-2:]):
        what = f"growth from K = {fewer} to {more}"
        checks.append(Check.ratio(what, last[more] - last[fewer], 1.25, below=True))
    ratios = ", ".join(f"K = {arms}: {math.exp(found.value):.2f}" for arms, found in last.items())
    return Finding.nearest(checks, f"worst regret over the rate at T: {ratios}; ")


@tests("bounds")
def bounds(results: ExperimentResults, _where: str) -> Finding:
    """The summed bounds that are not vacuous, compared with mean regrets at the horizon."""
    checks, silent = [], 0
    for part in results.parts_of("gaussian-1", "gaussian-quarter", "bernoulli"):
        for policy in BOUNDED:
            bound = bound_of(policy, part.problem, [part.horizon])
            if bound.summed[0] >= bound.most[0]:
                silent += 1
                continue
            regret = log_mean(results.regret(part.experiment, part.problem, policy))
            what = f"{part.problem}: bound over {label(policy)}'s mean"
            checks.append(Check.ratio(what, -(regret - math.log(bound.summed[0]))))
    total = silent + len(checks)
    return Finding.nearest(
        checks, f"{silent} of {total} bounds are vacuous here, more than any policy can lose; of the others, "
    )


@tests("thompson-two-arms")
def two_arms(_results: ExperimentResults, _where: str) -> Finding:
    """The probability of the worse of two arms under Thompson sampling and MS."""
    table = thompson_probabilities.two_arms()
    apart = abs(table.thompson[-1] / table.maillard[-1] - 1)
    below = bool((table.thompson <= table.bound).all())
    closer = bool((np.diff(table.thompson / table.maillard)[table.x[1:] > 1] < 0).all())
    statistic = (
        f"the bound lies above everywhere: {'yes' if below else 'no'}; ln p over ln p is {1 + apart:.3f} at "
        f"x = {table.x[-1]:g}, and falls towards 1: {'yes' if closer else 'no'}"
    )
    return Finding.computed(statistic, holds=below and closer and apart < 0.05, evidence=_two_arms_table())


@tests("thompson-half")
def thompson_half(_results: ExperimentResults, _where: str) -> Finding:
    """Thompson's probability against half of exp(-x)."""
    table = thompson_probabilities.two_arms()
    asked = (table.x >= 1) & (table.x <= 10)
    factor = np.exp(table.thompson - (np.log(0.5) - table.x))[asked]
    statistic = f"for x from 1 to 10 it is between ×{factor.min():.2f} and ×{factor.max():.2f} of ½ exp(-x)"
    holds = bool((factor >= 0.5).all() and (factor <= 2).all())
    return Finding.computed(statistic, holds=holds, evidence=_two_arms_table())


@tests("ms-explores-more")
def ms_explores_more(_results: ExperimentResults, _where: str) -> Finding:
    """MS's probability of the worse arm against Thompson's."""
    table = thompson_probabilities.two_arms()
    more = bool((table.maillard > table.thompson).all())
    factor = np.exp(table.maillard - table.thompson)
    statistic = f"MS's probability of the worse arm is ×{factor.min():.2f} to ×{factor.max():.1f} Thompson's"
    return Finding.computed(statistic, holds=more, evidence=_two_arms_table())


def _two_arms_table() -> DataTable:
    table = thompson_probabilities.two_arms()
    ts, ms = table.thompson, table.maillard
    columns = np.column_stack([table.x, np.exp(ts), np.exp(ms), np.exp(table.bound), ts / ms])
    names = ("x", "Thompson, exact", "MS, exact", "the printed bound", "ln p over ln p")
    return DataTable(names, tuple(tuple(row) for row in columns.tolist()))


@tests("thompson-simulated")
def simulated(results: ExperimentResults, _where: str) -> Finding:
    """Test that Monte Carlo estimates of Thompson sampling's probabilities have a large relative error."""
    rows = thompson_probabilities.by_simulation(results.settings.seed)
    most = [row for row in rows if row[1] == max(thompson_probabilities.DRAWS)]
    statistic = "; ".join(
        f"K = {arms}: {draws:,} draws of every score leave a relative error of {relative:.0%}, and {never} "
        f"arms never drawn"
        for arms, draws, _, relative, never, _ in most
    )
    table = DataTable(thompson_probabilities.COLUMNS, rows)
    return Finding.computed(statistic, holds=all(row[3] > 0.1 for row in most), evidence=table)
