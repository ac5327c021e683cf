"""How many pulls of all arms bear on one arm's confidence level (OCUCB-n, AdaUCB)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from maillard.policies.base.policy import Floats

__all__ = ["pooled_pulls"]


def pooled_pulls(n: Floats, rho: float) -> Floats:
    """Σ_b min(n_a, n_b^ρ n_a^(1-ρ)) for every arm a.

    For n_b >= n_a the minimum is n_a, below it is the power: so sorted pulls and a running
    sum give all K sums in K log K. Equal pulls share one value, to the bit.

    >>> pooled_pulls(np.array([1.0, 4.0, 9.0]), 0.5)
    array([ 3., 10., 18.])
    """
    counts, place, repeats = np.unique(n, return_inverse=True, return_counts=True)
    below = np.concatenate([[0.0], np.cumsum(repeats * counts**rho)[:-1]])
    at_least = np.cumsum(repeats[::-1])[::-1]
    pooled: Floats = (counts * at_least + counts ** (1.0 - rho) * below)[place]
    return pooled
