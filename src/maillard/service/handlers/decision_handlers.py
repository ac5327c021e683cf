"""Handlers that make decisions and return logged ones."""

from __future__ import annotations

import asyncio
import math
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from maillard import wire_schema as wire
from maillard.decisions.call_arguments import check_request
from maillard.decisions.choosing import Repeated
from maillard.decisions.decision import Decision
from maillard.decisions.identifiers import check_id
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import Conflict, InvalidValue, MaillardError
from maillard.service.experiment_registry import OpenExperiment
from maillard.service.handlers.request_context import RequestContext, item_error, owner_of
from maillard.service.http_responses import HttpError, HttpResponse, http_error
from maillard.service.service_errors import NotFound

if TYPE_CHECKING:
    from maillard.service.service_state import Service

_MAX_BATCH_RESPONSE = 32 << 20  # characters
_PROBABILITY_SIZE = 60  # characters of one arm's probability and log probability
_datetime_of = lru_cache(maxsize=16)(from_microseconds)  # the decisions of a commit have the same time


async def decide(context: RequestContext) -> HttpResponse:
    """Choose an arm and log the decision. The response comes when the decision is durable."""
    body: wire.DecisionRequest = context.body
    key = context.headers.get(b"idempotency-key")
    experiment = context.opened or await context.experiment()
    try:
        request = check_request(
            body.unit,
            body.eligible,
            None if key is None else _text(key),
            context=body.context,
            actions=body.actions,
        )
        rows = await experiment.decide(request)
    except Conflict as error:
        raise HttpError(422, "key_reused", str(error), "Idempotency-Key") from None
    except InvalidValue as error:
        if error.field == "idempotency_key":
            raise HttpError(422, "invalid_value", str(error), "Idempotency-Key") from None
        raise
    (row,), new = rows, not isinstance(rows, Repeated)
    shown = _decision(context.service, experiment, row, made=new)
    return HttpResponse(201 if new else 200, shown, decision_id=row.id)


def _text(header: bytes) -> str:
    """Decode a header as UTF-8, or else as Latin-1."""
    try:
        return header.decode()
    except UnicodeDecodeError:
        return header.decode("latin-1")


async def decide_batch(context: RequestContext) -> HttpResponse:
    """Make several decisions, each with its own status."""
    experiment = await context.experiment()
    arms, count = experiment.bandit.state.arms, len(context.body.decisions)
    lists = [arms if entry.actions is None else tuple(entry.actions) for entry in context.body.decisions]
    if sum(_PROBABILITY_SIZE + len(arm) for each in lists for arm in each) > _MAX_BATCH_RESPONSE:
        limit = _MAX_BATCH_RESPONSE >> 20
        message = f"The probabilities of {count} decisions exceed {limit} MiB; send smaller batches."
        raise HttpError(413, "too_large", message, "$.decisions")

    async def decide_one(index: int, entry: wire.DecisionBatchEntry) -> wire.DecisionBatchResult:
        try:
            request = check_request(
                entry.unit,
                entry.eligible,
                entry.idempotency_key,
                context=entry.context,
                actions=entry.actions,
            )
            rows = await experiment.decide(request)
        except MaillardError as error:
            failure = http_error(error)
            if isinstance(error, Conflict):
                failure = HttpError(422, "key_reused", str(error), "$.idempotency_key")
            detail = item_error(failure, f"$.decisions[{index}]")
            return wire.DecisionBatchResult(status=failure.status, error=detail)
        new = not isinstance(rows, Repeated)
        shown = _decision(context.service, experiment, rows[0], made=new)
        return wire.DecisionBatchResult(status=201 if new else 200, decision=shown)

    results = await asyncio.gather(*(decide_one(*item) for item in enumerate(context.body.decisions)))
    ids = [each.decision.id for each in results if each.decision is not msgspec.UNSET]
    return HttpResponse(200, wire.DecisionBatchResponse(results=results), decision_id=ids)


async def read_decision(context: RequestContext) -> HttpResponse:
    """Return a decision from the log."""
    identifier = check_id(context.parameters["id"])
    key = await owner_of(context, identifier)
    if key is None:
        raise NotFound("decision", identifier)
    experiment = await context.service.experiments.get(key)
    row = await context.service.experiments.run(experiment.bandit.decision, identifier)
    return HttpResponse(200, _decision(context.service, experiment, row, made=False), decision_id=row.id)


def _decision(service: Service, experiment: OpenExperiment, row: Decision, *, made: bool) -> wire.Decision:
    if made:
        service.experiments.remember(row.id, row.experiment)
        service.metrics.count_decision(row.experiment, row.arm)
    closes = experiment.bandit.state.reward.closes(row.time)
    probabilities, logs = experiment.encoded_probabilities(row)
    return wire.Decision(
        id=row.id,
        experiment=row.experiment,
        arm=row.arm,
        probability=math.exp(row.log_probability),
        log_probability=row.log_probability,
        probabilities=probabilities,
        log_probabilities=logs,
        policy_version=row.policy_version,
        formula_version=row.formula_version,
        state=row.state,
        epoch=row.epoch,
        unit=row.unit,
        cold=row.cold,
        origin=row.origin,
        idempotency_key=row.idempotency_key,
        position=row.position,
        time=_datetime_of(row.time),
        expires_at=None if closes is None else _datetime_of(closes),
        context=_raw(row.context),
        actions=_raw(row.actions),
        feature_version=row.feature_version,
    )


def _raw(text: str | None) -> msgspec.Raw:
    """A JSON text as it is stored."""
    return wire.NO_CONTEXT if text is None else msgspec.Raw(text)
