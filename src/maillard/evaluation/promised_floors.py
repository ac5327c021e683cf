"""What a log's policies promise of their probabilities, and what a floor would have made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidValue, MaillardError
from maillard.policies import Policy, Uniform, WithFloor, policy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["floor_for", "min_probabilities", "promised_decay", "promised_probabilities"]


def promised_probabilities(specs: Iterable[str], arms: Sequence[str]) -> NDArray[np.float64] | None:
    """Of each arm, the probability that every version of the policy always left it; None where one leaves nothing.

    >>> promised_probabilities(["ms:floor=0.1,sigma2=1", "uniform"], ["red", "blue"])
    array([0.05, 0.05])
    """
    least: NDArray[np.float64] | None = None
    for spec in specs:
        try:
            made = _made(spec).bind(arms)
            shares = made.constant_probabilities(len(arms))
        except MaillardError:  # another's policy, or a floor for another number of arms
            return None
        if isinstance(made, WithFloor) and made.decay:
            return None
        inner = made.policy if isinstance(made, WithFloor) else made
        if isinstance(inner, Uniform):
            rest = 1.0 if shares is None else max(0.0, 1.0 - math.fsum(shares))
            shares = rest / len(arms) + (np.zeros(len(arms)) if shares is None else shares)
        if shares is None or shares.size != len(arms) or not (shares > 0).all():
            return None
        least = shares if least is None else np.minimum(least, shares)
    return least


def promised_decay(specs: Iterable[str]) -> float | None:
    """The exponent at which the floor under a log's probabilities sank, the fastest of all versions; None where one had none.

    >>> promised_decay(["ms:floor=1,floor_decay=0.7,sigma2=1", "uniform"]), promised_decay(["ms:sigma2=1"])
    (0.7, None)
    """
    fastest: float | None = None
    for spec in specs:
        try:
            made = _made(spec)
        except MaillardError:  # another's policy
            return None
        floored = isinstance(made, WithFloor) and np.all(np.asarray(made.epsilon) > 0)
        if not floored and not isinstance(made, Uniform):
            return None
        fastest = max(fastest or 0.0, made.decay if isinstance(made, WithFloor) else 0.0)
    return fastest


def _made(spec: str) -> Policy:
    try:
        return policy(spec)
    except (
        MaillardError
    ):  # the scale of rewards is not in the spec where the bandit knew it; floors do not need it
        return policy(spec, sigma2=1.0)


def min_probabilities(floor: Any, arms: int) -> NDArray[np.float64]:
    """The least probability of each of K arms under a floor: floor / K, or a share for each.

    >>> min_probabilities(0.2, 2)
    array([0.1, 0.1])
    """
    allowed = f"a number above 0 and at most 1, as in a policy's floor= (each of {arms} arms gets floor / {arms}), or a share for each"
    try:
        given = np.asarray(floor, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue("floor", floor, allowed) from None
    fits = given.shape in ((), (arms,)) and not isinstance(floor, bool)
    if not fits or not (given > 0).all() or not given.sum() <= 1.0 + 1e-12:
        raise InvalidValue("floor", floor, allowed)
    return np.full(arms, float(given) / arms) if given.ndim == 0 else given


def floor_for(size: float, rows: int, arms: int, squares: float) -> str:
    """What floor would have given so large an effective size in these rows; `squares` is Σ π² of the target.

    With a floor ε no weight is above K / ε times its share of the target, and the effective size is at least n ε / (K Σ π²).
    """
    needed = size * arms * squares / max(rows, 1)
    if needed <= 1:
        return f"a floor of {needed:.2g} (floor={needed:.2g} in the policy) would have made it answerable in {rows:,} rows"
    return f"even uniform choices (floor=1) would have needed {math.ceil(size * arms * squares):,} rows; there are {rows:,}"
