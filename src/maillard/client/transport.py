"""Builds HTTP requests and reads response bodies, for both clients."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import httpx2

from maillard.client.api_calls import ApiResponse, encode
from maillard.client.retries import SendRequest
from maillard.client.service_address import Address, check_address, check_key

MAX_CONNECTIONS = 32
"Each call searches all connections, so more of them make a process slower."

_IDLE_SECONDS = 30.0  # an unused connection is closed after this time
_MAX_SECONDS = 86_400.0  # sockets do not accept an infinite timeout
_POOL_LIMITS = httpx2.Limits(
    max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS
)


class Transport:
    """The address and the API key of a service. The key never appears in a message or a repr."""

    def __init__(self, url: object, key: object, *, insecure: bool) -> None:
        self.address: Address = check_address(url)
        self._key = check_key(key, self.address, insecure=insecure)

    def __repr__(self) -> str:
        return f"<Transport to {self.address.url}, {'with' if self._key else 'without'} a key>"

    def options(self) -> dict[str, Any]:
        """The arguments of an `httpx2` client."""
        headers = {"accept": "application/json", "user-agent": "maillard"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        return {
            "headers": httpx2.Headers(headers),
            "limits": _POOL_LIMITS,
            # A request to this machine must not go through a proxy that an environment variable names.
            "trust_env": not self.address.loopback,
            "verify": self.address.secure,  # without TLS, loading the root certificates would only take time
        }

    def request(self, send: SendRequest) -> dict[str, Any]:
        """The arguments of an `httpx2` request."""
        call, headers = send.call, dict(send.call.headers)
        content = None if call.body is None else encode(call.body)
        if content is not None:
            headers["content-type"] = "application/json"
        left = min(send.until - time.monotonic(), _MAX_SECONDS)
        return {
            "method": call.method,
            "url": self.address.url + call.path,
            "headers": headers,
            "content": content,
            # Waiting for a free connection of this process says nothing about the service.
            "timeout": httpx2.Timeout(send.timeout, connect=send.connect, pool=max(left, send.connect)),
        }

    def hide_key(self, content: bytes) -> bytes:
        """An error message without the key: some servers repeat the request in it."""
        return content if self._key is None else content.replace(self._key.encode(), b"(key)")


class ResponseBody:
    """The body of a response, received in chunks and kept in memory or written to a file."""

    def __init__(self, transport: Transport, send: SendRequest, response: httpx2.Response) -> None:
        self._transport, self._send, self._response = transport, send, response
        self._chunks: list[bytes] = []
        self._stack = ExitStack()
        self._file: Any = None

    def __enter__(self) -> ResponseBody:
        if self._send.call.output_file is not None and self._response.is_success:
            self._file = self._stack.enter_context(self._send.call.output_file.open("wb"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def append(self, chunk: bytes) -> None:
        """Add a chunk, unless the time is up."""
        if time.monotonic() > self._send.until:
            raise httpx2.ReadTimeout("the response was not complete in time")
        if self._file is None:
            self._chunks.append(chunk)
        else:
            self._file.write(chunk)

    def response(self) -> ApiResponse:
        """The complete response."""
        content = b"".join(self._chunks)
        response = self._response
        if not response.is_success:
            content = self._transport.hide_key(content)
        return ApiResponse(self._send.call, response.status_code, dict(response.headers.items()), content)
