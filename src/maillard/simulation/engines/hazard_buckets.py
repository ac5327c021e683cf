"""Buckets of arms by class and rounded weight: updates and samples in O(1) (Matias, Vitter and Ni 2003).

The weights of the buckets are 1, 3/4, 1/2, 3/8, 1/4 and so on, so that sums of them have no rounding errors.
An update that leaves an arm in its bucket costs nothing here. Arms of a class share what the caller needs.
`UNWEIGHTED` is one more list, for arms without a weight.
"""

from __future__ import annotations

import math
from typing import Any

CLASSES, BUCKETS = 8, 64
UNWEIGHTED = CLASSES * BUCKETS  # the list after those of all classes
# Rows of the table, from `first` on: the list of each arm, class * BUCKETS + bucket, and its place there; the
# weight of each bucket; of each class, the total weight and the first bucket in use; the number of arms in
# the lists of each class; and the lists.
LIST, PLACE, WEIGHTS, TOTALS, TOPS, COUNTS, LISTS = 0, 1, 2, 3, 4, 5, 5 + CLASSES + 1
HEIGHT = LISTS + UNWEIGHTED + 1


def begin_buckets(w: Any, first: int) -> None:
    """Compute the weights of the buckets."""
    for bucket in range(BUCKETS):
        w[first + WEIGHTS, bucket] = math.ldexp(0.75 if bucket % 2 else 1.0, -(bucket // 2))


def clear_buckets(w: Any, first: int, arms: int) -> None:
    """Remove all arms."""
    for row in range(CLASSES + 1):
        w[first + TOTALS, row], w[first + TOPS, row] = 0.0, BUCKETS - 1.0
        for bucket in range(BUCKETS):
            w[first + COUNTS + row, bucket] = 0.0
    for arm in range(arms):
        w[first + LIST, arm] = -1.0


def bucket_for(weight: float) -> int:
    """Return the last bucket whose weight is at least this one."""
    mantissa, exponent = math.frexp(max(weight, 2.0 ** (-BUCKETS // 2)))
    return min(max(-2 * exponent + int(mantissa <= 0.75), 0), BUCKETS - 1)


def move_arm(w: Any, first: int, arm: int, to: int) -> None:
    """Move an arm to another list."""
    old = int(w[first + LIST, arm])
    if old >= 0:
        row, bucket = old // BUCKETS, old % BUCKETS
        count = int(w[first + COUNTS + row, bucket]) - 1
        last, place = w[first + LISTS + old, count], int(w[first + PLACE, arm])
        w[first + LISTS + old, place] = last
        w[first + PLACE, int(last)] = place
        w[first + COUNTS + row, bucket] = count
        w[first + TOTALS, row] -= w[first + WEIGHTS, bucket]
    row, bucket = to // BUCKETS, to % BUCKETS
    count = int(w[first + COUNTS + row, bucket])
    w[first + LISTS + to, count] = arm
    w[first + PLACE, arm] = count
    w[first + COUNTS + row, bucket] = count + 1
    w[first + TOTALS, row] += w[first + WEIGHTS, bucket]
    w[first + TOPS, row] = min(w[first + TOPS, row], float(bucket))
    w[first + LIST, arm] = to


def find_arm(w: Any, first: int, row: int, position: float) -> tuple[int, float, float]:
    """Return the arm at a position on the line of a class, the position within its weight, and its weight."""
    bucket = int(w[first + TOPS, row])
    part = w[first + COUNTS + row, bucket] * w[first + WEIGHTS, bucket]
    while position >= part and bucket < BUCKETS - 1:
        position -= part
        bucket += 1
        part = w[first + COUNTS + row, bucket] * w[first + WEIGHTS, bucket]
    weight = w[first + WEIGHTS, bucket]
    place = int(position / weight)
    count = int(w[first + COUNTS + row, bucket])
    if place >= count:  # by rounding, beyond the end
        return -1, 0.0, weight
    return int(w[first + LISTS + row * BUCKETS + bucket, place]), position - place * weight, weight
