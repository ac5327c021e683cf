"""The HTML report of an evaluation.

Everything that comes from a log (names of arms, experiments and files) is escaped by `maillard.html_report`;
figures contain none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maillard.decisions.files.output_files import atomic_file, check_report_path
from maillard.errors import InvalidValue
from maillard.evaluation.comparing import Comparison
from maillard.evaluation.diagnostics import Diagnostics
from maillard.evaluation.estimate_display import estimate_rows, verdict
from maillard.evaluation.estimate_figures import draw_estimates, draw_weights, ends_of
from maillard.evaluation.evaluation_report import Report, grouped

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
            (each.name, each.assumes) for section in sections for each in section.result.values()
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


@dataclass(frozen=True, eq=False)
class ResultSection:
    """The section of the page about one target, or about the difference of two."""

    result: Report | Comparison
    description: str
    "The question that the section answers."

    @property
    def diagnostics(self) -> Diagnostics | None:
        """None for a difference."""
        return self.result.diagnostics if isinstance(self.result, Report) else None

    @property
    def verdict(self) -> str:
        """Which of two targets is better; "" for one target."""
        return verdict(self.result)

    def texts(self, field: str) -> list[tuple[str, str]]:
        """The texts of the estimates in this field, each with the names of the estimators that share it."""
        return grouped((each.name, getattr(each, field) or "") for each in self.result.values())

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rows of the table: estimator, value, both ends, standard error, level and type of the interval."""
        return estimate_rows(self.result)


def _sections(given: Report | Comparison) -> list[ResultSection]:
    if isinstance(given, Report):
        target = _describe_target(given)
        return [ResultSection(given, f"How much reward would a decision have had with {target}?")]
    first, second = _describe_target(given.first), _describe_target(given.second)
    question = f"How much more reward would a decision have had with {first} than with {second}?"
    joint = f"Both intervals together have a confidence of {100 * given.confidence:.4g}%."
    targets = [section for report in (given.first, given.second) for section in _sections(report)]
    joined = [replace(each, description=f"{each.description} {joint}") for each in targets]
    return [ResultSection(given, question), *joined]


def _describe_target(report: Report) -> str:
    """What a target chooses, in words."""
    targets, arms = report.evidence.target.probabilities, report.evidence.log.arms
    if len(targets) > 1 or report.evidence.log.action_names is not None:
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


def _drawings(sections: Sequence[ResultSection]) -> dict[str, Any]:
    """The figures of all sections as elements of the page."""
    from maillard.figures import svg
    from maillard.html_report import inline_figure

    ends = np.concatenate([ends_of(each.result) for each in sections if each.diagnostics is not None])
    axis = None if np.isnan(ends).all() else (float(np.nanmin(ends)), float(np.nanmax(ends)))
    drawings = {}
    for place, section in enumerate(sections):
        # All targets share the limits of the axis; a difference has its own.
        span = None if section.diagnostics is None else axis
        forest = draw_estimates(section.result, span) if section.result.answered else None
        for name, figure in (("forest", forest), ("weights", _weights(section))):
            if figure is not None:
                title = f"{_FIGURE_TITLES[name]}; the numbers are in the tables below"
                drawings[f"{name}{place}"] = inline_figure(svg(figure, prefix=f"{name}{place}-", title=title))
    return drawings


def _weights(section: ResultSection) -> Any:
    """A histogram of the weights; None if there are none."""
    diagnostics = section.diagnostics
    return None if diagnostics is None or not diagnostics.histogram else draw_weights(diagnostics)
