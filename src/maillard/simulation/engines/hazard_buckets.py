"""Buckets of arms by class and by binary exponent of a weight: O(1) updates and samples.

An arm's weight is rounded up to a power of two, 2^-bucket, so that an update that stays in its bucket costs a
comparison (Matias, Vitter and Ni 2003). Sums of these weights have no rounding errors. Arms of one class
share whatever the caller wants. Bucket `UNWEIGHTED` holds the arms without a finite weight.
"""

from __future__ import annotations

import math
from typing import Any

CLASSES, BUCKETS = 8, 32
UNWEIGHTED = CLASSES * BUCKETS  # the list after those of all classes
# Rows of the table, from `first` on: the list of each arm and its place there; the total weight of each
# class; the arms in the lists of each class; and the lists.
LIST, PLACE, WEIGHTS, TOTALS, COUNTS, LISTS = 0, 1, 2, 3, 4, 4 + CLASSES + 1
HEIGHT = LISTS + UNWEIGHTED + 1


def clear(w: Any, first: int, arms: int) -> None:
    """Remove all arms."""
    for row in range(first + TOTALS, first + LISTS):
        for place in range(BUCKETS):
            w[row, place] = 0.0
    for arm in range(arms):
        w[first + LIST, arm] = -1.0
    for bucket in range(BUCKETS):
        w[first + WEIGHTS, bucket] = weight_of(bucket)


def weight_of(bucket: int) -> float:
    """Return 2^-bucket."""
    return math.ldexp(1.0, -bucket)


def bucket_for(weight: float, bucket: int, power: float) -> tuple[int, float]:
    """Return the last bucket whose weight is at least this one, and its weight; searched from a bucket."""
    while bucket > 0 and weight > power:
        bucket -= 1
        power *= 2.0
    while bucket < BUCKETS - 1 and weight <= 0.5 * power:
        bucket += 1
        power *= 0.5
    return bucket, power


def move(w: Any, first: int, arm: int, to: int) -> None:
    """Move an arm to another list; its number is class * BUCKETS + bucket."""
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
    w[first + LIST, arm] = to


def pick(w: Any, first: int, row: int, position: float) -> tuple[int, float, float]:
    """Return the arm at a position on the line of a class, the position within its weight, and its weight."""
    bucket, weight = 0, 1.0
    while bucket < BUCKETS - 1:
        part = w[first + COUNTS + row, bucket] * weight
        if position < part:
            break
        position -= part
        bucket += 1
        weight *= 0.5
    place = int(position / weight)
    count = int(w[first + COUNTS + row, bucket])
    if place >= count:  # by rounding, beyond the end
        return -1, 0.0, weight
    return int(w[first + LISTS + row * BUCKETS + bucket, place]), position - place * weight, weight
