"""Answers: a status, a body, headers; and what becomes of errors."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import msgspec

from maillard.errors import (
    Archived,
    Conflict,
    InvalidValue,
    MaillardError,
    Paused,
    Stale,
    Unavailable,
    UnknownName,
)
from maillard.service.experiment_registry import ExperimentExists, NotFound
from maillard.service.messages import Error, Failure
from maillard.service.worker_process import JobTimeout

__all__ = ["HttpError", "HttpResponse", "decoding_error", "error_response", "http_error"]

Headers = tuple[tuple[bytes, bytes], ...]


class HttpResponse(NamedTuple):
    """What a handler answers."""

    status: int
    body: Any
    "Data, to be written as JSON; bytes; or pieces of them that are made as they are sent."
    headers: Headers = ()
    media_type: bytes = b"application/json"
    decision_id: str | list[str] | None = None
    "For the journal."
    pieces: AsyncIterator[bytes] | None = None


class HttpError(MaillardError):
    """A request that is refused, with its status and code."""

    def __init__(
        self, status: int, code: str, message: str, path: str | None = None, headers: Headers = ()
    ) -> None:
        super().__init__(status, code, message, path, headers)
        self.status, self.code, self.message, self.path, self.headers = status, code, message, path, headers

    def __str__(self) -> str:
        return self.message


# What each error of the package is, in HTTP; the first that fits.
_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFound, 404, "not_found"),
    (ExperimentExists, 409, "exists"),
    (Stale, 412, "stale"),
    (Archived, 409, "archived"),
    (Paused, 409, "paused"),
    (Conflict, 409, "conflict"),
    (InvalidValue, 422, "invalid_value"),
    (UnknownName, 422, "invalid_value"),
    (JobTimeout, 422, "too_long"),
    (Unavailable, 503, "unavailable"),
)
_RETRY = ((b"retry-after", b"1"),)
_AT = re.compile(r"^(.*?)(?: - at `(.*)`)?$", re.DOTALL)
_PATTERNS = {
    r"'^[^\\x00]*$'": "without NUL",
    "'^[A-Za-z0-9]": "of letters, digits and . _ ~ -, the first of them a letter or digit",
    "'^[0-9a-fA-F]": "that is a UUID of version 7",
}


def http_error(error: Exception, fields: Sequence[str] = ()) -> HttpError:
    """What an error is to the caller, who gave these fields. Errors that are nobody's fault but ours say nothing."""
    if isinstance(error, HttpError):
        return error
    # What else the package raises, and whatever is wrong with the log itself, is no fault of the caller's.
    ours = isinstance(error, InvalidValue) and error.field.startswith("log")
    for kind, status, code in () if ours else _KINDS:
        if isinstance(error, kind):
            headers = _RETRY if status == 503 else ()
            return HttpError(status, code, _words(error), _path(error, fields), headers)
    return HttpError(
        500, "internal", "Something went wrong here. The journal has more under this request_id."
    )


def decoding_error(error: Exception) -> HttpError:
    """What was wrong with a body that could not be decoded."""
    if isinstance(error, msgspec.ValidationError):
        return _invalid(str(error))
    what = (
        str(error) if isinstance(error, msgspec.DecodeError) else "JSON in UTF-8, not too deep, is expected"
    )
    return HttpError(400, "bad_json", what)


def error_response(error: HttpError, request_id: str) -> HttpResponse:
    """The answer to a request that is refused."""
    shown = Failure(code=error.code, message=error.message, path=error.path, request_id=request_id)
    return HttpResponse(error.status, Error(error=shown), error.headers)


def _invalid(message: str) -> HttpError:
    """A message of the decoder's, with its path apart."""
    match = _AT.match(message)
    words, path = (match[1], match[2]) if match else (message, None)
    unknown = re.match(r"Object contains unknown field `(.*)`", words, re.DOTALL)
    if unknown:
        return HttpError(422, "unknown_field", words, f"{path or '$'}.{unknown[1]}")
    missing = re.match(r"Object missing required field `(.*)`", words)
    if missing:
        path = f"{path or '$'}.{missing[1]}"
    for pattern, meaning in _PATTERNS.items():
        if pattern in words:
            words = f"Expected a `str` {meaning}"
    return HttpError(422, "invalid_value", words, path or "$")


def _words(error: Exception) -> str:
    """What an error says, without where the log is: that is no caller's business."""
    if isinstance(error, Unavailable) and str(error).startswith("log "):  # as every store's begins
        return "The log cannot be written or read now. Nothing was acknowledged; try again."
    return str(error)


# Fields whose names differ in requests.
_FIELDS = {
    "eligible arm": "eligible",
    "window": "window_s",
    "combine": "aggregate",
    "at": "occurred_at",
    "(low, high)": "low",
}


def _path(error: Exception, fields: Sequence[str]) -> str | None:
    """Which field of a request an error is about."""
    if isinstance(error, InvalidValue):
        parts = [_FIELDS.get(part, part) for part in error.field.split(": ")]
    elif isinstance(error, UnknownName):
        parts = [_FIELDS.get(error.kind, error.kind)]
    else:
        return None
    if fields and parts[0] not in fields:  # one of several names, or something within a spec, or no field
        parts = next(([name] for name in (f"{parts[0]}s", "policy", "target") if name in fields), [])
    return ".".join(["$", *parts]) if parts else None
