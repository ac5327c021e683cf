"""The rows of a log as an estimator sees them: for one target, each with its weight, and only those that can say something of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from maillard.decisions.columns import Columns
    from maillard.evaluation.bound_targets import Target

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = ["MIN_PROBABILITY", "Question", "Rows", "check_range", "rows_for", "with_rewards"]

MIN_PROBABILITY = 1e-100  # probability of an arm that was drawn: nobody will live to see one


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """What is asked of every row."""

    target: Target
    first_position: int = 0
    "The position that the target's first law is for."
    model: Floats | None = None
    "What each arm is believed to give, of every position of the target: P x K."
    by_unit: bool = False
    ends: tuple[float, float] = (0.0, 1.0)
    "Of the range of rewards, or of what it mostly is."
    centre: float = 0.0
    "Near the mean reward: sums are of what rewards are apart from it, so that squares of large rewards cost no digits."


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Rows of which the target's whole support could have been drawn, in the order of the log."""

    row: Integers
    arm: Integers
    reward: Floats
    log_probability: Floats
    "Of that arm."
    weight: Floats
    "w = π(a) / p(a) of the arm that was drawn."
    laws: Floats
    "Of the target: P x K."
    law: Integers
    "Which of them holds."
    model: Floats
    "q(a) of the arm that was drawn, from the centre; 0 without a model."
    base: Floats
    "Σ π q, from the centre; 0 without a model."
    centre: float
    ends: tuple[float, float]
    chances: Floats | None
    "p of every arm, n x K; None where the log has not got them."
    propensity: Floats | None
    "1 / Σ π² / p: what a probability is for a single arm."
    epoch: Integers
    state: Integers
    repeated: NDArray[np.bool_]
    "Whether it repeats the draw of another decision."
    unit: NDArray[np.object_] | None

    def __len__(self) -> int:
        return self.arm.size

    def filter(self, mask: NDArray[np.bool_]) -> Rows:
        """The rows for which the mask is true."""
        if mask.all():
            return self
        values = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in ("laws", "centre", "ends")
        }
        chosen: Any = {name: None if value is None else value[mask] for name, value in values.items()}
        return Rows(laws=self.laws, centre=self.centre, ends=self.ends, **chosen)


def with_rewards(
    some: Columns,
    *,
    requires_closed_windows: bool,
    foreign: bool,
    reward_range: tuple[float, float] | None,
    source: str,
) -> tuple[Columns, Mapping[str, int]]:
    """The rows whose rewards are final, and how many others there were, by why."""
    left: dict[str, int] = {}
    if requires_closed_windows:
        left["window not closed"] = int((~some.closed).sum())
        some = some.filter(some.closed)
    missing = np.isnan(some.reward)
    if missing.any():
        if foreign:
            at = int(missing.argmax())
            allowed = "a finite number in every row; leave out the rows that have none, if that is meant"
            raise InvalidLog(f"{source}, row {some.row[at]}: reward", None, allowed)
        left["without a reward"] = int(missing.sum())
        some = some.filter(~missing)
    check_range(some.reward, some.row, reward_range, source)
    return some, left


def check_range(reward: Floats, row: Integers, limits: tuple[float, float] | None, source: str) -> None:
    """An error that names the first reward outside its range, where that is known."""
    if limits is None:
        return
    low, high = limits
    outside = ~((reward >= low) & (reward <= high))
    if outside.any():
        at = int(outside.argmax())
        allowed = f"a number from {low:g} to {high:g}, the reward range"
        raise InvalidLog(f"{source}, row {row[at]}: reward", float(reward[at]), allowed)


def rows_for(some: Columns, question: Question, source: str) -> tuple[Rows, Mapping[str, int]]:
    """The rows that can say something of the target, and how many others there were, by why."""
    target, left = question.target, {}
    law = _law_places(some, question, source)
    wanted = target.laws != 0
    if some.eligible is not None:
        able = ~(wanted[law] & ~some.eligible).any(axis=1)
        left["not eligible"] = int((~able).sum())
        some, law = some.filter(able), law[able]
    logs = some.log_probabilities if some.has_all_probabilities else None
    chances = propensity = None
    if logs is not None:
        chances = np.exp(logs)
        able = ~(wanted[law] & ~(chances > 0)).any(axis=1)
        if not able.all():
            left["without support"] = int((~able).sum())
            some, law, chances = some.filter(able), law[able], chances[able]
        propensity = _propensity(chances, target.laws**2, law)
    tiny = some.log_probability < np.log(MIN_PROBABILITY)
    if tiny.any():
        at = int(tiny.argmax())
        where = f"{source}, row {some.row[at]}: log_probability"
        raise InvalidLog(
            where, float(some.log_probability[at]), "of an arm that can have been drawn: at least 1e-100"
        )
    weight = target.laws[law, some.arm] * np.exp(-some.log_probability)
    nothing = np.broadcast_to(0.0, len(some))
    model, base = nothing, nothing
    if question.model is not None:
        apart = question.model - question.centre
        model, base = apart[law, some.arm], (target.laws * apart).sum(axis=1)[law]
    unit = None
    if question.by_unit:
        unit = some.row.astype(np.object_)  # a row that is nobody's is a unit of its own
        if some.unit is not None:
            theirs = np.fromiter((each is not None for each in some.unit), np.bool_, len(some))
            unit = np.where(theirs, some.unit, unit)
    rows = Rows(
        row=some.row,
        arm=some.arm,
        reward=some.reward,
        log_probability=some.log_probability,
        weight=weight,
        laws=target.laws,
        law=law,
        model=model,
        base=base,
        centre=question.centre,
        ends=question.ends,
        chances=chances,
        propensity=propensity,
        epoch=some.epoch,
        state=some.state,
        repeated=some.repeated,
        unit=unit,
    )
    return rows, left


def _law_places(some: Columns, question: Question, source: str) -> Integers:
    """Which of the target's laws holds in each row: that of its position."""
    count, first = question.target.positions, question.first_position
    if count == 1:
        return np.zeros(len(some), np.int64)
    law = some.position - first
    if len(some) and not 0 <= law.min() <= law.max() < count:
        at = int(((law < 0) | (law >= count)).argmax())
        allowed = f"a place in the target's {count} columns, from {first} on"
        raise InvalidLog(f"{source}, row {some.row[at]}: position", int(some.position[at]), allowed)
    return law


def _propensity(chances: Floats, squares: Floats, law: Integers) -> Floats:
    """1 / Σ π² / p."""
    arms = np.flatnonzero(squares.any(axis=0))
    if arms.size == 1:
        alone: Floats = chances[:, arms[0]] / squares[law, arms[0]]
        return alone
    ratio = np.divide(squares[law], chances, out=np.zeros_like(chances), where=chances > 0)
    several: Floats = 1.0 / ratio.sum(axis=1)
    return several
