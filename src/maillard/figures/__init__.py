"""Figures in a common style: functions that take arrays and return matplotlib figures.

Figures are created without pyplot, so no window opens and no global state changes. Most are panels: one pair
of axes, small enough for a phone, that a page places side by side.
"""

from __future__ import annotations

from maillard.figures.bar_charts import bars
from maillard.figures.distribution_charts import distributions, tails
from maillard.figures.forest_charts import forest
from maillard.figures.frontier_charts import frontier
from maillard.figures.histograms import histogram
from maillard.figures.line_charts import curves, sweep
from maillard.figures.probability_bars import probabilities
from maillard.figures.reference_lines import Reference
from maillard.figures.saving import save, standalone, svg
from maillard.figures.style import COLOURS, DASHES, GRID, INK, MARKERS, MUTED, PANEL

__all__ = [
    "COLOURS",
    "DASHES",
    "GRID",
    "INK",
    "MARKERS",
    "MUTED",
    "PANEL",
    "Reference",
    "bars",
    "curves",
    "distributions",
    "forest",
    "frontier",
    "histogram",
    "probabilities",
    "save",
    "standalone",
    "svg",
    "sweep",
    "tails",
]
