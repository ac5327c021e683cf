"""The content of the report as data: sections with figures and tables, and the claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# A claim is "not run" if an experiment that it needs was left out.
VERDICTS = ("holds", "fails", "open", "not run")


@dataclass(frozen=True)
class DataTable:
    """A table of the report."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""  # not needed below a figure or a claim

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, object]], title: str = "") -> DataTable:
        """A table from rows that map columns to values."""
        return cls(tuple(rows[0]), tuple(tuple(row.values()) for row in rows), title)


@dataclass(frozen=True)
class Panel:
    """A figure with its alternative text and the numbers behind it."""

    name: str  # of the files name.svg and name.png
    title: str
    alt: str
    figure: Any  # a matplotlib figure; None after it was drawn
    table: DataTable


@dataclass(frozen=True)
class ReportSection:
    """A section of the report; `beyond` marks what is not in the paper."""

    id: str
    title: str
    paragraphs: tuple[str, ...]
    panels: tuple[Panel, ...] = ()
    tables: tuple[DataTable, ...] = ()
    beyond: bool = False


@dataclass(frozen=True)
class ClaimResult:
    """A claim of the paper with the result of its test."""

    id: str
    source: str  # the section of the paper
    quote: str
    reading: str  # the statement that is tested
    test: str  # the statistical method
    statistic: str  # the result
    verdict: str  # one of VERDICTS
    confidence: float | None  # None if nothing is estimated
    trials_needed: int | None  # the --trials that would decide an open claim
    evidence: DataTable
    section: str | None  # the id of the section that shows it


@dataclass(frozen=True)
class ReproductionReport:
    """The whole report."""

    title: str
    lead: tuple[str, ...]  # the first paragraphs
    warning: str | None  # shown at the top, for example if the run is smaller than the paper's
    sections: tuple[ReportSection, ...]
    claims: tuple[ClaimResult, ...]
    facts: Mapping[str, str]  # seed, trials, versions, ...
