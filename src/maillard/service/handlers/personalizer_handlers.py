"""Handlers of Personalizer's calls: Rank, Reward and Activate."""

from __future__ import annotations

import uuid
from contextlib import suppress

from maillard import wire_schema as wire
from maillard.decisions import deferred_events
from maillard.decisions.choosing import Repeated
from maillard.decisions.configuration import check_reward_event
from maillard.decisions.decision import Decision, Outcome, RewardEvent
from maillard.decisions.identifiers import check_name, new_ids
from maillard.errors import Conflict, MaillardError
from maillard.service.experiment_registry import OpenExperiment
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_responses import HttpError, HttpResponse, too_many_requests
from maillard.service.personalizer.rank_calls import rank_request, rank_response

_NO_BODY = b""
_INSTEAD = {
    "configurations": "Change the policy with PATCH /v1/experiments/{name}; the reward rule cannot change.",
    "evaluations": "Use POST /v1/experiments/{name}/evaluations, or `maillard evaluate`.",
    "logs": "Use GET /v1/experiments/{name}/export, or `maillard export`.",
    "model": "GET /v1/experiments/{name}/state shows what was learned.",
    "multislot": "Call Rank once for each slot, with the actions of the earlier slots in excludedActions.",
}


async def rank(context: RequestContext) -> HttpResponse:
    """Choose an action and log the decision. With deferActivation, it is logged when it is activated."""
    body: wire.RankRequest = context.body
    key = check_name("eventId", body.event_id or str(uuid.uuid4()))
    request = rank_request(body, key)
    experiment, defer = await context.experiment(), bool(body.defer_activation)
    if body.event_id and not defer:
        waiting = await context.service.experiments.run(_read_waiting, experiment, key)
        if waiting is not None and waiting.decision is not None:
            message = f"eventId: {key!r:.280} has a decision whose activation was deferred. Activate it, or "
            raise HttpError(400, "key_reused", f"{message}use another eventId.", "$.eventId")
    try:
        if defer:
            rows = await context.service.experiments.change(experiment.bandit.session.defer, request)
            return HttpResponse(201, rank_response(body, key, rows[0]))
        rows = await experiment.decide(request)
    except Conflict as error:
        message = str(error).replace("idempotency_key", "eventId", 1)
        raise HttpError(400, "key_reused", message, "$.eventId") from None
    if not isinstance(rows, Repeated):
        _count(context, rows[0])
    if body.event_id:  # a reward may have come first
        with suppress(MaillardError):  # the decision is in the log: if this fails, a sweep repeats it
            waiting = await context.service.experiments.run(_read_waiting, experiment, key)
            if waiting is not None:
                await context.service.experiments.change(_release, experiment, key)
    return HttpResponse(201, rank_response(body, key, rows[0]), decision_id=rows[0].id)


async def reward_event(context: RequestContext) -> HttpResponse:
    """Log a reward of an event. Each call is a reward of its own; the experiment says how they combine."""
    key, experiment = _event_id(context), await context.experiment()
    given = context.headers.get(b"idempotency-key")
    event = str(uuid.uuid4()) if given is None else given.decode("latin-1")
    try:
        # The decision is not known yet, so the row gets another id until then.
        row = check_reward_event(
            experiment.bandit.state.reward, new_ids(1)[0], context.body.value, None, event
        )
        outcome, identifier = await _apply(context, experiment, key, row)
    except MaillardError as error:
        context.service.metrics.count_reward("conflict" if isinstance(error, Conflict) else "refused")
        raise
    context.service.metrics.count_reward(outcome)
    return HttpResponse(204, _NO_BODY, decision_id=identifier)


async def _apply(
    context: RequestContext, experiment: OpenExperiment, key: str, row: RewardEvent
) -> tuple[Outcome, str | None]:
    """Apply a reward to the decision of an event, or let it wait; the outcome and the id of the decision."""
    experiments = context.service.experiments
    logged = await experiments.run(_read_decision, experiment, key)
    if logged is not None:
        (outcome,) = await experiment.apply_rewards([row._replace(decision=logged.id)])
        if isinstance(outcome, MaillardError):
            raise outcome
        return outcome, logged.id
    unknown = await experiments.run(_read_waiting, experiment, key) is None
    limiter = context.service.early_reward_limiter
    if unknown and context.key is not None and (wait := limiter.acquire(context.key.id)):
        raise too_many_requests(wait, "This key has reported too many rewards of unknown events.")
    add = deferred_events.add_reward
    parked: Outcome = await experiments.change(
        experiment.bandit.session.write, lambda transaction, state: add(transaction, state, key, row)
    )
    return parked, None


async def activate_event(context: RequestContext) -> HttpResponse:
    """Log the decision of an event whose activation was deferred, so that it counts."""
    key, experiment = _event_id(context), await context.experiment()
    found = await context.service.experiments.change(experiment.bandit.session.activate, key)
    if found is None:
        message = (
            f"There is no event {key!r:.280}: no Rank call had this eventId, or its reward wait time was "
            "over before it was activated."
        )
        raise HttpError(404, "not_found", message)
    row, new = found
    if new:
        _count(context, row)
    return HttpResponse(204, _NO_BODY, decision_id=row.id)


async def unsupported(context: RequestContext) -> HttpResponse:
    """Say what to use instead of a call that is not offered."""
    path, name = context.parameters["call"], context.parameters["experiment"]
    version, _, rest = path.partition("/")
    known = next((text for part, text in _INSTEAD.items() if rest.split("/")[0] == part), None)
    if known is None and version != "v1.0":
        known = "Only version v1.0 of the API is offered: /personalizer/v1.0/rank."
    message = f"maillard does not offer this call of Personalizer: {path!r:.200}. "
    offered = "It offers Rank, Reward and Activate; see docs/how-to/personalizer.md."
    message += (known or offered).format(name=name)
    raise HttpError(404, "not_found", message)


def _event_id(context: RequestContext) -> str:
    return check_name("eventId", context.parameters["eventId"])


def _count(context: RequestContext, row: Decision) -> None:
    context.service.experiments.remember(row.id, row.experiment)
    context.service.metrics.count_decision(row.experiment, row.arm)


def _read_waiting(experiment: OpenExperiment, key: str) -> deferred_events.WaitingEvent | None:
    with experiment.bandit.session.store.reading(experiment.bandit.experiment) as transaction:
        return deferred_events.read_waiting(transaction, key)


def _read_decision(experiment: OpenExperiment, key: str) -> Decision | None:
    with experiment.bandit.session.store.reading(experiment.bandit.experiment) as transaction:
        found = transaction.decisions_by_key([key]).get(key)
    return found[0] if found else None


def _release(experiment: OpenExperiment, key: str) -> None:
    experiment.bandit.session.write(
        lambda transaction, state: deferred_events.release(transaction, state, key)
    )
