"""Figures of estimates: their intervals, those of segments, and the weights behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from maillard.array_types import Floats
from maillard.errors import CannotAnswer
from maillard.evaluation.diagnostics import Diagnostics
from maillard.evaluation.evaluation_report import Estimate, Estimates, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def level_text(confidence: float) -> str:
    """The confidence of an interval as a percentage."""
    return f"{100 * confidence:.4g}%"


def ends_of(result: Estimates) -> Floats:
    """The value and both ends of each estimate; NaN if there is none."""
    return _ends(list(result.values()))


def _ends(estimates: Sequence[Estimate | None]) -> Floats:
    rows = [(None,) * 3 if each is None else (each.value, each.lower, each.upper) for each in estimates]
    return np.array(rows, np.float64)


def draw_estimates(
    result: Estimates, span: tuple[float, float] | None = None, title: str = "Estimates"
) -> Figure:
    """A figure of the estimates with their intervals; the axis includes `span`."""
    if not result.answered:
        raise CannotAnswer("no estimator gave an estimate, so there is nothing to draw")
    best = result.best
    return draw_intervals(
        [(f"★ {name}" if each is best else name, each) for name, each in result.items()],
        is_difference=not isinstance(result, Report),
        title=f"{title} with {level_text(result.confidence)} intervals",
        span=span,
        note="" if best is None else "★: read this one first",
    )


def draw_intervals(
    named: Sequence[tuple[str, Estimate | None]],
    *,
    is_difference: bool,
    title: str,
    span: tuple[float, float] | None = None,
    note: str = "",
) -> Figure:
    """A figure of estimates with names; None is one that was refused."""
    from maillard import figures

    estimates = [each for _, each in named]
    sequences = [int(each is not None and each.anytime_valid) for each in estimates]
    marks = ["circle: valid at the end of the log"] * (0 in sequences)
    marks += ["square: valid at any time"] * (1 in sequences)
    hollow = [name for name, each in named if each is not None and each.caveat]
    marks += ["hollow: with a caveat"] * bool(hollow)
    return figures.forest(
        [name for name, _ in named],
        *_ends(estimates).T,
        label="difference in mean reward" if is_difference else "mean reward of a decision",
        title=title,
        style_indices=sequences,
        hollow=hollow,
        reference=0.0 if is_difference else None,
        span=span,
        note="; ".join([*marks, *filter(None, [note])]),
    )


def draw_weights(diagnostics: Diagnostics) -> Figure:
    """A histogram of the weights."""
    from maillard import figures

    counts = diagnostics.histogram
    if not counts:
        raise CannotAnswer("no row of the log has a weight above 0, so there is nothing to draw")
    low, high = min(counts), max(counts)
    zeros = diagnostics.rows - sum(counts.values())
    return figures.histogram(
        2.0 ** np.arange(low, high + 2),
        [counts.get(power, 0) for power in range(low, high + 1)],
        xlabel="weight: the target's probability over the logged one",
        ylabel="rows",
        title="Weights",
        xscale="log",
        note=f"{zeros:,} more rows have weight 0" if zeros else "",
    )
