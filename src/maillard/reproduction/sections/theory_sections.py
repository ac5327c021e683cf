"""The sections on theory and tuning: slopes, worst cases, parameters, Thompson's probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard import figures
from maillard.problems import problem as problem_of
from maillard.reproduction import thompson_probabilities
from maillard.reproduction.claims.theory_claims import arm_counts, slope, theoretical_slope, worst
from maillard.reproduction.claims.tuning_claims import AGGRESSIVE, matched
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable, Panel, ReportSection
from maillard.reproduction.sections.panels import (
    curves,
    distributions,
    final_means,
    lines,
    option,
    title_of,
    values_and_errors,
)


def width(results: ExperimentResults) -> ReportSection:
    """The booster against narrower widths."""
    result = results.result("width")
    narrowed = [matched(results, "ts"), matched(results, "aoucb")]
    shown = [AGGRESSIVE, *narrowed, "ts:scale=1", "aoucb:scale=1"]
    panels = (
        curves("width", "Means", result, shown, yscale="log"),
        distributions("width-spread", "All trials", result, result.policies),
    )
    called = " and ".join(label(policy) for policy in narrowed)
    text = (
        "A booster of 32 makes MS+ greedier. A narrower posterior does the same to Thompson sampling, and "
        f"a smaller bonus to AOUCB. Of the variants, {called} come nearest to the regret of MS+32 after a "
        "hundredth of the rounds. The question is whether the regret of trials that have missed the best "
        "arm by then keeps growing linearly.",
    )
    return ReportSection("width", "The booster against narrower widths", text, panels)


def parameters(results: ExperimentResults) -> ReportSection:
    """C and D."""
    panels = []
    for problem in results.problems("c-and-d"):
        result = results.result("c-and-d", problem)
        for letter, fixed in (("c", "d=0.01"), ("d", "c=0.01")):
            by_value = {option(spec, letter): spec for spec in result.policies if fixed in spec}
            values = sorted(by_value)
            series = {"MS+4": final_means(result, [by_value[value] for value in values])}
            name = f"parameter-{letter}-{problem.partition('-')[0]}"
            title = f"{letter.upper()}: {title_of(problem)}"
            axes = {"xlabel": letter.upper(), "label": "mean regret"}
            panels.append(lines(name, title, values, series, **axes))
    text = ("MS+4 with other C (D = 0.01) and other D (C = 0.01) than the paper's 0.01.",)
    return ReportSection("c-and-d", "C and D", text, tuple(panels))


def closing(results: ExperimentResults) -> ReportSection:
    """Eq. (4) as printed, and with N."""
    result = results.result("closing")
    text = (
        "The equation that the paper recommends to practitioners lacks the number of pulls N. As printed, "
        "the probability of every arm stays above a positive constant, and regret is linear. With N, it is "
        "MS+ with C = D = 0.",
    )
    panel = curves("closing", "Two Gaussian arms, gap 1/2", result, result.policies, yscale="log")
    return ReportSection("closing", "The closing equation (4)", text, (panel,))


def slopes(results: ExperimentResults) -> ReportSection:
    """Regret per unit of ln t."""
    result, theory = results.result("slopes"), theoretical_slope(results, "slopes")
    reference = figures.Reference("2σ²/Δ · ln t", result.rounds, theory * np.log(result.rounds))
    title = title_of(result.provenance["problem"])
    panel = curves("slopes", title, result, result.policies, references=[reference])
    found = [(label(spec), slope(results, spec)) for spec in result.policies]
    rows = tuple((name, each.value * theory, each.error * theory, each.value) for name, each in found)
    columns = ("policy", "slope over the last tenfold", "standard error", "over 2 sigma2 / gap")
    text = (
        f"Two Gaussian arms of variance 1/4 with a gap of 1/2, {result.rounds[-1]:,} rounds. The regret of "
        f"an asymptotically optimal policy grows by 2 sigma2 / gap = {theory:g} for each unit of ln t.",
    )
    return ReportSection("slopes", "Slopes in ln t", text, (panel,), (DataTable(columns, rows, "Slopes"),))


def worst_case(results: ExperimentResults) -> ReportSection:
    """The largest regret over gaps, for each K and T."""
    shares = 10.0 ** np.arange(-1.0, 0.01, 0.2)  # checkpoints
    horizon = results.result("worst-case", results.problems("worst-case")[0]).rounds[-1]
    panels, rows = [], []
    for spec, factor in (("ms", "T"), ("ms+:booster=4", "K")):
        series = {}
        for arms in arm_counts(results):
            problems, found = zip(*(worst(results, spec, arms, share) for share in shares), strict=True)
            logarithm = np.log(horizon * shares) if factor == "T" else math.log(arms)
            rate = 0.5 * np.log(arms * horizon * shares * logarithm)
            logs, errors = values_and_errors(found)
            values = np.exp(logs - rate)
            series[f"K = {arms}"] = (values, values * errors)
            for i in (0, -1):
                gap = 0.5 / math.sqrt(problem_of(problems[i]).sigma2 or 1.0)
                rows.append((label(spec), arms, round(horizon * shares[i]), gap, float(values[i])))
        panels.append(
            lines(
                f"worst-case-{label(spec).lower()}",
                f"{label(spec)}: worst regret / σ√(KT ln {factor})",
                (horizon * shares).tolist(),
                series,
                xlabel="rounds T",
                label="ratio",
                ticks=[horizon * share for share in (0.1, 0.2, 0.5, 1.0)],
            )
        )
    table = DataTable(("policy", "K", "T", "worst gap over sigma", "ratio"), tuple(rows), "The worst gaps")
    text = (
        "One arm is better than all others, by a gap from 0.02 to 1.28 standard deviations. At each K and "
        "T, the figures show the gap with the largest mean regret. The paper proves that the curves stay "
        "bounded: regret over σ√(KT ln T) for MS, over σ√(KT ln K) for MS+.",
    )
    return ReportSection("worst-case", "Worst cases", text, tuple(panels), (table,))


def two_arms(_results: ExperimentResults) -> ReportSection:
    """The probability of the worse of two arms under Thompson sampling and under MS."""
    table = thompson_probabilities.two_arms()
    series = {"TS": table.thompson, "TS, printed bound": table.bound, "½ exp(-x)": np.log(0.5) - table.x}
    ratios = [np.exp(each - table.maillard) for each in series.values()]
    even = figures.Reference("MS", table.x, np.ones(table.x.size))
    figure = figures.sweep(
        table.x,
        list(series),
        ratios,
        ratios,
        ratios,
        xlabel="x = N d²/2",
        label="probability over that of MS",
        title="The worse of two arms",
        yscale="log",
        ticks=[0.01, 0.1, 1, 10, 100],
        style_indices=[3, 4, 5],
        references=[even],
    )
    columns = [table.x, np.exp(table.maillard), *(np.exp(each) for each in series.values())]
    rows = tuple(tuple(row) for row in np.column_stack(columns).tolist())
    alt = (
        f"Thompson's probability of the worse arm over that of MS goes from {ratios[0][0]:.2f} at x = "
        f"{table.x[0]:g} to {ratios[0][-1]:.3f} at x = {table.x[-1]:g}; the printed bound from "
        f"{ratios[1][0]:.2f} to {ratios[1][-1]:.3f}."
    )
    panel = Panel("two-arms", "The worse of two arms", alt, figure, DataTable(("x", "MS", *series), rows))
    text = (
        "On two arms the probability of Thompson sampling has a closed form with erfc. The paper bounds "
        "it, approximates it by ½ exp(-x), and compares it with that of MS. Both are exact here. The "
        "better arm has a million times as many pulls.",
    )
    return ReportSection("two-arms", "Thompson sampling and MS on two arms (Appendix A)", text, (panel,))


def simulated(results: ExperimentResults) -> ReportSection:
    """The cost and the error of simulated probabilities of Thompson sampling."""
    seed, title = results.settings.seed, "Error of simulated probabilities"
    rows, draws = thompson_probabilities.by_simulation(seed), thompson_probabilities.DRAWS
    series = {
        f"K = {arms}": (np.array([row[3] for row in rows if row[0] == arms]), np.zeros(len(draws)))
        for arms in thompson_probabilities.ARMS
    }
    axes: dict[str, Any] = {"xlabel": "draws of every score", "label": "relative error, median"}
    panel = lines("thompson-simulated", title, draws, series, yscale="log", note="", **axes)
    errors = DataTable(thompson_probabilities.COLUMNS, rows, title)
    seconds = thompson_probabilities.seconds(seed)
    base = {arms: took for arms, how, took in seconds if how.startswith("MS")}
    timed = tuple((arms, how, took, took / base[arms]) for arms, how, took in seconds)
    times = DataTable(("arms", "how", "seconds for one vector", "times MS's"), timed, "Time, on this machine")
    text = (
        "Without a formula for the probabilities of Thompson sampling, one can sample its scores many "
        "times and count. An arm that is never sampled is logged with probability 0, and its weight is "
        "infinite.",
        "The times are of this machine and this run. They are the only numbers in this report that depend "
        "on more than the seed.",
    )
    return ReportSection(
        "thompson-simulated", "Thompson's probabilities by simulation", text, (panel,), (errors, times)
    )
