"""The claims of Section 6: the booster study and the comparison on ten problems."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from maillard import policies
from maillard.policies import Guarantees
from maillard.problems import Problem
from maillard.problems import problem as problem_of
from maillard.reproduction.claim_statistics import (
    Check,
    TrialEstimate,
    log_deviation,
    log_mean,
    mean,
)
from maillard.reproduction.claims.findings import (
    DEVIATION,
    MEAN,
    Finding,
    all_pairs,
    computed_finding,
    estimates_text,
    nearest_text,
    ratio,
    ratio_check,
    relative,
    tests,
    times,
    within,
)
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MS4, MS8, MS16, TS, TSSG, AOUCB = "ms+:booster=4", "ms+:booster=8", "ms+:booster=16", "ts", "ts-sg", "aoucb"
ANYTIME = (MS4, MS8, TS, TSSG, AOUCB)
PAPER = (MS4, MS8, MS16, TS, TSSG, AOUCB, "ucb+", "ocucb", "moss")

# Table 1 as printed: sub-UCB, asymptotically optimal ("?" for a cross with a star), minimax ratio, anytime,
# closed form.
TABLE_1 = {
    "ucb1": (True, False, "√(log T)", True, None),
    "aoucb": (True, True, "√(log T)", True, None),
    "ts-sg": (True, False, "√(log K)", True, False),
    "moss": (False, False, "1", False, None),
    "ucb+": (True, "?", "√(log K)", False, None),
    "ocucb": (True, "?", "1", False, None),
    "ms": (True, True, "√(log T)", True, True),
    "ms+": (True, True, "√(log K)", True, True),
}
_COLUMNS = ("sub-UCB", "asymptotically optimal", "minimax ratio", "anytime", "closed form")
_MINIMAX = 2


@tests("table-1")
def table_1(_results: ExperimentResults, _where: str) -> Finding:
    """Table 1 as printed against the metadata of the policies, and MS+ against all others.

    The comparison with the others leaves out the minimax ratio.
    """
    rows, beaten = [], []
    for name, printed in TABLE_1.items():
        row: Guarantees = policies.policy_class(name).guarantees
        optimal = "?" if row.optimality_is_open else row.asymptotically_optimal
        here = (row.sub_ucb, optimal, row.minimax_ratio, row.anytime, row.closed_form_probability)
        rows += [(name, *cells) for cells in zip(_COLUMNS, printed, here, strict=True)]
        own = TABLE_1["ms+"]
        beaten += [
            f"{name} in {_COLUMNS[i]}"
            for i in range(len(_COLUMNS))
            if i != _MINIMAX and here[i] is True and own[i] is not True
        ]
    wrong = [f"{name}: {column}" for name, column, printed, here in rows if printed != here]
    statistic = (
        f"{len(rows) - len(wrong)} of {len(rows)} cells agree; MS+ is beaten by "
        f"{', '.join(beaten) or 'nobody, but for the minimax ratio'}"
    )
    cells = tuple((name, column, _cell(printed), _cell(here)) for name, column, printed, here in rows)
    table = DataTable(("policy", "column", "printed", "here"), cells)
    return computed_finding(statistic, holds=not wrong and not beaten, evidence=table)


def _cell(value: object) -> str:
    return {True: "✓", False: "✗", "?": "✗*", None: "N/A"}.get(value, str(value))


def _booster(results: ExperimentResults, b: int) -> Floats:
    return results.regret("booster", None, f"ms+:booster={b}")


@tests("booster-falls", boosters=(2, 4, 8, 16), rising=False)
@tests("booster-rises", boosters=(16, 32, 64, 128), rising=True)
def booster_steps(
    results: ExperimentResults, _where: str, *, boosters: tuple[int, ...], rising: bool
) -> Finding:
    """The change of mean regret from each booster to the next."""
    found = {b: mean(_booster(results, b)) for b in boosters}
    checks = tuple(
        Check(f"mean at B = {right} minus that at {left}", found[right] - found[left], below=not rising)
        for left, right in itertools.pairwise(boosters)
    )
    shown = ", ".join(f"{b}: {one.value:.1f} ± {one.error:.1f}" for b, one in found.items())
    return Finding(f"mean ± standard error at B = {shown}", checks)


def _deviations(results: ExperimentResults) -> tuple[dict[int, TrialEstimate], str]:
    found = {b: log_deviation(_booster(results, b)) for b in (2, 4, 8, 16, 32, 64, 128)}
    return found, "standard deviation at B = " + ", ".join(
        f"{b}: {math.exp(one.value):.0f}" for b, one in found.items()
    )


@tests("variance-starts")
def variance_starts(results: ExperimentResults, _where: str) -> Finding:
    """Whether standard deviations are similar up to B = 8, and larger at 16."""
    found, statistic = _deviations(results)
    same = within("deviation at B = 8 over that at 2", found[8] - found[2], 1.25)
    grows = ratio_check("deviation at B = 16 over that at 8", found[16] - found[8])
    return Finding(statistic, (*same, grows))


@tests("variance-grows")
def variance_grows(results: ExperimentResults, _where: str) -> Finding:
    """Standard deviations from B = 16 to 128."""
    found, statistic = _deviations(results)
    steps = tuple(
        ratio_check(f"deviation at B = {right} over that at {left}", found[right] - found[left])
        for left, right in ((16, 32), (32, 128))
    )
    tripled = ratio_check("deviation at B = 128 over that at 8", found[128] - found[8], 3)
    return Finding(statistic, (*steps, tripled))


@tests("booster-not-linear")
def booster_not_linear(results: ExperimentResults, _where: str) -> Finding:
    """Mean regret at B = 128 over that at 16, and over that of choosing at random."""
    high, best = log_mean(_booster(results, 128)), log_mean(_booster(results, 16))
    result = results.result("booster")
    random = result.rounds[-1] * problem_of(result.provenance["problem"]).gaps.mean()
    checks = (
        ratio_check("mean at B = 128 over that at 16", high - best, 3, below=True),
        ratio_check("mean at B = 128 over that of chance", high - math.log(random), 0.2, below=True),
    )
    statistic = (
        f"mean at B = 128: {math.exp(high.value):.0f}, {times((high - best).value)} that at 16; choosing at "
        f"random would cost {random:,.0f}"
    )
    return Finding(statistic, checks)


@tests("b-matters")
def b_matters(results: ExperimentResults, _where: str) -> Finding:
    """Mean regret at B = 128 over that at 16."""
    quantity = log_mean(_booster(results, 128)) - log_mean(_booster(results, 16))
    check = ratio_check("mean at B = 128 over that at 16", quantity, 1.25)
    return Finding(estimates_text([check]), (check,))


@tests("ocucb-wins")
def ocucb_wins(results: ExperimentResults, where: str) -> Finding:
    """The regret of every other method over that of OCUCB."""
    others = [policy for policy in PAPER if policy != "ocucb"]
    checks = all_pairs(results, where, MEAN, others, ["ocucb"])
    return Finding(nearest_text(checks), checks)


@tests("comparable")
def comparable(results: ExperimentResults, where: str) -> Finding:
    """Ratios of mean regret among MS+8, MS+16 and TS."""
    checks: list[Check] = []
    for over, under in ((MS8, TS), (MS16, TS), (MS8, MS16)):
        quantity = relative(results, where, MEAN, over, under)
        checks += within(f"{label(over)} over {label(under)}", quantity, 1.25)
    return Finding(estimates_text(checks), tuple(checks))


@tests("vary-more")
def vary_more(results: ExperimentResults, where: str) -> Finding:
    """Standard deviations of MS+8 and MS+16 over that of TS."""
    checks = all_pairs(results, where, DEVIATION, [MS8, MS16], [TS])
    return Finding("deviations: " + estimates_text(checks), checks)


@tests("ms4-steadier")
def ms4_steadier(results: ExperimentResults, where: str) -> Finding:
    """Deviations of MS+8 and MS+16 over that of MS+4, and means of MS+4 over theirs."""
    deviations = all_pairs(results, where, DEVIATION, [MS8, MS16], [MS4])
    means = all_pairs(results, where, MEAN, [MS4], [MS8, MS16])
    return Finding(
        f"deviations: {estimates_text(deviations)}; means: {estimates_text(means)}", deviations + means
    )


@tests("much-worse")
def much_worse(results: ExperimentResults, where: str) -> Finding:
    """The regret of TS-SG and AOUCB over that of each other method."""
    rest = [policy for policy in PAPER if policy not in (TSSG, AOUCB)]
    checks = all_pairs(results, where, MEAN, [TSSG, AOUCB], rest, factor=1.5)
    return Finding(nearest_text(checks), checks)


@tests("enough-trials")
def enough_trials(results: ExperimentResults, where: str) -> Finding:
    """The number of means with a large standard error."""
    rows = []
    for experiment in (where, "bernoulli"):
        for problem in results.problems(experiment):
            for policy in PAPER:
                found = mean(results.regret(experiment, problem, policy))
                rows.append((problem, label(policy), found.value, found.error / found.value))
    noisy = [row for row in rows if row[3] > 0.05]
    statistic = f"{len(noisy)} of {len(rows)} means have a standard error above 5%"
    worst = tuple(sorted(rows, key=lambda row: -row[3])[:10])
    table = DataTable(("problem", "policy", "mean regret", "standard error over mean"), worst)
    return computed_finding(statistic, holds=len(noisy) <= len(rows) / 10, evidence=table)


@tests("ms16-least")
def ms16_least(results: ExperimentResults, _where: str) -> Finding:
    """The regret of every other anytime method over that of MS+16, on every Bernoulli problem."""
    checks = tuple(
        ratio_check(
            f"{problem}: {label(other)} over MS+16",
            ratio(results, ("bernoulli", problem), MEAN, other, MS16),
        )
        for problem in results.problems("bernoulli")
        for other in ANYTIME
    )
    return Finding(nearest_text(checks), checks)


@tests("ts-on-bernoulli")
def ts_on_bernoulli(results: ExperimentResults, where: str) -> Finding:
    """The ratio of the regrets of TS and MS+16 on Bernoulli problems over that on Gaussian problems."""
    here, there = (relative(results, experiment, MEAN, TS, MS16) for experiment in ("bernoulli", where))
    check = ratio_check("Bernoulli's ratio over Gaussian's", here - there)
    return Finding(
        f"TS over MS+16: {times(here.value)} on Bernoulli, {times(there.value)} on Gaussian", (check,)
    )


@tests("best-or-on-par")
def best_or_on_par(results: ExperimentResults, where: str) -> Finding:
    """The regret of the best MS+ over that of the other anytime methods, on every problem."""
    checks = []
    for experiment in (where, "bernoulli"):
        for problem in results.problems(experiment):
            for other in (TS, TSSG, AOUCB):
                boosted = [
                    ratio_check(
                        f"{problem}: {label(own)} over {label(other)}",
                        ratio(results, (experiment, problem), MEAN, own, other),
                        1.1,
                        below=True,
                        among=3,
                    )
                    for own in (MS4, MS8, MS16)
                ]
                best, *rest = sorted(boosted, key=lambda check: check.quantity.value)
                checks.append(replace(best, others=tuple(rest)))
    return Finding(nearest_text(checks), tuple(checks))


@tests("tightest")
def tightest(results: ExperimentResults, _where: str) -> Finding:
    """The smallest sigma2 that is valid for all arms of each Bernoulli problem."""
    rows = [
        (problem, least, problem_of(problem).sigma2)
        for problem in results.problems("bernoulli")
        for least in [_min_sigma2(problem_of(problem))]
    ]
    values = "; ".join(f"{problem}: {least:.3f}" for problem, least, _ in rows)
    table = DataTable(("problem", "least sigma2 that is valid", "used"), tuple(rows))
    return computed_finding(
        f"least sigma2, {values}", holds=all(least > 0.249 for _, least, _ in rows), evidence=table
    )


def _min_sigma2(problem: Problem) -> float:
    """The largest sub-Gaussian constant of the arms.

    For a mean of p, the constant is (1 - 2p) / (2 ln((1 - p)/p)) (Kearns and Saul).
    """
    found: list[float] = []
    for p in problem.true_means.tolist():
        inside = 0 < p < 1 and p != 0.5
        found.append((1 - 2 * p) / (2 * math.log((1 - p) / p)) if inside else 0.25 * (p == 0.5))
    return max(found)
