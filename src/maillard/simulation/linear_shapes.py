"""Which compiled engine runs a policy on a problem with contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maillard.policies import LinearPolicy, WithFloor
from maillard.policies.segmented_policy import SegmentedPolicy
from maillard.simulation.policy_formulas import engine_shape, without_floor

if TYPE_CHECKING:
    from maillard.policies import Policy
    from maillard.problems import ContextualProblem


def segment_policy(policy: Policy) -> Policy:
    """Return the policy of every segment; one that ignores the context has one segment for all rounds."""
    inner = without_floor(policy)
    return inner.policy if isinstance(inner, SegmentedPolicy) else policy


def compiled_shape(policy: Policy, problem: ContextualProblem) -> str | None:
    """Return the shape of the compiled engine for a policy on a problem; None if only `choose` can run it."""
    inner, each = without_floor(policy), segment_policy(policy)
    if (
        isinstance(inner, SegmentedPolicy)
        and inner is not policy
        and isinstance(each, WithFloor)
        and each.decay
    ):
        return None  # one floor around another that decays
    shape = engine_shape(without_floor(each))
    if not isinstance(inner, LinearPolicy):
        return None if inner.uses_context and inner is each else shape
    if shape == "linear-perturbed" and problem.shared and getattr(inner, "draws", "") == "joint":
        return "linear-joint"
    if shape == "linear-divergence" and problem.shared:
        return "linear-shared-divergence"
    return shape
