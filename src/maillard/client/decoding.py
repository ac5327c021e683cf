"""Decodes responses of the service, and turns its errors into the exceptions of this package."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from maillard import errors
from maillard.client.api_calls import ApiCall, ApiResponse, Steps
from maillard.decisions.decision import Decision
from maillard.decisions.timestamps import to_microseconds
from maillard.wire_schema import Decision as WireDecision
from maillard.wire_schema import ErrorDetail, ErrorResponse

Body = TypeVar("Body")

RETRYABLE_STATUSES = (408, 429, 502, 503, 504)
"HTTP statuses of temporary failures."


class _EntryStatus(msgspec.Struct):
    """The fields that results of decisions and of rewards have in common."""

    status: int
    error: ErrorDetail | None = None


class _BatchStatuses(msgspec.Struct):
    results: list[_EntryStatus]


class RemoteInvalidValue(errors.InvalidValue):
    """A value that the service rejected, with the service's message. `path` is its JSON path."""

    def __init__(self, message: str, path: str | None, field: str, allowed: str) -> None:
        errors.MaillardError.__init__(self, message, path, field, allowed)
        self.path, self.field, self.value, self.allowed = path, field, None, allowed

    def __str__(self) -> str:
        message, path = self.args[:2]
        return f"{message} (at {path})" if path else str(message)


class RemoteUnknownName(errors.UnknownName):
    """A name that the service does not know. The message is the service's."""

    def __init__(self, message: str, kind: str, name: str, known: tuple[str, ...]) -> None:
        errors.MaillardError.__init__(self, message, kind, name, known)
        self.kind, self.name, self.known = kind, name, known

    def __str__(self) -> str:
        return str(self.args[0])


_EXCEPTIONS: dict[str, type[errors.MaillardError]] = {
    **{error.code: error for error in (errors.Paused, errors.Archived, errors.Conflict, errors.Stale)},
    "exists": errors.Conflict,
    "key_reused": errors.Conflict,
}


def check_success(response: ApiResponse) -> ApiResponse:
    """The response, if its status is a success; otherwise the corresponding exception is raised."""
    if not response.ok:
        raise response_exception(response)
    return response


def fetch(call: ApiCall, body_type: type[Body]) -> Steps[Body]:
    """Send a call; returns the body of the response."""
    return decode((yield call), body_type)


def decode(response: ApiResponse, body_type: type[Body]) -> Body:
    """The body of a successful response."""
    try:
        return msgspec.json.decode(check_success(response).content, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unexpected_response(response, str(error)) from None


def to_dict(body: msgspec.Struct) -> dict[str, Any]:
    """A response body as a dictionary of plain values."""
    found: dict[str, Any] = msgspec.to_builtins(body)
    return found


def unexpected_response(response: ApiResponse, reason: str) -> errors.MaillardError:
    """The exception for a response that a maillard service does not send."""
    content_type, size = response.headers.get("content-type", "without a content type"), len(response.content)
    return errors.MaillardError(
        f"{response.call}: the response did not come from a maillard service of a compatible version "
        f"({content_type}, {size} bytes): {reason}"
    )


def to_decision(wire: WireDecision, key: str | None = None) -> Decision:
    """The decision exactly as logged; `key` is the idempotency key of the request."""
    logs = msgspec.json.decode(wire.log_probabilities, type=dict[str, float | None])
    fields = {name: getattr(wire, name) for name in Decision._fields if name in wire.__struct_fields__}
    fields["time"] = to_microseconds("time", wire.time)
    fields["eligible"] = tuple(logs)
    fields["log_probabilities"] = tuple(-math.inf if log is None else log for log in logs.values())
    fields["idempotency_key"] = wire.idempotency_key or key
    for name in ("context", "actions"):
        text = bytes(fields[name]).decode()
        fields[name] = None if text == "null" else text
    return Decision(**fields)


def response_exception(response: ApiResponse) -> errors.MaillardError:
    """The exception for a response that is not a success."""
    detail = _error_detail(response)
    if detail is not None:
        return to_exception(detail, response.status, str(response.call))
    if 300 <= response.status < 400:
        target = response.headers.get("location", "another address")
        return errors.MaillardError(
            f"{response.call}: redirected to {target}; the client does not follow redirects, use that address"
        )
    return errors.MaillardError(
        f"{response.call}: {describe_error(response)}; check that the address is that of a maillard service"
    )


def to_exception(detail: ErrorDetail, status: int, call: str) -> errors.MaillardError:
    """The exception that a `Bandit` would raise, rebuilt from the code and the fields of an error."""
    code, message = detail.code, detail.message
    if code in _EXCEPTIONS:
        return _EXCEPTIONS[code](message)
    if code in ("not_found", "unknown_name"):
        known = () if detail.known is msgspec.UNSET else tuple(detail.known)
        return RemoteUnknownName(message, _given(detail.kind, "name"), _given(detail.name, ""), known)
    if code in ("invalid_value", "unknown_field", "bad_json"):
        field, allowed = _given(detail.field, detail.path or ""), _given(detail.allowed, "")
        return RemoteInvalidValue(message, detail.path, field, allowed)
    if status in RETRYABLE_STATUSES:
        return errors.Unavailable(f"{call}: {message}")
    if code == "unauthorized":
        return errors.MaillardError(f"{call}: {message} (pass an API key as key=; it is never shown)")
    request = f" (request {detail.request_id})" if detail.request_id else ""
    return errors.MaillardError(f"{call}: {status} {code}: {message}{request}")


def _given(value: str | msgspec.UnsetType, default: str) -> str:
    return default if value is msgspec.UNSET else value


def describe_retryable_entries(response: ApiResponse) -> str | None:
    """Why a successful batch must be sent again: some of its entries failed for a temporary reason."""
    try:
        entries = msgspec.json.decode(response.content, type=_BatchStatuses).results
    except (msgspec.DecodeError, UnicodeDecodeError):  # `decode` reports it
        return None
    failed = [entry for entry in entries if entry.status in RETRYABLE_STATUSES]
    if not failed:
        return None
    detail = failed[0].error
    reason = f" {detail.code}: {detail.message}" if detail else ""
    return f"{len(failed)} of {len(entries)} entries: {failed[0].status}{reason}"


def describe_error(response: ApiResponse) -> str:
    """The error of a response, in one line."""
    detail = _error_detail(response)
    return f"{response.status} {detail.code}: {detail.message}" if detail else f"status {response.status}"


def _error_detail(response: ApiResponse) -> ErrorDetail | None:
    try:
        return msgspec.json.decode(response.content, type=ErrorResponse).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
