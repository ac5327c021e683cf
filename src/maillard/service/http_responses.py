"""HTTP responses, and the translation of exceptions to error responses."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from maillard import errors
from maillard.service.service_errors import Busy, ExperimentExists, JobTimeout, NotFound
from maillard.wire_schema import ErrorDetail, ErrorResponse

Headers = tuple[tuple[bytes, bytes], ...]

_MAX_KNOWN = 60  # names that an error response lists, as many as a message does


class ByteStream(Protocol):
    """The chunks of a response of unknown length."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The chunks."""

    async def aclose(self) -> None:
        """Free its resources, even if not all chunks were read."""


class HttpResponse(NamedTuple):
    """The response of a handler."""

    status: int
    body: Any
    "Bytes, or a value to encode as JSON."
    headers: Headers = ()
    media_type: bytes = b"application/json"
    decision_id: str | list[str] | None = None
    "For the access log."
    stream: ByteStream | None = None
    "Chunks to send instead of `body`."


class HttpError(errors.MaillardError):
    """A request that fails with this status and code."""

    def __init__(
        self, status: int, code: str, message: str, path: str | None = None, headers: Headers = ()
    ) -> None:
        super().__init__(status, code, message, path, headers)
        self.status, self.code, self.message, self.path, self.headers = status, code, message, path, headers

    def __str__(self) -> str:
        return self.message


# The statuses of the exceptions that are the caller's fault. The first match counts.
_STATUSES: dict[type[errors.MaillardError], int] = {
    NotFound: 404,
    ExperimentExists: 409,
    errors.Stale: 412,
    errors.Archived: 409,
    errors.Paused: 409,
    errors.Conflict: 409,
    errors.InvalidValue: 422,
    errors.UnknownName: 422,
    JobTimeout: 422,
}
_MAX_VALUE = 80  # characters of an invalid value in a message
_INTERNAL = "Internal error. The service's log has the details under this request_id."
_DAMAGED = "The experiment's log is damaged. The service's log has the details under this request_id."
_UNAVAILABLE = "The log cannot be written or read now. Nothing was acknowledged; try again."
_NOT_JSON = "Expected JSON in UTF-8 that is not nested too deeply"
_PATTERN_DESCRIPTIONS = {
    r"'^[^\\x00]*$'": "without NUL",
    "'^[A-Za-z0-9]": "of letters, digits and . _ ~ - that begins with a letter or digit",
    "'^[0-9a-fA-F]": "that is a UUID of version 7",
    "'^[0-9]+(": "that is a number with a unit s, m, h, d or w, as in 90s or 1h; or a number of seconds",
}


def http_error(error: Exception, fields: Sequence[str] = ()) -> HttpError:
    """The HTTP error for an exception. `fields` are the request's field names, for the error's path.

    The message of an internal error does not reveal anything.
    """
    if isinstance(error, HttpError):
        return error
    if isinstance(error, errors.Unavailable) and not isinstance(error, JobTimeout):
        # The messages of the stores contain the address of the log, which callers must not see.
        message = str(error) if isinstance(error, Busy) else _UNAVAILABLE
        return HttpError(503, "unavailable", message, headers=((b"retry-after", b"1"),))
    if isinstance(error, errors.InvalidLog):  # not the caller's fault; the message may contain a path
        return HttpError(500, error.code, _DAMAGED)
    for error_type, status in _STATUSES.items():
        if isinstance(error, error_type):
            found = HttpError(status, error_type.code, _message(error), _path(error, fields))
            found.__cause__ = error
            return found
    return HttpError(500, "internal", _INTERNAL)


def decode_error(error: Exception) -> HttpError:
    """The HTTP error for a body that cannot be decoded."""
    if isinstance(error, msgspec.ValidationError):
        return _validation_error(str(error))
    known = isinstance(error, msgspec.DecodeError)
    return HttpError(400, "bad_json", str(error) if known else _NOT_JSON)


def too_many_requests(wait: float, message: str = "Too many requests.") -> HttpError:
    """The error for a caller that must wait for this many seconds."""
    seconds = str(max(1, -int(-wait // 1))).encode()
    text = f"{message} Retry-After says how many seconds to wait."
    return HttpError(429, "too_many_requests", text, None, ((b"retry-after", seconds),))


def error_response(error: HttpError, request_id: str) -> HttpResponse:
    """The response for a request that fails."""
    body = ErrorResponse(error=error_detail(error, error.path, request_id))
    return HttpResponse(error.status, body, error.headers)


def error_detail(error: HttpError, path: str | None, request_id: str | None = None) -> ErrorDetail:
    """The JSON form of an error, with the fields from which the client rebuilds the exception."""
    failure = ErrorDetail(code=error.code, message=error.message, path=path, request_id=request_id)
    cause = error.__cause__
    if isinstance(cause, errors.UnknownName):
        failure.kind, failure.name, failure.known = cause.kind, cause.name, list(cause.known[:_MAX_KNOWN])
    elif isinstance(cause, errors.InvalidValue):
        failure.field, failure.allowed = cause.field, cause.allowed
    return failure


def _validation_error(message: str) -> HttpError:
    """Separates the decoder's message from the path that it ends with."""
    text, _, place = message.partition(" - at `")
    path = place.removesuffix("`") or "$"
    unknown = re.match(r"Object contains unknown field `(.*)`", text, re.DOTALL)
    if unknown:
        return HttpError(422, "unknown_field", text, f"{path}.{unknown[1]}")
    missing = re.match(r"Object missing required field `(.*)`", text)
    if missing:
        path = f"{path}.{missing[1]}"
    for pattern, description in _PATTERN_DESCRIPTIONS.items():
        if pattern in text:
            text = f"Expected a `str` {description}"
    return HttpError(422, "invalid_value", text, path)


def _message(error: errors.MaillardError) -> str:
    """The message of an error, with an invalid value in the notation of JSON."""
    if not isinstance(error, errors.InvalidValue):
        return str(error)
    try:
        value = json.dumps(error.value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(error)
    shown = value if len(value) <= _MAX_VALUE else f"{value[: _MAX_VALUE // 2]}...{value[-_MAX_VALUE // 4 :]}"
    return f"{error.field}: expected {error.allowed}, got {shown}"


_REQUEST_FIELDS = {  # fields with another name in requests
    "eligible arm": "eligible", "(low, high)": "low",
    "target arm": "target", "against arm": "against", "target key": "target", "against key": "against",
}  # fmt: skip


def _path(error: Exception, fields: Sequence[str]) -> str | None:
    """The JSON path of the request's field that an error is about."""
    if isinstance(error, errors.InvalidValue):
        parts = [_REQUEST_FIELDS.get(part, part) for part in error.field.split(": ")]
    elif isinstance(error, errors.UnknownName) and not isinstance(error, NotFound):
        parts = _REQUEST_FIELDS.get(error.kind, error.kind).split(".")
    else:
        return None
    if fields and parts[0] not in fields:  # an item of a list, a parameter in a spec, or no field at all
        parts = next(([name] for name in (f"{parts[0]}s", "policy", "target") if name in fields), [])
    return ".".join(["$", *parts]) if parts else None
