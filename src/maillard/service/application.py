"""The ASGI application: authorizes requests, decodes bodies, calls handlers, and handles exceptions."""

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
from starlette.convertors import StringConvertor
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route, Router

from maillard.service.access_log import RequestLine
from maillard.service.api_docs import docs_page
from maillard.service.api_keys import Key
from maillard.service.authorization import Scope, authorize, charge_batch, limit_unauthorized
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_protocol import send_at_once
from maillard.service.http_responses import HttpError, HttpResponse, decode_error, error_response, http_error
from maillard.service.openapi import openapi_document
from maillard.service.operations import (
    OPERATIONS,
    PERSONALIZER_OPERATIONS,
    UNSUPPORTED_OPERATIONS,
    Operation,
)
from maillard.service.personalizer.error_responses import personalizer_error_response
from maillard.service.service_state import Service

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

_MAX_BODY = 1 << 20  # bytes
_MAX_BATCH_BODY = 4 << 20
_MAX_BODIES = 64 << 20  # of all requests whose bodies have arrived in part
_CLOSE = ((b"connection", b"close"),)  # so that the rest of the body need not be read
_encode = msgspec.json.Encoder().encode
_NO_PARAMETERS: dict[str, str] = {}
_MAX_LOGGED_NAME = 200  # characters; a path may have thousands
_COMMON_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_HEADER_LINES = (
    b"content-type: %b\r\nx-request-id: %b\r\n"
    + b"".join(b"%b: %b\r\n" % header for header in _COMMON_HEADERS)
    + b"content-length: %d\r\n"
)
_DASHBOARD_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_REQUEST_ID_CHARACTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

# Request ids, where the caller sends none: a random prefix for each process, then a counter, which needs no
# system call.
_ID_PREFIX = secrets.token_hex(6) + "-"
_counter = itertools.count(1)


def application(start: Callable[[], Awaitable[Service]], *, personalizer: bool = False) -> ASGI:
    """The ASGI application. Its lifespan starts and stops the service.

    `personalizer`: whether it has the calls of Personalizer's API.
    """

    @asynccontextmanager
    async def lifespan(_: Router) -> AsyncIterator[dict[str, Service]]:
        async with await start() as service:
            yield {"service": service}  # the `state` of every request

    routes = all_routes(personalizer=personalizer)
    router = Router(routes, lifespan=lifespan, redirect_slashes=False)
    find = route_finder(routes)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # A Starlette application would add middleware to this router. Each endpoint handles its own errors
        # instead.
        found = find(scope)
        if found is not None:
            endpoint, scope["path_params"] = found
            await endpoint(scope, receive, send)
            return
        scope["app"] = router
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            await reject(error.status_code, scope, send)

    async def reject(status: int, scope: Scope, send: Send) -> None:
        """Respond to a request for which there is no route."""
        method, path, request_id = scope["method"], scope["path"], _request_id(dict(scope["headers"]))
        message = f"There is no operation {method} {path!r:.200}; /openapi.json lists all operations."
        matching = [route.methods or () for route in routes if route.path_regex.match(path)]
        allowed = ", ".join(sorted({name for methods in matching for name in methods}))
        headers = ((b"allow", allowed.encode()),) if allowed else ()
        code = "method_not_allowed" if allowed else "not_found"
        response = error_response(HttpError(status, code, message, None, headers), request_id)
        await _send(response, request_id, scope, send)
        _record(scope, "none", request_id, response, seconds=0.0, key=None)

    return serve


def all_routes(*, personalizer: bool = False) -> list[Route]:
    """The routes of all operations, of the page that describes them, and of the files of the dashboard."""
    operations = OPERATIONS
    if personalizer:
        operations += PERSONALIZER_OPERATIONS + UNSUPPORTED_OPERATIONS
    found = [Route(each.path, _Endpoint(each), methods=[each.method]) for each in operations]
    docs = _static(docs_page(openapi_document(personalizer=personalizer)), ".html")
    return [*found, Route("/docs", docs, methods=["GET"]), *_dashboard_routes()]


Found = tuple[ASGI, dict[str, str]]


def route_finder(routes: Iterable[Route]) -> Callable[[Scope], Found | None]:
    """A function that finds the endpoint and the path parameters of a request, or None.

    Starlette tries one route after the other. This finds a route by the fixed part that its path ends with.
    Starlette handles all other requests.
    """
    by_ending: dict[tuple[str, str], list[Route]] = {}
    for route in routes:
        ending = route.path.rpartition("/")[2]
        if "{" not in ending and all(
            type(each) is StringConvertor for each in route.param_convertors.values()
        ):
            for method in route.methods or ():
                by_ending.setdefault((method, ending), []).append(route)

    def find(scope: Scope) -> Found | None:
        if scope["type"] != "http" or scope["root_path"]:
            return None
        path: str = scope["path"]
        for route in by_ending.get((scope["method"], path[path.rfind("/") + 1 :]), ()):
            match = route.path_regex.match(path)
            if match is not None:
                return route.app, match.groupdict()
        return None

    return find


class _Endpoint:
    """The ASGI endpoint of one operation."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(operation.body or Any).decode
        self._max_body = _MAX_BATCH_BODY if operation.items else _MAX_BODY
        self._error_response = personalizer_error_response if operation.of_personalizer else error_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        started, service, operation = time.perf_counter(), scope["state"]["service"], self._operation
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id, key = _request_id(headers), None
        if operation.of_personalizer:
            scope["path_params"] = {**scope["path_params"], "experiment": service.personalizer}
        try:
            key = _authorize(service, operation, scope, headers)
            body = None if operation.body is None else await self._read_body(service, headers, receive)
            if operation.items:
                charge_batch(service, scope, key, len(getattr(body, operation.items)) - 1)
            query = _query(scope) if operation.query else {}
            context = RequestContext(service, scope["path_params"], query, body, headers, key)
            handling = operation.handler(context)
            if operation.long_running:
                handling = _while_connected(handling, receive)
            response = await handling
        except asyncio.CancelledError:  # the time for a graceful shutdown is over
            message = "The service is stopping; the operation may have been carried out."
            response = self._error_response(HttpError(503, "unavailable", message), request_id)
            await _send(response, request_id, scope, send)
            raise
        except Exception as error:  # noqa: BLE001  # every request gets a response
            failure = http_error(error, operation.fields)
            if failure.status >= 500:
                _log_error(service, request_id, error, failure.status)
            response = self._error_response(failure, request_id)
        if response.stream is None:
            await _send(response, request_id, scope, send)
        else:
            response = await self._stream(response, request_id, scope, receive, send)
        _record(scope, operation.name, request_id, response, seconds=time.perf_counter() - started, key=key)

    async def _stream(
        self, response: HttpResponse, request_id: str, scope: Scope, receive: Receive, send: Send
    ) -> HttpResponse:
        """Send a response of unknown length. Return it, or the error that ended it early."""
        assert response.stream is not None
        try:
            return await _while_connected(_send(response, request_id, scope, send), receive)
        except Exception as error:  # noqa: BLE001  # the server closes the connection
            failure = http_error(error, self._operation.fields)
            if failure.status >= 500:
                _log_error(scope["state"]["service"], request_id, error, failure.status)
            return self._error_response(failure, request_id)
        finally:
            await response.stream.aclose()

    async def _read_body(self, service: Service, headers: dict[bytes, bytes], receive: Receive) -> Any:
        """The decoded body of a request. `http_protocol` handles clients that send it slowly."""
        media_type = headers.get(b"content-type", b"")
        if media_type != b"application/json":  # as nearly all requests have it
            media_type = media_type.partition(b";")[0].strip().lower()
        if media_type != b"application/json":
            got = media_type.decode("latin-1") or "none"
            message = f"Expected a body of application/json, got {got:.100}"
            raise HttpError(415, "unsupported_media_type", message, "Content-Type")
        encoding = headers.get(b"content-encoding")
        if encoding is not None and (encoding := encoding.strip().lower()) != b"identity":
            message = f"Expected a body without compression, got {encoding.decode('latin-1'):.100}"
            accept = ((b"accept-encoding", b"identity"),)
            raise HttpError(415, "unsupported_media_type", message, "Content-Encoding", accept)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_body:
            raise self._too_large()
        part = await receive()
        body: bytes = part.get("body", b"")
        if part.get("more_body"):
            body, part = await self._read_rest(service, bytearray(body), receive)
        if part["type"] == "http.disconnect":
            raise HttpError(408, "timeout", "The body did not arrive in time.")
        if len(body) > self._max_body:
            raise self._too_large()
        try:
            return self._decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise decode_error(error) from None

    async def _read_rest(
        self, service: Service, body: bytearray, receive: Receive
    ) -> tuple[bytes, MutableMapping[str, Any]]:
        """The whole body and its last part. All bodies that arrive in parts share a limited memory."""
        counted = 0
        part: MutableMapping[str, Any] = {"type": "http.request", "more_body": True}
        try:
            while part.get("more_body") and len(body) <= self._max_body:
                service.body_bytes += len(body) - counted
                counted = len(body)
                if service.body_bytes > _MAX_BODIES:
                    message = "Too many large requests at once; try again."
                    headers = (*_CLOSE, (b"retry-after", b"1"))
                    raise HttpError(503, "unavailable", message, None, headers)
                part = await receive()
                body += part.get("body", b"")
        finally:
            service.body_bytes -= counted
        return bytes(body), part

    def _too_large(self) -> HttpError:
        message = f"Expected a body of at most {self._max_body} bytes."
        return HttpError(413, "too_large", message, None, _CLOSE)


def _authorize(
    service: Service, operation: Operation, scope: Scope, headers: dict[bytes, bytes]
) -> Key | None:
    """Authorize a request; limits the number of those without a valid key."""
    try:
        return authorize(service, operation, scope, headers)
    except HttpError as error:
        if error.status == 401:
            limit_unauthorized(service, scope)
        raise


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


async def _while_connected(handling: Awaitable[HttpResponse], receive: Receive) -> HttpResponse:
    """The handler's response. Cancels the handler if the caller disconnects."""
    working = asyncio.ensure_future(handling)
    disconnected = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HttpError(499, "gone", "The caller has disconnected.")
        return working.result()
    finally:
        for task in (working, disconnected):
            task.cancel()
        await asyncio.gather(working, disconnected, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request_id(headers: dict[bytes, bytes]) -> str:
    """The caller's X-Request-Id if it is short and has no special characters, otherwise a new id."""
    given = headers.get(b"x-request-id", b"")
    if 0 < len(given) <= 64 and _REQUEST_ID_CHARACTERS.issuperset(given):
        return given.decode()
    return f"{_ID_PREFIX}{next(_counter):x}"


async def _send(response: HttpResponse, request_id: str, scope: Scope, send: Send) -> HttpResponse:
    """Send a response and return it."""
    head = scope["method"] == "HEAD"
    body = response.body if isinstance(response.body, bytes) else _encode(response.body)
    if response.status == 204:  # it has no body, and so no headers that describe one
        headers = [(b"x-request-id", request_id.encode()), *_COMMON_HEADERS, *response.headers]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return response
    if response.stream is None and not response.headers:
        lines = _HEADER_LINES % (response.media_type, request_id.encode(), len(body))
        if send_at_once(send, response.status, lines, body):
            return response
    headers = [
        (b"content-type", response.media_type),
        (b"x-request-id", request_id.encode()),
        *_COMMON_HEADERS,
        *response.headers,
    ]
    if response.stream is None:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if response.stream is not None and not head:
        async for chunk in response.stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": b"" if head else body})
    return response


def _record(
    scope: Scope, name: str, request_id: str, response: HttpResponse, *, seconds: float, key: Key | None
) -> None:
    """Count a request and log it."""
    service: Service = scope["state"]["service"]
    status = response.status
    service.metrics.count_request(name, status, seconds)
    if not service.access_log.quiet or status >= 500:
        now, duration, decision = time.time(), int(1e6 * seconds), response.decision_id
        key_id = None if key is None else key.id
        experiment = scope.get("path_params", _NO_PARAMETERS).get("experiment")
        peer = scope["client"][0] if scope["client"] else None
        service.access_log.log_request(
            RequestLine(
                now, "info", "request", request_id, name, status, duration, decision, key_id,
                experiment and experiment[:_MAX_LOGGED_NAME], peer,
            )
        )  # fmt: skip


def _log_error(service: Service, request_id: str, error: Exception, status: int) -> None:
    """Write an error to the log, with a traceback only if it is unexpected."""
    fields: dict[str, Any] = {"request_id": request_id, "error": f"{type(error).__name__}: {error}"}
    if status == 500:
        fields["traceback"] = "".join(traceback.format_exception(error))
    service.access_log.log_event("error", "failure", **fields)


def _dashboard_routes() -> Iterable[Route]:
    """A route for each file of the dashboard. index.html is at /."""
    for file in files("maillard.service").joinpath("dashboard").iterdir():
        ending = "." + file.name.rpartition(".")[2]
        if ending in _MEDIA_TYPES:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            yield Route(path, _static(file.read_bytes(), ending), methods=["GET"])


def _static(content: bytes, ending: str) -> Response:
    """The response for a file with this ending of its name."""
    return Response(content, 200, _DASHBOARD_HEADERS, f"{_MEDIA_TYPES[ending]}; charset=utf-8")
