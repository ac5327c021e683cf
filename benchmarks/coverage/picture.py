"""The figure of docs/explanation/coverage.md: the fraction of intervals that miss the true value."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.coverage.cell_simulation import Outcome
from benchmarks.coverage.cells import Cell
from benchmarks.coverage.methods import METHODS, NAIVE, SEQUENCES, WEIGHTED

__all__ = ["draw"]


def draw(outcomes: dict[Cell, Outcome], path: Path) -> None:
    """The fraction of intervals that miss: a dot for each logger, problem, floor, arm and horizon."""
    from maillard import figures

    names = [*NAIVE, *WEIGHTED, *SEQUENCES]
    values = [
        np.concatenate(
            [100 * (1 - out.covered[:, :, METHODS.index(name)]).ravel() for out in outcomes.values()]
        )
        for name in names
    ]
    checked = [
        np.concatenate([100 * out.ever[:, :, kind].ravel() for out in outcomes.values()])
        for kind in range(len(NAIVE))
    ]
    figure = figures.distributions(
        [*(f"{name}, checked every row" for name in NAIVE), *names],
        np.array([*checked, *values]),
        label="intervals that miss the true value, % (10 are allowed)",
        title="How often a 90% interval misses",
        style_indices=[8, 8, 8, 8, 0, 1, 2, 3, 4, 5, 6],
        note=(
            "dots: a logger, problem, floor, arm and number of rows each; box: quartiles, line: median, "
            "diamond: mean"
        ),
    )
    figures.save(figure, path)
