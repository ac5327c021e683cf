"""Rewards: logged once, and learned from."""

from __future__ import annotations

import asyncio

import msgspec

from maillard.decisions.configuration import check_observation
from maillard.decisions.identifiers import check_id
from maillard.decisions.ledger import Outcome
from maillard.decisions.records import Observation
from maillard.decisions.rules import Reward
from maillard.errors import Conflict, InvalidValue, MaillardError
from maillard.service import messages
from maillard.service.answers import Answer, failure
from maillard.service.experiments import Experiment, Missing
from maillard.service.handlers.calls import Call, failed, owner_of

__all__ = ["reward", "reward_batch"]


async def reward(call: Call) -> Answer:
    """Log a reward of a decision and learn from it."""
    identifier = check_id(call.parameters["id"])
    answer = await _reward(call, identifier, call.body)
    return Answer(_code(answer.outcome), answer, decision_id=identifier)


async def reward_batch(call: Call) -> Answer:
    """Several rewards, each with a status of its own."""

    async def one(place: int, given: messages.RewardToGive) -> messages.RewardTaken:
        try:
            answer = await _reward(call, check_id(given.decision_id), given)
        except MaillardError as error:
            refusal = failure(error)
            return messages.RewardTaken(status=refusal.status, error=failed(refusal, f"$.rewards[{place}]"))
        return messages.RewardTaken(status=_code(answer.outcome), reward=answer)

    taken = await asyncio.gather(*(one(*item) for item in enumerate(call.body.rewards)))
    ids = [each.reward.decision_id for each in taken if each.reward is not msgspec.UNSET]
    return Answer(200, messages.RewardsTaken(results=taken), decision_id=ids)


async def _reward(call: Call, identifier: str, given: messages.Reward) -> messages.RewardAnswer:
    key = await owner_of(call, identifier)
    experiment = None if key is None else await call.service.experiments.get(key)
    rule = Reward() if experiment is None else experiment.bandit.state.reward
    try:
        row = check_observation(rule, identifier, given.value, given.occurred_at, given.event)
        outcome = await (_park(call, row) if experiment is None else _observe(experiment, row))
    except MaillardError as error:
        call.service.metrics.rewarded("conflict" if isinstance(error, Conflict) else "refused")
        raise
    call.service.metrics.rewarded(outcome)
    return messages.RewardAnswer(
        decision_id=identifier,
        event=row.event,
        outcome=outcome,  # type: ignore[arg-type]  # the others are errors
        applied=outcome in ("learned", "revised", "waiting"),
        late=outcome == "late",
    )


async def _observe(experiment: Experiment, row: Observation) -> Outcome:
    (outcome,) = await experiment.observe([row])
    if isinstance(outcome, MaillardError):
        raise outcome
    return outcome


async def _park(call: Call, row: Observation) -> Outcome:
    try:
        return await call.service.experiments.park(row)
    except InvalidValue as error:
        raise Missing(str(error)) from None


def _code(outcome: str) -> int:
    if outcome == "parked":
        return 202
    return 200 if outcome in ("duplicate", "late") else 201
