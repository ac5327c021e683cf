"""The memory of one trial: numbers of the engine, a record per arm, and a line of lengths with block sums.

    [0, HEADER)                    numbers that few rounds read
    HEADER + RECORD * arm          an arm's record: pulls, sum, and two more; one sector of 32 bytes
    lengths_at(arms) + arm         the line: one length per arm
    block_sums_at(arms) + block    the sum of each block; or second lengths, at second_lengths_at(arms)

A position on the line is found by block: first the sums, then one block. There are about as many blocks as
arms per block.
"""

from __future__ import annotations

from typing import Any

HEADER, RECORD = 16, 4
N, S = 0, 1  # of a record
# Positions in x, the registers: the leader, and its pulls and sum, which its record has only when it is
# written back.
LEADER, COUNT, SUM = range(3)
REBUILD_ALL = -1  # what `update` asks `rebuild` to do: everything; other values are the engine's own
OTHERS_REGRET = HEADER - 1  # of the header: the regret of all pulls but the leader's
NO_EXPIRY = 1 << 30  # a number of rounds that no launch reaches
INDEX_MASK = 0xFFFFFF  # tells the compiler that an index is not negative, which saves a check


def block_shift(arms: int) -> int:
    """Return log2 of the number of arms per block: about the root of the number of arms, at least four."""
    shift = 2
    while 1 << (2 * shift) < arms:
        shift += 1
    return shift


def record_at(arm: int) -> int:
    """Return where an arm's record begins."""
    return HEADER + RECORD * (arm & INDEX_MASK)


def save_leader(x: Any, w: Any) -> None:
    """Write the leader's pulls and sum back to its record."""
    at = record_at(int(x[LEADER]))
    w[at + N], w[at + S] = x[COUNT], x[SUM]


def load_leader(x: Any, w: Any, arm: int) -> None:
    """Make an arm the leader: read its pulls and sum from its record."""
    at = record_at(arm)
    x[LEADER], x[COUNT], x[SUM] = arm, w[at + N], w[at + S]


def lengths_at(arms: int) -> int:
    """Return where the lengths begin."""
    return HEADER + RECORD * (arms & INDEX_MASK)


def block_sums_at(arms: int) -> int:
    """Return where the sums of the blocks begin."""
    return HEADER + (RECORD + 1) * (arms & INDEX_MASK)


def second_lengths_at(arms: int) -> int:
    """Return where a second row of lengths begins, for engines without block sums."""
    return block_sums_at(arms)


def memory_size(arms: int) -> int:
    """Return how many numbers a trial needs: a multiple of four."""
    return -(-(second_lengths_at(arms) + arms) // 4) * 4


def update_block_sum(w: Any, arms: int, shift: int, block: int) -> None:
    """Recompute the sum of a block, so that rounding errors do not accumulate."""
    line, total = lengths_at(arms), 0.0
    for arm in range(block << shift, min((block + 1) << shift, arms)):
        total += w[(line + arm) & INDEX_MASK]
    w[(block_sums_at(arms) + block) & INDEX_MASK] = total


def update_block_sums(w: Any, arms: int, shift: int, first: int, last: int) -> None:
    """Recompute the sums of the blocks of the arms from `first` to `last` - 1."""
    for block in range(first >> shift, ((last - 1) >> shift) + 1):
        update_block_sum(w, arms, shift, block)


def total_length(w: Any, arms: int, shift: int) -> float:
    """Return the sum of all blocks."""
    total = 0.0
    for place in range(block_sums_at(arms), block_sums_at(arms) + ((arms - 1) >> shift) + 1):
        total += w[place & INDEX_MASK]
    return total


def set_length(w: Any, arms: int, shift: int, arm: int, length: float) -> None:
    """Set an arm's length, and update the sum of its block."""
    w[(lengths_at(arms) + arm) & INDEX_MASK] = length
    update_block_sum(w, arms, shift, arm >> shift)


def find_arm(w: Any, arms: int, shift: int, position: float) -> tuple[int, float]:
    """Return the arm at a position on the line of lengths, and the position within its length."""
    sums, block, last = block_sums_at(arms), 0, (arms - 1) >> shift
    while block < last and position >= w[(sums + block) & INDEX_MASK]:
        position -= w[(sums + block) & INDEX_MASK]
        block += 1
    line, arm, last = lengths_at(arms), block << shift, min((block + 1) << shift, arms) - 1
    while arm < last and position >= w[(line + arm) & INDEX_MASK]:
        position -= w[(line + arm) & INDEX_MASK]
        arm += 1
    return arm, position
