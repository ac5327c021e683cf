"""Counters and durations for Prometheus.

Requests update plain dictionaries, which is cheap; the Prometheus format is generated when `/metrics` is
read. If a service has several processes, each writes its counts to a shared folder once a second, and any of
them reports the sum.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from maillard.service.log_monitor import Monitor

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds


class _Counts(msgspec.Struct):
    """The counts of one process, or of several."""

    decisions: dict[tuple[str, str], int] = msgspec.field(default_factory=Counter)
    rewards: dict[tuple[str], int] = msgspec.field(default_factory=Counter)
    requests: dict[tuple[str, int], int] = msgspec.field(default_factory=Counter)
    durations: dict[str, list[float]] = msgspec.field(default_factory=dict)
    "For each operation: the number of requests in each duration bucket, then the sum of all durations."
    last_export: float = 0.0
    "When the last scheduled export ended, in seconds since 1970; 0 if there was none."

    def __add__(self, other: _Counts) -> _Counts:
        durations = dict(self.durations)
        for operation, row in other.durations.items():
            own = durations.get(operation, [0.0] * len(row))
            durations[operation] = [a + b for a, b in zip(own, row, strict=True)]
        return _Counts(
            Counter(self.decisions) + Counter(other.decisions),
            Counter(self.rewards) + Counter(other.rewards),
            Counter(self.requests) + Counter(other.requests),
            durations,
            max(self.last_export, other.last_export),
        )


class Metrics:
    """Counts events of this process. The processes of one service share their counts in `folder`."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._counts = _Counts()

    def count_decision(self, experiment: str, arm: str) -> None:
        """Count a decision."""
        self._counts.decisions[experiment, arm] += 1

    def count_reward(self, result: str) -> None:
        """Count a reward."""
        self._counts.rewards[result,] += 1

    def count_request(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        counts = self._counts
        counts.requests[operation, status] += 1
        row = counts.durations.get(operation)
        if row is None:
            row = counts.durations[operation] = [0.0] * (len(_BUCKETS) + 2)
        row[bisect_left(_BUCKETS, seconds)] += 1
        row[-1] += seconds

    def note_export(self, time: float) -> None:
        """Note when a scheduled export has succeeded, in seconds since 1970."""
        self._counts.last_export = time

    def share(self) -> None:
        """Write the counts to the shared folder. Fast, because it runs in the event loop."""
        if self._folder is not None:
            part = self._folder / f"{os.getpid()}.part"
            part.write_bytes(msgspec.msgpack.encode(self._counts))
            part.rename(part.with_suffix(".msgpack"))  # atomic: readers never see half a file

    def writer(self, monitor: Monitor) -> Callable[[], bytes]:
        """A function that writes the current counts of all processes as Prometheus text, in any thread."""
        own = msgspec.msgpack.encode(self._counts)

        def write() -> bytes:
            files = [] if self._folder is None else sorted(self._folder.glob("*.msgpack"))
            others = [file.read_bytes() for file in files if file.stem != str(os.getpid())]
            decoded = [msgspec.msgpack.decode(each, type=_Counts) for each in (own, *others)]
            return generate_latest(_Collector(reduce(add, decoded), monitor))

        return write


class _Collector(Collector):
    """Converts counts to Prometheus metric families."""

    def __init__(self, counts: _Counts, monitor: Monitor) -> None:
        self._counts, self._monitor = counts, monitor

    def collect(self) -> Iterator[Metric]:
        """The metric families."""
        counts = self._counts
        decisions = CounterMetricFamily("maillard_decisions", "Decisions made.", labels=["experiment", "arm"])
        yield _filled(decisions, counts.decisions.items())
        rewards = CounterMetricFamily("maillard_rewards", "Rewards by outcome.", labels=["result"])
        yield _filled(rewards, counts.rewards.items())
        requests = CounterMetricFamily(
            "maillard_requests", "Requests by operation and status.", labels=["operation", "status"]
        )
        yield _filled(requests, counts.requests.items())
        durations = HistogramMetricFamily(
            "maillard_request_duration_seconds",
            "Time from the head of a request to its response.",
            labels=["operation"],
        )
        for operation, (*row, total) in counts.durations.items():
            edges = [*map(str, _BUCKETS), "+Inf"]
            durations.add_metric([operation], list(zip(edges, accumulate(row), strict=True)), total)
        yield durations
        if counts.last_export:
            text = "When the last export to a folder succeeded, in seconds since 1970."
            yield GaugeMetricFamily("maillard_last_export_timestamp_seconds", text, counts.last_export)
        audit = GaugeMetricFamily(
            "maillard_propensity_calibration_z",
            "How often an arm was chosen, minus the sum of its logged probabilities, in standard deviations.",
            labels=["experiment", "arm"],
        )
        yield _filled(audit, ((labels, z) for *labels, z in self._monitor.calibration()))


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, samples: Iterable[tuple[Sequence[object], float]]
) -> Metric:
    for labels, value in samples:
        family.add_metric([str(label) for label in labels], value)
    return family
