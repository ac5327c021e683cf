"""The handler that reads the contexts of an experiment."""

from __future__ import annotations

from collections.abc import Iterator

from maillard.decisions.reward_rule import Reward
from maillard.service.handlers.request_context import RequestContext
from maillard.service.http_responses import HttpError, HttpResponse

_MEANS = (
    "Means are plain means of the rewards of the decisions that were made, in all epochs. The policy may "
    "show an arm to some visitors more often than to others, and differences may be due to chance. So do "
    "not compare arms or segments by these numbers: What if? estimates what an arm or a rule would have "
    "earned in each segment, with valid intervals."
)


async def read_contexts(context: RequestContext) -> HttpResponse:
    """Return decisions and rewards by the values of a key of the context, and the observed features."""
    experiment, by = await context.experiment(), context.query.get("by")
    found = await context.service.read_contexts(experiment.bandit.experiment, by)
    if by is not None and found["complete"] and by not in found["keys"]:
        known = ", ".join(map(repr, found["keys"])) or "none"
        message = f"No decision has the key {by!r:.100}, or too many others came first. Known: {known}"
        raise HttpError(422, "invalid_value", message, "?by")
    return HttpResponse(200, found | {"notes": list(_notes(experiment.bandit.state.reward))})


def _notes(rule: Reward) -> Iterator[str]:
    yield _MEANS
    if rule.learn == "provisional":
        yield "Decisions whose window is open count with the default reward, so recent means are too low."
    elif rule.learn == "on_arrival" and rule.window is not None:
        yield "A reward counts when it arrives, so recent means miss the rewards that come late."
    elif rule.learn == "on_close":
        yield "A decision counts when its reward window has closed."
