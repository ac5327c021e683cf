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
_PATIENCE = 120.0  # seconds for any response; a busy machine may need them


def begin(service: Service) -> None:
    body = {
        "experiment": EXPERIMENT,
        "arms": ARMS,
        "policy": "ms+:booster=8",
        "reward": {"low": 0, "high": 1},
    }
    answer = httpx2.post(f"{service.url}/v1/experiments", json=body)
    assert answer.status_code == 201, answer.text


@dataclass
class Told:
    """What clients were told, by whom they asked it of."""

    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    "The first answer to each idempotency key."
    rewards: dict[str, float] = field(default_factory=dict)
    "By the decision's id."
    faults: list[str] = field(default_factory=list)
    "Answers that were neither what was asked for nor a plea to come again."
    refused: Counter[int] = field(default_factory=Counter)
    "Requests to be sent again, by status; 0 where there was no connection, or it broke."
    requests: int = 0


class Clients:
    """Clients with one connection each that choose and reward. They repeat unacknowledged requests unchanged.

    They run in a thread with its own event loop. On exit, each client finishes its
    request, so that all requests are acknowledged.

    Args:
        decisions: how many to ask for in all, and then end; by default until told to stop.
        rewarded: one decision in how many gets a reward.
    """

    def __init__(
        self,
        services: Sequence[Service],
        connections: int,
        decisions: float = float("inf"),
        rewarded: int = 1,
    ) -> None:
        self.told = Told()
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

    def go_on(self, more: int) -> None:
        """Wait until so much more is acknowledged."""
        enough, end = self.told.requests + more, time.monotonic() + _PATIENCE
        while self.told.requests < enough:
            assert time.monotonic() < end, f"waited in vain: {self.told.refused}, {self.told.faults[:5]}"
            time.sleep(0.002)

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number, port in enumerate(self._ports):
                    group.create_task(self._choose_and_reward(_Client(port, self.told), f"client-{number}"))
        except ExceptionGroup as errors:
            self.told.faults += [repr(error) for error in errors.exceptions]

    async def _choose_and_reward(self, client: _Client, name: str) -> None:
        number = 0
        while not self._stop.is_set() and self._left > 0:
            self._left -= 1
            number += 1
            answer = await self._choose(client, name, number, (200, 201))
            if number % self._rewarded == 0:
                await self._reward(client, answer)
            if number % 16 == 0:  # an older one once more, perhaps from before a kill
                await self._choose(client, name, self._random.randint(1, number), (200,))
        client.close()

    async def _choose(
        self, client: _Client, name: str, number: int, expected: tuple[int, ...]
    ) -> dict[str, Any]:
        key = f"{name}:{number}"
        body = json.dumps({"unit": f"{name}/{number % 10}"}).encode()
        answer = await client.ask(request("POST", _PATH, body, f"Idempotency-Key: {key}\r\n"), expected)
        first = self.told.decisions.setdefault(key, answer)
        if answer != first:
            self.told.faults.append(f"{key} was answered with {first}, and then with {answer}")
        return first

    async def _reward(self, client: _Client, decision: dict[str, Any]) -> None:
        identifier, value = decision["id"], self._random.random()
        body = json.dumps({"value": value}).encode()
        answer = await client.ask(request("PUT", f"/v1/decisions/{identifier}/reward", body), (200, 201))
        self.told.rewards[identifier] = value
        if answer["outcome"] not in ("applied", "duplicate"):
            self.told.faults.append(f"the reward of {identifier} is {answer}")


class _Client:
    """A connection that is opened again when it breaks."""

    def __init__(self, port: int, told: Told) -> None:
        self._port, self._told = port, told
        self._connection: Connection | None = None

    async def ask(self, message: bytes, expected: tuple[int, ...]) -> dict[str, Any]:
        """The answer to a request that is sent until it is acknowledged."""
        while True:
            status, body = await self._exchange(message)
            if status not in (0, 503):
                break
            self._told.refused[status] += 1
            await asyncio.sleep(_PAUSE)
        self._told.requests += 1
        if status not in expected:
            self._told.faults.append(f"{status}, not {expected}: {body.decode()} to {message.decode()}")
        answer: dict[str, Any] = json.loads(body)
        return answer

    async def _exchange(self, message: bytes) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[int, bytes]] = loop.create_future()

        def answer(_: Connection, status: int, body: bytes) -> None:
            if not answered.done():
                answered.set_result((status, body))

        if self._connection is None or self._connection.transport.is_closing():
            try:
                _, self._connection = await loop.create_connection(
                    lambda: Connection(answer), Service.host, self._port
                )
            except OSError:
                return 0, b""
        self._connection.answered = answer
        self._connection.send(message)
        return await asyncio.wait_for(answered, _PATIENCE)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()


def contradictions(where: str, told: Told) -> list[str]:
    """How the log differs from what clients were told, who in the end have been told of everything."""
    with closing(open_store(where)) as store:
        found = list(store.rows(EXPERIMENT))
        with Bandit(log=store, experiment=EXPERIMENT) as bandit:
            learned = bandit.tally
    wrong = list(told.faults)
    wrong += [
        f"{what} is there {n} times" for what, n in Counter(row.id for row, _, _ in found).items() if n > 1
    ]
    keys = Counter(row.idempotency_key for row, _, _ in found)
    wrong += [f"{key} has {n} decisions" for key, n in keys.items() if n > 1]
    wrong += [f"nobody was told of {key}" for key in keys.keys() - told.decisions.keys()]
    rows = {row.id: row for row, _, _ in found}
    for key, answer in told.decisions.items():
        row = rows.get(answer["id"])
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
        said = {name: answer[name] for name in logged if name in answer} | {"idempotency_key": key}
        if said != logged:
            wrong.append(f"{said} was told, {logged} is logged")
    tally = Tally.empty(len(ARMS))
    for row, rewards, events in found:
        value = told.rewards.get(row.id)
        if [each.value for each in rewards] != ([] if value is None else [value]):
            wrong.append(f"of {row.id} the reward {value} was acknowledged, {rewards} are logged")
        if [each.kind for each in events] != ["reward"] * (value is not None):
            wrong.append(f"the reward of {row.id} was learned by {events}")
        if value is not None:
            tally.add(ARMS.index(row.arm), value)
    wrong += [f"the reward of {identifier} is lost" for identifier in told.rewards.keys() - rows.keys()]
    if tally != learned:
        wrong.append(f"the tally is {learned}, the acknowledged rewards come to {tally}")
    return wrong
