"""Sums over the rows that two targets share, from which their difference is estimated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Floats
from maillard.evaluation.estimators.additive import Estimation, Solution, estimation
from maillard.evaluation.evaluation_report import Report
from maillard.evaluation.evidence import Evidence
from maillard.evaluation.log_sums import rows_by_target
from maillard.evaluation.moments import Moments
from maillard.evaluation.sequential.sequential_runner import SequentialRunner
from maillard.evaluation.weighted_rows import WeightedRows


class Pair:
    """The reports of two targets, the evidence of their difference, and sums over shared rows."""

    def __init__(self, first: Report, second: Report, evidence: Evidence) -> None:
        self.first, self.second, self.evidence = first, second, evidence
        self.targets = first.evidence.target, second.evidence.target
        self.runner = SequentialRunner(evidence.log, evidence.query, evidence.target)
        self.moments: Moments | None = None
        "Of w and w r of the first target, then of the second."
        self.kept: list[tuple[NDArray[Any], ...]] = []
        self.roots = 0.0
        "The sum of √e, where e is the propensity of the difference."

    @np.errstate(over="ignore", invalid="ignore")
    def read(self, *, keep: bool) -> None:
        """Read the log. `keep`: whether to keep the arm, reward and state of each row."""
        log = self.evidence.log
        for columns in log.columns():
            if len(columns):
                self._advance(rows_by_target(columns, log, self.evidence.query)[0][0][0], keep=keep)

    def _advance(self, rows: WeightedRows, *, keep: bool) -> None:
        if not len(rows):
            return
        self.runner.advance(rows)
        inverse = np.exp(-rows.log_probability)
        weights = [
            target.probabilities[np.minimum(rows.target_row, target.positions - 1), rows.arm] * inverse
            for target in (self.targets if rows.both is None else ())
        ]
        weights += [] if rows.both is None else list(rows.both.T)
        if rows.propensity is not None:
            self.roots += float(np.sqrt(rows.propensity).sum())
        terms = np.stack([weights[0], weights[0] * rows.reward, weights[1], weights[1] * rows.reward])
        moments = Moments.of(terms, rows.unit)
        self.moments = moments if self.moments is None else self.moments + moments
        if keep:
            self.kept.append((rows.arm, rows.reward, rows.state))

    def effective_size(self, which: int) -> float:
        """The effective sample size of the weights of one target."""
        assert self.moments is not None
        n, mean = self.moments.count, self.moments.mean[2 * which]
        squares = self.moments.scatter[2 * which, 2 * which] + n * mean**2
        return float((n * mean) ** 2 / squares) if squares else 0.0

    def estimation(self, difference: Callable[[Floats], Solution]) -> Estimation:
        """The difference as a function of the means of w and w r of either target."""
        assert self.moments is not None
        w_a, _, w_b, _ = self.moments.mean.tolist()
        # A row counts by its weight, in the scale of the mean weight of its target.
        return estimation(self.moments, difference, np.array([0.0, 1.0 / w_a, 0.0, 1.0 / w_b, 0.0]))

    @property
    def effective_pulls(self) -> float:
        """The effective pulls of the difference."""
        assert self.moments is not None
        return self.roots**2 / self.moments.count
