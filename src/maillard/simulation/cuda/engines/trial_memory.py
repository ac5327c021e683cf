"""A trial's memory: numbers of its engine, a record for every arm, and a line of lengths with the sums of its blocks.

    [0, HEADER)              numbers that few rounds read
    HEADER + RECORD arm      an arm's record: pulls, sum of rewards, and two more: one sector of 32 bytes
    line_at(arms) + arm      the line: one number an arm
    sums_at(arms) + block    the sum of each block of the line; or a second line, at second_at(arms)

A line is read block by block: the sums first, then one block. There are about as many blocks as arms in each.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ALL",
    "COUNT",
    "HEADER",
    "LEAD",
    "LONG",
    "PLACES",
    "RECORD",
    "SUM",
    "N",
    "S",
    "add_up",
    "block_shift",
    "find",
    "line_at",
    "record_at",
    "second_at",
    "set_line",
    "sums_at",
    "total_of",
    "words",
]

HEADER, RECORD = 16, 4
N, S = 0, 1  # of a record
# Of x, the numbers in registers: the lead, and its pulls and sum, which its record has only when asked.
LEAD, COUNT, SUM = range(3)
ALL = -1  # what an engine is to renew: everything; else what it likes
LONG = 1 << 30  # rounds: what lasts so long lasts
PLACES = 0xFFFFFF  # a place under this mask is not negative, as a compiler sees, and then it need not look whether it is


def block_shift(arms: int) -> int:
    """A block has 2 to the power of this many arms: about the root of their number, at least four."""
    shift = 2
    while 1 << (2 * shift) < arms:
        shift += 1
    return shift


def record_at(arm: int) -> int:
    """Where an arm's record begins."""
    return HEADER + RECORD * (arm & PLACES)


def line_at(arms: int) -> int:
    """Where the line begins."""
    return HEADER + RECORD * (arms & PLACES)


def sums_at(arms: int) -> int:
    """Where the sums of its blocks begin."""
    return HEADER + (RECORD + 1) * (arms & PLACES)


def second_at(arms: int) -> int:
    """Where a second line begins, if there are no sums."""
    return sums_at(arms)


def words(arms: int) -> int:
    """How many numbers a trial keeps: a multiple of four."""
    return -(-(second_at(arms) + arms) // 4) * 4


def add_up(w: Any, arms: int, shift: int, block: int) -> None:
    """The sum of a block, made anew, so that none drifts."""
    line, total = line_at(arms), 0.0
    for arm in range(block << shift, min((block + 1) << shift, arms)):
        total += w[(line + arm) & PLACES]
    w[(sums_at(arms) + block) & PLACES] = total


def total_of(w: Any, arms: int, shift: int) -> float:
    """The sum of all blocks."""
    total = 0.0
    for place in range(sums_at(arms), sums_at(arms) + ((arms - 1) >> shift) + 1):
        total += w[place & PLACES]
    return total


def set_line(w: Any, arms: int, shift: int, arm: int, length: float) -> None:
    """Change an arm's length, and the sum of its block."""
    w[(line_at(arms) + arm) & PLACES] = length
    add_up(w, arms, shift, arm >> shift)


def find(w: Any, arms: int, shift: int, position: float) -> tuple[int, float]:
    """The arm under a position on the line, and where in its length."""
    sums, block, last = sums_at(arms), 0, (arms - 1) >> shift
    while block < last and position >= w[(sums + block) & PLACES]:
        position -= w[(sums + block) & PLACES]
        block += 1
    line, arm, last = line_at(arms), block << shift, min((block + 1) << shift, arms) - 1
    while arm < last and position >= w[(line + arm) & PLACES]:
        position -= w[(line + arm) & PLACES]
        arm += 1
    return arm, position
