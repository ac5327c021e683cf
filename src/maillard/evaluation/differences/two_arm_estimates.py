"""Estimators of the difference of two arms, which keep the rewards of all rows in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.errors import InvalidValue
from maillard.evaluation.estimates import NOT_FOR_ACTIONS, NOT_FOR_CONTEXTS, Refused
from maillard.evaluation.evaluation_report import Estimate


def two_arm_estimate(name: str, pair: Any, penalty: float | None) -> Estimate:
    """The difference of two arms from the rows that a pair of reports has kept."""
    if pair.evidence.log.action_names is not None:
        raise Refused(NOT_FOR_ACTIONS)
    arms = [target.only_arm for target in pair.targets]
    if None in arms:
        raise Refused("it is for the difference of two arms")
    if pair.evidence.log.contextual:
        raise Refused(NOT_FOR_CONTEXTS)
    if pair.evidence.sums.repeated or pair.evidence.query.by_unit:
        raise Refused("it needs rows that are chosen independently")
    columns = [np.concatenate(each) for each in zip(*pair.kept, strict=True)]
    try:
        found, interval, assumes = TWO_ARMS[name](
            columns, arms, pair.evidence.query.settings.confidence, penalty
        )
    except InvalidValue as error:
        raise Refused(str(error)) from None
    ends = {end: getattr(found, end) for end in ("value", "lower", "upper")}
    return Estimate(name=name, interval=interval, assumes=assumes, **ends)


def _batched(columns: list[Any], arms: list[Any], confidence: float, _: float | None) -> tuple[Any, str, str]:
    from maillard.evaluation.differences.batched_difference import batched_difference

    found = batched_difference(*columns, *arms, confidence=confidence)
    assumes = (
        "batches (those of the log's states) whose ends do not depend on their rewards, and the same "
        "variance for both arms"
    )
    return found, f"least squares in each of {found.batches:,} batches", assumes


def _decorrelated(
    columns: list[Any], arms: list[Any], confidence: float, penalty: float | None
) -> tuple[Any, str, str]:
    from maillard.evaluation.differences.decorrelation import decorrelated_difference

    if penalty is None:
        raise Refused(
            "it needs penalty=..., chosen without the rewards (differences.decorrelation.choose_penalty)"
        )
    found = decorrelated_difference(*columns[:2], *arms, penalty=penalty, confidence=confidence)
    assumes = "the same variance for both arms, and a penalty chosen without the rewards"
    return found, "W-decorrelation", assumes


# By name: a function of (arms, rewards and batches of the rows), (the two arms), the confidence and the
# penalty. It returns the difference, the type of its interval and what that assumes.
TWO_ARMS = {"bols": _batched, "w-decorrelation": _decorrelated}
