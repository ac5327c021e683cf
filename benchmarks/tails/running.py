"""Running what is missing: it needs nothing that draws or writes pages."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import maillard
from benchmarks.tails import plan
from benchmarks.tails.cells import Cell, Study, speed, summary, with_error, write
from maillard.problems import problem as problem_of

if TYPE_CHECKING:
    from pathlib import Path


def run(study: Study, path: Path, device: str, *, until: float = math.inf) -> None:
    """Run what is missing, one cell after another, and keep each as it is done.

    From a time of the clock on, start none.
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
        used = [*study.settings.get("devices", []), str(result.provenance.get("device", device))]
        study.settings["devices"] = list(dict.fromkeys(used))
        write(study, path)
        print(_said(cell, horizon), flush=True)


def _said(cell: Cell, horizon: int) -> str:
    return (
        f"{cell.policy:15} {cell.problem:32} {with_error(cell.mean, cell.error)}, sd {cell.deviation:.4g}, "
        f"P(linear) {cell.share:.3g}, {cell.seconds:.1f} s, {speed([cell], horizon):.3g} rounds/s"
    )
