"""Response bodies about the contexts of an experiment."""

from __future__ import annotations

from typing import Literal

from maillard.wire_schema.requests import UtcTime
from maillard.wire_schema.responses import _Response


class ContextArm(_Response):
    """The decisions of a segment that chose an arm."""

    arm: str | None
    "null: all arms beyond the first 20."
    decisions: int
    rewards: int
    mean: float | None


class ContextSegment(_Response):
    """The decisions with one value of a key, or with one part of the declared range of a number."""

    value: str | None
    "null: the key is missing, or all other values."
    decisions: int
    fraction: float
    "The fraction of all decisions with a context."
    rewards: int
    mean: float | None
    "The plain mean of the rewards, whatever the policy chose."
    arms: list[ContextArm]


class ObservedFeature(_Response, omit_defaults=True):
    """What was observed of a feature, compared with its declaration, since the features last changed."""

    name: str
    type: Literal["number", "flag", "category", "hashed"]
    decisions: int
    "With a value."
    missing: int
    "Without a value, so that the default was used."
    low: float | None = None
    high: float | None = None
    observed_low: float | None = None
    observed_high: float | None = None
    clipped: int | None = None
    "Values outside of the declared range from `low` to `high`."
    levels: int | None = None
    other: int | None = None
    "Values that are none of the levels."
    values: int | None = None
    "Different values; at most 51 are counted."
    buckets: int | None = None
    buckets_used: int | None = None
    largest_bucket: int | None = None
    "Decisions in the bucket with the most of them."
    true: int | None = None


class ContextActivity(_Response):
    """Traffic and rewards by the values of a key of the context, and the observed features."""

    experiment: str
    as_of: UtcTime | None
    complete: bool
    "Whether the whole log has been read up to `as_of`."
    decisions: int
    without_context: int
    "Decisions without a context, or whose unit was erased. They are in no segment."
    keys: list[str]
    "The keys that `by` can be: the declared ones, then others that appeared; at most 20."
    by: str | None
    segments: list[ContextSegment]
    other: ContextSegment | None
    "All other values: only the largest 12 of the first 50 different values are listed."
    features: list[ObservedFeature]
    notes: list[str]
    "What the numbers are, in words."
