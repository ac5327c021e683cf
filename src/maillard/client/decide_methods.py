"""Client methods that choose arms and log rewards."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar, overload

import msgspec

from maillard.client.api_calls import ApiCall, Steps, api_path, encode
from maillard.client.base_client import Scope
from maillard.client.decoding import decode, to_decision, to_exception, unexpected_response
from maillard.decisions.choosing import Request
from maillard.decisions.configuration import check_request
from maillard.decisions.decision import Decision
from maillard.decisions.frames import records_of
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.ledger import Outcome
from maillard.decisions.reward_rule import Reward
from maillard.decisions.timestamps import from_microseconds, to_microseconds
from maillard.errors import InvalidValue, MaillardError
from maillard.wire_schema import (
    MAX_ITEMS,
    DecisionBatchResponse,
    DecisionBatchResult,
    ErrorDetail,
    RewardBatchResponse,
    RewardBatchResult,
    RewardResponse,
)
from maillard.wire_schema import Decision as WireDecision

_MAX_BYTES = 2_000_000  # of the entries of one call
_ANY_REWARD = Reward()


BatchResponse = TypeVar("BatchResponse", DecisionBatchResponse, RewardBatchResponse)


@overload
def choose(
    scope: Scope,
    unit: str | None = None,
    eligible: Iterable[str] | None = None,
    size: None = None,
    idempotency_key: str | None = None,
    *,
    experiment: str | None = None,
) -> Steps[Decision]: ...


@overload
def choose(
    scope: Scope,
    unit: str | None = None,
    eligible: Iterable[str] | None = None,
    *,
    size: int,
    idempotency_key: str | None = None,
    experiment: str | None = None,
) -> Steps[list[Decision]]: ...


def choose(
    scope: Scope,
    unit: str | None = None,
    eligible: Iterable[str] | None = None,
    size: int | None = None,
    idempotency_key: str | None = None,
    *,
    experiment: str | None = None,
) -> Steps[Decision] | Steps[list[Decision]]:
    """Choose an arm and log the decision, which is durable when this returns.

    `eligible` names the arms to choose from, by default all that are not retired. With `size`, the result
    is a list of that many decisions. A call with an `idempotency_key` that was used before returns the
    decisions of the earlier call. Without one, the client generates a key, so that an attempt whose
    response was lost is not decided twice.
    """
    name = scope.experiment_name(experiment)
    key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
    request = check_request(unit, eligible, key, 1 if size is None else size)
    return _choose_one(name, request) if size is None else _choose_many(name, request)


def _choose_one(name: str, request: Request) -> Steps[Decision]:
    key = request.key or ""
    plain = key.isascii() and key.isprintable() and key == key.strip()
    if not plain:  # a header cannot contain it, but a batch can
        (made,) = yield from _choose_many(name, request)
        return made
    path, headers = api_path("experiments", name, "decisions"), {"idempotency-key": key}
    response = yield ApiCall("POST", path, _decision_request(request), headers)
    return to_decision(decode(response, WireDecision), key)


def _choose_many(name: str, request: Request) -> Steps[list[Decision]]:
    """Several decisions, each with its own idempotency key, so that no decision is made twice."""
    path, body = api_path("experiments", name, "decisions", verb="batch"), _decision_request(request)
    keys = [f"{request.key}[{place}]" if place else request.key for place in range(request.size)]
    if keys:
        check_name("idempotency_key", keys[-1])  # the longest
    entries = [{**body, "idempotency_key": key} for key in keys]
    made: list[Decision] = []
    for piece in (yield from _batch(path, "decisions", entries, DecisionBatchResponse)):
        for result in piece.results:
            if isinstance(result.error, ErrorDetail):
                raise to_exception(result.error, result.status, f"POST {path}")
            assert isinstance(result.decision, WireDecision), "`_batch` checks that every entry has a result"
            made.append(to_decision(result.decision, keys[len(made)]))
    return made


def _decision_request(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = {} if request.unit is None else {"unit": request.unit}
    return body if request.eligible is None else {**body, "eligible": sorted(request.eligible)}


def reward(
    scope: Scope,  # noqa: ARG001  # decision ids are unique in the whole service
    decision: str,
    value: float,
    at: datetime | float | None = None,
    event: str | None = None,
) -> Steps[Outcome]:
    """Log a reward of a decision and apply it to the tally; returns the outcome.

    `at` is when the reward occurred: an aware datetime, or seconds since 1970; by default the time of
    arrival. `event` tells several rewards of one decision apart. The same event with the same value is a
    "duplicate"; with another value it raises `Conflict`.
    """
    body = _reward_request(decision, value, at, event)
    path = api_path("decisions", body.pop("decision"), "reward")
    return decode((yield ApiCall("PUT", path, body)), RewardResponse).outcome


def rewards(scope: Scope, rows: Any) -> Steps[list[Outcome]]:  # noqa: ARG001  # as above
    """Log many rewards; returns the outcome of each.

    `rows` is a pandas or polars frame, an Arrow table, or an iterable of mappings, with `decision`,
    `value` and optionally `at` and `event`. All rows are checked before any is sent. A reward that
    contradicts an earlier one has the outcome "conflict"; one that its experiment does not accept,
    "refused".
    """
    offered = [
        _reward_request(
            row.get("decision"), row.get("value"), row.get("at"), row.get("event"), f"rows[{i}]: "
        )
        for i, row in enumerate(records_of(rows))
    ]
    responses = yield from _batch(api_path("rewards", verb="batch"), "rewards", offered, RewardBatchResponse)
    return [_outcome(result) for response in responses for result in response.results]


def decision(scope: Scope, decision_id: str, *, experiment: str | None = None) -> Steps[Decision]:
    """A decision from the log. If the client has an experiment, the decision must belong to it."""
    identifier = check_id(decision_id, "decision_id")
    found = to_decision(decode((yield ApiCall("GET", api_path("decisions", identifier))), WireDecision))
    if (experiment or scope.experiment) not in (None, found.experiment):
        allowed = f"a decision of experiment {experiment or scope.experiment!r}, not {found.experiment!r}"
        raise InvalidValue("decision_id", identifier, allowed)
    return found


def _reward_request(
    decision: object, value: object, at: Any, event: object, where: str = ""
) -> dict[str, Any]:
    identifier = check_id(decision, f"{where}decision")
    row: dict[str, Any] = {
        "decision": identifier,
        "value": _ANY_REWARD.check(value, f"{where}value"),
        "event": identifier if event is None else check_name(f"{where}event", event),
    }
    if at is not None:
        row["at"] = from_microseconds(to_microseconds(f"{where}at", at)).isoformat()
    return row


def _outcome(result: RewardBatchResult) -> Outcome:
    """The outcome of a reward, also of one that was rejected; any other error is raised."""
    error = result.error
    if not isinstance(error, ErrorDetail):
        assert isinstance(result.reward, RewardResponse), "`_batch` checks that every entry has a result"
        return result.reward.outcome
    if error.code == "conflict":
        return "conflict"
    if error.code in ("invalid_value", "unknown_name", "not_found", "archived"):
        return "refused"
    raise to_exception(error, result.status, "a reward")


def _batch(
    path: str, name: str, entries: list[dict[str, Any]], body_type: type[BatchResponse]
) -> Steps[list[BatchResponse]]:
    """SendRequest the entries in as many calls as needed; the responses in order."""
    bodies: list[BatchResponse] = []
    for chunk in _split([msgspec.Raw(encode(entry)) for entry in entries]):
        call = ApiCall("POST", path, {name: chunk}, batch=True)
        response = yield call
        body = decode(response, body_type)
        if len(body.results) != len(chunk):
            raise MaillardError(f"{call}: {len(body.results)} results for {len(chunk)} entries")
        for result in body.results:
            content = result.decision if isinstance(result, DecisionBatchResult) else result.reward
            if content is msgspec.UNSET and result.error is msgspec.UNSET:
                raise unexpected_response(response, "a result without content")
        bodies.append(body)
    return bodies


def _split(entries: list[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    """Split entries, in order, into chunks that fit into one call."""
    chunk: list[msgspec.Raw] = []
    size = 0
    for entry in entries:
        if chunk and (len(chunk) == MAX_ITEMS or size + len(bytes(entry)) > _MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += len(bytes(entry))
    if chunk:
        yield chunk
