"""Arms in buckets by the binary exponent of a bound on their weight: sampling and updates in O(1).

Bucket b holds the arms with bounds in (2^-(b+1), 2^-b]; the last bucket also those with smaller bounds. An
arm's length is 2^-b, and a bucket's mass is the sum of the lengths of its arms. To sample an arm in
proportion to the lengths, find the bucket at a position on the line of masses: the place in the bucket is
that of the arm. An arm whose bound changes moves only if its exponent changes (Matias, Vitter and Ni 2003,
"Dynamic generation of discrete random variates").

Masses are multiples of 2^-31. So they and their total have no rounding errors with up to 2^22 arms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BUCKETS = 32
LAST_BUCKET = BUCKETS - 1
TOTAL = BUCKETS  # the place of the total in the row of masses
# Rows of the table, after pulls and sums: of each arm the bucket (-1: none), and the place in it; of each
# bucket the mass, and 2^b; and the arms in each bucket.
BUCKET, PLACE, MASS, SIZE_PER_MASS, LENGTH, MEMBERS = range(2, 8)
NEXT_ROW = MEMBERS + BUCKETS


def make_table(arms: int, rows: int) -> Any:
    """Return a table with these rows after NEXT_ROW, and no arm in any bucket.

    The arms' numbers in different rows are an odd number of cache lines apart, so that they do not compete.
    """
    w = np.zeros((NEXT_ROW + rows, 8 + 16 * ((max(arms, BUCKETS) + 8) // 16)))
    for arm in range(arms):
        w[BUCKET, arm] = -1.0
    size_per_mass = 1.0
    for bucket in range(BUCKETS):
        w[SIZE_PER_MASS, bucket], w[LENGTH, bucket] = size_per_mass, 1.0 / size_per_mass
        size_per_mass *= 2.0
    return w


def remove_arm(w: Any, arm: int) -> None:
    """Remove an arm from its bucket, if it is in one."""
    bucket = int(w[BUCKET, arm])
    if bucket < 0:
        return
    length = w[LENGTH, bucket]
    w[MASS, bucket] -= length
    w[MASS, TOTAL] -= length
    last = int(w[MASS, bucket] * w[SIZE_PER_MASS, bucket])
    moved, place = w[MEMBERS + bucket, last], w[PLACE, arm]
    w[MEMBERS + bucket, int(place)] = moved
    w[PLACE, int(moved)] = place
    w[BUCKET, arm] = -1.0


def move_arm(w: Any, arm: int, bucket: int) -> None:
    """Move an arm to a bucket, from another or from none."""
    remove_arm(w, arm)
    size_per_mass = w[SIZE_PER_MASS, bucket]
    place = w[MASS, bucket] * size_per_mass
    w[MEMBERS + bucket, int(place)] = arm
    w[PLACE, arm], w[BUCKET, arm] = place, bucket
    w[MASS, bucket] += w[LENGTH, bucket]
    w[MASS, TOTAL] += w[LENGTH, bucket]


def find_arm(w: Any, position: float) -> tuple[int, int, float]:
    """Return the arm at a position on the line of lengths, its bucket, and the position per its length.

    Rounding may lead past the last arm; then the bucket is BUCKETS.
    """
    bucket = 0
    while bucket < BUCKETS and position >= w[MASS, bucket]:
        position -= w[MASS, bucket]
        bucket += 1
    if bucket == BUCKETS:
        return 0, bucket, 0.0
    position *= w[SIZE_PER_MASS, bucket]
    place = int(position)
    return int(w[MEMBERS + bucket, place]), bucket, position - place
