"""Random words in blocks, from 64 generators xoshiro256++ (Blackman and Vigna 2021) side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

LANES = 64
COUNT = 1024  # words of a block
STATE_SIZE = 4 * LANES  # words of the state of all generators


def seed_generators(state: Any, rng: Any) -> None:
    """Seed the generators from another one; `state` is an array of doubles."""
    halves = state.view(np.uint32)
    for place in range(2 * STATE_SIZE):
        halves[place] = np.uint32(rng.random() * 2.0**32)


def generate_words(state: Any, words: Any) -> None:
    """Generate random words by xoshiro256++."""
    for start in range(0, COUNT, LANES):
        some = words[start : start + LANES]  # LLVM sees that they do not overlap with the state
        for lane in range(LANES):
            a, b, c, d = state[lane], state[LANES + lane], state[2 * LANES + lane], state[3 * LANES + lane]
            total = a + d
            some[lane] = ((total << np.uint64(23)) | (total >> np.uint64(41))) + a
            shifted = b << np.uint64(17)
            c ^= a
            d ^= b
            b ^= c
            a ^= d
            c ^= shifted
            d = (d << np.uint64(45)) | (d >> np.uint64(19))
            state[lane], state[LANES + lane], state[2 * LANES + lane], state[3 * LANES + lane] = a, b, c, d
