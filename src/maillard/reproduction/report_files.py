"""The files of the report: results as Parquet and JSON, and the HTML page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maillard.reproduction import reproduction_page
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.output_folder import FORMAT, RESULTS
from maillard.reproduction.paper_experiments import ExperimentPart
from maillard.reproduction.report_content import ClaimResult, ReproductionReport
from maillard.simulation import Result
from maillard.simulation.plans import versions
from maillard.simulation.result_files import pyarrow


def write_results(results: ExperimentResults, claims: Sequence[ClaimResult], folder: Path) -> None:
    """Write all trials, curves, summaries and claims. The same seed gives the same bytes."""
    _write_parquet(results, _trials, folder / "trials.parquet")
    _write_parquet(results, _curves, folder / "curves.parquet")
    write_json([dataclasses.asdict(row) for row in claims], folder / "claims.json")
    parts = []
    for part, result in results.parts.items():
        more = {"policies": result.provenance["policies"], "summary": result.summary()}
        parts.append(dataclasses.asdict(part) | more)
    settings = dataclasses.asdict(results.settings)
    content = {"format": FORMAT, "settings": settings, "versions": versions(), "parts": parts}
    write_json(content, folder / RESULTS)


def write_json(content: Any, path: Path) -> None:
    """Write an indented JSON file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


def _write_parquet(
    results: ExperimentResults, columns: Callable[[Any, ExperimentPart, Result], dict[str, Any]], path: Path
) -> None:
    pa, pq = pyarrow()
    tables = [pa.table(columns(pa, part, result)) for part, result in results.parts.items()]
    with path.open("wb") as file:  # pyarrow cannot open every file name that Python can
        pq.write_table(pa.concat_tables(tables).unify_dictionaries(), file, compression="zstd")


def _trials(pa: Any, part: ExperimentPart, result: Result) -> dict[str, Any]:
    """One row per trial: its final regret and its pulls of each arm."""
    count, trials, arms = result.pulls.shape
    pulls = result.pulls.reshape(-1)
    offsets = np.arange(0, pulls.size + 1, arms, dtype=np.int32)
    return {
        "experiment": pa.array([part.experiment] * (count * trials)).dictionary_encode(),
        "problem": pa.array([part.problem] * (count * trials)).dictionary_encode(),
        "policy": pa.array(np.repeat(result.policies, trials)).dictionary_encode(),
        "trial": pa.array(np.tile(np.arange(trials), count)),
        "regret": pa.array(result.values[:, :, -1].ravel()),
        "pulls": pa.ListArray.from_arrays(pa.array(offsets), pa.array(pulls)),
    }


def _curves(pa: Any, part: ExperimentPart, result: Result) -> dict[str, Any]:
    """One row per checkpoint and policy: mean, deviation, quantiles and maximum over trials."""
    count, points = len(result.policies), result.rounds.size
    low, half, high = result.quantile([0.05, 0.5, 0.95])
    return {
        "experiment": pa.array([part.experiment] * (count * points)),
        "problem": pa.array([part.problem] * (count * points)),
        "policy": pa.array(np.repeat(result.policies, points)),
        "round": pa.array(np.tile(result.rounds, count)),
        "mean": pa.array(result.mean.ravel()),
        "deviation": pa.array(result.sd.ravel()),
        "5%": pa.array(low.ravel()),
        "median": pa.array(half.ravel()),
        "95%": pa.array(high.ravel()),
        "max": pa.array(result.max.ravel()),
    }


def write_page(report: ReproductionReport, svgs: Mapping[str, str], folder: Path) -> None:
    """Write the HTML page with its inline figures."""
    (folder / "index.html").write_text(reproduction_page.render(report, svgs), encoding="utf8")
