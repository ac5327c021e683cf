"""Pooled pulls: how the pulls of all arms enter the confidence level of one arm (OCUCB-n, AdaUCB)."""

from __future__ import annotations

import numpy as np

from maillard.array_types import Floats


def pooled_pulls(n: Floats, rho: float) -> Floats:
    """Return Σ_b min(n_a, n_b^ρ n_a^(1-ρ)) for every arm a.

    The minimum is n_a for n_b >= n_a, otherwise the power. Sorted pulls and a cumulative sum therefore give
    all K sums in O(K log K). Arms with equal pulls get identical values.

    >>> pooled_pulls(np.array([1.0, 4.0, 9.0]), 0.5)
    array([ 3., 10., 18.])
    """
    counts, place, repeats = np.unique(n, return_inverse=True, return_counts=True)
    below = np.concatenate([[0.0], np.cumsum(repeats * counts**rho)[:-1]])
    at_least = np.cumsum(repeats[::-1])[::-1]
    pooled: Floats = (counts * at_least + counts ** (1.0 - rho) * below)[place]
    return pooled
