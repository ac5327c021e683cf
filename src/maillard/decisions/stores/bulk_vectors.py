"""Distributions that were read in bulk."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maillard.array_types import Floats, Ints
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.stores.bulk_columns import OddRows


@dataclass(frozen=True, eq=False)
class VectorTable:
    """Distributions, sorted by state and variant."""

    state: Ints
    variant: Ints
    eligible: Ints
    "Index in `eligible_sets`."
    eligible_sets: list[tuple[str, ...]]
    ends: Ints
    "Where each vector ends in `log_probabilities`."
    log_probabilities: Floats

    def find(self, state: Ints, variant: Ints) -> Ints:
        """Return the index of each of these vectors; raise OddRows if one is missing."""
        if not self.state.size:
            raise OddRows("vectors are missing")
        if (self.state[1:] > self.state[:-1]).all():
            found = np.searchsorted(self.state, state)
        else:
            # Make one number of both.
            variants, code = np.unique(self.variant, return_inverse=True)
            states = np.unique(self.state)
            key = np.searchsorted(states, self.state) * variants.size + code
            wanted = np.searchsorted(states, state) * variants.size + np.searchsorted(variants, variant)
            found = np.searchsorted(key, wanted)
        found = np.minimum(found, self.state.size - 1)
        if (self.state[found] != state).any() or (self.variant[found] != variant).any():
            raise OddRows("vectors are missing")
        return found


def decode(data: Sequence[bytes], sizes: Ints) -> Floats:
    """Return the log probabilities of vectors, which may be compressed, one after the other."""
    if list(map(len, data)) != sizes.tolist():
        try:
            data = [
                each if len(each) == size else zlib.decompressobj().decompress(each, size + 1)
                for each, size in zip(data, sizes.tolist(), strict=True)
            ]
        except zlib.error as error:
            raise OddRows("log probabilities cannot be decompressed") from error
        if list(map(len, data)) != sizes.tolist():
            raise OddRows("a vector has another length")
    logs = np.frombuffer(b"".join(data), "<f8").astype(np.float64, copy=False)
    if not (logs <= LOG_PROBABILITY_TOLERANCE).all():
        raise OddRows("a log probability is out of range")
    return logs
