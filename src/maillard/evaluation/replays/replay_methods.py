"""Which way a log can be replayed, and how far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import CannotAnswer, InvalidLog, InvalidValue
from maillard.evaluation.promised_floors import shares_of

if TYPE_CHECKING:
    from maillard.evaluation.replays.logged_rows import LoggedRows

__all__ = ["MATCHING", "METHODS", "QUEUES", "REJECTION", "ReplayMethod", "choose_method", "reliable_rounds"]

REJECTION, MATCHING, QUEUES = METHODS = ("rejection", "matching", "queues")
_SAME = 1e-6  # how far a uniform probability may be from 1 / K, relatively
_ROUNDING = 1e-9  # how far a probability may fall under a floor by rounding, relatively
_RARELY = 1e-3  # how often a pass may end before the length that is counted on


@dataclass(frozen=True)
class ReplayMethod:
    """A method, and what it knows of every row."""

    method: str
    acceptance_probability: float = 0.0
    "With which probability a row is accepted, whatever B chose and whatever happened before; 0 for queues."
    guaranteed: int = 0
    "How many rewards each queue was to have, whatever they turned out to be."


def choose_method(
    logs: Sequence[LoggedRows],
    method: str | None,
    floor: float | Sequence[float] | None,
    guaranteed: int | None,
) -> ReplayMethod:
    """The method asked for, or the best one that applies; an error that says why where none does.

    Where logging was uniform every match is accepted, so matching comes before rejection, and both before queues, which bound what
    they cannot tell.
    """
    if method is not None and method not in METHODS:
        raise InvalidValue("method", method, ", ".join(METHODS))
    even = _uniform_chance(logs)
    promised = min(events.promised for events in logs)
    if floor is not None:
        promised = min(float(shares_of(floor, events.logged_arms).min()) for events in logs)
    if method == MATCHING or (method is None and floor is None and guaranteed is None and even):
        if not even:
            raise CannotAnswer(
                "matching: logging was not uniform, so the rows that match a learning policy's choices are not a "
                f"sample of what it would have seen{_smallest(logs)}. {_advice(logs)}"
            )
        return ReplayMethod(MATCHING, even)
    if method == REJECTION or (method is None and guaranteed is None and promised):
        promised = promised or even
        if not promised:
            raise CannotAnswer(f"rejection: {_unknown(logs)}{_smallest(logs)}. {_advice(logs)}")
        _check_floor(logs, promised)
        return ReplayMethod(REJECTION, promised)
    if method is None and guaranteed is None and any(events.reward_range is None for events in logs):
        raise CannotAnswer(
            f"no way to replay this log: {_unknown(logs)}; logging was not uniform{_smallest(logs)}; and queues, which "
            f"bound what they cannot tell, need reward_range=(low, high). {_advice(logs)}"
        )
    return ReplayMethod(QUEUES, guaranteed=_check_guaranteed(logs, guaranteed or 0))


def reliable_rounds(rows: int, chance: float) -> int:
    """How many rows a pass accepts, in all but one of a thousand passes: a quantile of Binomial(rows, chance).

    >>> reliable_rounds(10_000, 0.05), reliable_rounds(10, 0.01)
    (433, 0)
    """
    from scipy.special import bdtrik

    most = bdtrik(_RARELY, rows, chance) if chance < 1.0 else float(rows)
    return max(0, math.floor(most)) if math.isfinite(most) else 0


def _uniform_chance(logs: Sequence[LoggedRows]) -> float:
    """1 / K where every row of every log gave each of K arms that much; else 0."""
    counts = set()
    for each in logs:
        events = each.randomized_rows()
        if not len(events) or not (events.eligible == events.eligible[0]).all():
            return 0.0
        count = int(events.eligible[0])
        counts.add(count)
        even = (np.abs(events.probability * count - 1.0) <= _SAME) & (
            events.min_probability * count >= 1.0 - _SAME
        )
        if not even.all() or len(counts) > 1:
            return 0.0
    return 1.0 / counts.pop()


def _check_floor(logs: Sequence[LoggedRows], chance: float) -> None:
    for each in logs:
        events = each.randomized_rows()
        under = events.min_probability < chance * (1.0 - _ROUNDING)
        if under.any():
            first = int(under.argmax())
            raise InvalidLog(
                f"{events.source}, row {events.row[first]}: probability",
                float(events.min_probability[first]),
                f"at least {chance:g} for every arm, the floor; {int(under.sum())} of {len(events)} rows are under it "
                f"(the smallest is {events.min_probability.min():.3g})",
            )


def _check_guaranteed(logs: Sequence[LoggedRows], guaranteed: Any) -> int:
    shortest = min(int(np.bincount(each.arm[each.arm >= 0], minlength=len(each.arms)).min()) for each in logs)
    if isinstance(guaranteed, bool) or not isinstance(guaranteed, int | np.integer) or guaranteed < 0:
        raise InvalidValue("guaranteed", guaranteed, "a whole number >= 0")
    if guaranteed > shortest:
        allowed = f"at most {shortest}: the shortest queue has no more rewards"
        raise InvalidValue("guaranteed", guaranteed, allowed)
    return int(guaranteed)


def _unknown(logs: Sequence[LoggedRows]) -> str:
    own = any(events.promised for events in logs)
    return (
        "not every log was made with a constant floor"
        if own
        else "no constant floor under the probabilities is known (floor=... says one that was fixed before logging)"
    )


def _smallest(logs: Sequence[LoggedRows]) -> str:
    drawn = [each.randomized_rows() for each in logs]
    lowest = min(
        (float(min(each.min_probability.min(), each.probability.min())) for each in drawn if len(each)),
        default=1.0,
    )
    return f" (the smallest logged probability is {lowest:.3g})"


def _advice(logs: Sequence[LoggedRows]) -> str:
    """What floor would have made the log answer."""
    rows, arms = min(map(len, logs)), logs[0].logged_arms
    rounds = [f"floor={floor:g} about {reliable_rounds(rows, floor / arms)}" for floor in (0.05, 0.2, 1.0)]
    return f"A log of {rows} rows made under a floor can be replayed for some rounds: {', '.join(rounds)}"
