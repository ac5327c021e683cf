"""Response bodies of evaluations."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import field

from maillard.wire_schema.responses import _Response


class SegmentEvaluation(_Response):
    """The result for one segment: the decisions with the same values of some keys of the context."""

    segment: dict[str, str]
    "The values. (missing): without a value; (other): the segments that are too small, pooled."
    decisions: int
    has_estimate: bool
    estimator: str | None
    value: float | None
    lower: float | None
    upper: float | None
    confidence: float
    "The confidence of this interval alone. It is so high that all segments together have the one requested."
    assumes: str
    caveat: str
    refusal: str | None
    logged_mean: float | None
    rows: int
    "The number of decisions that were used."
    warnings: list[str]
    population: str


class Evaluation(_Response):
    """The mean reward under another policy, with its interval, or why the log cannot answer."""

    estimand: str
    kind: Literal["evaluation", "replay", "comparison"]
    target: str
    experiment: str
    has_estimate: bool
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
    "The number of decisions that were used."
    pending: int
    "The number of decisions that were not used, because their reward windows are open."
    warnings: list[str]
    "What a reader must know before using the estimate, for example that the means changed over time."
    population: str
    "The decisions that the estimate is about, if it is not about all of them."
    details: dict[str, Any]
    by: list[str] | None = None
    segments: list[SegmentEvaluation] = field(default_factory=list)
    "With `by`, one for each segment, the largest first. Their intervals are valid together."
    notes: list[str] = field(default_factory=list)
    "Which segments were pooled."
