"""The claims of Section 6: the booster study and the comparison on ten problems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from maillard import policies
from maillard.policies import Guarantees
from maillard.problems import problem as problem_of
from maillard.reproduction.claims.findings import (
    DEVIATION,
    MEAN,
    Finding,
    all_pairs,
    nearest,
    ratio,
    relative,
    tests,
    times,
    within,
)
from maillard.reproduction.experiments import label
from maillard.reproduction.report import Table
from maillard.reproduction.results import Results
from maillard.reproduction.statistics import (
    Check,
    Verdict,
    log_deviation,
    log_mean,
    mean,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MS4, MS8, MS16, TS, TSSG, AOUCB = (
    "ms+:booster=4",
    "ms+:booster=8",
    "ms+:booster=16",
    "ts",
    "ts-sg",
    "aoucb",
)
ANYTIME = (MS4, MS8, TS, TSSG, AOUCB)
PAPER = (MS4, MS8, MS16, TS, TSSG, AOUCB, "ucb+", "ocucb", "moss")

# Table 1 as printed: sub-UCB, asymptotically optimal ("?" for a cross with a star), minimax ratio, anytime, closed form.
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


@tests("table-1")
def table_1(_results: Results, _reading: str) -> Finding:
    """Each cell of Table 1 against what the policies state."""
    rows = []
    for name, printed in TABLE_1.items():
        row: Guarantees = policies.named(name).guarantees
        optimal = "?" if row.optimality_is_open else row.asymptotically_optimal
        here = (row.sub_ucb, optimal, row.minimax_ratio, row.anytime, row.closed_form_probability)
        rows += [(name, *pair) for pair in zip(_COLUMNS, printed, here, strict=True)]
    wrong = [f"{name}: {column}" for name, column, printed, here in rows if printed != here]
    said = f"{len(rows) - len(wrong)} of {len(rows)} cells agree" + (
        ": not " + ", ".join(wrong) if wrong else ""
    )
    cells = tuple((name, column, _cell(printed), _cell(here)) for name, column, printed, here in rows)
    table = Table(("policy", "column", "printed", "here"), cells)
    return Finding(said, verdict=Verdict("fails" if wrong else "holds"), evidence=table)


_COLUMNS = ("sub-UCB", "asymptotically optimal", "minimax ratio", "anytime", "closed form")


def _cell(value: object) -> str:
    return {True: "✓", False: "✗", "?": "✗*", None: "N/A"}.get(value, str(value))


def _booster(results: Results, b: int) -> Floats:
    return results.regret("booster", None, f"ms+:booster={b}")


@tests("booster-falls")
def booster_falls(results: Results, _reading: str) -> Finding:
    """Mean regret from B = 2 to 16."""
    steps = [(2, 4), (4, 8), (8, 16)]
    return _steps(results, steps, sign=1)


@tests("booster-rises")
def booster_rises(results: Results, _reading: str) -> Finding:
    """Mean regret from B = 16 to 128."""
    return _steps(results, [(16, 64), (64, 128)], sign=-1)


def _steps(results: Results, steps: list[tuple[int, int]], sign: int) -> Finding:
    word = "below" if sign > 0 else "above"
    checks = tuple(
        Check(
            f"mean at B = {right} {word} that at {left}, by",
            (mean(_booster(results, left)) - mean(_booster(results, right))) * sign,
        )
        for left, right in steps
    )
    means = [mean(_booster(results, b)) for b in sorted({b for step in steps for b in step})]
    shown = ", ".join(f"{each.value:.1f} ± {each.error:.1f}" for each in means)
    places = ", ".join(str(b) for b in sorted({b for step in steps for b in step}))
    return Finding(f"mean ± standard error at B = {places}: {shown}", checks)


@tests("booster-variance")
def booster_variance(results: Results, _reading: str) -> Finding:
    """Standard deviations at B = 8, 32, 128."""
    at = {b: log_deviation(_booster(results, b)) for b in (8, 32, 128)}
    checks = (
        Check("deviation at B = 32 over that at 8 is above ×1", at[32] - at[8], times),
        Check("deviation at B = 128 over that at 32 is above ×1", at[128] - at[32], times),
        Check(
            "deviation at B = 128 over that at 8 is above ×3",
            at[128] - at[8] - math.log(3),
            lambda left: times(left + math.log(3)),
        ),
    )
    shown = ", ".join(f"{b}: {_booster(results, b).std(ddof=1):.0f}" for b in at)
    return Finding(f"standard deviation at B = {shown}", checks)


@tests("booster-not-linear")
def booster_not_linear(results: Results, _reading: str) -> Finding:
    """Mean regret at B = 128 against that at 16 and that of choosing at random."""
    high, best = log_mean(_booster(results, 128)), log_mean(_booster(results, 16))
    result = results.result("booster")
    random = result.rounds[-1] * problem_of(result.provenance["problem"]).gaps.mean()
    share_of_random = high - math.log(random)
    checks = (
        Check("mean at B = 128 over that at 16 is below ×3", math.log(3) - (high - best), lambda x: times(math.log(3) - x)),
        Check("mean at B = 128 over chance's is below ×0.2", math.log(0.2) - share_of_random, lambda x: times(math.log(0.2) - x)),
    )  # fmt: skip
    said = f"mean at B = 128: {math.exp(high.value):.0f}, {times((high - best).value)} that at 16; choosing at random would cost {random:,.0f}"
    return Finding(said, checks)


@tests("b-matters")
def b_matters(results: Results, _reading: str) -> Finding:
    """Mean regret at B = 128 over that at 16."""
    quantity = log_mean(_booster(results, 128)) - log_mean(_booster(results, 16))
    check = Check(
        "mean at B = 128 over that at 16 is above ×1.25",
        quantity - math.log(1.25),
        lambda x: times(x + math.log(1.25)),
    )
    return Finding(f"{times(quantity.value)} from B = 16 to 128", (check,))


@tests("ocucb-wins")
def ocucb_wins(results: Results, reading: str) -> Finding:
    """Every other method's regret over OCUCB's."""
    others = [policy for policy in PAPER if policy != "ocucb"]
    checks = all_pairs(results, reading, MEAN, others, ["ocucb"])
    return Finding(nearest(checks), checks)


@tests("comparable")
def comparable(results: Results, reading: str) -> Finding:
    """Ratios of mean regret among MS+8, MS+16 and TS."""
    pairs = [(MS8, TS), (MS16, TS), (MS8, MS16)]
    found = [(pair, relative(results, reading, MEAN, *pair)) for pair in pairs]
    checks = [
        check for (over, under), quantity in found for check in within(f"{label(over)} over {label(under)}", quantity, 1.25)
    ]  # fmt: skip
    said = "; ".join(
        f"{label(over)} over {label(under)} {times(quantity.value)}" for (over, under), quantity in found
    )
    return Finding(said, tuple(checks))


@tests("vary-more")
def vary_more(results: Results, reading: str) -> Finding:
    """Standard deviations of MS+8 and MS+16 over that of TS."""
    checks = all_pairs(results, reading, DEVIATION, [MS8, MS16], [TS])
    return Finding("deviations: " + _each(checks), checks)


@tests("ms4-steadier")
def ms4_steadier(results: Results, reading: str) -> Finding:
    """MS+4 against MS+8 and MS+16, in deviation and in mean."""
    deviations = all_pairs(results, reading, DEVIATION, [MS8, MS16], [MS4])
    means = all_pairs(results, reading, MEAN, [MS4], [MS8, MS16])
    return Finding(f"deviations: {_each(deviations)}; means: {_each(means)}", deviations + means)


@tests("much-worse")
def much_worse(results: Results, reading: str) -> Finding:
    """TS-SG and AOUCB over each of the rest."""
    rest = [policy for policy in PAPER if policy not in (TSSG, AOUCB)]
    checks = all_pairs(results, reading, MEAN, [TSSG, AOUCB], rest, factor=1.5)
    return Finding(nearest(checks), checks)


@tests("enough-trials")
def enough_trials(results: Results, reading: str) -> Finding:
    """How many means have a large standard error."""
    rows = []
    for experiment in (reading, "bernoulli"):
        for problem in results.problems(experiment):
            for policy in PAPER:
                estimate = mean(results.regret(experiment, problem, policy))
                rows.append((problem, label(policy), estimate.value, estimate.error / estimate.value))
    noisy = [row for row in rows if row[3] > 0.05]
    said = f"{len(noisy)} of {len(rows)} means have a standard error above 5%"
    verdict = Verdict("holds" if len(noisy) <= len(rows) / 10 else "fails")
    columns = ("problem", "policy", "mean regret", "standard error over mean")
    worst = sorted(rows, key=lambda row: -row[3])[:10]
    return Finding(said, verdict=verdict, evidence=Table(columns, tuple(worst)))


@tests("ms16-least")
def ms16_least(results: Results, _reading: str) -> Finding:
    """MS+16 against every other anytime method on every Bernoulli problem."""
    checks = tuple(
        Check(
            f"{problem}: {label(other)} over MS+16 is above ×1",
            ratio(results, ("bernoulli", problem), MEAN, other, MS16),
            times,
        )
        for problem in results.problems("bernoulli")
        for other in ANYTIME
    )
    return Finding(nearest(checks), checks)


@tests("ts-on-bernoulli")
def ts_on_bernoulli(results: Results, reading: str) -> Finding:
    """TS over MS+16, on Bernoulli against on Gaussian problems."""
    here, there = (relative(results, where, MEAN, TS, MS16) for where in ("bernoulli", reading))
    check = Check("Bernoulli's ratio over Gaussian's is above ×1", here - there, times)
    return Finding(
        f"TS over MS+16: {times(here.value)} on Bernoulli, {times(there.value)} on Gaussian", (check,)
    )


@tests("best-or-on-par")
def best_or_on_par(results: Results, reading: str) -> Finding:
    """The best MS+ against the other anytime methods, on every problem."""
    room = math.log(1.1)
    checks = []
    for experiment in (reading, "bernoulli"):
        for problem in results.problems(experiment):
            best = min(
                (MS4, MS8, MS16), key=lambda policy: results.regret(experiment, problem, policy).mean()
            )  # used at once
            for other in (TS, TSSG, AOUCB):
                quantity = ratio(results, (experiment, problem), MEAN, best, other)
                what = f"{problem}: {label(best)} over {label(other)} is below ×1.1"
                checks.append(Check(what, room - quantity, lambda left: times(room - left)))
    return Finding(nearest(tuple(checks)), tuple(checks))


def _each(checks: tuple[Check, ...]) -> str:
    return "; ".join(f"{check.says.split(' is ')[0]} {check.shown(check.quantity.value)}" for check in checks)
