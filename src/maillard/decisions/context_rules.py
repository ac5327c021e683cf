"""How an experiment uses contexts: the interface of a rule.

A rule is part of the configuration of an experiment: `LinearContexts` or `SegmentContexts`. It encodes
contexts, makes the input of the policy, and applies rewards to the statistics that the policy uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from maillard.array_types import Bools
from maillard.decisions.encoded_contexts import Encoded
from maillard.decisions.raw_contexts import RawContext, Values
from maillard.errors import InvalidValue
from maillard.linear_tally import LinearTally
from maillard.policies import Policy
from maillard.segment_tally import SegmentTally

ContextTally = LinearTally | SegmentTally


class PolicyInput(NamedTuple):
    """What a policy computes a distribution from, besides its statistics."""

    x: Any
    "A feature row, one row per arm, or a segment."
    mask: Bools | None
    "Which arms are eligible; None if all are."


class ContextRule(ABC):
    """How an experiment uses contexts."""

    dynamic: bool
    "Whether the arms differ at every decision."

    @abstractmethod
    def describe(self) -> str:
        """What was declared, in words."""

    @abstractmethod
    def check_policy(self, made: Policy) -> Policy:
        """The policy to use for a given one; InvalidValue if it does not fit."""

    @abstractmethod
    def empty(self, arms: int) -> ContextTally:
        """The statistics without rewards."""

    @abstractmethod
    def check_statistics(self, statistics: object, arms: int) -> None:
        """Raise InvalidValue if these are no statistics of such an experiment."""

    @abstractmethod
    def encode(self, raw: RawContext, arms: Sequence[str], statistics: ContextTally) -> Encoded:
        """The feature rows or the segment of a context, for these eligible arms."""

    @abstractmethod
    def policy_input(self, encoded: Encoded, eligible: int, mask: Bools | None) -> PolicyInput:
        """The input of the policy; InvalidValue if the encoded form does not fit this rule."""

    @abstractmethod
    def example(self, arms: int) -> Any:
        """Some input of the policy, to see whether it can choose."""

    @abstractmethod
    def cold(self, statistics: ContextTally, x: Any) -> Bools:
        """Whether what the policy knows of each arm has no rewards yet."""

    @abstractmethod
    def update(
        self, statistics: ContextTally, arm: int | None, row: Encoded, value: float, previous: float | None
    ) -> None:
        """Apply a reward, or replace the previous one, in place."""

    @abstractmethod
    def with_arm(self, statistics: ContextTally) -> ContextTally:
        """The statistics with one more arm."""

    def add_arm(self, arm: str, attributes: Values | None, arms: Sequence[str]) -> ContextRule:  # noqa: ARG002
        """The rule with one more arm, or a retired one that becomes active again."""
        if attributes is not None:
            raise InvalidValue("features", attributes, f"None: {self.describe()}, and arms have no features")
        return self

    @abstractmethod
    def to_data(self) -> dict[str, Any]:
        """The rule as plain data, for `rule_from_data`."""
