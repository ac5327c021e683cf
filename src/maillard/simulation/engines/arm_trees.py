"""Trees of maxima over arms, one per row of the table `w`.

Node i has children 2i and 2i + 1; arm a is leaf `leaves + a`.
"""

from __future__ import annotations

from typing import Any


def leaves_for(arms: int) -> int:
    """Return the least power of two that holds all arms; at least 8, for rows of other numbers."""
    leaves = 8
    while leaves < arms:
        leaves *= 2
    return leaves


def set_max(w: Any, tree: int, node: int, value: float) -> None:
    """Set a leaf and recompute all maxima above it; checking where they stop changing would cost more."""
    w[tree, node] = value
    node >>= 1
    while node > 0:
        left, right = w[tree, 2 * node], w[tree, 2 * node + 1]
        w[tree, node] = max(right, left)
        node >>= 1


def fill_max(w: Any, tree: int, leaves: int) -> None:
    """Compute all inner nodes from the leaves."""
    for node in range(leaves - 1, 0, -1):
        w[tree, node] = max(w[tree, 2 * node], w[tree, 2 * node + 1])


def find_max(w: Any, tree: int, leaves: int) -> int:
    """Return a leaf with the largest value."""
    node = 1
    # The direction is unpredictable: adding a comparison costs less than a branch.
    while node < leaves:
        node = 2 * node + int(w[tree, 2 * node] < w[tree, 2 * node + 1])
    return node
