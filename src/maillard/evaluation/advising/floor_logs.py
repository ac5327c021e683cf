"""Simulated logs of each floor, evaluated: how precise and how valid their intervals are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from maillard.array_types import Floats
from maillard.evaluation.advising.sequential_test import evidence, is_clear
from maillard.evaluation.planning.plan_runs import Question, Run, run_all
from maillard.policies.targets import FixedArm
from maillard.problems import Problem
from maillard.simulation.plans import make_plan, workers_for

_MAX_UNANSWERED = 0.05  # fraction of logs without a recommended estimate, from which there is no width
_TOLERATED, _WRONG = 0.02, 0.07  # shortfalls of the coverage that are accepted, and that are not


class Intervals(NamedTuple):
    """What the intervals of the logs of a floor are like."""

    width: float
    width_error: float
    found: float
    valid: bool | None
    logs: int


class FloorLogs:
    """The evaluated logs of several policies on a problem, to which more can be added.

    The logs are asked for the mean of the first arm, or for its difference from the last one.
    """

    def __init__(
        self,
        specs: Sequence[str],
        problem: Problem,
        horizon: int,
        *,
        difference: bool,
        confidence: float,
        seed: int,
        threads: int | None,
    ) -> None:
        last, probabilities = problem.arms - 1, np.zeros((1, problem.arms))
        probabilities[0, 0] = 1.0
        if difference:
            probabilities[0, last] = -1.0
        against = FixedArm(last) if difference else None
        self._question = Question((FixedArm(0),), against, probabilities, None, confidence, active=False)
        self._plans = [make_plan(spec, problem, horizon, seed) for spec in specs]
        self.horizon = horizon
        self._truth = float(probabilities[0] @ problem.true_means)
        self._workers = workers_for(threads)
        self._runs: list[list[Run]] = [[] for _ in specs]

    def add_to_all(self, count: int, progress: Callable[[float], None]) -> None:
        """Add this many logs to each policy."""
        first = len(self._runs[0])
        found = run_all(
            self._plans, self._question, count, self._workers, lambda n, all_: progress(n / all_), first=first
        )
        for place, new in enumerate(found):
            self._runs[place] += new

    def add(self, place: int, count: int) -> None:
        """Add this many logs to one policy."""
        logs = self._runs[place]
        logs += run_all([self._plans[place]], self._question, count, self._workers, None, first=len(logs))[0]

    def intervals(self, place: int, shrink: float = 1.0) -> Intervals:
        """Describe the intervals of a policy; `shrink` is how much narrower they are when it has ended."""
        runs = self._runs[place]
        lower, upper = np.array([run.estimates[:2, 0] for run in runs]).T
        return describe_intervals(lower, upper, self._truth, self._question.confidence, shrink)


def describe_intervals(
    lower: Floats, upper: Floats, truth: float, confidence: float, shrink: float = 1.0
) -> Intervals:
    """Describe intervals of a number, whose true value is `truth`; NaN where there is none."""
    logs, answered = lower.size, np.isfinite(lower)
    lower, upper = lower[answered], upper[answered]
    widths, errors = (upper - lower) / 2, (upper + lower) / 2 - truth
    found = np.abs(truth + shrink * errors) > shrink * widths
    covered = int(np.count_nonzero(np.abs(errors) <= widths))
    ratio = evidence(covered, lower.size, confidence - _WRONG, confidence - _TOLERATED)
    # Two standard errors, so that few logs do not decide by chance that there is no interval.
    limit = logs * _MAX_UNANSWERED + 2 * math.sqrt(logs * _MAX_UNANSWERED * (1 - _MAX_UNANSWERED))
    measured = lower.size > 1 and logs - lower.size <= limit
    return Intervals(
        width=float(widths.mean()) if measured else math.inf,
        width_error=float(widths.std(ddof=1)) / math.sqrt(logs) if measured else math.inf,
        found=int(np.count_nonzero(found)) / logs,
        valid=ratio > 0 if is_clear(ratio) else None,
        logs=logs,
    )
