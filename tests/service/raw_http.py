"""Raw HTTP over a socket, for requests that a client library would not send."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from tests.serving import Service

_TIMEOUT = 120.0  # seconds for any response; a busy machine may need them


class RawResponse(NamedTuple):
    """One response."""

    status_code: int
    headers: dict[str, str]
    content: bytes


@contextmanager
def open_connection(service: Service) -> Iterator[socket.socket]:
    """A connection that sends every piece immediately."""
    with socket.create_connection((service.host, service.port), _TIMEOUT) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield made


def receive_all(connection: socket.socket) -> bytes:
    """Everything received until the service closes or resets the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def send_raw(service: Service, *pieces: bytes) -> list[RawResponse]:
    """The responses until the service closes the connection, which the last request must cause."""
    with open_connection(service) as connection:
        with suppress(ConnectionError):  # the service may close before it has read everything
            for piece in pieces:
                connection.sendall(piece)
        return parse_responses(receive_all(connection))


def parse_responses(received: bytes, *, head: bool = False) -> list[RawResponse]:
    """Parse the responses. With `head` they have no bodies, although they have a Content-Length."""
    found = []
    while received:
        top, end, received = received.partition(b"\r\n\r\n")
        assert end, f"incomplete head: {top!r}"
        first, *lines = top.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = 0 if head else int(headers.get("content-length", 0))
        assert len(received) >= length, "a body was cut"
        found.append(RawResponse(int(first.split()[1]), headers, received[:length]))
        received = received[length:]
    return found


def error(response: Any) -> dict[str, Any]:
    """The error in a response; asserts the format that all errors have."""
    assert response.status_code >= 400, response.content
    assert response.headers["content-type"] == "application/json"
    body = json.loads(response.content)
    assert set(body) == {"error"}
    found: dict[str, Any] = body["error"]
    always, extra = (
        {"code", "message", "path", "request_id"},
        set(found) - {"code", "message", "path", "request_id"},
    )
    assert set(found) >= always
    named = extra == {"kind", "name", "known"} and found["code"] in ("unknown_name", "not_found")
    assert not extra or named or (extra == {"field", "allowed"} and found["code"] == "invalid_value")
    assert found["code"]
    assert found["message"]
    assert found["request_id"]
    return found


def error_summary(response: Any) -> tuple[int, str, str | None]:
    """The status, the code and the path of the wrong field."""
    found = error(response)
    return response.status_code, found["code"], found["path"]
