"""Checks the address of a service, builds HTTP requests and reads response bodies, for both clients."""

from __future__ import annotations

import time
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import httpx2

from maillard.client.api_calls import ApiResponse, encode
from maillard.client.retries import SendRequest
from maillard.errors import InvalidValue
from maillard.wire_schema.loopback import is_loopback

MAX_CONNECTIONS = 32
"Each call searches all connections, so more of them make a process slower."

_IDLE_SECONDS = 30.0  # an unused connection is closed after this time
_MAX_SECONDS = 86_400.0  # sockets do not accept an infinite timeout
_POOL_LIMITS = httpx2.Limits(
    max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS, keepalive_expiry=_IDLE_SECONDS
)

_ALLOWED = "the address of a service, as in 'https://bandits.example' or 'http://127.0.0.1:8000'"


def check_address(url: object) -> tuple[str, bool, bool]:
    """The address without a trailing slash, whether it is encrypted, and whether it is on this machine.

    >>> check_address("http://127.0.0.1:8000/")
    ('http://127.0.0.1:8000', False, True)
    """
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidValue("url", url, _ALLOWED)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidValue("url", url, f"{_ALLOWED} ({error})") from None
    if "@" in parts.netloc:  # not shown: it may contain a password
        shown = parts._replace(netloc="..." + parts.netloc[parts.netloc.rindex("@") :]).geturl()
        raise InvalidValue("url", shown, f"{_ALLOWED}, without a user name: pass the key as key=")
    if parts.scheme not in ("http", "https") or not host or port == 0 or "?" in url or "#" in url:
        raise InvalidValue("url", url, _ALLOWED)
    return url.rstrip("/"), parts.scheme == "https", is_loopback(host)


def check_key(key: object) -> str | None:
    """Check that a key has a valid form. It is never shown."""
    if key is None:
        return None
    if not isinstance(key, str) or not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidValue("key", "(not shown)", "an API key, as `maillard keys create` printed it")
    return key


class Transport:
    """The address and the API key of a service. The key never appears in a message or a repr."""

    def __init__(self, url: object, key: object, *, insecure: bool) -> None:
        self.url, self._secure, self._loopback = check_address(url)
        self._key = check_key(key)
        if self._key is not None and not (self._secure or self._loopback or insecure):
            allowed = (
                "an https:// address, because others on the network can read a key that is sent over http:// "
                "(pass insecure=True if the network is safe)"
            )
            raise InvalidValue("url", self.url, allowed)

    def __repr__(self) -> str:
        return f"<Transport to {self.url}, {'with' if self._key else 'without'} a key>"

    def options(self) -> dict[str, Any]:
        """The arguments of an `httpx2` client."""
        headers = {"accept": "application/json", "user-agent": "maillard"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        return {
            "headers": httpx2.Headers(headers),
            "limits": _POOL_LIMITS,
            # A proxy that an environment variable names gets no request to this machine, and no key that is
            # not encrypted.
            "trust_env": not self._loopback and (self._secure or self._key is None),
            "verify": self._secure,  # without TLS, loading the root certificates would only take time
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
            "url": self.url + call.path,
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
        path = send.call.output_file if response.is_success else None
        self._file = BytesIO() if path is None else path.open("wb")

    def __enter__(self) -> ResponseBody:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, chunk: bytes) -> None:
        """Add a chunk, unless the time is up."""
        if time.monotonic() > self._send.until:
            raise httpx2.ReadTimeout("the response was not complete in time")
        self._file.write(chunk)

    def response(self) -> ApiResponse:
        """The complete response."""
        content = self._file.getvalue() if isinstance(self._file, BytesIO) else b""
        if not self._response.is_success:
            content = self._transport.hide_key(content)
        headers = dict(self._response.headers.items())
        return ApiResponse(self._send.call, self._response.status_code, headers, content)
