"""Distributions as SQL stores keep them: in binary form, and once for all decisions that share one."""

from __future__ import annotations

import json
import math
import sys
import zlib
from array import array
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from maillard.decisions import chain
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.identifiers import check_name

_MAX_RECENT = 256
_MAX_LISTS = 10_000  # lists of arms that are known to be written; every decision may have its own
_MIN_COMPRESSED = 512  # bytes; shorter data is stored as it is
_COMPRESSION = 1  # the lowest level: more takes several times as long and saves little


class Vector(NamedTuple):
    """A distribution: names of arms and their log probabilities."""

    digest: bytes
    "The digest of the whole, for the chain."
    variant: int
    "Tells apart the distributions of one state: a part of the digest."
    arms: int
    "Tells apart lists of arms: a part of the digest of their names."
    names: str
    "The names of the arms, in JSON."
    data: bytes
    "The log probabilities as little-endian doubles, compressed if that is shorter."


class WrittenVectors:
    """What a connection has committed and need not write again: lists of arms, vectors of the latest states.

    It belongs to a connection. When a connection is opened again, the tables may be those of a backup.
    """

    def __init__(self) -> None:
        self._lists: set[tuple[int, int]] = set()
        self._latest: dict[int, tuple[int, set[int]]] = {}

    def has_list(self, experiment: int, arms: int) -> bool:
        """Whether a list of arms was committed."""
        return (experiment, arms) in self._lists

    def has_vector(self, experiment: int, state: int, variant: int) -> bool:
        """Whether a vector was committed."""
        latest = self._latest.get(experiment)
        return latest is not None and latest[0] == state and variant in latest[1]

    def add(self, experiment: int, vectors: Mapping[tuple[int, int], Vector]) -> None:
        """Note what was committed."""
        if len(self._lists) > _MAX_LISTS:
            self._lists.clear()
        for (state, variant), vector in vectors.items():
            self._lists.add((experiment, vector.arms))
            last, variants = self._latest.get(experiment, (0, set[int]()))
            if state == last and len(variants) < _MAX_RECENT:
                variants.add(variant)
            elif state >= last:
                self._latest[experiment] = state, {variant}


_recent: dict[int, tuple[tuple[str, ...], tuple[float, ...], Vector]] = {}


def vector_of(eligible: tuple[str, ...], logs: tuple[float, ...]) -> Vector:
    """The vector of a distribution. Decisions of one state share the tuple, so its identity is remembered."""
    found = _recent.get(id(logs))
    if found is not None and found[0] is eligible and found[1] is logs:
        return found[2]
    data = _bytes_of(logs)
    digest, (arms, names) = chain.vector_digest(eligible, data), _write_arms(eligible)
    vector = Vector(digest, _number(digest), arms, names, _compress(data))
    if len(_recent) >= _MAX_RECENT:
        _recent.clear()
    _recent[id(logs)] = eligible, logs, vector
    return vector


def read_vector(names: str, data: bytes) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The arms and log probabilities of a stored vector, or ValueError."""
    arms = read_arms(names)
    return arms, _read_logs(data, len(arms))


@lru_cache(maxsize=256)
def read_arms(names: str) -> tuple[str, ...]:
    """The arms of a stored list, or ValueError."""
    arms = json.loads(names)
    checked = [check_name("eligible", arm) for arm in arms] if isinstance(arms, list) else []
    if not checked or len(set(checked)) < len(checked):
        raise ValueError("eligible: a list of different names")
    return tuple(checked)


def digest_of(eligible: tuple[str, ...], logs: tuple[float, ...]) -> bytes:
    """The digest of a distribution."""
    return chain.vector_digest(eligible, _bytes_of(logs))


@lru_cache(maxsize=256)
def _write_arms(eligible: tuple[str, ...]) -> tuple[int, str]:
    names = json.dumps(eligible, ensure_ascii=False)
    return _number(chain.digest_of(names)), names


@lru_cache(maxsize=256)
def _read_logs(data: bytes, size: int) -> tuple[float, ...]:
    try:
        raw = data if len(data) == 8 * size else zlib.decompressobj().decompress(data, 8 * size + 1)
    except zlib.error as error:
        raise ValueError(f"log_probabilities: compressed numbers ({error})") from None
    if len(raw) != 8 * size:
        raise ValueError(f"log_probabilities: {size} numbers, one per eligible arm")
    numbers = array("d", raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    if any(math.isnan(log) or log > LOG_PROBABILITY_TOLERANCE for log in numbers):
        raise ValueError("log_probabilities: numbers <= 0")
    return tuple(numbers)


def _bytes_of(logs: tuple[float, ...]) -> bytes:
    numbers = array("d", logs)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _compress(data: bytes) -> bytes:
    packed = zlib.compress(data, _COMPRESSION) if len(data) >= _MIN_COMPRESSED else data
    return packed if len(packed) < len(data) else data


def _number(digest: bytes) -> int:
    """The first 8 bytes of a digest as a 64-bit integer."""
    return int.from_bytes(digest[:8], "little", signed=True)
