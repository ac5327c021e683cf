"""The base template, style and helpers of the HTML reports: self-contained pages without scripts."""

from __future__ import annotations

from maillard.html_report.page_rendering import inline_figure, is_wide, page_environment, render_page

__all__ = ["inline_figure", "is_wide", "page_environment", "render_page"]
