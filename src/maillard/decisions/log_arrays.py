"""Rows of a log as arrays: decisions, reward events and tally updates, for checks of many rows at once.

`Columns` has what an evaluation needs: one reward per decision. These arrays have everything that `verify`
checks. A log that can only be read row by row is converted by `LogArrays.of_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from maillard.array_types import Bools, Floats, Indices, Ints
from maillard.decisions.events import UPDATE_KINDS
from maillard.decisions.stores.contract import Row

_KIND_CODES = {kind: code for code, kind in enumerate(UPDATE_KINDS)}
REWARD, REVISION, DEFAULT = (_KIND_CODES[kind] for kind in ("reward", "revision", "default"))


class RewardArrays(NamedTuple):
    """Reward events, sorted by the row of their decision."""

    row: Ints
    value: Floats
    arrived: Ints
    late: Bools


class AppliedArrays(NamedTuple):
    """Tally updates, sorted by the row of their decision, and by number within a row."""

    row: Ints
    number: Ints
    kind: Ints
    "Index in `UPDATE_KINDS`; -1 for any other kind."
    time: Ints
    arm: Ints
    "Index among the arms of the log; -1 for any other arm."
    value: Floats
    previous: Floats
    "NaN if there is none."


@dataclass(frozen=True, eq=False, kw_only=True)
class LogArrays:
    """Consecutive decisions of a log, in its order, with their reward events and tally updates."""

    state: Ints
    time: Ints
    epoch: Ints
    policy_version: Ints
    formula_version: Ints
    arm: Ints
    "Index of the chosen arm among the arms of the log; -1 for any other arm."
    eligible: Ints
    "Index in `eligible_sets`."
    eligible_sets: Sequence[tuple[str, ...]]
    vector: Ints
    "Index of the decision's vector of log probabilities. Decisions may share vectors."
    vector_ends: Ints
    "Where each vector ends in `log_probabilities`."
    log_probabilities: Floats
    "All vectors, one after the other."
    log_probability: Floats
    cold: Bools
    repeated: Bools
    "Whether the decision repeats the choice of another (sticky assignment)."
    rewards: RewardArrays
    applied: AppliedArrays
    rows: Callable[[Ints], Iterable[Row]]
    "Returns the rows at these positions as objects."

    def __len__(self) -> int:
        return self.state.size

    @cached_property
    def vector_lengths(self) -> Ints:
        """The number of log probabilities of each vector."""
        return np.diff(self.vector_ends, prepend=0)

    def vectors(self, vector: Ints) -> Floats:
        """Return the log probabilities of these vectors, one after the other."""
        if not vector.size:
            return self.log_probabilities[:0]
        ends, lengths = self.vector_ends[vector], self.vector_lengths[vector]
        if (np.diff(vector) == 1).all():
            return self.log_probabilities[ends[0] - lengths[0] : ends[-1]]
        before = np.cumsum(lengths)
        places: Ints = np.arange(before[-1]) + np.repeat(ends - before, lengths)
        return self.log_probabilities[places]

    @classmethod
    def of_rows(cls, rows: Sequence[Row], arms: Sequence[str]) -> LogArrays:
        """Convert rows of a log with these arms."""
        codes = {arm: code for code, arm in enumerate(arms)}
        decisions = [row.decision for row in rows]
        sets: dict[tuple[str, ...], int] = {}
        vectors: dict[tuple[float, ...], int] = {}

        def whole(values: Iterable[int], size: int = len(rows)) -> Ints:
            return np.fromiter(values, np.int64, size)

        rewards = [(place, each) for place, row in enumerate(rows) for each in row.rewards]
        applied = [(place, each) for place, row in enumerate(rows) for each in row.applied]
        eligible = whole(sets.setdefault(each.eligible, len(sets)) for each in decisions)
        vector = whole(vectors.setdefault(each.log_probabilities, len(vectors)) for each in decisions)
        return cls(
            state=whole(each.state for each in decisions),
            time=whole(each.time for each in decisions),
            epoch=whole(each.epoch for each in decisions),
            policy_version=whole(each.policy_version for each in decisions),
            formula_version=whole(each.formula_version for each in decisions),
            arm=whole(codes.get(each.arm, -1) for each in decisions),
            eligible=eligible,
            eligible_sets=list(sets),
            vector=vector,
            vector_ends=np.cumsum([len(each) for each in vectors], dtype=np.int64),
            log_probabilities=np.array(list(chain.from_iterable(vectors)), np.float64),
            log_probability=np.array([each.log_probability for each in decisions], np.float64),
            cold=np.array([each.cold for each in decisions], np.bool_),
            repeated=np.array([each.origin is not None for each in decisions], np.bool_),
            rewards=RewardArrays(
                whole((place for place, _ in rewards), len(rewards)),
                np.array([each.value for _, each in rewards], np.float64),
                whole((each.arrived for _, each in rewards), len(rewards)),
                np.array([each.late for _, each in rewards], np.bool_),
            ),
            applied=AppliedArrays(
                whole((place for place, _ in applied), len(applied)),
                whole((each.number for _, each in applied), len(applied)),
                whole((_KIND_CODES.get(each.kind, -1) for _, each in applied), len(applied)),
                whole((each.time for _, each in applied), len(applied)),
                whole((codes.get(each.arm, -1) for _, each in applied), len(applied)),
                np.array([each.value for _, each in applied], np.float64),
                np.array(
                    [math.nan if each.previous is None else each.previous for _, each in applied], np.float64
                ),
            ),
            rows=lambda places: [rows[place] for place in places.tolist()],
        )


def runs(values: Ints) -> tuple[Indices, Indices]:
    """Return where each run of equal values starts, and the index of the run that each value is in.

    >>> starts, run = runs(np.array([7, 7, 5, 7]))
    >>> starts, run
    (array([0, 2, 3]), array([0, 0, 1, 2]))
    """
    new = np.ones(values.size, np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return np.flatnonzero(new), np.cumsum(new) - 1
