"""The sections on the results of the paper: Table 1, its three figures, and more detail on them."""

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

COMPARED = {
    "gaussian-1": (
        "Gaussian problems, noise of variance 1",
        "The paper does not state the variance of its Gaussian noise. Here both the variance and sigma2 "
        "are 1, the variance that the paper states for its booster study.",
    ),
    "gaussian-quarter": (
        "Gaussian problems, noise of variance 1/4",
        "The other interpretation: variance 1/4 and sigma2 = 1/4, the sigma2 that the paper states for all "
        "algorithms.",
    ),
    "bernoulli": (
        "Bernoulli problems",
        "Rewards of 0 and 1; sigma2 = 1/4, the smallest value that is valid for every mean. KL-MS, which "
        "uses that rewards are Bernoulli, is shown for comparison.",
    ),
}
_LEGEND = (
    "As in the paper, bars show mean regret and lines its standard deviation. Bars are grey if no regret "
    "bound is reported for sub-Gaussian rewards, and hatched if the policy needs the horizon. The policies "
    "below MOSS are not in the paper's figures."
)


def guarantees(_results: ExperimentResults) -> ReportSection:
    """Table 1, generated from the policies, with the rows of the paper first."""
    own = [policies.policy_class(name) for name in TABLE_1]
    known = [policies.policy_class(name) for name in policies.names()]
    others = [cls for cls in known if cls.name not in TABLE_1 and not cls.uses_context]
    tables = tuple(
        DataTable(COLUMNS, tuple(tuple(table_row(cls)) for cls in chosen), title)
        for title, chosen in (("The policies of the paper's Table 1", own), ("All others", others))
    )
    text = (
        "What is proved about each policy, from the metadata of the policies: first the rows of the paper, "
        "then all others. A tick means proved; a cross, not the case; a cross with a star, no result is "
        "reported but it might be true; a blank, nothing is reported; a dagger, there is a condition, "
        "which the command maillard policies shows.",
    )
    return ReportSection("guarantees", "Guarantees (Table 1)", text, tables=tables)


def booster(results: ExperimentResults) -> ReportSection:
    """The booster study: MS+ as in the paper, and KL-MS+ on click rates."""
    panels: list[Panel] = []
    text: list[str] = []
    for name, called, title in (
        ("booster", "MS+", "Mean regret over the booster"),
        ("booster-clicks", "KL-MS+", "KL-MS+ on click rates of 5, 8, 4 and 6%"),
    ):
        if name not in results.experiments():
            continue
        result = results.result(name)
        values = [option(spec, "booster") for spec in result.policies]
        spread = {called: (result.mean[:, -1], result.sd[:, -1])}
        panels += [
            lines(
                name, title, values, spread,
                xlabel="booster B", label="regret", error="standard deviation", ticks=values,
            ),
            distributions(f"{name}-spread", f"All trials of {called}", result, result.policies),
        ]  # fmt: skip
        size = f"{result.values.shape[1]:,} trials of {result.rounds[-1]:,} rounds"
        text.append(_BOOSTER_TEXTS[name].format(size=size))
    return ReportSection("booster", "The effect of the booster (Figure 1)", tuple(text), tuple(panels))


_BOOSTER_TEXTS = {
    "booster": (
        "Ten Gaussian arms of variance 1 with means 0.9, 0.8, ..., 0; {size}. The paper states neither the "
        "horizon nor sigma2 of this study: 20,000 rounds and sigma2 = 1 are assumed."
    ),
    "booster-clicks": (
        "KL-MS+, which is not in the paper, combines the Bernoulli divergence of KL-MS with the booster of "
        "MS+. Four arms have click rates of 5, 8, 4 and 6%; {size}."
    ),
}


def comparison(results: ExperimentResults, experiment: str) -> ReportSection:
    """A grid of bar charts for one group of problems."""
    title, text = COMPARED[experiment]
    panels = []
    compared = [name for name in (experiment, f"{experiment}-others") if name in results.experiments()]
    for problem in results.problems(compared[0]):
        found = [results.result(name, problem) for name in compared]
        panels.append(bars(f"{experiment}-{_slug(problem)}", *found, emphasised="ms+"))
    figure = "Figure 3" if experiment == "bernoulli" else "Figure 2"
    return ReportSection(experiment, f"{title} ({figure})", (text, _LEGEND), tuple(panels))


def over_time(results: ExperimentResults, experiment: str) -> ReportSection:
    """Regret curves with the slope of the lower bound, and the explicit bounds."""
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
        "Mean regret over rounds. The Lai-Robbins line is the sum of gap over divergence, times ln t. It "
        "is a lower bound on the slope of regret in ln t for large t, not on regret itself, so compare "
        "slopes.",
        "Next to each figure, the explicit bounds of Theorems 2 and 4 with all constants "
        "(docs/explanation/paper-notes.md): in the closed form of the proofs, and with the sum that the "
        "proofs estimate computed numerically. A bound is vacuous if it exceeds the regret of choosing the "
        "worst arm in every round.",
    )
    return ReportSection(
        f"curves-{experiment}", f"Regret over time: {COMPARED[experiment][0]}", text, tuple(panels)
    )


def _bounds(name: str, title: str, problem: str, results: ExperimentResults, experiment: str) -> Panel:
    result = results.result(experiment, problem)
    references = []
    for spec, called in (("ms", "MS"), ("ms+:booster=4", "MS+4")):
        bound = bound_of(spec, problem, result.rounds)
        for form, values, dash in (("summed", bound.summed, "--"), ("closed", bound.capped, ":")):
            vacuous = " (vacuous)" if values[-1] >= bound.most[-1] else ""
            references.append(figures.Reference(f"{called} {form}{vacuous}", result.rounds, values, dash))
    references.append(figures.Reference("worst arm", result.rounds, bound.most, "-."))
    return curves(name, title, result, ("ms", "ms+:booster=4"), references=references, yscale="log")


def spread(results: ExperimentResults) -> ReportSection:
    """The distribution of final regret on every problem."""
    panels = []
    for part in results.parts_of(*COMPARED):
        name = f"spread-{part.experiment}-{_slug(part.problem)}"
        panels.append(distributions(name, title_of(part.problem), results.parts[part], ("ms", *PAPER)))
    text = (
        "The paper closes with a question about the relation between expected regret and its variance. "
        "Means do not show it: a policy with the best mean may have very large regret in a few trials.",
    )
    return ReportSection("spread", "Distribution of regret over trials", text, tuple(panels))


def maximum(results: ExperimentResults) -> ReportSection:
    """The tail of the regret distribution, with the maximum that the paper quotes."""
    found, title = readings(results), "MS+16, Equal, K = 2: the tail of regret"
    mark = (QUOTED, f"{QUOTED}, quoted")
    figure = figures.tails(list(found), list(found.values()), label="final regret", title=title, mark=mark)
    rows = [
        {
            "noise and sigma2": name,
            "trials": values.size,
            "mean": float(values.mean()),
            "deviation": float(values.std(ddof=1)),
            "largest": float(values.max()),
            f"share ≥ {QUOTED}": float((values >= QUOTED).mean()),
        }
        for name, values in found.items()
    ]
    alt = (
        "The fraction of trials with at least a given regret, for three interpretations of the noise: "
        + ", ".join(f"{name} {(values >= QUOTED).mean():.4f} at {QUOTED}" for name, values in found.items())
    )
    text = (
        f"The paper quotes a largest regret of {QUOTED} for MS+16 on two Gaussian arms over 200 trials. The "
        "paper does not state the noise. This number helps to choose between the interpretations: how "
        "extreme is it among the maxima of 200 trials, under each?",
    )
    panel = Panel("maximum", title, alt, figure, DataTable.of(rows))
    return ReportSection("maximum", "The quoted maximum, and the unstated noise", text, (panel,))


def _slug(problem: str) -> str:
    arms = problem_of(problem).arms
    return f"{problem.partition(':')[0].partition('-')[2]}-{arms}"
