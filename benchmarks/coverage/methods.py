"""The intervals of every arm of one log: those of `maillard.evaluate`, and naive ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from benchmarks.coverage.cells import CONFIDENCE, RANGE
from maillard.evaluation.sequential import aipw
from maillard.evaluation.sequential.bernstein import EmpiricalBernstein
from maillard.evaluation.sequential.betting import Betting
from maillard.evaluation.sequential.doubly_robust import DoublyRobustState
from maillard.evaluation.sequential.kernels import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.coverage.logs import Rows

    Floats = NDArray[np.float64]

__all__ = ["FIRST", "METHODS", "NAIVE", "NORMAL", "SEQUENCES", "STABILISED", "WEIGHTED", "Found", "intervals"]

NAIVE = ("sample mean", "IPS")  # with intervals as if rows were independent
WEIGHTED = ("AIPW", "AIPW √e", "AIPW e", "AIPW two-point")
STABILISED = ("AIPW √e", "AIPW two-point")
SEQUENCES = ("Bernstein", "doubly robust", "betting")
METHODS = (*NAIVE, *WEIGHTED, *SEQUENCES)
NORMAL = float(special.ndtri(0.5 + CONFIDENCE / 2))
FIRST = 100  # naive intervals are checked from this row on
DECAY = 0.7  # α of the two-point weights: both floors are at least c t^-α


@compiled
def weigh(arm: Any, probabilities: Any, place: int, weight: Any, propensity: Any) -> None:
    """The weights and propensities of one target arm."""
    for row in range(arm.size):
        propensity[row] = probabilities[row, place]
        weight[row] = 1.0 / probabilities[row, place] if arm[row] == place else 0.0


@compiled
def naive(arm: Any, reward: Any, weight: Any, place: int, rows: int, truth: float) -> Any:  # noqa: PLR0917  # compiled
    """Naive mean and standard error of the arm's rewards, and of w r over all rows: float64[2, 3].

    The third number is 1 if the interval at some row from `FIRST` on has missed the true value.
    """
    found = np.full((2, 3), np.nan)
    found[:, 2] = 0.0
    sums = np.zeros((2, 3))
    for row in range(rows):
        for kind in range(2):
            if kind == 1 or arm[row] == place:
                x = reward[row] * (weight[row] if kind == 1 else 1.0)
                line = sums[kind]
                line[0] += 1.0
                step = x - line[1]
                line[1] += step / line[0]
                line[2] += step * (x - line[1])
                off = line[1] - truth
                if row >= FIRST and off * off * line[0] * (line[0] - 1.0) > NORMAL * NORMAL * line[2]:
                    found[kind, 2] = 1.0
    for kind in range(2):
        if sums[kind, 0] > 1.0:
            found[kind, 0] = sums[kind, 1]
            found[kind, 1] = math.sqrt(sums[kind, 2] / (sums[kind, 0] - 1.0) / sums[kind, 0])
    return found


class Found(NamedTuple):
    """The intervals and pulls of one log."""

    ends: Floats  # horizon x arm x method x (lower, upper)
    pulls: Floats  # horizon x arm x (pulls, effective pulls)
    # horizon x arm x naive method: whether its interval missed the true value at some row from `FIRST` on
    ever: Floats


def intervals(rows: Rows, means: tuple[float, ...], horizons: tuple[int, ...], highest: float) -> Found:
    """The interval of every method for the mean of every arm, after each of these numbers of rows.

    Effective pulls are those of the constant allocation, (Σ √e)² / n: a non-adaptive experiment with as many
    pulls would give an equally narrow interval. `highest` is the largest weight that the floor allows. A
    confidence sequence is computed in one pass; its interval after n rows is the intersection of all
    intervals up to row n.
    """
    length, arms = rows.probabilities.shape
    shape = (len(horizons), arms)
    found = Found(np.empty((*shape, len(METHODS), 2)), np.empty((*shape, 2)), np.empty((*shape, 2)))
    weight, propensity, target_row = np.empty(length), np.empty(length), np.zeros(length, np.int64)
    low, width = RANGE[0], RANGE[1] - RANGE[0]
    scaled = (rows.reward - low) / width
    alpha = 1 - CONFIDENCE
    for place in range(arms):
        weigh(rows.arm, rows.probabilities, place, weight, propensity)
        target_probabilities = np.eye(1, arms, place)
        sequences: list[Any] = [
            EmpiricalBernstein.start(alpha),
            DoublyRobustState.start(arms, alpha),
            Betting.start(alpha, highest=highest),
        ]
        begin = 0
        for number, end in enumerate(horizons):
            part, chunk = slice(end), slice(begin, end)
            simple = naive(rows.arm, rows.reward, weight, place, end, means[place])
            columns = rows.arm[part], rows.reward[part], weight[part], propensity[part], target_row[part]
            weighted = aipw.estimate((*columns, target_probabilities), float(end), DECAY)
            ends, normal = found.ends[number, place], len(NAIVE) + len(WEIGHTED)
            value, half = np.concatenate([simple[:, :2], weighted]).T * [[1.0], [NORMAL]]
            ends[:normal] = np.column_stack([value - half, value + half])
            pair: dict[str, Any] = {"weight": weight[chunk], "reward": scaled[chunk]}
            whole = {
                "arm": rows.arm[chunk],
                "probabilities": rows.probabilities[chunk],
                "target_row": target_row[chunk],
                "target_probabilities": target_probabilities,
            }
            for kind, sequence in enumerate(sequences):
                sequence.advance(**pair, **(whole if isinstance(sequence, DoublyRobustState) else {}))
                ends[normal + kind] = low + width * np.array(sequence.interval())
            effective = np.sqrt(propensity[part]).sum() ** 2 / end
            found.pulls[number, place] = np.count_nonzero(rows.arm[part] == place), effective
            found.ever[number, place] = simple[:, 2]
            begin = end
    return found
