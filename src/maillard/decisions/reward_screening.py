"""Finds the decisions whose reward events and tally updates certainly agree, for many rows at once.

The rules are those of `verify` (verification.py), which checks the other decisions one by one. Decisions with
several reward events are always left to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.log_arrays import DEFAULT, REVISION, REWARD, LogArrays
from maillard.decisions.reward_rule import Reward

_NEVER = np.iinfo(np.int64).max


def agreeing_rewards(part: LogArrays, rule: Reward, epoch_ends: Sequence[int]) -> Bools:
    """Return for which decisions the applied rewards certainly follow from the reward events.

    `epoch_ends` has the number of the event that ended each epoch, except the last; epochs begin with 1.
    """
    rewards, n = part.rewards, len(part)
    ends = np.array([_NEVER, *epoch_ends, _NEVER])[np.clip(part.epoch, 0, len(epoch_ends) + 1)]
    window = rule.closes(0)
    closes = np.full(n, _NEVER) if window is None else part.time + window
    count = np.bincount(rewards.row, minlength=n)
    timely, total = np.zeros(n, np.bool_), np.full(n, np.nan)
    timely[rewards.row] = ~rewards.late
    total[rewards.row] = np.where(rewards.late, np.nan, rewards.value)
    low, high = rule.bounds
    # A reward is late if and only if it arrived after its window closed.
    fine = (rewards.value >= low) & (rewards.value <= high)
    fine &= rewards.late == (rewards.arrived >= closes[rewards.row])
    good = count <= 1
    good[rewards.row[~fine]] = False
    good[part.applied.row[~_fine_updates(part, rule, timely, closes, ends)]] = False
    return good & _fine_totals(part, rule, total, ends)


def _fine_updates(part: LogArrays, rule: Reward, timely: Bools, closes: Ints, ends: Ints) -> Bools:
    """Return which tally updates are certainly allowed where they are."""
    row, number, kind, time, arm, value, previous = part.applied
    provisional, on_close = rule.learn == "provisional", rule.learn == "on_close"
    first = np.diff(row, prepend=-1) != 0
    early = time < closes[row] if rule.window is not None else np.zeros(row.size, np.bool_)
    allowed = np.zeros(row.size, np.bool_)
    if not provisional:
        allowed |= first & (kind == REWARD) & ~(early & on_close)
    if rule.default is not None:
        unrewarded = np.full(row.size, provisional) | ~(timely[row] | early)
        allowed |= first & (kind == DEFAULT) & (value == rule.default) & unrewarded
    if not on_close:
        before_kind, before = np.roll(kind, 1), np.roll(value, 1)
        revisable = (before_kind != DEFAULT) | provisional
        allowed |= ~first & (kind == REVISION) & revisable & (previous == before)
    in_time = (number > part.state[row]) & (number <= ends[row])
    fine: Bools = allowed & in_time & (arm == part.arm[row])
    return fine


def _fine_totals(part: LogArrays, rule: Reward, total: Floats, ends: Ints) -> Bools:
    """Return for which decisions the last applied value is certainly the reward, or none is missing."""
    row, kind, value = part.applied.row, part.applied.kind, part.applied.value
    n = len(part)
    if rule.learn == "provisional" and rule.default is not None:
        total = np.where(np.isnan(total), rule.default, total)
    applied = np.zeros(n, np.bool_)
    applied[row] = True
    # The last of several updates of a row is the one that remains.
    last, by_default = np.full(n, np.nan), np.zeros(n, np.bool_)
    last[row] = value
    if rule.learn != "provisional":
        first = np.diff(row, prepend=-1) != 0
        by_default[row[first]] = kind[first] == DEFAULT
    missing = np.isnan(total) | (ends < _NEVER)
    if rule.learn == "on_close":
        missing[:] = True
    return np.where(applied, by_default | (last == total), missing)
