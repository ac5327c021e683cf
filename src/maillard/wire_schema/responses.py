"""Response bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from maillard.wire_schema.requests import Reward, UtcTime

NO_CONTEXT = Raw(b"null")
Status = Literal["running", "paused", "archived"]
Standing = Literal["leads", "undecided", "ruled out"]
Outcome = Literal["applied", "revised", "unchanged", "waiting", "old epoch", "duplicate", "parked", "late"]


class _Response(Struct, kw_only=True):
    """A response body. The client ignores fields that are not declared."""


class ErrorDetail(_Response):
    """Why a request failed."""

    code: str
    "The kind of error, as `MaillardError.code`."
    message: str
    path: str | None = None
    "The JSON path of the wrong field, or the name of the wrong header."
    request_id: str | None = None
    field: str | UnsetType = UNSET
    "With code `invalid_value`: the wrong argument, if the error is not about the JSON itself."
    allowed: str | UnsetType = UNSET
    "With code `invalid_value`: the values that are allowed."
    kind: str | UnsetType = UNSET
    "With codes `unknown_name` and `not_found`: what the name should be the name of, as in `arm`."
    name: str | UnsetType = UNSET
    "With codes `unknown_name` and `not_found`: the name that does not exist."
    known: list[str] | UnsetType = UNSET
    "With code `unknown_name`: names that exist, at most 60."


class ErrorResponse(_Response):
    """The body of every response that is not a success."""

    error: ErrorDetail


class Health(_Response):
    """Whether the process is alive (`ok`), or can write to the log (`ready`)."""

    status: Literal["ok", "ready"]


class Erasure(_Response):
    """The number of decisions in which the unit's name and idempotency keys were replaced by a token."""

    decisions: int


class Permissions(_Response):
    """What the caller may do."""

    scopes: list[str]
    experiments: list[str] | None
    "The experiments to which the key is limited; null means all."
    open: bool
    "Whether the service was started with --no-keys: every program on its machine may do everything."
    version: str


class PolicyInfo(_Response):
    """A policy that an experiment can use."""

    name: str
    summary: str
    parameters: list[str]


class Policies(_Response):
    """All policies."""

    policies: list[PolicyInfo]


class ExperimentConfiguration(_Response):
    """The configuration of an experiment. Its ETag changes with every change of the configuration."""

    experiment: str
    status: Status
    arms: list[str]
    retired: list[str]
    policy: str
    policy_version: int
    epoch: int
    sticky: bool
    reward: Reward
    created_at: UtcTime
    hints: list[str] = []
    "Advice on the configuration, in words."
    features: dict[str, Any] | None = None
    "How contexts become numbers; null if choices do not depend on features."
    model: Literal["disjoint", "shared"] | None = None
    feature_version: int = 0
    attributes: dict[str, dict[str, Any]] | None = None
    "The attributes of each arm, if a shared model has fixed arms."
    segments: list[str] | None = None
    "The keys of the context that have tallies for their values; null without segments."


class ListedExperiment(ExperimentConfiguration):
    """An experiment with its traffic and its leader."""

    decisions: int = 0
    "The number of decisions in the log, up to a few seconds ago."
    traffic: list[int] = []
    "The decisions of each of the last 24 hours by the clock, the present hour last."
    leader: str | None = None
    "The arm that leads, as in the verdict of `state`; null if contexts or rewards that are not final matter."


class ExperimentList(_Response):
    """Experiments, ordered by name."""

    experiments: list[ListedExperiment]
    complete: bool = True
    "Whether `decisions` and `traffic` count the whole log; false while it is read after a restart."


class Decision(_Response):
    """A decision, with the probabilities from which its arm was sampled."""

    id: str
    experiment: str
    time: UtcTime
    arm: str
    probability: float
    log_probability: float
    probabilities: Annotated[
        Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "number"}})
    ]
    "The probability of each eligible arm."
    log_probabilities: Annotated[
        Raw, Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": ["number", "null"]}})
    ]
    "The logarithm of each probability; null for a probability of 0."
    policy_version: int
    formula_version: int
    state: int
    "The number of the last event that the probabilities take into account."
    epoch: int
    unit: str | None
    cold: bool
    "Whether the arm had no reward yet."
    origin: str | None
    "The unit's first decision, if this decision repeats its arm (sticky experiments)."
    idempotency_key: str | None
    position: int
    "The place of the decision in a call that made several."
    expires_at: UtcTime | None
    "When the reward window of the decision closes."
    context: Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})] = field(
        default_factory=lambda: NO_CONTEXT
    )
    "The context of the request; null without one, or after the unit was erased."
    actions: Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})] = field(
        default_factory=lambda: NO_CONTEXT
    )
    "The arms with their attributes, if the experiment has no fixed arms."
    feature_version: int = 0
    "1 for the first features of the experiment; 0 without features."


class DecisionBatchResult(_Response, omit_defaults=True):
    """The result of one entry of a batch: an HTTP status, and a decision or an error."""

    status: int
    decision: Decision | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class DecisionBatchResponse(_Response):
    """The results of a batch, in the order of its entries."""

    results: list[DecisionBatchResult]


class RewardResponse(_Response):
    """What happened to a reward. `applied`: it changes the tally, now or when its window closes."""

    decision: str
    event: str
    outcome: Outcome
    applied: bool
    late: bool


class RewardBatchResult(_Response, omit_defaults=True):
    """The result of one entry of a batch: an HTTP status, and an outcome or an error."""

    status: int
    reward: RewardResponse | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class RewardBatchResponse(_Response):
    """The results of a batch, in the order of its entries."""

    results: list[RewardBatchResult]


class ArmState(_Response):
    """The tally of an arm, the mean of its final rewards, and its current probability."""

    arm: str
    active: bool
    pulls: int
    "The number of rewards in the tally, which the policy uses."
    sum: float
    final: int
    "The number of final rewards: of decisions whose window has closed, or that have no window."
    pending: int
    "The number of decisions whose window is open."
    missing: int
    "The number of decisions that got no reward, and have no open window."
    mean: float | None
    "The mean of the final rewards."
    lower: float | None
    upper: float | None
    probability: float | None
    "The probability that the next decision, among all arms, chooses this arm; null if contexts matter."
    log_probability: float | None
    standing: Standing | None = None
    "Its place in the verdict; null if there is no verdict, and for retired arms."
    more_decisions: int | None = None
    "If it is undecided: about how many more decisions are needed; null if this cannot be estimated."


class VerdictPart(_Response, kw_only=False):
    """A part of a verdict."""

    text: str
    arm: str | None = None
    "The arm, if the part is the name of an arm, which may be shortened or in quotation marks."


class Verdict(_Response):
    """Which arm leads, and which arms are ruled out or undecided, in words. It is valid at any time."""

    text: str
    parts: list[VerdictPart]
    "The text in parts, so that a page can mark the names of arms."
    leader: str | None
    "The arm with the highest lower bound (without intervals, the highest mean), if there is one."
    best: bool
    "Whether all other active arms are ruled out."
    confidence: float
    "The probability that no best arm is ever ruled out."
    explanation: str
    "What the words mean, or why there is no verdict."


class IntervalInfo(_Response):
    """What kind of interval `lower` and `upper` are, or why there is none."""

    confidence: float
    kind: str
    refusal: str | None


class State(_Response):
    """The tally of an experiment and its current probabilities."""

    experiment: str
    status: Status
    policy: str
    policy_version: int
    epoch: int
    state: int
    "The number of the last event."
    arms: list[ArmState]
    units: int
    "The number of different units in this epoch."
    interval: IntervalInfo
    pending: int
    "The number of decisions whose window is open."
    next_close: UtcTime | None
    "When the next window closes."
    note: str | None
    "When the policy learns from a decision, in words."
    verdict: Verdict | None = None
    "Older services have none."


class VerificationProblem(_Response):
    """A contradiction in the log."""

    decision: str | None
    what: str


class ArmScore(_Response):
    """How many standard deviations an arm's count is from its expectation; null without enough data."""

    arm: str
    z: float | None


class ChainHead(_Response):
    """The end of an experiment's hash chain, as `verify` accepts it for an anchor."""

    commit: int
    "The number of commits so far; 0 if the log has no chain yet."
    hash: str
    time: UtcTime | None


class Verification(_Response):
    """The result of recomputing every probability and auditing the choices."""

    experiment: str
    verdict: Literal["consistent", "broken", "not enough data", "cannot be audited"]
    decisions: int
    recomputed: int
    largest_error: float
    problems: list[VerificationProblem]
    problem_count: int
    arms: list[ArmScore]
    weights_z: float | None
    head: ChainHead
    "The end of the hash chain that was checked."
    erased: int
    "Decisions whose unit was erased."
    unchained: int
    "Decisions that were logged before the log had a hash chain."
    pruned: int
    "Decisions that were pruned. They are not among `decisions`, and the chain is checked from then on."
