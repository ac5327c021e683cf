"""Contexts as rows of numbers, for the model of the rewards and for linear policies.

The rows are the encoded rows of the log; otherwise those of a declared `Features`; otherwise keys of the
context as categories: a column for each of the first values of a key, in the order in which they occur, and
one for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from maillard.array_types import Floats
from maillard.decisions.contexts import ContextColumn, Contexts, value_text
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.features import Features

_MAX_KEYS, _MAX_LEVELS = 8, 10

Encoder: TypeAlias = Callable[[Contexts], Floats]


def encoder_of(log: EvaluationLog, features: Features | Sequence[str] | None) -> tuple[Encoder, int]:
    """A function that encodes contexts as rows, and the number of its columns."""
    first = log._first_columns.contexts
    assert first is not None
    if features is None and first.rows is not None:
        return partial(_encoded, first.rows.shape[1]), first.rows.shape[1] + 1
    if features is not None and not isinstance(features, Features):
        log.require_keys(tuple(features))
    return encoder_for(first, features)


def encoder_for(first: Contexts, features: Features | Sequence[str] | None) -> tuple[Encoder, int]:
    """The same for declared features, or for keys, by default those of the first contexts."""
    if isinstance(features, Features):
        return partial(_declared, features), features.dimension
    keys = tuple(first.keys[:_MAX_KEYS]) if features is None else tuple(features)
    return _Categories(keys).encode, 1 + len(keys) * (_MAX_LEVELS + 1)


def _encoded(width: int, contexts: Contexts) -> Floats:
    """The encoded rows after an intercept. Features that were appended after the first rows are left out."""
    made = np.zeros((len(contexts), 1 + width))
    made[:, 0] = 1.0
    if contexts.rows is not None:
        rows = contexts.rows[:, :width]
        made[:, 1 : 1 + rows.shape[1]] = rows
    return made


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
