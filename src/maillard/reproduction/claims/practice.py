"""The claims on tuning, delay and variance: the booster against narrower widths, C and D, the conjecture."""

from __future__ import annotations

import math

import numpy as np

from maillard.problems import problem as problem_of
from maillard.reproduction.bounds import sub_gaussian_slope
from maillard.reproduction.claims.findings import (
    DEVIATION,
    MEAN,
    Finding,
    nearest,
    ratio,
    tests,
    times,
    within,
)
from maillard.reproduction.experiments import label
from maillard.reproduction.results import Results
from maillard.reproduction.statistics import Check, mean

HALF = 10**-0.3  # the checkpoint next to a half
AGGRESSIVE = "ms+:booster=32"


def matched(results: Results, name: str) -> str:
    """The widest of a policy's scales that has no more regret than MS+32 after a hundredth of the rounds; else the narrowest."""
    limit = results.regret("width", None, AGGRESSIVE, 0.01).mean()
    scaled = [policy for policy in results.result("width").policies if policy.startswith(f"{name}:")]
    return next(
        (policy for policy in scaled if results.regret("width", None, policy, 0.01).mean() <= limit),
        scaled[-1],
    )


@tests("width")
def width(results: Results, _reading: str) -> Finding:
    """What the second half costs narrowed policies and an aggressive booster."""
    pairs = {
        policy: _second_half(results, policy)
        for policy in (matched(results, "ts"), matched(results, "aoucb"), AGGRESSIVE)
    }
    *narrow, booster = pairs
    checks = tuple(
        Check(
            f"{policy} loses more in the second half than MS+32, by",
            mean(pairs[policy]) - mean(pairs[booster]),
        )
        for policy in narrow
    )
    said = "; ".join(
        f"{policy} {mean(values).value:,.1f} ± {mean(values).error:.1f}" for policy, values in pairs.items()
    )
    return Finding(f"mean regret of the second half: {said}", checks)


@tests("recovers")
def recovers(results: Results, _reading: str) -> Finding:
    """What the second half costs an aggressive booster, against the slope of the theory."""
    lost = mean(_second_half(results, AGGRESSIVE))
    problem = problem_of(results.result("width").provenance["problem"])
    allowed = sub_gaussian_slope(problem.gaps, problem.sigma2 or 1.0) * -math.log(HALF)
    check = Check(
        "regret of the second half over the theory's is below 3",
        3.0 - lost * (1 / allowed),
        lambda x: f"{3 - x:.3g}",
    )
    return Finding(
        f"MS+32 loses {lost.value:.1f} ± {lost.error:.1f} in the second half; the slope of the theory gives {allowed:.1f}",
        (check,),
    )


def _second_half(results: Results, policy: str) -> np.ndarray:
    return results.regret("width", None, policy) - results.regret("width", None, policy, HALF)


@tests("c-and-d")
def c_and_d(results: Results, _reading: str) -> Finding:
    """Mean regret for other C and D against that of the paper's."""
    usual = "ms+:booster=4,c=0.01,d=0.01"
    checks = [
        check
        for problem in results.problems("c-and-d")
        for policy in results.result("c-and-d", problem).policies
        if policy != usual and not policy.endswith("d=1")
        for check in within(
            f"{problem}: {policy}", ratio(results, ("c-and-d", problem), MEAN, policy, usual), 1.25
        )
    ]
    large = [
        ratio(results, ("c-and-d", problem), MEAN, "ms+:booster=4,c=0.01,d=1", usual).value
        for problem in results.problems("c-and-d")
    ]
    said = " and ".join(times(value) for value in large)
    return Finding(f"{nearest(tuple(checks))}; D = 1, which is left out, costs {said}", tuple(checks))


def _slower(results: Results, experiment: str, faster: str, slower: str) -> list[Check]:
    return [
        Check(
            f"{problem.split('delay=')[-1]}: {label(slower)} over {label(faster)} is above ×1",
            ratio(results, (experiment, problem), MEAN, slower, faster),
            times,
        )
        for problem in results.problems(experiment)[1:]  # the first has no delay
    ]


@tests("delay-static")
def delay_static(results: Results, _reading: str) -> Finding:
    """MS against two UCBs under every delay, on static arms."""
    checks = tuple(
        check for slower in ("aoucb", "ucb1") for check in _slower(results, "delay-static", "ms", slower)
    )
    return Finding(nearest(checks), checks)


@tests("delay-dynamic")
def delay_dynamic(results: Results, _reading: str) -> Finding:
    """MS and Thompson sampling against two UCBs under every delay, on arms that come and go."""
    checks = tuple(
        check
        for faster in ("ms", "ts-bernoulli")
        for slower in ("aoucb", "ucb1")
        for check in _slower(results, "delay-dynamic", faster, slower)
    )
    return Finding(nearest(checks), checks)


@tests("delay-widens")
def delay_widens(results: Results, _reading: str) -> Finding:
    """AOUCB over MS at the longest delay against none."""
    checks, said = [], []
    for experiment in ("delay-static", "delay-dynamic"):
        none, *_, longest = results.problems(experiment)
        before, after = (
            ratio(results, (experiment, problem), MEAN, "aoucb", "ms") for problem in (none, longest)
        )
        checks.append(Check(f"{experiment}: the ratio grows by a factor above ×1", after - before, times))
        said.append(f"{experiment}: AOUCB over MS from {times(before.value)} to {times(after.value)}")
    return Finding("; ".join(said), tuple(checks))


@tests("variance")
def variance(results: Results, _reading: str) -> Finding:
    """The deviation of the booster that is best in the mean against that of B = 1."""
    checks = []
    for problem in results.problems("frontier"):
        boosted = results.result("frontier", problem).policies[1:]
        best = min(
            boosted, key=lambda policy: results.regret("frontier", problem, policy).mean()
        )  # used at once
        quantity = ratio(results, ("frontier", problem), DEVIATION, best, "ms+:booster=1")
        checks.append(
            Check(f"{problem}: deviation of {best} over that of B = 1 is above ×1", quantity, times)
        )
    return Finding(
        "; ".join(
            f"{check.says.removesuffix(' is above ×1')} {times(check.quantity.value)}" for check in checks
        ),
        tuple(checks),
    )
