"""Logs of simulated bandits, fast: the state changes once per batch, and the log is an Arrow table.

`simulate` runs a bandit whose rewards are applied in batches. `own_log` writes the result as the table that
`DecisionLog.to_arrow` would return, with events, reward events and states, so that `verify` accepts it.
`foreign_log` writes the table that another program might have written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maillard import Tally, policy
from maillard.policies import Policy

__all__ = [
    "FLOORED",
    "Bools",
    "Floats",
    "Ints",
    "Recorded",
    "Setup",
    "foreign_log",
    "own_log",
    "simulate",
    "until",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Sampler = Callable[[np.random.Generator, Floats], Floats]
Change = tuple[str, Callable[[Tally], str] | str]

BASE = 1_767_571_200_000_000  # Monday, 5 January 2026, in microseconds
SECOND = 1_000_000
FLOORED = "kl-ms+:floor=0.1"


def bernoulli(rng: np.random.Generator, means: Floats) -> Floats:
    """Rewards 0 or 1."""
    return (rng.random(means.size) < means).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a log is collected."""

    arms: tuple[str, ...] = ("a", "b")
    policy: str = FLOORED
    batch: int = 40
    "The state changes after so many decisions."
    sampler: Sampler = bernoulli
    "The rewards, given the means of the chosen arms."
    eligible: Bools | None = None
    "Rows x arms; None: all arms that have been added."
    changes: Mapping[int, Change] = field(default_factory=dict)
    """By row, at the beginning of a batch: ("add_arm", name), ("reset", "") or ("policy", spec). A spec may
    be a function of the tally."""
    units: Sequence[str] | None = None
    sticky: bool = False
    gap: int = 3600
    "Seconds from one batch to the next. The decisions of a batch are one second apart."
    window: int | None = None
    "Seconds; a decision without a reward then counts with 0."
    late: Floats | None = None
    "Rows x arms: the probability of a reward of 1 after the window."
    reward_range: tuple[float, float] = (0.0, 1.0)
    missing: Sequence[int] = ()
    "Rows whose rewards are never reported."


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """The decisions of a simulated bandit, in order of time."""

    setup: Setup
    means: Floats
    "Rows x arms: the true means."
    arm: Ints
    logs: Floats
    "Log probabilities, rows x arms; -inf for an arm that is not eligible."
    eligible: Bools
    reward: Floats
    "The reward by the end of the window, NaN if it is missing."
    late: Bools
    "Whether a reward of 1 arrived after the window."
    state: Ints
    epoch: Ints
    version: Ints
    cold: Bools
    origin: Ints
    "The row whose choice this row repeats, or -1."
    applied: Ints
    "The number of the event that applied the reward, or 0."
    events: list[dict[str, Any]]
    number: int

    @property
    def rows(self) -> int:
        """The number of decisions."""
        return self.arm.size

    @property
    def time(self) -> Ints:
        """In microseconds since 1970."""
        return _times(self.rows, self.setup.batch, self.setup.gap)

    @property
    def log_probability(self) -> Floats:
        """Of the chosen arm."""
        return self.logs[np.arange(self.rows), self.arm]


def simulate(rng: np.random.Generator, means: Floats, setup: Setup) -> Recorded:
    """Simulate a bandit on arms with these means, rows x arms."""
    n, k = means.shape
    run = _Run(setup, n, k)
    uniform = rng.random((n,))
    starts = [*range(0, n, setup.batch), n]
    for start, stop in pairwise(starts):
        if start in setup.changes:
            run.change(start, *setup.changes[start])
        run.choose(start, stop, uniform)
        rows = np.arange(start, stop)
        run.learn(rows, setup.sampler(rng, means[rows, run.arm[rows]]))
    late = np.zeros(n, np.bool_)
    if setup.late is not None:
        late = (run.reward == 0) & (rng.random(n) < setup.late[np.arange(n), run.arm])
    return run.recorded(means, late)


class _Run:
    """The state of the bandit, and the rows so far."""

    def __init__(self, setup: Setup, n: int, k: int) -> None:
        added = sum(kind == "add_arm" for kind, _ in setup.changes.values())
        self.setup, self.active = setup, k - added
        self.spec, self.tally = setup.policy, Tally.empty(self.active)
        self.number, self.now, self.epoch_now, self.version_now = 1, BASE, 1, 1
        self.arm, self.state, self.epoch, self.version = (np.zeros(n, np.int64) for _ in range(4))
        self.applied, self.origin = np.zeros(n, np.int64), np.full(n, -1)
        self.logs, self.eligible = np.full((n, k), -np.inf), np.zeros((n, k), np.bool_)
        self.reward, self.cold = np.full(n, np.nan), np.zeros(n, np.bool_)
        self.first: dict[str, int] = {}
        low, high = setup.reward_range
        rule: dict[str, Any] = {"low": low, "high": high, "window": setup.window, "combine": "first"}
        windowed = setup.window is not None
        rule |= {"default": 0.0 if windowed else None, "learn": "on_close" if windowed else "on_arrival"}
        start = {"arms": list(setup.arms[: self.active]), "policy": self.spec, "formula": 1, "reward": rule}
        self.events = [_event(1, "start", BASE - SECOND, {**start, "sticky": setup.sticky})]

    def change(self, row: int, kind: str, value: Callable[[Tally], str] | str) -> None:
        """Apply an administrative event before this row."""
        payload: dict[str, Any] = {}
        if kind == "add_arm":
            payload = {"arm": value}
            self.tally, self.active = Tally.joined([self.tally, Tally.empty(1)]), self.active + 1
        elif kind == "policy":
            self.spec = value(self.tally) if callable(value) else value
            payload = {"policy": self.spec, "formula": 1}
            self.version_now += 1
        else:
            self.tally, self.epoch_now = Tally.empty(self.active), self.epoch_now + 1
        self.number += 1
        time = int(_times(row + 1, self.setup.batch, self.setup.gap)[-1]) - SECOND
        self.events.append(_event(self.number, kind, time, payload))

    def choose(self, start: int, stop: int, uniform: Floats) -> None:
        """Choose the arms of a batch."""
        rows, k = np.arange(start, stop), self.active
        self.state[rows], self.epoch[rows], self.version[rows] = self.number, self.epoch_now, self.version_now
        bound, limited = _policy(self.spec, self.setup.arms[:k]), self.setup.eligible
        masks = np.ones((1, k), np.bool_) if limited is None else np.unique(limited[rows, :k], axis=0)
        for mask in masks:
            of = rows if limited is None else rows[(limited[rows, :k] == mask).all(axis=1)]
            logs = bound.log_probabilities(self.tally, eligible=None if mask.all() else mask)
            cumulative = np.exp(logs).cumsum()
            self.arm[of] = np.searchsorted(cumulative, uniform[of] * cumulative[-1], side="right")
            self.logs[of, :k], self.eligible[of, :k] = logs, mask
        self.cold[rows] = self.tally.pulls[self.arm[rows]] == 0
        if self.setup.sticky:
            self._repeat(rows.tolist())

    def _repeat(self, rows: list[int]) -> None:
        """Give later decisions of a unit the arm, the probabilities and the state of its first one."""
        assert self.setup.units is not None
        for row in rows:
            first = self.first.setdefault(self.setup.units[row], row)
            if first != row:
                self.origin[row] = first
                for column in (self.arm, self.state, self.epoch, self.version, self.cold):
                    column[row] = column[first]
                self.logs[row], self.eligible[row] = self.logs[first], self.eligible[first]

    def learn(self, rows: Ints, rewards: Floats) -> None:
        """Apply the rewards of a batch."""
        if self.setup.missing:
            known = ~np.isin(rows, self.setup.missing)
            rows, rewards = rows[known], rewards[known]
        self.reward[rows] = rewards
        self.applied[rows] = self.number + 1 + np.arange(rows.size)
        self.number += rows.size
        pulls = np.bincount(self.arm[rows], minlength=self.active)
        self.tally += Tally(pulls, np.bincount(self.arm[rows], rewards, minlength=self.active))

    def recorded(self, means: Floats, late: Bools) -> Recorded:
        """What was recorded."""
        names = "arm logs eligible reward state epoch version cold origin applied events number setup"
        return Recorded(means=means, late=late, **{name: getattr(self, name) for name in names.split()})


def own_log(recorded: Recorded, number: int | None = None) -> Any:
    """The log as an Arrow table with its metadata. `number` is that of the last event, if not all of them."""
    setup, n, time = recorded.setup, recorded.rows, recorded.time
    order = np.lexsort((np.arange(n), recorded.state))
    ids, names = np.array(_ids(n, setup.batch, setup.gap), object), np.array(setup.arms, object)
    specs = [event["payload"]["policy"] for event in recorded.events if "policy" in event["payload"]]
    units = None if setup.units is None else np.array(setup.units, object)[order]
    origin = np.full(n, None, object)
    origin[recorded.origin >= 0] = ids[recorded.origin[recorded.origin >= 0]]
    chosen, lengths = recorded.log_probability, recorded.eligible.sum(axis=1)[order]
    listed = recorded.eligible[order].nonzero()
    flat = np.broadcast_to(np.arange(len(names)), recorded.eligible.shape)[listed]
    closes = _batch_ends(time, setup) + (0 if setup.window is None else setup.window * SECOND)
    stamp = pa.timestamp("us", tz="UTC")
    columns = {
        "id": pa.array(ids[order], pa.string()),
        "experiment": pa.array(["shop"] * n, pa.string()),
        "time": pa.array(time[order], pa.int64()).cast(stamp),
        "unit": pa.nulls(n, pa.string()) if units is None else pa.array(units, pa.string()),
        "arm": pa.array(names[recorded.arm[order]], pa.string()),
        "probability": np.exp(chosen)[order],
        "log_probability": chosen[order],
        "eligible": _lists(pa.array(names, pa.string()).take(pa.array(flat)), lengths),
        "log_probabilities": _lists(pa.array(recorded.logs[order][listed]), lengths),
        "policy": pa.array(np.array(specs, object)[recorded.version[order] - 1], pa.string()),
        "policy_version": recorded.version[order],
        "formula_version": np.ones(n, np.int64),
        "state": recorded.state[order],
        "epoch": recorded.epoch[order],
        "cold": recorded.cold[order],
        "idempotency_key": pa.nulls(n, pa.string()),
        "position": np.zeros(n, np.int64),
        "origin": pa.array(origin[order], pa.string()),
        "reward": pa.array(recorded.reward[order], pa.float64(), from_pandas=True),
        "closed": np.full(n, setup.window is not None),
        "rewards": _reward_events(recorded, order, ids, closes),
        "applied": _applied(recorded, order, closes),
    }
    last = time[-1] + 10 * max(setup.gap, setup.window or 0) * SECOND
    header = {"schema": 2, "experiment": "shop", "number": recorded.number if number is None else number}
    header |= {"events": recorded.events, "parked": [], "exported": _iso(int(last))}
    return pa.table(columns).replace_schema_metadata({"maillard": json.dumps(header)})


def _reward_events(recorded: Recorded, order: Ints, ids: NDArray[np.object_], closes: Ints) -> Any:
    """The reward events. With a window only rewards other than 0 are reported, some of them late."""
    time, stamp, windowed = recorded.time, pa.timestamp("us", tz="UTC"), recorded.setup.window is not None
    reported = recorded.reward > 0 if windowed else ~np.isnan(recorded.reward)
    late = recorded.late & ~reported
    has = (reported | late)[order]
    rows = order[has]
    arrived = np.where(late, closes + SECOND, time + SECOND if windowed else closes)[rows]
    moment = pa.array(arrived).cast(stamp)
    values = [
        pa.array(ids[rows], pa.string()), pa.array(np.where(late, 1.0, recorded.reward)[rows]), moment,
        moment, pa.array(late[rows]),
    ]  # fmt: skip
    return _lists(pa.StructArray.from_arrays(values, ["event", "value", "at", "arrived", "late"]), has)


def _applied(recorded: Recorded, order: Ints, closes: Ints) -> Any:
    """The events that applied the rewards to the tally."""
    has = (recorded.applied > 0)[order]
    rows = order[has]
    default = (recorded.reward[rows] == 0) & (recorded.setup.window is not None)
    values = [
        pa.array(recorded.applied[rows]), pa.array(np.where(default, "default", "reward"), pa.string()),
        pa.array(recorded.reward[rows]), pa.nulls(rows.size, pa.float64()),
        pa.array(closes[rows]).cast(pa.timestamp("us", tz="UTC")),
    ]  # fmt: skip
    return _lists(pa.StructArray.from_arrays(values, ["number", "kind", "value", "previous", "time"]), has)


def until(recorded: Recorded, rows: int) -> Any:
    """The own log as it was after so many rows, which must be the end of a batch."""
    values: dict[str, Any] = {each.name: getattr(recorded, each.name) for each in fields(recorded)}
    part: dict[str, Any] = {
        name: array[:rows] for name, array in values.items() if isinstance(array, np.ndarray)
    }
    return own_log(replace(recorded, **part), number=int(recorded.applied[:rows].max()))


def foreign_log(
    recorded: Recorded,
    rows: Ints | None = None,
    *,
    time: bool,
    every: bool = True,
    logs: Floats | None = None,
    numbered: bool = False,
) -> Any:
    """A table of another program: arm, probability and reward, of these rows in this order.

    `every`: with the probabilities of all arms. `logs` replaces the log probabilities. `numbered`: with the
    numbers that the rows had when they were recorded.
    """
    rows = np.arange(recorded.rows) if rows is None else rows
    logs, names = (recorded.logs if logs is None else logs)[rows], np.array(recorded.setup.arms, object)
    n, arm = rows.size, recorded.arm[rows]
    columns: dict[str, Any] = {"arm": pa.array(names[arm], pa.string())}
    columns["probability"] = np.exp(logs[np.arange(n), arm])
    columns["reward"] = recorded.reward[rows]
    if every:
        flat = pa.array(np.tile(names, n), pa.string())
        columns["eligible"] = _lists(flat, np.full(n, names.size))
        columns["log_probabilities"] = _lists(pa.array(logs.ravel()), np.full(n, names.size))
    if time:
        columns["time"] = pa.array(recorded.time[rows]).cast(pa.timestamp("us", tz="UTC"))
    if numbered:
        columns["row"] = rows
    return pa.table(columns)


@lru_cache(maxsize=64)
def _policy(spec: str, arms: tuple[str, ...]) -> Policy:
    return policy(spec).bind(arms)


def _lists(values: Any, lengths: NDArray[Any]) -> Any:
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), values)


def _event(number: int, kind: str, time: int, payload: dict[str, Any]) -> dict[str, Any]:
    return {"number": number, "kind": kind, "time": _iso(time), "payload": payload}


def _iso(time: int) -> str:
    return str(np.datetime64(time, "us")) + "Z"


@lru_cache(maxsize=64)
def _times(rows: int, batch: int, gap: int) -> Ints:
    row = np.arange(rows)
    made: Ints = BASE + (row // batch * gap + row % batch) * SECOND
    made.flags.writeable = False
    return made


def _batch_ends(time: Ints, setup: Setup) -> Ints:
    made: Ints = time + (setup.batch - np.arange(time.size) % setup.batch) * SECOND
    return made


@lru_cache(maxsize=64)
def _ids(rows: int, batch: int, gap: int) -> list[str]:
    made = []
    for row, time in enumerate(_times(rows, batch, gap).tolist()):
        milliseconds = time // 1000
        made.append(f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}-7000-8000-{row:012x}")
    return made
