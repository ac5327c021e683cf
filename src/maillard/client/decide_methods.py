"""Client methods that choose arms and log rewards."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

import msgspec

from maillard import wire_schema as wire
from maillard.client.api_calls import ApiCall, Steps, api_path, encode
from maillard.client.base_client import Scope
from maillard.client.decoding import decode, fetch, to_decision, to_exception, unexpected_response
from maillard.decisions.call_arguments import Request, check_request
from maillard.decisions.decision import Decision, Outcome
from maillard.decisions.frames import records_of
from maillard.decisions.identifiers import check_id, check_name, id_of_decision
from maillard.decisions.reward_rule import Reward
from maillard.decisions.timestamps import from_microseconds, to_microseconds
from maillard.errors import InvalidValue, MaillardError

_MAX_BYTES = 2_000_000  # of the entries of one call
_ANY_REWARD = Reward()


@overload
def choose(
    scope: Scope,
    unit: str | None = None,
    eligible: Iterable[str] | None = None,
    size: None = None,
    idempotency_key: str | None = None,
    *,
    context: Mapping[str, Any] | None = None,
    actions: Mapping[str, Mapping[str, Any]] | None = None,
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
    context: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    actions: Mapping[str, Mapping[str, Any]] | None = None,
    experiment: str | None = None,
) -> Steps[list[Decision]]: ...


@overload
def choose(
    scope: Scope,
    unit: str | None = None,
    eligible: Iterable[str] | None = None,
    size: None = None,
    idempotency_key: str | None = None,
    *,
    context: Sequence[Mapping[str, Any]],
    actions: Mapping[str, Mapping[str, Any]] | None = None,
    experiment: str | None = None,
) -> Steps[list[Decision]]: ...


def choose(
    scope: Scope,
    unit: str | None = None,
    eligible: Iterable[str] | None = None,
    size: int | None = None,
    idempotency_key: str | None = None,
    *,
    context: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    actions: Mapping[str, Mapping[str, Any]] | None = None,
    experiment: str | None = None,
) -> Steps[Decision] | Steps[list[Decision]]:
    """Choose an arm and log the decision, which is durable when this returns.

    `eligible` names the arms to choose from, by default all that are not retired. With `size`, the result
    is a list of that many decisions. A call with an `idempotency_key` that was used before returns the
    decisions of the earlier call. Without one, the client generates a key, so that an attempt whose
    response was lost is not decided twice.

    `context` is what is known about the decision; a list of contexts gives a list with one decision for each.
    `actions` are the arms of this decision with their attributes, if the experiment has no fixed arms.

    >>> client.choose(unit="user-17", eligible=["red", "blue"]).probabilities
    {'red': 0.5, 'blue': 0.5}
    >>> len(client.choose(size=3))
    3
    """
    name = scope.experiment_name(experiment)
    key = str(uuid.uuid4()) if idempotency_key is None else idempotency_key
    request = check_request(unit, eligible, key, size, context=context, actions=actions)
    single = size is None and not isinstance(context, list | tuple)
    return _choose_one(name, request) if single else _choose_many(name, request)


def _choose_one(name: str, request: Request) -> Steps[Decision]:
    key = request.key or ""
    plain = key.isascii() and key.isprintable() and key == key.strip()
    if not plain:  # a header cannot contain it, but a batch can
        (made,) = yield from _choose_many(name, request)
        return made
    path, headers = api_path("experiments", name, "decisions"), {"idempotency-key": key}
    (body,) = _decision_requests(request)
    call = ApiCall("POST", path, body, headers)
    return to_decision((yield from fetch(call, wire.Decision)), key)


def _choose_many(name: str, request: Request) -> Steps[list[Decision]]:
    """Several decisions, each with its own idempotency key, so that no decision is made twice."""
    path = api_path("experiments", name, "decisions", verb="batch")
    keys = [f"{request.key}[{place}]" if place else request.key for place in range(request.size)]
    if keys:
        check_name("idempotency_key", keys[-1])  # the longest
    bodies = zip(_decision_requests(request), keys, strict=True)
    entries = [{**body, "idempotency_key": key} for body, key in bodies]
    results: list[wire.DecisionBatchResult] = yield from _batch(
        path, "decision", entries, wire.DecisionBatchResponse
    )
    made: list[Decision] = []
    for key, result in zip(keys, results, strict=True):
        if isinstance(result.error, wire.ErrorDetail):
            raise to_exception(result.error, result.status, f"POST {path}")
        assert isinstance(result.decision, wire.Decision), "`_batch` checks that every entry has a result"
        made.append(to_decision(result.decision, key))
    return made


def _decision_requests(request: Request) -> Iterator[dict[str, Any]]:
    """The bodies of the decisions of a request."""
    body: dict[str, Any] = {} if request.unit is None else {"unit": request.unit}
    if request.eligible is not None:
        body["eligible"] = sorted(request.eligible)
    for raw in request.each_context:
        given = {"context": raw.values, "actions": raw.actions}
        yield {**body, **{name: value for name, value in given.items() if value is not None}}


def reward(
    _: Scope,
    decision: str | Decision,
    value: float,
    at: datetime | float | None = None,
    event: str | None = None,
) -> Steps[Outcome]:
    """Log a reward of a decision and apply it to the tally; returns the outcome.

    `decision` is a decision or its id. `at` is when the reward occurred: an aware datetime, or seconds since
    1970; by default the time of arrival. `event` tells several rewards of one decision apart. The same event
    with the same value is a "duplicate"; with another value it raises `Conflict`.

    >>> decision = client.choose()
    >>> client.reward(decision, 1), client.reward(decision, 1)
    ('applied', 'duplicate')
    """
    body = _reward_request({"decision": decision, "value": value, "at": at, "event": event})
    path = api_path("decisions", body.pop("decision"), "reward")
    return (yield from fetch(ApiCall("PUT", path, body), wire.RewardResponse)).outcome


def rewards(_: Scope, rows: Any) -> Steps[list[Outcome]]:
    """Log many rewards; returns the outcome of each.

    `rows` is a pandas or polars frame, an Arrow table, or an iterable of mappings, with `decision`,
    `value` and optionally `at` and `event`. All rows are checked before any is sent. A reward that
    contradicts an earlier one has the outcome "conflict"; one that its experiment does not accept,
    "refused".

    >>> one, two = client.choose(size=2)
    >>> client.rewards([{"decision": one.id, "value": 1}, {"decision": two.id, "value": 0.5}])
    ['applied', 'applied']
    """
    offered = [_reward_request(row, f"rows[{i}]: ") for i, row in enumerate(records_of(rows))]
    path = api_path("rewards", verb="batch")
    results = yield from _batch(path, "reward", offered, wire.RewardBatchResponse)
    return [_outcome(result) for result in results]


def decision(scope: Scope, decision_id: str, *, experiment: str | None = None) -> Steps[Decision]:
    """A decision from the log. If the client has an experiment, the decision must belong to it.

    >>> made = client.choose(unit="user-17")
    >>> client.decision(made.id).unit
    'user-17'
    """
    identifier = check_id(decision_id, "decision_id")
    found = to_decision((yield from fetch(ApiCall("GET", api_path("decisions", identifier)), wire.Decision)))
    if (experiment or scope.experiment) not in (None, found.experiment):
        allowed = f"a decision of experiment {experiment or scope.experiment!r}, not {found.experiment!r}"
        raise InvalidValue("decision_id", identifier, allowed)
    return found


def _reward_request(given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    identifier = id_of_decision(given.get("decision"), f"{where}decision")
    at, event = given.get("at"), given.get("event")
    row: dict[str, Any] = {
        "decision": identifier,
        "value": _ANY_REWARD.check(given.get("value"), f"{where}value"),
        "event": identifier if event is None else check_name(f"{where}event", event),
    }
    if at is not None:
        row["at"] = from_microseconds(to_microseconds(f"{where}at", at)).isoformat()
    return row


def _outcome(result: wire.RewardBatchResult) -> Outcome:
    """The outcome of a reward, also of one that was rejected; any other error is raised."""
    error = result.error
    if not isinstance(error, wire.ErrorDetail):
        assert isinstance(result.reward, wire.RewardResponse), "`_batch` checks that every entry has a result"
        return result.reward.outcome
    if error.code == "conflict":
        return "conflict"
    if error.code in ("invalid_value", "unknown_name", "not_found", "archived"):
        return "refused"
    raise to_exception(error, result.status, "a reward")


def _batch(path: str, content: str, entries: list[dict[str, Any]], body_type: type[Any]) -> Steps[list[Any]]:
    """Send the entries in as many calls as needed; the results in order."""
    results: list[Any] = []
    for chunk in _split([msgspec.Raw(encode(entry)) for entry in entries]):
        call = ApiCall("POST", path, {f"{content}s": chunk}, batch=True)
        response = yield call
        found = decode(response, body_type).results
        if len(found) != len(chunk):
            raise MaillardError(f"{call}: {len(found)} results for {len(chunk)} entries")
        for result in found:
            if result.error is msgspec.UNSET and getattr(result, content) is msgspec.UNSET:
                raise unexpected_response(response, "a result without content")
        results += found
    return results


def _split(entries: list[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    """Split entries, in order, into chunks that fit into one call."""
    chunk: list[msgspec.Raw] = []
    size = 0
    for entry in entries:
        if chunk and (len(chunk) == wire.MAX_ITEMS or size + len(bytes(entry)) > _MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += len(bytes(entry))
    if chunk:
        yield chunk
