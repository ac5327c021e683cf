"""What the engines of all backends need to know about a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from maillard.policies import Indexed, Perturbed, Policy, Sampled, WithFloor

if TYPE_CHECKING:
    from numpy.typing import NDArray

# For each engine shape, the formulas that an engine calls: method, number of arguments, and which element of
# the returned tuple is used (-1: the method returns one number; ALL_ARMS: one number for each arm).
ALL_ARMS = -2
FORMULAS: dict[str, list[tuple[str, int, int]]] = {
    "sampled": [("leader", 2, -1), ("rival", 4, -1), ("estimate", 2, -1)],
    "indexed": [("index", 5, -1)],
    "pooled": [("pooled_index", 5, -1), ("pooling", 0, -1)],
    "listed": [("index", 5, -1)],
    "perturbed": [("score", 2, 0), ("score", 2, 1)],
    "linear-sampled": [("leader", 2, -1), ("rival", 3, ALL_ARMS)],
    "linear-softmax": [("rival", 1, -1)],
    "linear-indexed": [("index", 4, ALL_ARMS)],
    "linear-greedy": [],
    "linear-perturbed": [("deviation", 1, -1)],
    "linear-widths": [("slope", 1, -1)],
    "linear-gaps": [("cost", 1, -1), ("gamma", 1, -1), ("rival_probability", 4, -1)],
    "linear-divergence": [("squared_radius", 2, -1), ("exponent", 2, -1), ("mixture", 3, -1)],
    "binomial": [*(("binomial", 3, part) for part in range(4)), ("rounds_up", 1, -1)],
}


# The codes of the forms of an index that the shortlist engine knows.
INDEX_FORMS = {"constant": 1, "root": 2, "quadratic": 3}
# Formulas of sampled policies with a potential.
POTENTIAL = [("potential", 1, -1), ("slope", 1, -1)]


class MixedIn(NamedTuple):
    """Probabilities that are mixed into the distribution of a policy's formulas; each array may be empty."""

    constant: NDArray[np.float64]
    decaying: NDArray[np.float64]
    "Mixed in over the constant ones, times t^-decay."
    decay: float


def without_floor(policy: Policy) -> Policy:
    """Return the policy without its floor."""
    return policy.policy if isinstance(policy, WithFloor) else policy


def engine_shape(policy: Policy) -> str | None:
    """Return which engine evaluates the policy's formulas; None if only `policy.choose` can run it."""
    if isinstance(policy, Perturbed) and policy.engine_shape == "perturbed" and policy.noise.code < 0:
        return None  # a score distribution that compiled code does not know
    return policy.engine_shape


def score_code(policy: Policy) -> int | None:
    """Return the code of a policy's score distribution, if compiled code knows it."""
    return policy.noise.code if isinstance(policy, Perturbed) and policy.engine_shape == "perturbed" else None


def engine_flags(policy: Policy) -> list[int]:
    """Return the numbers that an engine reads after its formulas: which inputs the formulas use."""
    match policy:
        case Indexed():
            return [int(policy.uses_best), int(policy.uses_round)]
        case Perturbed() if policy.engine_shape == "perturbed":
            return [policy.noise.code, int(policy.has_prior)]
    return []


def index_form(policy: Policy) -> str | None:
    """Return the form of a policy's index, if it is one in `INDEX_FORMS`."""
    if not isinstance(policy, Indexed) or policy.engine_shape != "indexed":
        return None
    if not policy.monotone or policy.has_prior:
        return None
    form = policy.index_form if policy.uses_best or policy.uses_round else "constant"
    return form if form in INDEX_FORMS else None


def is_separable(policy: Indexed) -> bool:
    """Return whether a policy declares that its index is the mean plus a width of n times a level of t."""
    return policy.index_form in {"root", "separable"}


def form_codes(policy: Policy) -> list[int]:
    """Return the code of the index form, for the shortlist engine; empty without a form."""
    form = index_form(policy)
    return [] if form is None else [INDEX_FORMS[form]]


def uses_empirical_mean(policy: Policy) -> bool:
    """Return whether the engine compares empirical means, so that it need not call `estimate`."""
    return isinstance(policy, Sampled) and policy.compares_means


def concentrates(policy: Policy) -> bool:
    """Return whether the weights of rivals depend on pulls and mean as `Sampled.concentrates` says."""
    return isinstance(policy, Sampled) and policy.concentrates


def squared_gap_bits(policy: Policy) -> list[int]:
    """Return the bits of the two numbers of `Sampled.squared_gap`, which are 0 without it."""
    numbers = policy.squared_gap if isinstance(policy, Sampled) else None
    return [int(bits) for bits in np.array(numbers or (0.0, 0.0)).view(np.int64)]


def potential_formulas(policy: Policy) -> list[tuple[str, int, int]]:
    """Return the formulas of the policy's potential, or none."""
    return POTENTIAL if isinstance(policy, Sampled) and policy.has_potential else []


def mixed_in(policy: Policy, arms: int) -> MixedIn:
    """Return the probabilities that are mixed into the policy's formulas."""
    decaying, decay, rest = np.zeros(0), 0.0, policy
    if isinstance(policy, WithFloor) and policy.decay:
        decaying, decay, rest = policy.floor_probabilities(arms), policy.decay, policy.policy
    constant = rest.constant_probabilities(arms)
    return MixedIn(np.zeros(0) if constant is None else constant, decaying, decay)


def forced_rounds(policy: Policy, arms: int) -> int:
    """Return how many initial rounds pull the arms in order.

    There are none if the policy needs no rewards to begin, or if it uses a context: then it begins as in live
    use.
    """
    return 0 if policy.uses_context or without_floor(policy).has_prior else arms
