"""The sections that show what the paper shows: Table 1, its three figures, and what lies behind them."""

from __future__ import annotations

import numpy as np

from maillard import figures, policies
from maillard.policies.table import COLUMNS, table_row
from maillard.problems import problem as problem_of
from maillard.reproduction.claims.comparison_claims import PAPER, TABLE_1
from maillard.reproduction.claims.maximum_claims import QUOTED, readings
from maillard.reproduction.claims.theory_claims import bound_of
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.regret_bounds import lai_robbins
from maillard.reproduction.report_content import DataTable, Panel, ReportSection
from maillard.reproduction.sections.panels import bars, curves, distributions, lines, option, title_of

__all__ = ["booster", "comparison", "guarantees", "maximum", "over_time", "spread"]

COMPARED = {
    "gaussian-1": ("Gaussian problems, noise of variance 1", "The paper does not state the variance of its Gaussian noise. Here it is 1, and so is sigma2: the variance that the paper names for its booster study."),
    "gaussian-quarter": ("Gaussian problems, noise of variance 1/4", "The other reading of the unstated noise: variance 1/4 and sigma2 = 1/4, the sigma2 that the paper names for all algorithms."),
    "bernoulli": ("Bernoulli problems", "Rewards of 0 and 1; sigma2 = 1/4, the least that holds for every mean. KL-MS, which knows that they are Bernoulli, stands beside."),
}  # fmt: skip
_LANGUAGE = (
    "As in the paper, bars are mean regret and lines its standard deviation; bars are grey where no regret bound is reported for "
    "sub-Gaussian rewards, and hatched where the horizon has to be known. What stands below MOSS is not in the paper's figures."
)


def guarantees(_results: ExperimentResults) -> ReportSection:
    """Table 1, generated from the policies; the paper's rows first."""
    own = [policies.policy_class(name) for name in TABLE_1]
    others = [policies.policy_class(name) for name in policies.names() if name not in TABLE_1]
    named = {"The policies of the paper's Table 1": own, "All others": others}
    tables = [
        DataTable(COLUMNS, tuple(tuple(table_row(cls)) for cls in chosen), title)
        for title, chosen in named.items()
    ]
    text = (
        "What is proved of each policy, as the policies state it of themselves: the paper's rows, then all others. A tick means proved, a cross that it is not the case, "
        "with a star that no result is reported but it might hold; a blank that nothing is reported; a dagger that there is a condition, which the command maillard policies tells.",
    )
    return ReportSection("guarantees", "Guarantees (Table 1)", text, tables=tuple(tables))


def booster(results: ExperimentResults) -> ReportSection:
    """The booster study."""
    result = results.result("booster")
    values = [option(spec, "booster") for spec in result.policies]
    panel = lines(
        "booster", "Mean regret over the booster", values, {"MS+": (result.mean[:, -1], result.sd[:, -1])}, xlabel="booster B",
        label="regret", error="standard deviation", ticks=values,
    )  # fmt: skip
    fan = distributions("booster-spread", "All trials", result, result.policies)
    text = (
        f"Ten Gaussian arms of variance 1 with means 0.9, 0.8, ..., 0; {result.values.shape[1]:,} trials of {result.rounds[-1]:,} rounds. "
        "The paper states neither the horizon nor sigma2 of this study: 20,000 rounds and sigma2 = 1 are assumed.",
    )
    return ReportSection("booster", "The effect of the booster (Figure 1)", text, (panel, fan))


def comparison(results: ExperimentResults, experiment: str) -> ReportSection:
    """One of the figure grids."""
    title, text = COMPARED[experiment]
    panels = []
    compared = [name for name in (experiment, f"{experiment}-others") if name in results.experiments()]
    for problem in results.problems(compared[0]):
        found = [results.result(name, problem) for name in compared]
        panels.append(bars(f"{experiment}-{_slug(problem)}", *found, emphasised="ms+"))
    figure = "Figure 3" if experiment == "bernoulli" else "Figure 2"
    return ReportSection(experiment, f"{title} ({figure})", (text, _LANGUAGE), tuple(panels))


def over_time(results: ExperimentResults, experiment: str) -> ReportSection:
    """Regret curves against the slope of the lower bound, and the explicit bounds."""
    panels: list[Panel] = []
    shown = ("ms", "ms+:booster=4", "ms+:booster=16", "ts", "aoucb", "ocucb")
    for problem in results.problems(experiment):
        result = results.result(experiment, problem)
        name, title = f"{experiment}-{_slug(problem)}", title_of(problem)
        slope = lai_robbins(problem_of(problem))
        lower = figures.Reference("Lai-Robbins", result.rounds, slope * np.log(result.rounds))
        panels.append(curves(f"curves-{name}", title, result, shown, references=[lower]))
        panels.append(_bounds(f"bounds-{name}", f"{title}: bounds", problem, results, experiment))
    text = (
        "Mean regret over rounds. The Lai-Robbins line is the sum of gap over divergence, times ln t: a lower bound on the slope of regret in ln t, for "
        "large t, and not on regret itself. So compare slopes.",
        "Beside each, the explicit bounds of Theorems 2 and 4 with every constant (docs/paper-notes.md): the proofs' closed form, and the same proofs "
        "stopped one line earlier and summed. A bound is vacuous where it exceeds what pulling the worst arm throughout would cost.",
    )
    return ReportSection(
        f"curves-{experiment}", f"Regret over time: {COMPARED[experiment][0]}", text, tuple(panels)
    )


def _bounds(name: str, title: str, problem: str, results: ExperimentResults, experiment: str) -> Panel:
    result = results.result(experiment, problem)
    references = []
    for spec, called in (("ms", "MS"), ("ms+:booster=4", "MS+4")):
        bound = bound_of(spec, problem, result.rounds)
        for form, values in (("summed", bound.summed), ("closed", bound.capped)):
            vacuous = " (vacuous)" if values[-1] >= bound.most[-1] else ""
            dash = "--" if form == "summed" else ":"
            references.append(figures.Reference(f"{called} {form}{vacuous}", result.rounds, values, dash))
    references.append(figures.Reference("worst arm", result.rounds, bound.most, "-."))
    return curves(name, title, result, ("ms", "ms+:booster=4"), references=references, yscale="log")


def spread(results: ExperimentResults) -> ReportSection:
    """The distribution of final regret on every problem."""
    panels = [
        distributions(
            f"spread-{experiment}-{_slug(problem)}",
            title_of(problem),
            results.result(experiment, problem),
            ("ms", *PAPER),
        )
        for experiment in COMPARED
        if experiment in results.experiments()
        for problem in results.problems(experiment)
    ]
    text = (
        "The paper closes by asking what expected regret and its variance have to do with each other. Means hide it: a policy that is best on average "
        "may be so by being very bad now and then.",
    )
    return ReportSection("spread", "How regret is spread over trials", text, tuple(panels))


def maximum(results: ExperimentResults) -> ReportSection:
    """The tail of regret against the quoted maximum."""
    found = readings(results)
    figure = figures.tails(
        list(found),
        list(found.values()),
        label="final regret",
        title="MS+16, Equal, K = 2: the tail of regret",
        mark=(QUOTED, f"{QUOTED}, quoted"),
    )
    rows = tuple((name, values.size, float(values.mean()), float(values.std(ddof=1)), float(values.max()), float((values >= QUOTED).mean())) for name, values in found.items())  # fmt: skip
    table = DataTable(
        ("noise and sigma2", "trials", "mean", "deviation", "largest", f"share ≥ {QUOTED}"), rows
    )
    alt = "The share of trials with at least so much regret, for three readings of the noise: " + ", ".join(
        f"{row[0]} {row[5]:.4f} at {QUOTED}" for row in rows
    )
    text = (
        f"The paper quotes a largest regret of {QUOTED} for MS+16 on two Gaussian arms over 200 trials. The noise being unstated, this number helps to tell its "
        "readings apart: how far out is it among the maxima of 200 trials, under each?",
    )
    panel = Panel("maximum", "MS+16, Equal, K = 2: the tail of regret", alt, figure, table)
    return ReportSection("maximum", "The quoted maximum, and the noise that is not stated", text, (panel,))


def _slug(problem: str) -> str:
    arms = problem_of(problem).arms
    return f"{problem.partition(':')[0].partition('-')[2]}-{arms}"
