"""The HTML report of an evaluation.

Everything that comes from a log (names of arms, experiments and files) is escaped by `maillard.html_report`;
figures contain none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.files.output_files import atomic_file, check_report_path
from maillard.errors import InvalidValue
from maillard.evaluation.comparing import Comparison
from maillard.evaluation.estimate_formatting import decimals_of, grouped
from maillard.evaluation.evaluation_report import Estimate, Report

if TYPE_CHECKING:
    from maillard.evaluation.diagnostics import Diagnostics

_FIGURE_TITLES = {"forest": "Estimates with their intervals", "weights": "Distribution of the weights"}
_MAX_LISTED_ARMS = 6  # in the description of a target


def write_page(
    reports: Report | Comparison | Sequence[Report | Comparison],
    path: str | Path,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Write the results of `evaluate`, `evaluate_each` or `compare` as an HTML page.

    `facts` are name-value pairs that are added to the last section of the page.
    """
    given = [reports] if isinstance(reports, Report | Comparison) else list(reports)
    check_report_path(Path(path), [_first_report(each).source for each in given])
    text = render(given, facts)
    with atomic_file(Path(path)) as partial:
        partial.write_text(text, encoding="utf8")


def render(
    reports: Report | Comparison | Sequence[Report | Comparison], facts: Mapping[str, str] | None = None
) -> str:
    """The HTML of the page."""
    from maillard.html_report import render_page

    given = [reports] if isinstance(reports, Report | Comparison) else list(reports)
    if not given:
        raise InvalidValue("reports", given, "at least one report")
    sections = [section for each in given for section in _sections(each)]
    first = _first_report(given[0])
    single = len(sections) == 1 or sections[0].diagnostics is None
    return render_page(
        "maillard.evaluation",
        "evaluation_page.html",
        report=first,
        question=sections[0].description if single else "What would other choices have earned?",
        sections=sections,
        drawings=_drawings(sections),
        figure_titles=_FIGURE_TITLES,
        overlap=first.diagnostics.overlap,  # of the log: the same for all targets
        assumptions=grouped(
            (each.name, each.assumes) for section in sections for each in section.estimates.values()
        ),
        facts=[*_log_facts(first), *(facts or {}).items()],
    )


def _first_report(given: Report | Comparison) -> Report:
    return given.first if isinstance(given, Comparison) else given


def _log_facts(report: Report) -> list[tuple[str, object]]:
    d, limits = report.diagnostics, report.evidence.log.reward_range
    adaptive = (
        "yes" if d.adaptive else "no: the probabilities never changed, or did not depend on the rewards"
    )
    return [
        ("log", report.source),
        ("experiment", report.experiment),
        ("adaptive: did the policy learn from the log?", adaptive),
        ("minimum probability (floor)", "not known" if d.floor is None else f"{d.floor:.4g}"),
        ("range of rewards", "not known" if limits is None else f"{limits[0]:g} to {limits[1]:g}"),
    ]


@dataclass(frozen=True, eq=False, kw_only=True)
class TargetSection:
    """The section of the page about one target, or about the difference of two."""

    title: str
    description: str
    "The question that the section answers."
    estimates: Mapping[str, Estimate]
    confidence: float
    best: str | None
    "The estimator to read first."
    diagnostics: Diagnostics | None = None
    "None for a difference."

    @property
    def refusals(self) -> list[tuple[str, str]]:
        """Estimators that refused, with the reason."""
        return grouped((each.name, each.refusal or "") for each in self.estimates.values())

    @property
    def caveats(self) -> list[tuple[str, str]]:
        """Estimators whose assumptions are not known to be satisfied, with the explanation."""
        return grouped((each.name, each.caveat) for each in self.estimates.values())

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of the table: estimator, value, both ends, standard error, level and type of the interval."""
        digits = decimals_of(self.estimates.values())

        def text(value: float | None, extra_digits: int = 0) -> str:
            return "–" if value is None else f"{value:,.{digits + extra_digits}f}".replace("-", "−")

        return [
            (
                each.name,
                *map(text, (each.value, each.lower, each.upper)),
                text(each.standard_error, 1),
                "–" if each.level is None else f"{each.level:g}",
                each.interval,
            )
            for each in self.estimates.values()
            if each.value is not None
        ]

    @property
    def answered(self) -> bool:
        """Whether at least one estimator gave an estimate."""
        return any(each.value is not None for each in self.estimates.values())


def _sections(given: Report | Comparison) -> list[TargetSection]:
    best = None if given.best is None else given.best.name
    if isinstance(given, Report):
        return [
            TargetSection(
                title=given.target,
                description=f"How much reward would a decision have had with {_describe_target(given)}?",
                estimates=given.estimates,
                confidence=given.confidence,
                best=best,
                diagnostics=given.diagnostics,
            )
        ]
    first, second = given.first, given.second
    difference = TargetSection(
        title=f"{first.target} minus {second.target}",
        description=f"How much more reward would a decision have had with {_describe_target(first)} "
        f"than with {_describe_target(second)}?",
        estimates=given.estimates,
        confidence=given.confidence,
        best=best,
    )
    joint = f"Both intervals together have a confidence of {100 * given.confidence:.4g}%."
    targets = [section for report in (first, second) for section in _sections(report)]
    return [difference, *(replace(each, description=f"{each.description} {joint}") for each in targets)]


def _describe_target(report: Report) -> str:
    """What a target chooses, in words."""
    targets, arms = report.evidence.target.probabilities, report.evidence.log.arms
    if len(targets) > 1:
        return report.target
    probabilities = targets[0]
    if (probabilities == probabilities[0]).all() and len(arms) > 1:
        return f"each of the {len(arms):,} arms equally often"
    places = np.flatnonzero(probabilities)
    if places.size == 1:
        return f"“{arms[places[0]]}” every time"
    if places.size > _MAX_LISTED_ARMS:
        return report.target
    return " and ".join(f"“{arms[place]}” {probabilities[place]:.4g} of the time" for place in places)


def _drawings(sections: Sequence[TargetSection]) -> dict[str, Any]:
    """The figures of all sections as elements of the page."""
    from maillard.figures import svg
    from maillard.html_report import inline_figure

    drawings = {}
    for place, section in enumerate(sections):
        figures = {"forest": _forest(section, _common_axis(sections, section)), "weights": _weights(section)}
        for name, figure in figures.items():
            if figure is not None:
                title = f"{_FIGURE_TITLES[name]}; the numbers are in the tables below"
                drawings[f"{name}{place}"] = inline_figure(svg(figure, prefix=f"{name}{place}-", title=title))
    return drawings


def _common_axis(sections: Sequence[TargetSection], section: TargetSection) -> tuple[float, float] | None:
    """The limits of the axis, which all targets share; a difference has its own."""
    if section.diagnostics is None:
        return None
    ends = [
        end
        for each in sections
        if each.diagnostics is not None
        for estimate in each.estimates.values()
        for end in (estimate.lower, estimate.value, estimate.upper)
        if end is not None
    ]
    return (min(ends), max(ends)) if ends else None


def _forest(section: TargetSection, span: tuple[float, float] | None) -> Any:
    """A figure of the estimates with their intervals; None if there is no estimate."""
    from maillard import figures

    if not section.answered:
        return None
    estimates = list(section.estimates.values())
    ends = [
        [np.nan if end is None else end for end in (each.value, each.lower, each.upper)] for each in estimates
    ]
    sequences = [int(each.anytime_valid) for each in estimates]
    marks = ["circle: valid at the end of the log"] * (0 in sequences)
    marks += ["square: valid at any time"] * (1 in sequences)
    hollow = [each.name for each in estimates if each.caveat]
    marks += ["hollow: with a caveat"] * bool(hollow)
    values, low, high = zip(*ends, strict=True)
    difference = section.diagnostics is None
    return figures.forest(
        [each.name for each in estimates],
        values,
        low,
        high,
        label="difference in mean reward" if difference else "mean reward of a decision",
        title=f"Estimates with {100 * section.confidence:.4g}% intervals",
        style_indices=sequences,
        hollow=hollow,
        reference=0.0 if difference else None,
        span=span,
        note="; ".join(marks),
    )


def _weights(section: TargetSection) -> Any:
    """A histogram of the weights; None if there are none."""
    from maillard import figures

    d = section.diagnostics
    if d is None or not d.histogram:
        return None
    low, high = min(d.histogram), max(d.histogram)
    powers = range(low, high + 1)
    zeros = d.rows - sum(d.histogram.values())
    return figures.histogram(
        2.0 ** np.arange(low, high + 2),
        [d.histogram.get(k, 0) for k in powers],
        xlabel="weight: the target's probability over the logged one",
        ylabel="rows",
        title="Weights",
        xscale="log",
        note=f"{zeros:,} more rows have weight 0" if zeros else "",
    )
