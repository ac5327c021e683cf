"""Request bodies, and the types of their values."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from maillard.decisions.reward_rule import Reward as RewardRule
from maillard.decisions.timestamps import DURATION_PATTERN

MAX_ITEMS = 1_000
"The largest number of entries in a batch, and of arms in an experiment."

_NO_NUL = r"^[^\x00]*$"
# The log checks the characters of a name, so the pattern is only for the OpenAPI document.
Name = Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema={"pattern": _NO_NUL})]
# The name of a new experiment is part of URLs, so it has only characters that need no escaping.
ExperimentName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$(?!\n)", max_length=128, examples=["home"])
]
PolicySpec = Annotated[str, Meta(min_length=1, max_length=2_000, pattern=_NO_NUL, examples=["ms+:booster=8"])]
Text = Annotated[str, Meta(min_length=1, max_length=512)]  # of keys of contexts and of estimators
ArmNames = Annotated[list[Name], Meta(min_length=1, max_length=MAX_ITEMS)]
Attributes = dict[str, str | int | float | bool | None]
ArmAttributes = Annotated[dict[Name, Attributes], Meta(min_length=1, max_length=MAX_ITEMS)]
DECISION_ID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
DecisionId = Annotated[str, Meta(pattern=DECISION_ID + r"(?!\n)", description="A UUID of version 7.")]
UtcTime = Annotated[datetime, Meta(tz=True)]
Time = UtcTime | Annotated[float, Meta(ge=0, lt=253_402_300_800, description="Seconds since 1970.")]
EvaluationTarget = Annotated[
    str, Meta(min_length=1, max_length=20_000, pattern=_NO_NUL, examples=["arm:blue"])
]


class _Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body. The decoder rejects fields that are not declared."""


class Reward(_Request):
    """The reward rule of an experiment. Policies derive a variance from `low` and `high`."""

    low: float | None = None
    high: float | None = None
    window: float | Annotated[str, Meta(pattern=DURATION_PATTERN, examples=["1h"])] | None = None
    "How long after its decision a reward may arrive: seconds, or a number with a unit s, m, h, d or w."
    default: float | None = None
    "The reward of a decision whose window closes without one."
    combine: Literal["first", "last", "sum", "max"] = "first"
    "How several rewards of one decision are combined."
    learn: Literal["on_close", "provisional", "on_arrival"] | None = None
    "When a decision counts. By default on_close if both window and default are set, else on_arrival."
    binary: bool = False
    "Whether a reward is 0 or 1 and nothing else. It needs low=0 and high=1."

    def to_rule(self) -> RewardRule:
        """The rule as a `maillard.Reward`."""
        return RewardRule(**{name: getattr(self, name) for name in self.__struct_fields__})

    @classmethod
    def from_rule(cls, rule: RewardRule) -> Reward:
        """The wire form of a `maillard.Reward`."""
        return cls(**{name: getattr(rule, name) for name in cls.__struct_fields__})


class FeatureDeclaration(_Request):
    """How attributes become the numbers of a linear model, as `Features.to_json` writes it."""

    features: Annotated[list[dict[str, Any]], Meta(max_length=MAX_ITEMS)]
    "Each with `name`, `type` (number, flag, category or hashed) and the options of the type."
    crosses: Annotated[list[list[Name]], Meta(max_length=MAX_ITEMS)] = []
    "Pairs of features whose columns are multiplied."
    intercept: bool = True
    rest: dict[str, Any] | None = None
    "How undeclared keys are hashed; null if they are refused."
    rest_crosses: dict[str, Any] | None = None
    "How each undeclared key of the context with each one of an arm is hashed; null if they are not."
    version: Literal[1, 2] = 1


class NewExperiment(_Request):
    """The configuration of a new experiment."""

    experiment: ExperimentName
    arms: Annotated[list[Name], Meta(max_length=MAX_ITEMS)] | ArmAttributes
    "Names; or names with attributes, for a shared model. Without any, a shared model needs actions."
    policy: PolicySpec | None = None
    "By default kl-ms+:floor=0.1 for rewards from 0 to 1, and ms+:floor=0.1 for other ranges."
    reward: Reward = field(default_factory=Reward)
    sticky: bool = False
    "Whether a unit keeps the arm of its first decision."
    features: FeatureDeclaration | None = None
    "Makes choices depend on the context, with a linear policy (by default lin-ms:floor=0.1)."
    model: Literal["disjoint", "shared"] | None = None
    "One linear model for each arm (disjoint, the default), or one for all arms."
    segments: Annotated[list[Text], Meta(min_length=1, max_length=20)] | None = None
    "Keys of the context: one tally for each combination of their values."


class ExperimentChange(_Request):
    """A change of an experiment: a new policy, or new features. Give one of them."""

    policy: PolicySpec | UnsetType = UNSET
    "It gets the next policy version."
    features: FeatureDeclaration | UnsetType = UNSET
    "If columns are only appended, what was learned stays. Otherwise a new epoch begins."


class NewArm(_Request):
    """An arm to add, or a retired arm to use again."""

    arm: Name
    features: Attributes | None = None
    "The attributes of the arm, if all arms share one model."


class UnitToErase(_Request):
    """The unit whose name is to be erased from the log of an experiment."""

    unit: Name


class DecisionRequest(_Request):
    """The unit that a decision is for, and the arms to choose from (by default, all active ones)."""

    unit: Name | None = None
    eligible: ArmNames | None = None
    context: Attributes | None = None
    "What is known about the decision: names with text, numbers, flags or null."
    actions: ArmAttributes | None = None
    "The arms of this decision with their attributes, if the experiment has no fixed arms."


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
    """A target to evaluate.

    It is arm:NAME, uniform, dist:NAME=PROBABILITY,..., a rule (rule:device=phone->blue,else->red),
    frozen:NUMBER (the policy as it was after that event), or the spec of a policy.
    """

    target: EvaluationTarget
    against: EvaluationTarget | None = None
    "Another target: the result is then the difference, over decisions in which both could have been chosen."
    estimators: Annotated[list[Text], Meta(min_length=1, max_length=40)] | None = None
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    second_moment: Annotated[float, Meta(gt=0, le=1e200)] | None = None
    "A bound on the mean squared reward of every arm, for rewards with heavy tails such as revenue."
    by: Annotated[list[Text], Meta(min_length=1, max_length=20)] | None = None
    "Keys of the context: the result then also has an estimate for each segment."
