"""The application: every operation behind one door, where keys, limits and bodies are checked and errors become answers."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from maillard.service.access_log import Line
from maillard.service.api_keys import Key
from maillard.service.authorization import admitted, charge
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_responses import (
    HttpError,
    HttpResponse,
    decoding_error,
    error_response,
    http_error,
)
from maillard.service.operations import OPERATIONS, Operation
from maillard.service.service_state import Service

__all__ = ["ASGI", "application"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

_LARGEST = 1 << 20  # bytes of a body
_LARGEST_BATCH = 4 << 20
_encode = msgspec.json.Encoder().encode
_ALWAYS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_PAGE = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SIMPLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


# Of requests whose callers gave no id: unlike any other process's, and without a call to the system for each.
_START = secrets.token_hex(6) + "-"
_numbers = itertools.count(1)


class _Holder:
    """The service, once it runs."""

    service: Service


def application(start: Callable[[], Awaitable[Service]]) -> ASGI:
    """The ASGI application of a service, which starts and stops with it."""
    holder = _Holder()

    @asynccontextmanager
    async def lifespan(_: Router) -> AsyncIterator[None]:
        holder.service = await start()
        async with holder.service:
            yield

    async def refuse_unknown(status: int, scope: Scope, send: Send) -> None:
        method, path, request_id = scope["method"], scope["path"], _request_id(dict(scope["headers"]))
        message = f"There is no {method} {path!r:.200}; /openapi.json lists all there is."
        if status == 405:
            fitting = (route.methods or () for route in everything if route.path_regex.match(path))
            allowed = ", ".join(sorted({name for names in fitting for name in names}))
            refusal = HttpError(405, "method_not_allowed", message, None, ((b"allow", allowed.encode()),))
        else:
            refusal = HttpError(status, "not_found", message)
        answer = error_response(refusal, request_id)
        await _send(answer, request_id, send, head=method == "HEAD")
        service = holder.service
        service.metrics.answered("none", status, 0.0)
        if not service.journal.quiet:
            line = Line(time.time(), "info", "request", request_id, "none", status, 0, None, None)
            service.journal.request(line)

    everything = [
        Route(operation.path, _Endpoint(operation, holder), methods=[operation.method])
        for operation in OPERATIONS
    ]
    everything += _pages()
    router = Router(everything, lifespan=lifespan, redirect_slashes=False)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette's router without the middleware of a Starlette application: an endpoint turns its errors into answers itself.
        scope["app"] = router
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            await refuse_unknown(error.status_code, scope, send)

    return serve


class _Endpoint:
    """The door of one operation."""

    def __init__(self, operation: Operation, holder: _Holder) -> None:
        self._operation, self._holder = operation, holder
        self._decode: Callable[[bytes], Any] | None = None
        if operation.body is not None:
            self._decode = msgspec.json.Decoder(operation.body).decode
        self._most = _LARGEST_BATCH if operation.items else _LARGEST

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        began, service, operation = time.perf_counter(), self._holder.service, self._operation
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id, key = _request_id(headers), None
        try:
            key = admitted(service, operation, scope, headers)
            body = None if self._decode is None else self._decoded(await self._read(headers, receive))
            if operation.items:
                charge(service, scope, key, len(getattr(body, operation.items)) - 1)
            query = _query(scope) if operation.query else {}
            handled = operation.handler(
                RequestContext(service, scope["path_params"], query, body, headers, key)
            )
            answer = await (_while_connected(handled, receive) if operation.patient else handled)
        except asyncio.CancelledError:  # the service ends, and has waited long enough
            answer = error_response(
                HttpError(503, "unavailable", "The service is ending; it may have been done."), request_id
            )
            await _send(answer, request_id, send, head=scope["method"] == "HEAD")
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, there is an answer
            refusal = http_error(error, operation.fields)
            if refusal.status >= 500:
                _complain(service, request_id, error, refusal.status)
            answer = error_response(refusal, request_id)
        await _send(answer, request_id, send, head=scope["method"] == "HEAD")
        self._note(service, began, request_id, answer, key)

    def _note(
        self, service: Service, began: float, request_id: str, answer: HttpResponse, key: Key | None
    ) -> None:
        """Count the request, and write it into the journal."""
        seconds, operation = time.perf_counter() - began, self._operation
        service.metrics.answered(operation.name, answer.status, seconds)
        if not service.journal.quiet or answer.status >= 500:
            user = None if key is None else key.id
            microseconds, decision = int(1e6 * seconds), answer.decision_id
            line = Line(time.time(), "info", "request", request_id, operation.name, answer.status, microseconds, decision, user)  # fmt: skip
            service.journal.request(line)

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The body of a request. A client that is slow to send it is the business of `connections`."""
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            got = kind.decode("latin-1") or "none"
            what = f"Expected a body of application/json, got {got:.100}"
            raise HttpError(415, "unsupported_media_type", what, "Content-Type")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._most:
            raise self._too_large()
        message = await receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body"):
            if len(body) > self._most:
                raise self._too_large()
            message = await receive()
            body += message.get("body", b"")
        if message["type"] == "http.disconnect":
            raise HttpError(408, "timeout", "The body did not come in time.")
        if len(body) > self._most:
            raise self._too_large()
        return body

    def _decoded(self, body: bytes) -> Any:
        assert self._decode is not None  # it has a body
        try:
            return self._decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise decoding_error(error) from None

    def _too_large(self) -> HttpError:
        close = ((b"connection", b"close"),)  # the rest of it need not be read
        return HttpError(413, "too_large", f"Expected a body of at most {self._most} bytes.", None, close)


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


async def _while_connected(handled: Awaitable[HttpResponse], receive: Receive) -> HttpResponse:
    """The answer, unless the caller goes away: then nobody need look for it any longer."""
    working = asyncio.ensure_future(handled)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            raise HttpError(499, "gone", "The caller has gone.")
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request_id(headers: dict[bytes, bytes]) -> str:
    """The caller's own, where it is one that can be written anywhere; otherwise a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and 0 < len(given) <= 64 and _SIMPLE.issuperset(shown := given.decode("latin-1")):
        return shown
    return f"{_START}{next(_numbers):x}"


async def _send(answer: HttpResponse, request_id: str, send: Send, *, head: bool) -> None:
    body = answer.body if isinstance(answer.body, bytes) else _encode(answer.body)
    headers = [
        (b"content-type", answer.media_type),
        (b"x-request-id", request_id.encode()),
        *_ALWAYS,
        *answer.headers,
    ]
    if answer.stream is None:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if answer.stream is not None and not head:
        async for piece in answer.stream:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": b"" if head else body})


def _complain(service: Service, request_id: str, error: Exception, status: int) -> None:
    """Into the journal; a traceback only where the error is a surprise."""
    facts: dict[str, Any] = {"request_id": request_id, "error": f"{type(error).__name__}: {error}"}
    if status == 500:
        facts["traceback"] = "".join(traceback.format_exception(error))
    service.journal.write("error", "failure", **facts)


# The dashboard.


def _pages() -> Iterable[Route]:
    """A route for each file of the dashboard; index.html is at /."""
    for file in files("maillard.service").joinpath("dashboard").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in _TYPES:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            yield Route(path, _page(file.read_bytes(), f"{_TYPES[suffix]}; charset=utf-8"), methods=["GET"])


def _page(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": _PAGE.decode(),
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }

    async def page(_: Request) -> Response:
        return Response(content, 200, headers, media_type)

    return page
