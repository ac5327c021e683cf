"""The verbs that choose and learn."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar, overload

import msgspec

from maillard.client.answers import decision_of, fault_of, foreign, read
from maillard.client.calls import Call, Steps, encode, path_of
from maillard.client.scope import Scope
from maillard.decisions.choosing import Request
from maillard.decisions.configuration import check_request
from maillard.decisions.decision import Decision
from maillard.decisions.frames import records_of
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.ledger import Outcome
from maillard.decisions.reward_rule import Reward
from maillard.decisions.timestamps import from_microseconds, to_microseconds
from maillard.errors import InvalidValue, MaillardError
from maillard.wire_schema import Decision as WireDecision
from maillard.wire_schema import (
    DecisionBatchResponse,
    DecisionBatchResult,
    ErrorDetail,
    RewardBatchResponse,
    RewardBatchResult,
    RewardResponse,
)

__all__ = ["choose", "decision", "reward", "rewards"]

_MOST = 1_000  # entries of one call
_MOST_BYTES = 2_000_000  # of its entries
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
    """Have an arm drawn and logged; when this returns, the decision is durable.

    `eligible` names the arms that may be drawn, by default all that are not retired. With `size`, a list of that many decisions.
    A call with an `idempotency_key` that was used before draws nothing: it returns what that call returned. Without one the
    client makes one up, so that a try whose answer was lost is not drawn again.
    """
    name = scope.named(experiment)
    key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
    request = check_request(unit, eligible, key, 1 if size is None else size)
    return _choose_one(name, request) if size is None else _choose_many(name, request)


def _choose_one(name: str, request: Request) -> Steps[Decision]:
    key = request.key or ""
    plain = key.isascii() and key.isprintable() and key == key.strip()
    if not plain:  # no header holds it, but a batch does
        (made,) = yield from _choose_many(name, request)
        return made
    path, headers = path_of("experiments", name, "decisions"), {"idempotency-key": key}
    answer = yield Call("POST", path, _wanted(request), headers)
    return decision_of(read(answer, WireDecision), key)


def _choose_many(name: str, request: Request) -> Steps[list[Decision]]:
    """A choice with a key of its own for each, so that those whose answer was lost are not made again."""
    path, wanted = path_of("experiments", name, "decisions", verb="batch"), _wanted(request)
    keys = [f"{request.key}[{place}]" if place else request.key for place in range(request.size)]
    if keys:
        check_name("idempotency_key", keys[-1])  # the longest
    entries = [{**wanted, "idempotency_key": key} for key in keys]
    made: list[Decision] = []
    for piece in (yield from _batch(path, "decisions", entries, DecisionBatchResponse)):
        for result in piece.results:
            if isinstance(result.error, ErrorDetail):
                raise fault_of(result.error, result.status, f"POST {path}")
            assert isinstance(result.decision, WireDecision), "`_batch` checks that every entry has a result"
            made.append(decision_of(result.decision, keys[len(made)]))
    return made


def _wanted(request: Request) -> dict[str, Any]:
    wanted: dict[str, Any] = {} if request.unit is None else {"unit": request.unit}
    return wanted if request.eligible is None else {**wanted, "eligible": sorted(request.eligible)}


def reward(
    scope: Scope,  # noqa: ARG001  # an id is one of the whole service
    decision_id: str,
    value: float,
    at: datetime | float | None = None,
    event: str | None = None,
) -> Steps[Outcome]:
    """Log a reward of a decision and learn from it; what became of it.

    `at` is when it occurred (an aware datetime, or seconds since 1970; by default when it arrives), `event` tells several rewards of one
    decision apart. The same event and value again is a "duplicate", another value an error.
    """
    body = _observation(decision_id, value, at, event)
    path = path_of("decisions", body.pop("decision"), "reward")
    return read((yield Call("PUT", path, body)), RewardResponse).outcome


def rewards(scope: Scope, rows: Any) -> Steps[list[Outcome]]:  # noqa: ARG001  # as above
    """Log many rewards; what became of each.

    `rows` is a pandas or polars frame, an Arrow table, or mappings, with `decision_id`, `value` and, if wanted, `at` and `event`.
    Each is checked before any is sent; one that contradicts an earlier one comes out as "conflict", one that its experiment
    does not take as "refused".
    """
    offered = [
        _observation(
            row.get("decision_id"), row.get("value"), row.get("at"), row.get("event"), f"rows[{i}]: "
        )
        for i, row in enumerate(records_of(rows))
    ]
    responses = yield from _batch(path_of("rewards", verb="batch"), "rewards", offered, RewardBatchResponse)
    return [_outcome(result) for response in responses for result in response.results]


def decision(scope: Scope, decision_id: str, *, experiment: str | None = None) -> Steps[Decision]:
    """A decision of the log: of the experiment, if one is named."""
    identifier = check_id(decision_id)
    found = decision_of(read((yield Call("GET", path_of("decisions", identifier))), WireDecision))
    if (experiment or scope.experiment) not in (None, found.experiment):
        allowed = f"a decision of experiment {experiment or scope.experiment!r}, not {found.experiment!r}"
        raise InvalidValue("decision_id", identifier, allowed)
    return found


def _observation(
    decision_id: object, value: object, at: Any, event: object, where: str = ""
) -> dict[str, Any]:
    identifier = check_id(decision_id, f"{where}decision_id")
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
    raise fault_of(error, result.status, "a reward")


def _batch(
    path: str, name: str, entries: list[dict[str, Any]], form: type[BatchResponse]
) -> Steps[list[BatchResponse]]:
    """Send the entries in as many calls as needed; the responses in order."""
    found: list[BatchResponse] = []
    for some in _pieces([msgspec.Raw(encode(entry)) for entry in entries]):
        call = Call("POST", path, {name: some}, batch=True)
        answer = yield call
        response = read(answer, form)
        if len(response.results) != len(some):
            raise MaillardError(f"{call}: {len(response.results)} results for {len(some)} entries")
        for result in response.results:
            content = result.decision if isinstance(result, DecisionBatchResult) else result.reward
            if content is msgspec.UNSET and result.error is msgspec.UNSET:
                raise foreign(answer, "a result without content")
        found.append(response)
    return found


def _pieces(entries: list[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    """Entries in their order, as many at once as one call may have."""
    some: list[msgspec.Raw] = []
    size = 0
    for entry in entries:
        if some and (len(some) == _MOST or size + len(bytes(entry)) > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(entry)
        size += len(bytes(entry))
    if some:
        yield some
