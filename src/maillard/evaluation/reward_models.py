"""A ridge model of the rewards given the context, or the action, fitted on earlier rows only.

For each arm a, with the features x of earlier rows in which it was chosen,

    θ_a = (I + Σ x xᵀ)⁻¹ Σ x (r - c),    prediction = c + x · θ_a, clipped to the range of rewards,

where c is the mean of all earlier rewards. If the arms differ at every decision, there is one θ for all
actions, and x is the row of an action. The prediction for a row uses only rows before it, so estimators
that need a predictable model stay valid on adaptive logs. The model is fitted anew after 1, 2, 4, ... rows,
and from 64 rows on whenever their number has grown by a quarter, so the cost is linear in the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.columns import Columns
from maillard.evaluation.action_encoding import action_encoder_of
from maillard.evaluation.action_targets import actions_of
from maillard.evaluation.context_encoding import encoder_of
from maillard.evaluation.contextual_targets import contexts_of
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.features import Features

_RIDGE = 1.0
_MAX_VALUES = 20_000_000  # numbers in the Gram matrices of all arms: 160 MB
_FIRST_GROWTH, _GROWTH = 64, 1.25


def with_predictions(log: EvaluationLog, features: Features | Sequence[str] | None) -> EvaluationLog:
    """The log with predicted rewards in its columns; the same log if it has no contexts."""
    if not log.contextual or log.predicts:
        return log
    if log.action_names is not None:
        return _with_shared_model(log, features)
    width = encoder_of(log, features)[1]
    if len(log.arms) * width * width > _MAX_VALUES:
        return log
    read = partial(_predicted, log, features)
    return replace(log, columns=read, parts=(read,), predicts=True)


def _with_shared_model(log: EvaluationLog, features: Features | Sequence[str] | None) -> EvaluationLog:
    """The log with rewards that one model predicts for the actions of each decision."""
    if action_encoder_of(log, features)[1] ** 2 > _MAX_VALUES:
        return log
    read = partial(_predicted_actions, log, features)
    return replace(log, columns=read, parts=(read,), predicts=True)


def _predicted_actions(log: EvaluationLog, features: Features | Sequence[str] | None) -> Iterator[Columns]:
    """The rows in log order, each with predictions for its actions from the rows before it."""
    encode, width = action_encoder_of(log, features)
    model = RidgeModel(1, width, log.reward_range, log.center)
    for columns in log.columns():
        actions = actions_of(columns)
        used = _used(columns, log)
        found = model.advance_actions(encode(columns), actions.ends, columns.arm, columns.reward, used)
        predictions = np.full((len(columns), len(log.arms)), log.center)
        predictions[actions.rows, actions.ranks] = found
        yield replace(columns, predictions=predictions)


def _used(columns: Columns, log: EvaluationLog) -> Bools:
    """Whether the model learns from each row."""
    used: Bools = np.isfinite(columns.reward)
    return used & columns.closed if log.requires_closed_windows else used


def _predicted(log: EvaluationLog, features: Features | Sequence[str] | None) -> Iterator[Columns]:
    """The rows in log order, each with predictions from the rows before it."""
    encode, width = encoder_of(log, features)
    model = RidgeModel(len(log.arms), width, log.reward_range, log.center)
    for columns in log.columns():
        x, used = encode(contexts_of(columns, log.source)), _used(columns, log)
        yield replace(columns, predictions=model.advance(x, columns.arm, columns.reward, used))


class RidgeModel:
    """One ridge regression per arm, which predicts each row from the rows before it.

    >>> model = RidgeModel(arms=2, features=1, reward_range=(0.0, 1.0))
    >>> x, arm, reward = np.ones((4, 1)), np.array([0, 1, 0, 1]), np.array([1.0, 0.0, 1.0, 0.0])
    >>> model.advance(x, arm, reward).round(2)
    array([[0.5 , 0.5 ],
           [1.  , 1.  ],
           [0.75, 0.25],
           [0.75, 0.25]])
    """

    def __init__(
        self,
        arms: int,
        features: int,
        reward_range: tuple[float, float] | None = None,
        start: float = 0.0,
    ) -> None:
        self.low, self.high = reward_range or (-math.inf, math.inf)
        self.count, self._next, self._total = 0, 1, 0.0
        self._constant = start if reward_range is None else (self.low + self.high) / 2
        self._theta = np.zeros((arms, features))
        self._gram = np.zeros((arms, features, features))
        self._sums, self._products = np.zeros((arms, features)), np.zeros((arms, features))

    def advance(self, x: Floats, arm: Ints, reward: Floats, used: Any = None) -> Floats:
        """Predict the reward of every arm in each row, then learn from the rows that are `used`."""
        predictions = np.empty((len(arm), len(self._theta)))
        for block, learned in self._blocks(len(arm), used):
            predictions[block] = self._predict(x[block])
            self._learn(x[learned], arm[learned], reward[learned])
        return predictions

    def advance_actions(self, x: Floats, ends: Ints, rank: Ints, reward: Floats, used: Any = None) -> Floats:
        """Predict the reward of each action, then learn from the chosen ones; all actions share a model.

        `x` has a row for each action of each decision, and `ends` tells where those of a decision end.
        """
        starts = np.append(0, ends)
        chosen, first = starts[:-1] + rank, np.zeros_like(rank)
        predictions = np.empty(len(x))
        for block, learned in self._blocks(rank.size, used):
            own = slice(starts[block.start], starts[block.stop])
            predictions[own] = self._predict(x[own])[:, 0]
            self._learn(x[chosen[learned]], first[learned], reward[learned])
        return predictions

    def _predict(self, x: Floats) -> Floats:
        found = self._constant + x @ self._theta.T
        clipped: Floats = np.clip(found, self.low, self.high)
        return clipped

    def _blocks(self, size: int, used: Any) -> Iterator[tuple[slice, Ints]]:
        """Rows to predict with the present model, and those of them to learn from next."""
        rows = np.arange(size) if used is None else np.flatnonzero(used)
        start = place = 0
        while start < size:
            # Up to the row after which the model is fitted again.
            last = place + self._next - self.count - 1
            end = size if last >= rows.size else int(rows[last]) + 1
            yield slice(start, end), rows[place : min(last + 1, rows.size)]
            place, start = min(last + 1, rows.size), end

    def _learn(self, x: Floats, arm: Ints, reward: Floats) -> None:
        if not arm.size:
            return
        self.count += arm.size
        self._total += float(reward.sum())
        order = np.argsort(arm, kind="stable")
        x, arm, reward = x[order], arm[order], reward[order]
        chosen, first = np.unique(arm, return_index=True)
        for each, begin, end in zip(chosen.tolist(), first, [*first[1:], arm.size], strict=True):
            own = x[begin:end]
            self._gram[each] += own.T @ own
            self._sums[each] += own.sum(axis=0)
            self._products[each] += own.T @ reward[begin:end]
        if self.count >= self._next:
            self._fit()

    def _fit(self) -> None:
        count = self.count
        self._next = 2 * count if count < _FIRST_GROWTH else math.ceil(_GROWTH * count)
        self._constant = self._total / count
        ridge = _RIDGE * np.eye(self._theta.shape[1])
        right = self._products - self._constant * self._sums
        self._theta[:] = np.linalg.solve(self._gram + ridge, right[:, :, np.newaxis])[:, :, 0]
