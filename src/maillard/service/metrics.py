"""Counters and durations for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["Metrics"]

_DURATIONS = (0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Calibrated(Protocol):
    """What knows how far each arm's draws are from their probabilities."""

    def calibration(self) -> Iterable[tuple[str, str, float]]:
        """Experiment, arm, z."""


class Metrics:
    """What one process counts. Where several serve, they share a folder (PROMETHEUS_MULTIPROC_DIR), and each can tell of all."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self._registry}
        self._decisions = Counter("maillard_decisions", "Decisions made.", ["experiment", "arm"], **options)
        self._rewards = Counter("maillard_rewards", "Rewards, by what became of them.", ["result"], **options)
        self._requests = Counter(
            "maillard_requests", "Requests answered.", ["operation", "status"], **options
        )
        self._durations = Histogram(
            "maillard_request_duration_seconds",
            "From a request's head to its answer.",
            ["operation"],
            buckets=_DURATIONS,
            **options,
        )
        # `labels` takes longer than counting does.
        self._decided: dict[tuple[str, str], Counter] = {}
        self._answered: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def decided(self, experiment: str, arm: str) -> None:
        """Count a decision."""
        counter = self._decided.get((experiment, arm))
        if counter is None:
            counter = self._decided[experiment, arm] = self._decisions.labels(experiment, arm)
        counter.inc()

    def rewarded(self, result: str) -> None:
        """Count a reward."""
        self._rewards.labels(result).inc()

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        pair = self._answered.get((operation, status))
        if pair is None:
            pair = self._requests.labels(operation, status), self._durations.labels(operation)
            self._answered[operation, status] = pair
        pair[0].inc()
        pair[1].observe(seconds)

    def write(self, monitor: Calibrated) -> tuple[bytes, bytes]:
        """Everything in Prometheus' text format, and its media type."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        audit = CollectorRegistry()
        audit.register(_Audit(monitor))
        return generate_latest(registry) + generate_latest(audit), _TYPE


class _Audit:
    """The always-on audit as a gauge."""

    def __init__(self, monitor: Calibrated) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Called by the registry."""
        gauge = GaugeMetricFamily(
            "maillard_propensity_calibration_z",
            "Standard deviations between how often an arm was drawn and its logged probabilities.",
            labels=["experiment", "arm"],
        )
        for experiment, arm, z in self._monitor.calibration():
            gauge.add_metric([experiment, arm], z)
        yield gauge
