"""Writes results to files that other programs read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidValue, MaillardError
from maillard.simulation.result import Outcome, Result

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write(result: Outcome, path: str | Path) -> None:
    """Write a result in the format given by the file name's suffix.

    .npz has everything and is read by `Result.load`; .json has the summary and the curves; .csv and .parquet
    have one row per trial, with the pulls of each arm; .png and .svg show the curves, or the final
    distributions if the name contains "distributions". A `Summary` has no individual trials, so it cannot be
    written as .npz, .csv or .parquet.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise InvalidValue("output", str(path), "a file name that ends in " + ", ".join(FORMATS))
    if not isinstance(result, Result) and path.suffix not in SUMMARY_FORMATS:
        raise InvalidValue(
            "output of a summary", str(path), "a file name that ends in " + ", ".join(SUMMARY_FORMATS)
        )
    FORMATS[path.suffix](result, path)


def _json(result: Outcome, path: Path) -> None:
    low, high = result.quantile([0.05, 0.95])
    curves = {"mean": result.mean, "sd": result.sd, "5%": low, "95%": high, "max": result.max}
    content = {
        "provenance": result.provenance,
        "measure": result.measure,
        "summary": result.summary(),
        "rounds": result.rounds.tolist(),
        "curves": {
            name: {key: values[i].tolist() for key, values in curves.items()}
            for i, name in enumerate(result.policies)
        },
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf8")


def _csv(result: Result, path: Path) -> None:
    arms = result.pulls.shape[2]
    with path.open("w", newline="", encoding="utf8") as file:
        out = csv.writer(file)
        out.writerow(["policy", "trial", result.measure, *(f"pulls_{arm}" for arm in range(arms))])
        for name, finals, pulls in zip(result.policies, result.final, result.pulls, strict=True):
            for trial, final in enumerate(finals.tolist()):
                out.writerow([name, trial, final, *pulls[trial].tolist()])


def pyarrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MaillardError("writing Parquet needs pyarrow: pip install 'maillard[simulation]'") from None
    return pyarrow, pyarrow.parquet


def list_column(values: NDArray[Any]) -> Any:
    """Return a Parquet column of lists: the rows of an array; of lists of lists for three dimensions."""
    pa, _ = pyarrow()
    column = pa.array(values.ravel())
    for size in values.shape[:0:-1]:
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def _parquet(result: Result, path: Path) -> None:
    pa, pq = pyarrow()
    policies, trials, _ = result.pulls.shape
    columns = {
        "policy": np.repeat(result.policies, trials),
        "trial": np.tile(np.arange(trials), policies),
        result.measure: result.final.ravel(),
        "pulls": list_column(result.pulls.reshape(policies * trials, -1)),
    }
    table = pa.table(columns).replace_schema_metadata({"maillard": json.dumps(result.provenance)})
    pq.write_table(table, path)


def _figure(result: Outcome, path: Path) -> None:
    from maillard import figures

    figures.save(result.plot("distributions" if "distributions" in path.stem else "curves"), path)


SUMMARY_FORMATS = (".json", ".png", ".svg")
FORMATS: dict[str, Callable[[Any, Path], None]] = {
    ".npz": Result.save,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
    ".png": _figure,
    ".svg": _figure,
}
