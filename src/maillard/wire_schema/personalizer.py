"""The bodies of Personalizer's Rank, Reward and Activate calls, with the field names of that API."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_RANKED_ACTIONS = 50
"The largest number of actions in a Rank call."

EventId = Annotated[str, Meta(max_length=256)]
FeatureList = list[dict[str, Any]]


class _Body(Struct, kw_only=True, rename="camel"):
    """A body of Personalizer's API. Fields that are not declared are ignored, as Personalizer did."""


class RankableAction(_Body):
    """An action that a Rank call may choose."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    features: FeatureList | None = None


class RankRequest(_Body):
    """The context and the actions of a decision."""

    actions: Annotated[list[RankableAction], Meta(min_length=1, max_length=MAX_RANKED_ACTIONS)]
    context_features: FeatureList | None = None
    excluded_actions: list[str] | None = None
    "Ids of actions that must not be chosen."
    event_id: EventId | None = None
    "Names the decision in later calls; by default the response has a new one."
    defer_activation: bool | None = None
    "Whether the decision counts only after an Activate call."


class RankedAction(_Body):
    """An action and the probability with which it could have been chosen."""

    id: str
    probability: float


class RankResponse(_Body):
    """The chosen action, and the probabilities of all."""

    ranking: list[RankedAction]
    "The chosen action, then the others by their probabilities. An excluded action keeps its place."
    event_id: str
    reward_action_id: str
    "The chosen action, which the reward is for."


class PersonalizerReward(_Body):
    """The reward of an event."""

    value: float


class PersonalizerInnerError(_Body):
    """The code of an error in the other operations of this service."""

    code: str


class PersonalizerError(_Body, omit_defaults=True):
    """Why a call failed."""

    code: str
    "BadRequest, ResourceNotFound or InternalServerError, as in Personalizer; or the name of the status."
    message: str
    target: str | UnsetType = UNSET
    "The JSON path of the wrong field."
    inner_error: PersonalizerInnerError | UnsetType = UNSET


class PersonalizerErrorResponse(_Body):
    """The body of every response of Personalizer's API that is not a success."""

    error: PersonalizerError
