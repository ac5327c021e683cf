"""The statistics of one experiment, which the monitor keeps and saves in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from maillard.decisions.audit import Audit
from maillard.decisions.decision import Decision
from maillard.decisions.events import Event, Simulate, Start, TallyUpdate
from maillard.decisions.identifiers import creation_time
from maillard.decisions.timestamps import system_clock
from maillard.service.reward_series import RewardSeries

_MAX_BUFFERED = 20_000  # log probabilities that an audit buffers before it adds them up
_SECOND = 1_000_000  # microseconds
_HOUR = 3_600 * _SECOND
_HOURS = 24  # for which the decisions of each hour are kept
_FORMAT = 2  # of a saved position. Increase it if the meaning of a field changes


@dataclass
class ExperimentStatistics:
    """The statistics of one experiment."""

    since: str
    "The position of the monitor when it first saw the experiment. It has not read earlier decisions."
    number: int = 0
    "The number of the last event that was read."
    decisions: Counter[str] = field(default_factory=Counter)
    hours: dict[int, int] = field(default_factory=dict)
    "The decisions of each of the last hours since 1970 that had some."
    rewards: int = 0
    audit: Audit = field(default_factory=Audit)
    buffered: int = 0
    series: RewardSeries = field(default_factory=RewardSeries)
    open_window: int = 0
    "The length of the reward window in microseconds, if rewards are applied before it closes; else 0."
    last_event: int = 0
    "The time of the last event."
    simulated_clock: bool = False
    "Whether times come from a clock that the caller provided."

    def count(self, rows: Sequence[Decision]) -> None:
        self.decisions.update([row.arm for row in rows])
        for hour, decisions in Counter(time_of(row.id) // _HOUR for row in rows).items():
            self.hours[hour] = self.hours.get(hour, 0) + decisions
        for hour in sorted(self.hours)[:-_HOURS]:
            del self.hours[hour]
        add = self.audit.add
        for row in rows:
            add(row)
        self.buffered += sum([len(row.eligible) for row in rows])
        if self.buffered >= _MAX_BUFFERED:
            self.audit.scores()
            self.buffered = 0

    def apply(self, event: Event) -> None:
        self.last_event = max(self.last_event, event.time)
        if isinstance(event, Start) and event.reward.learn != "on_close":
            self.open_window = round(_SECOND * (event.reward.window or 0))
        if not isinstance(event, TallyUpdate):
            self.simulated_clock |= isinstance(event, Simulate) and event.clock
            return
        # A reward that is applied before its window closes belongs to the time of its decision, so that
        # `final_until` can leave out recent decisions, of which only the fast rewards are known.
        at = time_of(event.decision) if self.open_window else None
        if event.kind == "revision":
            self.series.revise(event.arm, event.value - (event.previous or 0.0), at)
        else:
            self.rewards += 1
            self.series.add(event.time if at is None else at, event.arm, event.value)

    def traffic(self) -> list[int]:
        """The decisions of each of the last 24 hours by the clock, the present hour last."""
        present = (self.last_event if self.simulated_clock else system_clock()) // _HOUR
        return [self.hours.get(hour, 0) for hour in range(present - _HOURS + 1, present + 1)]

    @property
    def final_until(self) -> int | None:
        """The time before which the windows of all decisions in the series have closed; None: any time."""
        now = self.last_event if self.simulated_clock else max(self.last_event, system_clock())
        return now - self.open_window if self.open_window else None


@dataclass(frozen=True)
class SavedPosition:
    """How far a monitor has read the log, and its statistics of what it has read.

    They are saved together, so that a monitor that continues here counts every row once.
    """

    position: str
    "The id of the last decision that was read."
    as_of: int | None
    backlogs: Mapping[str, tuple[str, str]]
    experiments: Mapping[str, ExperimentStatistics]
    format: int = _FORMAT

    def write(self) -> str:
        """The position as JSON."""
        return _encode(self).decode()

    @staticmethod
    def read(text: str) -> SavedPosition | None:
        """Read a position from JSON; None if another version of maillard wrote it, or if it is damaged."""
        try:
            found = _decode(text)
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
            return None
        return found if found.format == _FORMAT else None


def _from_json(kind: Any, value: Any) -> Any:
    return Audit.from_dict(value) if kind is Audit else Counter(value)


_encode = msgspec.json.Encoder(enc_hook=Audit.to_dict).encode
_decode = msgspec.json.Decoder(SavedPosition, dec_hook=_from_json).decode


def time_of(identifier: str) -> int:
    """The creation time of an id; 0 if it is not a valid id."""
    with suppress(ValueError):
        return creation_time(identifier)
    return 0
