"""Compare cells: smallest values, undominated policies, growth with the booster."""

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

MEASURES: dict[str, Callable[[Cell], tuple[float, float, float]]] = {
    "mean": lambda cell: _normal_interval(cell.mean, cell.error),
    "sd": lambda cell: _normal_interval(cell.deviation, cell.deviation_error),
    **{
        # mypy does not support default arguments of lambdas.
        f"{100 * float(q):g}%": lambda cell, q=q: tuple(cell.quantiles[q])  # type: ignore[misc]
        for q in ("0.99", "0.999", "0.9999")
    },
}
MEAN, DEVIATION, *_, FAR_QUANTILE = MEASURES


def _normal_interval(value: float, error: float) -> tuple[float, float, float]:
    half_width = float(stats.norm.ppf((1 + plan.CONFIDENCE) / 2)) * error
    return value, value - half_width, value + half_width


def smallest(cells: Sequence[Cell], measure: str) -> tuple[int, list[int]]:
    """Return the index of the smallest value of a measure, and those whose intervals overlap with it."""
    found = [MEASURES[measure](cell) for cell in cells]
    best = min(range(len(found)), key=lambda i: found[i][0])
    return best, [i for i, each in enumerate(found) if i != best and each[1] <= found[best][2]]


def undominated(study: Study, problem: str) -> list[str]:
    """Return the policies that no other beats in both mean and standard deviation, sorted by mean."""
    cells = sorted(study.of(problem, (*plan.BOOSTED, *plan.OTHERS)), key=lambda cell: cell.mean)
    lowest = np.minimum.accumulate([cell.deviation for cell in cells])
    return [cells[i].policy for i in range(len(cells)) if i == 0 or cells[i].deviation < lowest[i - 1]]


def count_rising(study: Study) -> tuple[int, list[float]]:
    """Count the problems on which the standard deviation rises with B from its minimum on.

    Also return, for every problem, the factor from the minimum to the largest B.
    """
    rising, factors = 0, []
    for problem in plan.PROBLEMS:
        deviations = [cell.deviation for cell in study.of(problem)]
        after = deviations[deviations.index(min(deviations)) :]
        rising += len(after) > 1 and all(a < b for a, b in pairwise(after))
        factors.append(after[-1] / after[0])
    return rising, factors


def growth_per_doubling(cells: Sequence[Cell]) -> tuple[int, float] | None:
    """Return the first B with enough linear trials, and the growth of their probability per doubling.

    Return None if there are too few linear trials.
    """
    fractions = [cell.linear_fraction for cell in cells]
    lowest = max(i for i, fraction in enumerate(fractions) if fraction == min(fractions))
    enough = (i for i in range(lowest, len(cells)) if plan.ENOUGH <= cells[i].linear < cells[i].trials)
    first = next(enough, None)
    if first is None or first == len(cells) - 1:
        return None
    doublings = math.log2(plan.BOOSTERS[-1] / plan.BOOSTERS[first])
    return plan.BOOSTERS[first], float((fractions[-1] / fractions[first]) ** (1 / doublings))


def decreases(cells: Sequence[Cell]) -> bool:
    """Whether a larger booster has a smaller probability of linear regret, judged by disjoint intervals."""
    ends = [cell.linear_interval for cell in cells]
    return any(later[1] < earlier[0] for i, earlier in enumerate(ends) for later in ends[i + 1 :])
