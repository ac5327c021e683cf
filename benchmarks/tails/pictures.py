"""Draw the three pictures of docs/explanation/tails.md, each with several panels."""

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
from maillard import figures
from maillard.figures import style
from maillard.figures.axis_scales import axis_limits, set_scale
from maillard.figures.drawing import LINE_HEIGHT, draw_line, new_figure
from maillard.figures.labels import LegendEntry, draw_frame_with_legend
from maillard.figures.reference_lines import Reference, draw_references
from maillard.reproduction.paper_experiments import label
from maillard.reproduction.sections.panels import style_indices, title_of

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DPI = 160  # the value of figures.save


def draw(study: Study, folder: Path) -> None:
    """Draw the three pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _tile([_frontier(study, problem) for problem in _paired_problems()], folder / "tails-frontier.png")
    _tile([_tail(study, problem) for problem in _paired_problems()], folder / "tails.png")
    _tile([_linear(study, noise) for noise in plan.noises()], folder / "tails-linear.png")


def _paired_problems() -> list[str]:
    """Return the problems, with those that differ only in their noise next to each other."""
    columns = [plan.with_noise(noise) for noise in plan.noises()]
    return [each for row in zip(*columns, strict=True) for each in row]


def _frontier(study: Study, problem: str) -> Figure:
    """Draw mean against standard deviation: a path over the boosters and a point for each other policy."""
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
    """Draw the fraction of trials above a regret, for every booster and for TS."""
    cells = [*study.of(problem), *study.of(problem, ["ts"])]
    # The booster is a quantity, so its colours come from one scale from dark to light. Colour-blind readers
    # see the same order.
    scale = mpl.colormaps["plasma"](np.linspace(0.0, 0.82, len(plan.BOOSTERS)))
    colours = [*(mpl.colors.to_hex(each) for each in scale), style.MUTED]
    curves = [_points(cell) for cell in cells]
    with mpl.rc_context(style.RC):
        figure, axes = new_figure(style.PANEL)
        line = cells[0].linear_threshold
        everything = np.concatenate([values for values, _ in curves])
        marked = line > float(everything.min())  # otherwise everything shown is above the line
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
        draw_frame_with_legend(
            figure,
            axes,
            ends,
            inside,
            leaders=False,
            title=title_of(problem),
            xlabel="regret",
            ylabel="fraction of trials with a larger regret",
        )
    return figure


def _points(cell: Cell) -> tuple[Floats, Floats]:
    """Return regrets and the fractions of trials above them.

    These are the quantiles below the largest regret, then the largest regret at the fraction of one trial.
    """
    below = [q for q in plan.QUANTILES if rank(q, cell.trials) > 1]
    values = [*(cell.quantiles[q][0] for q in below), cell.largest]
    return np.array(values), np.array([*(float(1 - Fraction(q)) for q in below), 1 / cell.trials])


def _linear(study: Study, noise: str) -> Figure:
    """Draw the probability of linear regret against the booster, with intervals.

    Where no trial was linear, only the interval is drawn.
    """
    problems = plan.with_noise(noise)
    cells = [study.of(problem) for problem in problems]
    fractions = np.array([[cell.linear_fraction for cell in row] for row in cells])
    ends = np.array([[cell.linear_interval for cell in row] for row in cells])
    return figures.sweep(
        plan.BOOSTERS,
        [title_of(problem).partition(", ")[2] for problem in problems],
        np.where(fractions > 0, fractions, np.nan),
        np.maximum(ends[..., 0], 0.1 / study.trials),
        ends[..., 1],
        xlabel="booster B",
        label="probability of linear regret",
        title=title_of(problems[0]).partition(", ")[0],
        yscale="log",
        note=f"bars: {plan.CONFIDENCE:.0%} intervals; no mark: none of {study.trials:,} trials",
    )


def _tile(panels: Sequence[Figure], path: Path, *, columns: int = 2) -> None:
    """Save panels side by side in one picture on a white background."""
    pictures = []
    with mpl.rc_context(style.RC):
        for figure in panels:
            figure.set_dpi(DPI)
            figure.set_facecolor("white")
            canvas: Any = FigureCanvasAgg(figure)  # its methods have no type annotations
            canvas.draw()
            pictures.append(np.asarray(canvas.buffer_rgba())[..., :3])
    high, wide = (max(each.shape[axis] for each in pictures) for axis in (0, 1))
    sheet = np.full((high * -(-len(pictures) // columns), wide * columns, 3), 255, np.uint8)
    for i, each in enumerate(pictures):
        top, left = high * (i // columns), wide * (i % columns)
        sheet[top : top + each.shape[0], left : left + each.shape[1]] = each
    options: dict[str, Any] = {"metadata": {"Software": None}}
    imsave(path, sheet, dpi=DPI, **options)
