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
    predictions: Floats | None = None
    "The reward that a model predicts for each arm from earlier rows, n x K; None without such a model."
    epoch: Ints
    state: Ints
    repeated: Bools
    "Whether the row repeats the choice of an earlier decision."
    unit: NDArray[np.object_] | None
    "The unit of each row, if the rows of a unit may depend on each other."
    both: Floats | None = None
    "For the difference of two contextual targets: the weight of each of them, n x 2."
    named_unit: NDArray[np.object_] | None = None
    "The unit of each row, or None for a row without one, if the log has units."

    def __len__(self) -> int:
        return self.arm.size

    @cached_property
    def scaled_reward(self) -> Floats:
        """The reward on the scale from 0 to 1."""
        low, high = self.bounds
        return np.clip((self.reward - low) / (high - low), 0.0, 1.0)

    @property
    def predicted_scores(self) -> Floats | None:
        """Γ = Σ π q + w (r - q) with the predictions q; None without predictions."""
        if self.predictions is None:
            return None
        total: Floats = self.target_probabilities.sum(axis=1)[self.target_row]
        residual: Floats = self.weight * (self.reward - self.center - self.model)
        return self.base + total * self.center + residual

    @property
    def scaled_predictions(self) -> Floats | None:
        """The predictions on the scale from 0 to 1; None without predictions."""
        low, high = self.bounds
        return (
            None if self.predictions is None else np.clip((self.predictions - low) / (high - low), 0.0, 1.0)
        )

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
            allowed = (
                "a finite number in every row (if an empty cell means that there was no click, write 0; "
                "without these rows every estimate would be biased)"
            )
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
    columns: Columns,
    log: EvaluationLog,
    target: Target,
    *,
    by_unit: bool,
    wanted_arms: Bools | None = None,
    shared_with: Sequence[Target] = (),
) -> tuple[WeightedRows, Mapping[str, int]]:
    """The rows that are informative about the target, and the number of other rows by reason.

    With `wanted_arms`, only rows in which each of these arms could have been chosen; with `shared_with`, only
    rows in which each arm of these targets could have been chosen.
    """
    left_out: dict[str, int] = {}
    for each in (target, *shared_with):
        if (selected := each.selects(columns)) is not None and not selected[1].all():
            why, chosen = selected
            left_out[why] = int((~chosen).sum())
            columns = columns.filter(chosen)
    columns, others = _with_others(columns, log, shared_with)
    table, target_row = target.rows_of(columns, log.source)
    if (impossible := target_row < 0).any():
        left_out["not eligible"] = int(impossible.sum())
        columns, target_row = columns.filter(~impossible), target_row[~impossible]
        others = None if others is None else others[~impossible]
    wanted = table != 0
    if wanted_arms is not None:
        wanted = wanted | wanted_arms
    if columns.eligible is not None:
        able = np.asarray(~(_needed(wanted, target_row, others) & ~columns.eligible).any(axis=1))
        left_out["not eligible"] = left_out.get("not eligible", 0) + int((~able).sum())
        columns, target_row = columns.filter(able), target_row[able]
        others = None if others is None else others[able]
    probabilities = columns.probabilities if columns.has_all_probabilities else None
    propensity = None
    if probabilities is not None:
        some = wanted.any(axis=0) if others is None else wanted.any(axis=0) | others.any(axis=0)
        if not (probabilities.T[some] > 0).all():
            able = np.asarray(~(_needed(wanted, target_row, others) & ~(probabilities > 0)).any(axis=1))
            left_out["without support"] = int((~able).sum())
            columns, target_row = columns.filter(able), target_row[able]
            probabilities = select_rows(probabilities, able)
        propensity = _propensity(probabilities, table**2, target_row)
    tiny = columns.log_probability < np.log(MIN_PROBABILITY)
    if tiny.any():
        at = int(tiny.argmax())
        field = f"{log.source}, row {columns.row[at]}: log_probability"
        allowed = f"that of an arm that can have been chosen: a probability of at least {MIN_PROBABILITY:g}"
        raise InvalidLog(field, float(columns.log_probability[at]), allowed)
    weight = table[target_row, columns.arm] * np.exp(-columns.log_probability)
    _check_floor(weight, columns.row, log, target)
    model = base = np.broadcast_to(0.0, len(columns))
    if target.reward_model is not None:
        apart = target.reward_model - log.center
        model = apart[target_row if len(apart) > 1 else 0, columns.arm]
        base = (table * apart).sum(axis=1)[target_row]
    elif columns.predictions is not None:
        apart = columns.predictions - log.center
        model = apart[np.arange(len(columns)), columns.arm]
        base = (table[target_row] * apart).sum(axis=1)
    rows = WeightedRows(
        **{name: getattr(columns, name) for name in _SHARED_WITH_COLUMNS},
        weight=weight,
        target_probabilities=table,
        target_row=target_row,
        predictions=columns.predictions,
        both=_both(columns, log, target),
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


def _both(columns: Columns, log: EvaluationLog, target: Target) -> Floats | None:
    if not (target.contextual and target.is_difference):
        return None
    tables = [part.rows_of(columns, log.source) for part in target.parts]
    chosen = [table[row, columns.arm] for table, row in tables]
    return np.stack(chosen, axis=1) * np.exp(-columns.log_probability)[:, np.newaxis]


def _with_others(
    columns: Columns, log: EvaluationLog, targets: Sequence[Target]
) -> tuple[Columns, Bools | None]:
    """The rows in which these targets can choose, and the arms that they can choose there, n x K."""
    others: Bools | None = None
    for each in targets:
        table, row = each.rows_of(columns, log.source)
        if (row < 0).any():
            columns = columns.filter(row >= 0)
            return _with_others(columns, log, targets)
        found = (table != 0)[row]
        others = found if others is None else others | found
    return columns, others


def _needed(wanted: Bools, target_row: Ints, others: Bools | None) -> Bools:
    """The arms that must have been possible in each row."""
    own: Bools = wanted[target_row]
    return own if others is None else own | others


def _check_floor(weight: Floats, row: Ints, log: EvaluationLog, target: Target) -> None:
    """Raise an error if a weight exceeds what the floor of the logging policy allows."""
    if weight.size:
        at = int(weight.argmax())
        log.check_weight(float(weight[at]), target, f", row {row[at]}: weight")


def _units(columns: Columns) -> NDArray[np.object_]:
    """The unit of each row; a row without one is a unit by itself."""
    rows = columns.row.astype(np.object_)
    if columns.unit is None:
        return rows
    known = np.fromiter((each is not None for each in columns.unit), np.bool_, len(columns))
    return np.where(known, columns.unit, rows)


def _propensity(probabilities: Floats, squares: Floats, target_row: Ints) -> Floats:
    """1 / Σ π² / p."""
    arms = np.flatnonzero(squares.any(axis=0))
    if arms.size == 1 and (squares[:, arms[0]] > 0).all():
        return np.asarray(probabilities[:, arms[0]] / squares[target_row, arms[0]])
    if len(squares) > 1:  # otherwise the only position is broadcast to all rows
        squares = squares[target_row]
    out = np.zeros_like(probabilities)
    total = np.divide(squares, probabilities, out=out, where=probabilities > 0).sum(axis=1)
    # A difference of two targets that agree in a row has no variance there.
    return np.asarray(1.0 / np.where(total > 0, total, 1.0))
