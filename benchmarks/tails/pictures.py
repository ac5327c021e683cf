"""The three pictures, each of small panels."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imsave

from benchmarks.tails import plan
from benchmarks.tails.cells import Cell, Study, rank
from benchmarks.tails.wording import label, title_of
from maillard import figures
from maillard.figures import style
from maillard.figures.axes_frame import draw_frame
from maillard.figures.axis_scales import axis_limits, set_scale
from maillard.figures.drawing import LINE_HEIGHT, draw_line, new_figure
from maillard.figures.labels import LegendEntry, draw_legend, legend_space
from maillard.figures.reference_lines import Reference, draw_inside_labels, draw_references
from maillard.reproduction.sections.panels import style_indices

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["draw"]

DPI = 160  # as figures.save


def draw(study: Study, folder: Path) -> None:
    """The three pictures, each of small panels."""
    folder.mkdir(parents=True, exist_ok=True)
    _tile([_frontier(study, problem) for problem in _side_by_side()], folder / "tails-frontier.png")
    _tile([_tail(study, problem) for problem in _side_by_side()], folder / "tails.png")
    _tile([_linear(study, noise) for noise in plan.noises()], folder / "tails-linear.png")


def _side_by_side() -> list[str]:
    """The problems such that those that differ in their noise alone are neighbours."""
    columns = [plan.with_noise(noise) for noise in plan.noises()]
    return [each for row in zip(*columns, strict=True) for each in row]


def _frontier(study: Study, problem: str) -> Figure:
    """Mean against deviation: a path over the booster, and a point for each other policy."""
    others = study.of(problem, plan.OTHERS)
    rows = [study.of(problem), *([cell] for cell in others)]
    shown = [plan.BOOSTED[2], *(cell.policy for cell in others)]
    return figures.frontier(
        ["MS+", *(label(cell.policy) for cell in others)],
        [[cell.mean for cell in row] for row in rows],
        [[cell.deviation for cell in row] for row in rows],
        [[str(booster) for booster in plan.BOOSTERS], *([""] for _ in others)],
        title=title_of(problem),
        xscale="log",
        yscale="log",
        style_indices=style_indices(shown, [plan.BOOSTED[2], *plan.OTHERS]),
    )


def _tail(study: Study, problem: str) -> Figure:
    """The share of trials above a regret, at the quantiles and at the largest, for every booster and for TS."""
    cells = [*study.of(problem), *study.of(problem, ["ts"])]
    # The booster is an amount: its colours are of one scale, dark to light, that has an order without red or
    # green cones too.
    scale = mpl.colormaps["plasma"](np.linspace(0.0, 0.82, len(plan.BOOSTERS)))
    colours = [*(mpl.colors.to_hex(each) for each in scale), style.MUTED]
    curves = [_points(cell) for cell in cells]
    with mpl.rc_context(style.RC):
        figure, axes = new_figure(style.PANEL)
        line = cells[0].line
        everything = np.concatenate([values for values, _ in curves])
        marked = line > float(everything.min())  # else all that is shown is above
        set_scale(axes, "x", "log", *axis_limits([*everything, *[line] * marked], "log", margin=0.08))
        bottom = 0.7 / max(cell.trials for cell in cells)
        set_scale(axes, "y", "log", bottom, 1.0)
        for (values, above), colour, marker in zip(curves, colours, style.MARKERS, strict=False):
            dash = "--" if colour == style.MUTED else "-"
            draw_line(
                axes,
                values,
                above,
                color=colour,
                marker=marker,
                linestyle=dash,
                linewidth=1.3,
                markersize=3.8,
            )
        _, inside = draw_references(axes, [Reference("linear", (line, line), (bottom, 1.0))] * marked)
        names = [label(cell.policy) for cell in cells]
        step = LINE_HEIGHT / 72 / style.PANEL[1] * 1.4
        ends = [
            LegendEntry(name, 1 - step * k, colour, "--" if colour == style.MUTED else "-", marker=marker)
            for k, (name, colour, marker) in enumerate(zip(names, colours, style.MARKERS, strict=False))
        ]
        draw_frame(
            figure,
            axes,
            title=title_of(problem),
            xlabel="regret",
            ylabel="share of trials with more",
            reserved=legend_space(axes, names),
        )
        draw_legend(axes, ends, leaders=False)
        draw_inside_labels(axes, inside)
    return figure


def _points(cell: Cell) -> tuple[Floats, Floats]:
    """Regrets and the shares of trials above them.

    Of the quantiles that so many trials have, and the largest with one trial's share.
    """
    seen = [q for q in plan.QUANTILES if rank(q, cell.trials) > 1]
    values = [*(cell.quantiles[q][0] for q in seen), cell.largest]
    return np.array(values), np.array([*(float(1 - Fraction(q)) for q in seen), 1 / cell.trials])


def _linear(study: Study, noise: str) -> Figure:
    """The probability of linear regret over the booster, with intervals.

    Of what never happened, the interval alone.
    """
    problems = plan.with_noise(noise)
    cells = [study.of(problem) for problem in problems]
    shares = np.array([[cell.share for cell in row] for row in cells])
    ends = np.array([[cell.linear_interval for cell in row] for row in cells])
    return figures.sweep(
        plan.BOOSTERS,
        [title_of(problem).partition(", ")[2] for problem in problems],
        np.where(shares > 0, shares, np.nan),
        np.maximum(ends[..., 0], 0.1 / study.trials),
        ends[..., 1],
        xlabel="booster B",
        label="probability of linear regret",
        title=title_of(problems[0]).partition(", ")[0],
        yscale="log",
        note=f"bars: {plan.CONFIDENCE:.0%} intervals; no mark: none of {study.trials:,} trials",
    )


def _tile(panels: Sequence[Figure], path: Path, *, columns: int = 2) -> None:
    """Panels side by side in one picture, on white."""
    pictures = []
    with mpl.rc_context(style.RC):
        for figure in panels:
            figure.set_dpi(DPI)
            figure.set_facecolor("white")
            drawn: Any = FigureCanvasAgg(figure)  # whose methods have no types
            drawn.draw()
            pictures.append(np.asarray(drawn.buffer_rgba())[..., :3])
    high, wide = (max(each.shape[axis] for each in pictures) for axis in (0, 1))
    sheet = np.full((high * -(-len(pictures) // columns), wide * columns, 3), 255, np.uint8)
    for i, each in enumerate(pictures):
        top, left = high * (i // columns), wide * (i % columns)
        sheet[top : top + each.shape[0], left : left + each.shape[1]] = each
    options: dict[str, Any] = {"metadata": {"Software": None}}
    imsave(path, sheet, dpi=DPI, **options)
