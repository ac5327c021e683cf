"""Checks that the rows of an exported log are still those that were exported.

An export has every event of its experiment: the administrative ones in the metadata, the others in the column
`applied`. If there are fewer than the metadata says, rows were removed. Decisions without
events (no reward was applied) cannot be missed in this way. The column `reward` is derived from `rewards`,
`applied` and the reward rule, so that an edited value is found by deriving it again.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.decisions.decision import RewardEvent
from maillard.decisions.log import DecisionLog
from maillard.decisions.stores.contract import Row
from maillard.errors import InvalidLog

if TYPE_CHECKING:
    from maillard.decisions.files.table_logs import Table

_TOLERANCE = 1e-9  # relative, of a reward


def check_row(log: DecisionLog, values: Any, row: Row) -> None:
    """Raise an error if the row's reward is not the one that its reward events give."""
    if "reward" in values and not _agree(values["reward"], log.reward_of(row)):
        raise InvalidLog("reward", values["reward"], _allowed(log.reward_of(row)))


def _agree(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _TOLERANCE * max(1.0, abs(other))


def _allowed(reward: float | None) -> str:
    given = "no reward" if reward is None else f"{reward!r}"
    return f"{given}, which the reward events give; the column was edited. Export the log again"


def check_table(table: Table, log: DecisionLog, *, whole: bool) -> None:
    """Raise an error if rows were removed from an exported table, or if rewards were edited.

    `whole`: whether the export is of all decisions, not of a selection.
    """
    from maillard.decisions.files.arrow import cast
    from maillard.decisions.files.reward_lists import list_column

    names = ["time", "reward", "rewards", "applied"]
    if _passes_quickly(table, log, whole=whole):
        return
    events, done = log.events_elsewhere, 0
    for batch in itertools.chain.from_iterable(part(names) for part in table.parts):
        columns = {name: list_column(batch, name, table.source) for name in names}
        events += len(columns["applied"].flatten())
        for place in _suspect_rows(columns, log).tolist():
            one = batch.slice(place, 1)
            time, given, *lists = (cast(one, name, table.source)[0].as_py() for name in names)
            reward = _reward_of(log, time, *lists)
            if not _agree(given, reward):
                raise InvalidLog(f"{table.source}, row {done + place + 1}: reward", given, _allowed(reward))
        done += batch.num_rows
    if events < log.number and whole:
        allowed = (
            f"{log.number}, the number in the metadata: rows were removed from the table. Export the log "
            "again, and select rows with since, until, unit or epoch"
        )
        raise InvalidLog(f"{table.source}: number of events", events, allowed)


def _passes_quickly(table: Table, log: DecisionLog, *, whole: bool) -> bool:
    """Whether a Parquet file certainly passes `check_table`; reads only the numbers, not the structs."""
    from maillard.decisions.files.reward_lists import list_column

    names = ["time", "reward", "rewards", "applied"]
    fields = {"rewards": ["value", "late"], "applied": ["number"]}
    events = log.events_elsewhere
    for batch in itertools.chain.from_iterable(part(names, fields=fields) for part in table.parts):
        columns = {name: list_column(batch, name, table.source) for name in names}
        events += len(columns["applied"].flatten())
        if _suspect_rows(columns, log).size:
            return False
    return events >= log.number or not whole


def _reward_of(log: DecisionLog, time: int, rewards: Any, applied: Any) -> float | None:
    """Return the reward of a decision; the same as `DecisionLog.reward_of`, from plain values."""
    assert log.reward is not None  # only a foreign log has no reward rule
    for event in applied or () if log.reward.learn != "provisional" else ():
        if event["kind"] == "default":
            return float(event["value"])
    total = log.reward.total([RewardEvent("", **each) for each in rewards or ()])
    closes = log.reward.closes(time)
    closed = closes is not None and closes <= log.as_of
    return log.reward.default if total is None and closed else total


def _suspect_rows(columns: dict[str, Any], log: DecisionLog) -> Ints:
    """Return the rows whose reward is not the value of their only reward event, or else the default."""
    from maillard.decisions.files.reward_lists import flat, is_late

    assert log.reward is not None  # only a foreign log has no reward rule
    rule, low, high = log.reward, *log.reward.bounds
    n = len(columns["reward"])
    given: Floats = columns["reward"].to_numpy(zero_copy_only=False).astype(np.float64)
    events, row = flat(columns["rewards"])
    timely = ~is_late(events)
    count = np.bincount(row[timely], minlength=n)
    value = np.full(n, np.nan)
    value[row[timely]] = np.clip(np.asarray(events.field("value"), np.float64)[timely], low, high)
    window = rule.closes(0)
    if rule.default is not None and window is not None:
        closed = columns["time"].to_numpy(zero_copy_only=False) + window <= log.as_of
        value[(count == 0) & closed] = rule.default
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(given - value) <= _TOLERANCE * np.maximum(1.0, np.abs(value)))
    off &= ~(np.isnan(given) & np.isnan(value))
    return np.flatnonzero(off | (count > 1))
