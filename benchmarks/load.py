"""A load generator for HTTP servers. It runs in its own process and uses little CPU time.

A *closed* load keeps a number of connections busy: each sends its next request after the response to the last
one. It measures throughput. An *open* load sends requests at predetermined random times and measures latency
from the time at which a request was due. If the server stalls, all requests that were due in the meantime
count as delayed.

`python -m benchmarks.load` prints the cost of the load generator itself, against a server that sends
a constant. To measure a service that runs with `maillard serve --no-keys`: `python -m benchmarks.load
http://127.0.0.1:8000/v1/experiments/home/decisions --rate 1000 --seconds 20`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import random
import selectors
import socket
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

__all__ = ["Connection", "Plan", "Report", "decision", "drive", "free_port", "numbered", "request", "run"]

SPAWN = multiprocessing.get_context("spawn")  # shares neither memory nor threads with the parent
_TIMEOUT = 60.0  # seconds without a response after which the load is aborted


def request(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    """An HTTP/1.1 request to a local server; `headers` are complete lines that end in CRLF."""
    content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}{content}\r\n".encode() + body


def decision(path: str, prefix: str, number: int) -> bytes:
    """A request for one decision with a unique key, for one of 100,000 units."""
    body = b'{"unit":"user-%d"}' % (number % 100_000)
    return request("POST", path, body, f"Idempotency-Key: {prefix}-{number}\r\n")


def numbered(requests: list[bytes], number: int) -> bytes:
    """The request with this number, from a list."""
    return requests[number]


class Connection(asyncio.Protocol):
    """A persistent connection that sends one request at a time.

    `on_response(connection, status, body)` is called once for each request. Status 0 means that the
    connection broke before the response was complete. The parser only supports responses with a
    Content-Length.
    """

    def __init__(self, on_response: Callable[[Connection, int, bytes], None]) -> None:
        self.on_response = on_response
        self._received = b""
        self.waiting = False
        self.due = 0.0
        "When the request was due, by `time.monotonic` (the clock of uvloop counts in milliseconds)."

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, message: bytes) -> None:
        """Send a request. The response to the last one must have arrived."""
        self.waiting = True
        self.transport.write(message)

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._received = data
            return
        head = data[:end].lower()
        at = head.find(b"\r\ncontent-length:")
        if at < 0:
            raise ValueError(f"a response without Content-Length: {data[:200]!r}")
        stop = head.find(b"\r\n", at + 17)
        size = int(head[at + 17 : stop if stop >= 0 else end])
        if len(data) < end + 4 + size:
            self._received = data
            return
        self._received = b""
        self.waiting = False
        self.on_response(self, int(data[9:12]), data[end + 4 :])

    def connection_lost(self, _: Exception | None) -> None:
        if self.waiting:
            self.waiting = False
            self.on_response(self, 0, b"")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The requests to send and the server. `make(n)` returns request n, counted from 0."""

    host: str = "127.0.0.1"
    port: int
    make: Callable[[int], bytes]
    requests: int
    connections: int = 64
    rate: float | None = None
    "Requests per second of an open load, at the times of a Poisson process; None for a closed load."
    keep: bool = False
    "Whether the report contains the bodies of the responses."
    seed: int = 0


@dataclass(kw_only=True)
class Report:
    """The results of a load. Times are in seconds."""

    requests: int
    seconds: float
    a_second: float
    statuses: dict[int, int]
    "The number of responses by status; 0 for broken connections."
    p50: float
    p99: float
    p999: float
    most: float
    lateness: float
    "99th percentile of the delay in sending, including the wait for a free connection."
    own_cpu: float
    "CPU time of the load generator per request."
    bodies: list[bytes] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """The number of responses without success."""
        return sum(count for status, count in self.statuses.items() if not 200 <= status < 300)


class _Load:
    """A running load."""

    def __init__(self, plan: Plan, loop: asyncio.AbstractEventLoop) -> None:
        self.plan, self.loop = plan, loop
        self.statuses: Counter[int] = Counter()
        self.taken, self.late = array("d"), array("d")
        self.bodies: list[bytes] = []
        self.sent = 0
        self.done = loop.create_future()
        self.opened: list[Connection] = []
        self.free: deque[Connection] = deque()

    async def run(self) -> float:
        """Run the load and return the seconds from the first request to the last response."""
        plan = self.plan
        for _ in range(min(plan.connections, plan.requests)):
            _, made = await self.loop.create_connection(
                lambda: Connection(self.on_response), plan.host, plan.port
            )
            self.opened.append(made)
        self.free.extend(self.opened)
        gaps = np.random.default_rng(plan.seed).exponential(1 / plan.rate if plan.rate else 0, plan.requests)
        began = time.monotonic()
        self.times: list[float] | None = None
        if plan.rate:
            self.times = (began + np.cumsum(gaps)).tolist()
            self._send_due()
        else:
            for each in self.opened:
                self._send(each, time.monotonic())
        watch = self.loop.create_task(self._give_up())
        try:
            await self.done
        finally:
            watch.cancel()
            for each in self.opened:
                each.transport.abort()
            await asyncio.sleep(0)  # lets the transports close
        return time.monotonic() - began

    def _send(self, connection: Connection, due: float) -> None:
        number = self.sent
        self.sent += 1
        connection.due = due
        connection.send(self.plan.make(number))

    def _send_due(self) -> None:
        """Send due requests while there are free connections, and schedule the next call."""
        assert self.times is not None
        while self.sent < self.plan.requests and self.free:
            due, now = self.times[self.sent], time.monotonic()
            if due > now:
                self.loop.call_at(due, self._send_due)
                return
            self.late.append(now - due)
            self._send(self.free.popleft(), due)

    def on_response(self, connection: Connection, status: int, body: bytes) -> None:
        now = time.monotonic()
        self.taken.append(now - connection.due)
        self.statuses[status] += 1
        if self.plan.keep:
            self.bodies.append(body)
        if len(self.taken) >= self.plan.requests or not status:
            if not self.done.done():
                self.done.set_result(None)
        elif self.times is None:
            if self.sent < self.plan.requests:
                self._send(connection, now)
        else:
            self.free.append(connection)
            if len(self.free) == 1:  # all were busy, so no call is scheduled
                self._send_due()

    async def _give_up(self) -> None:
        responses = -1
        while len(self.taken) > responses:
            responses = len(self.taken)
            await asyncio.sleep(_TIMEOUT)
        if not self.done.done():
            self.done.set_exception(
                TimeoutError(f"no response for {_TIMEOUT:g} s, after {responses} responses")
            )


def _loop(plan: Plan) -> asyncio.AbstractEventLoop:
    """The fastest event loop for a closed load, one with precise timers for an open load."""
    if plan.rate is None:
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop()
        return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def drive(plan: Plan) -> Report:
    """Run a load in this process."""
    gc.collect()
    gc.disable()  # a pause would be attributed to the server
    loop = _loop(plan)
    try:
        load = _Load(plan, loop)
        before = time.process_time()
        seconds = loop.run_until_complete(load.run())
        used = time.process_time() - before
    finally:
        loop.close()
        gc.enable()
    p50, p99, p999, most = np.quantile(load.taken, [0.5, 0.99, 0.999, 1.0]).tolist()
    responses = len(load.taken)
    return Report(
        requests=responses,
        seconds=seconds,
        a_second=responses / seconds,
        statuses=dict(load.statuses),
        p50=p50,
        p99=p99,
        p999=p999,
        most=most,
        lateness=float(np.quantile(load.late, 0.99)) if load.late else 0.0,
        own_cpu=used / responses,
        bodies=load.bodies,
    )


def run(plan: Plan) -> Report:
    """Run a load in a separate process."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return pool.submit(drive, plan).result()


def free_port() -> int:
    """A currently free port below the range of ephemeral ports.

    A client that retries while a server is down can be assigned the server's own port if that is ephemeral.
    It then connects to itself, and the server cannot restart.
    """
    while True:
        port = random.randrange(20_000, 32_768)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


# The cost of the load generator itself.

_CONSTANT = (
    b"HTTP/1.1 201 Created\r\ncontent-length: 500\r\ncontent-type: application/json\r\n\r\n" + b"x" * 500
)


class _Constant(asyncio.Protocol):
    """Sends a constant response to every piece of data. Small requests arrive in one piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, _: bytes) -> None:
        self.transport.write(_CONSTANT)


def _serve_constant(port: int) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Constant, "127.0.0.1", port)
        await server.serve_forever()

    loop = _loop(Plan(port=port, make=partial(numbered, []), requests=0))
    loop.run_until_complete(serve())


@contextmanager
def constant_server() -> Iterator[int]:
    """The port of a server in a separate process that sends a constant response."""
    port = free_port()
    server = SPAWN.Process(target=_serve_constant, args=(port,), daemon=True)
    server.start()
    try:
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        server.kill()
        server.join()


def own_cost(requests: int = 50_000) -> Report:
    """Run the load against a server that sends a constant response."""
    with constant_server() as port:
        return run(
            Plan(
                port=port, make=partial(decision, "/v1/experiments/load/decisions", "own"), requests=requests
            )
        )


def main() -> None:
    """Run a load and print its report as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "url", nargs="?", help="URL for decisions; by default a local server that sends a constant"
    )
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--requests", type=int, default=50_000, help="number of requests of a closed load")
    parser.add_argument("--rate", type=float, help="requests per second of an open load")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of an open load")
    given = parser.parse_args()
    if given.url is None:
        report = own_cost(given.requests)
    else:
        url = urlsplit(given.url)
        report = run(
            Plan(
                host=url.hostname or "127.0.0.1",
                port=url.port or 80,
                make=partial(decision, url.path, f"load-{os.getpid()}-{time.time_ns()}"),
                requests=int(given.rate * given.seconds) if given.rate else given.requests,
                connections=given.connections,
                rate=given.rate,
            )
        )
    fields: dict[str, Any] = asdict(report)
    del fields["bodies"]
    print(json.dumps(fields, indent=1))


if __name__ == "__main__":
    main()
