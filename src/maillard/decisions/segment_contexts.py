"""Contexts as segments: one tally for each combination of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from maillard.array_types import Bools
from maillard.decisions.context_rules import ContextRule, ContextTally, PolicyInput
from maillard.decisions.encoded_contexts import Encoded
from maillard.decisions.raw_contexts import RawContext, Values
from maillard.errors import InvalidValue
from maillard.features.feature_types import text_of
from maillard.policies import Policy, WithFloor
from maillard.policies.segmented_policy import SegmentedPolicy
from maillard.segment_tally import SegmentTally

MAX_SEGMENTS = 1_000
"The number of segments with a tally of their own. Rewards of further segments share one tally."
_OTHER = "(other)"


@dataclass(frozen=True, kw_only=True)
class SegmentContexts(ContextRule):
    """One tally for each combination of the values of some keys of the context."""

    keys: tuple[str, ...]
    limit: int = MAX_SEGMENTS
    dynamic: bool = False

    def describe(self) -> str:
        return "the experiment has segments"

    def check_policy(self, made: Policy) -> Policy:
        inner = made.policy if isinstance(made, WithFloor) else made
        if isinstance(inner, SegmentedPolicy):
            return made
        if made.uses_context:
            allowed = "a policy without features, such as kl-ms+, because the experiment has segments"
            raise InvalidValue("policy", str(made), allowed)
        return SegmentedPolicy(policy=made)

    def empty(self, arms: int) -> SegmentTally:
        return SegmentTally.empty(arms)

    def check_statistics(self, statistics: object, arms: int) -> None:
        fits = isinstance(statistics, SegmentTally) and statistics.arms == arms
        if not fits or not all(
            isinstance(each, tuple) and len(each) == len(self.keys)
            for each in statistics.segments  # type: ignore[attr-defined]  # it is a SegmentTally
        ):
            allowed = f"a SegmentTally of {arms} arms, whose segments have {len(self.keys)} values"
            raise InvalidValue("statistics", statistics, allowed)

    def encode(self, raw: RawContext, arms: Sequence[str], statistics: ContextTally) -> Encoded:  # noqa: ARG002
        if raw.actions is not None:
            raise InvalidValue("actions", list(raw.actions), "None: the experiment has segments")
        values = raw.values
        if values is None:
            names = ", ".join(map(repr, self.keys))
            raise InvalidValue("context", None, f"a mapping with a value for each of {names}")
        return self.resolve(tuple(self._value(key, values) for key in self.keys), statistics)

    @staticmethod
    def _value(key: str, values: Values) -> str:
        value = values.get(key)
        if value is None:
            raise InvalidValue(f"context: {key}", None, "a value, because it is a segment of the experiment")
        return str(value).lower() if isinstance(value, bool) else text_of(f"context: {key}", value)

    def resolve(self, segment: tuple[str, ...], statistics: ContextTally) -> tuple[str, ...]:
        """The segment whose tally is used: the common one, if there are too many others already."""
        assert isinstance(statistics, SegmentTally)
        known = statistics.segments
        return segment if segment in known or len(known) < self.limit else (_OTHER,) * len(self.keys)

    def policy_input(self, encoded: Encoded, eligible: int, mask: Bools | None) -> PolicyInput:  # noqa: ARG002
        if not isinstance(encoded, tuple) or len(encoded) != len(self.keys):
            raise InvalidValue("encoded", encoded, f"a segment with {len(self.keys)} values")
        return PolicyInput(encoded, mask)

    def example(self, arms: int) -> tuple[str, ...]:  # noqa: ARG002
        return (_OTHER,) * len(self.keys)

    def cold(self, statistics: ContextTally, x: Any) -> Bools:
        assert isinstance(statistics, SegmentTally)
        found: Bools = statistics[x].pulls == 0
        return found

    def update(
        self, statistics: ContextTally, arm: int | None, row: Encoded, value: float, previous: float | None
    ) -> None:
        assert isinstance(statistics, SegmentTally)
        assert arm is not None
        if not isinstance(row, tuple) or len(row) != len(self.keys):
            raise InvalidValue("row", row, f"a segment with {len(self.keys)} values")
        # When the limit is reached, no segment gets a tally any more. So a revision finds the tally that the
        # reward was added to.
        segment = self.resolve(row, statistics)
        if previous is None:
            statistics.add(segment, arm, value)
        else:
            statistics.revise(segment, arm, previous, value)

    def with_arm(self, statistics: ContextTally) -> ContextTally:
        assert isinstance(statistics, SegmentTally)
        return statistics.with_arms(1)

    def limited(self, statistics: SegmentTally, more: SegmentTally) -> SegmentTally:
        """The sum of both, in which segments beyond the limit share one tally."""
        total = statistics.copy()
        for segment in sorted(more.segments):
            place = self.resolve(segment, total)  # type: ignore[arg-type]  # checked: a tuple
            total += SegmentTally(more.arms, {place: more.segments[segment]})
        return total

    def to_data(self) -> dict[str, Any]:
        return {"segments": list(self.keys), "limit": self.limit}


def check_segments(segments: object) -> tuple[str, ...]:
    """The keys of segments, or InvalidValue."""
    allowed = "a list of different keys of the context, such as ['device', 'country']"
    if isinstance(segments, str | bytes) or not isinstance(segments, Sequence) or not segments:
        raise InvalidValue("segments", segments, allowed)
    if not all(isinstance(key, str) and key for key in segments) or len(set(segments)) < len(segments):
        raise InvalidValue("segments", list(segments), allowed)
    return tuple(segments)
