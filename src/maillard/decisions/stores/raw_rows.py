"""Rows of a log as columns of the tables of a SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from maillard.array_types import Bools, Indices, Ints
from maillard.decisions.reward_rule import Learn
from maillard.decisions.stores.bulk_columns import Arrays
from maillard.decisions.stores.text_columns import joined as joined_column


class RawRows(NamedTuple):
    """Decisions with their reward events and tally updates, as columns of the tables."""

    decisions: Arrays
    rewards: Arrays
    "With a column `row`: the position of the decision. Sorted by it."
    updates: Arrays
    "With a column `row`, sorted by it and by number."

    def __len__(self) -> int:
        return len(self.decisions["id"])

    def take(self, order: Indices) -> RawRows:
        """Return the decisions at these positions, in this order."""
        place = np.full(len(self), -1)
        place[order] = np.arange(order.size)
        decisions = {name: each[order] if each.size else each for name, each in self.decisions.items()}
        return RawRows(decisions, moved(self.rewards, place), moved(self.updates, place))

    def part(self, start: int, end: int) -> RawRows:
        """Return the decisions from position `start` to before `end`."""
        decisions = {name: each[start:end] for name, each in self.decisions.items()}
        rest = []
        for columns in self[1:]:
            first, last = np.searchsorted(columns["row"], [start, end])
            some = {name: each[first:last] for name, each in columns.items()}
            rest.append({**some, "row": some["row"] - start})
        return RawRows(decisions, *rest)

    @classmethod
    def merged(cls, parts: Sequence[RawRows]) -> RawRows:
        """Return the rows of all parts, sorted by state. Their ids must be in order."""
        joined = parts[0]
        if len(parts) > 1:
            starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
            shifted = [
                (part.decisions, *({**each, "row": each["row"] + start} for each in part[1:]))
                for part, start in zip(parts, starts, strict=False)
            ]
            joined = cls(
                *(
                    {name: joined_column([each[name] for each in some]) for name in some[0]}
                    for some in zip(*shifted, strict=True)
                )
            )
        state = joined.decisions["state"]
        if (state[1:] >= state[:-1]).all():
            return joined
        return joined.take(np.argsort(state, kind="stable"))  # ids remain in order within a state

    def without_later(self, number: int, end: int | None, learn: Learn) -> RawRows:
        """Return the rows as they were after the event with this number, as `rows_until` does."""
        kept = self.decisions["state"] <= number
        rewards, updates = self.rewards, self.updates
        if end is not None:
            later = np.zeros(len(self), np.bool_)
            if learn != "on_close":
                first = np.diff(updates["row"], prepend=-1) != 0
                later[updates["row"][first]] = updates["number"][first] > number
            if learn == "provisional":
                kept &= ~later
            timely = (rewards["arrived"] < end) & ((rewards["late"] == 1) | ~later[rewards["row"]])
            rewards, updates = _filtered(rewards, timely), _filtered(updates, updates["number"] <= number)
        found = RawRows(self.decisions, rewards, updates)
        return found if kept.all() else found.take(np.flatnonzero(kept))


def _filtered(columns: Arrays, kept: Bools) -> Arrays:
    return (
        columns if kept.all() else {name: each[kept] if each.size else each for name, each in columns.items()}
    )


def moved(columns: Arrays, place: Ints) -> Arrays:
    """Replace the positions of decisions, and leave out the rows of those with position -1."""
    row = place[columns["row"]]
    order = np.flatnonzero(row >= 0)
    if (np.diff(row[order]) < 0).any():
        order = order[np.argsort(row[order], kind="stable")]
    return {name: each[order] if each.size else each for name, each in ({**columns, "row": row}).items()}
