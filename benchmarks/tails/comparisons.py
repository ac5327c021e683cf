"""What the cells say beside each other: the least, the frontier, growth with the booster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from benchmarks.tails import plan

if TYPE_CHECKING:
    from benchmarks.tails.cells import Cell, Study

__all__ = ["DEVIATION", "FAR", "MEAN", "MEASURES", "falls", "growth", "least", "rises", "undominated"]

MEASURES: dict[str, Callable[[Cell], tuple[float, float, float]]] = {
    "mean": lambda cell: _within(cell.mean, cell.error),
    "sd": lambda cell: _within(cell.deviation, cell.deviation_error),
    **{
        # A default argument in a lambda.
        f"{100 * float(q):g}%": lambda cell, q=q: tuple(cell.quantiles[q])  # type: ignore[misc]
        for q in ("0.99", "0.999", "0.9999")
    },
}
MEAN, DEVIATION, *_, FAR = MEASURES  # the names of three of them


def _within(value: float, error: float) -> tuple[float, float, float]:
    reach = float(stats.norm.ppf((1 + plan.CONFIDENCE) / 2)) * error
    return value, value - reach, value + reach


def least(cells: Sequence[Cell], measure: str) -> tuple[int, list[int]]:
    """Return the cell with the least value of a measure, and the cells whose intervals overlap with it."""
    found = [MEASURES[measure](cell) for cell in cells]
    best = min(range(len(found)), key=lambda i: found[i][0])
    return best, [i for i, each in enumerate(found) if i != best and each[1] <= found[best][2]]


def undominated(study: Study, problem: str) -> list[str]:
    """The policies of which no other has a smaller mean and a smaller deviation, by their means."""
    cells = sorted(study.of(problem, (*plan.BOOSTED, *plan.OTHERS)), key=lambda cell: cell.mean)
    lowest = np.minimum.accumulate([cell.deviation for cell in cells])
    return [cells[i].policy for i in range(len(cells)) if i == 0 or cells[i].deviation < lowest[i - 1]]


def rises(study: Study) -> tuple[int, list[float]]:
    """Return on how many problems the deviation rises with the booster after its least, and by which factors."""
    rising, factors = 0, []
    for problem in plan.PROBLEMS:
        deviations = [cell.deviation for cell in study.of(problem)]
        after = deviations[deviations.index(min(deviations)) :]
        rising += len(after) > 1 and all(a < b for a, b in pairwise(after))
        factors.append(after[-1] / after[0])
    return rising, factors


def growth(cells: Sequence[Cell]) -> tuple[int, float] | None:
    """From which booster on, and by how much a doubling multiplies the probability of linear regret.

    None where too few trials say.
    """
    shares = [cell.share for cell in cells]
    lowest = max(i for i, share in enumerate(shares) if share == min(shares))
    told = (i for i in range(lowest, len(cells)) if plan.ENOUGH <= cells[i].linear < cells[i].trials)
    first = next(told, None)
    if first is None or first == len(cells) - 1:
        return None
    doublings = math.log2(plan.BOOSTERS[-1] / plan.BOOSTERS[first])
    return plan.BOOSTERS[first], float((shares[-1] / shares[first]) ** (1 / doublings))


def falls(cells: Sequence[Cell]) -> bool:
    """Whether some larger booster has a smaller probability of linear regret, by intervals that do not meet."""
    ends = [cell.linear_interval for cell in cells]
    return any(later[1] < earlier[0] for i, earlier in enumerate(ends) for later in ends[i + 1 :])
