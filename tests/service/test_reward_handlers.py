"""Rewards of decisions that are not in the log yet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from maillard.decisions.configuration import check_reward_event
from maillard.decisions.reward_rule import Reward
from maillard.errors import InvalidLog, InvalidValue, MaillardError
from maillard.service.handlers.reward_handlers import _park
from maillard.service.rate_limits import RateLimiter
from maillard.service.service_errors import NotFound
from tests.stores import new_id


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidValue("decision", "old", "the id of a recent decision"), NotFound),
        (InvalidLog("parked, row 1", "x", "values of the types of the columns"), InvalidLog),
    ],
)
def test_a_damaged_log_is_not_reported_as_a_missing_decision(
    error: MaillardError, expected: type[MaillardError]
) -> None:
    async def park(_: object) -> Any:
        raise error

    service = SimpleNamespace(experiments=SimpleNamespace(park=park), early_reward_limiter=RateLimiter(1))
    context: Any = SimpleNamespace(service=service, key=None)
    with pytest.raises(expected):
        asyncio.run(_park(context, check_reward_event(Reward(), new_id(), 1.0, None, None)))
