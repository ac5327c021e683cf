"""An API to test: a service, experiments of it, and how to ask for something at once or until it is there."""

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
SOON = 120.0  # seconds, for what takes one or two on an idle machine

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Api:
    """A service, a client of it and where its log is."""

    service: Service
    client: httpx2.Client
    where: str

    def begin(self, **options: Any) -> Experiment:
        """An experiment of its own for a test."""
        body = {
            "experiment": f"e{next(_numbers)}",
            "arms": ARMS,
            "policy": "ms+:booster=8",
            "reward": UNIT,
        } | options
        answer = self.client.post("/v1/experiments", json=body)
        assert answer.status_code == 201, answer.text
        return Experiment(self, body["experiment"])

    def reward(self, decision: str, value: float, **fields: Any) -> Any:
        return self.client.put(f"/v1/decisions/{decision}/reward", json={"value": value} | fields)

    def rewards(self, *items: Any) -> list[dict[str, Any]]:
        answer = self.client.post("/v1/rewards:batch", json={"rewards": items})
        assert answer.status_code == 200, answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        assert len(results) == len(items)
        return results


@dataclass(frozen=True)
class Experiment:
    """An experiment behind the API."""

    api: Api
    key: str

    def ask(self, method: str, tail: str = "", body: Any = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.api.client.request(method, f"/v1/experiments/{self.key}{tail}", json=body, headers=named)

    def decide(self, key: str | None = None, **body: Any) -> Any:
        headers = {} if key is None else {"Idempotency_Key": key}
        return self.ask("POST", "/decisions", body, **headers)

    def decisions(self, *items: Any) -> list[dict[str, Any]]:
        answer = self.ask("POST", "/decisions:batch", {"decisions": items})
        assert answer.status_code == 200, answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        assert len(results) == len(items)
        return results

    @property
    def shown(self) -> dict[str, Any]:
        return dict(self.ask("GET").json())

    @property
    def etag(self) -> str:
        return str(self.ask("GET").headers["etag"])

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.ask("GET", "/state").json())

    def pulls(self) -> int:
        return sum(arm["pulls"] for arm in self.state["arms"])


def talking(service: Service) -> httpx2.Client:
    limits = httpx2.Limits(max_connections=100, max_keepalive_connections=100)
    return httpx2.Client(base_url=service.url, timeout=60, limits=limits)


def until(true: Callable[[], Any], seconds: float = SOON) -> Any:
    """What becomes true, sooner or later."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


def together(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What becomes of something that many do at the same moment."""
    ready = threading.Barrier(count)

    def one(number: int) -> Any:
        ready.wait()
        return act(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Prometheus' text: by name, by the values of the labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            assert found.setdefault(sample.name, {}).setdefault(labels, sample.value) == sample.value
    return found
