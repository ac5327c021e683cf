"""Rewards: logged once, and learned from."""

from __future__ import annotations

import asyncio

from maillard.decisions.identifiers import check_id
from maillard.decisions.ledger import Outcome
from maillard.decisions.records import NOW, Observation, text, to_microseconds
from maillard.decisions.rules import Reward
from maillard.errors import Conflict, InvalidValue, MaillardError
from maillard.service import messages
from maillard.service.answers import Answer, failure
from maillard.service.experiments import Missing
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
    return Answer(200, messages.RewardsTaken(results=taken))


async def _reward(call: Call, identifier: str, given: messages.Reward) -> messages.RewardAnswer:
    key = await owner_of(call, identifier)
    experiment = None if key is None else await call.service.experiments.get(key)
    rule = Reward() if experiment is None else experiment.bandit.state.reward
    row = Observation(
        decision=identifier,
        event=identifier if given.event is None else text("event", given.event),
        value=rule.check(given.value),
        at=NOW if given.occurred_at is None else to_microseconds("at", given.occurred_at),
        arrived=NOW,
    )
    outcome: Outcome | MaillardError
    if experiment is None:
        outcome = await _park(call, row)
    else:
        (outcome,) = await experiment.observe([row])
    if isinstance(outcome, MaillardError):
        call.service.metrics.rewarded("conflict" if isinstance(outcome, Conflict) else "refused")
        raise outcome
    call.service.metrics.rewarded(outcome)
    return messages.RewardAnswer(
        decision_id=identifier,
        event=row.event,
        outcome=outcome,  # type: ignore[arg-type]  # the others are errors
        applied=outcome in ("learned", "revised", "waiting"),
        late=outcome == "late",
    )


async def _park(call: Call, row: Observation) -> Outcome | MaillardError:
    try:
        return await call.service.experiments.park(row)
    except InvalidValue as error:
        return Missing(str(error))


def _code(outcome: str) -> int:
    if outcome == "parked":
        return 202
    return 200 if outcome in ("duplicate", "late") else 201
