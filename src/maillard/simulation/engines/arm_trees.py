"""Trees over arms, each in a row of the table `w`: node i has children 2i and 2i + 1, arm a is the leaf `leaves + a`."""

from __future__ import annotations

from typing import Any

__all__ = ["fill_max", "fill_sum", "find_max", "find_sum", "leaves_for", "set_max", "set_sum"]


def leaves_for(arms: int) -> int:
    """The least power of two that holds all arms, at least 8: a row of the table holds other numbers too."""
    leaves = 8
    while leaves < arms:
        leaves *= 2
    return leaves


def set_sum(w: Any, tree: int, node: int, value: float) -> None:
    """Change a leaf; every sum above is made anew, so that none drifts."""
    w[tree, node] = value
    node >>= 1
    while node > 0:
        w[tree, node] = w[tree, 2 * node] + w[tree, 2 * node + 1]
        node >>= 1


def fill_sum(w: Any, tree: int, leaves: int) -> None:
    """All inner nodes from the leaves."""
    for node in range(leaves - 1, 0, -1):
        w[tree, node] = w[tree, 2 * node] + w[tree, 2 * node + 1]


def find_sum(w: Any, tree: int, leaves: int, position: float) -> tuple[int, float]:
    """The leaf under a position on the line of all leaves' lengths, and where in that leaf."""
    node = 1
    while node < leaves:
        node *= 2
        if position >= w[tree, node]:
            position -= w[tree, node]
            node += 1
    return node, position


def set_max(w: Any, tree: int, node: int, value: float) -> None:
    """Change a leaf and all maxima above: to see where they stop changing would cost more than to go on."""
    w[tree, node] = value
    node >>= 1
    while node > 0:
        left, right = w[tree, 2 * node], w[tree, 2 * node + 1]
        w[tree, node] = max(right, left)
        node >>= 1


def fill_max(w: Any, tree: int, leaves: int) -> None:
    """All inner nodes from the leaves."""
    for node in range(leaves - 1, 0, -1):
        w[tree, node] = max(w[tree, 2 * node], w[tree, 2 * node + 1])


def find_max(w: Any, tree: int, leaves: int) -> int:
    """A leaf with the largest value."""
    node = 1
    # Which way is not to be guessed: a comparison turned into a number costs less than a branch.
    while node < leaves:
        node = 2 * node + int(w[tree, 2 * node] < w[tree, 2 * node + 1])
    return node
