"""Normal random numbers in blocks, in single precision: a quarter of the cost of one at a time.

A block consists of pairs of numbers, by Box and Muller's transform of two halves of random words (see
`random_words`). Numbers in single precision are within `ERROR` of the exact ones, unless the first half is
below `CAREFUL`. The exact number is a function of the two halves, which the bits of their hash continue.

A block lies in a table of doubles, in one piece that may span several rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from maillard.simulation.compiling import rare
from maillard.simulation.engines.random_words import COUNT, STATE_SIZE, generate_words

PAIRS = COUNT
NUMBERS = 2 * PAIRS  # in a block; number i + PAIRS is the partner of number i
SPARE = 16  # numbers that a reader of vectors may read after the last one
# The parts of a block: where they begin, in doubles.
WORDS = PAIRS + SPARE // 2
GENERATORS = WORDS + PAIRS
SIZE = GENERATORS + STATE_SIZE
CAREFUL = 2.0**14
ERROR = 2.0**-15

_EIGHTH = math.pi / 4.0


@rare
def fill_block(block: Any) -> float:
    """Generate new words and their numbers; return the lowest first half of a word."""
    words = block[WORDS:GENERATORS]
    generate_words(block[GENERATORS:SIZE].view(np.uint64), words.view(np.uint64))
    return float(transform(words.view(np.uint32), block[:PAIRS].view(np.float32)))


def transform(halves: Any, numbers: Any) -> Any:
    """Compute the numbers of all words, without branches or calls, so that the loop vectorizes.

    The first half of a word is the radius, the second the angle: bits 0 to 29 are an angle within an eighth
    of a turn of an axis, bit 30 negates both numbers, and bit 31 swaps them.
    """
    one, lowest = np.float32(1.0), np.uint32(0xFFFFFFFF)
    for place in range(PAIRS):
        radius, angle = halves[place], halves[PAIRS + place]
        lowest = min(lowest, radius)
        u = (np.float32(radius) + np.float32(0.5)) * np.float32(2.0**-32)
        # ln u = exponent ln 2 + ln(1 + f) with 1 + f between the roots of 1/2 and 2; f is precise near u = 1.
        bits = np.float32(u).view(np.int32)
        exponent = (bits - np.int32(0x3F3504F3)) >> np.int32(23)
        f = np.int32(bits - (exponent << np.int32(23))).view(np.float32) - one
        below_one = (np.float32(np.uint32(0xFFFFFFFF) - radius) + np.float32(0.5)) * np.float32(-(2.0**-32))
        f = below_one if radius >= np.uint32(0xC0000000) else f
        s = f / (np.float32(2.0) + f)
        q = s * s
        series = one + q * (
            np.float32(1 / 3) + q * (np.float32(1 / 5) + q * (np.float32(1 / 7) + q * np.float32(1 / 9)))
        )
        minus_log = np.float32(-4.0) * s * series - np.float32(exponent) * np.float32(2.0 * math.log(2.0))
        r = np.sqrt(minus_log)
        x = np.float32(np.int32(angle << np.uint32(2))) * np.float32(_EIGHTH * 2.0**-31)
        y = x * x
        sine = x * (one + y * (np.float32(-1 / 6) + y * (np.float32(1 / 120) + y * np.float32(-1 / 5040))))
        cosine = one + y * (
            np.float32(-1 / 2)
            + y * (np.float32(1 / 24) + y * (np.float32(-1 / 720) + y * np.float32(1 / 40320)))
        )
        swap = np.int32(angle) < np.int32(0)
        first, second = r * (sine if swap else cosine), r * (cosine if swap else sine)
        sign = np.int32(angle << np.uint32(1)) & np.int32(-0x80000000)
        numbers[place] = np.int32(np.float32(first).view(np.int32) ^ sign).view(np.float32)
        numbers[PAIRS + place] = np.int32(np.float32(second).view(np.int32) ^ sign).view(np.float32)
    return lowest


transform.fastmath = {"contract", "nsz"}  # type: ignore[attr-defined]


@rare
def exact_number(block: Any, place: int) -> tuple[float, bool]:
    """Return a number in double precision, and whether that in single precision is within ERROR."""
    halves = block[WORDS:GENERATORS].view(np.uint32)
    radius, angle = halves[place % PAIRS], halves[PAIRS + place % PAIRS]
    mixed = (np.uint64(radius) << np.uint64(32)) | np.uint64(angle)
    for _ in range(2):  # the finalizer of MurmurHash3
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    more, rest = float(mixed >> np.uint64(32)), float(mixed & np.uint64(0xFFFFFFFF))
    u = (float(radius) + (more + 0.5) * 2.0**-32) * 2.0**-32
    r = np.sqrt(-2.0 * np.log(u))
    x = float(np.int32(angle << np.uint32(2))) * 0.25 + (rest + 0.5) * 2.0**-32
    x *= _EIGHTH * 2.0**-29
    number = r * (np.sin(x) if (angle >> np.uint32(31) == 1) == (place < PAIRS) else np.cos(x))
    return (-number if (angle >> np.uint32(30)) & np.uint32(1) == 1 else number), radius >= CAREFUL
