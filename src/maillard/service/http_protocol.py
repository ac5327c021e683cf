"""Uvicorn's HTTP/1.1 protocol with limits on the time and the size of requests.

This overrides internals of uvicorn, because uvicorn has no public interface for these limits. So
pyproject.toml allows one minor version of uvicorn, and tests/service/test_uvicorn_internals.py fails if an
upgrade changes what is used here.
"""

from __future__ import annotations

import asyncio
import json
import resource
import secrets
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

_MAX_CONNECTIONS = 10_000
_RESERVED_DESCRIPTORS = 100  # for the log, jobs, and connections that are being rejected
_MAX_REFUSED = 20  # connections above the limit that get a response; further ones are only closed
_MAX_PIPELINED = 32  # requests before the first response; 14,000 of them would fit into one read


def max_connections() -> int:
    """The number of connections that leaves enough file descriptors for the log."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(1, min(_MAX_CONNECTIONS, limit - min(_RESERVED_DESCRIPTORS, limit // 2)))


class LimitedHttpProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 protocol with a time limit for every wait for a client.

    Uvicorn itself only limits the time between two requests (`timeout_keep_alive`). A request that is
    rejected here gets a JSON error response, unless the client could mistake that for the response to another
    request. Then the connection is closed.

    A request that arrives in one piece, as nearly all do, starts no timer. All other connections are checked
    once a second.
    """

    head_timeout = 10.0
    "Seconds until the first byte of a connection, and from the first byte to the end of a head."
    request_timeout = 30.0
    "Seconds until the end of the body."
    response_timeout = 60.0
    "Seconds within which the client must read something when the write buffer is full."
    linger_timeout = 5.0
    "Seconds for the client to read a response that was sent before its request had ended."
    head_limit = 32 << 10
    "Bytes."
    request_limit = 16 << 20
    "Bytes of a whole request, no matter what the application reads."

    max_connections = max_connections()
    "Open connections per process. A further one replaces the connection that is idle for the longest time."

    receiving = False
    "Whether a request has begun and not ended."
    _chunk_size = 0  # bytes of the last read
    _received = 0  # bytes since the request began, including what came before it in the same read
    _first_chunk_size = 0  # bytes of the read in which the request began
    _rejection: tuple[int, str, str] | None = None
    _ignore_input = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timeouts = _timeouts_of(self.server_state, self.loop)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timeouts.start(self)
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timeouts.stop(self)
        self._unset_keepalive_if_required()  # uvicorn leaves it running after an error
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._ignore_input:
            return
        self._chunk_size = len(data)
        self._received += self._chunk_size
        super().data_received(data)
        cycle = self.cycle
        # Any data stops uvicorn's keep-alive timer, even an empty line that begins no request.
        if self.receiving or cycle is None or cycle.response_complete:
            self._check_limits_and_wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._timeouts.restart(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._timeouts.stop(self)
        if self.receiving:
            self._timeouts.start(self)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # A closing transport still waits until the client has read the last response.
        self._timeouts.start(self)

    # Callbacks of the parser, which reports exceptions as parse errors.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.receiving = True
        self._first_chunk_size = self._received = self._chunk_size
        self._timeouts.since.pop(self, None)  # `stop`, inlined for speed

    def on_headers_complete(self) -> None:
        if self._received > self.head_limit and self._head_size() > self.head_limit:
            self._rejection = self._head_too_long()
            raise ValueError(self._rejection)
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._rejection = 400, "bad_request", "a request has one Host header"
            raise ValueError(self._rejection)
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise ValueError("too many pipelined requests")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.receiving = False
        self._timeouts.since.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """Replaces uvicorn's plain-text response to parse errors."""
        self._reject(*(self._rejection or (400, "bad_request", msg)))

    # Limits.

    def _make_room(self) -> None:
        """Close the connection that is idle for the longest time. If none is idle, reject this one."""
        open_connections = [each for each in self.connections if isinstance(each, LimitedHttpProtocol)]
        idle = [each for each in open_connections if each is not self and each.idle_since is not None]
        if idle:
            longest = min(idle, key=lambda each: each.idle_since or 0.0)
            longest.transport.close()
            self._record(secrets.token_hex(8), 408, "closed an idle connection, because too many are open")
        elif len(open_connections) > self.max_connections + _MAX_REFUSED:
            self.transport.abort()
        else:
            self._reject(503, "unavailable", "too many connections are open; try again")

    @property
    def idle_since(self) -> float | None:
        """When the connection began to wait for a request, in the loop's time; None if it has one."""
        if self.receiving or self._ignore_input or self.pipeline or self.transport.is_closing():
            return None
        if self.cycle is None:
            return self._timeouts.since.get(self)
        timer = self.timeout_keep_alive_task
        return None if timer is None else timer.when() - self.timeout_keep_alive

    @property
    def _in_head(self) -> bool:
        return self.receiving and (self.cycle is None or self.cycle.scope is not self.scope)

    def _head_size(self) -> int:
        """Bytes of the head that have been parsed."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_too_long(self) -> tuple[int, str, str]:
        return 431, "too_large", f"the head of a request has at most {self.head_limit} bytes"

    def _check_limits_and_wait(self) -> None:
        if self._ignore_input:
            return
        later_bytes = self._received - self._first_chunk_size
        if self._in_head:
            if self._received > self.head_limit and max(self._head_size(), later_bytes) > self.head_limit:
                self._reject(*self._head_too_long())
                return
        elif self.receiving and later_bytes > self.request_limit:
            self._reject(413, "too_large", f"a request has at most {self.request_limit} bytes")
            return
        elif self.receiving:
            self.cycle.transport = _LingeringTransport(self)  # type: ignore[assignment]
        self._timeouts.start(self)

    @property
    def timeout(self) -> float:
        """Seconds that the client has for what it is doing now."""
        if self._ignore_input:
            return self.linger_timeout
        if self.flow.write_paused:
            return self.response_timeout
        return self.request_timeout if self.receiving and not self._in_head else self.head_timeout

    def time_out(self) -> None:
        """End the connection, because the client took too long."""
        if self._ignore_input or self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()
        elif self.flow.read_paused:  # the application is slow, not the client
            self._timeouts.restart(self)
        elif self.receiving:
            part = "the head of the request" if self._in_head else "the request"
            self._reject(408, "timeout", f"{part} did not arrive within {self.timeout:g} seconds")
        else:  # no request
            self.transport.close()

    def _reject(self, status: int, code: str, message: str) -> None:
        """Send an error response, unless it could be taken for that of another request; then close."""
        request_id = secrets.token_hex(8)
        self._record(request_id, status, message)
        cycle = self.cycle
        current = cycle is not None and cycle.scope is self.scope
        if self.pipeline or (
            cycle is not None and not cycle.response_complete and (not current or cycle.response_started)
        ):
            self._ignore_input = True
            self.transport.close()
            self._timeouts.restart(self)
            return
        if not current or not cycle.response_complete:
            error = {"code": code, "message": message, "path": None, "request_id": request_id}
            body = json.dumps({"error": error}).encode()
            headers = [
                *self.server_state.default_headers,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            lines = [b"%b: %b\r\n" % header for header in headers]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        if current:
            cycle.disconnected = True  # discard the application's response
            cycle.message_event.set()
        self.linger()

    def _record(self, request_id: str, status: int, message: str) -> None:
        """Log a rejection, if this is a server of the service."""
        service = self.app_state.get("service")
        if service is not None:
            peer = self.client[0] if self.client else None
            service.record_rejection(request_id, status, message, peer)

    def linger(self) -> None:
        """Close for writing, and read for a while.

        If the connection were closed while the client sends, the client's system would discard the response.
        """
        self._ignore_input = True
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self._timeouts.restart(self)


def send_at_once(send: Callable[..., Any], status: int, headers: bytes, body: bytes) -> bool:
    """Send a whole response with one write, if `send` is uvicorn's; return whether that was possible.

    `send` of uvicorn takes two messages and checks every header. `headers` are lines that need no check, and
    include the length of the body.
    """
    cycle = getattr(send, "__self__", None)
    if (
        type(cycle) is not RequestResponseCycle
        or cycle.response_started
        or cycle.disconnected
        or not cycle.keep_alive
        or cycle.default_headers
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], headers, body))
    cycle.message_event.set()
    cycle.on_response()
    return True


class _LingeringTransport:
    """The transport of a response that may be complete before its request is: `close` lingers."""

    def __init__(self, protocol: LimitedHttpProtocol) -> None:
        self._protocol = protocol

    def close(self) -> None:
        """Close the connection after the client has read the response."""
        if self._protocol.receiving:
            self._protocol.linger()
        else:
            self._protocol.transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol.transport, name)


class _ConnectionTimeouts:
    """The connections of a server that wait for their clients, each with the start of its wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.since: dict[LimitedHttpProtocol, float] = {}
        "In the loop's time."
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: LimitedHttpProtocol) -> None:
        """Start the wait of a connection, unless it has started."""
        self.since.setdefault(connection, self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(connection.head_timeout / 10, self._check)

    def stop(self, connection: LimitedHttpProtocol) -> None:
        """End the wait of a connection."""
        self.since.pop(connection, None)

    def restart(self, connection: LimitedHttpProtocol) -> None:
        """Start the wait of a connection again."""
        self.stop(connection)
        self.start(connection)

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection, since in list(self.since.items()):
            if now - since >= connection.timeout:
                connection.time_out()
        if self.since:
            self.start(next(iter(self.since)))


_timeouts: WeakKeyDictionary[ServerState, _ConnectionTimeouts] = WeakKeyDictionary()


def _timeouts_of(server: ServerState, loop: asyncio.AbstractEventLoop) -> _ConnectionTimeouts:
    """The timeouts of a server, whose connections all run in one loop."""
    if server not in _timeouts:
        _timeouts[server] = _ConnectionTimeouts(loop)
    return _timeouts[server]
