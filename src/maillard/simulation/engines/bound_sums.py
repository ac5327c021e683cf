"""Sums of bounds in a tree: samples an arm in proportion to its bound, and changes a bound.

A node has up to 32 children, so two levels are enough for 1024 arms. Each child has the sum of the bounds of
the children before it, so the child at a position on the line of bounds is found by counting the sums up to
that position. Counting and changing the sums of a node are loops without branches over 32 numbers, which take
a few vector instructions.

Bounds are multiples of 2^-31. So sums and positions have no rounding errors with up to 2^22 arms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.vector_operations import LENGTH, add_after, count_up_to, number_at, set_number

CHILDREN = LENGTH
UNIT = 2.0**-31
UNITS = 2.0**31  # per 1
# The numbers of an arm are a column of the table, and neighbours in memory. After the arms come vectors with
# a number per arm, then the sums: child c of the root is entry c of the sums, and the children of entry e
# begin at entry 32 (e + 1). The arms are the last level. An engine may have more columns, at the end.
FIELDS = 8
BOUND = 2  # row of the table, after pulls and sums of rewards


def make_table(arms: int, vectors: int, columns: int) -> Any:
    """Return a table of zeros with this number of vectors, and of columns at the end."""
    length = vector_start(arms, vectors) + first_arm(arms) + whole_nodes(arms) + FIELDS * columns
    return np.zeros((length // FIELDS, FIELDS)).T


def whole_nodes(arms: int) -> int:
    """Return the number of arms, rounded up to a multiple of 32."""
    return (arms + CHILDREN - 1) & -CHILDREN


def vector_start(arms: int, vector: int) -> int:
    """Return the position in memory of a vector, or after the last one, of the sums."""
    return (FIELDS + vector) * whole_nodes(arms)


def first_arm(arms: int) -> int:
    """Return the entry of arm 0."""
    first, width = 0, CHILDREN
    while width < arms:
        first, width = CHILDREN * (first + 1), CHILDREN * width
    return first


def rounded_up(bound: float) -> float:
    """Return the least multiple of 2^-31 that is not below a bound."""
    return np.ceil(bound * UNITS) * UNIT


def change_bound(w: Any, arms: int, sums: int, arm: int, bound: float) -> None:
    """Replace the bound of an arm by another multiple of 2^-31; `sums` is the position of the sums."""
    change = bound - w[BOUND, arm]
    w[BOUND, arm] = bound
    entry = first_arm(arms) + arm
    while True:
        start = entry & -CHILDREN
        add_after(w, sums + start, entry - start, change)
        if start == 0:
            break
        entry = start // CHILDREN - 1


def find_arm(w: Any, arms: int, sums: int, position: float) -> tuple[int, float]:
    """Return the arm at a position on the line of bounds, and the position within its bound."""
    first, start = first_arm(arms), 0
    while True:
        entry = start + count_up_to(w, sums + start, position) - 1
        position -= number_at(w, sums + entry)
        if entry >= first:
            return entry - first, position
        start = CHILDREN * (entry + 1)


def add_up(w: Any, arms: int, sums: int) -> float:
    """Compute all sums anew, after several bounds changed; return the sum of all bounds."""
    start, count = first_arm(arms), arms
    for arm in range(arms):
        set_number(w, sums + start + arm, w[BOUND, arm])
    while True:
        # The entries of a level are sums of their arms, and become sums of the entries before each.
        for node in range(start, start + count, CHILDREN):
            total = 0.0
            for entry in range(node, node + CHILDREN):
                bound = number_at(w, sums + entry) if entry < start + count else 0.0
                set_number(w, sums + entry, total)
                total += bound
            if node > 0:
                set_number(w, sums + node // CHILDREN - 1, total)
        if start == 0:
            return total
        start, count = start // CHILDREN - 1, (count + CHILDREN - 1) // CHILDREN
