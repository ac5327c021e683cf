"""Summary statistics of a policy's trials on a problem, and the JSON file that stores them."""

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
    quantiles: dict[str, list[float]]  # value (the regret of one trial) and the ends of its interval
    largest: float
    worst: float  # the largest possible regret
    linear: int  # number of trials above plan.LINEAR times `worst`
    linear_interval: list[float]  # interval of the probability of such a trial
    seconds: float

    @property
    def linear_threshold(self) -> float:
        """The regret above which a trial counts as linear."""
        return plan.LINEAR * self.worst

    @property
    def linear_fraction(self) -> float:
        """The fraction of linear trials."""
        return self.linear / self.trials


@dataclass
class Study:
    """The settings of the study and its finished cells."""

    settings: dict[str, Any]
    cells: dict[tuple[str, str], Cell]

    @property
    def trials(self) -> int:
        """The number of trials of every cell of MS+."""
        return int(self.settings["trials"])

    @property
    def others(self) -> list[str]:
        """The policies other than MS+ that were run on at least one problem."""
        return [
            spec for spec in plan.OTHERS if any((problem, spec) in self.cells for problem in plan.PROBLEMS)
        ]

    def of(self, problem: str, policies: Sequence[str] = plan.BOOSTED) -> list[Cell]:
        """Return the cells of these policies on a problem, without those that were not run."""
        return [self.cells[problem, each] for each in policies if (problem, each) in self.cells]

    def missing(self) -> list[tuple[str, str]]:
        """Return the (problem, policy) pairs that still have to be run, in order."""
        return [each for each in plan.order() if each not in self.cells]


def summary(regret: NDArray[np.float64], worst: float) -> dict[str, Any]:
    """Return the fields of a cell except problem, policy and seconds.

    >>> found = summary(np.arange(1.0, 101.0), worst=950.0)
    >>> found["mean"], found["quantiles"]["0.99"][0], found["largest"], found["linear"]
    (50.5, 99.0, 100.0, 5)
    """
    ordered, count = np.sort(regret), regret.size
    centred = ordered - ordered.mean()
    variance = float((centred**2).sum() / max(1, count - 1))
    fourth = float((centred**4).mean())
    deviation = math.sqrt(variance)
    # Regret is a sum of gaps. The margin keeps rounding errors from moving it above the threshold.
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
        "linear_interval": _clopper_pearson_interval(linear, count),
    }


def _clopper_pearson_interval(events: int, trials: int) -> list[float]:
    """Return the Clopper-Pearson interval for the probability of an event."""
    level = (1 - plan.CONFIDENCE) / 2
    low = float(stats.beta.ppf(level, events, trials - events + 1)) if events else 0.0
    high = float(stats.beta.isf(level, events + 1, trials - events)) if events < trials else 1.0
    return [low, high]


def _quantile_interval(ordered: NDArray[np.float64], q: float, worst: float) -> tuple[float, float]:
    """Return two order statistics that contain the quantile with the confidence, for any distribution.

    With too few trials, an end of the interval is 0 or the largest possible regret.
    """
    low, high = (int(k) for k in stats.binom.interval(plan.CONFIDENCE, ordered.size, q))
    return (
        float(ordered[low - 1]) if low >= 1 else 0.0,
        float(ordered[high]) if high < ordered.size else worst,
    )


def rank(q: str, trials: int) -> int:
    """Return the rank of a quantile among the regrets of this many trials; the largest regret has rank 1.

    >>> rank("0.99999", 1_000_000), rank("0.5", 3)
    (11, 2)
    """
    return trials - math.ceil(Fraction(q) * trials) + 1


def rounds_per_second(cells: Sequence[Cell], horizon: int) -> float:
    """Return the average speed of the cells."""
    return sum(cell.trials for cell in cells) * horizon / max(1e-9, sum(cell.seconds for cell in cells))


def with_error(value: float, error: float) -> str:
    """Format a value and its standard error, both to the second digit of the error.

    >>> with_error(273.1482, 0.1234), with_error(5.0, 0.0)
    ('273.15 ± 0.12', '5 ± 0')
    """
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 0
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def read(path: Path) -> Study:
    """Read a study from a JSON file."""
    found = json.loads(path.read_text(encoding="utf8"))
    cells = [Cell(**each) for each in found["cells"]]
    return Study(found["settings"], {(cell.problem, cell.policy): cell for cell in cells})


def write(study: Study, path: Path) -> None:
    """Write a study to a JSON file, one line per cell. The file is replaced atomically."""
    finished = [study.cells[each] for each in plan.order() if each in study.cells]
    lines = ",\n".join(json.dumps(_rounded(asdict(cell))) for cell in finished)
    new = path.with_suffix(".new")
    new.write_text(
        f'{{\n"settings": {json.dumps(study.settings)},\n"cells": [\n{lines}\n]\n}}\n', encoding="utf8"
    )
    new.replace(path)


def _rounded(value: Any) -> Any:
    """Round every float to six significant digits."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case list():
            return [_rounded(each) for each in value]
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
    return value
