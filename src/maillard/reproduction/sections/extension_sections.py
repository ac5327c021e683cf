"""The sections beyond the paper: delayed rewards, mean against deviation, a wrong sigma2."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard import figures
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable, Panel, ReportSection
from maillard.reproduction.sections.panels import lines, option, style_indices, title_of


def delay(results: ExperimentResults) -> ReportSection:
    """Regret against the batch size, on static and on dynamic arms."""
    panels, size = [], ""
    for experiment, title in (("delay-static", "Static arms"), ("delay-dynamic", "Arms that are replaced")):
        if experiment not in results.experiments():
            continue
        problems = results.problems(experiment)
        found = [results.result(experiment, problem) for problem in problems]
        batches = [float(problem.rpartition(":")[2]) for problem in problems]
        specs = found[0].policies
        series = {
            label(spec): (
                np.array([result.mean[i, -1] for result in found]),
                np.array([result.standard_error[i, -1] for result in found]),
            )
            for i, spec in enumerate(specs)
        }
        size = f" {found[0].values.shape[1]:,} trials of {found[0].rounds[-1]:,} rounds."
        panels.append(
            lines(
                experiment,
                title,
                batches,
                series,
                xlabel="rounds between observations",
                label="regret",
                yscale="log",
                style_indices=style_indices(specs),
            )
        )
        panels.append(_relative(experiment, title, batches, series, specs))
    text = (
        "Rewards arrive in batches: none for a number of rounds, then all at once. Within a batch a UCB "
        "policy repeats one arm; a randomised policy does not. The static problem has ten Bernoulli arms "
        "with means 0.1 and 0.05. The dynamic problem is that of Chapelle and Li (2011): of ten arms, about "
        "one in a thousand rounds is replaced by an arm with a mean from Beta(4, 4). "
        "Regret is relative to the best arm of the round." + size,
        "Chapelle and Li report, for another UCB policy, a million rounds and 100 trials, that the ratio "
        "of the regrets of UCB and Thompson sampling rises from 2.65 without delay to 3.82 at a batch size "
        "of 1000. The option --full runs this size.",
    )
    return ReportSection("delay", "Delayed rewards", text, tuple(panels), beyond=True)


def _relative(
    experiment: str,
    title: str,
    batches: list[float],
    series: dict[str, tuple[np.ndarray, np.ndarray]],
    specs: tuple[str, ...],
) -> Panel:
    base, error = series["MS"]
    ratios = {
        name: (mean / base, mean / base * np.hypot(own / mean, error / base))
        for name, (mean, own) in series.items()
        if name != "MS"
    }
    others = [spec for spec in specs if spec != "ms"]
    even = figures.Reference("MS", batches, np.ones(len(batches)))
    return lines(
        f"{experiment}-relative",
        f"{title}: relative to MS",
        batches,
        ratios,
        xlabel="rounds between observations",
        label="regret over that of MS",
        style_indices=style_indices(others, specs),
        references=[even],
    )


def frontier(results: ExperimentResults) -> ReportSection:
    """Mean against standard deviation over the booster, with the other policies of the same problem."""
    panels = []
    for problem in results.problems("frontier"):
        result = results.result("frontier", problem)
        boosters = [f"{option(spec, 'booster'):g}" for spec in result.policies]
        names, means, deviations = ["MS+"], [result.mean[:, -1]], [result.sd[:, -1]]
        labels = [[f"B={value}" for value in boosters]]
        others: tuple[str, ...] = ()
        compared = "bernoulli" if problem.startswith("bernoulli") else "gaussian-1"
        if compared in results.experiments():
            beside = results.result(compared, problem)
            others = ("ms", "ts", "aoucb", "ocucb", "ucb+", "moss")
            for spec in others:
                i = beside.policies.index(spec)
                names.append(label(spec))
                means.append(beside.mean[i, -1:])
                deviations.append(beside.sd[i, -1:])
                labels.append([""])
        title = title_of(problem)
        figure = figures.frontier(
            names,
            means,
            deviations,
            labels,
            title=title,
            xscale="log",
            yscale="log",
            style_indices=[1, *style_indices(others)] if others else None,
        )
        rows = [
            (f"MS+, B = {value}", float(mean), float(deviation))
            for value, mean, deviation in zip(boosters, means[0], deviations[0], strict=True)
        ]
        rows += [
            (name, float(mean[0]), float(deviation[0]))
            for name, mean, deviation in zip(names[1:], means[1:], deviations[1:], strict=True)
        ]
        alt = (
            f"{title}: as the booster grows from {boosters[0]} to {boosters[-1]}, mean regret goes from "
            f"{means[0][0]:.0f} to {means[0][-1]:.0f} and its deviation from {deviations[0][0]:.0f} to "
            f"{deviations[0][-1]:.0f}."
        )
        panels.append(
            Panel(
                f"frontier-{problem.partition('-')[0]}",
                title,
                alt,
                figure,
                DataTable(("policy", "mean regret", "standard deviation"), tuple(rows)),
            )
        )
    text = (
        "The benefit and the cost of a booster: mean regret against its standard deviation as B grows from "
        "1 to 128, with other policies on the same problem.",
    )
    return ReportSection("frontier", "Mean against deviation", text, tuple(panels), beyond=True)


def sigma2(results: ExperimentResults) -> ReportSection:
    """Regret if sigma2 is not the variance of the noise."""
    result = results.result("wrong-sigma2")
    families = {"ms": "ms:", "ms+:booster=4": "ms+:booster=4,", "ts": "ts:", "aoucb": "aoucb:"}
    values: list[float] = []
    series, spread = {}, {}
    for spec, begin in families.items():
        chosen = [i for i, each in enumerate(result.policies) if each.startswith(begin)]
        values = [option(result.policies[i], "sigma2") for i in chosen]
        series[label(spec)] = (result.mean[chosen, -1], result.standard_error[chosen, -1])
        spread[label(spec)] = (result.sd[chosen, -1], np.zeros(len(chosen)))
    options: dict[str, Any] = {
        "xlabel": "sigma2 / variance of the noise",
        "yscale": "log",
        "style_indices": style_indices(tuple(families)),
    }
    panels = (
        lines("wrong-sigma2", "Mean", values, series, label="mean regret", **options),
        lines(
            "wrong-sigma2-deviation",
            "Standard deviation",
            values,
            spread,
            label="standard deviation of regret",
            note="",
            **options,
        ),
    )
    text = (
        "Ten Gaussian arms of variance 1 with means 0.9, 0.8, ..., 0. The policies are given a wrong "
        "variance.",
    )
    return ReportSection("wrong-sigma2", "The cost of a wrong sigma2", text, panels, beyond=True)
