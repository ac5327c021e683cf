"""The figures that several sections use, each with its table and its alternative text."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from maillard import figures, policies
from maillard import specs as spec_strings
from maillard.array_types import Floats
from maillard.problems import problem as problem_of
from maillard.reproduction.claim_statistics import TrialEstimate
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.report_content import DataTable, Panel
from maillard.simulation import Result

# The order of the policies in the palette, so that a policy has the same color in every figure.
_PALETTE_ORDER = (
    "ms",
    "ms+:booster=4",
    "ms+:booster=16",
    "ts",
    "aoucb",
    "ocucb",
    "ucb1",
    "ms+:booster=8",
    "ts-sg",
    "moss",
)


def style_indices(specs: Sequence[str], among: Sequence[str] = ()) -> list[int]:
    """The palette indices of policies.

    Policies in `_PALETTE_ORDER` have fixed indices; the others get free ones in order. `among` lists all
    policies of a section, so that its figures agree.
    """
    if among:
        by_spec = dict(zip(among, style_indices(among), strict=True))
        return [by_spec[spec] for spec in specs]
    own = {spec: _PALETTE_ORDER.index(spec) for spec in specs if spec in _PALETTE_ORDER}
    free = iter(place for place in range(100) if place not in own.values())
    return [own[spec] if spec in own else next(free) for spec in specs]


def title_of(problem: str) -> str:
    """The name of a problem in a title.

    >>> title_of("gaussian-equal:arms=10"), title_of("bernoulli-linear:arms=100")
    ('Gaussian (1/4), Equal, K = 10', 'Bernoulli, Linear, K = 100')
    """
    noise, _, gaps = problem.partition(":")[0].partition("-")
    made = problem_of(problem)
    variance = f" ({Fraction(made.sigma2 or 0)!s})" if noise == "gaussian" else ""
    return f"{noise.capitalize()}{variance}, {gaps.capitalize()}, K = {made.arms}"


def option(spec: str, name: str) -> float:
    """The value of a numeric option of a policy."""
    return float(spec_strings.read(spec).options[name])  # type: ignore[arg-type]  # the specs of the experiments have numbers there


def values_and_errors(estimates: Sequence[TrialEstimate]) -> tuple[Floats, Floats]:
    """The values of estimates, and their standard errors."""
    return np.array([each.value for each in estimates]), np.array([each.error for each in estimates])


def final_means(result: Result, specs: Sequence[str]) -> tuple[Floats, Floats]:
    """The means of the final regret of these policies, and their standard errors."""
    chosen = [result.policies.index(spec) for spec in specs]
    return result.mean[chosen, -1], result.standard_error[chosen, -1]


def _describe(names: Sequence[str], values: Floats) -> str:
    """Names with their values, for the alternative text."""
    return ", ".join(f"{name} {value:,.3g}" for name, value in zip(names, values, strict=True))


def summary(*results: Result, specs: Sequence[str] | None = None) -> DataTable:
    """A table of mean, error, deviation, quantiles and maximum of the final regret, by policy."""
    rows = [
        {"policy": label(row.pop("policy")), "trials": result.values.shape[1], **row}
        for result in results
        for row in result.summary()
        if specs is None or row["policy"] in specs
    ]
    return DataTable.of(rows)


def bars(name: str, *results: Result, emphasised: str) -> Panel:
    """Mean final regret with standard deviations on one problem, in the style of the paper."""
    title = title_of(results[0].provenance["problem"])
    specs = [spec for result in results for spec in result.policies]
    means = np.concatenate([result.mean[:, -1] for result in results])
    deviations = np.concatenate([result.sd[:, -1] for result in results])
    names = [label(spec) for spec in specs]
    figure = figures.bars(
        names,
        means,
        deviations,
        label="regret: mean and standard deviation",
        title=title,
        shaded=[label(spec) for spec in specs if not _guaranteed(spec)],
        hatched=[label(spec) for spec in specs if not _class(spec).guarantees.anytime],
        emphasised=[label(spec) for spec in specs if spec.startswith(emphasised)],
    )
    alt = f"Bars of mean regret on {title}: {_describe(names, means)}."
    return Panel(name, title, alt, figure, summary(*results))


def _class(spec: str) -> type[policies.Policy]:
    return policies.policy_class(spec_strings.read(spec).name)


def _guaranteed(spec: str) -> bool:
    """Whether a regret bound is reported for sub-Gaussian (or bounded) rewards."""
    row = _class(spec).guarantees
    return bool(row.sub_ucb) or row.minimax_ratio not in (None, "linear regret")


def curves(
    name: str,
    title: str,
    result: Result,
    specs: Sequence[str],
    *,
    references: Sequence[figures.Reference] = (),
    yscale: str = "linear",
) -> Panel:
    """Mean regret over rounds, with 5% to 95% quantile bands. The table has every fifth checkpoint."""
    chosen = [result.policies.index(spec) for spec in specs]
    low, high = result.quantile([0.05, 0.95])
    names = [label(spec) for spec in specs]
    figure = figures.curves(
        result.rounds,
        names,
        result.mean[chosen],
        low[chosen],
        high[chosen],
        label="regret",
        title=title,
        references=references,
        yscale=yscale,
        style_indices=style_indices(specs, result.policies),
        size=figures.PANEL,
        note="bands: from the 5% to the 95% quantile",
    )
    rows = []
    for i in range((result.rounds.size - 1) % 5, result.rounds.size, 5):
        lines_there = {each.label: _value_at(each, result.rounds[i]) for each in references}
        means = dict(zip(names, result.mean[chosen, i].tolist(), strict=True))
        rows.append({"round": int(result.rounds[i]), **means, **lines_there})
    final = _describe(names, result.mean[chosen, -1])
    alt = f"Mean regret over rounds, {title}; at the last: {final}."
    return Panel(name, title, alt, figure, DataTable.of(rows))


def _value_at(reference: figures.Reference, x: float) -> float | None:
    """The value of a reference line at a round; None outside its range."""
    xs, ys = np.asarray(reference.x, float), np.asarray(reference.y, float)
    inside = xs[0] <= x <= xs[-1]
    return float(np.interp(np.log(x), np.log(xs), ys)) if inside else None


def lines(
    name: str,
    title: str,
    x: Sequence[float],
    series: dict[str, tuple[Floats, Floats]],
    *,
    xlabel: str,
    label: str,
    error: str = "standard error",
    **options: Any,
) -> Panel:
    """Values with their errors against a parameter, one line for each name."""
    middle = np.array([values for values, _ in series.values()])
    errors = np.array([errors for _, errors in series.values()])
    figure = figures.sweep(
        x,
        list(series),
        middle,
        middle - errors,
        middle + errors,
        xlabel=xlabel,
        label=label,
        title=title,
        note=options.pop("note", f"bars: ± {error}"),
        **options,
    )
    columns = [xlabel, *(column for each in series for column in (each, error))]
    values = np.stack([middle, errors], axis=1).reshape(-1, len(x)).T.tolist()
    rows = tuple((float(value), *row) for value, row in zip(x, values, strict=True))
    alt = f"{title}: {label} against {xlabel}. " + "; ".join(
        f"{each} from {values[0]:,.3g} to {values[-1]:,.3g}" for each, (values, _) in series.items()
    )
    return Panel(name, title, alt + ".", figure, DataTable(tuple(columns), rows))


def distributions(name: str, title: str, result: Result, specs: Sequence[str]) -> Panel:
    """The distribution of final regret over trials."""
    chosen = [result.policies.index(spec) for spec in specs]
    values = result.values[chosen, :, -1]
    names = [label(spec) for spec in specs]
    figure = figures.distributions(
        names,
        values,
        label="final regret",
        title=title,
        style_indices=style_indices(specs, result.policies),
        size=figures.PANEL,
    )
    medians = _describe(names, np.median(values, axis=1))
    alt = f"Distributions of final regret, {title}; medians: {medians}."
    return Panel(name, title, alt, figure, summary(result, specs=specs))
