"""The load generator of the benchmarks."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from benchmarks.load import Connection, Plan, decision, drive, free_port, own_cost

RESPONSE = b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nx: y\r\n\r\nbody"


class FakeTransport:
    """The part of a transport that a connection uses."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data


class Responses(list[tuple[int, bytes]]):
    """The responses of a connection without a network."""

    def __init__(self) -> None:
        self.connection = Connection(lambda _, status, body: self.append((status, body)))
        self.connection.connection_made(FakeTransport())


@pytest.mark.parametrize("size", [1, 7, 80, len(RESPONSE)])
def test_responses_may_arrive_in_pieces(size: int) -> None:
    responses = Responses()
    connection = responses.connection
    for _ in range(2):
        connection.send(b"?")
        for start in range(0, len(RESPONSE), size):
            connection.data_received(RESPONSE[start : start + size])
    connection.connection_lost(None)  # no response is outstanding
    assert responses == [(201, b"body")] * 2


def test_a_broken_connection_has_status_0() -> None:
    responses = Responses()
    connection = responses.connection
    connection.send(b"?")
    connection.data_received(RESPONSE[:-1])
    connection.connection_lost(None)
    assert responses == [(0, b"")]


def test_a_response_without_a_length_is_an_error() -> None:
    connection = Responses().connection
    connection.send(b"?")
    with pytest.raises(ValueError, match="Content-Length"):
        connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


@contextmanager
def server(before: Callable[[int], None]) -> Iterator[int]:
    """The port of a server that calls `before` with the number of each request before it responds."""
    count = 0
    loop = asyncio.new_event_loop()
    port = free_port()

    class Responder(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            nonlocal count
            count += 1
            before(count)
            self.transport.write(RESPONSE)

    listening = loop.run_until_complete(loop.create_server(Responder, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        loop.run_until_complete(asyncio.sleep(0.01))  # lets the connections close
        loop.close()


def plan(port: int, **more: object) -> Plan:
    return Plan(port=port, make=partial(decision, "/", "test"), **{"requests": 500, "connections": 4} | more)


def stall(number: int) -> None:
    if number == 100:
        time.sleep(1.5)


def test_a_closed_load_sends_the_requested_number_of_requests() -> None:
    seen: list[int] = []
    with server(seen.append) as port:
        found = drive(plan(port, keep=True))
    assert len(seen) == found.requests == 500
    assert found.statuses == {201: 500}
    assert found.bodies == [b"body"] * 500
    assert found.failed == 0


def test_an_open_load_counts_requests_that_waited_while_the_server_stalled() -> None:
    with server(stall) as port:
        opened, closed = drive(plan(port, rate=500)), drive(plan(port))
    # During a stall of 1.5 s all remaining requests of the open load become due, but a closed load only
    # sends one request on each of its 4 connections.
    assert opened.requests == 500
    assert opened.seconds > 1.5
    assert opened.p99 > 1.0
    assert closed.p99 < opened.p99


def test_a_load_ends_when_the_server_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_respond, args=(listening, 10))
        thread.start()
        found = drive(plan(listening.getsockname()[1], connections=1))
        thread.join()
    assert found.statuses == {201: 10, 0: 1}
    assert found.failed == 1


def _respond(listening: socket.socket, count: int) -> None:
    connection, _ = listening.accept()
    with connection:
        for _ in range(count):
            connection.recv(65536)
            connection.sendall(RESPONSE)
        connection.recv(65536)


def test_the_load_itself_is_cheap() -> None:
    found = own_cost(5_000)
    assert found.statuses == {201: 5_000}
    assert found.own_cpu < 0.5e-3  # seconds of CPU time per request, about ten times the usual value
