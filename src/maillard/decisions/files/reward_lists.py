"""The reward events of each decision in a table: lists of structs, read without an object for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.decisions.files.arrow import cast, pyarrow
from maillard.decisions.reward_rule import Reward


def list_column(batch: Any, name: str, source: str) -> Any:
    """Return a column. Lists of structs stay as they are, because their conversion takes long."""
    types, column = pyarrow().types, batch.column(name)
    if types.is_list(column.type) and types.is_struct(column.type.value_type):
        return column
    return cast(batch, name, source)


def flat(column: Any) -> tuple[Any, Ints]:
    """Return the items of a column of lists, and the row of each."""
    lengths = pyarrow().compute.list_value_length(column).fill_null(0)
    return column.flatten(), np.repeat(np.arange(len(column)), np.asarray(lengths).astype(np.int64))


def is_late(events: Any) -> Any:
    """Return which reward events arrived after the window had closed."""
    return np.asarray(events.field("late")).astype(np.bool_) if len(events) else np.zeros(0, np.bool_)


def fields_of_late_rewards(rule: Reward) -> Sequence[str]:
    """Return the fields of a reward event that `late_rewards` needs."""
    return ("value", "late", "at", "event") if rule.is_ordered else ("value", "late")


def late_rewards(column: Any, rule: Reward) -> Floats | None:
    """Return what `Reward.total_with_late` returns for each row, NaN for None; None if no event is late."""
    pa = pyarrow()
    events, row = flat(column)
    late = is_late(events)
    if not late.any():
        return None
    has_late = np.zeros(len(column), np.bool_)
    has_late[row[late]] = True
    used = has_late[row]
    events, row = events.filter(pa.array(used)), row[used]
    if rule.is_ordered:
        keys = {"row": pa.array(row), "at": events.field("at"), "event": events.field("event")}
        order = pa.compute.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
        events = events.take(order)  # within each row, so that `row` is the same
    first = np.flatnonzero(np.diff(row, prepend=-1))
    found = np.full(len(column), np.nan)
    found[row[first]] = rule.totals(np.asarray(events.field("value"), np.float64), first)
    return found
