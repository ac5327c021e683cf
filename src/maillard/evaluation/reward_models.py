"""A ridge model of the rewards given the context, fitted on earlier rows only.

For each arm a, with the features x of earlier rows in which it was chosen,

    θ_a = (I + Σ x xᵀ)⁻¹ Σ x (r - c),    prediction = c + x · θ_a, clipped to the range of rewards,

where c is the mean of all earlier rewards. The prediction for a row uses only rows before it, so estimators
that need a predictable model stay valid on adaptive logs. The model is fitted anew after 1, 2, 4, ... rows,
and from 64 rows on whenever their number has grown by a quarter, so the cost is linear in the rows.

The features are the encoded rows of the log; otherwise those of a declared `Features`; otherwise the keys of
the context as categories: a column for each of the first `_MAX_LEVELS` values of a key, in the order in which
they occur, and one for all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.decisions.columns import Columns
from maillard.decisions.contexts import ContextColumn, Contexts, value_text
from maillard.errors import InvalidLog
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.features import Features

_RIDGE = 1.0
_MAX_KEYS, _MAX_LEVELS = 8, 10
_MAX_VALUES = 20_000_000  # numbers in the Gram matrices of all arms: 160 MB
_FIRST_GROWTH, _GROWTH = 64, 1.25

Encoder = Callable[[Contexts], Floats]


def with_predictions(log: EvaluationLog, features: Features | Sequence[str] | None) -> EvaluationLog:
    """The log with predicted rewards in its columns; the same log if it has no contexts."""
    if not log.contextual or log.predicts:
        return log
    width = encoder_of(log, features)[1]
    if len(log.arms) * width * width > _MAX_VALUES:
        return log
    read = partial(_predicted, log, features)
    return replace(log, columns=read, parts=(read,), predicts=True)


def _predicted(log: EvaluationLog, features: Features | Sequence[str] | None) -> Iterator[Columns]:
    """The rows in log order, each with predictions from the rows before it."""
    encode, width = encoder_of(log, features)
    model = RidgeModel(len(log.arms), width, log.reward_range, log.center)
    for columns in log.columns():
        if columns.contexts is None:
            yield columns
            continue
        used = np.isfinite(columns.reward)
        if log.requires_closed_windows:
            used &= columns.closed
        x = encode(columns.contexts)
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
        rows = np.arange(len(arm)) if used is None else np.flatnonzero(used)
        predictions = np.empty((len(arm), len(self._theta)))
        start = place = 0
        while start < len(arm):
            # Up to the row after which the model is fitted again.
            last = place + self._next - self.count - 1
            end = len(arm) if last >= rows.size else int(rows[last]) + 1
            block = slice(start, end)
            found = self._constant + x[block] @ self._theta.T
            predictions[block] = np.clip(found, self.low, self.high)
            learned = rows[place : min(last + 1, rows.size)]
            self._learn(x[learned], arm[learned], reward[learned])
            place, start = min(last + 1, rows.size), end
        return predictions

    def _learn(self, x: Floats, arm: Ints, reward: Floats) -> None:
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


def encoder_of(log: EvaluationLog, features: Features | Sequence[str] | None) -> tuple[Encoder, int]:
    """A function that encodes contexts as rows, and the number of its columns."""
    first = log._first_columns.contexts
    assert first is not None
    if isinstance(features, Features):
        return partial(_declared, features), features.dimension
    if features is None and first.rows is not None:
        return partial(_encoded, first.rows.shape[1], log.source), first.rows.shape[1] + 1
    keys = tuple(first.keys[:_MAX_KEYS]) if features is None else tuple(features)
    if features is not None:
        log.require_keys(keys)
    return _Categories(keys).encode, 1 + len(keys) * (_MAX_LEVELS + 1)


def _encoded(width: int, source: str, contexts: Contexts) -> Floats:
    rows = np.zeros((len(contexts), 0)) if contexts.rows is None else contexts.rows
    if rows.shape[1] != width:
        raise InvalidLog(f"{source}: encoded features", rows.shape[1], f"{width}, as in the first rows")
    return np.hstack([np.ones((len(rows), 1)), rows])


def _declared(features: Features, contexts: Contexts) -> Floats:
    """The rows of declared features. A context that was erased has only the intercept."""
    known = contexts.known
    rows = np.zeros((len(contexts), features.dimension))
    rows[:, 0] = features.intercept
    if known.any():
        present = contexts if known.all() else contexts.filter(known)
        rows[known] = encode_contexts(features, present)
    return rows


def encode_contexts(features: Features, contexts: Contexts) -> Floats:
    """The rows of declared features, with the same bits as `Features.encode` of each context."""
    import pyarrow as pa

    names = contexts.keys if features.rest is not None else features.inputs
    arrays = {name: _arrow(contexts.column(name)) for name in names}
    if not arrays:
        return np.tile(features.encode({}), (len(contexts), 1))
    return features.encode_frame(pa.table(arrays))


def _arrow(column: ContextColumn) -> Any:
    """A column of a context as Arrow: numbers as they are, other values as a dictionary."""
    import pyarrow as pa

    if all(value is None for value in column.values):
        return pa.nulls(len(column.codes), pa.string())
    numbers = column.numbers()
    if numbers is not None and not all(isinstance(value, int | None) for value in column.values):
        return pa.array(numbers, from_pandas=True)
    present: list[Any] = [value for value in column.values if value is not None]
    place = np.cumsum([value is not None for value in column.values]) - 1
    missing = np.array([value is None for value in column.values])[column.codes]
    if len({type(value) for value in present}) > 1:
        present = [value_text(value) for value in present]
    return pa.DictionaryArray.from_arrays(pa.array(place[column.codes], mask=missing), pa.array(present))


class _Categories:
    """Encodes keys as categories. A value has a column from its first row on, so nothing is known early."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._levels: dict[str, dict[object, int]] = {key: {} for key in keys}

    def encode(self, contexts: Contexts) -> Floats:
        n, width = len(contexts), _MAX_LEVELS + 1
        rows = np.zeros((n, 1 + width * len(self._levels)))
        rows[:, 0] = 1.0
        for place, (key, levels) in enumerate(self._levels.items()):
            column = contexts.column(key)
            codes, first = np.unique(column.codes, return_index=True)
            where = np.full(len(column.values), _MAX_LEVELS)
            for code in codes[np.argsort(first)].tolist():
                value = value_text(column.values[code])
                if len(levels) < _MAX_LEVELS:
                    levels.setdefault(value, len(levels))
                where[code] = levels.get(value, _MAX_LEVELS)
            rows[np.arange(n), 1 + width * place + where[column.codes]] = 1.0
        return rows
