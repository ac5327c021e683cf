"""What answers hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from maillard.service.messages.kinds import Moment, Outcome, Status
from maillard.service.messages.requests import RewardRule

__all__ = [
    "Activity",
    "ArmScore",
    "AuditAnswer",
    "Calibration",
    "Contradiction",
    "Decision",
    "DecisionsMade",
    "Error",
    "Evaluation",
    "Experiment",
    "Experiments",
    "Failure",
    "Health",
    "MadeDecision",
    "Permissions",
    "Point",
    "Policies",
    "PolicyInfo",
    "RewardAnswer",
    "RewardTaken",
    "RewardsTaken",
    "Series",
    "State",
    "StateArm",
    "StateInterval",
    "Traffic",
    "Verification",
    "Weights",
]


class _Answer(Struct, kw_only=True):
    """What goes out."""


class Failure(_Answer):
    """What was wrong."""

    code: str
    message: str
    path: str | None = None
    "To the field that was wrong."
    request_id: str | None = None
    kind: str | UnsetType = UNSET
    "With code `unknown_name`: what the name should be the name of, as in `arm`."
    name: str | UnsetType = UNSET
    "With code `unknown_name`: the name that does not exist."
    known: list[str] | UnsetType = UNSET
    "With code `unknown_name`: names that exist, at most 60."


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

    verdict: Literal["consistent", "broken", "not enough data"]
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
    verdict: Literal["consistent", "broken", "not enough data"]
    decisions: int
    recomputed: int
    largest_error: float
    problems: list[Contradiction]
    problem_count: int
    arms: list[ArmScore]
    weights_z: float | None
