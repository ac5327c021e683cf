"""Counters and durations for Prometheus.

Requests update plain dictionaries, which is cheap; the Prometheus format is generated when `/metrics` is
read. If a service has several processes, each writes its counts to a shared folder once a second, and any of
them reports the sum.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
_MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class CalibrationSource(Protocol):
    """Has the calibration scores of all experiments; the log monitor implements it."""

    def calibration(self) -> Iterable[tuple[str, str, float]]:
        """Triples of experiment, arm and z score."""


class _Counts(msgspec.Struct):
    """The counts of one process, or of several."""

    decisions: Counter[tuple[str, str]]
    rewards: Counter[str]
    requests: Counter[tuple[str, int]]
    durations: dict[str, list[float]]
    "For each operation: the number of requests in each duration bucket, then the sum of all durations."

    def add(self, other: _Counts) -> None:
        self.decisions.update(other.decisions)
        self.rewards.update(other.rewards)
        self.requests.update(other.requests)
        for operation, row in other.durations.items():
            own = self.durations.get(operation, [0.0] * len(row))
            self.durations[operation] = [a + b for a, b in zip(own, row, strict=True)]


class _SharedCounts(msgspec.Struct):
    """The counts as JSON, in which keys are strings."""

    decisions: list[tuple[str, str, int]]
    rewards: dict[str, int]
    requests: list[tuple[str, int, int]]
    durations: dict[str, list[float]]


class Metrics:
    """Counts events of this process. The processes of one service share their counts in `folder`."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._counts = _Counts(Counter(), Counter(), Counter(), {})

    def count_decision(self, experiment: str, arm: str) -> None:
        """Count a decision."""
        self._counts.decisions[experiment, arm] += 1

    def count_reward(self, result: str) -> None:
        """Count a reward."""
        self._counts.rewards[result] += 1

    def count_request(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        counts = self._counts
        counts.requests[operation, status] += 1
        row = counts.durations.get(operation)
        if row is None:
            row = counts.durations[operation] = [0.0] * (len(_BUCKETS) + 2)
        row[bisect_left(_BUCKETS, seconds)] += 1
        row[-1] += seconds

    def share(self) -> None:
        """Write the counts to the shared folder. Fast, because it runs in the event loop."""
        if self._folder is not None:
            part = self._folder / f"{os.getpid()}.part"
            part.write_bytes(msgspec.json.encode(self._shared_counts()))
            part.rename(part.with_suffix(".json"))  # atomic: readers never see half a file

    def _shared_counts(self) -> _SharedCounts:
        counts = self._counts
        return _SharedCounts(
            [(*pair, count) for pair, count in counts.decisions.items()],
            dict(counts.rewards),
            [(*pair, count) for pair, count in counts.requests.items()],
            {operation: list(row) for operation, row in counts.durations.items()},
        )

    def writer(self, monitor: CalibrationSource) -> Callable[[], tuple[bytes, bytes]]:
        """A function that writes the current counts as Prometheus text, in any thread."""
        own = self._shared_counts()

        def write() -> tuple[bytes, bytes]:
            registry = CollectorRegistry()
            registry.register(_Collector(self._sum_of_all(own), monitor))
            return generate_latest(registry), _MEDIA_TYPE

        return write

    def _sum_of_all(self, own: _SharedCounts) -> _Counts:
        """The counts of all processes of the service."""
        files = [] if self._folder is None else sorted(self._folder.glob("*.json"))
        others = [
            msgspec.json.decode(file.read_bytes(), type=_SharedCounts)
            for file in files
            if file.stem != str(os.getpid())
        ]
        total = _Counts(Counter(), Counter(), Counter(), {})
        for shared in [own, *others]:
            decisions = Counter({(experiment, arm): count for experiment, arm, count in shared.decisions})
            requests = Counter({(operation, status): count for operation, status, count in shared.requests})
            total.add(_Counts(decisions, Counter(shared.rewards), requests, shared.durations))
        return total


class _Collector:
    """Converts counts to Prometheus metric families."""

    def __init__(self, counts: _Counts, monitor: CalibrationSource) -> None:
        self._counts, self._monitor = counts, monitor

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        decisions = CounterMetricFamily("maillard_decisions", "Decisions made.", labels=["experiment", "arm"])
        for (experiment, arm), count in self._counts.decisions.items():
            decisions.add_metric([experiment, arm], count)
        rewards = CounterMetricFamily("maillard_rewards", "Rewards by outcome.", labels=["result"])
        for result, count in self._counts.rewards.items():
            rewards.add_metric([result], count)
        requests = CounterMetricFamily(
            "maillard_requests", "Requests by operation and status.", labels=["operation", "status"]
        )
        for (operation, status), count in self._counts.requests.items():
            requests.add_metric([operation, str(status)], count)
        durations = HistogramMetricFamily(
            "maillard_request_duration_seconds",
            "Time from the head of a request to its response.",
            labels=["operation"],
        )
        for operation, (*row, total) in self._counts.durations.items():
            edges = [*map(str, _BUCKETS), "+Inf"]
            durations.add_metric([operation], list(zip(edges, accumulate(row), strict=True)), total)
        audit = GaugeMetricFamily(
            "maillard_propensity_calibration_z",
            "How often an arm was chosen, minus the sum of its logged probabilities, in standard deviations.",
            labels=["experiment", "arm"],
        )
        for experiment, arm, z in self._monitor.calibration():
            audit.add_metric([experiment, arm], z)
        return iter([decisions, rewards, requests, durations, audit])
