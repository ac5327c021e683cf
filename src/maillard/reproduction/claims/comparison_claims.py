"""The claims of Section 6: the booster study and the comparison on ten problems."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from maillard import policies
from maillard.problems import Problem
from maillard.problems import problem as problem_of
from maillard.reproduction.claim_statistics import Check, TrialEstimate, log_deviation, log_mean, mean, times
from maillard.reproduction.claims.findings import (
    Finding,
    Measure,
    all_pairs,
    estimates_text,
    log_ratio,
    tests,
)
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable

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
_MARKS = {True: "✓", False: "✗", "?": "✗*", None: "N/A"}


@tests("table-1")
def table_1(_results: ExperimentResults, _where: str) -> Finding:
    """Table 1 as printed against the metadata of the policies, and MS+ against all others.

    The comparison with the others leaves out the minimax ratio.
    """
    cells, beaten, wrong = [], [], 0
    for name, printed in TABLE_1.items():
        row = policies.policy_class(name).guarantees
        optimal = "?" if row.optimality_is_open else row.asymptotically_optimal
        here = (row.sub_ucb, optimal, row.minimax_ratio, row.anytime, row.closed_form_probability)
        for column, theirs, ours, own in zip(_COLUMNS, printed, here, TABLE_1["ms+"], strict=True):
            theirs_text, ours_text = (_MARKS.get(value, str(value)) for value in (theirs, ours))
            cells.append({"policy": name, "column": column, "printed": theirs_text, "here": ours_text})
            wrong += theirs != ours
            if column != "minimax ratio" and ours is True and own is not True:
                beaten.append(f"{name} in {column}")
    statistic = (
        f"{len(cells) - wrong} of {len(cells)} cells agree; MS+ is beaten by "
        f"{', '.join(beaten) or 'nobody, but for the minimax ratio'}"
    )
    return Finding.computed(statistic, holds=not wrong and not beaten, evidence=DataTable.of(cells))


def _by_booster(results: ExperimentResults, measure: Measure) -> dict[int, TrialEstimate]:
    """A measure of the regret of MS+ for each booster."""
    boosters = (2, 4, 8, 16, 32, 64, 128)
    return {b: measure(results.regret("booster", None, f"ms+:booster={b}")) for b in boosters}


@tests("booster-falls", boosters=(2, 4, 8, 16), rising=False)
@tests("booster-rises", boosters=(16, 32, 64, 128), rising=True)
def booster_steps(
    results: ExperimentResults, _where: str, *, boosters: tuple[int, ...], rising: bool
) -> Finding:
    """The change of mean regret from each booster to the next."""
    found = _by_booster(results, mean)
    checks = [
        Check(f"mean at B = {right} minus that at {left}", found[right] - found[left], below=not rising)
        for left, right in itertools.pairwise(boosters)
    ]
    shown = ", ".join(f"{b}: {found[b].value:.1f} ± {found[b].error:.1f}" for b in boosters)
    return Finding(f"mean ± standard error at B = {shown}", checks)


def _deviations(results: ExperimentResults) -> tuple[dict[int, TrialEstimate], str]:
    found = _by_booster(results, log_deviation)
    shown = ", ".join(f"{b}: {math.exp(one.value):.0f}" for b, one in found.items())
    return found, f"standard deviation at B = {shown}"


@tests("variance-starts")
def variance_starts(results: ExperimentResults, _where: str) -> Finding:
    """Whether standard deviations are similar up to B = 8, and larger at 16."""
    found, statistic = _deviations(results)
    same = Check.within("deviation at B = 8 over that at 2", found[8] - found[2], 1.25)
    grows = Check.ratio("deviation at B = 16 over that at 8", found[16] - found[8])
    return Finding(statistic, (*same, grows))


@tests("variance-grows")
def variance_grows(results: ExperimentResults, _where: str) -> Finding:
    """Standard deviations from B = 16 to 128."""
    found, statistic = _deviations(results)
    checks = [
        Check.ratio(f"deviation at B = {right} over that at {left}", found[right] - found[left], factor)
        for left, right, factor in ((16, 32, 1), (32, 128, 1), (8, 128, 3))
    ]
    return Finding(statistic, checks)


@tests("booster-not-linear")
def booster_not_linear(results: ExperimentResults, _where: str) -> Finding:
    """Mean regret at B = 128 over that at 16, and over that of choosing at random."""
    found = _by_booster(results, log_mean)
    growth = found[128] - found[16]
    result = results.result("booster")
    random = result.rounds[-1] * problem_of(result.provenance["problem"]).gaps.mean()
    checks = (
        Check.ratio("mean at B = 128 over that at 16", growth, 3, below=True),
        Check.ratio("mean at B = 128 over that of chance", found[128] - math.log(random), 0.2, below=True),
    )
    statistic = (
        f"mean at B = 128: {math.exp(found[128].value):.0f}, {times(growth.value)} that at 16; choosing at "
        f"random would cost {random:,.0f}"
    )
    return Finding(statistic, checks)


@tests("b-matters")
def b_matters(results: ExperimentResults, _where: str) -> Finding:
    """Mean regret at B = 128 over that at 16."""
    found = _by_booster(results, log_mean)
    return Finding.estimates([Check.ratio("mean at B = 128 over that at 16", found[128] - found[16], 1.25)])


@tests("ocucb-wins", over=[policy for policy in PAPER if policy != "ocucb"], under=["ocucb"])
@tests("much-worse", over=[TSSG, AOUCB], under=[p for p in PAPER if p not in (TSSG, AOUCB)], factor=1.5)
def larger_means(
    results: ExperimentResults, where: str, *, over: list[str], under: list[str], factor: float = 1.0
) -> Finding:
    """The regret of some methods over that of others."""
    return Finding.nearest(all_pairs(results, where, over, under, factor=factor))


@tests("comparable")
def comparable(results: ExperimentResults, where: str) -> Finding:
    """Ratios of mean regret among MS+8, MS+16 and TS."""
    checks: list[Check] = []
    for over, under in ((MS8, TS), (MS16, TS), (MS8, MS16)):
        quantity = log_ratio(results, where, over, under)
        checks += Check.within(f"{label(over)} over {label(under)}", quantity, 1.25)
    return Finding.estimates(checks)


@tests("vary-more")
def vary_more(results: ExperimentResults, where: str) -> Finding:
    """Standard deviations of MS+8 and MS+16 over that of TS."""
    checks = all_pairs(results, where, [MS8, MS16], [TS], measure=log_deviation)
    return Finding.estimates(checks, "deviations: ")


@tests("ms4-steadier")
def ms4_steadier(results: ExperimentResults, where: str) -> Finding:
    """Deviations of MS+8 and MS+16 over that of MS+4, and means of MS+4 over theirs."""
    deviations = all_pairs(results, where, [MS8, MS16], [MS4], measure=log_deviation)
    means = all_pairs(results, where, [MS4], [MS8, MS16])
    statistic = f"deviations: {estimates_text(deviations)}; means: {estimates_text(means)}"
    return Finding(statistic, deviations + means)


@tests("enough-trials")
def enough_trials(results: ExperimentResults, where: str) -> Finding:
    """The number of means with a large standard error."""
    rows = []
    for part in results.parts_of(where, "bernoulli"):
        for policy in PAPER:
            found = mean(results.regret(part.experiment, part.problem, policy))
            rows.append((part.problem, label(policy), found.value, found.error / found.value))
    noisy = [row for row in rows if row[3] > 0.05]
    statistic = f"{len(noisy)} of {len(rows)} means have a standard error above 5%"
    worst = tuple(sorted(rows, key=lambda row: -row[3])[:10])
    table = DataTable(("problem", "policy", "mean regret", "standard error over mean"), worst)
    return Finding.computed(statistic, holds=len(noisy) <= len(rows) / 10, evidence=table)


@tests("ms16-least")
def ms16_least(results: ExperimentResults, _where: str) -> Finding:
    """The regret of every other anytime method over that of MS+16, on every Bernoulli problem."""
    checks: list[Check] = []
    for problem in results.problems("bernoulli"):
        checks += all_pairs(results, "bernoulli", ANYTIME, [MS16], problem=problem, where=f"{problem}: ")
    return Finding.nearest(checks)


@tests("ts-on-bernoulli")
def ts_on_bernoulli(results: ExperimentResults, where: str) -> Finding:
    """The ratio of the regrets of TS and MS+16 on Bernoulli problems over that on Gaussian problems."""
    here, there = (log_ratio(results, experiment, TS, MS16) for experiment in ("bernoulli", where))
    statistic = f"TS over MS+16: {times(here.value)} on Bernoulli, {times(there.value)} on Gaussian"
    return Finding(statistic, [Check.ratio("Bernoulli's ratio over Gaussian's", here - there)])


@tests("best-or-on-par")
def best_or_on_par(results: ExperimentResults, where: str) -> Finding:
    """The regret of the best MS+ over that of the other anytime methods, on every problem."""
    checks = []
    for part in results.parts_of(where, "bernoulli"):
        for other in (TS, TSSG, AOUCB):
            boosted = all_pairs(
                results, part.experiment, (MS4, MS8, MS16), [other],
                problem=part.problem, where=f"{part.problem}: ", factor=1.1, below=True, among=3,
            )  # fmt: skip
            best, *rest = sorted(boosted, key=lambda check: check.quantity.value)
            checks.append(replace(best, others=tuple(rest)))
    return Finding.nearest(checks)


@tests("tightest")
def tightest(results: ExperimentResults, _where: str) -> Finding:
    """The smallest sigma2 that is valid for all arms of each Bernoulli problem."""
    problems = {name: problem_of(name) for name in results.problems("bernoulli")}
    least = {name: _min_sigma2(problem) for name, problem in problems.items()}
    rows = [
        {"problem": name, "least sigma2 that is valid": least[name], "used": problem.sigma2}
        for name, problem in problems.items()
    ]
    values = "; ".join(f"{name}: {value:.3f}" for name, value in least.items())
    holds = all(value > 0.249 for value in least.values())
    return Finding.computed(f"least sigma2, {values}", holds=holds, evidence=DataTable.of(rows))


def _min_sigma2(problem: Problem) -> float:
    """The largest sub-Gaussian constant of the arms.

    For a mean of p, the constant is (1 - 2p) / (2 ln((1 - p)/p)) (Kearns and Saul).
    """
    found: list[float] = []
    for p in problem.true_means.tolist():
        inside = 0 < p < 1 and p != 0.5
        found.append((1 - 2 * p) / (2 * math.log((1 - p) / p)) if inside else 0.25 * (p == 0.5))
    return max(found)
