"""Decisions as columns: arrays of many rows, for whoever computes over a log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.log import DecisionLog, Row

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = ["MAX_BATCH_ROWS", "MAX_BATCH_VALUES", "Columns", "columns_of"]

# A batch ends at this many decisions, or probabilities.
MAX_BATCH_ROWS, MAX_BATCH_VALUES = 20_000, 500_000
_SUM = 1e-6  # how far the probabilities of a law may be from 1 in all: others write them with few digits


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """Some decisions of a log, in its order. K is the number of the log's arms."""

    row: Integers
    "Its number in the source, from 1."
    arm: Integers
    "The place of the arm that was drawn, among the log's."
    reward: Floats
    "NaN where there is none."
    log_probability: Floats
    "Of that arm."
    log_probabilities: Floats | None = None
    "Of every arm, n x K: -inf where it could not be drawn, NaN where nobody wrote it down. None: nobody wrote any down. An arm's"
    "values lie together, as sums over few arms are quickest so."
    eligible: NDArray[np.bool_] | None = None
    "Which arms could have been drawn, n x K; None: all."
    position: Integers
    epoch: Integers
    state: Integers
    time: Integers
    "Microseconds since 1970."
    unit: NDArray[np.object_] | None = None
    "Whom each was for, or None."
    closed: NDArray[np.bool_]
    "Whether its window had closed."
    repeated: NDArray[np.bool_]
    "Whether it repeats the draw of another decision."

    def __len__(self) -> int:
        return self.arm.size

    @cached_property
    def has_all_probabilities(self) -> bool:
        """Whether the probability of every arm is known in every row."""
        return self.log_probabilities is not None and not np.isnan(self.log_probabilities).any()

    def filter(self, mask: NDArray[np.bool_]) -> Columns:
        """The rows for which the mask is true."""
        if mask.all():
            return self
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        chosen: Any = {name: None if value is None else value[mask] for name, value in values.items()}
        return Columns(**chosen)

    def check(self, source: str) -> Columns:
        """The same, or an error that names the first row that cannot be."""
        chance = np.exp(np.minimum(self.log_probability, 700.0))
        bad = ~((self.log_probability <= LOG_PROBABILITY_TOLERANCE) & (self.log_probability > -np.inf))
        self._refuse(source, "probability", bad, chance, "a number > 0 and <= 1")
        every = np.arange(len(self))
        if self.eligible is not None:
            allowed = "the arm that was drawn, too"
            self._refuse(source, "eligible", ~self.eligible[every, self.arm], self.arm, allowed)
        laws = self.log_probabilities
        if laws is None:
            return self
        known = ~np.isnan(laws).any(axis=1)
        most = np.max(laws, axis=1, initial=-np.inf, where=~np.isnan(laws))
        self._refuse(source, "log_probabilities", most > LOG_PROBABILITY_TOLERANCE, most, "numbers <= 0")
        logged = laws[every, self.arm]
        apart = ~np.isnan(logged) & ~(np.abs(logged - self.log_probability) <= _SUM)
        allowed = "what log_probabilities has for that arm"
        self._refuse(source, "log_probability", apart, self.log_probability, allowed)
        total = np.exp(laws).sum(axis=1)
        off = known & ~(np.abs(total - 1.0) <= _SUM)
        self._refuse(source, "log_probabilities", off, total, "probabilities that add up to 1")
        return self

    def check_order(self, last: int, source: str) -> int:
        """The state of the last row, or an error if one is before the row before it; `last` is where the rows before ended."""
        if not len(self):
            return last
        back = np.diff(self.state, prepend=max(last, 0)) < 0
        self._refuse(source, "state", back, self.state, "rows in the order of their states")
        return int(self.state[-1])

    def _refuse(self, source: str, name: str, bad: NDArray[Any], values: NDArray[Any], allowed: str) -> None:
        if bad.any():
            first = int(bad.argmax())
            raise InvalidValue(f"{source}, row {self.row[first]}: {name}", values[first].item(), allowed)


def columns_of(log: DecisionLog, rows: Iterable[Row]) -> Iterator[Columns]:
    """The columns of rows that come one by one."""
    place = {arm: i for i, arm in enumerate(log.arms)}
    some: list[Row] = []
    most = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_VALUES // max(len(place), 1)))
    done = 0
    for row in rows:
        some.append(row)
        if len(some) == most:
            yield _batch(log, some, place, done)
            done, some = done + len(some), []
    if some:
        yield _batch(log, some, place, done)


def _batch(log: DecisionLog, rows: Sequence[Row], place: dict[str, int], done: int) -> Columns:
    decisions = [row.decision for row in rows]
    n = len(rows)
    for number, d in enumerate(decisions, done + 1):
        if not place.keys() >= set(d.eligible):
            raise InvalidValue(
                f"{log.source}, row {number}: eligible", list(d.eligible), "arms of the experiment"
            )
    laws = np.full((n, len(place)), -np.inf)
    eligible = np.zeros((n, len(place)), np.bool_)
    for i, d in enumerate(decisions):
        places = [place[arm] for arm in d.eligible]
        laws[i, places] = d.log_probabilities
        eligible[i, places] = True
    rewards = [log.reward_of(row) for row in rows]
    units = [d.unit for d in decisions]
    unknown = np.isnan(laws).any(axis=1).all()

    def whole(values: Iterable[int]) -> Integers:
        return np.fromiter(values, np.int64, n)

    return Columns(
        row=np.arange(done + 1, done + n + 1),
        arm=whole(place[d.arm] for d in decisions),
        reward=np.array([math.nan if each is None else each for each in rewards]),
        log_probability=np.array([d.log_probability for d in decisions]),
        log_probabilities=None if unknown else np.asfortranarray(laws),
        eligible=None if eligible.all() else np.asfortranarray(eligible),
        position=whole(d.position for d in decisions),
        epoch=whole(d.epoch for d in decisions),
        state=whole(d.state for d in decisions),
        time=whole(d.time for d in decisions),
        unit=np.array(units, dtype=np.object_) if any(unit is not None for unit in units) else None,
        closed=np.array([log.is_closed(d) for d in decisions]),
        repeated=np.array([d.origin is not None for d in decisions]),
    ).check(log.source)
