"""The confidence sequence of an arm's own rewards, without weights, for targets that are a single arm.

If the mean of an arm is constant and every visitor could have seen it, its rewards are a fair sample however
the policy chose when to show it. The interval is then that of `means`: it needs no probabilities and no
floor, and it is much narrower than weighted sequences if the arm had small probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from maillard.array_types import Floats
from maillard.errors import MaillardError
from maillard.evaluation.bound_targets import Target
from maillard.evaluation.estimators.estimator import CONFIDENCE_SEQUENCE, REWARD_RANGE
from maillard.evaluation.evaluation_log import EvaluationLog
from maillard.evaluation.means import mean_intervals
from maillard.evaluation.sequential.sequential_runner import SequentialEstimator

if TYPE_CHECKING:
    from maillard.evaluation.evidence import Evidence


@dataclass(frozen=True)
class ArmRewards:
    """The number and the sum of an arm's rewards, on the scale from 0 to 1.

    >>> rewards = ArmRewards(0, 0.95, np.zeros(2))
    >>> rewards.advance(arm=np.array([0, 1, 0]), reward=np.array([1.0, 1.0, 0.0]))
    >>> [round(each, 2) for each in rewards.bounds()]
    [0.5, 0.01, 0.99]
    """

    arm: int | None
    confidence: float
    run: Floats
    "The number of rewards and their sum."

    columns: ClassVar = ("arm", "reward")
    requires: ClassVar[tuple[str, ...]] = ()
    scales_rewards: ClassVar[bool] = True

    @classmethod
    def of(cls, log: EvaluationLog, target: Target, confidence: float) -> ArmRewards:  # noqa: ARG003
        """The state before the first row of a log."""
        return cls(target.only_arm, confidence, np.zeros(2))

    def advance(self, *, arm: Any, reward: Any) -> None:
        """Process more rows."""
        mine = np.asarray(reward)[np.asarray(arm) == self.arm]
        # Added one by one, so that the sum does not depend on how the log is chunked.
        self.run[:] = self.run[0] + mine.size, np.cumsum(np.append(self.run[1], mine))[-1]

    def bounds(self) -> tuple[float, float, float]:
        """The mean and the bounds of the confidence sequence."""
        count, total = self.run.tolist()
        ((lower, upper),) = mean_intervals([count], [total], 0.0, 1.0, self.confidence)
        if not count or lower is None or upper is None:
            return math.nan, 0.0, 1.0
        return total / count, lower, upper

    def __add__(self, other: object) -> ArmRewards:
        raise MaillardError("process the parts of a log in order instead of merging them")


class ArmMeanSequence(SequentialEstimator):
    """The mean of the arm's own rewards, with a confidence sequence (a Beta mixture)."""

    name: ClassVar[str] = "cs-arm"
    formula: ClassVar[str] = "mean of the arm's own rewards"
    interval: ClassVar[str] = CONFIDENCE_SEQUENCE
    assumes: ClassVar[str] = (
        "rewards in a known range, and arms that every visitor could have seen. The interval is valid at any "
        "time, regardless of how often you check"
    )
    for_contexts: ClassVar[bool] = False
    compares: ClassVar[bool] = False  # two arms may have been shown to different visitors
    constant_means: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = (REWARD_RANGE,)
    default_for: ClassVar[tuple[str, ...] | None] = (REWARD_RANGE,)
    sample_size: ClassVar[str] = ""
    needs_variance: ClassVar[bool] = False
    order: ClassVar[int] = 12
    priority: ClassVar[tuple[int, int]] = (99, 3)
    priority_without_floor: ClassVar[int | None] = 2
    state: ClassVar[type[ArmRewards]] = ArmRewards

    def result(self, state: ArmRewards) -> tuple[float, ...]:
        return state.bounds()

    @classmethod
    def refusal(cls, evidence: Evidence) -> str | None:
        if evidence.target.only_arm is None:
            return "it is for a single arm"
        if evidence.log.foreign and not evidence.diagnostics.positive:
            return "the arm was never chosen"
        if evidence.sums.varying_eligibility:
            return "the eligible arms differ between decisions, so the visitors who saw this arm may differ"
        return None
