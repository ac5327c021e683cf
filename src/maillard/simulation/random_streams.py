"""The random stream of each trial. It depends on the seed, the policy's spec and the trial number only."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from maillard.policies import Policy


def policy_key(policy: Policy) -> int:
    """Return the number that separates the streams of different policies."""
    return zlib.crc32(str(policy).encode())


def trial_bit_generator(seed: int, key: int, trial: int) -> np.random.PCG64:
    """Return the bit generator of one trial of the policy with this key."""
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(key, trial)))


def trial_generator(seed: int, policy: Policy, trial: int) -> np.random.Generator:
    """Return the generator of one trial."""
    return np.random.Generator(trial_bit_generator(seed, policy_key(policy), trial))
