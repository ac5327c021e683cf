"""Counters and durations for Prometheus.

Counting is adding to a dictionary: it happens several times a request. What Prometheus reads is made when it asks. Where several
processes serve, each leaves its counts in a folder once a second, and whichever is asked tells of all.
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

__all__ = ["Metrics"]

_EDGES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Calibrated(Protocol):
    """What knows how far each arm's draws are from their probabilities."""

    def calibration(self) -> Iterable[tuple[str, str, float]]:
        """OpenExperiment, arm, z."""


class _Counts(msgspec.Struct):
    """What one process has counted."""

    decisions: Counter[tuple[str, str]]
    rewards: Counter[str]
    requests: Counter[tuple[str, int]]
    durations: dict[str, list[float]]
    "Of an operation: how many requests took up to each edge and longer, and the seconds of all."

    def add(self, other: _Counts) -> None:
        self.decisions.update(other.decisions)
        self.rewards.update(other.rewards)
        self.requests.update(other.requests)
        for operation, row in other.durations.items():
            mine = self.durations.get(operation, [0.0] * len(row))
            self.durations[operation] = [a + b for a, b in zip(mine, row, strict=True)]


class _Kept(msgspec.Struct):
    """The same, as JSON can hold it."""

    decisions: list[tuple[str, str, int]]
    rewards: dict[str, int]
    requests: list[tuple[str, int, int]]
    durations: dict[str, list[float]]


class Metrics:
    """What this process counts, and in `folder` what its fellows do."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._counts = _Counts(Counter(), Counter(), Counter(), {})

    def decided(self, experiment: str, arm: str) -> None:
        """Count a decision."""
        self._counts.decisions[experiment, arm] += 1

    def rewarded(self, result: str) -> None:
        """Count a reward."""
        self._counts.rewards[result] += 1

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        counts = self._counts
        counts.requests[operation, status] += 1
        row = counts.durations.get(operation)
        if row is None:
            row = counts.durations[operation] = [0.0] * (len(_EDGES) + 2)
        row[bisect_left(_EDGES, seconds)] += 1
        row[-1] += seconds

    def share(self) -> None:
        """Leave the counts where the other processes find them. Quick: it is called where they are counted."""
        if self._folder is not None:
            part = self._folder / f"{os.getpid()}.part"
            part.write_bytes(msgspec.json.encode(self._kept()))
            part.rename(part.with_suffix(".json"))  # whoever reads it finds it whole

    def _kept(self) -> _Kept:
        mine = self._counts
        return _Kept(
            [(*pair, count) for pair, count in mine.decisions.items()],
            dict(mine.rewards),
            [(*pair, count) for pair, count in mine.requests.items()],
            {operation: list(row) for operation, row in mine.durations.items()},
        )

    def writer(self, monitor: Calibrated) -> Callable[[], tuple[bytes, bytes]]:
        """What writes everything in Prometheus' text format, with its media type: as counted now, and in any thread."""
        mine = self._kept()

        def write() -> tuple[bytes, bytes]:
            registry = CollectorRegistry()
            registry.register(_Reading(self._all(mine), monitor))
            return generate_latest(registry), _TYPE

        return write

    def _all(self, mine: _Kept) -> _Counts:
        """The counts of this process and of its fellows."""
        others = [] if self._folder is None else sorted(self._folder.glob("*.json"))
        every = _Counts(Counter(), Counter(), Counter(), {})
        for kept in [
            mine,
            *(
                msgspec.json.decode(file.read_bytes(), type=_Kept)
                for file in others
                if file.stem != str(os.getpid())
            ),
        ]:
            every.add(
                _Counts(
                    Counter({(experiment, arm): count for experiment, arm, count in kept.decisions}),
                    Counter(kept.rewards),
                    Counter({(operation, status): count for operation, status, count in kept.requests}),
                    kept.durations,
                )
            )
        return every


class _Reading:
    """Counts in Prometheus' words."""

    def __init__(self, counts: _Counts, monitor: Calibrated) -> None:
        self._counts, self._monitor = counts, monitor

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        decisions = CounterMetricFamily("maillard_decisions", "Decisions made.", labels=["experiment", "arm"])
        for (experiment, arm), count in self._counts.decisions.items():
            decisions.add_metric([experiment, arm], count)
        rewards = CounterMetricFamily(
            "maillard_rewards", "Rewards, by what became of them.", labels=["result"]
        )
        for result, count in self._counts.rewards.items():
            rewards.add_metric([result], count)
        requests = CounterMetricFamily(
            "maillard_requests", "Requests answered.", labels=["operation", "status"]
        )
        for (operation, status), count in self._counts.requests.items():
            requests.add_metric([operation, str(status)], count)
        durations = HistogramMetricFamily(
            "maillard_request_duration_seconds", "From a request's head to its answer.", labels=["operation"]
        )
        for operation, (*row, total) in self._counts.durations.items():
            edges = [*map(str, _EDGES), "+Inf"]
            durations.add_metric([operation], list(zip(edges, accumulate(row), strict=True)), total)
        audit = GaugeMetricFamily(
            "maillard_propensity_calibration_z",
            "Standard deviations between how often an arm was drawn and its logged probabilities.",
            labels=["experiment", "arm"],
        )
        for experiment, arm, z in self._monitor.calibration():
            audit.add_metric([experiment, arm], z)
        return iter([decisions, rewards, requests, durations, audit])
