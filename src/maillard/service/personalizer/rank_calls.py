"""Rank calls as decisions: the features as contexts and attributes of arms, and the ranking of a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from maillard import wire_schema as wire
from maillard.decisions.call_arguments import Request, check_request
from maillard.decisions.decision import Decision
from maillard.decisions.flat_contexts import flatten
from maillard.errors import InvalidValue

_IGNORED = "_"  # how the names of features begin that Personalizer ignored
ACTION_ID = "action"
"The attribute of an arm with the id of its action. The other attributes begin with this name and a dot."


def rank_request(body: wire.RankRequest, key: str) -> Request:
    """The decision that a Rank call asks for."""
    ids = [action.id for action in body.actions]
    if len(set(ids)) < len(ids):
        raise InvalidValue("actions: id", Counter(ids).most_common(1)[0][0], "each id once")
    excluded = frozenset(body.excluded_actions or ())
    actions = {action.id: _attributes(action) for action in body.actions if action.id not in excluded}
    if not actions:
        raise InvalidValue("excludedActions", sorted(excluded), "ids that leave at least one action")
    context = flatten(body.context_features or [], "contextFeatures", hidden=_IGNORED)
    return check_request(None, None, key, context=context, actions=actions)


def _attributes(action: wire.RankableAction) -> dict[str, object]:
    features = flatten(action.features or [], f"actions: {action.id}", hidden=_IGNORED)
    return {ACTION_ID: action.id} | {f"{ACTION_ID}.{name}": value for name, value in features.items()}


def rank_response(body: wire.RankRequest, key: str, row: Decision) -> wire.RankResponse:
    """The response to a Rank call whose decision is `row`."""
    return wire.RankResponse(
        ranking=_ranking([action.id for action in body.actions], row),
        event_id=key,
        reward_action_id=row.arm,
    )


def _ranking(ids: Sequence[str], row: Decision) -> list[wire.RankedAction]:
    """The chosen action, then the others by their probabilities; excluded actions keep their places."""
    probabilities = row.probabilities
    # Sorting is stable, so actions with equal probabilities keep their order.
    eligible = sorted(row.eligible, key=lambda arm: (arm != row.arm, -probabilities[arm]))
    remaining = iter(eligible)
    order = [next(remaining) if each in probabilities else each for each in ids]
    return [wire.RankedAction(id=each, probability=probabilities.get(each, 0.0)) for each in order]
