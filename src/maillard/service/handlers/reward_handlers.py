"""Handlers that log rewards and apply them."""

from __future__ import annotations

import asyncio

import msgspec

from maillard import wire_schema as wire
from maillard.decisions.configuration import check_reward_event
from maillard.decisions.decision import Outcome, RewardEvent
from maillard.decisions.identifiers import check_id
from maillard.decisions.reward_rule import Reward
from maillard.errors import Conflict, InvalidLog, InvalidValue, MaillardError
from maillard.service.experiment_registry import OpenExperiment
from maillard.service.handlers.request_context import RequestContext, item_error, owner_of
from maillard.service.http_responses import HttpResponse, http_error, too_many_requests
from maillard.service.service_errors import NotFound


async def reward(context: RequestContext) -> HttpResponse:
    """Log the reward of a decision and apply it."""
    identifier = check_id(context.parameters["id"])
    response = await _reward(context, identifier, context.body)
    return HttpResponse(_status(response.outcome), response, decision_id=identifier)


async def reward_batch(context: RequestContext) -> HttpResponse:
    """Log several rewards, each with its own status."""

    async def reward_one(index: int, entry: wire.RewardBatchEntry) -> wire.RewardBatchResult:
        try:
            response = await _reward(context, check_id(entry.decision), entry)
        except MaillardError as error:
            failure = http_error(error)
            detail = item_error(failure, f"$.rewards[{index}]")
            return wire.RewardBatchResult(status=failure.status, error=detail)
        return wire.RewardBatchResult(status=_status(response.outcome), reward=response)

    results = await asyncio.gather(*(reward_one(*item) for item in enumerate(context.body.rewards)))
    ids = [each.reward.decision for each in results if each.reward is not msgspec.UNSET]
    return HttpResponse(200, wire.RewardBatchResponse(results=results), decision_id=ids)


async def _reward(
    context: RequestContext, identifier: str, request: wire.RewardRequest
) -> wire.RewardResponse:
    key = await owner_of(context, identifier)
    experiment = None if key is None else await context.service.experiments.get(key)
    rule = Reward() if experiment is None else experiment.bandit.state.reward
    try:
        row = check_reward_event(rule, identifier, request.value, request.at, request.event)
        outcome = await (_park(context, row) if experiment is None else _apply(experiment, row))
    except MaillardError as error:
        context.service.metrics.count_reward("conflict" if isinstance(error, Conflict) else "refused")
        raise
    context.service.metrics.count_reward(outcome)
    return wire.RewardResponse(
        decision=identifier,
        event=row.event,
        outcome=outcome,  # type: ignore[arg-type]  # all other outcomes raise
        applied=outcome in ("applied", "revised", "waiting"),
        late=outcome == "late",
    )


async def _apply(experiment: OpenExperiment, row: RewardEvent) -> Outcome:
    (outcome,) = await experiment.apply_rewards([row])
    if isinstance(outcome, MaillardError):
        raise outcome
    return outcome


async def _park(context: RequestContext, row: RewardEvent) -> Outcome:
    limiter, key = context.service.early_reward_limiter, context.key
    if key is not None and (wait := limiter.acquire(key.id)):
        raise too_many_requests(wait, "This key has reported too many rewards of unknown decisions.")
    outcome: Outcome | None = None
    try:
        outcome = await context.service.experiments.park(row)
    except InvalidLog:
        raise
    except InvalidValue:  # the decision is too old to be logged later
        raise NotFound("decision", row.decision) from None
    finally:
        if key is not None and outcome != "parked":
            limiter.charge(key.id, -1)
    return outcome


def _status(outcome: str) -> int:
    if outcome == "parked":
        return 202
    return 200 if outcome in ("duplicate", "late") else 201
