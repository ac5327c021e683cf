"""The files of the report: results as Parquet and JSON, and the HTML page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maillard.reproduction import reproduction_page
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.output_folder import FORMAT, RESULTS
from maillard.reproduction.report_content import ClaimResult, ReproductionReport
from maillard.simulation.plans import versions
from maillard.simulation.result_files import pyarrow


def write_results(results: ExperimentResults, claims: Sequence[ClaimResult], folder: Path) -> None:
    """Write all trials, curves, summaries and claims. The same seed gives the same bytes."""
    _write_trials(results, folder / "trials.parquet")
    _write_curves(results, folder / "curves.parquet")
    write_json([dataclasses.asdict(row) for row in claims], folder / "claims.json")
    content = {
        "format": FORMAT,
        "settings": dataclasses.asdict(results.settings),
        "versions": versions(),
        "parts": [
            {
                **dataclasses.asdict(part),
                "policies": result.provenance["policies"],
                "summary": result.summary(),
            }
            for part, result in results.parts.items()
        ],
    }
    write_json(content, folder / RESULTS)


def write_json(content: Any, path: Path) -> None:
    """Write an indented JSON file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


def _write_trials(results: ExperimentResults, path: Path) -> None:
    """One row per trial: its final regret and its pulls of each arm."""
    pa, pq = pyarrow()
    tables = []
    for part, result in results.parts.items():
        count, trials, arms = result.pulls.shape
        pulls = result.pulls.reshape(-1)
        offsets = np.arange(0, pulls.size + 1, arms, dtype=np.int32)
        columns = {
            "experiment": pa.array([part.experiment] * (count * trials)).dictionary_encode(),
            "problem": pa.array([part.problem] * (count * trials)).dictionary_encode(),
            "policy": pa.array(np.repeat(result.policies, trials)).dictionary_encode(),
            "trial": pa.array(np.tile(np.arange(trials), count)),
            "regret": pa.array(result.values[:, :, -1].ravel()),
            "pulls": pa.ListArray.from_arrays(pa.array(offsets), pa.array(pulls)),
        }
        tables.append(pa.table(columns))
    with path.open("wb") as file:  # pyarrow cannot open every file name that Python can
        pq.write_table(pa.concat_tables(tables).unify_dictionaries(), file, compression="zstd")


def _write_curves(results: ExperimentResults, path: Path) -> None:
    """One row per checkpoint and policy: mean, deviation, quantiles and maximum over trials."""
    pa, pq = pyarrow()
    tables = []
    for part, result in results.parts.items():
        count, points = len(result.policies), result.rounds.size
        low, half, high = result.quantile([0.05, 0.5, 0.95])
        columns = {
            "experiment": [part.experiment] * (count * points),
            "problem": [part.problem] * (count * points),
            "policy": np.repeat(result.policies, points),
            "round": np.tile(result.rounds, count),
            "mean": result.mean.ravel(),
            "deviation": result.sd.ravel(),
            "5%": low.ravel(),
            "median": half.ravel(),
            "95%": high.ravel(),
            "max": result.max.ravel(),
        }
        tables.append(pa.table({name: pa.array(values) for name, values in columns.items()}))
    with path.open("wb") as file:
        pq.write_table(pa.concat_tables(tables), file, compression="zstd")


def write_page(report: ReproductionReport, svgs: Mapping[str, str], folder: Path) -> None:
    """Write the HTML page with its inline figures."""
    (folder / "index.html").write_text(reproduction_page.render(report, svgs), encoding="utf8")
