"""Helpers for tests of the HTTP API: experiments, concurrent requests, and waiting for a condition."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tests.serving import Service

ARMS = ["red", "blue", "green"]
UNIT = {"low": 0, "high": 1}
WAIT_LIMIT = 120.0  # seconds; an idle machine needs one or two

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Api:
    """A service with a client and its database."""

    service: Service
    client: httpx2.Client
    database: str

    def create_experiment(self, **options: Any) -> Experiment:
        """Create an experiment with a new name."""
        body = {
            "experiment": f"e{next(_numbers)}",
            "arms": ARMS,
            "policy": "ms+:booster=8",
            "reward": UNIT,
        } | options
        response = self.client.post("/v1/experiments", json=body)
        assert response.status_code == 201, response.text
        return Experiment(self, body["experiment"])

    def reward(self, decision: str, value: float, **fields: Any) -> Any:
        return self.client.put(f"/v1/decisions/{decision}/reward", json={"value": value} | fields)

    def rewards(self, *items: Any) -> list[dict[str, Any]]:
        response = self.client.post("/v1/rewards:batch", json={"rewards": items})
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()["results"]
        assert len(results) == len(items)
        return results


@dataclass(frozen=True)
class Experiment:
    """An experiment of the service."""

    api: Api
    key: str

    def request(self, method: str, tail: str = "", body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.api.client.request(method, f"/v1/experiments/{self.key}{tail}", json=body, headers=named)

    def decide(self, key: str | None = None, **body: Any) -> Any:
        headers = {} if key is None else {"Idempotency_Key": key}
        return self.request("POST", "/decisions", body, **headers)

    def decisions(self, *items: Any) -> list[dict[str, Any]]:
        response = self.request("POST", "/decisions:batch", {"decisions": items})
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()["results"]
        assert len(results) == len(items)
        return results

    @property
    def configuration(self) -> dict[str, Any]:
        return dict(self.request("GET").json())

    @property
    def etag(self) -> str:
        return str(self.request("GET").headers["etag"])

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.request("GET", "/state").json())

    def pulls(self) -> int:
        return sum(arm["pulls"] for arm in self.state["arms"])


def http_client(service: Service) -> httpx2.Client:
    limits = httpx2.Limits(max_connections=100, max_keepalive_connections=100)
    return httpx2.Client(base_url=service.url, timeout=60, limits=limits)


def wait_until(condition: Callable[[], Any], seconds: float = WAIT_LIMIT) -> Any:
    """Wait until a condition is true, and return its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.05)
    return found


def run_concurrently(count: int, act: Callable[[int], Any]) -> list[Any]:
    """Call a function in several threads at the same moment, and return the results."""
    ready = threading.Barrier(count)

    def one(number: int) -> Any:
        ready.wait()
        return act(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def metric_samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of a Prometheus text, by name and by the values of the labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            assert found.setdefault(sample.name, {}).setdefault(labels, sample.value) == sample.value
    return found
