"""The claims on slopes, worst cases, bounds, the closing equation, and Thompson's probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from maillard import policies
from maillard.problems import problem as problem_of
from maillard.reproduction import thompson
from maillard.reproduction.bounds import Bound, maillard_sampling, maillard_sampling_plus, sub_gaussian_slope
from maillard.reproduction.claims.findings import Finding, nearest, tests, times
from maillard.reproduction.experiments import label
from maillard.reproduction.report import Table
from maillard.reproduction.results import Results
from maillard.reproduction.statistics import Check, Estimate, Verdict, log_mean, mean

BOUNDED = ("ms", "ms+:booster=4", "ms+:booster=8", "ms+:booster=16")


def bound_of(policy: str, problem: str, horizons: object) -> Bound:
    """The explicit bound of MS or MS+ on a problem, at each horizon."""
    world = problem_of(problem)
    sigma2 = world.sigma2 or 1.0
    if policy == "ms":
        return maillard_sampling(world.gaps, sigma2, horizons)  # type: ignore[arg-type]
    made = policies.policy(policy, sigma2=sigma2)
    return maillard_sampling_plus(world.gaps, sigma2, horizons, booster=made.booster, c=made.c, d=made.d)  # type: ignore[arg-type,attr-defined]


@tests("closing-printed")
def closing_printed(results: Results, _reading: str) -> Finding:
    """By how much the printed equation's regret grows over the last tenfold of rounds."""
    return _growth(results, "ms-printed", 9.0)


@tests("closing-meant")
def closing_meant(results: Results, _reading: str) -> Finding:
    """The same with N in the equation."""
    return _growth(results, "ms-practical", 3.0)


def _growth(results: Results, policy: str, most: float) -> Finding:
    early, late = (results.regret("closing", None, policy, share) for share in (0.1, 1.0))
    # E[late] < most E[early] is tested on each trial's own difference: the two are dependent.
    check = Check(
        f"{most:g} times the regret of a tenth of the rounds exceeds that of all, by",
        mean(most * early - late),
    )
    return Finding(
        f"regret grows from {early.mean():,.1f} to {late.mean():,.1f}, ×{late.mean() / early.mean():.2f}, over a tenfold of rounds",
        (check,),
    )


def slope(results: Results, policy: str) -> Estimate:
    """Regret per unit of ln t over the last tenfold of the rounds."""
    grown = results.regret("slopes", None, policy) - results.regret("slopes", None, policy, 0.1)
    return mean(grown) * (1 / math.log(10))


@tests("slopes")
def slopes(results: Results, _reading: str) -> Finding:
    """Regret per unit of ln t of MS and MS+4 against 2 sigma2 / gap."""
    problem = problem_of(results.result("slopes").provenance["problem"])
    theory = sub_gaussian_slope(problem.gaps, problem.sigma2 or 1.0)
    checks, said = [], []
    for policy in ("ms", "ms+:booster=4"):
        found = slope(results, policy) * (1 / theory)
        checks += [
            Check(
                f"{label(policy)}: slope over the theory's is below 1.5",
                1.5 - found,
                lambda x: f"{1.5 - x:.3g}",
            ),
            Check(
                f"{label(policy)}: slope over the theory's is above 2/3",
                found - 2 / 3,
                lambda x: f"{x + 2 / 3:.3g}",
            ),
        ]
    control = slope(results, "ucb1") * (1 / theory)
    checks.append(
        Check("UCB1: slope over the theory's is above 1.5", control - 1.5, lambda x: f"{x + 1.5:.3g}")
    )
    for policy in results.result("slopes").policies:
        found = slope(results, policy) * (1 / theory)
        said.append(f"{label(policy)} {found.value:.2f} ± {found.error:.2f}")
    return Finding("slope over 2 sigma2 / gap: " + ", ".join(said), tuple(checks))


def worst(results: Results, policy: str, arms: int, share: float) -> tuple[float, Estimate]:
    """Over the gaps: the gap in units of sigma, and the log of mean regret over sigma, where that is largest."""
    found = []
    for problem in results.problems("worst-case"):
        world = problem_of(problem)
        if world.arms == arms:
            sigma = math.sqrt(world.sigma2 or 1.0)
            found.append(
                (
                    0.5 / sigma,
                    log_mean(results.regret("worst-case", problem, policy, share)) - math.log(sigma),
                )
            )
    return max(found, key=lambda pair: pair[1].value)


def arm_counts(results: Results) -> list[int]:
    """The numbers of arms of the worst-case study."""
    return sorted({problem_of(problem).arms for problem in results.problems("worst-case")})


@tests("worst-case-ms+")
def worst_case_plus(results: Results, _reading: str) -> Finding:
    """How the worst regret over sigma sqrt(KT ln K) changes over the last tenfold of rounds."""
    return _worst_case(results, "ms+:booster=4", lambda arms, rounds: arms * rounds * math.log(arms))


@tests("worst-case-ms")
def worst_case(results: Results, _reading: str) -> Finding:
    """The same over sigma sqrt(KT ln T)."""
    return _worst_case(results, "ms", lambda arms, rounds: arms * rounds * math.log(rounds))


def _worst_case(results: Results, policy: str, rate: Callable[[float, float], float]) -> Finding:
    checks, said = [], []
    horizon = results.result("worst-case", results.problems("worst-case")[0]).rounds[-1]
    room = math.log(1.25)
    for arms in arm_counts(results):
        early, late = (
            worst(results, policy, arms, share)[1] - 0.5 * math.log(rate(arms, horizon * share))
            for share in (0.1, 1.0)
        )
        grown = room - (late - early)
        checks.append(
            Check(f"K = {arms}: the ratio grows by less than ×1.25", grown, lambda x: times(room - x))
        )
        said.append(f"K = {arms}: {math.exp(early.value):.2f} to {math.exp(late.value):.2f}")
    return Finding("worst regret over the rate, " + "; ".join(said), tuple(checks))


@tests("bounds")
def bounds(results: Results, _reading: str) -> Finding:
    """The summed bounds against mean regrets at the horizon."""
    checks = []
    for experiment in ("gaussian-1", "gaussian-quarter", "bernoulli"):
        for problem in results.problems(experiment):
            horizon = results.result(experiment, problem).rounds[-1:]
            for policy in BOUNDED:
                bound = float(bound_of(policy, problem, horizon).summed[0])
                quantity = math.log(bound) - log_mean(results.regret(experiment, problem, policy))
                checks.append(
                    Check(f"{problem}: bound over {label(policy)}'s mean is above ×1", quantity, times)
                )
    return Finding(nearest(tuple(checks)), tuple(checks))


@tests("thompson-two-arms")
def two_arms(_results: Results, _reading: str) -> Finding:
    """Thompson's probability of the worse of two arms against MS's."""
    table = thompson.two_arms()
    last = table.x[-1]
    apart = abs(table.thompson[-1] / table.maillard[-1] - 1)
    below = bool((table.thompson <= table.bound).all())
    closer = bool((np.diff(table.thompson / table.maillard)[table.x[1:] > 1] < 0).all())
    rows = tuple(
        (float(x), float(np.exp(ts)), float(np.exp(ms)), float(np.exp(bound)), float(ts / ms))
        for x, ts, ms, bound in zip(table.x, table.thompson, table.maillard, table.bound, strict=True)
    )
    word = "holds" if below and closer and apart < 0.05 else "fails"
    said = f"the bound lies above everywhere: {'yes' if below else 'no'}; ln p over ln p is {1 + apart:.3f} at x = {last:g} and falls towards 1: {'yes' if closer else 'no'}"
    evidence = Table(("x", "Thompson, exact", "MS, exact", "the printed bound", "ln p over ln p"), rows)
    return Finding(said, verdict=Verdict(word), evidence=evidence)


@tests("thompson-simulated")
def simulated(results: Results, _reading: str) -> Finding:
    """How many draws Thompson's probabilities need, and what fewer give."""
    rows = thompson.by_simulation(results.settings.seed)
    table = Table(("arms", "draws of every score", "largest error of a probability", "relative error, median", "arms above 1e-6 never drawn", "draws needed for 10%"), tuple(rows))  # fmt: skip
    needed = min(row[-1] for row in rows)
    said = f"to 10% takes {needed:,.0f} draws of every score or more; MS's formula is evaluated once an arm"
    return Finding(said, verdict=Verdict("holds" if needed > 1000 else "fails"), evidence=table)
