"""Connections that send slowly, too much, or no HTTP: a real server, real sockets."""

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

_BUFFER = 1 << 16  # bytes, so that the kernel does not take whole answers by itself


class Hasty(LimitedHttpProtocol):
    head_timeout = 0.2
    request_timeout = 0.4
    response_timeout = 0.4
    linger_timeout = 0.2
    request_limit = 600_000


class Unhurried(LimitedHttpProtocol):
    """For requests that are slow on purpose and must be answered, also on a busy machine."""

    request_limit = Hasty.request_limit


class Application:
    """Echoes a body; or answers at once, slowly, or at length."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        self.received.append(scope["path"])
        body = b""
        if scope["path"] == "/long":
            await self.answer(send, [bytes(100_000)] * 100)
            return
        while scope["path"] != "/at-once":
            message = await receive()
            if message["type"] == "http.disconnect":
                self.received.append("disconnect")
                return
            body += message["body"]
            if not message["more_body"]:
                break
        await self.answer(send, [body])

    async def answer(self, send: Any, pieces: list[bytes]) -> None:
        length = str(sum(map(len, pieces))).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Server:
    def __init__(self, loop: Any, protocol: type[LimitedHttpProtocol]) -> None:
        self.application = Application()
        config = uvicorn.Config(
            self.application, loop=loop, http=protocol, ws="none", lifespan="off", log_config=None, port=0, timeout_keep_alive=1
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # as all that it accepts
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})

    def connect(self) -> socket.socket:
        client = socket.socket()
        client.settimeout(120)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.connect(self.listener.getsockname())
        return client

    def heard(self, what: str) -> bool:
        """Whether the application hears this, sooner or later."""
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
def hasty_server(loop: str) -> Iterator[Server]:
    yield from serve(loop, Hasty)


@pytest.fixture(scope="module")
def unhurried_server(loop: str) -> Iterator[Server]:
    yield from serve(loop, Unhurried)


@pytest.fixture
def server(request, loop: str) -> Server:
    """The one with short time limits, unless the test is marked `unhurried`."""
    unhurried = request.node.get_closest_marker("unhurried") is not None
    made: Server = request.getfixturevalue("unhurried_server" if unhurried else "hasty_server")
    return made


@pytest.fixture
def client(server: Server) -> Iterator[socket.socket]:
    server.application.received.clear()
    with server.connect() as made:
        yield made
    end = time.monotonic() + 120
    while server.open:  # nothing is left behind by any test
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def taking(least: float) -> Iterator[None]:
    """The block takes so many seconds, a little less for rounding; more, but with an end, where the machine is busy."""
    begin = time.monotonic()
    yield
    assert least - 0.02 <= time.monotonic() - begin <= least + 100


def rest(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    while piece := client.recv(1 << 16):
        received += piece
    return received


def error(answer: bytes, status: int) -> dict[str, Any]:
    """The error of one answer, and nothing after it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    assert lines[0].split()[1] == str(status)
    assert {"content-type: application/json", "connection: close", f"content-length: {len(body)}"} <= set(
        lines
    )
    found = json.loads(body)["error"]
    assert set(found) == {"code", "message", "path", "request_id"}
    return dict(found)


WHOLE = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"


def answer_to(client: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"hello"):
        piece = client.recv(1 << 16)
        assert piece, received
        received += piece
    return received


def test_requests_are_answered_on_one_connection(client) -> None:
    with taking(1.0):
        for _ in range(3):
            client.sendall(WHOLE)
            assert answer_to(client).startswith(b"HTTP/1.1 200 OK")
        assert rest(client) == b""  # and then uvicorn's own clock closes it


@pytest.mark.unhurried
def test_a_request_in_pieces_is_answered(client) -> None:
    for byte in WHOLE[:-1]:
        client.sendall(bytes([byte]))
    time.sleep(0.1)
    client.sendall(WHOLE[-1:])
    assert answer_to(client).startswith(b"HTTP/1.1 200 OK")


def test_who_says_nothing_is_told_nothing(client) -> None:
    with taking(0.2):
        assert rest(client) == b""


@pytest.mark.parametrize("before", [b"", WHOLE])
def test_a_slow_head_times_out(client, before) -> None:
    if before:
        client.sendall(before)
        answer_to(client)
        time.sleep(0.15)
    client.sendall(b"GET / HTTP/1.1\r\n")

    def drip() -> None:
        with contextlib.suppress(OSError):
            for n in range(100):
                client.sendall(b"X-%d: 1\r\n" % n)
                time.sleep(0.05)

    dripping = threading.Thread(target=drip)
    with taking(0.2):
        dripping.start()
        found = error(rest(client), 408)
    assert found["code"] == "timeout"
    assert found["message"] == "the head of the request did not arrive within 0.2 seconds"
    dripping.join()


def test_a_slow_body_times_out_and_the_application_hears_of_it(server, client) -> None:
    with taking(0.4):
        client.sendall(WHOLE[:-1])
        assert error(rest(client), 408)["message"] == "the request did not arrive within 0.4 seconds"
    assert server.heard("disconnect")


def test_a_body_that_nobody_waits_for_does_not_keep_the_connection(client) -> None:
    client.sendall(b"POST /at-once HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")

    def drip() -> None:
        for _ in range(100):
            client.sendall(b"x")
            time.sleep(0.02)

    with taking(0.4), pytest.raises(ConnectionError):
        drip()


@pytest.mark.unhurried
@pytest.mark.parametrize("size", [300_000, 3_000_000])
@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
def test_an_answer_that_comes_before_the_end_of_the_body_is_not_lost(client, size, close) -> None:
    """As it would be if the connection were closed while the client sends."""
    head = b"POST /at-once HTTP/1.1\r\nHost: here\r\n%bContent-Length: %d\r\n\r\n"
    client.sendall(head % (close, size))
    time.sleep(0.05)  # so it is answered by now
    client.sendall(bytes(size))
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    if not close and size < Hasty.request_limit:
        client.sendall(WHOLE)
        answer_to(client)
    else:
        assert rest(client) == b""


def test_the_end_of_a_body_that_nobody_waited_for_is_no_reason_to_wait_for_ever(client) -> None:
    client.sendall(b"POST /at-once HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    client.sendall(b"hello")
    client.sendall(WHOLE)
    answer_to(client)
    client.sendall(b"POST /at-once HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\n")
    assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
    client.sendall(b"hello")
    with taking(0.2):
        assert rest(client) == b""


def test_empty_lines_do_not_keep_a_connection(client) -> None:
    client.sendall(WHOLE)
    answer_to(client)
    with taking(0.2):
        client.sendall(b"\r\n")
        time.sleep(0.1)
        client.sendall(b"\r\n")
        assert rest(client) == b""


def test_an_answer_that_nobody_takes_is_given_up(server, client) -> None:
    client.sendall(b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n")
    assert server.heard("/long")
    end = time.monotonic() + 120
    while server.open:
        assert time.monotonic() < end
        time.sleep(0.02)
    received = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 20):
            received += len(piece)
    assert 0 < received < 10_000_000


@pytest.mark.unhurried
def test_an_answer_that_is_taken_slowly_is_not_given_up(client) -> None:
    client.sendall(b"GET /long HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    received, begin = 0, time.monotonic()
    while piece := client.recv(1 << 15):
        received += len(piece)
        time.sleep(0.02 if time.monotonic() < begin + 1 else 0)  # in all far longer than a pause may be
    assert received > 10_000_000
    assert time.monotonic() > begin + 1


@pytest.mark.unhurried
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
    found = error(rest(client), 431)
    assert (found["code"], found["message"]) == ("too_large", "the head of a request has at most 32768 bytes")
    assert server.application.received == []


@pytest.mark.unhurried
def test_a_head_that_is_almost_too_long(client) -> None:
    head = WHOLE.replace(b"Host", b"X: " + b"x" * 32_600 + b"\r\nHost")
    client.sendall(head)
    answer_to(client)
    client.sendall(head[:20_000])
    time.sleep(0.1)
    client.sendall(head[20_000:])
    answer_to(client)


@pytest.mark.unhurried
def test_a_long_body_is_no_long_head(client) -> None:
    """Nor is a head that begins where a long body ends."""
    long = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 100005\r\n\r\n" + bytes(100_000) + b"hello"
    for _ in range(3):
        client.sendall(long + WHOLE[:30])
        answer_to(client)
        time.sleep(0.1)
        client.sendall(WHOLE[30:])
        answer_to(client)


@pytest.mark.unhurried
@pytest.mark.parametrize("path", [b"/echo", b"/at-once"])
def test_trailers_without_end(client, path) -> None:
    """What the parser keeps of a request after its body is bounded too, whether or not it was answered."""
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


@pytest.mark.unhurried
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
def test_what_is_no_http(client, garbage, before) -> None:
    if before:
        client.sendall(before)
        answer_to(client)
    client.sendall(garbage)
    found = error(rest(client), 400)
    assert (found["code"], found["message"]) == ("bad_request", "Invalid HTTP request received.")


@pytest.mark.unhurried
def test_garbage_in_a_body(server, client) -> None:
    client.sendall(b"POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n")
    time.sleep(0.1)
    client.sendall(b"no number\r\n")
    assert error(rest(client), 400)["code"] == "bad_request"
    assert server.heard("disconnect")


@pytest.mark.unhurried
def test_a_refusal_is_never_taken_for_the_answer_to_an_earlier_request(client) -> None:
    client.sendall(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello" + b"hello\r\n\r\n")
    assert not rest(client).startswith(b"HTTP/1.1 400")


@pytest.mark.unhurried
def test_requests_that_follow_each_other_at_once_are_answered_in_order(client) -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 8\r\n\r\n%03dhello"
    client.sendall(b"".join(one % n for n in range(30)))
    received = b""
    while received.count(b"hello") < 30:
        piece = client.recv(1 << 16)
        assert piece, received
        received += piece
    bodies = [int(piece[:3]) for piece in received.split(b"\r\n\r\n")[1:]]
    assert bodies == list(range(30))


@pytest.mark.unhurried
def test_thousands_of_requests_at_once_are_not_kept(server, client) -> None:
    client.sendall(b"GET /echo HTTP/1.1\r\n\r\n" * 5000)
    with contextlib.suppress(ConnectionResetError):
        rest(client)
    assert len(server.application.received) <= 40
