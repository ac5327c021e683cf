"""Decisions as columns: one array per field, for computations over many rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.contexts import Contexts
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, POSSIBLE
from maillard.decisions.encoded_contexts import rows_for_all_arms
from maillard.decisions.row_numbers import NumberedRow
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from maillard.decisions.action_columns import Actions
    from maillard.decisions.log import DecisionLog
    from maillard.decisions.stores.contract import Row

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

# The largest number of decisions, and of probabilities, in a batch.
MAX_BATCH_ROWS, MAX_BATCH_VALUES = 20_000, 500_000
_SUM_TOLERANCE = 1e-6  # for sums of probabilities: other programs write few digits


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """A batch of n decisions of a log with K arms, in log order."""

    row: Integers
    "Row number in the source, from 1."
    arm: Integers
    "Index of the chosen arm among the log's arms."
    reward: Floats
    "NaN if there is no reward."
    log_probability: Floats
    "Log probability of the chosen arm."
    log_probabilities: Floats | None = None
    "Log probabilities of all arms, n x K: -inf for an impossible arm, NaN if unknown; None if all are"
    "unknown. In Fortran order, which makes sums over few arms fast."
    eligible: NDArray[np.bool_] | None = None
    "Which arms could have been chosen, n x K; None: all."
    position: Integers
    epoch: Integers
    state: Integers
    time: Integers
    "Microseconds since 1970."
    unit: NDArray[np.object_] | None = None
    "The unit of each decision, or None."
    closed: NDArray[np.bool_]
    "Whether the reward window had closed."
    late_reward: Floats | None = None
    "The reward that a decision would have if late rewards counted; NaN without late ones; None if unknown."
    repeated: NDArray[np.bool_]
    "Whether the decision repeats the choice of another (sticky assignment)."
    step: Integers | None = None
    "How much the row's number exceeds that of the row before in a foreign table; None if it has none."
    contexts: Contexts | None = None
    "The contexts of the decisions; None if the log has none."
    encoded: NDArray[np.object_] | None = None
    "What each distribution was computed from, in binary form (`encoded_contexts`); None without contexts."
    feature_version: Integers | None = None
    "The version of the features that contexts were encoded with; None without contexts."
    predictions: Floats | None = None
    "The reward that a model predicts for each arm, n x K, from earlier rows only; None without a model."
    actions: Actions | None = None
    "The actions of each decision, if the arms differ at every decision; an arm's index is then its rank."

    def __len__(self) -> int:
        return self.arm.size

    @cached_property
    def probability(self) -> Floats:
        """The probability of the chosen arm."""
        return np.exp(self.log_probability)

    @cached_property
    def has_all_probabilities(self) -> bool:
        """Whether the probabilities of all arms are known in all rows."""
        return self.log_probabilities is not None and not np.isnan(self.log_probabilities).any()

    @cached_property
    def probabilities(self) -> Floats | None:
        """The probabilities of all arms, n x K; None if all are unknown."""
        with np.errstate(over="ignore"):
            return None if self.log_probabilities is None else np.exp(self.log_probabilities)

    def filter(self, mask: NDArray[np.bool_]) -> Columns:
        """Return the rows for which the mask is true."""
        if mask.all():
            return self
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        parts: Any = {name: values.pop(name) for name in ("contexts", "actions")}
        chosen: Any = {
            name: None if value is None else select_rows(value, mask) for name, value in values.items()
        }
        more: Any = {name: None if each is None else each.filter(mask) for name, each in parts.items()}
        return Columns(**chosen, **more)

    def check(self, source: str) -> Columns:
        """Return self, or raise an error that names the first invalid row."""
        bad = ~((self.log_probability <= LOG_PROBABILITY_TOLERANCE) & (self.log_probability > -np.inf))
        if bad.any():
            probability = np.exp(np.minimum(self.log_probability, 700.0))
            self._refuse(source, "probability", bad, probability, POSSIBLE)
        every = np.arange(len(self))
        if self.eligible is not None:
            allowed = "a set that includes the chosen arm"
            self._refuse(source, "eligible", ~self.eligible[every, self.arm], self.arm, allowed)
        logs = self.log_probabilities
        if logs is None:
            return self
        known = ~np.isnan(logs).any(axis=1)
        largest = np.max(logs, axis=1, initial=-np.inf, where=~np.isnan(logs))
        above = largest > LOG_PROBABILITY_TOLERANCE
        self._refuse(source, "log_probabilities", above, largest, "numbers <= 0")
        logged = logs[every, self.arm]
        apart = ~np.isnan(logged) & ~(np.abs(logged - self.log_probability) <= _SUM_TOLERANCE)
        allowed = "the value in log_probabilities for the chosen arm"
        self._refuse(source, "log_probability", apart, self.log_probability, allowed)
        total = np.exp(logs).sum(axis=1)
        off = known & ~(np.abs(total - 1.0) <= _SUM_TOLERANCE)
        self._refuse(source, "log_probabilities", off, total, "probabilities with sum 1")
        return self

    def check_order(self, last: int, source: str) -> int:
        """Check that states do not decrease, starting from `last`. Return the state of the last row."""
        if not len(self):
            return last
        if self.state[0] < max(last, 0) or (self.state[1:] < self.state[:-1]).any():
            back = np.diff(self.state, prepend=max(last, 0)) < 0
            self._refuse(source, "state", back, self.state, "rows in the order of their states")
        return int(self.state[-1])

    def _refuse(self, source: str, name: str, bad: NDArray[Any], values: NDArray[Any], allowed: str) -> None:
        if bad.any():
            first = int(bad.argmax())
            raise InvalidValue(f"{source}, row {self.row[first]}: {name}", values[first].item(), allowed)


def select_rows(values: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the rows for which the mask is true. A matrix in Fortran order stays in this order."""
    return values.T.compress(mask, axis=-1).T


def columns_of(log: DecisionLog, rows: Iterable[Row]) -> Iterator[Columns]:
    """Convert rows to columns, in batches."""
    place = {arm: i for i, arm in enumerate(log.arms)}
    max_rows = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_VALUES // max(len(place), 1)))
    remaining, done = iter(rows), 0
    while batch := list(islice(remaining, max_rows)):
        yield _columns_of_batch(log, batch, place, done)
        done += len(batch)


def _columns_of_batch(log: DecisionLog, rows: Sequence[Row], place: dict[str, int], done: int) -> Columns:
    decisions = [row.decision for row in rows]
    n = len(rows)
    logs = np.full((n, len(place)), -np.inf)
    eligible = np.zeros((n, len(place)), np.bool_)
    for i, d in enumerate(decisions):
        try:
            places = [place[arm] for arm in d.eligible]
        except KeyError:
            where = f"{log.source}, row {done + i + 1}: eligible"
            raise InvalidValue(where, list(d.eligible), "arms of the experiment") from None
        logs[i, places] = d.log_probabilities
        eligible[i, places] = True
    unknown = np.isnan(logs).any(axis=1).all()
    return Columns(
        arm=np.fromiter((place[d.arm] for d in decisions), np.int64, n),
        log_probabilities=None if unknown else np.asfortranarray(logs),
        eligible=None if eligible.all() else np.asfortranarray(eligible),
        **fields_of_rows(log, rows, done),
        **contexts_of_rows(log, rows),
    ).check(log.source)


def fields_of_rows(log: DecisionLog, rows: Sequence[Row], done: int) -> dict[str, Any]:
    """The fields of `Columns` that do not depend on the arms or the context; `done` rows came before."""
    decisions, n = [row.decision for row in rows], len(rows)
    rewards = [log.reward_of(row) for row in rows]
    units = [d.unit for d in decisions]
    steps = [row.step for row in rows if isinstance(row, NumberedRow) and row.step is not None]

    def whole(values: Iterable[int]) -> Integers:
        return np.fromiter(values, np.int64, n)

    return {
        "row": np.arange(done + 1, done + n + 1),
        "reward": np.array([math.nan if each is None else each for each in rewards]),
        "log_probability": np.array([d.log_probability for d in decisions]),
        "position": whole(d.position for d in decisions),
        "epoch": whole(d.epoch for d in decisions),
        "state": whole(d.state for d in decisions),
        "time": whole(d.time for d in decisions),
        "unit": np.array(units, dtype=np.object_) if any(unit is not None for unit in units) else None,
        "closed": np.array([log.is_closed(d) for d in decisions]),
        "repeated": np.array([d.origin is not None for d in decisions]),
        "late_reward": _late_rewards(log, rows),
        "step": np.array(steps, np.int64) if len(steps) == n else None,
    }


def contexts_of_rows(log: DecisionLog, rows: Sequence[Row]) -> dict[str, Any]:
    """The contexts of decisions as fields of `Columns`; empty if no decision has one."""
    decisions = [row.decision for row in rows]
    texts = [
        row.context if isinstance(row, NumberedRow) and row.context else row.decision.context for row in rows
    ]
    return context_fields(
        Contexts.of_texts(texts, where=f"{log.source}: context") if any(texts) else None,
        [d.encoded for d in decisions],
        [d.feature_version for d in decisions],
        by_rank=log.has_actions,
    )


def context_fields(
    contexts: Contexts | None,
    encoded: Sequence[bytes | None],
    versions: Sequence[int],
    *,
    by_rank: bool = False,
) -> dict[str, Any]:
    """The fields of `Columns` for these contexts and what they were encoded as.

    `by_rank`: whether each arm has its own row, because the arms differ at every decision.
    """
    if not any(encoded):
        return {"contexts": contexts}
    contexts = Contexts.of_texts([None] * len(encoded)) if contexts is None else contexts
    contexts.rows = None if by_rank else rows_for_all_arms(encoded)
    data = np.empty(len(encoded), np.object_)
    data[:] = encoded
    return {"contexts": contexts, "encoded": data, "feature_version": np.array(versions, np.int64)}


def _late_rewards(log: DecisionLog, rows: Sequence[Row]) -> Floats | None:
    """The reward of each decision with late rewards, if late rewards counted; None if there are none."""
    if log.reward is None:
        return None
    found = np.array([log.reward.total_with_late(row.rewards) for row in rows], np.float64)
    return None if np.isnan(found).all() else found
