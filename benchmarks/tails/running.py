"""Run the missing cells. This module does not need the libraries for pictures and pages."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import maillard
from benchmarks.tails import plan
from benchmarks.tails.cells import Cell, Study, rounds_per_second, summary, with_error, write
from maillard.problems import problem as problem_of

if TYPE_CHECKING:
    from pathlib import Path


def run(study: Study, path: Path, device: str, *, until: float = math.inf) -> None:
    """Run the missing cells one by one, and save each when it is finished.

    `until` is a time of `time.monotonic` after which no cell is started.
    """
    horizon, seed = (study.settings[name] for name in ("horizon", "seed"))
    for problem, spec in study.missing():
        if time.monotonic() >= until:
            return
        trials = plan.trials_of(problem, spec, study.settings)
        result = maillard.simulate(
            [spec],
            problem,
            horizon,
            trials,
            seed=seed,
            device=device,
            keep="summary",
            checkpoints=[horizon],
            progress=False,
        )
        worst = horizon * float(problem_of(problem).gaps.max())
        seconds = result.provenance["seconds"]
        cell = Cell(problem, spec, **summary(result.final_regret[0], worst), seconds=seconds)
        study.cells[problem, spec] = cell
        devices = [*study.settings.get("devices", []), str(result.provenance.get("device", device))]
        study.settings["devices"] = list(dict.fromkeys(devices))
        write(study, path)
        print(_progress_line(cell, horizon), flush=True)


def _progress_line(cell: Cell, horizon: int) -> str:
    return (
        f"{cell.policy:15} {cell.problem:32} {with_error(cell.mean, cell.error)}, sd {cell.deviation:.4g}, "
        f"P(linear) {cell.linear_fraction:.3g}, {cell.seconds:.1f} s, "
        f"{rounds_per_second([cell], horizon):.3g} rounds/s"
    )
