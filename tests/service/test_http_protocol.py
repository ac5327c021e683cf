"""Slow clients, oversized requests and invalid HTTP, on real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from maillard.service.http_protocol import LimitedHttpProtocol

_BUFFER = 1 << 16  # bytes, so that the kernel cannot buffer a whole response


class ShortTimeouts(LimitedHttpProtocol):
    head_timeout = 0.2
    request_timeout = 0.4
    response_timeout = 0.4
    linger_timeout = 0.2
    request_limit = 600_000


class DefaultTimeouts(LimitedHttpProtocol):
    """For requests that are slow on purpose and must succeed even on a busy machine."""

    request_limit = ShortTimeouts.request_limit


class Application:
    """Echoes the body, responds before it has read the body, or sends a long response."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        self.received.append(scope["path"])
        body = b""
        if scope["path"] == "/long":
            await self.respond(send, [bytes(100_000)] * 100)
            return
        while scope["path"] != "/at-once":
            message = await receive()
            if message["type"] == "http.disconnect":
                self.received.append("disconnect")
                return
            body += message["body"]
            if not message["more_body"]:
                break
        await self.respond(send, [body])

    async def respond(self, send: Any, pieces: list[bytes]) -> None:
        length = str(sum(map(len, pieces))).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Server:
    def __init__(self, loop: Any, protocol: type[LimitedHttpProtocol]) -> None:
        self.application = Application()
        config = uvicorn.Config(
            self.application,
            loop=loop,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            port=0,
            timeout_keep_alive=1,
        )
        self.server = uvicorn.Server(config)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # accepted sockets inherit it
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})

    def connect(self) -> socket.socket:
        client = socket.socket()
        client.settimeout(120)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.connect(self.listener.getsockname())
        return client

    def wait_for(self, what: str) -> bool:
        """Whether the application receives this within two minutes."""
        end = time.monotonic() + 120
        while what not in self.application.received and time.monotonic() < end:
            time.sleep(0.01)
        return what in self.application.received

    @property
    def open(self) -> int:
        return len(self.server.server_state.connections)


def serve(loop: str, protocol: type[LimitedHttpProtocol]) -> Iterator[Server]:
    made = Server(loop, protocol)
    made.thread.start()
    while not made.server.started:
        time.sleep(0.01)
    yield made
    made.server.should_exit = True
    made.thread.join()
    made.listener.close()


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def loop(request) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def short_timeout_server(loop: str) -> Iterator[Server]:
    yield from serve(loop, ShortTimeouts)


@pytest.fixture(scope="module")
def default_timeout_server(loop: str) -> Iterator[Server]:
    yield from serve(loop, DefaultTimeouts)


@pytest.fixture
def server(request, loop: str) -> Server:
    """The server with short timeouts, unless the test is marked `default_timeouts`."""
    default_timeouts = request.node.get_closest_marker("default_timeouts") is not None
    made: Server = request.getfixturevalue(
        "default_timeout_server" if default_timeouts else "short_timeout_server"
    )
    return made


@pytest.fixture
def client(server: Server) -> Iterator[socket.socket]:
    server.application.received.clear()
    with server.connect() as made:
        yield made
    end = time.monotonic() + 120
    while server.open:  # no test leaves a connection open
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def takes_at_least(least: float) -> Iterator[None]:
    """Assert that the block takes at least this many seconds (and ends, even on a busy machine)."""
    begin = time.monotonic()
    yield
    assert least - 0.02 <= time.monotonic() - begin <= least + 100


def receive_all(client: socket.socket) -> bytes:
    """Everything received until the server closes the connection."""
    received = b""
    while piece := client.recv(1 << 16):
        received += piece
    return received


def error(response: bytes, status: int) -> dict[str, Any]:
    """The error of the only response."""
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0].split()[1] == str(status)
    assert {"content-type: application/json", "connection: close", f"content-length: {len(body)}"} <= set(
        lines
    )
    found = json.loads(body)["error"]
    assert set(found) == {"code", "message", "path", "request_id"}
    return dict(found)


WHOLE = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"


def read_response(client: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"hello"):
        piece = client.recv(1 << 16)
        assert piece, received
        received += piece
    return received


def test_several_requests_on_one_connection(client) -> None:
    with takes_at_least(1.0):
        for _ in range(3):
            client.sendall(WHOLE)
            assert read_response(client).startswith(b"HTTP/1.1 200 OK")
        assert receive_all(client) == b""  # uvicorn's keep-alive timeout closes the connection


@pytest.mark.default_timeouts
def test_a_request_may_arrive_in_pieces(client) -> None:
    for byte in WHOLE[:-1]:
        client.sendall(bytes([byte]))
    time.sleep(0.1)
    client.sendall(WHOLE[-1:])
    assert read_response(client).startswith(b"HTTP/1.1 200 OK")


def test_a_silent_connection_is_closed_without_a_response(client) -> None:
    with takes_at_least(0.2):
        assert receive_all(client) == b""


@pytest.mark.parametrize("before", [b"", WHOLE])
def test_a_slow_head_times_out(client, before) -> None:
    if before:
        client.sendall(before)
        read_response(client)
        time.sleep(0.15)
    client.sendall(b"GET / HTTP/1.1\r\n")

    def drip() -> None:
        with contextlib.suppress(OSError):
            for n in range(100):
                client.sendall(b"X-%d: 1\r\n" % n)
                time.sleep(0.05)

    dripping = threading.Thread(target=drip)
    with takes_at_least(0.2):
        dripping.start()
        found = error(receive_all(client), 408)
    assert found["code"] == "timeout"
    assert found["message"] == "the head of the request did not arrive within 0.2 seconds"
    dripping.join()


def test_a_slow_body_times_out_and_the_application_is_notified(server, client) -> None:
    with takes_at_least(0.4):
        client.sendall(WHOLE[:-1])
        assert error(receive_all(client), 408)["message"] == "the request did not arrive within 0.4 seconds"
    assert server.wait_for("disconnect")


def test_an_unread_body_does_not_keep_the_connection_open(client) -> None:
    client.sendall(b"POST /at-once HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")

    def drip() -> None:
        for _ in range(100):
            client.sendall(b"x")
            time.sleep(0.02)

    with takes_at_least(0.4), pytest.raises(ConnectionError):
        drip()


@pytest.mark.default_timeouts
@pytest.mark.parametrize("size", [300_000, 3_000_000])
@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
def test_a_response_sent_before_the_end_of_the_body_is_not_lost(client, size, close) -> None:
    """It would be lost if the server closed the connection while the client still sends."""
    head = b"POST /at-once HTTP/1.1\r\nHost: here\r\n%bContent-Length: %d\r\n\r\n"
    client.sendall(head % (close, size))
    time.sleep(0.05)  # the server has probably responded by now
    client.sendall(bytes(size))
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    if not close and size < ShortTimeouts.request_limit:
        client.sendall(WHOLE)
        read_response(client)
    else:
        assert receive_all(client) == b""


def test_the_end_of_an_unread_body_does_not_disable_the_timeout(client) -> None:
    client.sendall(b"POST /at-once HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    client.sendall(b"hello")
    client.sendall(WHOLE)
    read_response(client)
    client.sendall(b"POST /at-once HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    client.sendall(b"hello")
    with takes_at_least(0.2):
        assert receive_all(client) == b""


def test_empty_lines_do_not_keep_a_connection_open(client) -> None:
    client.sendall(WHOLE)
    read_response(client)
    # On a busy machine the server may close the connection before the second line is sent.
    with takes_at_least(0.2), contextlib.suppress(ConnectionError):
        client.sendall(b"\r\n")
        time.sleep(0.1)
        client.sendall(b"\r\n")
        assert receive_all(client) == b""


def test_a_response_that_is_not_read_is_aborted(server, client) -> None:
    client.sendall(b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n")
    assert server.wait_for("/long")
    end = time.monotonic() + 120
    while server.open:
        assert time.monotonic() < end
        time.sleep(0.02)
    received = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 20):
            received += len(piece)
    assert 0 < received < 10_000_000


@pytest.mark.default_timeouts
def test_a_response_that_is_read_slowly_is_completed(client) -> None:
    client.sendall(b"GET /long HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    received, begin = 0, time.monotonic()
    while piece := client.recv(1 << 15):
        received += len(piece)
        time.sleep(
            0.02 if time.monotonic() < begin + 1 else 0
        )  # in total much longer than the response timeout
    assert received > 10_000_000
    assert time.monotonic() > begin + 1


@pytest.mark.default_timeouts
@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 1_500_000,
    ],
)
@pytest.mark.parametrize("size", [1000, 10_000_000])
def test_a_head_that_is_too_long(server, client, head, size) -> None:
    for start in range(0, len(head), size):
        client.sendall(head[start : start + size])
    found = error(receive_all(client), 431)
    assert (found["code"], found["message"]) == ("too_large", "the head of a request has at most 32768 bytes")
    assert server.application.received == []


@pytest.mark.default_timeouts
def test_a_head_that_is_almost_too_long(client) -> None:
    head = WHOLE.replace(b"Host", b"X: " + b"x" * 32_600 + b"\r\nHost")
    client.sendall(head)
    read_response(client)
    client.sendall(head[:20_000])
    time.sleep(0.1)
    client.sendall(head[20_000:])
    read_response(client)


@pytest.mark.default_timeouts
def test_a_long_body_does_not_count_as_a_long_head(client) -> None:
    """A head that directly follows a long body is not too long either."""
    long = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 100005\r\n\r\n" + bytes(100_000) + b"hello"
    for _ in range(3):
        client.sendall(long + WHOLE[:30])
        read_response(client)
        time.sleep(0.1)
        client.sendall(WHOLE[30:])
        read_response(client)


@pytest.mark.default_timeouts
@pytest.mark.parametrize("path", [b"/echo", b"/at-once"])
def test_endless_trailers(client, path) -> None:
    """The size of the trailers is limited, too, before and after the response."""
    client.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")
    received = b""
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            client.sendall(b"x" * 50_000)
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            received += piece
    if path == b"/echo":
        assert error(received, 413)["code"] == "too_large"
    else:
        assert received.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.default_timeouts
@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : here\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
@pytest.mark.parametrize("before", [b"", WHOLE])
def test_invalid_http(client, garbage, before) -> None:
    if before:
        client.sendall(before)
        read_response(client)
    client.sendall(garbage)
    found = error(receive_all(client), 400)
    assert (found["code"], found["message"]) == ("bad_request", "Invalid HTTP request received.")


@pytest.mark.default_timeouts
def test_garbage_in_a_body(server, client) -> None:
    client.sendall(b"POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n")
    time.sleep(0.1)
    client.sendall(b"no number\r\n")
    assert error(receive_all(client), 400)["code"] == "bad_request"
    assert server.wait_for("disconnect")


@pytest.mark.default_timeouts
def test_an_error_is_not_sent_as_the_response_to_an_earlier_request(client) -> None:
    client.sendall(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello" + b"hello\r\n\r\n")
    assert not receive_all(client).startswith(b"HTTP/1.1 400")


@pytest.mark.default_timeouts
def test_pipelined_requests_are_answered_in_order(client) -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 8\r\n\r\n%03dhello"
    client.sendall(b"".join(one % n for n in range(30)))
    received = b""
    while received.count(b"hello") < 30:
        piece = client.recv(1 << 16)
        assert piece, received
        received += piece
    bodies = [int(piece[:3]) for piece in received.split(b"\r\n\r\n")[1:]]
    assert bodies == list(range(30))


@pytest.mark.default_timeouts
def test_the_number_of_pipelined_requests_is_bounded(server, client) -> None:
    client.sendall(b"GET /echo HTTP/1.1\r\n\r\n" * 5000)
    with contextlib.suppress(ConnectionResetError):
        receive_all(client)
    assert len(server.application.received) <= 40
