"""The replay methods: which one applies to a log, and how many rounds it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maillard.errors import CannotAnswer, InvalidLog, InvalidValue
from maillard.evaluation.promised_floors import min_probabilities
from maillard.evaluation.replays.logged_rows import LoggedRows

REJECTION, MATCHING, QUEUES = METHODS = ("rejection", "matching", "queues")
_UNIFORM_TOLERANCE = 1e-6  # relative deviation from 1 / K
_FLOOR_TOLERANCE = 1e-9  # relative rounding error of a probability at the floor
_MAX_SHORT = 1e-3  # probability that a pass ends before `reliable_rounds`


@dataclass(frozen=True)
class ReplayMethod:
    """A replay method with its parameters."""

    name: str
    acceptance_probability: float = 0.0
    "The probability that a row is accepted, independent of the past and of the policy; 0 for queues."
    guaranteed: int = 0
    "The number of rewards that every queue has by design, independent of the values of the rewards."


def choose_method(
    logs: Sequence[LoggedRows],
    name: str | None,
    floor: float | Sequence[float] | None,
    guaranteed: int | None,
) -> ReplayMethod:
    """The requested method, or the best one that applies; an error with the reason if none does.

    Matching comes before rejection, because it accepts every match if logging was uniform. Queues come last,
    because they give only bounds beyond the guaranteed rewards.
    """
    if name is not None and name not in METHODS:
        raise InvalidValue("method", name, ", ".join(METHODS))
    uniform = _uniform_probability(logs)
    known_floor = min(rows.promised for rows in logs)
    if floor is not None:
        known_floor = min(float(min_probabilities(floor, rows.logged_arms).min()) for rows in logs)
    if name == MATCHING or (name is None and floor is None and guaranteed is None and uniform):
        if not uniform:
            raise CannotAnswer(
                "matching: logging was not uniform, so the rows that match a learning policy's choices are "
                f"a biased sample{_smallest(logs)}. {_advice(logs)}"
            )
        return ReplayMethod(MATCHING, uniform)
    if name == REJECTION or (name is None and guaranteed is None and known_floor):
        known_floor = known_floor or uniform
        if not known_floor:
            raise CannotAnswer(f"rejection: {_no_floor(logs)}{_smallest(logs)}. {_advice(logs)}")
        _check_floor(logs, known_floor)
        return ReplayMethod(REJECTION, known_floor)
    if name is None and guaranteed is None and any(rows.reward_range is None for rows in logs):
        raise CannotAnswer(
            f"no method can replay this log: {_no_floor(logs)}; logging was not uniform{_smallest(logs)}; "
            f"and queues, which give bounds, need reward_range=(low, high). {_advice(logs)}"
        )
    return ReplayMethod(QUEUES, guaranteed=_check_guaranteed(logs, guaranteed or 0))


def reliable_rounds(rows: int, acceptance_probability: float) -> int:
    """The number of rows that a pass accepts at least, except in one of a thousand passes.

    It is a quantile of Binomial(rows, acceptance_probability).

    >>> reliable_rounds(10_000, 0.05), reliable_rounds(10, 0.01)
    (433, 0)
    """
    from scipy.special import bdtrik

    if acceptance_probability >= 1.0:
        return rows
    quantile = bdtrik(_MAX_SHORT, rows, acceptance_probability)
    return max(0, math.floor(quantile)) if math.isfinite(quantile) else 0


def _uniform_probability(logs: Sequence[LoggedRows]) -> float:
    """1 / K if each of K arms had this probability in every row of every log; otherwise 0."""
    counts = set()
    for each in logs:
        rows = each.randomized_rows()
        if not len(rows) or not (rows.eligible == rows.eligible[0]).all():
            return 0.0
        count = int(rows.eligible[0])
        counts.add(count)
        uniform = np.abs(rows.probability * count - 1.0) <= _UNIFORM_TOLERANCE
        uniform &= rows.min_probability * count >= 1.0 - _UNIFORM_TOLERANCE
        if not uniform.all() or len(counts) > 1:
            return 0.0
    return 1.0 / counts.pop()


def _check_floor(logs: Sequence[LoggedRows], floor: float) -> None:
    for each in logs:
        rows = each.randomized_rows()
        below = rows.min_probability < floor * (1.0 - _FLOOR_TOLERANCE)
        if below.any():
            first = int(below.argmax())
            raise InvalidLog(
                f"{rows.source}, row {rows.row[first]}: probability",
                float(rows.min_probability[first]),
                f"at least {floor:g}, the floor, for every arm (in {int(below.sum())} of {len(rows)} rows an "
                f"arm has less, the least is {rows.min_probability.min():.3g})",
            )


def _check_guaranteed(logs: Sequence[LoggedRows], guaranteed: Any) -> int:
    shortest = min(int(np.bincount(each.arm[each.arm >= 0], minlength=len(each.arms)).min()) for each in logs)
    if isinstance(guaranteed, bool) or not isinstance(guaranteed, int | np.integer) or guaranteed < 0:
        raise InvalidValue("guaranteed", guaranteed, "a whole number >= 0")
    if guaranteed > shortest:
        allowed = f"at most {shortest}, the number of rewards in the shortest queue"
        raise InvalidValue("guaranteed", guaranteed, allowed)
    return int(guaranteed)


def _no_floor(logs: Sequence[LoggedRows]) -> str:
    if any(rows.promised for rows in logs):
        return "not every log was made with a constant floor"
    return "no constant floor of the probabilities is known (pass floor=... if one was fixed before logging)"


def _smallest(logs: Sequence[LoggedRows]) -> str:
    randomized = [rows for each in logs if len(rows := each.randomized_rows())]
    smallest = min(
        (min(rows.min_probability.min(), rows.probability.min()) for rows in randomized), default=1.0
    )
    return f" (the smallest logged probability is {smallest:.3g})"


def _advice(logs: Sequence[LoggedRows]) -> str:
    """How many rounds the log would give if it had been made with a floor."""
    rows, arms = min(map(len, logs)), logs[0].logged_arms
    rounds = [
        f"floor={floor:g} gives about {reliable_rounds(rows, floor / arms)}" for floor in (0.05, 0.2, 1.0)
    ]
    return f"With a floor, a log of {rows} rows can be replayed for some rounds: {', '.join(rounds)}"
