"""What requests and answers look like: data that the decoder, the OpenAPI document and the tests all read."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from maillard.decisions.rules import Reward as Rule

__all__ = [
    "MOST_ITEMS",
    "Activity",
    "ArmToAdd",
    "Change",
    "Decision",
    "DecisionBatch",
    "DecisionToMake",
    "DecisionsMade",
    "Error",
    "Evaluation",
    "Experiment",
    "Experiments",
    "Failure",
    "Health",
    "KeyedDecision",
    "MadeDecision",
    "NewExperiment",
    "Permissions",
    "Policies",
    "PolicyInfo",
    "Question",
    "Reward",
    "RewardAnswer",
    "RewardBatch",
    "RewardRule",
    "RewardTaken",
    "RewardToGive",
    "RewardsTaken",
    "State",
    "StateArm",
    "StateInterval",
    "Verification",
]

MOST_ITEMS = 1_000
"Of a batch, and arms of an experiment."

_NO_NUL = r"^[^\x00]*$"
# (What a name may hold is checked where it enters the log; here it is only described, for it would be looked for twice.)
Name = Annotated[str, Meta(min_length=1, max_length=512, extra_json_schema={"pattern": _NO_NUL})]
# A key is part of paths, so it has only characters that need no escape there.
Key = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$(?!\n)", max_length=128, examples=["home"])
]
Spec = Annotated[str, Meta(min_length=1, max_length=2_000, pattern=_NO_NUL, examples=["ms+:booster=8"])]
Names = Annotated[list[Name], Meta(min_length=1, max_length=MOST_ITEMS)]
# An arm is retired by its path, and no URL can end in . or ..
Arm = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^(?!\.\.?$)[^\x00]*$")]
Arms = Annotated[list[Arm], Meta(min_length=1, max_length=MOST_ITEMS)]
DecisionId = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$(?!\n)",
        description="A UUID of version 7.",
    ),
]
Time = (
    Annotated[datetime, Meta(tz=True)]
    | Annotated[float, Meta(ge=0, lt=253_402_300_800, description="Seconds since 1970.")]
)
Moment = Annotated[datetime, Meta(tz=True)]
Status = Literal["running", "paused", "archived"]
Outcome = Literal["learned", "revised", "unchanged", "waiting", "old epoch", "duplicate", "parked", "late"]


class _Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """What comes in: nothing that is not known."""


class _Answer(Struct, kw_only=True):
    """What goes out."""


# Requests.


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
    arms: Arms
    policy: Spec
    reward: RewardRule = field(default_factory=RewardRule)
    sticky: bool = False
    "Whether a unit keeps the arm that was first drawn for it."


class Change(_Request):
    """What of an experiment can be changed: a new policy makes a new version of it."""

    policy: Spec


class ArmToAdd(_Request):
    """A new arm, or one that was retired."""

    arm: Arm


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

    target: Annotated[str, Meta(min_length=1, max_length=20_000, pattern=_NO_NUL, examples=["arm:blue"])]
    estimators: Annotated[list[Name], Meta(min_length=1, max_length=40)] | None = None
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95


# Answers.


class Failure(_Answer):
    """What was wrong."""

    code: str
    message: str
    path: str | None = None
    "To the field that was wrong."
    request_id: str | None = None


class Error(_Answer):
    """The body of every answer that is no success."""

    error: Failure


class Health(_Answer):
    """Whether the service lives, or can write."""

    status: Literal["ok", "ready"]


class Permissions(_Answer):
    """What the caller may do."""

    scopes: list[str]
    experiments: list[str] | None
    "Those that the key is limited to; null: all."
    open: bool
    "Whether no key has been made yet, so that everyone on this machine may do everything."
    version: str


class PolicyInfo(_Answer):
    """A policy that an experiment can have."""

    name: str
    summary: str
    parameters: list[str]


class Policies(_Answer):
    """All policies."""

    policies: list[PolicyInfo]


class Experiment(_Answer):
    """An experiment as it is configured; its ETag changes whenever this does."""

    key: str
    status: Status
    arms: list[str]
    retired: list[str]
    policy: str
    policy_version: int
    epoch: int
    sticky: bool
    reward: RewardRule
    created_at: Moment


class Experiments(_Answer):
    """Experiments, by their keys."""

    experiments: list[Experiment]


class Decision(_Answer):
    """A choice, and the law that it was drawn from."""

    decision_id: str
    experiment: str
    arm: str
    probability: float
    log_probability: float
    probabilities: Annotated[
        Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "number"}})
    ]
    "Of each arm that could have been drawn."
    log_probabilities: Annotated[
        Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": ["number", "null"]}})
    ]
    "Their logarithms; null where a choice was impossible."
    policy_version: int
    formula_version: int
    state_version: int
    "The number of the last event that the law knew of."
    epoch: int
    unit: str | None
    cold: bool
    "Whether the arm had no reward yet."
    origin: str | None
    "The decision that drew the arm, where this one repeats it for a unit that keeps its arm."
    idempotency_key: str | None
    decided_at: Moment
    expires_at: Moment | None
    "When the window for its rewards closes."


class MadeDecision(_Answer, omit_defaults=True):
    """One of a batch: its status as that of a request of its own, and its decision or what was wrong."""

    status: int
    decision: Decision | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class DecisionsMade(_Answer):
    """The decisions of a batch, in its order."""

    results: list[MadeDecision]


class RewardAnswer(_Answer):
    """What became of a reward. `applied`: whether it changes what is learned, now or when its window closes."""

    decision_id: str
    event: str
    outcome: Outcome
    applied: bool
    late: bool


class RewardTaken(_Answer, omit_defaults=True):
    """One of a batch: its status as that of a request of its own, and what became of it or what was wrong."""

    status: int
    reward: RewardAnswer | UnsetType = UNSET
    error: Failure | UnsetType = UNSET


class RewardsTaken(_Answer):
    """The rewards of a batch, in its order."""

    results: list[RewardTaken]


class StateArm(_Answer):
    """What is known of an arm."""

    arm: str
    active: bool
    pulls: int
    sum: float
    mean: float | None
    lower: float | None
    upper: float | None
    probability: float
    "That the next choice, among all arms, is this one."
    log_probability: float | None


class StateInterval(_Answer):
    """What the bounds `lower` and `upper` of each mean are, or why there are none."""

    confidence: float
    kind: str
    refusal: str | None


class State(_Answer):
    """What an experiment has learned, and what it would choose."""

    key: str
    status: Status
    policy: str
    policy_version: int
    epoch: int
    state_version: int
    arms: list[StateArm]
    interval: StateInterval


class Traffic(_Answer):
    """How often an arm was chosen."""

    arm: str
    decisions: int
    share: float


class Point(_Answer):
    """Rewards learned in a while."""

    at: Moment
    rewards: int
    mean: float | None
    arms: dict[str, Any]


class Series(_Answer):
    """Rewards over time."""

    bucket_s: float
    points: list[Point]


class Calibration(_Answer):
    """How often an arm was chosen, against how often it should have been."""

    arm: str
    chosen: int
    expected: float
    z: float | None


class Weights(_Answer):
    """The mean of the weights that evaluation uses, truncated, against what it should be."""

    mean: float | None
    expected: float | None
    z: float | None


class AuditAnswer(_Answer):
    """Whether the draws agree with the probabilities."""

    verdict: Literal["holds", "broken", "not enough data"]
    limit: float
    left_out: int
    impossible: int
    arms: list[Calibration]
    weights: Weights


class Activity(_Answer):
    """What happened so far, from the log alone."""

    key: str
    as_of: Moment | None
    complete: bool
    "Whether the log was read up to then; a long one takes a while after a start."
    decisions: int
    rewards: int
    arms: list[Traffic]
    series: Series
    audit: AuditAnswer


class Evaluation(_Answer):
    """What would have been, with its interval, or why that cannot be said."""

    question: str
    kind: Literal["evaluation", "replay"]
    target: str
    experiment: str
    answered: bool
    estimator: str | None
    value: float | None
    lower: float | None
    upper: float | None
    confidence: float
    assumes: str
    caveat: str
    refusal: str | None
    logged_mean: float | None
    rows: int
    details: dict[str, Any]


class Contradiction(_Answer):
    """Something in the log that contradicts the rest of it."""

    decision: str | None
    what: str


class ArmScore(_Answer):
    """Standard deviations from what is expected; null: not enough data."""

    arm: str
    z: float | None


class Verification(_Answer):
    """Every probability computed again, and the draws audited."""

    experiment: str
    verdict: Literal["holds", "broken", "not enough data"]
    decisions: int
    recomputed: int
    largest_error: float
    problems: list[Contradiction]
    problem_count: int
    arms: list[ArmScore]
    weights_z: float | None
