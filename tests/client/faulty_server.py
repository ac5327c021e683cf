"""A server for tests that drops, truncates or delays responses, is busy, or is not a maillard service."""

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


class RecordedRequest(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100  # a connection beyond the queue is retried only after a second

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that disconnected."""


class FaultyServer:
    """An HTTP server with a scripted behaviour for each request. The last one is repeated."""

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self.connections: set[Any] = set()
        self.script: list[Behaviour] = []
        outer = self

        class RecordingHandler(Handler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # send a response at once, without waiting for an acknowledgement

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.connections.add(self.client_address)
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append(
                    RecordedRequest(self.command, self.path, headers, json.loads(body) if body else None)
                )
                behaviour = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                behaviour(self, body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do  # noqa: N815  # the library's names

            def log_message(self, *_: object) -> None:
                pass

        self.server = _Server(("127.0.0.1", 0), RecordingHandler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def respond_with(self, *behaviours: Behaviour) -> FaultyServer:
        self.script, self.requests = list(behaviours), []
        return self

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@contextmanager
def faulty_server() -> Iterator[FaultyServer]:
    made = FaultyServer()
    try:
        yield made
    finally:
        made.close()


def response(status: int, body: Any = None, /, content: bytes | None = None, **headers: str) -> Behaviour:
    payload = json.dumps(body).encode() if content is None else content

    def behave(handler: Handler, _: bytes) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(payload)))
        handler.end_headers()
        handler.wfile.write(payload)

    return behave


def error_response(
    status: int, code: str, message: str = "No.", path: str | None = None, **headers: str
) -> Behaviour:
    body = {"error": {"code": code, "message": message, "path": path, "request_id": "r-1"}}
    return response(status, body, **headers)


def drop(handler: Handler, _: bytes) -> None:
    """Read the request and close the connection without a response."""
    handler.close_connection = True


def truncate(handler: Handler, _: bytes) -> None:
    """Send the beginning of a response, then close the connection."""
    handler.wfile.write(b'HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\n{"id"')
    handler.close_connection = True


def delay(seconds: float) -> Behaviour:
    def behave(handler: Handler, _: bytes) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return behave


def trickle(handler: Handler, _: bytes) -> None:
    """Send a response one byte at a time, too slowly to finish."""
    handler.wfile.write(b"HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\n")
    try:
        for _i in range(200):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:  # the client disconnected
        handler.close_connection = True


DECISION_MADE = response(201, DECISION)
BUSY = error_response(503, "unavailable", retry_after="0")


def call_client(client_class: type, url: str, call: Callable[[Any], Any], **options: Any) -> Any:
    """Return `call(client)` for a new Client or AsyncClient of the service at this URL."""
    options = {"experiment": "home", **options}
    if client_class is Client:
        with Client(url, **options) as client:
            return call(client)

    async def run() -> Any:
        async with AsyncClient(url, **options) as client:
            return await call(client)

    return asyncio.run(run())


both_clients = pytest.mark.parametrize("client_class", [Client, AsyncClient])
