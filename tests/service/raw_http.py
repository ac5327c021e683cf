"""Raw HTTP over a socket, for requests that a client library would not send."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from tests.serving import Service

_PATIENCE = 120.0  # seconds for any response; a busy machine may need them


class Reply(NamedTuple):
    """One answer."""

    status_code: int
    headers: dict[str, str]
    content: bytes


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    """A connection, on which every piece is sent at once."""
    with socket.create_connection((service.host, service.port), _PATIENCE) as made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield made


def heard(connection: socket.socket) -> bytes:
    """All that comes until the service closes, or breaks it off."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def say(service: Service, *pieces: bytes) -> list[Reply]:
    """The responses until the service closes the connection, which the last request must cause."""
    with connected(service) as connection:
        with suppress(ConnectionError):  # it may have heard enough
            for piece in pieces:
                connection.sendall(piece)
        return replies(heard(connection))


def replies(received: bytes, *, head: bool = False) -> list[Reply]:
    """The answers in what was received. With `head` they have no bodies, whatever their lengths say."""
    found = []
    while received:
        top, end, received = received.partition(b"\r\n\r\n")
        assert end, f"no whole head: {top!r}"
        first, *lines = top.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = 0 if head else int(headers.get("content-length", 0))
        assert len(received) >= length, "a body was cut"
        found.append(Reply(int(first.split()[1]), headers, received[:length]))
        received = received[length:]
    return found


def error(answer: Any) -> dict[str, Any]:
    """The error in an answer, in the form that every error has."""
    assert answer.status_code >= 400, answer.content
    assert answer.headers["content-type"] == "application/json"
    body = json.loads(answer.content)
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


def refusal(answer: Any) -> tuple[int, str, str | None]:
    """An error in short: status, code and the path to what was wrong."""
    found = error(answer)
    return answer.status_code, found["code"], found["path"]
