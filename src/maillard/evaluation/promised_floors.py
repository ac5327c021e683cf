"""Floors (lower bounds on probabilities) that the policies of a log guarantee, or that a query needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from maillard.array_types import Floats
from maillard.errors import InvalidValue, MaillardError
from maillard.policies import Policy, Uniform, WithFloor, policy


def promised_probabilities(specs: Iterable[str], arms: Sequence[str]) -> Floats | None:
    """A lower bound on each arm's probability that all policies of a log guarantee; None if there is none.

    >>> promised_probabilities(["ms:floor=0.1,sigma2=1", "uniform"], ["red", "blue"])
    array([0.05, 0.05])
    """
    least: Floats | None = None
    for spec in specs:
        try:
            made = _policy_of(spec).bind(arms)
            bounds = made.constant_probabilities(len(arms))
        except MaillardError:  # a custom policy, or a floor for another number of arms
            return None
        if isinstance(made, WithFloor) and made.decay:
            return None
        inner = made.policy if isinstance(made, WithFloor) else made
        if isinstance(inner, Uniform):
            rest = 1.0 if bounds is None else max(0.0, 1.0 - math.fsum(bounds))
            bounds = rest / len(arms) + (np.zeros(len(arms)) if bounds is None else bounds)
        if bounds is None or bounds.size != len(arms) or not (bounds > 0).all():
            return None
        least = bounds if least is None else np.minimum(least, bounds)
    return least


def promised_decay(specs: Iterable[str]) -> float | None:
    """The largest exponent with which the floors of a log's policies decay; None if a policy has no floor.

    >>> promised_decay(["ms:floor=1,floor_decay=0.7,sigma2=1", "uniform"]), promised_decay(["ms:sigma2=1"])
    (0.7, None)
    """
    fastest: float | None = None
    for spec in specs:
        try:
            made = _policy_of(spec)
        except MaillardError:  # a custom policy
            return None
        floored = isinstance(made, WithFloor) and np.all(np.asarray(made.epsilon) > 0)
        if not floored and not isinstance(made, Uniform):
            return None
        fastest = max(fastest or 0.0, made.decay if isinstance(made, WithFloor) else 0.0)
    return fastest


def _policy_of(spec: str) -> Policy:
    try:
        return policy(spec)
    except MaillardError:  # the spec lacks the scale of rewards, which floors do not need
        return policy(spec, sigma2=1.0)


def min_probabilities(floor: Any, arms: int) -> Floats:
    """The smallest probability of each of K arms under a floor: floor / K, or the given one for each.

    >>> min_probabilities(0.2, 2)
    array([0.1, 0.1])
    """
    allowed = (
        f"a number above 0 and at most 1, as in a policy's floor= (each of {arms} arms gets floor / {arms}), "
        "or one number per arm"
    )
    try:
        given = np.asarray(floor, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue("floor", floor, allowed) from None
    fits = given.shape in ((), (arms,)) and not isinstance(floor, bool)
    if not fits or not (given > 0).all() or not given.sum() <= 1.0 + 1e-12:
        raise InvalidValue("floor", floor, allowed)
    return np.full(arms, float(given) / arms) if given.ndim == 0 else given


def floor_for(size: float, rows: int, arms: int, squares: float) -> str:
    """Advice: the floor that gives this effective sample size in these rows; `squares` is Σ π² of the target.

    With a floor ε no weight exceeds π K / ε, so the effective sample size is at least n ε / (K Σ π²).
    """
    needed = size * arms * squares / max(rows, 1)
    if needed <= 1:
        floor = f"a floor of {needed:.2g} (floor={needed:.2g} in the policy)"
        return f"{floor} would have made it answerable in {rows:,} rows"
    enough = math.ceil(size * arms * squares)
    return f"even uniform choices (floor=1) would have needed {enough:,} rows; there are {rows:,}"
