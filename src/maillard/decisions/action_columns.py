"""Decisions as columns, for logs whose arms differ at every decision (`choose(actions={...})`).

An arm has no index of its own in such a log. Its place is its rank: the order in which the caller listed the
actions of the decision. So a matrix has a column for each rank, not for each name that ever occurred, and row
i uses as many columns as decision i has actions. Names and attributes are kept one after the other, with the
place where each row ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.columns import (
    MAX_BATCH_ROWS,
    MAX_BATCH_VALUES,
    Columns,
    contexts_of_rows,
    fields_of_rows,
)
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.array_types import Bools, Floats, Ints
    from maillard.decisions.log import DecisionLog
    from maillard.decisions.stores.contract import Row


@dataclass(frozen=True, eq=False)
class Actions:
    """The actions of n decisions, each in the order in which the caller listed them.

    >>> actions = Actions.of([("news", "art"), ("art",)], ['{"news": {"age": 1}, "art": {}}', None])
    >>> actions.sizes, actions.ranks_of("art")
    (array([2, 1]), array([1, 0]))
    >>> actions.values(0), actions.values(1)
    ({'news': {'age': 1}, 'art': {}}, None)
    """

    names: NDArray[np.object_]
    "The names of all actions of all decisions, one after the other."
    ends: Ints
    "Where the names of each decision end."
    texts: NDArray[np.object_]
    "The attributes of each decision's actions as JSON; None if they are unknown, for example erased."

    @classmethod
    def of(cls, eligible: Sequence[Sequence[str]], texts: Sequence[str | None]) -> Actions:
        """The actions with these names and attributes."""
        sizes = np.fromiter(map(len, eligible), np.int64, len(eligible))
        names, attributes = np.empty(int(sizes.sum()), np.object_), np.empty(len(texts), np.object_)
        names[:], attributes[:] = list(chain.from_iterable(eligible)), list(texts)
        return cls(names, np.cumsum(sizes), attributes)

    def __len__(self) -> int:
        return self.ends.size

    @cached_property
    def sizes(self) -> Ints:
        """The number of actions of each decision."""
        return np.diff(self.ends, prepend=0)

    @cached_property
    def known(self) -> Bools:
        """Whether the attributes of each decision's actions are known."""
        return np.array([text is not None for text in self.texts], np.bool_)

    @property
    def rows(self) -> Ints:
        """The decision that each action belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def ranks(self) -> Ints:
        """The rank of each action, from 0."""
        return np.arange(self.names.size) - np.repeat(self.ends - self.sizes, self.sizes)

    def ranks_of(self, name: str) -> Ints:
        """The rank of the action of this name in each decision; -1 if it is not among the actions."""
        found = np.full(len(self), -1, np.int64)
        places = np.flatnonzero(self.names == name)
        found[self.rows[places]] = self.ranks[places]
        return found

    def names_of(self, row: int) -> list[str]:
        """The names of one decision's actions."""
        found: list[str] = self.names[self.ends[row] - self.sizes[row] : self.ends[row]].tolist()
        return found

    def values(self, row: int) -> dict[str, dict[str, Any]] | None:
        """The attributes of one decision's actions, by name; None if they are unknown."""
        text = self.texts[row]
        if text is None:
            return None
        found: dict[str, dict[str, Any]] = json.loads(text)
        if not self._lists(row, found):
            names = ", ".join(self.names_of(row))
            raise InvalidValue("actions", text, f"the attributes of the eligible arms: {names}")
        return found

    def _lists(self, row: int, found: object) -> bool:
        """Whether this is a mapping of the names of one decision's actions."""
        return isinstance(found, dict) and list(found) == self.names_of(row)

    def of_choices(self, repeated: Bools) -> Actions:
        """The actions without the attributes of other lists.

        A decision that repeats an earlier choice (sticky assignment) has the eligible arms of that choice,
        but the attributes of its own call.
        """
        texts = self.texts.copy()
        for row in np.flatnonzero(repeated).tolist():
            if texts[row] is not None and not self._lists(row, json.loads(texts[row])):
                texts[row] = None
        return replace(self, texts=texts)

    def filter(self, mask: Bools) -> Actions:
        """The actions of the decisions for which the mask is true."""
        names = self.names[np.repeat(mask, self.sizes)]
        return Actions(names, np.cumsum(self.sizes[mask]), self.texts[mask])


def action_columns_of(log: DecisionLog, rows: Iterable[Row]) -> Iterator[Columns]:
    """Convert rows whose arms differ at every decision to columns, in batches of different widths."""
    remaining, done = iter(rows), 0
    while batch := list(_batch(remaining)):
        yield _columns_of_batch(log, batch, done)
        done += len(batch)


def _batch(rows: Iterator[Row]) -> Iterator[Row]:
    """The next rows, with at most `MAX_BATCH_VALUES` values in the matrix of their probabilities."""
    count = width = 0
    for row in islice(rows, MAX_BATCH_ROWS):
        yield row
        count, width = count + 1, max(width, len(row.decision.eligible))
        if (count + 1) * width > MAX_BATCH_VALUES:
            return


def _columns_of_batch(log: DecisionLog, rows: Sequence[Row], done: int) -> Columns:
    decisions = [row.decision for row in rows]
    for number, d in enumerate(decisions, done + 1):
        if not d.eligible or len(d.log_probabilities) != len(d.eligible) or d.arm not in d.eligible:
            allowed = "the names of its actions, with a log probability for each"
            raise InvalidValue(f"{log.source}, row {number}: eligible", list(d.eligible), allowed)
    fields = fields_of_rows(log, rows, done)
    actions = Actions.of([d.eligible for d in decisions], [d.actions for d in decisions])
    logs = np.fromiter(chain.from_iterable(d.log_probabilities for d in decisions), np.float64)
    columns = Columns(
        arm=np.array([d.eligible.index(d.arm) for d in decisions], np.int64),
        **by_rank(actions, logs),
        **fields,
        **contexts_of_rows(log, rows),
        actions=actions.of_choices(fields["repeated"]),
    )
    return columns.check(log.source)


def by_rank(actions: Actions, log_probabilities: Floats, width: int | None = None) -> dict[str, Any]:
    """The probabilities and eligible arms of `Columns`, with a column for each rank."""
    n, width = len(actions), int(actions.sizes.max(initial=0)) if width is None else width
    unknown = np.bincount(actions.rows[np.isnan(log_probabilities)], minlength=n)
    if unknown.all():
        every = None
    else:
        every = np.full((n, width), -np.inf, order="F")
        every[actions.rows, actions.ranks] = log_probabilities
    eligible = np.asfortranarray(np.arange(width) < actions.sizes[:, np.newaxis])
    return {"log_probabilities": every, "eligible": None if eligible.all() else eligible}


def widened(columns: Columns, width: int) -> Iterator[Columns]:
    """The rows with matrices of this width, in parts with at most `MAX_BATCH_VALUES` values."""
    assert columns.actions is not None
    most = max(1, MAX_BATCH_VALUES // width)
    if len(columns) <= most and int(columns.actions.sizes.max(initial=0)) == width:
        yield columns
        return
    for start in range(0, len(columns), most):
        part = columns
        if len(columns) > most:
            place = np.arange(len(columns))
            part = columns.filter((start <= place) & (place < start + most))
        actions, logs = part.actions, part.log_probabilities
        assert actions is not None
        known = np.full(actions.names.size, np.nan) if logs is None else logs[actions.rows, actions.ranks]
        yield replace(part, **by_rank(actions, known, width))
