"""Hashes of the names of units, and sums of rows with the same hash.

A hash has 63 bits: the CRC-32 of the name, and 31 bits of its FNV-1a hash above. Among 20,000 units, two have
the same hash with a probability of 2 in 100 billion.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maillard.array_types import Floats, Ints
from maillard.evaluation.sequential.kernels import compiled

# The change of a CRC-32 by each value of a byte.
_CRC = np.array([zlib.crc32(bytes([byte ^ 0xFF])) ^ 0xFF000000 for byte in range(256)])


def unit_hashes(units: Sequence[str]) -> Ints:
    """The hash of each name.

    >>> int(unit_hashes(["user 1"])[0]) % 2**32 == zlib.crc32(b"user 1")
    True
    """
    data = np.frombuffer(("\0".join(units) + "\0").encode(errors="replace"), np.uint8)
    ends = np.flatnonzero(data == 0)
    if ends.size != len(units):  # a name contains the separator
        lengths = np.array([len(unit.encode(errors="replace")) for unit in units], np.int64)
        ends = np.cumsum(lengths + 1) - 1
    return _hashes(data, ends, _CRC)


@compiled
def _hashes(data: NDArray[np.uint8], ends: Ints, table: Ints) -> Ints:
    found = np.empty(ends.size, np.int64)
    start = 0
    for unit in range(ends.size):
        crc, fnv = 0xFFFFFFFF, 0x811C9DC5
        for place in range(start, ends[unit]):
            byte = int(data[place])
            crc = int(table[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
            fnv = ((fnv ^ byte) * 0x01000193) & 0xFFFFFFFF
        found[unit] = (fnv & 0x7FFFFFFF) << 32 | (crc ^ 0xFFFFFFFF)
        start = ends[unit] + 1
    return found


@compiled
def sums_by_hash(hashes: Ints, terms: Floats) -> tuple[Ints, Floats]:
    """The distinct hashes in the order in which they occur, and the sum of the rows of `terms` of each."""
    size = 1
    while size < 2 * hashes.size:
        size *= 2
    places = np.full(size, -1)  # a hash table with linear probing: the index of a hash in `found`, or -1
    found, sums, count = np.empty(hashes.size, np.int64), np.zeros(terms.shape), 0
    for row in range(hashes.size):
        slot = (hashes[row] >> 32) & (size - 1)
        while places[slot] >= 0 and found[places[slot]] != hashes[row]:
            slot = (slot + 1) & (size - 1)
        if places[slot] < 0:
            places[slot] = count
            found[count] = hashes[row]
            count += 1
        for term in range(terms.shape[1]):
            sums[places[slot], term] += terms[row, term]
    return found[:count].copy(), sums[:count].copy()
