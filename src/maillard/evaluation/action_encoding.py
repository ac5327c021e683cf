"""The actions of decisions as rows of numbers, for the shared model of the rewards.

The rows are those that the logging policy used, if the log has them. Otherwise an action's attributes, joined
with the context of its decision, are encoded like a context: by a declared `Features`, or as categories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from maillard.array_types import Floats
from maillard.decisions.columns import Columns
from maillard.decisions.contexts import Contexts, column_of_values
from maillard.decisions.encoded_contexts import decode, has_row_of_each_arm
from maillard.errors import InvalidLog
from maillard.evaluation.action_targets import actions_of
from maillard.evaluation.context_encoding import encoder_for
from maillard.evaluation.contextual_targets import contexts_of
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.feature_grid import STEPS
from maillard.features import Features

ActionEncoder: TypeAlias = Callable[[Columns], Floats]


def action_encoder_of(
    log: EvaluationLog, features: Features | Sequence[str] | None
) -> tuple[ActionEncoder, int]:
    """A function that gives the row of each action of each decision, and the number of its columns."""
    first = log._first_columns
    if features is None and first.encoded is not None:
        width = _decoded(first, 0, log.source).shape[1]
        return partial(_encoded, width, log.source), width + 1
    encode, width = encoder_for(joined(first, log.source), features)
    return lambda columns: encode(joined(columns, log.source)), width


def _encoded(width: int, source: str, columns: Columns) -> Floats:
    """The encoded rows after an intercept. Features that were appended after the first rows are left out."""
    actions = actions_of(columns)
    made = np.zeros((actions.names.size, 1 + width))
    made[:, 0] = 1.0
    for place, (end, size) in enumerate(zip(actions.ends.tolist(), actions.sizes.tolist(), strict=True)):
        rows = _decoded(columns, place, source)[:, :width]
        made[end - size : end, 1 : 1 + rows.shape[1]] = rows
    made[:, 1:] /= STEPS
    return made


def _decoded(columns: Columns, place: int, source: str) -> Any:
    """The encoded rows of a decision, in units of the grid: one for each action."""
    data = None if columns.encoded is None else columns.encoded[place]
    rows = decode(data) if data is not None and has_row_of_each_arm(data) else ()
    if len(rows) != actions_of(columns).sizes[place]:
        allowed = f"a feature row for each of {actions_of(columns).sizes[place]} actions"
        raise InvalidLog(f"{source}, row {columns.row[place]}: encoded", len(rows), allowed)
    return rows


def joined(columns: Columns, source: str) -> Contexts:
    """The attributes of each action, with the context of its decision; erased ones are missing."""
    actions, (contexts, codes) = actions_of(columns), contexts_of(columns, source).distinct()
    values: list[dict[str, Any]] = []
    for row, size in enumerate(actions.sizes.tolist()):
        attributes = actions.values(row) or {name: {} for name in actions.names_of(row)}
        context = contexts[codes[row]]
        assert len(attributes) == size  # `values` has checked it
        values += [{**each, **context} for each in attributes.values()]
    keys = dict.fromkeys(key for each in values for key in each)
    made = {key: column_of_values([each.get(key) for each in values]) for key in keys}
    return Contexts(len(values), made, where=source, known=np.repeat(actions.known, actions.sizes))
