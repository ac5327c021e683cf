"""Connections that cannot be kept busy by sending slowly, by sending too much, or by sending what is no HTTP."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["LimitedHttpProtocol"]

_MOST_PIPELINED = 32  # requests sent before the first is answered; 14,000 of them would fit into one read


class LimitedHttpProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1, with an end to every wait for a client.

    Uvicorn itself waits only for the next request of an idle connection with a clock (`timeout_keep_alive`). Here a client has
    `head_timeout` seconds to begin its first request, the same from a request's first byte to the end of its head, and
    `request_timeout` to the end of its body; and `answer_timeout` to take some of an answer that fills the buffers. A head has
    at most `head_limit` bytes, a whole request at most `request_limit`, whatever the application makes of it. What is refused is
    answered in the service's form, where that cannot be taken for the answer to another request, and the connection is closed.

    A request that comes in one piece, as nearly all do, starts no timer: the others are looked through once a second.
    """

    head_timeout = 10.0
    request_timeout = 30.0
    answer_timeout = 60.0
    linger_timeout = 5.0
    "Seconds in which a client that was answered before it had sent everything may still read the answer."
    head_limit = 32 << 10
    request_limit = 16 << 20

    sending = False
    "Whether a request has begun and not ended."
    _read = 0  # bytes that came last
    _most = 0  # bytes that came since the request began, and in the same piece before it
    _first = 0  # bytes of the piece that it began in
    _refusal: tuple[int, str, str] | None = None
    _ended = False  # whether what still comes is of no interest

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = _watch_of(self.server_state, self.loop)

    # What the transport says.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch.start(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.stop(self)
        self._unset_keepalive_if_required()  # which uvicorn leaves running where there was an error
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._read = len(data)
        self._most += self._read
        super().data_received(data)
        cycle = self.cycle
        # Data that ends no request has stopped uvicorn's clock for idle connections, even if it was an empty line.
        if self.sending or cycle is None or cycle.response_complete:
            self._wait_for_more()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch.restart(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch.stop(self)
        if self.sending:
            self._watch.start(self)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch.start(
            self
        )  # a transport that closes still waits until its client has taken the last answer

    # What the parser says. What is raised here, it reports as an error.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.sending = True
        self._first = self._most = self._read
        self._watch.since.pop(self, None)  # as `stop`, for every request does this

    def on_headers_complete(self) -> None:
        if self._most > self.head_limit and self._head() > self.head_limit:
            self._refusal = self._too_long()
            raise ValueError(self._refusal)
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise ValueError("too many requests before the first was answered")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.sending = False
        self._watch.since.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """As uvicorn does for whatever the parser reports, in the service's form."""
        self._refuse(*(self._refusal or (400, "bad_request", msg)))

    # What follows.

    @property
    def _in_head(self) -> bool:
        return self.sending and (self.cycle is None or self.cycle.scope is not self.scope)

    def _head(self) -> int:
        """Bytes of the head that the parser has passed on."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _too_long(self) -> tuple[int, str, str]:
        return 431, "too_large", f"the head of a request has at most {self.head_limit} bytes"

    def _wait_for_more(self) -> None:
        if self._ended:
            return
        later = self._most - self._first  # than the piece that the request began in
        if self._in_head:
            if self._most > self.head_limit and max(self._head(), later) > self.head_limit:
                self._refuse(*self._too_long())
                return
        elif self.sending and later > self.request_limit:
            self._refuse(413, "too_large", f"a request has at most {self.request_limit} bytes")
            return
        elif self.sending:
            self.cycle.transport = _Patient(self)  # type: ignore[assignment]
        self._watch.start(self)

    @property
    def patience(self) -> float:
        """Seconds that are left to the client from the start of the watch."""
        if self._ended:
            return self.linger_timeout
        if self.flow.write_paused:
            return self.answer_timeout
        return self.request_timeout if self.sending and not self._in_head else self.head_timeout

    def run_out(self) -> None:
        """End it, for the client has had its time."""
        if self._ended or self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()
        elif self.flow.read_paused:  # it is the application that takes its time
            self._watch.restart(self)
        elif self.sending:
            what = "the head of the request" if self._in_head else "the request"
            self._refuse(408, "timeout", f"{what} did not come within {self.patience:g} seconds")
        else:  # nothing was asked
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """HttpResponse, if this can be the answer to nothing else, and close."""
        cycle = self.cycle
        mine = cycle is not None and cycle.scope is self.scope
        if self.pipeline or (
            cycle is not None and not cycle.response_complete and (not mine or cycle.response_started)
        ):
            self._ended = True
            self.transport.close()
            self._watch.restart(self)
            return
        if not mine or not cycle.response_complete:
            error = {"code": code, "message": message, "path": None, "request_id": secrets.token_hex(8)}
            body = json.dumps({"error": error}).encode()
            headers = [
                *self.server_state.default_headers,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            lines = [b"%b: %b\r\n" % header for header in headers]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        if mine:
            cycle.disconnected = True  # so the application's own answer goes nowhere
            cycle.message_event.set()
        self.linger()

    def linger(self) -> None:
        """Close it; but while the client still sends, that would make its system discard the answer, so read on for a while."""
        self._ended = True
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self._watch.restart(self)


class _Patient:
    """The transport of an answer that may come before its request has ended."""

    def __init__(self, connection: LimitedHttpProtocol) -> None:
        self._connection = connection

    def close(self) -> None:
        """Close it, when the client has read what was written."""
        if self._connection.sending:
            self._connection.linger()
        else:
            self._connection.transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.transport, name)


class _Watch:
    """The connections of a server that wait for their clients, and since when."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.since: dict[LimitedHttpProtocol, float] = {}
        "By the loop's clock."
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: LimitedHttpProtocol) -> None:
        """Watch it from now on, unless it is watched."""
        self.since.setdefault(connection, self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(connection.head_timeout / 10, self._look)

    def stop(self, connection: LimitedHttpProtocol) -> None:
        """Watch it no longer."""
        self.since.pop(connection, None)

    def restart(self, connection: LimitedHttpProtocol) -> None:
        """Watch it from now on."""
        self.stop(connection)
        self.start(connection)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection, since in list(self.since.items()):
            if now - since >= connection.patience:
                connection.run_out()
        if self.since:
            self.start(next(iter(self.since)))


_watches: WeakKeyDictionary[ServerState, _Watch] = WeakKeyDictionary()


def _watch_of(server: ServerState, loop: asyncio.AbstractEventLoop) -> _Watch:
    """The watch of a server, whose connections all run in one loop."""
    if server not in _watches:
        _watches[server] = _Watch(loop)
    return _watches[server]
