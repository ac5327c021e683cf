"""The sections on contexts: policies on labelled data, LinMED's experiments, and logs of linear policies."""

from __future__ import annotations

import numpy as np

from maillard import figures
from maillard.policies import uses_context
from maillard.reproduction import context_study, data_sets, linear_logs
from maillard.reproduction.claim_statistics import mean
from maillard.reproduction.context_study import PolicyOutcome, interval, interval_text
from maillard.reproduction.data_sets import REPORTED, TUNING
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import DataTable, Panel, ReportSection
from maillard.reproduction.sections.panels import curves, summary

_INTERVALS = "lines: 95% intervals"


def labelled_data(results: ExperimentResults) -> ReportSection:
    """Mean rewards on labelled data, with parameters that were tuned on other data."""
    found = context_study.outcomes(results)
    best = context_study.recommended(found)
    part = results.parts_of(context_study.EXPERIMENT)[0]
    learning = [each for each in found if uses_context(each.tuned)]
    text = (
        "A row of a labelled data set is a context, its labels are the arms, and the right one pays 1. The "
        "model is disjoint, with an intercept. Every column is scaled from its range in the data set to -1 "
        f"to 1, and nothing is learned from rewards in advance. {part.trials} trials of {part.horizon:,} "
        "rounds; the rows are shown in random order, and again if there are fewer. The parameters of each "
        f"policy are those with the largest mean reward on {len(TUNING)} data sets for tuning. All numbers "
        f"below are from {len(REPORTED)} others.",
        *context_study.advice(results, found),
    )
    panels = (_mean_rewards(learning, best), _differences(results, learning, best))
    tables = (outcome_table(results, found), _by_data_set(results, found), _data_sets())
    return ReportSection("contexts", "Contexts: labelled data", text, panels, tables, beyond=True)


def _mean_rewards(found: list[PolicyOutcome], best: PolicyOutcome) -> Panel:
    """The mean reward of each policy that uses contexts; hollow if its logs cannot evaluate every arm."""
    low, high = np.array([interval(each.tuned_reward) for each in found]).T
    values = [each.tuned_reward.value for each in found]
    names, title = [each.tuned for each in found], "Mean reward on data sets not used for tuning"
    figure = figures.forest(
        names, values, low, high, label="mean reward", title=title,
        hollow=[each.tuned for each in found if not each.has_exact_log],
        reference=best.tuned_reward.value,
        note=f"{_INTERVALS}; hollow: some probabilities are 0", size=figures.PANEL,
    )  # fmt: skip
    rows = [
        {
            "policy": each.tuned,
            "mean reward": each.tuned_reward.value,
            "standard error": each.tuned_reward.error,
        }
        for each in found
    ]
    alt = f"{title}: " + ", ".join(f"{name} {value:.3f}" for name, value in zip(names, values, strict=True))
    return Panel("contexts-rewards", title, alt + ".", figure, DataTable.of(rows))


def _differences(results: ExperimentResults, found: list[PolicyOutcome], best: PolicyOutcome) -> Panel:
    """The paired difference of each policy from the recommended one."""
    others = [each for each in found if each is not best]
    differences = [context_study.paired(results, each.tuned, best.tuned) for each in others]
    low, high = np.array([interval(each) for each in differences]).T
    names, title = [each.tuned for each in others], f"Mean reward minus that of {best.tuned}"
    figure = figures.forest(
        names, [each.value for each in differences], low, high, label="difference, paired by data set",
        title=title, hollow=[each.tuned for each in others if not each.has_exact_log], reference=0.0,
        note=f"{_INTERVALS}; hollow: some probabilities are 0", size=figures.PANEL,
    )  # fmt: skip
    rows = [
        {"policy": name, "difference": each.value, "from": float(least), "to": float(most)}
        for name, each, least, most in zip(names, differences, low, high, strict=True)
    ]
    alt = f"{title}: " + ", ".join(f"{row['policy']} {row['difference']:+.3f}" for row in rows)
    return Panel("contexts-differences", title, alt + ".", figure, DataTable.of(rows))


def outcome_table(results: ExperimentResults, found: list[PolicyOutcome]) -> DataTable:
    """The mean reward of every policy, and its paired difference from the recommended one."""
    best = context_study.recommended(found).tuned
    rows = []
    for each in found:
        difference = context_study.paired(results, each.tuned, best)
        rows.append(
            {
                "policy": each.tuned,
                "mean reward (95% interval)": interval_text(each.tuned_reward),
                f"difference from {best}": "" if each.tuned == best else interval_text(difference, "+.3f"),
                "default": each.default,
                "its mean reward": interval_text(each.default_reward),
                "probabilities": _kind(each),
            }
        )
    return DataTable.of(rows, "Mean rewards on data sets not used for tuning")


def _kind(outcome: PolicyOutcome) -> str:
    if not uses_context(outcome.tuned):
        return "without contexts"
    return "positive" if outcome.has_exact_log else "some are 0"


def _by_data_set(results: ExperimentResults, found: list[PolicyOutcome]) -> DataTable:
    rows = []
    for each in found:
        values = context_study.rewards(results, REPORTED, each.tuned)
        rows.append({"policy": each.tuned, **{name: interval_text(value) for name, value in values.items()}})
    return DataTable.of(rows, "By data set")


def _data_sets() -> DataTable:
    rows = []
    for name, data in data_sets.DATA_SETS.items():
        problem = data_sets.classification(name)
        row = {
            "data set": name,
            "source": data.source,
            "rows": len(problem.X),
            "features, with the intercept": problem.dim,
            "arms": problem.arms,
            "used for": "tuning" if name in TUNING else "the comparison",
        }
        rows.append(row)
    return DataTable.of(rows, "Data sets")


def linear_arms(results: ExperimentResults) -> ReportSection:
    """LinMED's experiments with a shared model: arms on the circle, and the end of optimism."""
    panels, tables = [], []
    for experiment, title in (
        ("contexts-sphere", "500 arms on the unit circle"),
        ("contexts-optimism", "The end of optimism"),
    ):
        if experiment in results.experiments():
            result = results.result(experiment)
            shown = [spec for spec in result.policies if spec not in _NOT_DRAWN]
            panels.append(curves(experiment, title, result, shown, yscale="log"))
            table = summary(result)
            tables.append(DataTable(table.columns, table.rows, title))
    text = (
        "Two experiments of the paper on LinMED (Balagopalan and Jun 2025), with noise of variance 1 and "
        "sigma2 = 1. On the circle, arms and coefficients are drawn anew in each trial. The end of optimism "
        "has the arms (1, 0), (0, 1) and (0.995, 0.01) and the coefficients (1, 0): the second arm is bad, "
        "but it shows best which of the others is better. An optimistic policy stops choosing it, which "
        "costs most in the long run (Lattimore and Szepesvari 2017). LinMED is run with its three mixtures, "
        "which put 99, 90 (the default) and 50% of q on the leaders, and with beta = 2 sigma2, which is "
        "narrower than the width of its theory.",
    )
    return ReportSection(
        "contexts-linear", "Contexts: LinMED's experiments", text, tuple(panels), tuple(tables), beyond=True
    )


# The figure would be crowded; the tables have all policies.
_NOT_DRAWN = ("lin-med:emp=0.99,opt=0.005", "lin-med:emp=0.5,opt=0.25", "lin-ts")


def linear_off_policy(results: ExperimentResults) -> ReportSection:
    """LinMED's experiment on off-policy evaluation, with exact and with estimated probabilities."""
    found, truth = linear_logs.all_estimates(results.settings.seed), linear_logs.true_value()
    rows = []
    for (spec, draws), values in found.items():
        estimate = mean(values)
        row = {
            "policy": spec,
            "logged probabilities": f"{draws:,} draws" if draws else "exact",
            "mean estimate (95% interval)": interval_text(estimate),
            "z": (estimate.value - truth) / estimate.error,
            "deviation of one": float(values.std(ddof=1)),
        }
        rows.append(row)
    table = DataTable.of(rows)
    names = [f"{spec.partition(':')[0]}, {f'{draws:,} draws' if draws else 'exact'}" for spec, draws in found]
    drawn = [i for i, (spec, _) in enumerate(found) if spec in (linear_logs.LINMED, linear_logs.THOMPSON[0])]
    estimates = [mean(values) for values in found.values()]
    low, high = np.array([interval(each) for each in estimates]).T
    title = "Mean estimate of a uniform choice"
    figure = figures.forest(
        [names[i] for i in drawn], [estimates[i].value for i in drawn], low[drawn], high[drawn],
        label=f"mean of {linear_logs.LOGS:,} estimates", title=title, reference=truth,
        note=f"{_INTERVALS}; dashed: the true value", size=figures.PANEL,
    )  # fmt: skip
    alt = f"{title}, true value {truth:.2f}: " + ", ".join(
        f"{names[i]} {estimates[i].value:.3f}" for i in drawn
    )
    panel = Panel("contexts-off-policy", title, alt + ".", figure, table)
    exact = [mean(found[spec, 0]).value for spec in (linear_logs.LINMED, *linear_logs.THOMPSON)]
    thousand = [mean(found[spec, 1000]).value for spec in linear_logs.THOMPSON]
    text = (
        "The off-policy experiment of the paper on LinMED: two arms, (0.6, 0.8) and (1, 0), coefficients (1, "
        f"0), noise of deviation {linear_logs.DEVIATION:g}, {linear_logs.LOGS:,} logs of "
        f"{linear_logs.ROUNDS:,} rounds. Inverse propensity scoring estimates the value of a uniform choice "
        f"from each log; the true value is {truth:.2f}. With exact probabilities, the means of the estimates "
        f"are {_listed(exact)}: on logs of LinMED, and of Thompson sampling with two variances. If the "
        "probability of Thompson sampling is estimated as the fraction of 1,000 draws, at least half a draw, "
        f"as in the authors' program, they are {_listed(thousand)}. An arm that few or none of the draws "
        "chose gets a wrong weight. More draws help until there are rarer arms.",
    )
    return ReportSection(
        "contexts-off-policy", "Contexts: off-policy evaluation", text, (panel,), (table,), beyond=True
    )


def _listed(values: list[float]) -> str:
    *first, last = [f"{value:.2f}" for value in values]
    return f"{', '.join(first)} and {last}"
