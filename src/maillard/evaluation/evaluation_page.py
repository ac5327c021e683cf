"""A report as one page of HTML that needs nothing else: style and figures are in it, and no script.

All that comes from a log (names of arms, of experiments, of files) goes through one filter and jinja2's escaping; figures show none
of it. Their colours become CSS variables, so that a dark screen gets figures in light ink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.files.output_files import atomic_file, check_report_path
from maillard.errors import InvalidValue, MaillardError
from maillard.evaluation.comparing import Comparison
from maillard.evaluation.estimate_formatting import decimals_of, grouped
from maillard.evaluation.evaluation_report import Estimate, Report

if TYPE_CHECKING:
    from maillard.evaluation.diagnostics import Diagnostics

__all__ = ["render", "write_page"]

_FIGURES = {"forest": "Estimates with their intervals", "weights": "How the weights are spread"}


def write_page(
    reports: Report | Comparison | Sequence[Report | Comparison],
    path: str | Path,
    facts: Mapping[str, str] | None = None,
) -> None:
    """Write what `evaluate`, `evaluate_each` or `compare` found as a page; `facts` are shown at its end, by their names."""
    given = [reports] if isinstance(reports, Report | Comparison) else list(reports)
    sources = [each.source if isinstance(each, Report) else each.first.source for each in given]
    check_report_path(Path(path), sources)
    text = render(given, facts)
    with atomic_file(Path(path)) as partial:
        partial.write_text(text, encoding="utf8")


def render(
    reports: Report | Comparison | Sequence[Report | Comparison], facts: Mapping[str, str] | None = None
) -> str:
    """The page's text."""
    given = [reports] if isinstance(reports, Report | Comparison) else list(reports)
    if not given:
        raise InvalidValue("reports", given, "at least one report")
    environment = _environment()
    drawing = _Drawing()
    sections = [section for each in given for section in _sections(each)]
    first = given[0].first if isinstance(given[0], Comparison) else given[0]
    shown = {
        f"{kind}{place}": drawing(
            figure, f"{kind}{place}", f"{_FIGURES[kind]}; the numbers are in the tables below"
        )
        for place, section in enumerate(sections)
        for kind, figure in (
            ("forest", _forest(section, _span(sections, section))),
            ("weights", _weights(section)),
        )
        if figure is not None
    }
    text: str = environment.get_template("evaluation_page.html").render(
        report=first,
        question=_question(sections),
        sections=sections,
        drawings=shown,
        figures=_FIGURES,
        overlap=_overlap(given),
        assumptions=grouped(
            (each.name, each.assumes) for section in sections for each in section.estimates.values()
        ),
        facts=facts or {},
        inks=drawing.inks,
    )
    return text


@dataclass(frozen=True, eq=False, kw_only=True)
class Section:
    """What the page says of one target, or of a difference."""

    title: str
    words: str
    "The question, as one would ask it."
    estimates: Mapping[str, Estimate]
    confidence: float
    best: str | None
    "The estimator to read first."
    diagnostics: Diagnostics | None = None
    "None of a difference: it has those of both targets."

    @property
    def refusals(self) -> list[tuple[str, str]]:
        """Why there is no answer, and from which estimators."""
        return grouped((each.name, each.refusal or "") for each in self.estimates.values())

    @property
    def caveats(self) -> list[tuple[str, str]]:
        """What is not known, and of whose intervals."""
        return grouped((each.name, each.caveat) for each in self.estimates.values())

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The answers: estimator, value, both ends, standard error, level, kind of interval."""
        digits = decimals_of(self.estimates.values())

        def written(value: float | None, more: int = 0) -> str:
            return "–" if value is None else f"{value:,.{digits + more}f}".replace("-", "−")

        return [
            (
                each.name,
                *map(written, (each.value, each.lower, each.upper)),
                written(each.standard_error, 1),
                "–" if each.level is None else f"{each.level:g}",
                each.interval,
            )
            for each in self.estimates.values()
            if each.value is not None
        ]

    @property
    def answered(self) -> bool:
        """Whether there is any answer."""
        return any(each.value is not None for each in self.estimates.values())


def _sections(given: Report | Comparison) -> list[Section]:
    if isinstance(given, Comparison):
        one, other = given.first, given.second
        difference = Section(
            title=f"{one.target} minus {other.target}",
            words=f"How much more reward would a decision have had with {_chosen(one)} than with {_chosen(other)}?",
            estimates=given.estimates,
            confidence=given.confidence,
            best=None if given.best is None else given.best.name,
        )
        both = f"The intervals are such that those of both targets hold together {100 * given.confidence:.4g}% of the time."
        return [
            difference,
            *(
                replace(each, words=f"{each.words} {both}")
                for part in (one, other)
                for each in _sections(part)
            ),
        ]
    return [
        Section(
            title=given.target,
            words=f"How much reward would a decision have had with {_chosen(given)}?",
            estimates=given.estimates,
            confidence=given.confidence,
            best=None if given.best is None else given.best.name,
            diagnostics=given.diagnostics,
        )
    ]


def _chosen(report: Report) -> str:
    """What a target chooses, in words."""
    laws, arms = report.facts.target.laws, report.facts.arms
    if len(laws) > 1:
        return report.target
    law, most = laws[0], 6
    if (law == law[0]).all() and len(arms) > 1:
        return f"each of the {len(arms):,} arms equally often"
    places = np.flatnonzero(law)
    if places.size == 1:
        return f"“{arms[places[0]]}” every time"
    if places.size > most:
        return report.target
    return " and ".join(f"“{arms[place]}” {law[place]:.4g} of the time" for place in places)


def _question(sections: Sequence[Section]) -> str:
    return (
        sections[0].words
        if len(sections) == 1 or sections[0].diagnostics is None
        else "What would other choices have earned?"
    )


def _overlap(given: Sequence[Report | Comparison]) -> list[dict[str, object]]:
    """That of the log: all targets share it."""
    first = given[0].first if isinstance(given[0], Comparison) else given[0]
    return first.diagnostics.overlap


def _span(sections: Sequence[Section], section: Section) -> tuple[float, float] | None:
    """What the axes of all targets show, so that they can be compared by eye; each difference has its own."""
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


def _forest(section: Section, span: tuple[float, float] | None) -> Any:
    """The estimates with their intervals; None where there is none."""
    from maillard import figures

    if not section.answered:
        return None
    estimates = list(section.estimates.values())
    ends = [
        [np.nan if end is None else end for end in (each.value, each.lower, each.upper)] for each in estimates
    ]
    kinds = [("sequence" in each.interval) + 0 for each in estimates]
    marks = ["circle: holds at the end of the log"] * (0 in kinds) + ["square: at every row"] * (1 in kinds)
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
        style_indices=kinds,
        hollow=hollow,
        reference=0.0 if difference else None,
        span=span,
        note="; ".join(marks),
    )


def _weights(section: Section) -> Any:
    """How the weights are spread; None where there are none."""
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


class _Drawing:
    """Figures as elements of a page, with variables for colours; the only thing on the page that is not escaped."""

    def __init__(self) -> None:
        from maillard.figures import COLOURS, GRID, INK, MUTED

        self.inks = {"--ink": INK, "--muted": MUTED, "--grid": GRID}
        self.inks |= {f"--c{place}": colour for place, colour in enumerate(COLOURS)}
        names = {colour.lower(): name for name, colour in reversed(self.inks.items())}
        self._names = names
        self._pattern = re.compile(f"({'|'.join(names)})(?![0-9a-f])", re.IGNORECASE)

    def __call__(self, figure: Any, name: str, says: str) -> Any:
        from markupsafe import Markup

        from maillard.figures import svg

        element = svg(figure, prefix=f"{name}-", title=says)
        return Markup(self._pattern.sub(lambda match: f"var({self._names[match[0].lower()]})", element))


def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MaillardError(f"a page needs {error.name}: pip install 'maillard[evaluation]'") from None
    made = Environment(
        loader=PackageLoader("maillard.evaluation", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=_number)
    return made


def _visible(value: Any) -> Any:
    """Text without what is not seen and yet changes what is: control characters, marks of direction, halves of pairs."""
    if type(value) is not str or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in value)


def _number(value: float | int | None, digits: int = 4) -> str:
    """A number to read.

    >>> _number(None), _number(12345), _number(0.123456), _number(1234567.8), _number(-0.5)
    ('–', '12,345', '0.1235', '1,234,568', '−0.5')
    """
    if value is None or value != value:  # noqa: PLR0124  # NaN
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return (f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}").replace("-", "−")
