"""Finds the rows of a log that are certainly correct, many at once, so that `verify` checks only the others.

`Screening` rebuilds the states of a log from its tally updates, as matrices of pulls and sums, and recomputes
the probabilities of all decisions with matrix operations. It answers "certainly correct" or "look closer".
For a log that it cannot replay, and for policies without closed-form probabilities, it raises `NotScreened`:
then `verify` walks through the log row by row, which is the reference, and says what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from maillard.array_types import Bools, Floats, Indices, Ints
from maillard.decisions.events import AdministrativeEvent, Start
from maillard.decisions.experiment_configuration import Configuration
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.decisions.log_arrays import LogArrays, runs
from maillard.decisions.reward_screening import agreeing_rewards
from maillard.decisions.state import State
from maillard.decisions.stores.contract import Row
from maillard.decisions.tally_history import TallyHistory
from maillard.decisions.update_buffer import UpdateBuffer
from maillard.errors import MaillardError
from maillard.policies import Policy, policy
from maillard.policies.tally_batches import log_probabilities_of_rows
from maillard.tally import Tally

# Below the tolerance of `verify`, by more than the difference between one tally and many.
_TOLERANCE = 0.8e-12
_MAX_BLOCK_VALUES = 1 << 16  # arms x rows: fast while a matrix fits into the cache


class NotScreened(Exception):
    """The log must be checked row by row."""


class Suspect(NamedTuple):
    """A row that is not certainly correct, with the state that it was chosen in."""

    row: Row
    state: State


class _Masks(NamedTuple):
    """Sets of eligible arms."""

    table: Bools
    "Which arms of the tally each set contains."
    valid: Bools
    "Whether the arms of each set are active arms in their order."
    width: Ints
    "The number of arms of each set."


@dataclass(eq=False)
class _Segment:
    """The states from one administrative event to the next: they differ only in their tallies."""

    event: AdministrativeEvent
    configuration: Configuration
    policy: Policy
    bound: Policy
    position: Ints
    "The index in the tally of each arm of the log; -1 for an arm that these states do not have."

    @classmethod
    def of(cls, event: AdministrativeEvent, after: Configuration, arms: Sequence[str]) -> _Segment:
        made = policy(after.spec)
        places = {arm: place for place, arm in enumerate(after.arms)}
        # One more element: an arm that is not in the log has the index -1.
        position = np.array([*(places.get(arm, -1) for arm in arms), -1])
        return cls(event, after, made, made.bind(after.arms), position)

    def masks(self, sets: Sequence[tuple[str, ...]]) -> _Masks:
        """Return the masks of these sets of eligible arms."""
        table, valid = (
            np.zeros((len(sets), len(self.configuration.arms)), np.bool_),
            np.zeros(len(sets), np.bool_),
        )
        active = self.configuration.active_arms
        for code, eligible in enumerate(sets):
            allowed = set(eligible)
            valid[code] = tuple(arm for arm in active if arm in allowed) == eligible
            if valid[code]:
                table[code] = [arm in allowed for arm in self.configuration.arms]
        return _Masks(table, valid, table.sum(axis=1))


class Screening:
    """Screens the consecutive parts of a log."""

    def __init__(self, log: DecisionLog) -> None:
        assert log.reward is not None  # only a foreign log has no reward rule
        if log.pruned is not None:
            raise NotScreened("states are rebuilt from a saved one, because the log was pruned")
        if log.uses_contexts:
            raise NotScreened("each decision has a distribution of its own")
        self.recomputed = 0
        "Certainly correct decisions whose probabilities were recomputed."
        self.largest_error = 0.0
        "The largest error of their log probabilities, as in `Verification`."
        self.not_recomputed: Counter[str] = Counter()
        "Certainly correct decisions whose probabilities cannot be recomputed, by reason."
        self._log, self._rule = log, log.reward
        self._events = log.events
        self._starts = np.array([event.number for event in log.events])
        self._epoch_ends = [event.number for event in log.events if event.begins_epoch]
        self._updates = UpdateBuffer(log.number, self._starts)
        self._last = 0  # the state of the last row
        self._index = -1  # of the current segment
        self._done = 0  # the number of the last event in `_history`
        self._history = TallyHistory(Tally.empty(1))
        self._enter_segment(0)

    def add(self, part: LogArrays) -> Iterator[Suspect]:
        """Screen the next part; yield the rows that are not certainly correct, in order."""
        if not len(part):
            return
        state = part.state
        if state[0] < max(self._last, 1) or (np.diff(state) < 0).any() or state[-1] > self._log.number:
            raise NotScreened("states are not in order")
        if (part.applied.number <= state[part.applied.row]).any():
            raise NotScreened("an update precedes its decision")
        if not self._updates.add(part.applied):
            raise NotScreened("event numbers are not unique")
        good = agreeing_rewards(part, self._rule, self._epoch_ends) & ~self._repeats(part)
        ends = np.searchsorted(state, self._starts[1:], side="left").tolist()
        bounds = [0, *(end for end in ends if end > 0), len(part)]
        for start, end in pairwise(bounds):
            if start < end:
                yield from self._add_rows(part, start, end, good)
        self._last = int(state[-1])

    def finish(self) -> None:
        """Check the events after the last row."""
        self._enter_segments_to(self._log.number)
        self._apply(np.array([self._log.number]))

    def _repeats(self, part: LogArrays) -> Bools:
        """Return the rows that must be compared with each other: those of states with repeated choices."""
        if not part.repeated.any() and not self._log.sticky:
            return np.zeros(len(part), np.bool_)
        # A state that a part begins or ends with may have rows in other parts.
        states = np.append(part.state[part.repeated], part.state[[0, -1]])
        return np.isin(part.state, states)

    def _enter_segment(self, index: int) -> None:
        """Apply the administrative event that begins a segment."""
        event, after = self._events[index], self._log.configurations[index]
        if event.number != self._done + 1 or isinstance(event, Start) != (index == 0):
            raise NotScreened("event numbers have gaps")
        try:
            self._segment = _Segment.of(event, after, self._log.arms)
            tally = Tally.empty(len(after.arms)) if index == 0 else self._history.tally
            self._history = TallyHistory(event.update_tally(tally, after))
        except (*MALFORMED, MaillardError) as error:
            raise NotScreened("an event cannot be applied") from error
        self._index, self._done = index, event.number

    def _enter_segments_to(self, number: int) -> None:
        """Apply all events up to the last administrative one that is not after this number."""
        while self._index + 1 < len(self._events) and self._events[self._index + 1].number <= number:
            self._apply(np.array([self._events[self._index + 1].number - 1]))
            self._enter_segment(self._index + 1)

    def _apply(self, states: Ints) -> tuple[Ints, Floats]:
        """Apply the updates up to the last of these states; return pulls and sums in each."""
        updates = self._updates.take(self._done, int(states[-1]), self._segment.position)
        if updates is None:
            raise NotScreened("events are missing")
        try:
            found = self._history.advance(updates, states - self._done)
        except MaillardError as error:
            raise NotScreened("an update cannot be applied") from error
        self._done = int(states[-1])
        return found

    def _add_rows(self, part: LogArrays, start: int, end: int, good: Bools) -> Iterator[Suspect]:
        """Screen rows between two administrative events."""
        self._enter_segments_to(int(part.state[start]))
        size = max(1, _MAX_BLOCK_VALUES // len(self._segment.configuration.arms))
        masks = self._segment.masks(part.eligible_sets)
        for first in range(start, end, size):
            yield from _Block(self, part, slice(first, min(first + size, end)), good, masks).suspects()


class _Block:
    """Rows of one segment, so few that their matrices fit into memory."""

    def __init__(
        self, screening: Screening, part: LogArrays, rows: slice, good: Bools, masks: _Masks
    ) -> None:
        self.screening, self.segment, self.part, self.rows = screening, screening._segment, part, rows
        self.masks = masks
        self.good, self.state, self.eligible = good[rows], part.state[rows], part.eligible[rows]
        starts, self.tally = runs(self.state)
        self.pulls, self.sums = screening._apply(self.state[starts])

    def suspects(self) -> Iterator[Suspect]:
        """Yield the rows that are not certainly correct."""
        rows, part, configuration = self.rows, self.part, self.segment.configuration
        position = self.segment.position[part.arm[rows]]
        good = self.good & (position >= 0) & (not configuration.paused)
        good &= part.epoch[rows] == configuration.epoch
        good &= part.policy_version[rows] == configuration.policy_version
        good &= part.cold[rows] == (self.pulls[self.tally, position] == 0)
        installed = part.formula_version[rows] == self.segment.policy.formula_version
        fits, error = self._compare(position)
        good &= fits & (~installed | (error <= _TOLERANCE))
        self._count(good, installed, error)
        places = np.flatnonzero(~good)
        if places.size:
            found = self.part.rows(self.rows.start + places)
            for place, row in zip(places.tolist(), found, strict=True):
                yield Suspect(row, self._state(place))

    def _compare(self, position: Ints) -> tuple[Bools, Floats]:
        """Return whether vectors fit the eligible and chosen arms, and their errors; NaN if unknown."""
        starts, run = runs(self.part.vector[self.rows])
        vector, eligible, tally = (
            self.part.vector[self.rows][starts],
            self.eligible[starts],
            self.tally[starts],
        )
        one_set = bool((eligible == eligible[0]).all())
        logged = self._logged(vector, eligible[:1] if one_set else eligible)
        exact = self._recompute(eligible[:1] if one_set else eligible, tally)
        # The rows of a run should have the same state and the same eligible arms.
        fits = (self.tally == tally[run]) & (self.eligible == eligible[run])
        fits &= self.masks.table[self.eligible, position]
        fits &= self.part.log_probability[self.rows] == logged[position, run]
        return fits, _errors(logged, exact)[run]

    def _logged(self, vector: Ints, eligible: Ints) -> Floats:
        """Return the logged vectors, arms x vectors; NaN for one that does not fit its eligible arms.

        `eligible` has one element for each vector, or one for all.
        """
        table, valid, width = self.masks
        logged = np.full((table.shape[1], vector.size), np.nan)
        usable = valid[eligible] & (self.part.vector_lengths[vector] == width[eligible])
        if not usable.all():
            if eligible.size == 1:
                eligible = np.broadcast_to(eligible, vector.shape)
            if usable.any():
                logged[:, usable] = self._logged(vector[usable], eligible[usable])
            return logged
        flat = self.part.vectors(vector)
        if eligible.size == 1:
            mask = table[eligible[0]]
            logged[~mask] = -np.inf
            logged[mask] = flat.reshape(vector.size, -1).T
        else:
            some = np.full((vector.size, table.shape[1]), -np.inf)
            some[table[eligible]] = flat
            logged[...] = some.T
        return logged

    def _recompute(self, eligible: Ints, tally: Indices) -> Floats:
        """Return the log probabilities in these tallies, arms x vectors.

        `eligible` has one element for each tally, or one for all.
        """
        pulls, sums = self.pulls, self.sums
        if eligible.size > 1:
            pulls, sums, mask = pulls[tally], sums[tally], self.masks.table[eligible]
        else:
            mask = np.broadcast_to(self.masks.table[eligible[0]], pulls.shape)
        logs = log_probabilities_of_rows(self.segment.bound, pulls, sums, 1 + pulls.sum(axis=1), mask)
        if logs is None:
            raise NotScreened("the policy has no closed form for many tallies")
        # One column per tally, or already one per vector.
        return logs.T if tally.size == len(logs) else logs.T[:, tally]

    def _count(self, good: Bools, installed: Bools, error: Floats) -> None:
        """Count the correct rows whose probabilities were recomputed, and those that were not."""
        screening, name, recomputed = self.screening, self.segment.policy.name, good & installed
        screening.recomputed += int(recomputed.sum())
        largest = error.max(initial=0.0, where=recomputed)
        screening.largest_error = max(screening.largest_error, float(largest))
        if not installed.all():
            others = self.part.formula_version[self.rows][good & ~installed]
            for version in others.tolist():
                screening.not_recomputed[f"formula version {version} of {name} is not the installed one"] += 1

    def _state(self, place: int) -> State:
        return State(
            **vars(self.segment.configuration),
            number=int(self.state[place]),
            administrative=self.segment.event.number,
            policy=self.segment.policy,
            tally=Tally(self.pulls[self.tally[place]], self.sums[self.tally[place]]),
        )


def _errors(logged: Floats, exact: Floats) -> Floats:
    """Return the largest error of each column, relative to max(1, |log p|); NaN if one is unknown."""
    error = np.zeros(logged.shape[1])
    other = np.flatnonzero((logged != exact).any(axis=0))
    if other.size:
        logged, exact = logged[:, other], exact[:, other]
        with np.errstate(invalid="ignore"):
            apart = np.where(logged == exact, 0.0, np.abs(logged - exact))
        scale = np.where(np.isfinite(exact), np.maximum(1.0, np.abs(exact)), 1.0)
        error[other] = (apart / scale).max(axis=0)
    return error
