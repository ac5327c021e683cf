"""Rules of contexts and their statistics as plain data, as events and saved states contain them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from maillard.decisions.context_rules import ContextRule, ContextTally
from maillard.decisions.linear_contexts import LinearContexts, check_model
from maillard.decisions.segment_contexts import SegmentContexts, check_segments
from maillard.errors import InvalidValue
from maillard.features import Features
from maillard.linear_tally import LinearTally
from maillard.segment_tally import SegmentTally


def rule_from_data(data: object) -> ContextRule | None:
    """The rule that `to_data` wrote; InvalidValue if it is malformed."""
    if data is None:
        return None
    try:
        if isinstance(data, dict) and set(data) == {"segments", "limit"}:
            assert type(data["limit"]) is int
            assert data["limit"] > 0
            return SegmentContexts(keys=check_segments(data["segments"]), limit=data["limit"])
        assert isinstance(data, dict)
        assert set(data) == {"features", "model", "arms", "dynamic", "earlier"}
        rule = LinearContexts(
            features=features_from(data["features"]),
            model=check_model(data["model"]),
            dynamic=data["dynamic"] is True,
            earlier=tuple(map(features_from, data["earlier"])),
        )
        return replace(
            rule, arms={arm: rule.check_attributes(arm, values) for arm, values in data["arms"].items()}
        )
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue("context", data, "the features or segments of an experiment") from None


def features_from(data: object) -> Features:
    """The features that JSON data declares."""
    return Features.from_json(json.dumps(data))


def read_statistics(data: object) -> ContextTally | None:
    """Parse the statistics that `write_statistics` wrote, or None."""
    if data is None:
        return None
    kind = SegmentTally if isinstance(data, dict) and "segments" in data else LinearTally
    try:
        return kind.from_json(json.dumps(data))
    except (TypeError, RecursionError):
        raise InvalidValue("statistics", data, "what LinearTally or SegmentTally wrote as JSON") from None


def write_statistics(statistics: ContextTally) -> dict[str, Any]:
    """Statistics of contexts as plain data."""
    data: dict[str, Any] = json.loads(statistics.to_json())
    return data
