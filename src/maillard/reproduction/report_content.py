"""What the report says, as data: sections with their pictures and tables, and the ledger of claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["VERDICTS", "ClaimResult", "DataTable", "Panel", "ReportSection", "ReproductionReport"]

# What can become of a claim. A claim is "not run" when the experiments that it needs were left out.
VERDICTS = ("holds", "fails", "open", "not run")


@dataclass(frozen=True)
class DataTable:
    """Numbers for people: columns, and a tuple for each row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...]
    title: str = ""  # where it does not stand under a picture or a claim


@dataclass(frozen=True)
class Panel:
    """A picture, what it shows for those who do not see it, and the numbers behind it."""

    name: str  # of its files: name.svg and name.png
    title: str
    alt: str
    figure: Any  # of matplotlib; None once it is drawn
    table: DataTable


@dataclass(frozen=True)
class ReportSection:
    """A part of the report; `beyond` marks what the paper does not have."""

    id: str
    title: str
    paragraphs: tuple[str, ...]
    panels: tuple[Panel, ...] = ()
    tables: tuple[DataTable, ...] = ()
    beyond: bool = False


@dataclass(frozen=True)
class ClaimResult:
    """A claim of the paper with what became of it."""

    id: str
    source: str  # where the paper says it
    quote: str
    reading: str  # what is tested, in our words
    test: str  # how
    statistic: str  # what came out
    verdict: str  # one of VERDICTS
    confidence: float | None  # None where nothing is left to chance
    trials_needed: int | None  # of an open claim: what to ask for with --trials, to settle it
    evidence: DataTable
    section: str | None  # the id of the section that shows it


@dataclass(frozen=True)
class ReproductionReport:
    """Everything on the page."""

    title: str
    lead: tuple[str, ...]  # the first paragraphs
    warning: str | None  # shown on top, such as that this run is smaller than the paper's
    sections: tuple[ReportSection, ...]
    claims: tuple[ClaimResult, ...]
    facts: Mapping[str, str]  # seed, trials, versions, ...
