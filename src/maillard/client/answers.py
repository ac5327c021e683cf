"""What the service answers, read: decisions, outcomes, and its errors as those of this package."""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import msgspec

from maillard.client.calls import Answer
from maillard.decisions.decision import Decision
from maillard.decisions.timestamps import to_microseconds
from maillard.errors import Conflict, InvalidValue, MaillardError, Paused, Stale, Unavailable, UnknownName
from maillard.wire_schema import Decision as WireDecision
from maillard.wire_schema import ErrorDetail, ErrorResponse

__all__ = [
    "BUSY",
    "Missing",
    "Rejected",
    "decision_of",
    "error_of",
    "fault_of",
    "foreign",
    "good",
    "read",
    "read_object",
    "unsettled",
    "words_of",
]

Form = TypeVar("Form")
_NO_ERROR = ErrorDetail(code="", message="")

BUSY = (408, 429, 502, 503, 504)
"Statuses of what may be asked again."


class _EntryStatus(msgspec.Struct):
    """The part that results of decisions and of rewards have in common."""

    status: int
    error: ErrorDetail | None = None


class _BatchStatuses(msgspec.Struct):
    results: list[_EntryStatus]


class Rejected(InvalidValue):
    """A value that the service does not allow, in the service's words; `field` says where it is."""

    def __init__(self, message: str, path: str | None = None) -> None:
        MaillardError.__init__(self, message, path)
        named = re.match(r"([^:]+(?:: [^:]+)*): expected ", message)
        self.path = path
        self.field, self.value, self.allowed = path or (named[1] if named else ""), None, message

    def __str__(self) -> str:
        message, path = self.args
        return f"{message} (at {path})" if path else str(message)


class Missing(UnknownName):
    """Something that the service does not know, in the service's words."""

    def __init__(self, message: str) -> None:
        MaillardError.__init__(self, message)
        named = re.match(r"([^']*): unknown name (['\"])(.*?)\2\.", message)
        self.kind, self.name, self.known = (named[1], named[3], ()) if named else ("name", message, ())

    def __str__(self) -> str:
        return str(self.args[0])


_KINDS: dict[str, type[MaillardError]] = {
    "not_found": Missing,
    "paused": Paused,
    "archived": Paused,
    "exists": Conflict,
    "conflict": Conflict,
    "key_reused": Conflict,
    "stale": Stale,
}


def good(answer: Answer) -> Answer:
    """The answer, if the service did what was asked; otherwise the error that it amounts to."""
    if not answer.good:
        raise error_of(answer)
    return answer


def read(answer: Answer, form: type[Form]) -> Form:
    """The content of a good answer."""
    try:
        return msgspec.json.decode(good(answer).content, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise foreign(answer, str(error)) from None


def read_object(answer: Answer, *names: str) -> dict[str, Any]:
    """The content of a good answer, with all that it has; these it must have."""
    found = read(answer, dict[str, Any])
    for name in names:
        if name not in found:
            raise foreign(answer, f"Object missing required field `{name}`")
    return found


def foreign(answer: Answer, what: str) -> MaillardError:
    """The error for a response that a maillard service does not send."""
    kind, size = answer.headers.get("content-type", "of no type"), len(answer.content)
    return MaillardError(
        f"{answer.call}: an answer that is none of a maillard service ({kind}, {size} bytes): {what}"
    )


def decision_of(wire: WireDecision, key: str | None = None) -> Decision:
    """The decision as the service logged it, exact to the bit; `key` is the idempotency key of the request."""
    logs = msgspec.json.decode(wire.log_probabilities, type=dict[str, float | None])
    return Decision(
        id=wire.id,
        experiment=wire.experiment,
        time=to_microseconds("time", wire.time),
        unit=wire.unit,
        arm=wire.arm,
        eligible=tuple(logs),
        log_probabilities=tuple(-math.inf if log is None else log for log in logs.values()),
        log_probability=wire.log_probability,
        policy_version=wire.policy_version,
        formula_version=wire.formula_version,
        state=wire.state,
        epoch=wire.epoch,
        cold=wire.cold,
        idempotency_key=wire.idempotency_key or key,
        position=wire.position,
        origin=wire.origin,
    )


def error_of(answer: Answer) -> MaillardError:
    """An answer that is an error, as this package raises it."""
    fault = _fault(answer)
    if fault is not None:
        return fault_of(fault, answer.status, str(answer.call))
    if 300 <= answer.status < 400:
        where = answer.headers.get("location", "elsewhere")
        return MaillardError(f"{answer.call}: sent on to {where}; give the client the address that counts")
    return MaillardError(f"{answer.call}: {words_of(answer)}; is there a maillard service at this address?")


def fault_of(fault: ErrorDetail, status: int, where: str) -> MaillardError:
    """An error of the service, as this package raises it."""
    message, request = fault.message, f" (request {fault.request_id})" if fault.request_id else ""
    if fault.code in _KINDS:
        return _KINDS[fault.code](message)
    if fault.code in ("invalid_value", "unknown_field", "bad_json"):
        return Rejected(message, fault.path)
    if fault.code == "unknown_name":
        return Missing(message)
    if status in BUSY:
        return Unavailable(f"{where}: {message}")
    if fault.code == "unauthorized":
        return MaillardError(f"{where}: {message} (a key goes in key=; it is never shown)")
    return MaillardError(f"{where}: {status} {fault.code}: {message}{request}")


def unsettled(answer: Answer) -> str | None:
    """Why a good answer to a batch does not settle it: an entry that is to be asked again."""
    try:
        entries = msgspec.json.decode(answer.content, type=_BatchStatuses).results
    except (msgspec.DecodeError, UnicodeDecodeError):  # `read` says so
        return None
    busy = [each for each in entries if each.status in BUSY]
    if not busy:
        return None
    first = busy[0].error or _NO_ERROR
    return f"{len(busy)} of {len(entries)} entries: {busy[0].status} {first.code}: {first.message}"


def words_of(answer: Answer) -> str:
    """An error in one line."""
    fault = _fault(answer)
    return f"{answer.status} {fault.code}: {fault.message}" if fault else f"answered {answer.status}"


def _fault(answer: Answer) -> ErrorDetail | None:
    try:
        return msgspec.json.decode(answer.content, type=ErrorResponse).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
