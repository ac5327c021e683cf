"""Request bodies."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from maillard.decisions.reward_rule import Reward as RewardRule
from maillard.wire_schema.value_types import (
    MAX_ITEMS,
    ArmNames,
    DecisionId,
    EvaluationTarget,
    ExperimentName,
    Name,
    PolicySpec,
    Time,
)

__all__ = [
    "DecisionBatchEntry",
    "DecisionBatchRequest",
    "DecisionRequest",
    "EvaluationRequest",
    "NewArm",
    "NewExperiment",
    "PolicyChange",
    "Reward",
    "RewardBatchEntry",
    "RewardBatchRequest",
    "RewardRequest",
]


class _Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body. The decoder rejects fields that are not declared."""


class Reward(_Request):
    """The reward rule of an experiment. Policies derive a variance from `low` and `high`."""

    low: float | None = None
    high: float | None = None
    window: float | None = None
    "How long after its decision a reward may arrive, in seconds."
    default: float | None = None
    "The reward of a decision whose window closes without one."
    combine: Literal["first", "last", "sum", "max"] = "first"
    "How several rewards of one decision are combined."
    mature_only: bool = False
    "Apply a reward when its window closes, and not before."

    def to_rule(self) -> RewardRule:
        """The rule as a `maillard.Reward`."""
        return RewardRule(**{name: getattr(self, name) for name in self.__struct_fields__})

    @classmethod
    def from_rule(cls, rule: RewardRule) -> Reward:
        """The wire form of a `maillard.Reward`."""
        return cls(**{name: getattr(rule, name) for name in cls.__struct_fields__})


class NewExperiment(_Request):
    """The configuration of a new experiment."""

    experiment: ExperimentName
    arms: ArmNames
    policy: PolicySpec
    reward: Reward = field(default_factory=Reward)
    sticky: bool = False
    "Whether a unit keeps the arm of its first decision."


class PolicyChange(_Request):
    """A new policy for an experiment. It gets the next policy version."""

    policy: PolicySpec


class NewArm(_Request):
    """An arm to add, or a retired arm to use again."""

    arm: Name


class DecisionRequest(_Request):
    """The unit that a decision is for, and the arms to choose from (by default, all active ones)."""

    unit: Name | None = None
    eligible: ArmNames | None = None


class DecisionBatchEntry(DecisionRequest):
    """One decision of a batch. A repeated idempotency key returns the same decision again."""

    idempotency_key: Name | None = None


class DecisionBatchRequest(_Request):
    """Several decisions to make."""

    decisions: Annotated[list[DecisionBatchEntry], Meta(max_length=MAX_ITEMS)]


class RewardRequest(_Request):
    """A reward of a decision; `event` tells several rewards of one decision apart."""

    value: float
    at: Time | None = None
    "When the reward occurred: a time with an offset, or seconds since 1970; by default now."
    event: Name | None = None


class RewardBatchEntry(RewardRequest, kw_only=True):
    """One reward of a batch."""

    decision: DecisionId


class RewardBatchRequest(_Request):
    """Several rewards to log."""

    rewards: Annotated[list[RewardBatchEntry], Meta(max_length=MAX_ITEMS)]


class EvaluationRequest(_Request):
    """A policy to evaluate: arm:NAME, uniform, dist:NAME=PROBABILITY,... or the spec of a policy."""

    target: EvaluationTarget
    estimators: Annotated[list[Name], Meta(min_length=1, max_length=40)] | None = None
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
