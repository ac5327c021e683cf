"""Response bodies about the activity of an experiment: traffic, rewards over time and the audit."""

from __future__ import annotations

from typing import Any, Literal

from maillard.wire_schema.requests import UtcTime
from maillard.wire_schema.responses import _Response


class ArmTraffic(_Response):
    """How often an arm was chosen."""

    arm: str
    decisions: int
    fraction: float
    "The fraction of all decisions."


class RewardSeriesPoint(_Response):
    """The rewards of one time interval."""

    at: UtcTime
    rewards: int
    mean: float | None
    arms: dict[str, Any]


class RewardSeries(_Response):
    """Rewards over time."""

    bucket: float
    "The length of each time interval, in seconds."
    points: list[RewardSeriesPoint]
    until: UtcTime | None
    "Later decisions are left out, because their reward windows are open."


class ArmCalibration(_Response):
    """How often an arm was chosen, compared with the sum of its logged probabilities."""

    arm: str
    chosen: int
    expected: float
    z: float | None


class MeanWeight(_Response):
    """The mean of the truncated importance weights, compared with its expectation."""

    mean: float | None
    expected: float | None
    z: float | None


class Audit(_Response):
    """Whether the chosen arms agree with the logged probabilities."""

    verdict: Literal["consistent", "broken", "not enough data", "cannot be audited"]
    limit: float
    left_out: int
    impossible: int
    arms: list[ArmCalibration]
    weights: MeanWeight


class Activity(_Response):
    """Traffic, rewards over time and the audit, computed from the log."""

    experiment: str
    as_of: UtcTime | None
    complete: bool
    "Whether the whole log has been read up to `as_of`. After a restart, reading a long log takes some time."
    decisions: int
    rewards: int
    arms: list[ArmTraffic]
    series: RewardSeries
    audit: Audit
