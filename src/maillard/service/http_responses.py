"""HTTP responses, and the translation of exceptions to error responses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import msgspec

from maillard.errors import (
    Archived,
    Conflict,
    InvalidLog,
    InvalidValue,
    MaillardError,
    Paused,
    Stale,
    Unavailable,
    UnknownName,
)
from maillard.service.service_errors import Busy, ExperimentExists, JobTimeout, NotFound
from maillard.wire_schema import ErrorDetail, ErrorResponse

Headers = tuple[tuple[bytes, bytes], ...]

_MAX_KNOWN = 60  # names that an error response lists, as many as a message does


class HttpResponse(NamedTuple):
    """The response of a handler."""

    status: int
    body: Any
    "Bytes, or a value to encode as JSON."
    headers: Headers = ()
    media_type: bytes = b"application/json"
    decision_id: str | list[str] | None = None
    "For the access log."
    stream: AsyncIterator[bytes] | None = None
    "Chunks to send instead of `body`."


class HttpError(MaillardError):
    """A request that fails with this status and code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        path: str | None = None,
        headers: Headers = (),
        *,
        cause: Exception | None = None,
    ) -> None:
        super().__init__(status, code, message, path, headers)
        self.status, self.code, self.message, self.path, self.headers = status, code, message, path, headers
        self.cause = cause

    def __str__(self) -> str:
        return self.message


# The status and the code of the exceptions that are the caller's fault. The first match counts.
_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFound, 404, "not_found"),
    (ExperimentExists, 409, "exists"),
    (Stale, 412, "stale"),
    (Archived, 409, "archived"),
    (Paused, 409, "paused"),
    (Conflict, 409, "conflict"),
    (InvalidValue, 422, "invalid_value"),
    (UnknownName, 422, "unknown_name"),
    (JobTimeout, 422, "too_long"),
)
_INTERNAL = "Internal error. The service's log has the details under this request_id."
_DAMAGED = "The experiment's log is damaged. The service's log has the details under this request_id."
_UNAVAILABLE = "The log cannot be written or read now. Nothing was acknowledged; try again."
_LOCATED = re.compile(r"^(.*?)(?: - at `(.*)`)?$", re.DOTALL)
_PATTERN_DESCRIPTIONS = {
    r"'^[^\\x00]*$'": "without NUL",
    "'^[A-Za-z0-9]": "of letters, digits and . _ ~ - that begins with a letter or digit",
    "'^[0-9a-fA-F]": "that is a UUID of version 7",
}


def http_error(error: Exception, fields: Sequence[str] = ()) -> HttpError:
    """The HTTP error for an exception. `fields` are the request's field names, for the error's path.

    The message of an internal error does not reveal anything.
    """
    if isinstance(error, HttpError):
        return error
    if isinstance(error, Unavailable) and not isinstance(error, JobTimeout):
        # The messages of the stores contain the address of the log, which callers must not see.
        message = str(error) if isinstance(error, Busy) else _UNAVAILABLE
        return HttpError(503, "unavailable", message, headers=((b"retry-after", b"1"),))
    if isinstance(error, InvalidLog):  # not the caller's fault; its message may contain the path of the log
        return HttpError(500, error.code, _DAMAGED)
    for error_type, status, code in _STATUSES:
        if isinstance(error, error_type):
            return HttpError(status, code, str(error), _path(error, fields), cause=error)
    return HttpError(500, "internal", _INTERNAL)


def decoding_error(error: Exception) -> HttpError:
    """The HTTP error for a body that cannot be decoded."""
    if isinstance(error, msgspec.ValidationError):
        return _validation_error(str(error))
    message = (
        str(error)
        if isinstance(error, msgspec.DecodeError)
        else "Expected JSON in UTF-8 that is not nested too deeply"
    )
    return HttpError(400, "bad_json", message)


def error_response(error: HttpError, request_id: str) -> HttpResponse:
    """The response for a request that fails."""
    return HttpResponse(
        error.status, ErrorResponse(error=error_detail(error, error.path, request_id)), error.headers
    )


def error_detail(error: HttpError, path: str | None, request_id: str | None = None) -> ErrorDetail:
    """The JSON form of an error, with the fields from which the client rebuilds the exception."""
    failure = ErrorDetail(code=error.code, message=error.message, path=path, request_id=request_id)
    if isinstance(error.cause, UnknownName):
        failure.kind, failure.name = error.cause.kind, error.cause.name
        failure.known = list(error.cause.known[:_MAX_KNOWN])
    elif isinstance(error.cause, InvalidValue):
        failure.field, failure.allowed = error.cause.field, error.cause.allowed
    return failure


def _validation_error(message: str) -> HttpError:
    """Separates the decoder's message from the path that it ends with."""
    match = _LOCATED.match(message)
    text, path = (match[1], match[2]) if match else (message, None)
    unknown = re.match(r"Object contains unknown field `(.*)`", text, re.DOTALL)
    if unknown:
        return HttpError(422, "unknown_field", text, f"{path or '$'}.{unknown[1]}")
    missing = re.match(r"Object missing required field `(.*)`", text)
    if missing:
        path = f"{path or '$'}.{missing[1]}"
    for pattern, description in _PATTERN_DESCRIPTIONS.items():
        if pattern in text:
            text = f"Expected a `str` {description}"
    return HttpError(422, "invalid_value", text, path or "$")


# Fields that have another name in requests.
_REQUEST_FIELDS = {
    "eligible arm": "eligible",
    "(low, high)": "low",
}


def _path(error: Exception, fields: Sequence[str]) -> str | None:
    """The JSON path of the request's field that an error is about."""
    if isinstance(error, InvalidValue):
        parts = [_REQUEST_FIELDS.get(part, part) for part in error.field.split(": ")]
    elif isinstance(error, UnknownName) and not isinstance(error, NotFound):
        parts = [_REQUEST_FIELDS.get(error.kind, error.kind)]
    else:
        return None
    if fields and parts[0] not in fields:  # an item of a list, a parameter in a spec, or no field at all
        parts = next(([name] for name in (f"{parts[0]}s", "policy", "target") if name in fields), [])
    return ".".join(["$", *parts]) if parts else None
