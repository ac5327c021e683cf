"""Simulation of the cells: coverage, side of the misses, and width of every interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.coverage.cells import HORIZONS, MEANS, Cell
from benchmarks.coverage.logs import Logger, Rows
from benchmarks.coverage.methods import DECAY, METHODS, NAIVE, NORMAL, WEIGHTED, intervals
from benchmarks.coverage.parallel import Work, gather
from maillard.evaluation.sequential import aipw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["DISTANT", "Outcome", "distant", "run"]

BLOCK = 25  # runs at a time
DISTANT = (1000, 10_000, 100_000)


@dataclass(frozen=True)
class Outcome:
    """Fractions and means over the runs of a cell; the first dimensions are horizon x arm."""

    runs: int
    low: Floats  # x method: intervals below the true value
    high: Floats  # x method: intervals above the true value
    width: Floats  # x method
    pulls: Floats  # x (pulls, effective pulls)
    ever: Floats  # x naive method: an interval missed the true value after some row

    @property
    def covered(self) -> Floats:
        """The fraction of intervals that contained the true value."""
        return 1.0 - self.low - self.high

    def as_lists(self) -> dict[str, Any]:
        """The arrays as lists, for the results file."""
        arrays = {name: getattr(self, name).tolist() for name in ("low", "high", "width", "pulls", "ever")}
        return {"runs": self.runs, **arrays}

    @classmethod
    def from_lists(cls, given: dict[str, Any]) -> Outcome:
        """The outcome from the lists of the results file."""
        return cls(
            given["runs"], *(np.array(given[name]) for name in ("low", "high", "width", "pulls", "ever"))
        )


def run(cell: Cell, runs: int, seed: int, work: Work) -> Outcome:
    """Run a cell.

    A log of a shorter horizon is the beginning of the longer log, because no logger here uses the horizon.
    """
    horizon, arms = HORIZONS[-1], len(cell.means)
    logger, highest = Logger(cell.policy, cell.problem, horizon), 1 / cell.least(horizon)
    truth = np.array(cell.means)[:, None]

    def block(number: int) -> list[Floats]:
        rows, shape = Rows.empty(horizon, arms), (len(HORIZONS), arms)
        sums = [np.zeros((*shape, len(METHODS))) for _ in range(3)]
        sums += [np.zeros((*shape, 2)), np.zeros((*shape, len(NAIVE)))]
        for each in range(number * BLOCK, min((number + 1) * BLOCK, runs)):
            logger.write(rows, seed, each)
            found = intervals(rows, cell.means, HORIZONS, highest)
            lower, upper = found.ends[..., 0], found.ends[..., 1]
            # A mean of one reward has no interval; it counts as an interval of width 0 below the true value.
            below = ~(upper >= truth)
            width = np.nan_to_num(upper - lower)
            parts = (below, ~below & (lower > truth), width, found.pulls, found.ever)
            for place, part in enumerate(parts):
                sums[place] += np.asarray(part, np.float64)
        return sums

    made = gather(work, block, -(-runs // BLOCK), cell.name, BLOCK * horizon)
    return Outcome(runs, *(sum(parts) / runs for parts in zip(*made, strict=True)))


def distant(runs: int, seed: int, work: Work) -> Floats:
    """Coverage for longer logs, of horizon x arm x weighting of AIPW.

    The logs are of MS with the decaying floor on the means that are furthest apart.
    """
    cell = Cell("ms", MEANS[-1], "t^-0.7")
    horizon, arms = DISTANT[-1], len(cell.means)
    logger = Logger(cell.policy, cell.problem, horizon)

    def one(rows: Rows, place: int, end: int) -> NDArray[np.bool_]:
        arm, probability = rows.arm[:end], np.ascontiguousarray(rows.probabilities[:end, place])
        weight, target_row = np.where(arm == place, 1.0 / probability, 0.0), np.zeros(end, np.int64)
        found = aipw.estimate(
            (arm, rows.reward[:end], weight, probability, target_row, np.eye(1, arms, place)),
            float(end),
            DECAY,
        )
        covered: NDArray[np.bool_] = np.abs(found[:, 0] - cell.means[place]) <= NORMAL * found[:, 1]
        return covered

    def block(number: int) -> Floats:
        rows, total = Rows.empty(horizon, arms), np.zeros((len(DISTANT), arms, len(WEIGHTED)))
        for each in range(number * BLOCK, min((number + 1) * BLOCK, runs)):
            logger.write(rows, seed + 1, each)
            total += [[one(rows, place, end) for place in range(arms)] for end in DISTANT]
        return total

    made = gather(work, block, -(-runs // BLOCK), "further out", BLOCK * horizon / 3)
    coverage: Floats = sum(made) / runs  # type: ignore[assignment]
    return coverage
