"""The HTML report of the reproduction."""

from __future__ import annotations

from collections.abc import Mapping

from maillard.html_report import inline_figure, is_wide, render_page
from maillard.reproduction.report_content import VERDICTS, ReproductionReport

# The color class of base.css for each verdict.
_TONES = {"holds": "good", "fails": "bad", "open": "caution", "not run": "neutral"}


def render(report: ReproductionReport, svgs: Mapping[str, str]) -> str:
    """The HTML of the report; `svgs` maps the name of each panel to its drawing."""
    panels = [panel for section in report.sections for panel in section.panels]
    return render_page(
        "maillard.reproduction",
        "reproduction_page.html",
        report=report,
        drawings={panel.name: inline_figure(svgs[panel.name]) for panel in panels},
        wide={panel.name for panel in panels if is_wide(svgs[panel.name])},
        claims={verdict: [row for row in report.claims if row.verdict == verdict] for verdict in VERDICTS},
        classes={verdict: f"{verdict.replace(' ', '-')} {tone}" for verdict, tone in _TONES.items()},
        sections={section.id: section for section in report.sections},
    )
