"""What is kept of a policy's trials on a problem, and the file of all that."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from benchmarks.tails import plan

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Cell", "Study", "rank", "read", "speed", "summary", "with_error", "write"]


@dataclass(frozen=True)
class Cell:
    """Final regret of one policy on one problem, over all its trials."""

    problem: str
    policy: str
    trials: int
    mean: float
    error: float  # standard error of the mean
    deviation: float
    deviation_error: float  # standard error of the deviation
    quantiles: dict[str, list[float]]  # each a value that happened, and the ends of its interval
    largest: float
    worst: float  # the largest that is possible
    linear: int  # trials above plan.LINEAR of that
    linear_interval: list[float]  # of the probability of being above
    seconds: float

    @property
    def line(self) -> float:
        """Above it, regret is of linear scale."""
        return plan.LINEAR * self.worst

    @property
    def share(self) -> float:
        """Of trials above the line."""
        return self.linear / self.trials


@dataclass
class Study:
    """Settings, and the cells that are done."""

    settings: dict[str, Any]
    cells: dict[tuple[str, str], Cell]

    @property
    def trials(self) -> int:
        """Of every cell of MS+."""
        return int(self.settings["trials"])

    @property
    def others(self) -> list[str]:
        """The other policies that were run, on some problem at least."""
        return [
            spec for spec in plan.OTHERS if any((problem, spec) in self.cells for problem in plan.PROBLEMS)
        ]

    def of(self, problem: str, policies: Sequence[str] = plan.BOOSTED) -> list[Cell]:
        """The cells of these policies on a problem, less those that were not run."""
        return [self.cells[problem, each] for each in policies if (problem, each) in self.cells]

    def missing(self) -> list[tuple[str, str]]:
        """Problems and policies that were not run, in the order in which they are to be."""
        return [each for each in plan.order() if each not in self.cells]


def summary(regret: NDArray[np.float64], worst: float) -> dict[str, Any]:
    """What a cell keeps of its trials, but for its name and its time.

    >>> found = summary(np.arange(1.0, 101.0), worst=950.0)
    >>> found["mean"], found["quantiles"]["0.99"][0], found["largest"], found["linear"]
    (50.5, 99.0, 100.0, 5)
    """
    ordered, count = np.sort(regret), regret.size
    centred = ordered - ordered.mean()
    variance = float((centred**2).sum() / max(1, count - 1))
    fourth = float((centred**4).mean())
    deviation = math.sqrt(variance)
    # A regret is a sum of gaps: the margin keeps its rounding from carrying it over the line.
    linear = count - int(np.searchsorted(ordered, plan.LINEAR * worst * (1 + 1e-9), side="right"))
    values = np.quantile(ordered, [float(q) for q in plan.QUANTILES], method="inverted_cdf")
    return {
        "trials": count,
        "mean": float(ordered.mean()),
        "error": deviation / math.sqrt(count),
        "deviation": deviation,
        "deviation_error": math.sqrt(max(0.0, fourth - variance**2) / count) / (2 * deviation or 1.0),
        "quantiles": {
            q: [float(value), *_quantile_interval(ordered, float(q), worst)]
            for q, value in zip(plan.QUANTILES, values, strict=True)
        },
        "largest": float(ordered[-1]),
        "worst": worst,
        "linear": linear,
        "linear_interval": _share_interval(linear, count),
    }


def _share_interval(events: int, trials: int) -> list[float]:
    """The interval of Clopper and Pearson for the probability of an event."""
    level = (1 - plan.CONFIDENCE) / 2
    low = float(stats.beta.ppf(level, events, trials - events + 1)) if events else 0.0
    high = float(stats.beta.isf(level, events + 1, trials - events)) if events < trials else 1.0
    return [low, high]


def _quantile_interval(ordered: NDArray[np.float64], q: float, worst: float) -> tuple[float, float]:
    """Two order statistics that hold the quantile with the confidence, whatever the distribution.

    Its ends where there are too few.
    """
    low, high = (int(k) for k in stats.binom.interval(plan.CONFIDENCE, ordered.size, q))
    return (
        float(ordered[low - 1]) if low >= 1 else 0.0,
        float(ordered[high]) if high < ordered.size else worst,
    )


def rank(q: str, trials: int) -> int:
    """Which of the largest regrets a quantile of so many trials is: 1 for the largest itself.

    >>> rank("0.99999", 1_000_000), rank("0.5", 3)
    (11, 2)
    """
    return trials - math.ceil(Fraction(q) * trials) + 1


def speed(cells: Sequence[Cell], horizon: int) -> float:
    """Rounds a second."""
    return sum(cell.trials for cell in cells) * horizon / max(1e-9, sum(cell.seconds for cell in cells))


def with_error(value: float, error: float) -> str:
    """Both to the second digit of the error.

    >>> with_error(273.1482, 0.1234), with_error(5.0, 0.0)
    ('273.15 ± 0.12', '5 ± 0')
    """
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 0
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def read(path: Path) -> Study:
    """The numbers of a file."""
    found = json.loads(path.read_text(encoding="utf8"))
    cells = [Cell(**each) for each in found["cells"]]
    return Study(found["settings"], {(cell.problem, cell.policy): cell for cell in cells})


def write(study: Study, path: Path) -> None:
    """A line for each cell, in the order of the study, and the file whole or as it was."""
    kept = [study.cells[each] for each in plan.order() if each in study.cells]
    lines = ",\n".join(json.dumps(_rounded(asdict(cell))) for cell in kept)
    new = path.with_suffix(".new")
    new.write_text(
        f'{{\n"settings": {json.dumps(study.settings)},\n"cells": [\n{lines}\n]\n}}\n', encoding="utf8"
    )
    new.replace(path)


def _rounded(value: Any) -> Any:
    """Six significant digits of every number that is not whole."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case list():
            return [_rounded(each) for each in value]
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
    return value
