"""A trial's memory: numbers of its engine, a record for every arm, and a line of lengths with the sums of its blocks.

    [0, HEADER)              numbers that few rounds read
    HEADER + RECORD arm      an arm's record: pulls, sum of rewards, and two more: one sector of 32 bytes
    lengths_at(arms) + arm      the line: one number an arm
    block_sums_at(arms) + block    the sum of each block of the line; or a second line, at second_lengths_at(arms)

A line is read block by block: the sums first, then one block. There are about as many blocks as arms in each.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "COUNT",
    "HEADER",
    "INDEX_MASK",
    "LEADER",
    "NO_EXPIRY",
    "REBUILD_ALL",
    "RECORD",
    "SUM",
    "N",
    "S",
    "block_shift",
    "block_sums_at",
    "find_arm",
    "lengths_at",
    "memory_size",
    "record_at",
    "second_lengths_at",
    "set_length",
    "total_length",
    "update_block_sum",
]

HEADER, RECORD = 16, 4
N, S = 0, 1  # of a record
# Of x, the numbers in registers: the lead, and its pulls and sum, which its record has only when asked.
LEADER, COUNT, SUM = range(3)
REBUILD_ALL = -1  # what an engine is to renew: everything; else what it likes
NO_EXPIRY = 1 << 30  # rounds: what lasts so long lasts
INDEX_MASK = 0xFFFFFF  # a place under this mask is not negative, as a compiler sees, and then it need not look whether it is


def block_shift(arms: int) -> int:
    """A block has 2 to the power of this many arms: about the root of their number, at least four."""
    shift = 2
    while 1 << (2 * shift) < arms:
        shift += 1
    return shift


def record_at(arm: int) -> int:
    """Where an arm's record begins."""
    return HEADER + RECORD * (arm & INDEX_MASK)


def lengths_at(arms: int) -> int:
    """Where the line begins."""
    return HEADER + RECORD * (arms & INDEX_MASK)


def block_sums_at(arms: int) -> int:
    """Where the sums of its blocks begin."""
    return HEADER + (RECORD + 1) * (arms & INDEX_MASK)


def second_lengths_at(arms: int) -> int:
    """Where a second line begins, if there are no sums."""
    return block_sums_at(arms)


def memory_size(arms: int) -> int:
    """How many numbers a trial keeps: a multiple of four."""
    return -(-(second_lengths_at(arms) + arms) // 4) * 4


def update_block_sum(w: Any, arms: int, shift: int, block: int) -> None:
    """The sum of a block, made anew, so that none drifts."""
    line, total = lengths_at(arms), 0.0
    for arm in range(block << shift, min((block + 1) << shift, arms)):
        total += w[(line + arm) & INDEX_MASK]
    w[(block_sums_at(arms) + block) & INDEX_MASK] = total


def total_length(w: Any, arms: int, shift: int) -> float:
    """The sum of all blocks."""
    total = 0.0
    for place in range(block_sums_at(arms), block_sums_at(arms) + ((arms - 1) >> shift) + 1):
        total += w[place & INDEX_MASK]
    return total


def set_length(w: Any, arms: int, shift: int, arm: int, length: float) -> None:
    """Change an arm's length, and the sum of its block."""
    w[(lengths_at(arms) + arm) & INDEX_MASK] = length
    update_block_sum(w, arms, shift, arm >> shift)


def find_arm(w: Any, arms: int, shift: int, position: float) -> tuple[int, float]:
    """The arm under a position on the line, and where in its length."""
    sums, block, last = block_sums_at(arms), 0, (arms - 1) >> shift
    while block < last and position >= w[(sums + block) & INDEX_MASK]:
        position -= w[(sums + block) & INDEX_MASK]
        block += 1
    line, arm, last = lengths_at(arms), block << shift, min((block + 1) << shift, arms) - 1
    while arm < last and position >= w[(line + arm) & INDEX_MASK]:
        position -= w[(line + arm) & INDEX_MASK]
        arm += 1
    return arm, position
