"""What both transports have in common: the options of a connection, a request, and the body of its answer."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import httpx2

from maillard.client.addresses import Address, check_address, check_key
from maillard.client.calls import Answer, encode
from maillard.client.retries import Send

__all__ = ["MOST_CONNECTIONS", "Body", "Wire"]

MOST_CONNECTIONS = 32
"Each call looks through all of them, so more make one process slower, not faster."

_IDLE = 30.0  # seconds that a connection is kept for the next call; one that the service has closed is seen before it is used
_LONGEST = 86_400.0  # seconds; the system's clocks know no infinity
_CONNECTIONS = httpx2.Limits(
    max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS, keepalive_expiry=_IDLE
)


class Wire:
    """How a service is reached. The key is in it, and shows nowhere."""

    def __init__(self, url: object, key: object, *, insecure: bool) -> None:
        self.address: Address = check_address(url)
        self._key = check_key(key, self.address, insecure=insecure)

    def __repr__(self) -> str:
        return f"<Wire to {self.address.url}, {'with' if self._key else 'without'} a key>"

    def options(self) -> dict[str, Any]:
        """What an `httpx2` client is made with."""
        headers = {"accept": "application/json", "user-agent": "maillard"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        return {
            "headers": httpx2.Headers(headers),
            "limits": _CONNECTIONS,
            # A proxy of the environment would read what does not leave the machine otherwise.
            "trust_env": not self.address.loopback,
            "verify": self.address.secure,  # without TLS there is nothing to verify, and no time to lose on its roots
        }

    def request(self, send: Send) -> dict[str, Any]:
        """A request, as `httpx2` sends it."""
        call, headers = send.call, dict(send.call.headers)
        content = None if call.body is None else encode(call.body)
        if content is not None:
            headers["content-type"] = "application/json"
        left = min(send.until - time.monotonic(), _LONGEST)
        return {
            "method": call.method,
            "url": self.address.url + call.path,
            "headers": headers,
            "content": content,
            # Whoever waits for a connection waits behind others of this process: that says nothing of the service.
            "timeout": httpx2.Timeout(send.timeout, connect=send.connect, pool=max(left, send.connect)),
        }

    def hide(self, content: bytes) -> bytes:
        """What a service says of an error, without the key: some repeat what they were sent."""
        return content if self._key is None else content.replace(self._key.encode(), b"(key)")


class Body:
    """The body of an answer, taken in pieces."""

    def __init__(self, wire: Wire, send: Send, response: httpx2.Response) -> None:
        self._wire, self._send, self._response = wire, send, response
        self._pieces: list[bytes] = []
        self._stack = ExitStack()
        self._file: Any = None

    def __enter__(self) -> Body:
        if self._send.call.sink is not None and self._response.is_success:
            self._file = self._stack.enter_context(self._send.call.sink.open("wb"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self, piece: bytes) -> None:
        """One piece more, if there is time."""
        if time.monotonic() > self._send.until:
            raise httpx2.ReadTimeout("the answer did not end in time")
        if self._file is None:
            self._pieces.append(piece)
        else:
            self._file.write(piece)

    def answer(self) -> Answer:
        """The answer, when all is there."""
        content = b"".join(self._pieces)
        response = self._response
        if not response.is_success:
            content = self._wire.hide(content)
        return Answer(self._send.call, response.status_code, dict(response.headers.items()), content)
