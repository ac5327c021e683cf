"""A server that misbehaves: it drops or cuts responses, is slow, busy, or not a maillard service at all."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from maillard.client import AsyncClient, Client

ID = "019a8d6c-0000-7000-8000-000000000000"
DECISION: dict[str, Any] = {
    "id": ID,
    "experiment": "home",
    "arm": "blue",
    "probability": 1.0,
    "log_probability": 0.0,
    "probabilities": {"red": 0.0, "blue": 1.0},
    "log_probabilities": {"red": None, "blue": 0.0},
    "policy_version": 1,
    "formula_version": 1,
    "state": 3,
    "epoch": 1,
    "unit": None,
    "cold": False,
    "origin": None,
    "idempotency_key": None,
    "position": 0,
    "time": "2026-11-15T12:00:00.123456Z",
    "expires_at": None,
}

Handler = BaseHTTPRequestHandler
Behaviour = Callable[[Handler, bytes], None]


class Seen(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100  # more would wait a second before they connect again

    def handle_error(self, *_: Any) -> None:
        """A client that has gone is no error."""


class Misbehaving:
    """A server that does with each request what is next on its list, and with the others what was last."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.connections: set[Any] = set()
        self.script: list[Behaviour] = []
        outer = self

        class Spoken(Handler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # an answer is one piece, and waits for no acknowledgement

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.connections.add(self.client_address)
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.seen.append(Seen(self.command, self.path, headers, json.loads(body) if body else None))
                behaviour = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                behaviour(self, body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do  # noqa: N815  # the library's names

            def log_message(self, *_: object) -> None:
                pass

        self.server = _Server(("127.0.0.1", 0), Spoken)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def does(self, *behaviours: Behaviour) -> Misbehaving:
        self.script, self.seen = list(behaviours), []
        return self

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@contextmanager
def misbehaving() -> Iterator[Misbehaving]:
    made = Misbehaving()
    try:
        yield made
    finally:
        made.close()


def answer(status: int, body: Any = None, /, content: bytes | None = None, **headers: str) -> Behaviour:
    written = json.dumps(body).encode() if content is None else content

    def behave(handler: Handler, _: bytes) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(written)))
        handler.end_headers()
        handler.wfile.write(written)

    return behave


def fault(status: int, code: str, message: str = "No.", path: str | None = None, **headers: str) -> Behaviour:
    body = {"error": {"code": code, "message": message, "path": path, "request_id": "r-1"}}
    return answer(status, body, **headers)


def drop(handler: Handler, _: bytes) -> None:
    """The request is read, and nothing comes back."""
    handler.close_connection = True


def cut(handler: Handler, _: bytes) -> None:
    """An answer that ends in its middle."""
    handler.wfile.write(b'HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\n{"id"')
    handler.close_connection = True


def slow(seconds: float) -> Behaviour:
    def behave(handler: Handler, _: bytes) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return behave


def drip(handler: Handler, _: bytes) -> None:
    """An answer that comes, and does not end."""
    handler.wfile.write(b"HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\n")
    try:
        for _i in range(200):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:  # the client has gone
        handler.close_connection = True


CHOSEN = answer(201, DECISION)
BUSY = fault(503, "unavailable", retry_after="0")


def talk(kind: type, url: str, say: Callable[[Any], Any], **options: Any) -> Any:
    """Say something to a service, with either client."""
    options = {"experiment": "home", **options}
    if kind is Client:
        with Client(url, **options) as client:
            return say(client)

    async def speak() -> Any:
        async with AsyncClient(url, **options) as client:
            return await say(client)

    return asyncio.run(speak())


either = pytest.mark.parametrize("kind", [Client, AsyncClient])
