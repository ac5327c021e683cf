"""The rows of a log that are informative about one target, each with its weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.columns import Columns, select_rows
from maillard.errors import InvalidLog
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.evaluation_log import EvaluationLog

_SHARED_WITH_COLUMNS = ("row", "arm", "reward", "log_probability", "epoch", "state", "repeated")
MIN_PROBABILITY = 1e-100  # of a chosen arm: a smaller one would never be chosen


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedRows:
    """Rows in which every arm of the target could have been chosen, in log order."""

    row: Ints
    arm: Ints
    reward: Floats
    log_probability: Floats
    "Of the chosen arm."
    weight: Floats
    "w = π(a) / p(a) of the chosen arm."
    target_probabilities: Floats
    "π, P x K."
    target_row: Ints
    "The row of `target_probabilities` that applies."
    model: Floats
    "The reward model's prediction q(a) for the chosen arm, minus the center; 0 without a model."
    base: Floats
    "Σ π q, minus the center; 0 without a model."
    center: float
    bounds: tuple[float, float]
    "The range of rewards."
    probabilities: Floats | None
    "p of every arm, n x K; None if the log does not have them."
    propensity: Floats | None
    "1 / Σ π² / p; for a single arm this is its probability."
    epoch: Ints
    state: Ints
    repeated: Bools
    "Whether the row repeats the choice of an earlier decision."
    unit: NDArray[np.object_] | None
    "The unit of each row, if the rows of a unit may depend on each other."
    named_unit: NDArray[np.object_] | None = None
    "The unit of each row, or None for a row without one, if the log has units."

    def __len__(self) -> int:
        return self.arm.size

    @cached_property
    def scaled_reward(self) -> Floats:
        """The reward on the scale from 0 to 1."""
        low, high = self.bounds
        return np.clip((self.reward - low) / (high - low), 0.0, 1.0)

    def filter(self, mask: Bools) -> WeightedRows:
        """The rows for which the mask is true."""
        if mask.all():
            return self
        shared = ("target_probabilities", "center", "bounds")
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        chosen: Any = {
            name: value if name in shared or value is None else select_rows(value, mask)
            for name, value in values.items()
        }
        return WeightedRows(**chosen)


def rewarded_columns(
    columns: Columns, log: EvaluationLog, fill_missing: Sequence[float] | None = None
) -> tuple[Columns, Mapping[str, int]]:
    """The rows with final rewards, and the number of other rows by reason.

    With `fill_missing`, missing rewards are replaced by the number for their arm.
    """
    left_out: dict[str, int] = {}
    if log.requires_closed_windows:
        left_out["window not closed"] = int((~columns.closed).sum())
        columns = columns.filter(columns.closed)
    missing = np.isnan(columns.reward)
    if missing.any():
        if log.foreign:
            at = int(missing.argmax())
            allowed = "a finite number in every row; remove the rows without a reward, if that is intended"
            raise InvalidLog(f"{log.source}, row {columns.row[at]}: reward", None, allowed)
        if fill_missing is None:
            left_out["without a reward"] = int(missing.sum())
            columns = columns.filter(~missing)
        else:
            columns = replace(
                columns, reward=np.where(missing, np.array(fill_missing)[columns.arm], columns.reward)
            )
    check_range(columns.reward, columns.row, log.reward_range, log.source)
    return columns, left_out


def check_range(reward: Floats, row: Ints, limits: tuple[float, float] | None, source: str) -> None:
    """Raise an error that names the first reward outside a known range."""
    if limits is None:
        return
    low, high = limits
    outside = ~((reward >= low) & (reward <= high))
    if outside.any():
        at = int(outside.argmax())
        allowed = f"a number from {low:g} to {high:g}, the reward range"
        raise InvalidLog(f"{source}, row {row[at]}: reward", float(reward[at]), allowed)


def weighted_rows(
    columns: Columns, log: EvaluationLog, target: Target, *, by_unit: bool, wanted_arms: Bools | None = None
) -> tuple[WeightedRows, Mapping[str, int]]:
    """The rows that are informative about the target, and the number of other rows by reason.

    With `wanted_arms`, only rows in which each of these arms could have been chosen.
    """
    left_out: dict[str, int] = {}
    target_row = _target_rows(columns, target, log.source)
    wanted = target.probabilities != 0
    if wanted_arms is not None:
        wanted = wanted | wanted_arms
    if columns.eligible is not None:
        able = ~(wanted[target_row] & ~columns.eligible).any(axis=1)
        left_out["not eligible"] = int((~able).sum())
        columns, target_row = columns.filter(able), target_row[able]
    probabilities = columns.probabilities if columns.has_all_probabilities else None
    propensity = None
    if probabilities is not None:
        if not (probabilities.T[wanted.any(axis=0)] > 0).all():
            able = ~(wanted[target_row] & ~(probabilities > 0)).any(axis=1)
            left_out["without support"] = int((~able).sum())
            columns, target_row = columns.filter(able), target_row[able]
            probabilities = select_rows(probabilities, able)
        propensity = _propensity(probabilities, target.probabilities**2, target_row)
    tiny = columns.log_probability < np.log(MIN_PROBABILITY)
    if tiny.any():
        at = int(tiny.argmax())
        field = f"{log.source}, row {columns.row[at]}: log_probability"
        allowed = f"that of an arm that can have been chosen: a probability of at least {MIN_PROBABILITY:g}"
        raise InvalidLog(field, float(columns.log_probability[at]), allowed)
    weight = target.probabilities[target_row, columns.arm] * np.exp(-columns.log_probability)
    _check_floor(weight, columns.row, log, target)
    model = base = np.broadcast_to(0.0, len(columns))
    if target.reward_model is not None:
        apart = target.reward_model - log.center
        model = apart[target_row, columns.arm]
        base = (target.probabilities * apart).sum(axis=1)[target_row]
    rows = WeightedRows(
        **{name: getattr(columns, name) for name in _SHARED_WITH_COLUMNS},
        weight=weight,
        target_probabilities=target.probabilities,
        target_row=target_row,
        model=model,
        base=base,
        center=log.center,
        bounds=log.reward_bounds,
        probabilities=probabilities,
        propensity=propensity,
        unit=_units(columns) if by_unit else None,
        named_unit=columns.unit,
    )
    return rows, left_out


def _check_floor(weight: Floats, row: Ints, log: EvaluationLog, target: Target) -> None:
    """Raise an error if a weight exceeds what the floor of the logging policy allows."""
    limit = log.max_weight(target)
    if limit is not None and weight.size and weight.max() > limit:
        at = int(weight.argmax())
        allowed = f"at most {limit:.6g}, the largest weight that the floor allows"
        raise InvalidLog(f"{log.source}, row {row[at]}: weight", float(weight[at]), allowed)


def _units(columns: Columns) -> NDArray[np.object_]:
    """The unit of each row; a row without one is a unit by itself."""
    rows = columns.row.astype(np.object_)
    if columns.unit is None:
        return rows
    known = np.fromiter((each is not None for each in columns.unit), np.bool_, len(columns))
    return np.where(known, columns.unit, rows)


def _target_rows(columns: Columns, target: Target, source: str) -> Ints:
    """The row of the target's matrix for each logged row: that of its position."""
    count, first = target.positions, target.first_position
    if count == 1:
        return np.zeros(len(columns), np.int64)
    row = columns.position - first
    if len(columns) and not 0 <= row.min() <= row.max() < count:
        at = int(((row < 0) | (row >= count)).argmax())
        allowed = f"one of the target's {count} positions, from {first} on"
        raise InvalidLog(f"{source}, row {columns.row[at]}: position", int(columns.position[at]), allowed)
    return row


def _propensity(probabilities: Floats, squares: Floats, target_row: Ints) -> Floats:
    """1 / Σ π² / p."""
    arms = np.flatnonzero(squares.any(axis=0))
    if arms.size == 1:
        return np.asarray(probabilities[:, arms[0]] / squares[target_row, arms[0]])
    if len(squares) > 1:  # otherwise the only position is broadcast to all rows
        squares = squares[target_row]
    out = np.zeros_like(probabilities)
    ratio = np.divide(squares, probabilities, out=out, where=probabilities > 0)
    return np.asarray(1.0 / ratio.sum(axis=1))
