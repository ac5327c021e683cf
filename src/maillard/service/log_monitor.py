"""What a log has come to, kept up to date by reading only what is new: traffic, rewards over time, and the audit of the draws.

**Decisions** of all experiments are read in the order of their ids, which is that of time: after the last one that was read, as far as
the present. An id is made before its transaction commits. Where one process writes at a time they commit in their order; where several
do, one of a moment ago may come after a younger one, so nothing younger than a lag is read. A decision that takes longer
than that to commit, or whose id is older for another reason (it was appended, or made where the clock is slow), is not counted
before the next start: counts are for looking at, `verify` reads every row. An experiment that was imported has old ids, too: one
that began before the last decision that was read when it was first seen is read from its beginning.

**Events** of an experiment are numbered without gaps, so none is missed.

Counts are of all epochs together, and the audit is of every draw of the log.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from maillard.decisions.audit import Audit, verdict_for
from maillard.decisions.decision import Decision
from maillard.decisions.events import Event, TallyUpdate
from maillard.decisions.identifiers import creation_time
from maillard.decisions.stores import Store
from maillard.decisions.timestamps import from_microseconds, system_clock
from maillard.service.reward_series import Series

__all__ = ["Monitor"]

_LAG = 1.0  # seconds, where one process writes at a time
_LONG_LAG = 6.0  # where several do: one may wait five seconds for another before it commits
_ROWS, _VALUES = 1_000, 100_000  # that are read at once: rows, and log probabilities in them
_WAITING = 20_000  # log probabilities that an audit may hold before it adds them up
_SECOND = 1_000_000  # microseconds


@dataclass
class _Experiment:
    """What is known of an experiment."""

    since: str
    "Where the monitor stood when it first saw it: decisions before that are not among those that it reads next."
    number: int = 0
    "Of the last event that was read."
    decisions: Counter[str] = field(default_factory=Counter)
    rewards: int = 0
    audit: Audit = field(default_factory=Audit)
    waiting: int = 0
    series: Series = field(default_factory=Series)

    def count(self, rows: Sequence[Decision]) -> None:
        self.decisions.update([row.arm for row in rows])
        add = self.audit.add
        for row in rows:
            add(row)
        self.waiting += sum([len(row.eligible) for row in rows])
        if self.waiting >= _WAITING:
            self.audit.scores()
            self.waiting = 0

    def learn(self, event: Event) -> None:
        if not isinstance(event, TallyUpdate):
            return
        if event.kind == "revision":
            self.series.revise(event.arm, event.value - (event.previous or 0.0))
        else:
            self.rewards += 1
            self.series.learn(event.time, event.arm, event.value)


@dataclass
class _Span:
    """Decisions of one experiment that are older than the first sight of it."""

    after: str
    before: str


class Monitor:
    """Follows a log.

    `lag` is how many seconds old a decision must be to be read, by default 1, or 6 where several processes write at a time. One
    thread may `advance` while others look.

    >>> from maillard.decisions import Bandit, Reward
    >>> from maillard.decisions.stores import open_store
    >>> store = open_store(None)
    >>> bandit = Bandit(["red", "blue"], "uniform", reward=Reward(low=0, high=1), log=store, experiment="home")
    >>> for decision in bandit.choose(size=200): _ = bandit.reward(decision.id, 1)
    >>> monitor = Monitor(store, lag=0)
    >>> monitor.advance(limit_s=1)
    >>> activity = monitor.activity("home", ["red", "blue"])
    >>> activity["decisions"], activity["rewards"], activity["complete"], activity["audit"]["verdict"]
    (200, 200, True, 'consistent')
    """

    def __init__(self, store: Store, *, lag: float | None = None) -> None:
        self._store = store
        default = _LONG_LAG if store.concurrent_decisions else _LAG
        self._lag = round(_SECOND * (default if lag is None else lag))
        self._lock = threading.Lock()
        self._experiments: dict[str, _Experiment] = {}
        self._position = "0"  # the last decision that was read
        self._behind: dict[str, _Span] = {}
        self._as_of: int | None = None
        self._late = True
        self._sources: deque[Callable[[], bool]] = deque()  # what is left to read in this round
        self._failures = 0
        self._size = 100  # of the next piece, until it is known how long a row is

    @property
    def complete(self) -> bool:
        """Whether the log was read up to where it should be."""
        return not self._late and not self._behind

    def advance(self, limit_s: float) -> None:
        """Read what is new, piece by piece, for about so many seconds; at least one piece.

        A round reads what there is when it begins, from each source in turn; where time is short it goes on in the next call. Where the store
        fails, its error comes out of here: what was read until then is counted, and nothing twice.
        """
        end = time.monotonic() + limit_s
        try:
            self._read(end)
            while self._behind:
                self._catch_up()
                time.sleep(0)
                if time.monotonic() >= end:
                    break
        except BaseException:
            self._sources.clear()
            self._failures += 1
            self._late = True
            raise

    def _read(self, end: float) -> None:
        """Go on with a round; and with another one, if this began earlier."""
        begun = much = False
        while self._sources or not begun:
            if not self._sources:
                self._begin()
                begun = True
            source = self._sources.popleft()
            if source():
                self._sources.append(source)
                much = True
            elif not self._sources:
                self._late = much = False
            time.sleep(0)  # let others have the interpreter
            if time.monotonic() >= end:
                break
        self._late = self._late or much

    def _begin(self) -> None:
        horizon = system_clock() - self._lag
        names = self._store.experiments()
        self._see(names, self._position)
        self._sources.append(partial(self._read_decisions, horizon))
        self._sources.extend(partial(self._read_events, name) for name in names)
        # Where one fails again and again, each of the others comes before it at times.
        self._sources.rotate(-self._failures)

    def _see(self, names: Iterable[str], position: str) -> None:
        with self._lock:
            for name in names:
                if name not in self._experiments:
                    self._experiments[name] = _Experiment(since=position)

    def _read_decisions(self, horizon: int) -> bool:
        """A piece of the decisions that are new; whether there may be more."""
        rows, more = self._piece(self._position, _first_id(horizon // 1000 + 1))
        self._see({row.experiment for row in rows} - {""}, self._position)
        until = horizon if not more else _time_of(rows[-1].id)
        with self._lock:
            self._count(rows)
            self._position = rows[-1].id if rows else self._position
            self._as_of = max(until, self._as_of or 0)
        return more

    def _catch_up(self) -> None:
        """A piece of the decisions of an experiment that came with older ones."""
        name, span = next(iter(self._behind.items()))
        rows, more = self._piece(span.after, span.before)
        with self._lock:
            self._count(row for row in rows if row.experiment == name)
            span.after = rows[-1].id if rows else span.after
        if not more:
            del self._behind[name]

    def _piece(self, after: str, before: str) -> tuple[list[Decision], bool]:
        size = self._size
        with self._store.reading("") as transaction:
            rows = transaction.decisions_between(after, before, size)
        if rows:
            self._size = max(10, min(_ROWS, _VALUES // max(len(row.eligible) for row in rows)))
        return rows, len(rows) == size

    def _count(self, rows: Iterable[Decision]) -> None:
        by_experiment: dict[str, list[Decision]] = {}
        for row in rows:
            by_experiment.setdefault(row.experiment, []).append(row)
        by_experiment.pop("", None)  # of none that the log knows: no log has such rows
        for name, some in by_experiment.items():
            self._experiments[name].count(some)

    def _read_events(self, name: str) -> bool:
        """A piece of an experiment's events; whether there are more."""
        known = self._experiments[name]
        through = known.number + _ROWS
        with self._store.reading(name) as transaction:
            last = transaction.head.number if transaction.head else 0
            events = transaction.events(known.number, through) if last > known.number else []
        if known.number == 0 and events and _time_of(known.since) > events[0].time:
            self._behind[name] = _Span("0", known.since)
        with self._lock:
            for event in events:
                known.learn(event)
            known.number = max(known.number, min(through, last))
        return last > through

    def activity(self, key: str, arms: Sequence[str]) -> dict[str, Any]:
        """What an experiment's log has come to; `arms` are those to name first, whether or not they were chosen."""
        with self._lock:
            known = self._experiments.get(key, _Experiment(since=""))
            total = known.decisions.total()
            named = list(dict.fromkeys([*arms, *known.decisions]))
            return {
                "experiment": key,
                "as_of": None if self._as_of is None else from_microseconds(self._as_of),
                "complete": self.complete,
                "decisions": total,
                "rewards": known.rewards,
                "arms": [
                    {
                        "arm": arm,
                        "decisions": known.decisions[arm],
                        "fraction": known.decisions[arm] / total if total else 0.0,
                    }
                    for arm in named
                ],
                "series": {
                    "bucket": known.series.width / _SECOND,
                    "points": list(known.series.points()),
                },
                "audit": _audit(known.audit, named, total),
            }

    def calibration(self) -> Iterator[tuple[str, str, float]]:
        """OpenExperiment, arm, z: how far the draws are from their probabilities, wherever there is enough data."""
        with self._lock:
            scores = [(name, known.audit.scores()) for name, known in self._experiments.items()]
        for name, each in scores:
            for score in each:
                if (z := score.z) is not None:
                    yield name, score.name, z


def _audit(audit: Audit, arms: Iterable[str], decisions: int) -> dict[str, Any]:
    scores = {score.name: score for score in audit.scores()}
    weights, counted = audit.weights(), decisions - audit.left_out
    nothing = {"chosen": 0, "expected": 0.0, "z": None}
    return {
        "verdict": "broken" if audit.impossible else verdict_for([*scores.values(), weights]),
        "limit": Audit.limit_for(len(scores)),
        "left_out": audit.left_out,
        "impossible": audit.impossible,
        "arms": [
            {"arm": arm, **nothing}
            if (score := scores.get(arm)) is None
            else {"arm": arm, "chosen": int(score.observed), "expected": score.expected, "z": score.z}
            for arm in dict.fromkeys([*arms, *scores])
        ],
        "weights": {
            "mean": weights.observed / counted if counted else None,
            "expected": weights.expected / counted if counted else None,
            "z": weights.z,
        },
    }


def _first_id(milliseconds: int) -> str:
    """What no id that was made by then comes before."""
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}"


def _time_of(identifier: str) -> int:
    """When an id was made; 0 where it is none."""
    with suppress(ValueError):
        return creation_time(identifier)
    return 0
