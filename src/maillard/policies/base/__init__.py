"""Base classes of policies: the common interface, three kinds of choice rule, and shared parameters."""

from maillard.policies.base.guarantees import Guarantees, linear_regret
from maillard.policies.base.indexed_policy import Indexed, IndexForm, Pooled
from maillard.policies.base.linear_policy import LinearIndexed, LinearNoise, LinearPolicy, LinearSampled
from maillard.policies.base.parameters import choice, flag, real, whole
from maillard.policies.base.perturbed_policy import DiscretelyPerturbed, Perturbed
from maillard.policies.base.policy import Distribution, Policy, ProbabilityKind, policy_class
from maillard.policies.base.sampled_policy import Sampled
from maillard.policies.base.shared_parameters import (
    BoostedLeaders,
    FamilyRewards,
    KnownHorizon,
    ScaledWidth,
    SubGaussianRewards,
    boosted_rival,
)

__all__ = [
    "BoostedLeaders", "DiscretelyPerturbed", "Distribution", "FamilyRewards", "Guarantees", "IndexForm",
    "Indexed", "KnownHorizon", "LinearIndexed", "LinearNoise", "LinearPolicy", "LinearSampled", "Perturbed",
    "Policy", "Pooled", "ProbabilityKind", "Sampled", "ScaledWidth",
    "SubGaussianRewards", "boosted_rival", "choice", "flag", "linear_regret", "policy_class", "real", "whole",
]  # fmt: skip
