"""Statistics of a log, kept up to date by reading only new rows.

**Decisions** of all experiments are read in the order of their ids, which is the order of time. An id is
created in the transaction that commits it. SQLite has one writer at a time, so ids are committed in their
order. In PostgreSQL, a transaction can commit after one with a younger id, so the monitor reads only
decisions that are older than a lag. The shorter lag of other stores is for clocks that are set back. A
decision that takes longer to commit in PostgreSQL, or whose id is old for another reason (it was appended, or
its process has a slow clock), is not counted. The counts are for display; `verify` reads every row. An
imported experiment has old ids, too: an experiment that began before the monitor's position is read from its
beginning.

**Events** of an experiment are numbered without gaps, so none is missed.

Counts cover all epochs, and the audit covers every choice in the log.

**The position** and the statistics are saved as one document of the log, so that the next start continues
there. If several processes do so, the last one counts: each document is complete.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from maillard.decisions.audit import Audit, Verdict, live_limit, verdict_for
from maillard.decisions.decision import Decision
from maillard.decisions.stores import Store
from maillard.decisions.timestamps import from_microseconds, system_clock
from maillard.service.experiment_statistics import ExperimentStatistics, SavedPosition, time_of

_LAG = 1.0  # seconds, if one process writes at a time
_LONG_LAG = 6.0  # if several do: a commit may wait five seconds for another
_MAX_ROWS, _MAX_VALUES = 1_000, 100_000  # per read: rows, and log probabilities in them
_SECOND = 1_000_000  # microseconds
_SAVE_INTERVAL = 60.0  # seconds
_MAX_SAVE_SHARE = 0.01  # of the time
_DOCUMENT = ("monitor", "position")  # kind and name


class Monitor:
    """Keeps statistics of a log.

    `lag` is the age in seconds from which decisions are read, by default 1, or 6 if several processes write
    at a time. One thread may call `advance` while others read the statistics.

    >>> from maillard.decisions import Bandit, Reward
    >>> from maillard.decisions.stores import open_store
    >>> store = open_store(None)
    >>> rule = Reward(low=0, high=1)
    >>> bandit = Bandit(["red", "blue"], "uniform", reward=rule, log=store, experiment="home")
    >>> for decision in bandit.choose(size=200): _ = bandit.reward(decision.id, 1)
    >>> monitor = Monitor(store, lag=0)
    >>> monitor.advance(limit_s=1)
    >>> activity = monitor.activity("home", ["red", "blue"])
    >>> activity["decisions"], activity["rewards"], activity["complete"], activity["audit"]["verdict"]
    (200, 200, True, 'consistent')
    """

    def __init__(self, store: Store, *, lag: float | None = None) -> None:
        self._store = store
        self._lag = round(_SECOND * (default_lag(store) if lag is None else lag))
        self._lock = threading.Lock()
        self._experiments: dict[str, ExperimentStatistics] = {}
        self._position = "0"  # the last decision that was read
        # Older decisions of experiments that are still to be read: those with ids between these two.
        self._backlogs: dict[str, tuple[str, str]] = {}
        self._as_of: int | None = None
        self._incomplete = True
        self._sources: deque[Callable[[], bool]] = deque()  # functions that read the rest of this round
        self._failures = 0
        self._batch_size = 100  # rows of the next read, adapted to the number of arms
        self._saved: object = None  # what was read when the position was saved
        self._next_save = time.monotonic() + _SAVE_INTERVAL

    @property
    def complete(self) -> bool:
        """Whether the log has been read up to `as_of`."""
        return not self._incomplete and not self._backlogs

    def restore(self) -> None:
        """Continue where a monitor of this log has saved its position. Call this before `advance`."""
        with self._store.reading("") as transaction:
            text, heads = transaction.documents(_DOCUMENT[0]).get(_DOCUMENT[1]), transaction.heads()
        saved = None if text is None else SavedPosition.read(text)
        if saved is None:
            return
        numbers = {name: each.number for name, each in saved.experiments.items()}
        if any(name not in heads or heads[name].number < number for name, number in numbers.items()):
            return  # someone has removed rows
        with self._lock:
            self._experiments = dict(saved.experiments)
            self._position, self._as_of, self._backlogs = saved.position, saved.as_of, dict(saved.backlogs)
            self._saved = self._progress()

    @property
    def save_is_due(self) -> bool:
        """Whether the last save is some time ago. Saving takes at most a hundredth of the time."""
        return time.monotonic() >= self._next_save

    def save(self) -> None:
        """Save the position and the statistics in the log, unless they have not changed."""
        began = time.monotonic()
        with self._lock:
            progress = self._progress()
            saved = SavedPosition(self._position, self._as_of, self._backlogs, self._experiments)
            text = None if progress == self._saved else saved.write()
        if text is not None:
            with self._store.transaction("", lock=False) as transaction:
                transaction.put_document(*_DOCUMENT, text)
            self._saved = progress
        now = time.monotonic()
        self._next_save = now + max(_SAVE_INTERVAL, (now - began) / _MAX_SAVE_SHARE)

    def _progress(self) -> object:
        numbers = {name: each.number for name, each in self._experiments.items()}
        return self._position, dict(self._backlogs), numbers

    def advance(self, limit_s: float) -> None:
        """Read new rows in batches for about `limit_s` seconds; at least one batch.

        A round reads a batch from each source in turn, up to the rows that exist when it begins. The next
        call continues an unfinished round. Errors of the store are raised; rows that were read before are
        counted, and no row is counted twice.
        """
        end = time.monotonic() + limit_s
        try:
            self._read(end)
            while self._backlogs:
                self._read_backlog()
                time.sleep(0)
                if time.monotonic() >= end:
                    break
        except BaseException:
            self._sources.clear()
            self._failures += 1
            self._incomplete = True
            raise

    def _read(self, end: float) -> None:
        """Continue the current round; then, if it began in an earlier call, read another one."""
        begun = more = False
        while self._sources or not begun:
            if not self._sources:
                self._begin_round()
                begun = True
            source = self._sources.popleft()
            if source():
                self._sources.append(source)
                more = True
            elif not self._sources:
                self._incomplete = more = False
            time.sleep(0)  # let other threads run
            if time.monotonic() >= end:
                break
        self._incomplete = self._incomplete or more

    def _begin_round(self) -> None:
        horizon = system_clock() - self._lag
        with self._store.reading("") as transaction:
            heads = transaction.heads()
        self._register(heads, self._position)
        self._sources.append(partial(self._read_decisions, horizon))
        for name, head in heads.items():
            if head.number > self._experiments[name].number:
                self._sources.append(partial(self._read_events, name))
        # If one source always fails, each of the others sometimes comes before it.
        self._sources.rotate(-self._failures)

    def _register(self, names: Iterable[str], position: str) -> None:
        with self._lock:
            for name in names:
                if name not in self._experiments:
                    self._experiments[name] = ExperimentStatistics(since=position)

    def _read_decisions(self, horizon: int) -> bool:
        """Read a batch of new decisions. Returns whether there may be more."""
        rows, more = self._read_batch(self._position, first_id(horizon // 1000 + 1))
        self._register({row.experiment for row in rows}, self._position)
        until = horizon if not more else time_of(rows[-1].id)
        with self._lock:
            self._count(rows)
            self._position = rows[-1].id if rows else self._position
            self._as_of = max(until, self._as_of or 0)
        return more

    def _read_backlog(self) -> None:
        """Read a batch of the older decisions of an experiment."""
        name, (after, before) = next(iter(self._backlogs.items()))
        rows, more = self._read_batch(after, before)
        with self._lock:
            self._count(row for row in rows if row.experiment == name)
            if more:
                self._backlogs[name] = (rows[-1].id, before)
            else:
                del self._backlogs[name]

    def _read_batch(self, after: str, before: str) -> tuple[list[Decision], bool]:
        size = self._batch_size
        with self._store.reading("") as transaction:
            rows = transaction.decisions_between(after, before, size)
        if rows:
            self._batch_size = max(10, min(_MAX_ROWS, _MAX_VALUES // max(len(row.eligible) for row in rows)))
        return rows, len(rows) == size

    def _count(self, rows: Iterable[Decision]) -> None:
        by_experiment: dict[str, list[Decision]] = {}
        for row in rows:
            by_experiment.setdefault(row.experiment, []).append(row)
        for name, decisions in by_experiment.items():
            self._experiments[name].count(decisions)

    def _read_events(self, name: str) -> bool:
        """Read a batch of an experiment's events. Returns whether there are more."""
        statistics = self._experiments[name]
        through = statistics.number + _MAX_ROWS
        with self._store.reading(name) as transaction:
            last = transaction.head.number if transaction.head else 0
            events = transaction.events(statistics.number, through) if last > statistics.number else []
        with self._lock:
            if statistics.number == 0 and events and time_of(statistics.since) > events[0].time:
                self._backlogs[name] = ("0", statistics.since)
            for event in events:
                statistics.apply(event)
            statistics.number = max(statistics.number, min(through, last))
        return last > through

    def activity(self, key: str, arms: Sequence[str]) -> dict[str, Any]:
        """The statistics of an experiment, as a `wire_schema.Activity`; lists `arms` first."""
        with self._lock:
            statistics = self._experiments.get(key, ExperimentStatistics(since=""))
            total, until = statistics.decisions.total(), statistics.final_until
            named = list(dict.fromkeys([*arms, *statistics.decisions]))
            return {
                "experiment": key,
                "as_of": None if self._as_of is None else from_microseconds(self._as_of),
                "complete": self.complete,
                "decisions": total,
                "rewards": statistics.rewards,
                "arms": [
                    {
                        "arm": arm,
                        "decisions": statistics.decisions[arm],
                        "fraction": statistics.decisions[arm] / total if total else 0.0,
                    }
                    for arm in named
                ],
                "series": {
                    "bucket": statistics.series.width / _SECOND,
                    "points": list(statistics.series.points(until)),
                    "until": None if until is None else from_microseconds(until),
                },
                "audit": _audit(statistics.audit, named, total),
            }

    def traffic(self, keys: Iterable[str]) -> tuple[dict[str, tuple[int, list[int]]], bool]:
        """The decisions of experiments, all of them and those of each of the last 24 hours.

        Also whether these are complete: it says so about the counts that it returns, not about later ones.
        """
        unknown = ExperimentStatistics(since="")
        with self._lock:
            found = {key: self._experiments.get(key, unknown) for key in keys}
            counts = {key: (each.decisions.total(), each.traffic()) for key, each in found.items()}
            return counts, self.complete

    def calibration(self) -> list[tuple[str, str, float]]:
        """Triples of experiment, arm and z score of the audit, for arms with enough data."""
        with self._lock:
            audits = [(name, each.audit.scores()) for name, each in self._experiments.items()]
        return [(name, each.name, each.z) for name, scores in audits for each in scores if each.z is not None]


def _audit(audit: Audit, arms: Iterable[str], decisions: int) -> dict[str, Any]:
    limit = live_limit(audit.scores(), audit.weights())
    scores, weights, counted = audit.scores(), audit.weights(), decisions - audit.left_out
    choices = {
        score.name: {"chosen": int(score.observed), "expected": score.expected, "z": score.z}
        for score in scores
    }
    no_choices = {"chosen": 0, "expected": 0.0, "z": None}
    return {
        "verdict": _verdict(audit, limit),
        "limit": limit,
        "left_out": audit.left_out,
        "impossible": audit.impossible,
        "arms": [{"arm": arm, **choices.get(arm, no_choices)} for arm in dict.fromkeys([*arms, *choices])],
        "weights": {
            "mean": weights.observed / counted if counted else None,
            "expected": weights.expected / counted if counted else None,
            "z": weights.z,
        },
    }


def _verdict(audit: Audit, limit: float) -> Verdict:
    """The verdict of an audit that is watched continuously."""
    if audit.impossible:
        return "broken"
    found = verdict_for([*audit.scores(), audit.weights()], limit)
    return "cannot be audited" if found == "not enough data" and audit.lacks_probabilities else found


def default_lag(store: Store) -> float:
    """The age in seconds from which decisions can be read in the order of their ids."""
    return _LONG_LAG if store.concurrent_decisions else _LAG


def first_id(milliseconds: int) -> str:
    """A lower bound of the ids that are created from this time on."""
    return f"{milliseconds >> 16:08x}-{milliseconds & 0xFFFF:04x}"
