"""What requests hold."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from maillard.decisions.reward_rule import Reward as Rule
from maillard.service.messages.kinds import (
    MOST_ITEMS,
    DecisionId,
    Key,
    Name,
    Names,
    Spec,
    Target,
    Time,
)

__all__ = [
    "ArmToAdd",
    "Change",
    "DecisionBatch",
    "DecisionToMake",
    "KeyedDecision",
    "NewExperiment",
    "Question",
    "Reward",
    "RewardBatch",
    "RewardRule",
    "RewardToGive",
]


class _Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """What comes in: nothing that is not known."""


class RewardRule(_Request):
    """What a reward is. With `low` and `high`, policies that need a variance have one."""

    low: float | None = None
    high: float | None = None
    window_s: float | None = None
    "How long after its decision a reward may arrive, in seconds."
    default: float | None = None
    "The reward of a decision whose window closes without one."
    aggregate: Literal["first", "last", "sum", "max"] = "first"
    "What several rewards of one decision come to."
    mature_only: bool = False
    "Learn rewards when their window closes, not before."

    def rule(self) -> Rule:
        """The rule that decisions keep to."""
        return Rule(
            low=self.low,
            high=self.high,
            window=self.window_s,
            default=self.default,
            combine=self.aggregate,
            mature_only=self.mature_only,
        )

    @classmethod
    def of(cls, rule: Rule) -> RewardRule:
        """The rule in the words of the API."""
        return cls(
            low=rule.low,
            high=rule.high,
            window_s=rule.window,
            default=rule.default,
            aggregate=rule.combine,  # type: ignore[arg-type]  # one of the four
            mature_only=rule.mature_only,
        )


class NewExperiment(_Request, kw_only=True):
    """An experiment to begin."""

    key: Key
    arms: Names
    policy: Spec
    reward: RewardRule = field(default_factory=RewardRule)
    sticky: bool = False
    "Whether a unit keeps the arm that was first drawn for it."


class Change(_Request):
    """What of an experiment can be changed: a new policy makes a new version of it."""

    policy: Spec


class ArmToAdd(_Request):
    """A new arm, or one that was retired."""

    arm: Name


class DecisionToMake(_Request):
    """For whom a choice is, and among which arms; by default among all that are not retired."""

    unit: Name | None = None
    eligible: Names | None = None


class KeyedDecision(DecisionToMake):
    """A choice of a batch: the same key again gives the same decision again."""

    idempotency_key: Name | None = None


class DecisionBatch(_Request):
    """Several choices."""

    decisions: Annotated[list[KeyedDecision], Meta(max_length=MOST_ITEMS)]


class Reward(_Request):
    """A reward of a decision; `event` tells several of one decision apart."""

    value: float
    occurred_at: Time | None = None
    "With an offset, or seconds since 1970; by default now."
    event: Name | None = None


class RewardToGive(Reward, kw_only=True):
    """A reward of a batch."""

    decision_id: DecisionId


class RewardBatch(_Request):
    """Several rewards."""

    rewards: Annotated[list[RewardToGive], Meta(max_length=MOST_ITEMS)]


class Question(_Request):
    """What if? A target is arm:NAME, uniform, dist:NAME=SHARE,... or the spec of a policy that learns."""

    target: Target
    estimators: Annotated[list[Name], Meta(min_length=1, max_length=40)] | None = None
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
