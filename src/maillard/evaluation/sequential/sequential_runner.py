"""Sequential estimators, which read a log in its order, and the runner that feeds them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimators.additive import AdditiveEstimator
from maillard.evaluation.estimators.estimator import ALL_PROBABILITIES, Estimator
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.level_selection import DELTA
from maillard.evaluation.query import Query
from maillard.evaluation.weighted_rows import WeightedRows


class SequentialEstimator(Estimator):
    """An estimator that is valid on adaptive logs: model, weights and bets depend only on earlier rows.

    `state` is the class of what it keeps between rows; estimators with the same class share one. Its method
    `of(log, target, confidence)` returns the state before the first row, and `advance` processes more rows.
    `columns` are the arguments of `advance`, which are fields of `WeightedRows`. `advance` takes rewards on
    the scale from 0 to 1 if `scales_rewards` is true. `requires` is what each row must have.
    """

    sequential: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    state: ClassVar[type[Any]]

    @abstractmethod
    def result(self, state: Any) -> tuple[float, ...]:
        """Value and standard error; or, for a confidence sequence, value and bounds on the scale [0, 1]."""


class SequentialRunner:
    """Runs the requested sequential estimators for which the log has the required columns.

    It also runs the confidence sequences that choose the level of a shrunken estimator on an adaptive log.
    """

    def __init__(self, log: EvaluationLog, query: Query, target: Target) -> None:
        from maillard.evaluation.sequential.bernstein import EmpiricalBernstein

        self._low, high = log.reward_bounds
        self._span = high - self._low
        choose_levels = log.reward_range is not None and query.settings.adaptive is not False
        self._states: dict[type[Any], Any] = {}
        self._level_sequences: dict[Any, tuple[AdditiveEstimator, EmpiricalBernstein]] = {}
        for estimators in query.estimators.values():
            first = estimators[0]
            if first.sequential and not log.missing(first.requires):
                self._states.setdefault(first.state, first.state.of(log, target, query.settings.confidence))
            if choose_levels and len(estimators) > 1 and not first.uses_model:
                for each in estimators:
                    self._level_sequences[each.key] = (each, EmpiricalBernstein.start(2 * DELTA))

    @property
    def active(self) -> bool:
        """Whether there is anything to run."""
        return bool(self._states or self._level_sequences)

    def advance(self, rows: WeightedRows) -> None:
        """Process more rows, in log order."""
        for state in self._states.values():
            if rows.probabilities is None and ALL_PROBABILITIES in state.requires:
                continue  # the estimator is refused at the end
            columns = {name: getattr(rows, name) for name in state.columns}
            if state.scales_rewards:
                columns["reward"] = rows.scaled_reward
            state.advance(**columns)
        for estimator, sequence in self._level_sequences.values():
            weight = estimator.shrink(rows.weight, estimator.level or 0.0)
            sequence.advance(weight=weight, reward=rows.scaled_reward)

    def result(self, estimator: SequentialEstimator) -> tuple[float, ...]:
        """Value and standard error, or value, lower and upper bound of the target's value."""
        return estimator.result(self._states[estimator.state])

    def bounds(self, estimator: SequentialEstimator) -> list[float]:
        """Value, lower and upper bound of a confidence sequence, on the scale of the rewards."""
        found = self.result(estimator)
        if not estimator.state.scales_rewards:
            return list(found)
        return [self._low + self._span * each for each in found]

    def level_widths(self, estimators: Sequence[AdditiveEstimator]) -> list[float] | None:
        """Half-widths of the confidence sequences of each level; None if they were not run."""
        if any(each.key not in self._level_sequences for each in estimators):
            return None
        return [self._level_sequences[each.key][1].half_width() * self._span for each in estimators]
