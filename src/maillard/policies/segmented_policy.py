"""A policy for each segment of contexts, such as visitors with the same device and country."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from maillard import specs
from maillard.array_types import Bools, Floats
from maillard.errors import InvalidValue
from maillard.policies.base import Guarantees, Policy, ProbabilityKind
from maillard.policies.base.formula_versions import earlier_version
from maillard.policies.base.parameters import Parameter
from maillard.segment_tally import SegmentTally
from maillard.tally import Tally

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALLOWED = "a policy without features, or its spec in quotes, as in segmented:policy='kl-ms+:booster=8'"


def _inner_policy(value: Any) -> Policy:
    if not isinstance(value, Policy) or value.uses_context or getattr(value, "has_memory", False):
        raise TypeError
    return value


class SegmentedPolicy(Policy):
    """Applies a policy separately to each segment, with the tally of that segment only.

    >>> from maillard import policy
    >>> tally = SegmentTally.empty(arms=2)
    >>> for _ in range(4): tally.add("phone", arm=1, reward=1.0)
    >>> segmented = policy("segmented:policy='ms+:booster=8'", reward_range=(0, 1))
    >>> segmented.probabilities(tally, "phone").round(3), segmented.probabilities(tally, "desktop")
    (array([0.111, 0.889]), array([0.5, 0.5]))
    """

    name: ClassVar[str] = "segmented"
    formula: ClassVar[str] = "p of the policy, from the rewards of the segment"
    latex: ClassVar[str] = r"p_a \text{ of the policy, from the rewards of the segment}"
    reference: ClassVar[str] = "one bandit per context, as in Lattimore and Szepesvari 2020, Section 18.1"
    probability_kind: ClassVar[ProbabilityKind] = "inherited"
    uses_context: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = Guarantees(
        source="immediate: independent bandits",
        note="The regret is the sum over segments of the policy's regret.",
    )

    policy: Policy = dataclasses.field(
        default=None,  # type: ignore[assignment]  # required: None is refused
        metadata={"parameter": Parameter("the policy of every segment", _ALLOWED, _inner_policy)},
    )

    def __post_init__(self) -> None:
        if isinstance(self.policy, str):  # an error of the inner spec names its own field
            from maillard.policies import policy

            object.__setattr__(self, "policy", policy(self.policy))
        super().__post_init__()
        for name in (
            "support", "requires_binary_rewards", "requires_positive_rewards", "formula_version",
            "probability_kind", "has_prior",
        ):  # fmt: skip
            object.__setattr__(self, name, getattr(self.policy, name))

    def spec(self) -> specs.Spec:
        return specs.Spec(self.name, (), {"policy": str(self.policy)})

    def plot(self, tally: Any = None, x: Any = None, *, round: int | None = None) -> Figure:
        """Return a figure of the probability of each arm in segment `x`; without a tally, that of the policy.

        >>> from maillard import policy
        >>> policy("segmented:policy=ms", reward_range=(0, 1)).plot()  # doctest: +ELLIPSIS
        <...Figure size ...>
        """
        return self.policy.plot() if tally is None else super().plot(tally, x, round=round)

    def bind(self, arms: Sequence[str]) -> SegmentedPolicy:
        return SegmentedPolicy(policy=self.policy.bind(arms))

    def _earlier_version(self, version: int) -> Self | None:
        inner = earlier_version(self.policy, version)
        return None if inner is None else type(self)(policy=inner)

    def constant_probabilities(self, arms: int) -> Floats | None:
        return self.policy.constant_probabilities(arms)

    @property
    def needs_horizon(self) -> bool:
        return self.policy.needs_horizon

    def _prepare(self, tally: Any, x: Any) -> tuple[Tally, None, int]:
        if not isinstance(tally, SegmentTally):
            raise InvalidValue("tally", tally, "a SegmentTally, because each segment has a tally of its own")
        inner, _, arms = self.policy._prepare(tally[x], None)
        return inner, None, arms

    def _check_use(self, tally: Any) -> None:
        self.policy._check_use(tally)

    def _solve_arms(
        self, tally: Any, x: Any, mask: Bools | None, t: int, bounds: bool
    ) -> tuple[Floats, Floats | None]:
        return self.policy._solve_arms(tally, x, mask, t, bounds)
