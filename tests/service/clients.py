"""Test clients that repeat unacknowledged requests, record all responses and compare them with the log."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx2

from benchmarks.load import Connection, request
from maillard.decisions import Bandit
from maillard.decisions.stores import open_store
from maillard.tally import Tally
from tests.serving import Service

EXPERIMENT = "home"
ARMS = ["red", "blue", "green"]

_PATH = f"/v1/experiments/{EXPERIMENT}/decisions"
_PAUSE = 0.02  # seconds before a client tries again
_TIMEOUT = 120.0  # seconds for any response; a busy machine may need them


def create_experiment(service: Service) -> None:
    body = {
        "experiment": EXPERIMENT,
        "arms": ARMS,
        "policy": "ms+:booster=8",
        "reward": {"low": 0, "high": 1},
    }
    response = httpx2.post(f"{service.url}/v1/experiments", json=body)
    assert response.status_code == 201, response.text


@dataclass
class ClientRecord:
    """The responses that clients received."""

    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    "The first response for each idempotency key."
    rewards: dict[str, float] = field(default_factory=dict)
    "By the decision's id."
    faults: list[str] = field(default_factory=list)
    "Unexpected responses."
    refused: Counter[int] = field(default_factory=Counter)
    "Number of requests to retry, by status; 0 if there was no connection or it broke."
    requests: int = 0


class Clients:
    """Clients with one connection each that choose and reward. They repeat unacknowledged requests unchanged.

    They run in a thread with its own event loop. On exit, each client finishes its
    request, so that all requests are acknowledged.

    Args:
        decisions: the total number of decisions to request; by default until the clients are stopped.
        rewarded: every how many decisions one gets a reward.
    """

    def __init__(
        self,
        services: Sequence[Service],
        connections: int,
        decisions: float = float("inf"),
        rewarded: int = 1,
    ) -> None:
        self.record = ClientRecord()
        self._ports = [services[i % len(services)].port for i in range(connections)]
        self._left, self._rewarded, self._random = decisions, rewarded, Random(5)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def join(self) -> None:
        """Wait until all decisions are made."""
        self._thread.join()

    def wait_for_requests(self, more: int) -> None:
        """Wait until `more` further requests are acknowledged."""
        enough, end = self.record.requests + more, time.monotonic() + _TIMEOUT
        while self.record.requests < enough:
            assert time.monotonic() < end, f"timed out: {self.record.refused}, {self.record.faults[:5]}"
            time.sleep(0.002)

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number, port in enumerate(self._ports):
                    group.create_task(self._choose_and_reward(_Client(port, self.record), f"client-{number}"))
        except ExceptionGroup as errors:
            self.record.faults += [repr(error) for error in errors.exceptions]

    async def _choose_and_reward(self, client: _Client, name: str) -> None:
        number = 0
        while not self._stop.is_set() and self._left > 0:
            self._left -= 1
            number += 1
            response = await self._choose(client, name, number, (200, 201))
            if number % self._rewarded == 0:
                await self._reward(client, response)
            if number % 16 == 0:  # repeat an older request, perhaps from before a kill
                await self._choose(client, name, self._random.randint(1, number), (200,))
        client.close()

    async def _choose(
        self, client: _Client, name: str, number: int, expected: tuple[int, ...]
    ) -> dict[str, Any]:
        key = f"{name}:{number}"
        body = json.dumps({"unit": f"{name}/{number % 10}"}).encode()
        response = await client.send(request("POST", _PATH, body, f"Idempotency-Key: {key}\r\n"), expected)
        first = self.record.decisions.setdefault(key, response)
        if response != first:
            self.record.faults.append(f"{key}: the first response was {first}, a later one {response}")
        return first

    async def _reward(self, client: _Client, decision: dict[str, Any]) -> None:
        identifier, value = decision["id"], self._random.random()
        body = json.dumps({"value": value}).encode()
        response = await client.send(request("PUT", f"/v1/decisions/{identifier}/reward", body), (200, 201))
        self.record.rewards[identifier] = value
        if response["outcome"] not in ("applied", "duplicate"):
            self.record.faults.append(f"the reward of {identifier} is {response}")


class _Client:
    """A connection that reconnects when it breaks."""

    def __init__(self, port: int, record: ClientRecord) -> None:
        self._port, self._record = port, record
        self._connection: Connection | None = None

    async def send(self, message: bytes, expected: tuple[int, ...]) -> dict[str, Any]:
        """Send a request until it is acknowledged, and return the response."""
        while True:
            status, body = await self._exchange(message)
            if status not in (0, 503):
                break
            self._record.refused[status] += 1
            await asyncio.sleep(_PAUSE)
        self._record.requests += 1
        if status not in expected:
            self._record.faults.append(f"{status}, not {expected}: {body.decode()} to {message.decode()}")
        response: dict[str, Any] = json.loads(body)
        return response

    async def _exchange(self, message: bytes) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        response: asyncio.Future[tuple[int, bytes]] = loop.create_future()

        def on_response(_: Connection, status: int, body: bytes) -> None:
            if not response.done():
                response.set_result((status, body))

        if self._connection is None or self._connection.transport.is_closing():
            try:
                _, self._connection = await loop.create_connection(
                    lambda: Connection(on_response), Service.host, self._port
                )
            except OSError:
                return 0, b""
        self._connection.on_response = on_response
        self._connection.send(message)
        return await asyncio.wait_for(response, _TIMEOUT)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()


def contradictions(database: str, record: ClientRecord) -> list[str]:
    """The differences between the log and the responses; every request must have been acknowledged."""
    with closing(open_store(database)) as store:
        found = list(store.rows(EXPERIMENT))
        with Bandit(log=store, experiment=EXPERIMENT) as bandit:
            logged_tally = bandit.tally
    wrong = list(record.faults)
    wrong += [
        f"{row_id} occurs {n} times" for row_id, n in Counter(row.id for row, _, _ in found).items() if n > 1
    ]
    keys = Counter(row.idempotency_key for row, _, _ in found)
    wrong += [f"{key} has {n} decisions" for key, n in keys.items() if n > 1]
    wrong += [f"no client received {key}" for key in keys.keys() - record.decisions.keys()]
    rows = {row.id: row for row, _, _ in found}
    for key, response in record.decisions.items():
        row = rows.get(response["id"])
        if row is None:
            wrong.append(f"the decision of {key} is lost")
            continue
        logged = {
            "idempotency_key": row.idempotency_key,
            "arm": row.arm,
            "log_probability": row.log_probability,
            "probabilities": row.probabilities,
            "unit": row.unit,
            "state": row.state,
        }
        sent = {name: response[name] for name in logged if name in response} | {"idempotency_key": key}
        if sent != logged:
            wrong.append(f"{sent} was sent, {logged} is logged")
    tally = Tally.empty(len(ARMS))
    for row, rewards, events in found:
        value = record.rewards.get(row.id)
        if [each.value for each in rewards] != ([] if value is None else [value]):
            wrong.append(f"{row.id}: the reward {value} was acknowledged, {rewards} are logged")
        if [each.kind for each in events] != ["reward"] * (value is not None):
            wrong.append(f"the reward of {row.id} was applied by {events}")
        if value is not None:
            tally.add(ARMS.index(row.arm), value)
    wrong += [f"the reward of {identifier} is lost" for identifier in record.rewards.keys() - rows.keys()]
    if tally != logged_tally:
        wrong.append(f"the tally is {logged_tally}, the acknowledged rewards add up to {tally}")
    return wrong
