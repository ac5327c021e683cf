"""Drawing only: arrays in, matplotlib figures out, in one house look.

Figures are made without pyplot, so that no window and no global state is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["COLOURS", "curves", "distributions", "save"]

COLOURS = (
    "#0b3c5d",
    "#c1440e",
    "#3a7d44",
    "#8f6fb0",
    "#d4a017",
    "#1b9aaa",
    "#7f7f7f",
    "#b23a6b",
    "#5c4033",
    "#93c47d",
)
_DASHES = ("-", "--", ":", "-.")
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "svg.hashsalt": "maillard",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.titlesize": 11,
    "axes.titlecolor": "#444444",
}


def curves(
    rounds: NDArray[np.int64],
    names: Sequence[str],
    middle: Floats,
    low: Floats,
    high: Floats,
    *,
    label: str,
    title: str = "",
) -> Figure:
    """One curve for each name, with a band; rounds on a logarithmic axis."""
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(8.6, 4.8)
        for i in range(len(names)):
            colour, dash = _style(i)
            axes.fill_between(rounds, low[i], high[i], color=colour, alpha=0.12, linewidth=0)
            axes.plot(rounds, middle[i], color=colour, linestyle=dash, linewidth=2.0)
        axes.set(xscale="log", xlim=(rounds[0], rounds[-1]), xlabel="round", ylabel=label, title=title)
        axes.set_ylim(bottom=0.0)
        _name_ends(axes, names, middle[:, -1])
    return figure


def distributions(names: Sequence[str], values: Floats, *, label: str, title: str = "") -> Figure:
    """How the values of each name are spread: every one as a dot, the quartiles as a box, the mean as a line."""
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(8.6, 1.2 + 0.62 * len(names))
        shown = np.unique(
            np.linspace(0, values.shape[1] - 1, 1000).astype(np.int64)
        )  # at most a thousand dots
        jitter = np.random.default_rng(0).uniform(-0.24, 0.24, shown.size)
        for i in range(len(names)):
            colour, _ = _style(i)
            quarter, half, three = np.quantile(values[i], [0.25, 0.5, 0.75])
            axes.plot(
                values[i][shown],
                i + jitter,
                ".",
                color=colour,
                alpha=0.35,
                markersize=4,
                markeredgewidth=0,
            )
            axes.barh(i, three - quarter, 0.6, quarter, color=colour, alpha=0.22, edgecolor=colour)
            axes.plot([half, half], [i - 0.3, i + 0.3], color=colour, linewidth=2.2)
            axes.plot(values[i].mean(), i, "D", color="white", markeredgecolor=colour, markersize=6)
        spread = values.max() > 20 * max(np.median(values), 1e-12) and values.min() > 0
        axes.set(yticks=range(len(names)), yticklabels=names, xlabel=label, title=title)
        axes.set_xscale("log" if spread else "linear")
        if not spread:
            axes.set_xlim(left=min(0.0, float(values.min())))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        figure.supxlabel(
            "box: quartiles   bar: median   diamond: mean   dots: trials", fontsize=8, color="#777777"
        )
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure; the same figure gives the same bytes."""
    metadata = {".svg": {"Date": None}, ".png": {"Software": None}}.get(Path(path).suffix)
    with mpl.rc_context(_STYLE):
        figure.savefig(path, dpi=160, metadata=metadata, bbox_inches="tight")


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _style(place: int) -> tuple[str, str]:
    return COLOURS[place % len(COLOURS)], _DASHES[place // len(COLOURS) % len(_DASHES)]


def _name_ends(axes: Axes, names: Sequence[str], ends: Floats) -> None:
    """Names at the right ends of curves, in their order, moved apart where they would overlap."""
    top = float(axes.get_ylim()[1])
    step, last = 0.052 * top, -np.inf
    order = np.argsort(ends)
    excess = max(0.0, step * len(names) - top)  # more names than room: begin lower
    for i in order:
        last = max(float(ends[i]), last + step) if np.isfinite(last) else float(ends[i]) - excess
        axes.annotate(
            names[i], (1.0, last / top), xytext=(6, 0), xycoords="axes fraction", textcoords="offset points", va="center",
            color=_style(int(i))[0], fontsize=9.5, annotation_clip=False,
        )  # fmt: skip
