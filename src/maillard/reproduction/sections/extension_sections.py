"""The sections beyond the paper: delayed rewards, mean against deviation, a wrong sigma2."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard import figures
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable, Panel, ReportSection
from maillard.reproduction.sections.panels import final_means, lines, option, style_indices, title_of


def delay(results: ExperimentResults) -> ReportSection:
    """Regret against the batch size, on static and on dynamic arms."""
    panels, size = [], ""
    axis = "rounds between observations"
    for experiment, title in (("delay-static", "Static arms"), ("delay-dynamic", "Arms that are replaced")):
        if experiment not in results.experiments():
            continue
        problems = results.problems(experiment)
        found = [results.result(experiment, problem) for problem in problems]
        batches = [float(problem.rpartition(":")[2]) for problem in problems]
        specs = found[0].policies
        finals = np.array([final_means(result, specs) for result in found])  # problem x 2 x policy
        series = {label(spec): (finals[:, 0, i], finals[:, 1, i]) for i, spec in enumerate(specs)}
        indices = style_indices(specs)
        absolute = lines(
            experiment, title, batches, series,
            xlabel=axis, label="regret", yscale="log", style_indices=indices,
        )  # fmt: skip
        base, base_error = series.pop("MS")
        ratios = {
            name: (mean / base, mean / base * np.hypot(error / mean, base_error / base))
            for name, (mean, error) in series.items()
        }
        relative = lines(
            f"{experiment}-relative", f"{title}: relative to MS", batches, ratios,
            xlabel=axis, label="regret over that of MS",
            style_indices=[index for spec, index in zip(specs, indices, strict=True) if spec != "ms"],
            references=[figures.Reference("MS", batches, np.ones(len(batches)))],
        )  # fmt: skip
        panels += [absolute, relative]
        size = f" {found[0].values.shape[1]:,} trials of {found[0].rounds[-1]:,} rounds."
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


def frontier(results: ExperimentResults) -> ReportSection:
    """Mean against standard deviation over the booster, with the other policies of the same problem."""
    panels = []
    for problem in results.problems("frontier"):
        result = results.result("frontier", problem)
        boosters = [f"{option(spec, 'booster'):g}" for spec in result.policies]
        others: tuple[str, ...] = ()
        points = [np.column_stack([result.mean[:, -1], result.sd[:, -1]])]
        compared = "bernoulli" if problem.startswith("bernoulli") else "gaussian-1"
        if compared in results.experiments():
            beside = results.result(compared, problem)
            others = ("ms", "ts", "aoucb", "ocucb", "ucb+", "moss")
            chosen = [beside.policies.index(spec) for spec in others]
            points += [np.array([[beside.mean[i, -1], beside.sd[i, -1]]]) for i in chosen]
        title, names = title_of(problem), [label(spec) for spec in others]
        figure = figures.frontier(
            ["MS+", *names],
            [point[:, 0] for point in points],
            [point[:, 1] for point in points],
            [[f"B={value}" for value in boosters], *([""] for _ in others)],
            title=title,
            xscale="log",
            yscale="log",
            style_indices=[1, *style_indices(others)] if others else None,
        )
        called = [*(f"MS+, B = {value}" for value in boosters), *names]
        values = np.concatenate(points).tolist()
        rows = [
            {"policy": name, "mean regret": mean, "standard deviation": deviation}
            for name, (mean, deviation) in zip(called, values, strict=True)
        ]
        (first_mean, first_deviation), *_, (last_mean, last_deviation) = points[0]
        alt = (
            f"{title}: as the booster grows from {boosters[0]} to {boosters[-1]}, mean regret goes from "
            f"{first_mean:.0f} to {last_mean:.0f} and its deviation from {first_deviation:.0f} to "
            f"{last_deviation:.0f}."
        )
        name = f"frontier-{problem.partition('-')[0]}"
        panels.append(Panel(name, title, alt, figure, DataTable.of(rows)))
    text = (
        "The benefit and the cost of a booster: mean regret against its standard deviation as B grows from "
        "1 to 128, with other policies on the same problem.",
    )
    return ReportSection("frontier", "Mean against deviation", text, tuple(panels), beyond=True)


def sigma2(results: ExperimentResults) -> ReportSection:
    """Regret if sigma2 is not the variance of the noise."""
    result = results.result("wrong-sigma2")
    families = {"ms": "ms:", "ms+:booster=4": "ms+:booster=4,", "ts": "ts:", "aoucb": "aoucb:"}
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
    deviation = {"label": "standard deviation of regret", "note": "", **options}
    panels = (
        lines("wrong-sigma2", "Mean", values, series, label="mean regret", **options),
        lines("wrong-sigma2-deviation", "Standard deviation", values, spread, **deviation),
    )
    text = (
        "Ten Gaussian arms of variance 1 with means 0.9, 0.8, ..., 0. The policies are given a wrong "
        "variance.",
    )
    return ReportSection("wrong-sigma2", "The cost of a wrong sigma2", text, panels, beyond=True)
